"""Finds the axis of steps in a graph's tensors, and the ops mixing steps.

A graph can be run in chunks of steps only if every op between its inputs and outputs takes each step by
itself, the recurrences aside. TensorFlow's shape inference shows where the steps are: time gets a prime for
its size, and an axis with steps has a multiple of it. `find_time_axis` tries which unknown sizes are time and
batch, until the recurrences find time where they expect it; `stepwise` then judges each op. Nothing is run.

Sizes may be read to make shapes, not as numbers. Lengths of rows may be compared with the numbers of the
steps, as `tf.sequence_mask` does, and given to recurrences: a chunk has the rest of each length.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice, permutations, product
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import control_flow, node_defs, ops, stepwise
from cudnn_convert.graph.graph import Graph, import_checked, replace_nodes
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split, walk, walk_behind
from cudnn_convert.graph.stepwise import StepAxes

#: Sizes for time: one of them divides no other size of a graph.
_PRIMES: Final = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049)
#: What an unknown size is taken for. Those that are not time can be split into parts, as towers do.
TIME, BATCH, OTHER = range(3)
SIZES: Final = {BATCH: 120, OTHER: 240}
#: The role of each axis of each input; -1 where its size is known.
Roles = Mapping[str, tuple[int, ...]]
#: Most ways to call the unknown sizes of all inputs that are sorted, and that are tried.
_SORTED: Final = 4096
_TRIES: Final = 64
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mixing:
    """An op mixing steps: a step then depends on another.

    `what` describes it.
    """

    node: str
    what: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The axis of the steps in each input and output, by tensor `op:k`.

    An output without one has what holds after the last step. `rows` has the axis of the batch in each
    input that leaves it open. `lengths` are the inputs that hold the length of each row. `mixing` are the
    ops because of which the graph cannot run in chunks, in graph order. `strange` are the recurrences
    whose steps, or whose rows, are not those of an input.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    rows: Mapping[str, int]
    lengths: frozenset[str]
    mixing: tuple[Mixing, ...]
    strange: tuple[str, ...]


def find_time_axis(
    graph: Graph,
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    recurrences: Mapping[str, bool],
    *,
    still: Collection[str] = (),
    steps: Mapping[str, int] = _NONE,
) -> TimeAxis | None:
    """Find the axis of the steps in each of the tensors `inputs` and `outputs`.

    Returns None if unknown. `inputs` has for each tensor the axes that are known to be the batch.
    `recurrences` maps each cuDNN node to whether it is time-major. `still` are inputs that are the same at
    all steps; `steps` has the axis of others where it is known.
    """
    known = {name: graph.shapes.get_tensor_by_name(name) for name in inputs}
    sizes = {TIME: choose_prime(graph.shapes), **SIZES}

    def infer(roles: Roles) -> tf.Graph | None:
        shapes = {name: size_axes(value.shape, roles[name], sizes) for name, value in known.items()}
        return with_sizes(graph, known, shapes)

    shapes = {name: value.shape for name, value in known.items()}
    called = AxisSizes(frozenset([sizes[TIME]]), sizes[BATCH])
    fitted = fit_roles(shapes, inputs, recurrences, infer, called, still=still, steps=steps)
    if fitted is None:
        return None
    walk = _TimeTracer(graph, fitted.seen, StepAxes(sizes[TIME]), fitted.roles, recurrences, still=still)
    return walk.judge(outputs)


@dataclass(frozen=True, slots=True)
class AxisSizes:
    """The sizes given to the axes of time and of batch.

    There may be several for time.
    """

    times: frozenset[int]
    batch: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """The roles of inputs' axes best fitting the recurrences, and the graph with sizes.

    `sure` are the roles of inputs' axes that every recurrence confirms.
    """

    seen: tf.Graph
    roles: Roles
    sure: frozenset[int]


def fit_roles(
    shapes: Mapping[str, tf.TensorShape],
    batches: Mapping[str, Sequence[int]],
    recurrences: Mapping[str, bool],
    infer: Callable[[Roles], tf.Graph | None],
    called: AxisSizes,
    *,
    tries: int = _TRIES,
    still: Collection[str] = (),
    steps: Mapping[str, int] = _NONE,
) -> Fitted | None:
    """Find time and batch among the unknown sizes of inputs.

    Returns None where an input is of unknown rank, or TensorFlow refuses all sizes. `batches` has the axes of
    each input that are known to be the batch. `infer` gives the graph with sizes, which are `called` so, for
    the axes of the inputs; None where TensorFlow refuses them.
    """
    if any(shape.rank is None for shape in shapes.values()):
        return None
    best: tuple[int, tf.Graph, Roles] | None = None
    wanted = 2 * len(recurrences)
    for roles in islice(_assignments(shapes, batches, still, steps), tries):
        seen = infer(roles)
        if seen is None:
            continue
        score = sum(_fit(seen, node, called, time_major=major) for node, major in recurrences.items())
        if best is None or score > best[0]:
            best = score, seen, roles
        if score == wanted:
            break
    if best is None:
        return None
    _, seen, roles = best
    return Fitted(seen, roles, _find_sure(seen, recurrences, called))


def _find_sure(seen: tf.Graph, recurrences: Mapping[str, bool], called: AxisSizes) -> frozenset[int]:
    """Return the roles, time or batch, found at the expected axis of every recurrence."""
    sure = {TIME, BATCH}
    for node, is_time_major in recurrences.items():
        shape = seen.get_operation_by_name(node).inputs[INPUT].shape
        axes = (0, 1) if is_time_major else (1, 0)
        sizes: tuple[Collection[int], Collection[int]] = (called.times, (called.batch,))
        sure &= {
            role
            for role, axis, expected in zip((TIME, BATCH), axes, sizes, strict=True)
            if shape.rank == 3 and shape[axis] in expected
        }
    return frozenset(sure)


def choose_prime(seen: tf.Graph) -> int:
    """Choose a prime coprime to every size in the graph."""
    outputs = (output.shape for op in seen.get_operations() for output in op.outputs)
    sizes = {size for shape in outputs if shape.rank is not None for size in shape.as_list() if size}
    return next(prime for prime in _PRIMES if not any(size % prime == 0 for size in sizes))


def _assignments(
    shapes: Mapping[str, tf.TensorShape],
    batches: Mapping[str, Sequence[int]],
    still: Collection[str],
    steps: Mapping[str, int],
) -> Iterator[Roles]:
    """Yield possible roles for the axes of all inputs, the most usual first."""
    choices = []
    for name, shape in shapes.items():
        listed = _roles_without_time(shape) if name in still else _roles(shape, batches[name])
        choices.append([roles for roles in listed if name not in steps or roles[steps[name]] == TIME])
    ways: Iterable[tuple[int, ...]] = product(*(range(len(each)) for each in choices))
    if math.prod(map(len, choices)) <= _SORTED:
        ways = sorted(ways, key=sum)
    for chosen in ways:
        yield {name: each[k] for name, each, k in zip(shapes, choices, chosen, strict=True)}


def _roles(shape: tf.TensorShape, batch: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield possible roles for the axes of an input, the usual first."""
    unknown = [axis for axis, size in enumerate(shape.as_list()) if size is None]
    known = dict.fromkeys(range(shape.rank), -1)
    if batch or len(unknown) < 2:
        for role in (BATCH, TIME) if unknown and not batch else (BATCH,):
            yield tuple({**known, **dict.fromkeys(unknown, role)}.values())
        return
    for first, second in permutations(unknown, 2):
        others = dict.fromkeys(unknown, OTHER)
        yield tuple({**known, **others, first: BATCH, second: TIME}.values())


