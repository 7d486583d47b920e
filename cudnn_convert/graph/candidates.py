"""What the user may have meant as outputs, in the order in which a person would want them.

First what is called so (logits, probs, predictions), by itself or by the scope that it leaves; then what
chooses (an argmax, a softmax, a decoder), what a loss takes for a prediction, what nothing reads, and the
last layer with weights. The later of two in the graph comes first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import branches, build
from cudnn_convert.graph.cut import PLACEHOLDERS
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index, split
from cudnn_convert.graph.training import Source, Walk, is_named

#: The kind of a tensor of numbers that is no scalar; others are called by their type.
NUMBERS: Final = "numbers"
_SCALAR: Final = "scalar"
_OTHERS: Final = ("bool", "string", "resource", "variant")
_MOST: Final = 8
_LAST: Final = 7
_CALLED: Final = re.compile(
    r"(.*_)?(logits?|prob(s|abilit(y|ies))?|predict(ions?|ed)?|preds?|scores?|softmax|sigmoid|outputs?|classes|"
    r"class_ids|ids|decoded|tags|values|estimates?|actions?|policy)(_\d+)?(_.*)?",
    re.IGNORECASE,
)
_CHOOSING: Final = frozenset(
    "ArgMax Softmax LogSoftmax TopKV2 CTCGreedyDecoder CTCBeamSearchDecoder Multinomial".split()
)
_REDUCTIONS: Final = frozenset("Sum Mean Prod Max Min All Any".split())
_ELEMENTWISE: Final = frozenset(
    "Identity Neg Sqrt Square Exp Log Cast Div RealDiv DivNoNan Mul Add AddV2 AddN Sub Maximum Minimum "
    "Select".split()
)


def flags(ways: Iterable[str]) -> str:
    """The flags that choose one of several sets of outputs."""
    return " | ".join(f"--outputs {way}" for way in [*dict.fromkeys(ways)][:_MOST])


def kinds(graph: Any, index: Index, names: Collection[str]) -> dict[str, str]:
    """What each output tensor of the ops `names` is, in the graph's order."""
    seen = build.sound(build.kept(graph, index.ancestors(names)))
    wanted, found = frozenset(names), {}
    for node in graph.node:
        if node.name in wanted:
            count = OUTPUTS if node.op in CUDNN_OPS else None
            for tensor in seen.get_operation_by_name(node.name).outputs[:count]:
                found[tensor.name] = _kind(tensor)
    return found


def _kind(tensor: tf.Tensor) -> str:
    name = tensor.dtype.base_dtype.name
    if tensor.shape.rank == 0 or _is_total(tensor):
        return _SCALAR
    return name if name in _OTHERS else NUMBERS


def _is_total(tensor: tf.Tensor) -> bool:
    """Whether a tensor of unknown rank is one number: a reduction over all axes, or computed from such."""
    todo, seen = [tensor], set()
    while todo:
        one = todo.pop()
        op = one.op
        if op.name in seen or one.shape.rank == 0:
            continue
        seen.add(op.name)
        if one.shape.rank is not None:
            return False
        if op.type in _REDUCTIONS and not op.get_attr("keep_dims"):
            axes = op.inputs[1].op
            # tensorflow v1.15.0 python/ops/math_ops.py `_ReductionDims`: range(0, rank(x)).
            if axes.type != "Range" or axes.inputs[1].op.type != "Rank":
                return False
        elif op.type in _ELEMENTWISE and op.inputs:
            todo += op.inputs
        else:
            return False
    return True


def ordered(graph: Any, walk: Walk, leaves: Collection[str], sources: Collection[Source]) -> list[str]:
    """The tensors of a walk that may be outputs, the likeliest first."""
    index = walk.index
    closed = {name for source in sources if source.is_label for name in source.below}
    closed |= index.descendants(node.name for node in build.unknown(graph))
    open_ = [name for name in walk.reached if name not in closed and index.nodes[name].op not in PLACEHOLDERS]
    places = {name: place for place, name in enumerate(index.nodes)}
    ends = {split(leaf)[0] for leaf in leaves}
    ranks: dict[str, int] = {}
    for name, rank in _ranked(walk, open_, ends):
        ranks[name] = min(rank, ranks.get(name, rank))
    inside = branches.inside(index)
    likely = [name for name in ranks if name not in inside]
    known: dict[str, list[str]] = {}
    for name, kind in kinds(graph, index, likely).items():
        if kind == NUMBERS:
            known.setdefault(split(name)[0], []).append(name)
    # What a recurrence gives by itself is meant only where nothing stands behind it.
    behind = [name for name in known if index.nodes[name].op not in CUDNN_OPS or name in ends]
    order = sorted(behind or known, key=lambda name: (ranks[name], -places[name]))
    return [tensor for name in order for tensor in known[name]][:_MOST]


def everywhere(graph: Any, index: Index) -> list[str]:
    """The same of what placeholders reach, for a graph without recurrences: all that nothing reads, each."""
    starts = [node.name for node in index.nodes.values() if node.op in PLACEHOLDERS]
    walk = Walk(index, starts, ())
    reached = [name for name in walk.reached if name not in starts]
    ends = [name for name in reached if walk.is_unread(name)]
    listed = ordered(graph, walk, ends, ()) if ends else []
    unread = [name for name in listed if split(name)[0] in ends and index.nodes[split(name)[0]].op != "Exit"]
    return [",".join(unread), *listed] if unread else listed


def _ranked(walk: Walk, names: list[str], leaves: Collection[str]) -> Iterable[tuple[str, int]]:
    index, known = walk.index, frozenset(names)
    predictions = {split(name)[0] for name in walk.predictions()}
    heavy = {name for name in names if walk.weights(index.nodes[name])}
    for name in names:
        readers = [reader.name for reader in index.consumers(name) if reader.name in known]
        *scopes, own = name.split("/")
        is_end = name in leaves or name in predictions or not readers
        if _CALLED.fullmatch(own) or _leaves_scope(name, scopes, readers):
            yield name, 0 if is_end else 1
        elif index.nodes[name].op in _CHOOSING:
            yield name, 2
        if name in predictions:
            yield name, 3
        if name in leaves:
            yield name, 4
        elif not readers and not walk.is_for_a_loss(name):
            yield name, 5
        if "/" not in name and is_named(index.nodes[name]):
            yield name, 6
        if name in heavy:
            is_last = heavy.isdisjoint(walk.below([(name, None)]))
            inside = "/".join([*scopes, ""])
            if is_last or not (inside and any(reader.startswith(inside) for reader in readers)):
                yield name, _LAST if is_last else _LAST + 1


def _leaves_scope(name: str, scopes: list[str], readers: list[str]) -> bool:
    """Whether a node stands in a scope that is called as an output, and none of its readers does."""
    depths = [depth for depth, scope in enumerate(scopes, 1) if _CALLED.fullmatch(scope)]
    innermost = "/".join(scopes[: max(depths)]) + "/" if depths else ""
    return bool(innermost) and not any(reader.startswith(innermost) for reader in readers)
