"""Where the steps lie in each tensor, and which ops make one step depend on others.

A graph can be run in chunks of steps only if every op between its inputs and outputs takes each step by
itself, the recurrences aside. TensorFlow's shape inference shows where the steps are: time gets a prime for
its size, and an axis with steps has a multiple of it. `find_time_axis` tries which
unknown sizes are time and batch, until the recurrences find time where they expect it, and then judges each
op: by the axes that it reads and gives, and where it does more than arithmetic by a rule of its own. An op
without a rule counts as mixing steps. Nothing is run.

Sizes may be read to make shapes, not as numbers. Lengths of rows may be compared with the numbers of the
steps, as `tf.sequence_mask` does, and given to recurrences: a chunk has the rest of each length.
Source: tensorflow v2.21.0 core/ops (`*_ops.cc`) for the positions of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice, permutations, product
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import control_flow, node_defs, ops
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split

#: Sizes for time: one of them divides no other size of a graph.
_PRIMES: Final = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049)
#: What an unknown size is taken for. Those that are not time can be split into parts, as towers do.
_TIME, _BATCH, _OTHER = range(3)
_SIZES: Final = {_BATCH: 120, _OTHER: 240}
#: Most ways to call the unknown sizes of all inputs that are tried.
_TRIES: Final = 64


@dataclass(frozen=True, slots=True)
class Mixing:
    """An op that makes a step depend on others; `what` describes it."""

    node: str
    what: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The axis of the steps in each input and output, by tensor `op:k`.

    An output without one has what holds after the last step. `rows` has the axis of the batch in each input
    that leaves it open. `lengths` are the inputs that hold the length of each row. `mixing` are the ops because of which the graph cannot run in chunks, in graph order. `strange`
    are the recurrences whose steps, or whose rows, are not those of an input.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    rows: Mapping[str, int]
    lengths: frozenset[str]
    mixing: tuple[Mixing, ...]
    strange: tuple[str, ...]


def find_time_axis(
    graph: node_defs.Graph,
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    recurrences: Mapping[str, bool],
) -> TimeAxis | None:
    """Find the axis of the steps of a graph with the tensors `inputs` and `outputs`; None if unknown.

    `inputs` has for each tensor the axes that are known to be the batch. `recurrences` maps each cuDNN node
    to whether it is time-major.
    """
    shapes = {name: graph.shapes.get_tensor_by_name(name).shape for name in inputs}
    if any(shape.rank is None for shape in shapes.values()):
        return None
    sizes = {_TIME: _unused_prime(graph.shapes), **_SIZES}
    best: tuple[int, tf.Graph, dict[str, tuple[int, ...]]] | None = None
    wanted = 2 * len(recurrences)
    for roles in _assignments(shapes, inputs):
        seen = _with_sizes(graph, shapes, roles, sizes)
        if seen is None:
            continue
        score = sum(_fit(seen, node, sizes[_TIME], time_major=major) for node, major in recurrences.items())
        if best is None or score > best[0]:
            best = score, seen, roles
        if score == wanted:
            break
    if best is None:
        return None
    score, seen, roles = best
    time, rows = (
        {name: role.index(which) for name, role in roles.items() if which in role} for which in (_TIME, _BATCH)
    )
    return _Walk(graph, seen, sizes[_TIME], time, rows, recurrences).judge(outputs)


def _unused_prime(seen: tf.Graph) -> int:
    """A prime that divides no size in the graph."""
    outputs = (output.shape for op in seen.get_operations() for output in op.outputs)
    sizes = {size for shape in outputs if shape.rank is not None for size in shape.as_list() if size}
    return next(prime for prime in _PRIMES if not any(size % prime == 0 for size in sizes))


def _assignments(
    shapes: Mapping[str, tf.TensorShape], batches: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield the role of each axis of each input; -1 where its size is known."""
    choices = [[*_roles(shape, batches[name])] for name, shape in shapes.items()]
    for column in islice(product(*choices), _TRIES):
        yield dict(zip(shapes, column, strict=True))