def _roles_without_time(shape: tf.TensorShape) -> Iterator[tuple[int, ...]]:
    """Yield possible roles for the axes of an input equal at all steps."""
    unknown = [axis for axis, size in enumerate(shape.as_list()) if size is None]
    others = dict.fromkeys(range(shape.rank), -1) | dict.fromkeys(unknown, OTHER)
    for axis in unknown:
        yield tuple({**others, axis: BATCH}.values())
    yield tuple(others.values())


def size_axes(shape: tf.TensorShape, roles: Sequence[int], sizes: Mapping[int, int]) -> list[int]:
    """Return the shape of an input, each unknown size set by the axis's role."""
    return [sizes[role] if size is None else size for size, role in zip(shape.as_list(), roles, strict=True)]


def with_sizes(
    graph: Graph, inputs: Mapping[str, tf.Tensor], shapes: Mapping[str, Sequence[int | None]]
) -> tf.Graph | None:
    """Import the graph with the given shapes of inputs.

    Returns None where TensorFlow refuses them. `inputs` are those tensors in a graph without sizes, for their
    dtypes.
    """
    changes = {}
    for name, shape in shapes.items():
        op = split(name)[0]
        changes[op] = node_defs.placeholder(op, inputs[name].dtype, tf.TensorShape(shape))
    try:
        return import_checked(replace_nodes(graph, changes))
    except InvalidModelError:
        return None


def _fit(seen: tf.Graph, node: str, called: AxisSizes, *, time_major: bool) -> int:
    """Score the match of a recurrence's steps with an input's steps.

    2 where they are an input's, 1 where they may be, 0 where they are not.
    """
    shape = seen.get_operation_by_name(node).inputs[INPUT].shape
    if shape.rank != 3:
        return 1
    time, batch = (shape[0], shape[1]) if time_major else (shape[1], shape[0])
    if time in called.times and (batch is None or all(batch % each for each in called.times)):
        return 2
    return int(time is None or batch == called.batch)


