"""Which tensors the artifact should give, where the user names none and the file has no signature.

Of replicas of tf.distribute the first counts. Of twins that share a parameter variable, those that training
differentiates are dropped, then those in training mode. From the rest the walk goes forward to natural
leaves: nodes that nothing reads but summaries and metrics, outside branches. They are the outputs where they
are all of the model: where no weight, no output of a recurrence and no prediction of a loss is left aside,
and none may be a measure of training. Elsewhere the user is asked. docs/choosing.md says it in a page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph import branches, build, candidates, trace
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index, split
from cudnn_convert.graph.training import Source, Walk

_BACKWARD: Final = re.compile(r"CudnnRNNBackprop.*|BlockLSTMGrad(V2)?|LSTMBlockCellGrad")
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The output tensors `op:k`, in the graph's order; `left` are leaves of no numbers, with their type.

    `training` are the twins in training mode that the outputs need where a branch is taken.
    """

    outputs: list[str]
    left: dict[str, str]
    training: tuple[str, ...] = ()


def outputs(path: Path, graph: Any) -> Choice:
    """The outputs of a graph. Raises AmbiguousSourceError, UnsupportedModelError."""
    index = Index(graph)
    nodes = trace.recurrences(index) or trace.cpu_recurrences(index)
    if not nodes:
        expected = "expected a node CudnnRNN, BlockLSTM or LSTMBlockCell"
        listed = candidates.everywhere(graph, index)
        advice = f"choose with {candidates.flags(listed)}" if listed else "name --outputs"
        raise UnsupportedModelError(path, [f"graph: {expected}, found none; {advice}"])
    wanted = _inference(index, nodes)
    others = [node.name for node in nodes if node not in wanted]
    dropped = branches.below(index, others, [node.name for node in wanted])
    walk = Walk(index, [node.name for node in wanted if node.name not in dropped], dropped)
    # What another package's op gives has a value nowhere but where that package is.
    elsewhere = branches.inside(index) | {node.name for node in build.unknown(graph)}
    leaves = [name for name in walk.reached if _is_leaf(walk, name) and name not in elsewhere]
    kinds = candidates.kinds(graph, index, leaves)
    found = [name for name, kind in kinds.items() if kind == candidates.NUMBERS]
    sources = walk.sources({split(name)[0] for name in found})
    measures = {name for source in sources if source.is_label for name in source.below}
    found = [name for name in found if split(name)[0] not in measures]
    _refuse_part(path, graph, walk, found, sources)
    _refuse_equal_twins(path, index, wanted, found)
    left = {name: kind for name, kind in kinds.items() if kind in ("bool", "string")}
    needed = index.ancestors((split(name)[0] for name in found), control=False)
    return Choice(found, left, tuple(name for name in others if name in needed))


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


def _is_leaf(walk: Walk, name: str) -> bool:
    # A loop variable that nobody reads after the loop was not made to be read.
    return walk.is_unread(name) and walk.index.nodes[name].op != "Exit"


def _refuse_part(path: Path, graph: Any, walk: Walk, found: list[str], sources: list[Source]) -> None:
    """Raises AmbiguousSourceError where the leaves may be less than the model, or more."""

    def listed() -> list[str]:
        return candidates.ordered(graph, walk, found, sources)

    if not found:
        reason = "outputs: expected tensors of numbers that nothing reads, found none behind a recurrence"
        single = listed()
        raise AmbiguousSourceError(path, [_asked(reason, [*_together(walk, single), *single])])
    doubts = {
        name: source.name
        for name in found
        for source in sources
        if source.may_be and split(name)[0] in source.below
    }
    if doubts:
        rest = [name for name in found if name not in doubts]
        needs = ", ".join(f"{name} needs {source}" for name, source in doubts.items())
        is_whole = bool(rest) and not _aside(walk, rest, sources)[0]
        ways = [",".join(rest), ",".join(found)] if is_whole else [",".join(found)]
        raise AmbiguousSourceError(
            path, [_asked(f"outputs: {needs}, which may hold labels", [*ways, *listed()])]
        )
    aside, nodes = _aside(walk, found, sources)
    if aside:
        reason = f"outputs: {', '.join(found[:_SHOWN])} leave out {', '.join(aside[:_SHOWN])}"
        single = listed()
        whole = [name for name in single if split(name)[0] in nodes]
        more = [",".join([*_heads(walk, whole), *found])] if whole else []
        raise AmbiguousSourceError(path, [_asked(reason, [*more, ",".join(found), *single])])


def _asked(reason: str, ways: list[str]) -> str:
    listed = candidates.flags(ways)
    return f"{reason}; choose with {listed}" if listed else f"{reason}; name --outputs"


def _together(walk: Walk, listed: list[str]) -> list[str]:
    """All predictions of losses at once, where there are several."""
    found = [name for name in walk.predictions() if name in listed]
    return [",".join(found)] if len(found) > 1 else []


def _heads(walk: Walk, names: list[str]) -> list[str]:
    """Of several tensors those that losses take, else the first."""
    return [name for name in names if name in walk.predictions()] or names[:1]


def _aside(walk: Walk, found: list[str], sources: list[Source]) -> tuple[list[str], set[str]]:
    """What of the model the tensors `found` do not need, as names; the nodes that have it."""
    index = walk.index
    needed = index.ancestors(split(name)[0] for name in found)
    closed: set[str] = set()
    for source in sources:
        if source.is_label or (source.may_be and needed.isdisjoint([split(source.name)[0]])):
            closed.update(source.below)
    rest = [name for name in walk.reached if name not in needed and name not in closed]
    weights = {name for op in rest for name in walk.weights(index.nodes[op])} - needed
    lost = [name for name in _recurrent(walk, closed) if not _is_read(walk, name, needed)]
    taken = [
        name
        for name, origin in walk.predictions().items()
        if split(origin)[0] not in needed and split(name)[0] not in closed
    ]
    return list(dict.fromkeys([*sorted(weights), *lost, *taken])), set(rest)


def _recurrent(walk: Walk, closed: Collection[str]) -> list[str]:
    """The outputs of the recurrences that something in the walk reads."""
    index = walk.index
    return [
        f"{start}:{k}"
        for start in walk.starts
        if index.nodes[start].op in CUDNN_OPS
        for k in range(OUTPUTS)
        if any(
            reader.name in walk.reached and reader.name not in closed for reader in index.consumers(start, k)
        )
    ]


def _is_read(walk: Walk, name: str, needed: Collection[str]) -> bool:
    return any(reader.name in needed for reader in walk.index.consumers(*split(name)))


def _refuse_equal_twins(path: Path, index: Index, wanted: list[Any], found: list[str]) -> None:
    """Applications of one layer that lead to disjoint outputs are a choice that the user must make."""
    twins: dict[tuple[str, ...], list[set[str]]] = defaultdict(list)
    for node in wanted:
        below = index.descendants([node.name])
        leaves = {name for name in found if split(name)[0] in below}
        twins[trace.parameters(index, node).leaves].append(leaves)
    for variables, groups in twins.items():
        if len(groups) > 1 and not set.intersection(*groups):
            names = f"{', '.join(variables)} {'feeds' if len(variables) == 1 else 'feed'}"
            ways = candidates.flags([",".join(sorted(leaves)) for leaves in groups if leaves])
            reason = f"{names} {len(groups)} recurrences that training tells nothing about; choose one of"
            raise AmbiguousSourceError(path, [f"{reason}: {ways}"])