def _roles(shape: tf.TensorShape, batch: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to call the axes of an input, the usual ones first."""
    unknown = [axis for axis, size in enumerate(shape.as_list()) if size is None]
    known = dict.fromkeys(range(shape.rank), -1)
    if batch:
        yield tuple({**known, **dict.fromkeys(unknown, _BATCH)}.values())
        return
    if len(unknown) < 2:
        for role in (_BATCH, _TIME) if unknown else (_OTHER,):
            yield tuple({**known, **dict.fromkeys(unknown, role)}.values())
        return
    for first, second in permutations(unknown, 2):
        others = dict.fromkeys(unknown, _OTHER)
        yield tuple({**known, **others, first: _BATCH, second: _TIME}.values())


def _with_sizes(
    graph: node_defs.Graph,
    shapes: Mapping[str, tf.TensorShape],
    roles: Mapping[str, tuple[int, ...]],
    sizes: Mapping[int, int],
) -> tf.Graph | None:
    """Import the graph with the sizes of its inputs given; None where TensorFlow refuses them."""
    changes = {}
    for name, shape in shapes.items():
        op = split(name)[0]
        given = [
            sizes[role] if size is None else size
            for size, role in zip(shape.as_list(), roles[name], strict=True)
        ]
        dtype = graph.shapes.get_tensor_by_name(name).dtype
        changes[op] = node_defs.placeholder(op, dtype, tf.TensorShape(given))
    try:
        return node_defs.import_checked(node_defs.replace_nodes(graph, changes))
    except InvalidModelError:
        return None


def _fit(seen: tf.Graph, node: str, prime: int, *, time_major: bool) -> int:
    """2 where a recurrence's steps are an input's, 1 where they may be, 0 where they are not."""
    shape = seen.get_operation_by_name(node).inputs[INPUT].shape
    if shape.rank != 3:
        return 1
    time, batch = (shape[0], shape[1]) if time_major else (shape[1], shape[0])
    if time == prime and (batch is None or batch % prime):
        return 2
    return int(time is None)


class _Kind(Enum):
    """What a tensor has to do with time."""

    STEPS = auto()  # has an axis of steps
    SIZE = auto()  # numbers made of shapes with steps
    COUNT = auto()  # the numbers of the steps
    LENGTHS = auto()  # the length of each row


#: The kinds of an op's inputs, in order; None for a tensor that time has no part in.
_Kinds = Sequence[_Kind | None]

_ELEMENTWISE: Final = (
    ops.COPIES
    | ops.SELECTS
    | ops.SUMS
    | frozenset(
        "PreventGradient Cast Sub Mul Div RealDiv DivNoNan FloorDiv FloorMod Mod TruncateDiv Neg Abs Sign "
        "Square Sqrt Rsqrt Reciprocal Inv Pow Exp Expm1 Log Log1p Tanh Sigmoid Softplus Softsign Relu Relu6 "
        "Elu Selu LeakyRelu Erf Sin Cos Maximum Minimum ClipByValue SquaredDifference AddN BiasAdd BiasAddV1 "
        "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Floor Ceil Round "
        "Rint IsNan IsInf IsFinite ZerosLike OnesLike EnsureShape CheckNumerics PlaceholderWithDefault "
        "Xlogy Xdivy StringLower AsString Print".split()
    )
)
#: The position of the first operand that is a shape, and not data.
_SHAPES: Final = {
    "Reshape": 1, "Fill": 0, "Tile": 1, "BroadcastTo": 1, "StridedSlice": 1, "Slice": 1, "Transpose": 1,
    "ExpandDims": 1, "Pad": 1, "PadV2": 1, "Empty": 0, "RandomUniform": 0,
}  # fmt: skip
_ON_SIZES: Final = frozenset(
    "Identity Cast StridedSlice Slice Pack ConcatV2 Concat Mul Add AddV2 Sub Prod GatherV2 Gather Maximum "
    "Minimum ExpandDims Squeeze Reshape Split SplitV Unpack FloorDiv FloorMod Max Min Sum Concatoffset "
    "Equal NotEqual Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalNot Select SelectV2 "
    "Assert All Any Range BroadcastArgs Where".split()
)
_COMPARISONS: Final = frozenset("Greater GreaterEqual Less LessEqual".split())
_MOVED: Final = frozenset("Identity Cast ExpandDims Squeeze Reshape Tile BroadcastTo".split())
_REDUCTIONS: Final = {
    "Sum": "a sum", "Mean": "a mean", "Max": "a maximum", "Min": "a minimum", "Prod": "a product",
    "All": "a reduction", "Any": "a reduction", "ArgMax": "an argmax", "ArgMin": "an argmin",
    "EuclideanNorm": "a norm", "LogSumExp": "a reduction",
}  # fmt: skip
_LAST_AXIS: Final = {
    "Softmax": "a softmax", "LogSoftmax": "a softmax", "TopK": "a choice", "TopKV2": "a choice",
    "InTopK": "a choice", "LRN": "a normalisation",
}  # fmt: skip
_PRODUCTS: Final = frozenset("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum".split())
_WINDOWS: Final = {
    "Conv2D": "a convolution", "Conv3D": "a convolution", "DepthwiseConv2dNative": "a convolution",
    "MaxPool": "a pooling", "AvgPool": "a pooling", "MaxPoolV2": "a pooling", "MaxPool3D": "a pooling",
    "AvgPool3D": "a pooling",
}  # fmt: skip
_NORMALISATIONS: Final = frozenset("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split())
#: Give for each element what it alone decides, in another form: lookups in partitioned tables.
_LOOKUPS: Final = ops.LOOKUPS | frozenset(
    "DynamicPartition DynamicStitch ParallelDynamicStitch Unique OneHot ResourceGather".split()
)
_SHAPED: Final = frozenset("Shape ShapeN Size Rank".split())
_REVERSED: Final = "its steps in reverse"
_NUMBER: Final = "the number of steps, read as a number"
#: What is said of each op of a loop.
LOOP: Final = "a loop over the steps"


class _Walk:
    """Goes through a graph with known sizes, and notes what each tensor has to do with time."""

    def __init__(
        self,
        graph: node_defs.Graph,
        seen: tf.Graph,
        prime: int,
        time: Mapping[str, int],
        rows: Mapping[str, int],
        recurrences: Mapping[str, bool],
    ) -> None:
        self._index, self._seen, self._prime = graph.index, seen, prime
        self._time, self._rows, self._recurrences = time, rows, recurrences
        self._kinds: dict[str, _Kind] = {name: _Kind.STEPS for name in time}
        self._lengths = frozenset(name for name in rows if _holds_lengths(self._index, seen, name))
        self._kinds |= dict.fromkeys(self._lengths, _Kind.LENGTHS)
        self._frames = control_flow.frames(self._index)
        self._mixing: list[Mixing] = []
        self._strange: list[str] = []

    def judge(self, outputs: Sequence[str]) -> TimeAxis:
        needed = self._index.ancestors((split(name)[0] for name in outputs), control=False)
        for op in _in_order(self._seen, needed):
            kinds = [self._kinds.get(value.name) for value in op.inputs]
            if any(kinds):
                self._visit(op, kinds)
        places = {}
        for name in outputs:
            value = self._seen.get_tensor_by_name(name)
            axes = self._axes(value)
            if len(axes) == 1 and value.shape[axes[0]] == self._prime:
                places[name] = axes[0]
            elif axes or (self._kinds.get(name) is _Kind.STEPS and not self._mixing):
                self._mixing.append(Mixing(split(name)[0], "steps and rows in one axis of an output"))
        return TimeAxis(
            self._time, places, self._rows, self._lengths, tuple(self._mixing), tuple(self._strange)
        )

    def _axes(self, value: Any) -> list[int]:
        """The axes of a tensor that have steps."""
        sizes = value.shape.as_list() if value.shape.rank is not None else []
        return [axis for axis, size in enumerate(sizes) if size and size % self._prime == 0]

    def _visit(self, op: Any, kinds: _Kinds) -> None:
        what = self._judge_frame(op) or self._judge(op, kinds)
        if what:
            self._mixing.append(Mixing(op.name, what))
        for output in op.outputs:
            kind = self._kind_of(op, kinds, output)
            if kind is not None:
                self._kinds[output.name] = kind
            if not what and (len(self._axes(output)) > 1 or self._has_square(output)):
                what = "pairs of steps (attention)"
                self._mixing.append(Mixing(op.name, what))

    def _has_square(self, value: Any) -> bool:
        return any(value.shape[axis] % self._prime**2 == 0 for axis in self._axes(value))

    def _judge_frame(self, op: Any) -> str:
        is_loop = op.type in ops.ENTERS or bool(self._frames.get(op.name)) or op.type.startswith("TensorArray")
        return LOOP if is_loop and op.name not in self._recurrences else ""

    def _kind_of(self, op: Any, kinds: _Kinds, output: Any) -> _Kind | None:
        if op.name in self._recurrences:
            return _Kind.STEPS if output.name.endswith(":0") else None
        if op.type in _SHAPED:
            return self._size_kind(output)
        if op.type == "Fill" and kinds[1] is _Kind.SIZE:
            return _Kind.LENGTHS
        if _Kind.STEPS in kinds:
            is_known = output.shape.is_fully_defined() or self._axes(output)
            return _Kind.STEPS if self._axes(output) or not is_known else None
        if self._axes(output) and op.type != "Range":
            return _Kind.COUNT if _Kind.COUNT in kinds and _Kind.LENGTHS not in kinds else _Kind.STEPS
        if op.type == "Range":
            return _Kind.COUNT if self._axes(output) else None
        if _Kind.LENGTHS in kinds:
            return _Kind.LENGTHS if op.type in _MOVED else None
        return self._size_kind(output) if _Kind.SIZE in kinds else None

    def _size_kind(self, output: Any) -> _Kind | None:
        """SIZE, unless the value is known to be without the number of steps."""
        value = tf.get_static_value(output)
        if value is not None and value.dtype.kind in "iub" and not (value.ravel() % self._prime == 0).any():
            return None
        return _Kind.SIZE

    def _judge(self, op: Any, kinds: _Kinds) -> str:
        """What an op does to the steps, empty where it takes each by itself."""
        if op.name in self._recurrences:
            return self._judge_recurrence(op, kinds)
        if op.type in _SHAPED:
            return ""
        if _Kind.COUNT in kinds and op.type in _LOOKUPS:
            return ""
        if _Kind.COUNT in kinds or _Kind.LENGTHS in kinds:
            others = {_Kind.COUNT, _Kind.LENGTHS, _Kind.SIZE, None}
            if op.type in _COMPARISONS and {*kinds} == {_Kind.COUNT, _Kind.LENGTHS}:
                return ""
            if op.type in _MOVED and {*kinds} <= others:
                return ""
            return "the numbers of the steps" if _Kind.COUNT in kinds else "lengths, read as numbers"
        if _Kind.STEPS not in kinds:
            return self._judge_size(op, kinds)
        first = _SHAPES.get(op.type, len(kinds))
        if what := self._judge_steps(op):
            return what
        is_read = any(kind is _Kind.SIZE and position < first for position, kind in enumerate(kinds))
        return _NUMBER if is_read else ""

    def _judge_size(self, op: Any, kinds: _Kinds) -> str:
        first = _SHAPES.get(op.type, len(kinds))
        if all(kind is None or position >= first for position, kind in enumerate(kinds)):
            return ""
        is_whole = not any(output.dtype.is_floating for output in op.outputs)
        is_known = op.type in _ON_SIZES or op.type == "Fill"
        return "" if is_known and is_whole else _NUMBER

    def _judge_recurrence(self, op: Any, kinds: _Kinds) -> str:
        axis, shape = 0 if self._recurrences[op.name] else 1, op.inputs[INPUT].shape
        if shape.rank is not None:
            is_part = bool(self._rows) and shape[1 - axis] not in (None, _SIZES[_BATCH])
            if self._axes(op.inputs[INPUT]) != [axis] or is_part:
                self._strange.append(op.name)
        if len(kinds) > LENGTHS and kinds[LENGTHS] is not _Kind.LENGTHS:
            return "lengths that are none of the inputs"
        return ""

    def _judge_steps(self, op: Any) -> str:
        """Judge an op that reads steps, by its type and the axes of its operands."""
        kind, x = op.type, op.inputs[0]
        if kind in _ELEMENTWISE or kind in _LOOKUPS or kind in ("Assert", "NoOp"):
            return ""
        if kind in _REDUCTIONS:
            return self._judge_reduction(op)
        if kind in _LAST_AXIS:
            is_mixed = x.shape.rank is None or x.shape.rank - 1 in self._axes(x)
            return f"{_LAST_AXIS[kind]} over time" if is_mixed else ""
        if kind in _WINDOWS:
            return self._judge_window(op)
        rule = _RULES.get(kind)
        if rule is not None:
            return rule(self, op)
        if kind in ops.BLOCK_LSTMS | ops.BLOCK_CELLS:
            return f"{kind}, a recurrence whose states cannot be given"
        return f"{kind}, which is not known to take each step by itself"

    def _judge_reduction(self, op: Any) -> str:
        axes, x = tf.get_static_value(op.inputs[1]), op.inputs[0]
        if axes is None or x.shape.rank is None:
            return f"{_REDUCTIONS[op.type]} over axes that are not known"
        reduced = {int(axis) % x.shape.rank for axis in axes.ravel()}
        return f"{_REDUCTIONS[op.type]} over time" if reduced & {*self._axes(x)} else ""

    def _judge_window(self, op: Any) -> str:
        """A convolution or pooling mixes steps where its window has several along time."""
        layout = op.get_attr("data_format").decode()
        axes = [layout.index(letter) for letter in "DHW" if letter in layout]
        if "ksize" in op.node_def.attr:
            sizes = op.get_attr("ksize")
            window = {axis: sizes[axis] for axis in axes}
        elif op.type.endswith("V2"):
            window = dict.fromkeys(axes)
        else:
            kernel = op.inputs[1].shape
            window = dict(zip(axes, kernel.as_list() if kernel.rank else [None] * 5, strict=False))
        strides = op.get_attr("strides") if "strides" in op.node_def.attr else None
        for axis in self._axes(op.inputs[0]):
            size = window.get(axis, 1)
            if axis == layout.index("C"):
                return f"{_WINDOWS[op.type]} with time in its channels"
            if size != 1 or (strides and strides[axis] != 1):
                return f"{_WINDOWS[op.type]} over {size or 'several'} steps"
        return ""

    def product(self, op: Any) -> str:
        """A product mixes steps where an axis of steps is summed over."""
        before = sum(len(self._axes(value)) for value in op.inputs)
        after = sum(len(self._axes(value)) for value in op.outputs)
        return "" if before == after == 1 else "a product over time (attention)"

    def normalisation(self, op: Any) -> str:
        layout = op.get_attr("data_format").decode()
        is_channel = layout.index("C") in self._axes(op.inputs[0])
        return "a normalisation over time" if is_channel or op.get_attr("is_training") else ""

    def reshaped(self, op: Any) -> str:
        """The same elements in another form: the steps stay in one axis."""
        return "" if all(len(self._axes(value)) == 1 for value in op.outputs) else "steps folded together"

    def joined(self, op: Any) -> str:
        """Time stays as long as it was."""
        wanted = {_size_along(value, self._axes(value)) for value in op.inputs if self._axes(value)}
        found = {_size_along(value, self._axes(value)) for value in op.outputs}
        return "" if found <= wanted else "what is joined or cut along time"

    def tiled(self, op: Any) -> str:
        times = tf.get_static_value(op.inputs[1])
        if times is None:
            return "" if _size_along(op.outputs[0], self._axes(op.outputs[0])) else "repeats of unknown number"
        return "repeated steps" if any(times[axis] != 1 for axis in self._axes(op.inputs[0])) else ""

    def gathered(self, op: Any) -> str:
        """A lookup takes each step's own row; a choice of steps does not."""
        if not self._axes(op.inputs[0]):
            return ""
        axis = tf.get_static_value(op.inputs[2]) if len(op.inputs) > 2 else 0
        rank = op.inputs[0].shape.rank
        if axis is not None and rank is not None and int(axis) % rank not in self._axes(op.inputs[0]):
            return ""
        return "" if self._is_last(op.inputs[1]) else "steps chosen by their position"

    def _is_last(self, value: Any) -> bool:
        """Whether an index is that of the last step."""
        known = tf.get_static_value(value)
        return known is not None and {*known.ravel().tolist()} <= {-1, self._prime - 1}

    def reversed(self, op: Any) -> str:
        position = op.get_attr("seq_dim") if op.type == "ReverseSequence" else None
        given = tf.get_static_value(op.inputs[1]) if position is None else [position]
        rank = op.inputs[0].shape.rank
        is_mixed = given is None or rank is None or {int(k) % rank for k in given} & {*self._axes(op.inputs[0])}
        return _REVERSED if is_mixed else ""

    def transposed(self, op: Any) -> str:
        return ""

    def sliced(self, op: Any) -> str:
        """A slice of all steps, or the last one alone."""
        x, axes = op.inputs[0], self._axes(op.inputs[0])
        if not axes or x.shape.rank is None:
            return "steps chosen by their position"
        begin, end, step = (_strided if op.type == "StridedSlice" else _plain_slice)(op, axes[0])
        size = x.shape[axes[0]]
        is_whole = begin in (None, 0) and end in (None, size) and step in (None, 1)
        if is_whole:
            return ""
        if step == -1 and begin in (None, -1, size - 1):
            return _REVERSED
        is_last = begin in (-1, size - 1) and end in (None, 0, size) and step in (None, 1)
        return "" if is_last else "steps chosen by their position"

    def split_apart(self, op: Any) -> str:
        """Pieces along another axis than time."""
        axes = {len(self._axes(value)) for value in op.outputs}
        return "" if axes == {1} else "steps taken apart"


_RULES: Final[Mapping[str, Callable[[_Walk, Any], str]]] = {
    **dict.fromkeys(_PRODUCTS, _Walk.product),
    **dict.fromkeys(_NORMALISATIONS, _Walk.normalisation),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze"), _Walk.reshaped),
    **dict.fromkeys(("ConcatV2", "Concat", "Pack", "Pad", "PadV2", "BroadcastTo", "MirrorPad"), _Walk.joined),
    **dict.fromkeys(("Gather", "GatherV2"), _Walk.gathered),
    **dict.fromkeys(("ReverseV2", "ReverseSequence"), _Walk.reversed),
    **dict.fromkeys(("StridedSlice", "Slice"), _Walk.sliced),
    **dict.fromkeys(("Split", "SplitV", "Unpack"), _Walk.split_apart),
    "Tile": _Walk.tiled,
    "Transpose": _Walk.transposed,
}


def _in_order(seen: tf.Graph, needed: Collection[str]) -> Iterator[Any]:
    """Yield the `needed` ops after those that they read, as far as loops allow."""
    done: set[str] = set()
    todo = [(op, False) for op in reversed(seen.get_operations()) if op.name in needed]
    while todo:
        op, is_ready = todo.pop()
        if is_ready:
            yield op
        elif op.name not in done:
            done.add(op.name)
            todo.append((op, True))
            todo += [(value.op, False) for value in op.inputs if value.op.name not in done]


def _holds_lengths(index: Index, seen: tf.Graph, name: str) -> bool:
    """Whether an input of whole numbers, one for each row, is given to a recurrence or compared."""
    value = seen.get_tensor_by_name(name)
    if not value.dtype.is_integer or value.shape.rank != 1:
        return False
    todo = [name]
    while todo:
        op, k = split(todo.pop())
        for reader in index.consumers(op, k):
            if reader.op in _COMPARISONS or reader.op in ops.CUDNN:
                return True
            todo += [f"{reader.name}:0"] if reader.op in _MOVED else []
    return False


def _size_along(value: Any, axes: Sequence[int]) -> int | None:
    return value.shape[axes[0]] if axes else None


_Range = tuple[int | None, int | None, int | None]
_SOME: Final[_Range] = (1, 1, 1)


def _strided(op: Any, axis: int) -> _Range:
    """Begin, end and step of a StridedSlice along an axis of its input; None for all."""
    begins, ends, steps = (tf.get_static_value(value) for value in op.inputs[1:4])
    if begins is None or ends is None or steps is None:
        return _SOME
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    position, rank = 0, op.inputs[0].shape.rank
    fresh = bin(masks["new_axis"]).count("1")
    for k in range(len(begins)):
        bit = 1 << k
        if masks["ellipsis"] & bit:
            skipped = rank - (len(begins) - fresh - 1)
            if position <= axis < position + skipped:
                return None, None, None
            position += skipped
        elif not masks["new_axis"] & bit:
            if position == axis:
                begin = None if masks["begin"] & bit else int(begins[k])
                is_one = bool(masks["shrink_axis"] & bit)
                end = None if masks["end"] & bit or is_one and begin == -1 else int(ends[k])
                return begin, end, int(steps[k])
            position += 1
    return None, None, None


def _plain_slice(op: Any, axis: int) -> _Range:
    begins, sizes = (tf.get_static_value(value) for value in op.inputs[1:3])
    if begins is None or sizes is None:
        return _SOME
    begin, size = int(begins[axis]), int(sizes[axis])
    return begin, None if size == -1 else begin + size, 1
