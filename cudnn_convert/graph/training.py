"""Finds the parts of training: losses, metrics, gradients, summaries, savers, labels.

A label reaches only losses, metrics and gradients; an input reaches an output. A source of values that no
recurrence needs is judged by the nodes that read it: behind a label no node reads weights, and none is the
prediction of a loss.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import moving_averages, node_defs, ops
from cudnn_convert.graph.index import OUTPUTS, Index, NodeDef, split, walk

_BLOCKED: Final = re.compile(
    r"Shape|ShapeN|Size|Rank|.*Summary(V2)?|Assign.*|.*Apply.*|Save.*|MergeV2.*|Restore.*|PrintV2|Assert|"
    r"(Resource)?Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|"
    r".*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?|EditDistance|InTopK(V2)?|L2Loss)|.*Grad(V2)?|"
    r"CudnnRNNBackprop.*|CudnnRNNParamsToCanonical.*|.*Enqueue.*|BroadcastGradientArgs|NoOp"
)
_GRADIENTS: Final = re.compile(r"(.*/)?gradients(_\d+)?/.*")
#: Where the gradients of an op lie (python/ops/gradients_util.py).
_GRADIENT: Final = re.compile(r"(.*/)?gradients(_\d+)?/(?P<op>.+)_grad/.*")
_SUMMARY: Final = re.compile(r".*Summary(V2)?")
_METRICS: Final = re.compile(r"InTopK(V2)?|EditDistance")
#: The names that TensorFlow's functions give to ops, where they differ from the op's own.
_BY_DEFAULT: Final = {
    **{"RealDiv": "truediv", "AddV2": "add", "Pack": "stack", "ConcatV2": "concat", "Cast": "tofloat"},
    **{"BatchMatMul": "matmul", "BatchMatMulV2": "matmul", "Select": "where", "GatherV2": "gather"},
}
#: Ops of which a layer or a loop is made.
_PARTS: Final = frozenset("BiasAdd MatMul Enter Exit Merge Switch NextIteration TensorArrayGatherV3".split())
#: Losses with an op of their own, which take the prediction first (tensorflow v1.15.0 core/ops/nn_ops.cc,
#: ctc_ops.cc); the first so many inputs behind it are labels.
_LOSSES: Final = re.compile(r".*(SoftmaxCrossEntropyWithLogits|CTCLoss(V2)?)")
_LABELS: Final = {"CTCLoss": 2, "CTCLossV2": 2}
#: Scopes of losses that are plain arithmetic (python/ops/losses/losses_impl.py, nn_impl.py,
#: contrib/seq2seq/python/ops/loss.py).
_SCOPES: Final = re.compile(
    r"(?P<scope>(.*/)?(logistic_loss|sequence_loss|(sigmoid|softmax|sparse_softmax)_cross_entropy_loss|"
    r"mean_squared_error|mean_pairwise_squared_error|absolute_difference|log_loss|huber_loss|hinge_loss|"
    r"cosine_distance_loss)(_\d+)?)/.*"
)
_NUMBER: Final = re.compile(r"_\d+$")
_FLATTENING: Final = frozenset({"Reshape", "Transpose", "Cast"})
#: What gives a loss its operands in another form.
_MOVES: Final = _FLATTENING | frozenset(
    "Squeeze ExpandDims StridedSlice Slice Pack ConcatV2 Gather GatherV2 GatherNd".split()
)
_FORMS: Final = _MOVES | {"Identity"}
#: Ops that take a prediction and a label: the first step of a loss; then metrics.
_JOINS: Final = frozenset({"SquaredDifference", "Sub", "Mul"})
_COMPARISONS: Final = frozenset({"Equal", "NotEqual"})
_HANDS_ON: Final = ops.PASSAGES | {"Identity", "ReadVariableOp", "Cast", "StopGradient"}
_NAMED: Final = re.compile(
    r"(.*[/_])?(labels?|targets?|truths?|gold|annotations?|y_true)([/_].*)?", re.IGNORECASE
)


def is_named(node: NodeDef) -> bool:
    """Return True if a node has a user's name, as far as the op tells."""
    own = _NUMBER.sub("", node.name.rpartition("/")[2]).replace("_", "").lower()
    kind = node.op.removesuffix("V2").removesuffix("V3").lower()
    return own not in (kind, _BY_DEFAULT.get(node.op, kind)) and node.op not in _PARTS