class _TimeRole(Enum):
    """The relation of a tensor to time."""

    STEPS = auto()  # has an axis of steps
    SIZE = auto()  # numbers made of shapes with steps
    COUNT = auto()  # the numbers of the steps
    LENGTHS = auto()  # the length of each row


#: The kinds of an op's inputs, in order; None for a tensor that time has no part in.
_Kinds = Sequence[_TimeRole | None]

#: The position of the first operand that is a shape, and not data.
_SHAPES: Final = {
    "Reshape": 1, "Fill": 0, "Tile": 1, "BroadcastTo": 1, "StridedSlice": 1, "Slice": 1, "Transpose": 1,
    "ExpandDims": 1, "Pad": 1, "PadV2": 1, "Empty": 0, "RandomUniform": 0,
}  # fmt: skip
#: Make sizes of sizes.
_ON_SIZES: Final = frozenset(
    "Identity Cast StridedSlice Slice Pack ConcatV2 Concat Mul Add AddV2 Sub Prod GatherV2 Gather Maximum "
    "Minimum ExpandDims Squeeze Reshape Split SplitV Unpack FloorDiv FloorMod Max Min Sum Equal NotEqual "
    "Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalNot Select SelectV2 Assert All Any "
    "Range BroadcastArgs Fill".split()
)
_COMPARISONS: Final = frozenset("Greater GreaterEqual Less LessEqual".split())
_MOVED: Final = frozenset("Identity Cast ExpandDims Squeeze Reshape Tile BroadcastTo".split())
_NUMBER: Final = "the number of steps, read as a number"
_COUNTED: Final = "the numbers of the steps"
#: What is said of each op of a loop.
LOOP: Final = "a loop over the steps"


class _TimeTracer:
    """A walk through a graph with known sizes, noting each tensor's relation to time."""

    def __init__(
        self,
        graph: Graph,
        seen: tf.Graph,
        steps: StepAxes,
        roles: Roles,
        recurrences: Mapping[str, bool],
        *,
        still: Collection[str],
    ) -> None:
        self._index, self._seen, self._steps, self._recurrences = graph.index, seen, steps, recurrences
        self._time, self._rows = (
            {name: role.index(which) for name, role in roles.items() if which in role}
            for which in (TIME, BATCH)
        )
        self._lengths = frozenset(
            name for name in self._rows if name not in still and _holds_lengths(self._index, seen, name)
        )
        self._kinds = dict.fromkeys(self._time, _TimeRole.STEPS) | dict.fromkeys(
            self._lengths, _TimeRole.LENGTHS
        )
        self._frames = control_flow.frames(self._index)
        self._mixing: list[Mixing] = []
        self._strange: list[str] = []

    def judge(self, outputs: Sequence[str]) -> TimeAxis:
        """Judge all ops needed by the tensors `outputs`, and find the steps of `outputs`."""
        needed = self._index.ancestors((split(name)[0] for name in outputs), control=False)
        for op in in_order(self._seen, needed):
            kinds = [self._kinds.get(value.name) for value in op.inputs]
            if any(kinds):
                self._visit(op, kinds)
            elif op.name in self._recurrences:
                self._strange.append(op.name)
        places = {}
        for name in outputs:
            value = self._seen.get_tensor_by_name(name)
            axes = self._steps.axes(value)
            if self._kinds.get(name) is _TimeRole.COUNT:
                self._mixing.append(Mixing(split(name)[0], _COUNTED))
            if len(axes) == 1 and self._steps.size(value) == self._steps.count:
                places[name] = axes[0]
            elif axes:
                self._mixing.append(Mixing(split(name)[0], "steps and rows in one axis of an output"))
            elif self._kinds.get(name) is _TimeRole.STEPS and not self._mixing:
                self._mixing.append(Mixing(split(name)[0], "an output of unknown sizes"))
        return TimeAxis(
            self._time, places, self._rows, self._lengths, tuple(self._mixing), tuple(self._strange)
        )

    def _visit(self, op: Any, kinds: _Kinds) -> None:
        what = self._judge(op, kinds)
        for output in op.outputs:
            kind = self._kind_of(op, kinds, output)
            kind = _TimeRole.STEPS if what and self._steps.axes(output) else kind
            self._kinds |= {} if kind is None else {output.name: kind}
            what = what or ("pairs of steps (attention)" if self._steps.are_paired(output) else "")
        if what:
            self._mixing.append(Mixing(op.name, what))

    def _judge(self, op: Any, kinds: _Kinds) -> str:
        """Describe the effect of an op on the steps.

        Empty where it takes each by itself.
        """
        if op.name in self._recurrences:
            return self._judge_recurrence(op, kinds)
        if op.type in ops.ENTERS or self._frames.get(op.name) or op.type.startswith("TensorArray"):
            return LOOP
        if op.type in stepwise.SHAPES:
            return ""
        if _TimeRole.COUNT in kinds or _TimeRole.LENGTHS in kinds:
            return _judge_numbers(op, kinds)
        what = stepwise.judge_op(self._steps, op) if _TimeRole.STEPS in kinds else _judge_sizes(op, kinds)
        return what or (_NUMBER if _TimeRole.STEPS in kinds and _reads_size(op, kinds) else "")

    def _judge_recurrence(self, op: Any, kinds: _Kinds) -> str:
        axis, x = 0 if self._recurrences[op.name] else 1, op.inputs[INPUT]
        if x.shape.rank is not None:
            is_part = bool(self._rows) and x.shape[1 - axis] not in (None, SIZES[BATCH])
            self._strange += [op.name] if self._steps.axes(x) != [axis] or is_part else []
        is_known = len(kinds) <= LENGTHS or kinds[LENGTHS] is _TimeRole.LENGTHS
        return "" if is_known else "lengths that are none of the inputs"

    def _kind_of(self, op: Any, kinds: _Kinds, output: Any) -> _TimeRole | None:
        """Return the relation of an op's output to time."""
        has_steps = bool(self._steps.axes(output))
        kind: _TimeRole | None = None
        if op.name in self._recurrences:
            kind = _TimeRole.STEPS if output.name.endswith(":0") else None
        elif op.type in stepwise.SHAPES:
            kind = self._kind_of_size(output)
        elif op.type == "Fill" and kinds[1] is _TimeRole.SIZE:
            kind = _TimeRole.LENGTHS
        elif op.type == "Range":
            kind = _TimeRole.COUNT if has_steps else None
        elif _TimeRole.STEPS in kinds:
            kind = _TimeRole.STEPS if has_steps or not output.shape.is_fully_defined() else None
        elif has_steps:
            is_count = _TimeRole.COUNT in kinds and _TimeRole.LENGTHS not in kinds
            kind = _TimeRole.COUNT if is_count else _TimeRole.STEPS
        elif _TimeRole.LENGTHS in kinds:
            kind = _TimeRole.LENGTHS if op.type in _MOVED else None
        elif _reads_size(op, kinds):
            kind = self._kind_of_size(output)
        return kind

    def _kind_of_size(self, output: Any) -> _TimeRole | None:
        """Return SIZE unless the value is known to omit the number of steps.

        Returns None then.
        """
        value = tf.get_static_value(output)
        is_free = (
            value is not None and value.dtype.kind in "iub" and (value.ravel() % self._steps.count).all()
        )
        return None if is_free else _TimeRole.SIZE


