"""Which tensors the artifact should give, where the user names none and the file has no signature.

Of twins that share a parameter variable, those that training differentiates are dropped, then those in
training mode. From the rest the walk goes forward to natural leaves: nodes that nothing reads but
summaries. It never enters shapes, state, losses, metrics, gradients or savers, nor anything that needs a
non-scalar placeholder which no recurrence needs, for those are labels. A leaf inside a branch is no output.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph import branches, build, trace
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index

_BLOCKED: Final = re.compile(
    r"Shape|ShapeN|Size|Rank|.*Summary(V2)?|Assign.*|.*Apply.*|Save.*|MergeV2.*|Restore.*|Scatter.*|Print(V2)?|"
    r"Assert|.*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?|EditDistance|InTopK(V2)?|L2Loss)|.*Grad(V2)?|"
    r"CudnnRNNBackprop.*|CudnnRNNParamsToCanonical.*|.*Enqueue.*|BroadcastGradientArgs|Merge.*Summary|NoOp"
)
_BACKWARD: Final = re.compile(r"CudnnRNNBackprop.*|BlockLSTMGrad(V2)?|LSTMBlockCellGrad")
_LOSSES: Final = re.compile(r".*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?)")
_FLATTENING: Final = frozenset({"Reshape", "Transpose", "Cast"})
_GRADIENTS: Final = re.compile(r"(.*/)?gradients(_\d+)?/.*")
_NUMBER: Final = re.compile(r"_\d+$")
_SUMMARY: Final = re.compile(r".*Summary(V2)?")


def outputs(path: Path, graph: Any) -> list[str]:
    """The output tensors `op:k`, in the graph's order. Raises AmbiguousSourceError, UnsupportedModelError."""
    index = Index(graph)
    nodes = trace.recurrences(index) or trace.cpu_recurrences(index)
    if not nodes:
        expected = "expected a node CudnnRNN, BlockLSTM or LSTMBlockCell"
        raise UnsupportedModelError(path, [f"graph: {expected}, found none; name --outputs"])
    wanted = _inference(index, nodes)
    walked = _forward(index, wanted, dropped=[node for node in nodes if node not in wanted])
    optional = branches.inside(index)
    leaves = [name for name in walked if _is_leaf(index, name) and name not in optional]
    found = _tensors(graph, index, leaves)
    found = found or _tensors(graph, index, [name for name in walked if _is_boundary(index, name, walked)])
    if not found:
        raise AmbiguousSourceError(path, ["outputs: found none that depend on a recurrence; name --outputs"])
    _refuse_equal_twins(path, index, wanted, found)
    return found


def _inference(index: Index, nodes: list[Any]) -> list[Any]:
    twins: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for node in nodes:
        leaves = trace.parameters(index, node).leaves
        if not any(trace.is_copy(index, name) for name in leaves):
            twins[leaves].append(node)
    wanted = []
    for group in twins.values():
        kept = [node for node in group if not _is_differentiated(index, node)] or group
        wanted += [node for node in kept if not _is_training(node)] or kept
    return wanted


def _is_differentiated(index: Index, node: Any) -> bool:
    return any(_BACKWARD.fullmatch(reader.op) for reader in index.consumers(node.name))


def _is_training(node: Any) -> bool:
    # tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc: is_training defaults to true.
    return "is_training" not in node.attr or bool(node.attr["is_training"].b)


def _forward(index: Index, wanted: list[Any], *, dropped: list[Any]) -> dict[str, None]:
    """The nodes that the walk reaches, recurrences included, as an ordered set."""
    needed = index.ancestors([node.name for node in wanted])
    labels = [
        node.name
        for node in index.nodes.values()
        if node.op in ("Placeholder", "PlaceholderV2") and node.name not in needed and not _is_scalar(node)
    ]
    forbidden = index.descendants([*labels, *(node.name for node in dropped)]) | _inside_losses(index)
    walked: dict[str, None] = {}
    todo = [node.name for node in wanted if node.name not in forbidden]
    while todo:
        name = todo.pop(0)
        if name not in walked:
            walked[name] = None
            outputs = range(OUTPUTS) if index.nodes[name].op in CUDNN_OPS else [None]
            readers = (reader for k in outputs for reader in index.consumers(name, k))
            todo += [r.name for r in readers if r.name not in forbidden and not _is_blocked(r)]
    return walked


def _inside_losses(index: Index) -> set[str]:
    """What a loss makes of scores in its own scope (tensorflow v1.15.0 python/ops/nn_ops.py): it flattens."""
    found = set()
    for node in index.nodes.values():
        if _LOSSES.fullmatch(node.op):
            scope, _, own = node.name.rpartition("/")
            # The op is `loss` beside `loss/Reshape`, or `loss/loss`, where either may be numbered.
            named = _NUMBER.sub("", scope.rpartition("/")[2]) == _NUMBER.sub("", own)
            found.add(f"{scope if named else node.name}/")
    return {
        name for name, node in index.nodes.items() if node.op in _FLATTENING and name.startswith(tuple(found))
    }


def _is_scalar(node: Any) -> bool:
    shape = node.attr["shape"].shape
    return "shape" in node.attr and not shape.unknown_rank and not shape.dim


def _is_blocked(node: Any) -> bool:
    return bool(_BLOCKED.fullmatch(node.op) or _GRADIENTS.fullmatch(node.name))


def _is_leaf(index: Index, name: str) -> bool:
    # A loop variable that nobody reads after the loop was not made to be read.
    unread = all(_SUMMARY.fullmatch(reader.op) for reader in index.consumers(name))
    return unread and index.nodes[name].op != "Exit"


def _is_boundary(index: Index, name: str, walked: dict[str, None]) -> bool:
    return not any(reader.name in walked for reader in index.consumers(name))


def _tensors(graph: Any, index: Index, names: list[str]) -> list[str]:
    """The outputs of `names` with a rank above 0 that are numbers."""
    seen = build.sound(build.kept(graph, index.ancestors(names)))
    found = []
    for node in graph.node:
        if node.name in names:
            count = OUTPUTS if node.op in CUDNN_OPS else None
            found += [
                tensor.name
                for tensor in seen.get_operation_by_name(node.name).outputs[:count]
                if tensor.shape.rank != 0
                and tensor.dtype.name not in ("bool", "string", "resource", "variant")
            ]
    return found


def _refuse_equal_twins(path: Path, index: Index, wanted: list[Any], found: list[str]) -> None:
    """Applications of one layer that lead to disjoint outputs are a choice that the user must make."""
    twins: dict[tuple[str, ...], list[set[str]]] = defaultdict(list)
    for node in wanted:
        below = index.descendants([node.name])
        leaves = {name for name in found if name.rpartition(":")[0] in below}
        twins[trace.parameters(index, node).leaves].append(leaves)
    for variables, groups in twins.items():
        if len(groups) > 1 and not set.intersection(*groups):
            names = f"{', '.join(variables)} {'feeds' if len(variables) == 1 else 'feed'}"
            ways = [f"--outputs {','.join(sorted(leaves)) or '(none found)'}" for leaves in groups]
            reason = f"{names} {len(groups)} recurrences that training tells nothing about; choose one of"
            raise AmbiguousSourceError(path, [f"{reason}: {' | '.join(ways)}"])