@dataclass(frozen=True, slots=True)
class FedTensor:
    """A tensor `op:k` fed by a program, perhaps a label.

    `is_label`: it serves only training and its metrics. `may_be`: it has a label's name, or a loss takes it
    as one.
    """

    name: str
    below: Collection[str]
    is_label: bool
    may_be: bool


class InferenceNodes:
    """The nodes behind recurrences, except nodes of training, metrics and records."""

    def __init__(self, index: Index, starts: Collection[str], forbidden: Collection[str]) -> None:
        self.index = index
        self._averages = moving_averages.list_averages(index)
        self._closed = {*forbidden, *_inside_losses(index)}
        self._closed |= moving_averages.find_update_ops(index)
        self._closed.update(name for name in index.nodes if _SCOPES.fullmatch(name))
        needed = index.ancestors(starts)
        given = [name for name in _list_given(index) if not _is_needed(index, name, needed)]
        walked = self.below((start, None) for start in starts)
        self._metrics: set[str] = set()
        for name in given:
            self._metrics.update(_metrics(index, walked.keys(), self.below([split(name)]).keys(), name))
        self._closed |= self._metrics
        self.reached = self.below((start, None) for start in starts)
        targets = self._find_targets(starts)
        self._closed |= targets
        self.starts = [start for start in starts if start not in targets]
        self.reached = {name: None for name in self.reached if name not in targets}
        for start in self.starts:
            self.reached.setdefault(start)
        self._given = [(name, self.below([split(name)])) for name in given]
        scopes = (_scope(node)[1] for node in index.nodes.values() if _is_loss(node))
        self._around = tuple(dict.fromkeys(filter(None, scopes)))
        self._losses = [*_losses(index), *_losses_in_scopes(index)]

    def below(self, tensors: Iterable[tuple[str, int | None]]) -> dict[str, None]:
        """Return the transitive readers of the tensors `(op, k)`, nearest first."""
        readers: dict[str, None] = {}
        todo = deque(tensors)
        while todo:
            name, k = todo.popleft()
            is_cudnn = self.index.nodes[name].op in ops.CUDNN
            for output in range(OUTPUTS) if k is None and is_cudnn else [k]:
                for reader in self.index.consumers(name, output):
                    if reader.name not in readers and self._is_open(reader, name):
                        readers[reader.name] = None
                        todo.append((reader.name, None))
        return readers

    def readers(self, name: str) -> list[str]:
        """Return the next nodes of the walk from a node."""
        return [reader.name for reader in self.index.consumers(name) if self._is_open(reader, name)]

    def above(self, names: Iterable[str]) -> set[str]:
        """Return the nodes `names` and all transitive operands, as `below` follows readers."""

        def list_operands(name: str) -> list[str]:
            node = self.index.nodes[name]
            operands = (split(read)[0] for read in self.index.data_inputs(node))
            return [operand for operand in operands if self._is_open(node, operand)]

        return {*walk(names, list_operands)}

    def _find_targets(self, starts: Collection[str]) -> set[str]:
        """Return the nodes leading to targets of losses alone, such as a target network.

        A target is behind StopGradient: training does not differentiate it.
        """
        stops = [name for name in self.reached if self.index.nodes[name].op == "StopGradient"]
        if not stops:
            return set()
        matches = (_GRADIENT.fullmatch(op) for op in self.index.nodes)
        differentiated = {match["op"] for match in matches if match}
        targets = {name for name in stops if self._ends_in_a_loss(name, differentiated)}
        readers = {name: self.readers(name) for name in (*starts, *self.reached)} if targets else {}
        while leading := {name for name, read in readers.items() if read and targets.issuperset(read)}:
            targets |= leading
            readers = {name: read for name, read in readers.items() if name not in leading}
        return targets

    def _ends_in_a_loss(self, name: str, differentiated: Set[str]) -> bool:
        """Return True if the paths from a node end in losses alone.

        No layer and no unread tensor is then below it, but for tensors that gradients begin at.
        """
        return not any(
            self.weights(self.index.nodes[op]) or (self.is_unread(op) and op not in differentiated)
            for op in [name, *self.below([(name, None)])]
        )

    def _is_open(self, reader: NodeDef, name: str) -> bool:
        if reader.name in self._closed or _BLOCKED.fullmatch(reader.op) or _GRADIENTS.fullmatch(reader.name):
            return False
        # Print returns its first input; the others are only written to a log.
        return reader.op != "Print" or split(reader.input[0])[0] == name

    def is_for_a_loss(self, name: str) -> bool:
        """Return True if a node only reformats a tensor for a loss beside the node."""
        return self.index.nodes[name].op in _FORMS and name.startswith(self._around)

    def is_unread(self, name: str) -> bool:
        """Return True if only summaries read a node, or also metrics for a user-named node."""
        readers, node = [*self.index.consumers(name)], self.index.nodes[name]
        if all(map(_is_summary, readers)):
            return True
        return node.op not in _FORMS and is_named(node) and all(map(self._is_record, readers))

    def _is_record(self, reader: NodeDef) -> bool:
        if _is_summary(reader) or _METRICS.fullmatch(reader.op) or reader.name in self._metrics:
            return True
        readers = [*self.index.consumers(reader.name)] if reader.op in _FORMS else []
        return bool(readers) and all(map(self._is_record, readers))

    def sources(self, leaves: Set[str]) -> list[FedTensor]:
        """Classify the tensors fed beside the recurrences' needs, by the unread nodes `leaves`."""
        taken = {split(origin)[0] for origin in self.predictions().values()}
        labels = {
            label for loss in self._losses for label in loss.labels if split(label)[0] not in self.reached
        }
        sources = []
        for name, below in self._given:
            is_target = any(label == name or split(label)[0] in below for label in labels)
            is_model = any(op in taken or self.weights(self.index.nodes[op]) for op in below)
            may_be = is_target or bool(_NAMED.fullmatch(split(name)[0]))
            # What such a target reaches without weights is a measure of training.
            is_label = not is_model and (is_target or leaves.isdisjoint(below))
            sources.append(FedTensor(name, below.keys(), is_label, may_be))
        return sources

    def predictions(self) -> dict[str, str]:
        """Map the walk's tensors `op:k` taken as predictions by losses to the origins.

        The origin is the tensor of which a prediction is another form or name.
        """
        predictions = {name: origin for loss in self._losses for name, origin in loss.predictions.items()}
        return {name: origin for name, origin in predictions.items() if split(name)[0] in self.reached}

    def weights(self, node: NodeDef) -> set[str]:
        """Return the weights read by a node: float variables unmoved by assignments."""
        weights = set()
        for name in self.index.data_inputs(node):
            source = self.index.nodes.get(split(name)[0])
            while source is not None and source.op in _HANDS_ON:
                source = self.index.nodes.get(split(source.input[0])[0])
            if source is not None and source.op in ops.VARIABLES and self._is_weight(source):
                weights.add(source.name)
        return weights

    def _is_weight(self, node: NodeDef) -> bool:
        return tf.as_dtype(node.attr["dtype"].type).is_floating and node.name not in self._averages


