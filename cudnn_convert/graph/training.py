"""What of a graph belongs to training or its records: losses, metrics, gradients, summaries, savers, labels.

A label reaches a loss, a metric or a gradient and nothing else; an input reaches an output. Which is which
shows in what lies below a source of values that no recurrence needs: a label meets no weights and is never
what a loss takes for a prediction.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph.cut import PLACEHOLDERS, STREAMS
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index, split, tensor
from cudnn_convert.graph.trace import VARIABLES

_BLOCKED: Final = re.compile(
    r"Shape|ShapeN|Size|Rank|.*Summary(V2)?|Assign.*|.*Apply.*|Save.*|MergeV2.*|Restore.*|PrintV2|Assert|"
    r"(Resource)?Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|"
    r".*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?|EditDistance|InTopK(V2)?|L2Loss)|.*Grad(V2)?|"
    r"CudnnRNNBackprop.*|CudnnRNNParamsToCanonical.*|.*Enqueue.*|BroadcastGradientArgs|NoOp"
)
_GRADIENTS: Final = re.compile(r"(.*/)?gradients(_\d+)?/.*")
_SUMMARY: Final = re.compile(r".*Summary(V2)?")
#: Losses with an op of their own, which take the prediction first (tensorflow v1.15.0 core/ops/nn_ops.cc,
#: ctc_ops.cc); the first so many inputs behind it are labels.
_LOSSES: Final = re.compile(r".*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?)")
_LABELS: Final = {"CTCLoss": 2, "CTCLossV2": 2}
_NUMBER: Final = re.compile(r"_\d+$")
_FLATTENING: Final = frozenset({"Reshape", "Transpose", "Cast"})
#: What gives a loss its operands in another form.
MOVES: Final = _FLATTENING | frozenset(
    "Squeeze ExpandDims StridedSlice Slice Pack ConcatV2 Gather GatherV2 GatherNd".split()
)
#: Of a prediction and a label: a metric.
_COMPARISONS: Final = frozenset({"Equal", "NotEqual"})
_HANDS_ON: Final = frozenset(
    "Identity ReadVariableOp Enter RefEnter Switch RefSwitch Cast StopGradient".split()
)
_ACCUMULATES: Final = re.compile(r"Assign(Add|Sub)(VariableOp)?")
_NAMED: Final = re.compile(
    r"(.*[/_])?(labels?|targets?|truths?|gold|annotations?|y_true)([/_].*)?", re.IGNORECASE
)


def is_summary(node: Any) -> bool:
    """Whether a node keeps a record of what it reads."""
    return bool(_SUMMARY.fullmatch(node.op))


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor `op:k` that a program gives; `is_label`: it serves training alone.

    `may_be`: it reaches more than that, and yet is called as labels are or is given to a loss as one.
    """

    name: str
    below: Collection[str]
    is_label: bool
    may_be: bool


class Walk:
    """What lies forward of recurrences, without what training and records make of it."""

    def __init__(self, index: Index, starts: Collection[str], forbidden: Collection[str]) -> None:
        self.index, self.starts = index, starts
        self._closed = {*forbidden, *_inside_losses(index)}
        needed = index.ancestors(starts)
        given = [name for name in _given(index) if not _is_needed(index, name, needed)]
        walked = self.below((start, None) for start in starts)
        for name in given:
            self._closed.update(
                _metrics(index, walked.keys(), self.below([split(name)]).keys() | {split(name)[0]})
            )
        self.reached = self.below((start, None) for start in starts)
        for start in starts:
            self.reached.setdefault(start)
        self._given = [(name, self.below([split(name)])) for name in given]

    def below(self, tensors: Iterable[tuple[str, int | None]]) -> dict[str, None]:
        """The nodes that read `(op, k)`, directly or not, in the order of their distance."""
        found: dict[str, None] = {}
        todo = deque(tensors)
        while todo:
            name, k = todo.popleft()
            for output in [k] if k is not None or not self._is_cudnn(name) else range(OUTPUTS):
                for reader in self.index.consumers(name, output):
                    if reader.name not in found and self._is_open(reader, name):
                        found[reader.name] = None
                        todo.append((reader.name, None))
        return found

    def _is_cudnn(self, name: str) -> bool:
        return self.index.nodes[name].op in CUDNN_OPS

    def _is_open(self, reader: Any, name: str) -> bool:
        if reader.name in self._closed or _BLOCKED.fullmatch(reader.op) or _GRADIENTS.fullmatch(reader.name):
            return False
        # What is printed is a record; what is handed on is the first input.
        return reader.op != "Print" or split(reader.input[0])[0] == name

    def sources(self, leaves: Collection[str]) -> list[Source]:
        """What a program gives beside the needs of the recurrences, judged by the unread nodes `leaves`."""
        losses = [*_losses(self.index)]
        found = []
        for name, below in self._given:
            reach = {split(name)[0], *below}
            is_target = any(
                split(label)[0] in reach - self.reached.keys() for loss in losses for label in loss.labels
            )
            ends = not reach.isdisjoint(leaves)
            is_model = any(split(loss.origin)[0] in reach for loss in losses)
            is_model = is_model or any(self.weights(self.index.nodes[op]) for op in below)
            may_be = is_target or bool(_NAMED.fullmatch(split(name)[0]))
            found.append(Source(name, below.keys(), not ends and not is_model, may_be))
        return found

    def predictions(self) -> dict[str, str]:
        """What losses with an op of their own take for predictions, as tensors `op:k` of the walk, each with
        the tensor that it is another name of.
        """
        found = {loss.prediction: loss.origin for loss in _losses(self.index)}
        return {name: origin for name, origin in found.items() if split(name)[0] in self.reached}

    def weights(self, node: Any) -> set[str]:
        """The variables that a node reads: weights, not counters or averages of what passes."""
        found = set()
        for name in self.index.data_inputs(node):
            source = self.index.nodes.get(split(name)[0])
            while source is not None and source.op in _HANDS_ON:
                source = self.index.nodes.get(split(source.input[0])[0])
            if source is not None and source.op in VARIABLES and self._is_weight(source):
                found.add(source.name)
        return found

    def _is_weight(self, node: Any) -> bool:
        if not tf.as_dtype(node.attr["dtype"].type).is_floating:
            return False
        return not any(_ACCUMULATES.fullmatch(reader.op) for reader in self.index.consumers(node.name))