def _judge_numbers(op: Any, kinds: _Kinds) -> str:
    """Judge an op reading lengths or the numbers of the steps."""
    is_mask = op.type in _COMPARISONS and {*kinds} == {_TimeRole.COUNT, _TimeRole.LENGTHS}
    is_moved = op.type in _MOVED and _TimeRole.STEPS not in kinds
    is_lookup = op.type in stepwise.LOOKUPS and _TimeRole.LENGTHS not in kinds
    if is_mask or is_moved or is_lookup:
        return ""
    return _COUNTED if _TimeRole.COUNT in kinds else "lengths, read as numbers"


def _judge_sizes(op: Any, kinds: _Kinds) -> str:
    """Judge an op reading only sizes."""
    is_whole = op.type in _ON_SIZES and not any(output.dtype.is_floating for output in op.outputs)
    return _NUMBER if _reads_size(op, kinds) and not is_whole else ""


def _reads_size(op: Any, kinds: _Kinds) -> bool:
    """Return True if an op reads a size as data, rather than as a shape."""
    first = _SHAPES.get(op.type, len(kinds))
    return any(kind is _TimeRole.SIZE and position < first for position, kind in enumerate(kinds))


def in_order(seen: tf.Graph, needed: Collection[str]) -> Iterator[Any]:
    """Yield the `needed` ops in data order, producers first, as far as loops allow."""
    start = (op for op in seen.get_operations() if op.name in needed)
    yield from walk_behind(start, lambda op: [value.op for value in op.inputs])


def _holds_lengths(index: Index, seen: tf.Graph, name: str) -> bool:
    """Return True if an input has an integer per row, compared or given to recurrences."""
    value = seen.get_tensor_by_name(name)
    if not value.dtype.is_integer or value.shape.rank != 1:
        return False

    def move(current: str) -> list[str]:
        return [f"{reader.name}:0" for reader in index.consumers(*split(current)) if reader.op in _MOVED]

    readers = (reader.op for current in walk([name], move) for reader in index.consumers(*split(current)))
    return any(reader in _COMPARISONS | ops.CUDNN for reader in readers)