@dataclass(frozen=True, slots=True)
class _Loss:
    """The predictions of a loss, each with the origin, and the labels."""

    predictions: Mapping[str, str]
    labels: Sequence[str]


def _losses(index: Index) -> Iterator[_Loss]:
    for node in index.nodes.values():
        if _is_loss(node):
            taken, *others = index.data_inputs(node)
            scope = _scope(node)[1]
            while index.nodes[split(taken)[0]].op in _MOVES and scope and taken.startswith(scope):
                taken = index.data_inputs(index.nodes[split(taken)[0]])[0]
            yield _Loss({taken: index.origin(taken, _FORMS)}, others[: _LABELS.get(node.op, 1)])


def _is_loss(node: NodeDef) -> bool:
    return bool(_LOSSES.fullmatch(node.op)) and not _GRADIENTS.fullmatch(node.name)


def _scope(node: NodeDef) -> tuple[str, str]:
    """Return the scope of a loss, and the enclosing scope.

    Its scope is `loss/` for `loss/loss`, and for `loss` beside `loss/Reshape`.
    """
    scope, _, own = node.name.rpartition("/")
    outer, _, last = scope.rpartition("/")
    # Either may be numbered.
    named = _NUMBER.sub("", last) == _NUMBER.sub("", own)
    inner, around = (scope, outer) if named else (node.name, scope)
    return f"{inner}/", f"{around}/" if around else ""