@dataclass(frozen=True, slots=True)
class _Loss:
    """What a loss takes for a prediction, before it was brought in form, by its last and its first name; what
    it takes for labels.
    """

    prediction: str
    origin: str
    labels: tuple[str, ...]


def _losses(index: Index) -> Iterator[_Loss]:
    for node in index.nodes.values():
        if _LOSSES.fullmatch(node.op) and not _GRADIENTS.fullmatch(node.name):
            taken, *others = index.data_inputs(node)
            taken = _before(index, taken, MOVES)
            origin = _before(index, taken, MOVES | {"Identity"})
            yield _Loss(taken, origin, tuple(others[: _LABELS.get(node.op, 1)]))


def _before(index: Index, name: str, ops: Collection[str]) -> str:
    """The tensor that some ops in a row are given."""
    while index.nodes[split(name)[0]].op in ops:
        name = index.data_inputs(index.nodes[split(name)[0]])[0]
    return name


def _given(index: Index) -> Iterator[str]:
    """The tensors `op:k` that a program gives: placeholders with axes, components of iterators and queues."""
    for node in index.nodes.values():
        if node.op in PLACEHOLDERS and not _is_scalar(node):
            yield f"{node.name}:0"
        elif node.op in STREAMS:
            yield from sorted(
                {
                    tensor(name)
                    for reader in index.consumers(node.name)
                    for name in reader.input
                    if split(name)[0] == node.name and not name.startswith("^")
                }
            )


def _is_scalar(node: Any) -> bool:
    shape = node.attr["shape"].shape
    return "shape" in node.attr and not shape.unknown_rank and not shape.dim


def _is_needed(index: Index, name: str, needed: Collection[str]) -> bool:
    return any(reader.name in needed for reader in index.consumers(*split(name)))


def _metrics(index: Index, walked: Collection[str], given: Collection[str]) -> Iterator[str]:
    """The comparisons of something `walked` with something that is `given` alone."""
    for name in walked:
        if index.nodes[name].op in _COMPARISONS:
            ops = [split(source)[0] for source in index.data_inputs(index.nodes[name])]
            is_walked = [op in walked for op in ops]
            if sum(is_walked) == 1 and ops[is_walked.index(False)] in given:
                yield name


def _inside_losses(index: Index) -> set[str]:
    """What a loss makes of scores in its own scope (tensorflow v1.15.0 python/ops/nn_ops.py): it flattens."""
    scopes = set()
    for node in index.nodes.values():
        if _LOSSES.fullmatch(node.op):
            scope, _, own = node.name.rpartition("/")
            # The op is `loss` beside `loss/Reshape`, or `loss/loss`, where either may be numbered.
            named = _NUMBER.sub("", scope.rpartition("/")[2]) == _NUMBER.sub("", own)
            scopes.add(f"{scope if named else node.name}/")
    return {
        name
        for name, node in index.nodes.items()
        if node.op in _FLATTENING and name.startswith(tuple(scopes))
    }