def _losses_in_scopes(index: Index) -> Iterator[_Loss]:
    """Yield the losses of plain arithmetic, by the names of the scopes.

    Tensors that enter a scope count as predictions; those that one of its ops joins, as labels too.
    """
    taken: dict[str, dict[str, str]] = {}
    labels: dict[str, list[str]] = {}
    for name, node in index.nodes.items():
        match = _SCOPES.fullmatch(name)
        if match and not _GRADIENTS.fullmatch(name):
            scope = f"{match['scope']}/"
            origins = {given: index.origin(given, _FORMS) for given in index.data_inputs(node)}
            entering = {name: origin for name, origin in origins.items() if not name.startswith(scope)}
            taken.setdefault(scope, {}).update(entering)
            joined = [origin for origin in origins.values() if not origin.startswith(scope)]
            labels.setdefault(scope, []).extend(joined if node.op in _JOINS and len(joined) > 1 else [])
    for scope, predictions in taken.items():
        yield _Loss(predictions, labels[scope])


def _is_summary(node: NodeDef) -> bool:
    """Return True if a node only records the inputs."""
    return bool(_SUMMARY.fullmatch(node.op))


def _list_given(index: Index) -> Iterator[str]:
    """Yield the tensors `op:k` fed by a program: non-scalar placeholders, iterators, queues."""
    for node in index.nodes.values():
        if node.op in ops.PLACEHOLDERS and not _is_scalar(node):
            yield f"{node.name}:0"
        elif node.op in ops.STREAMS:
            yield from sorted(f"{node.name}:{k}" for k in index.outputs_read(node.name))


def _is_scalar(node: NodeDef) -> bool:
    shape = node_defs.read_attribute(node, "shape").shape
    return not shape.unknown_rank and not shape.dim


def _is_needed(index: Index, name: str, needed: Collection[str]) -> bool:
    return any(reader.name in needed for reader in index.consumers(*split(name)))


def _metrics(index: Index, walked: Collection[str], below: Collection[str], given: str) -> Iterator[str]:
    """Yield the comparisons of a `walked` node with values from the tensor `given` alone."""
    for name in walked:
        if index.nodes[name].op in _COMPARISONS:
            compared = index.data_inputs(index.nodes[name])
            others = [other for other in compared if split(other)[0] not in walked]
            if len(others) == 1 and (others[0] == given or split(others[0])[0] in below):
                yield name


def _inside_losses(index: Index) -> set[str]:
    """Return the nodes flattening scores in a loss's scope.

    Source: tensorflow v1.15.0 python/ops/nn_ops.py.
    """
    scopes = tuple(_scope(node)[0] for node in index.nodes.values() if _is_loss(node))
    return {name for name, node in index.nodes.items() if node.op in _FLATTENING and name.startswith(scopes)}
