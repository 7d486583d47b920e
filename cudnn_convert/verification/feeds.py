"""Inputs to compare on: random, seeded, and accepted by the model.

There are at least two pairs of (time, batch), all different, and those that an artifact computes in a way of
its own. Trying shows whether an unknown dimension is time or batch: the assignment counts where the
recurrences then see the batch size that was meant, or, where that is fixed, the number of steps.

Convolutions, pools and spectrograms leave fewer steps than they take, or none. A model that has them gets
longer inputs where its recurrences would see no step, and no input that would leave a window empty: there
kernels of oneDNN end the process (seen in tensorflow 2.21.0).

Inputs may have a value that stands for padding: ids of 0 before a masking embedding, rows of 0 before
Masking. Keras' cuDNN path accepts such an input only where each row is padded on the right and has at least
one step (keras v3.15.0 src/backend/tensorflow/rnn.py `_assert_valid_mask`).

Integers are ids of the tables that they pick rows of, or lengths. A model that accepts none of these gets
small ones, which may be both.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import casts
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, import_graph, prune, replace_nodes
from cudnn_convert.graph.index import INPUT, INPUT_H, Index, split
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan, obstacles
from cudnn_convert.text import first_line
from cudnn_convert.verification import effort, ids, judges
from cudnn_convert.verification.judges import USUAL, Floats, RunningSource, Sizes

#: What an input passes on its way to a comparison, and a mask to the lengths of rows.
_PASSES_VALUES: Final = frozenset({"Identity", "Cast"})


def find_padding(index: Index, name: str) -> Any:
    """Find the scalar compared with an input for the input's mask.

    None if it is compared with no constant scalar.
    """
    for current in ids.walk_carriers(index, name, _PASSES_VALUES):
        for reader in index.consumers(*split(current)):
            inputs = index.data_inputs(reader)
            if reader.op == "NotEqual" and current in inputs:
                other = inputs[1 - inputs.index(current)]
                if (constant := constant_folding.fold_scalar(index, other)) is not None:
                    return constant
    return None


def is_mask(index: Index, name: str) -> bool:
    """Return True if an input is a mask.

    The sum of its values over an axis is then taken for an integer, a length.
    """
    for current in ids.walk_carriers(index, name, _PASSES_VALUES):
        for reader in index.consumers(*split(current)):
            if reader.op == "Sum" and split(reader.input[0])[0] == split(current)[0]:
                counts = ids.walk_carriers(index, f"{reader.name}:0", _PASSES_VALUES)
                kinds = (index.nodes[split(each)[0]] for each in counts)
                if any(
                    node.op == "Cast" and tf.as_dtype(node.attr["DstT"].type).is_integer for node in kinds
                ):
                    return True
    return False


def pad_rows(
    rng: np.random.Generator, drawn: Array, padding: Any, roles: Sequence[str | None], *, rows: int | None
) -> Array:
    """Give each row of `drawn` a random length, and put `padding` after the end.

    `roles` calls each axis `time`, `batch` or None. `rows`: how many different ids there are. A word that is
    `padding` becomes one that no vocabulary has.
    """
    if padding is None or drawn.ndim < 2:
        return drawn
    pad = np.asarray(padding, drawn.dtype)
    batch = roles.index("batch") if "batch" in roles else 0
    time = roles.index("time") if "time" in roles else next(axis for axis in (0, 1) if axis != batch)
    free = drawn == pad
    other: Any = pad + (_UNKNOWN if drawn.dtype == object else 1)
    filled = np.where(free, other % rows if rows else other, drawn).astype(drawn.dtype)
    lengths = rng.integers(1, drawn.shape[time] + 1, drawn.shape[batch])
    places = np.indices(drawn.shape, sparse=True)
    alive = places[time] < lengths[places[batch]]
    return np.where(alive, filled, pad)


#: Ops that leave fewer steps than they take. Source: tensorflow v2.21.0 core/ops/nn_ops.cc, spectral_ops.cc.
_WINDOWS: Final = frozenset(
    "Conv2D Conv3D DepthwiseConv2dNative MaxPool MaxPool3D AvgPool AvgPool3D ExtractImagePatches".split()
)
_SHORTEN: Final = _WINDOWS | {"RFFT", "FFT", "AudioSpectrogram"}
#: How well feeds fit a model, worst first: it refuses them; a recurrence sees no step; a branch without
#: recurrences is taken; it runs; recurrences see the steps that were meant; the batch.
_REFUSED, _NO_STEPS, _UNREACHED, _ACCEPTED, _RIGHT_STEPS, _RIGHT_BATCH = range(6)
#: Feeds by tensor, one for each pair of sizes.
_Feeds = list[dict[str, Array]]
#: A word that no vocabulary has.
_UNKNOWN: Final = b"\xff"


def generate(
    plan: Plan,
    source: RunningSource,
    *,
    seed: int,
    more: Sizes = (),
    usual: Sizes = (),
    floats: Floats = USUAL,
) -> _Feeds:
    """Make a feed by tensor for each of the sizes `usual`.

    Without them for each of `judges.sizes`, or of the one batch that states have. And one for each of `more`
    where all signatures accept those too. Floats are drawn as `floats` says.

    Raises UnsupportedModelError where no assignment of the unknown dimensions runs.
    """
    if reasons := obstacles.undrawable(plan):
        raise UnsupportedModelError(plan.model.path, reasons)
    usual = usual or judges.sizes(plan)
    kinds = [(*usual, *more), usual] if more else [usual]
    parts = [
        _generate(replace(plan, signature=part.signature), source, seed, kinds, floats) for part in plan.parts
    ]
    return [
        {name: value for feed in feeds for name, value in feed.items()} for feeds in zip(*parts, strict=False)
    ]


def _generate(plan: Plan, source: RunningSource, seed: int, kinds: Sequence[Sizes], floats: Floats) -> _Feeds:
    seen, index = plan.graph.shapes, plan.graph.index
    names = list(plan.signature.inputs.values())
    tensors = {name: _describe_input(index, seen, name) for name in names} | _states(plan)
    paddings = {name: find_padding(index, name) for name in names}
    masks = {name for name in names if tensors[name].dtype.is_floating and is_mask(index, name)}
    paddings |= dict.fromkeys(masks, 0)

    def draw_feeds(integers: _Integers, roles: Mapping[str, tuple[str, ...]], pairs: Sizes) -> _Feeds:
        rng = np.random.default_rng(seed)
        fed = [
            {
                name: pad_rows(
                    rng,
                    _value(
                        rng,
                        tensors[name],
                        roles[name],
                        sizes,
                        rows=integers.rows[name],
                        most=integers.most[name],
                        words=source.words,
                        draw=np.ones if name in masks else partial(floats.draw, rng, name),
                    ),
                    paddings[name],
                    _axes(tensors[name], roles[name]),
                    rows=integers.rows[name],
                )
                for name in names
            }
            for sizes in pairs
        ]
        return [fed[0] | _beginnings(plan, fed[0]), *fed[1:]]

    windows = _Windows(plan)

    def rank_feeds(feeds: _Feeds, pairs: Sizes) -> int:
        seen_sizes = []
        for feed in feeds:
            windows.require_filled(feed)
            seen_sizes.append(_sizes(plan, source, feed))
        return _rank(plan, seen_sizes, pairs, len(kinds[-1]))

    failure = ""
    for integers in _list_integers(plan, index, seen, tensors):

        def draw_tries(pairs: Sizes, integers: _Integers = integers) -> Iterator[_Feeds]:
            ways = (roles for roles in _assignments(tensors) if _fits_memory(tensors, roles, pairs))
            return (draw_feeds(integers, roles, pairs) for roles in ways)

        rank, feeds, failure = _search(_groups_of_sizes(plan, seen, kinds), draw_tries, rank_feeds)
        if rank > _REFUSED:
            return feeds
    expected = f"expected random inputs that the model accepts, found none ({failure})"
    arrays = ", ".join(
        f"{key!r}: {_write_array(tensors[name])}" for key, name in plan.signature.inputs.items()
    )
    cure = f"give --data feeds.npz of yours, as numpy.savez('feeds.npz', **{{{arrays}}}) makes it"
    raise UnsupportedModelError(plan.model.path, [f"inputs: {expected}; {cure}"])


def _write_array(value: Any) -> str:
    """Write an array for an input as Python code, of 2 rows and 5 steps."""
    sizes = iter((2, 5, *(3,) * value.shape.rank))
    shape = [next(sizes) if width is None else width for width in value.shape.as_list()]
    if value.dtype == tf.string:
        return f"numpy.full({shape}, 'word', object)"
    return f"numpy.zeros({shape}, {value.dtype.name!r})"


@dataclass(frozen=True, slots=True)
class _Integers:
    """The limits of random integers, by input.

    `rows`: of the table that they are ids of. The others are at most `most`, or the number of steps.
    """

    rows: Mapping[str, int | None]
    most: Mapping[str, int | None]


def _list_integers(
    plan: Plan, index: Index, seen: tf.Graph, tensors: Mapping[str, Any]
) -> Iterator[_Integers]:
    """Yield limits of integers: ids of tables and lengths; then small values for both.

    Small ones leave a row of the tables for ids that the graph adds one to.
    """
    longest = _find_fixed_steps(plan, seen)
    names = list(plan.signature.inputs.values())
    rows = {name: ids.count_rows(index, seen, name) for name in names}
    yield _Integers(rows, dict.fromkeys(names, longest))
    integers = [name for name in names if tensors[name].dtype.is_integer]
    # The steps of a recurrence may not be known where those of an input are: a lookup in a table hides them.
    shapes = [tensors[name].shape.as_list() for name in names]
    widths = [shape[1] or shape[0] for shape in shapes if len(shape) > 1]
    steps = [width for width in widths if width and width > 1] + ([longest] if longest else [])
    tables = {name: ids.count_fewest_rows(index, seen, name) for name in integers}
    spared = {name: [max(count - 2, 0)] if count else [] for name, count in tables.items()}
    most = {name: min(steps + spared[name], default=None) for name in integers}
    if any(rows[name] or most[name] != longest for name in integers):
        yield _Integers(rows | dict.fromkeys(integers), dict.fromkeys(names) | most)


def _search(
    groups: Iterable[Sequence[Sizes]],
    draw: Callable[[Sizes], Iterable[_Feeds]],
    rank: Callable[[_Feeds, Sizes], int],
) -> tuple[int, _Feeds, str]:
    """Return the best rank of feeds, feeds of the rank, and the last refusal's reason.

    `draw` gives feeds to try for some sizes; `rank` runs the source on them.
    """
    best: tuple[int, _Feeds] = (_REFUSED, [])
    failure = "no unknown dimension could be told"
    most, smaller = 0, [effort.FEED_SIZES_OF_LITTLE_MEMORY]
    for group in groups:
        waiting = [*group]
        while waiting:
            pairs = waiting.pop(0)
            most = most or max(
                effort.MOST_INPUT_VALUES,
                effort.MOST_TIMES_USUAL_INPUT * _count_values(next(iter(draw(pairs)), [])),
            )
            tries = (feeds for feeds in draw(pairs) if _count_values(feeds) <= most)
            try:
                ranked, failure = _choose_accepted(tries, pairs, failure, rank)
            except tf.errors.ResourceExhaustedError as error:
                failure = first_line(error)  # of this size alone: smaller ones may fit
                waiting = [*waiting, *smaller]
                smaller = []
                continue
            best = max(best, ranked, key=itemgetter(0))
            if best[0] == _RIGHT_BATCH:
                return *best, failure
        if best[0] > _NO_STEPS:
            break
    return *best, failure


def _count_values(feeds: Sequence[Mapping[str, Array]]) -> int:
    return max((value.size for feed in feeds for value in feed.values()), default=0)


def _fits_memory(tensors: Mapping[str, Any], roles: Mapping[str, tuple[str, ...]], pairs: Sizes) -> bool:
    """Return True if all inputs have few enough values for drawing.

    Each of three open axes may be read as time.
    """
    for name, operand in tensors.items():
        for time, batch in pairs:
            sizes = [time if role == "time" else batch for role in roles[name]]
            known = [width for width in operand.shape.as_list() if width is not None]
            if math.prod([*sizes, *known]) > effort.MOST_DRAWN_VALUES:
                return False
    return True


def _describe_input(index: Index, seen: tf.Graph, name: str) -> Any:
    """Return the dtype and shape to draw for an input.

    An unread input of unknown rank is a scalar.
    """
    placeholder = seen.get_tensor_by_name(name)
    if placeholder.shape.rank is None and not index.is_read(split(name)[0]):
        return tf.TensorSpec([], placeholder.dtype)
    return placeholder


def _axes(shape: Any, roles: tuple[str, ...]) -> list[str | None]:
    """Return the role of each axis of an input; None for a known width."""
    left = iter(roles)
    return [next(left) if width is None else None for width in shape.shape.as_list()]


def _states(plan: Plan) -> dict[str, Any]:
    """Return the inputs from former states, each in the shape of the source's state."""
    states = {}
    for state in plan.states:
        if state.start is not None and not state.from_scalar:
            value = plan.model.variables[state.state.key]
            states[state.start] = tf.TensorSpec(value.shape, tf.as_dtype(value.dtype))
    return states


def _beginnings(plan: Plan, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values of states with a scalar beginning, repeated over the shape."""
    return {
        name: np.full_like(feed[name], plan.model.variables[state.state.key].read())
        for state in plan.states
        if (name := state.start) is not None and state.from_scalar and name in feed
    }


def _find_fixed_steps(plan: Plan, seen: tf.Graph) -> int | None:
    """Return the fewest steps fixed by a recurrence, if any."""
    shapes = [
        (seen.get_operation_by_name(recurrence.node).inputs[INPUT].shape, recurrence)
        for recurrence in plan.recurrences
    ]
    fixed = [shape[0 if recurrence.time_major else 1] for shape, recurrence in shapes if shape.rank]
    return min((steps for steps in fixed if steps), default=None)


def _groups_of_sizes(plan: Plan, seen: tf.Graph, kinds: Sequence[Sizes]) -> Iterator[Sequence[Sizes]]:
    """Yield sizes to try: the given sizes, then with the batch of fixed initial states.

    Then sizes of which one can be split into the parts that the graph splits tensors into, as towers do, and
    longer ones where the graph has ops that leave fewer steps.
    """
    widths = {width for state in plan.states for width in plan.model.variables[state.state.key].shape}
    for recurrence in plan.recurrences:
        shape = seen.get_operation_by_name(recurrence.node).inputs[INPUT_H].shape
        widths |= {shape[1 if recurrence.time_major else 0]} if shape.rank else set()
    yield kinds
    for batch in sorted(width for width in widths if width is not None):
        yield [tuple((time, batch) for time, _ in pairs) for pairs in kinds]
    shares = sorted({node.attr["num_split"].i for node in plan.graph.node if "num_split" in node.attr} - {1})
    for share in shares:
        yield [tuple((time, _multiple(batch, share)) for time, batch in pairs) for pairs in kinds]
        yield [tuple((_multiple(time, share), batch) for time, batch in pairs) for pairs in kinds]
    for times in effort.LONGER_FEEDS if any(node.op in _SHORTEN for node in plan.graph.node) else ():
        yield [tuple((time * times, batch) for time, batch in pairs) for pairs in kinds]


def _multiple(size: int, share: int) -> int:
    """Return the next size divisible by the given number of equal parts."""
    return -(-size // share) * share


def _choose_accepted(
    tries: Iterable[_Feeds], pairs: Sizes, failure: str, rank: Callable[[_Feeds, Sizes], int]
) -> tuple[tuple[int, _Feeds], str]:
    """Return the best rank with the first such feeds, and the last refusal's reason.

    Raises ResourceExhaustedError.
    """
    best: tuple[int, _Feeds] = (_REFUSED, [])
    exhausted: Exception | None = None
    for feeds in tries:
        try:
            ranked = rank(feeds, pairs), feeds
        except tf.errors.ResourceExhaustedError as error:
            exhausted = error  # which another reading of the axes may not be
            continue
        except (tf.errors.OpError, ValueError) as error:
            failure = first_line(error)
            continue
        best = max(best, ranked, key=itemgetter(0))
        if best[0] == _RIGHT_BATCH:
            break
    if best[0] == _REFUSED and exhausted is not None:
        raise exhausted
    return best, failure


def _rank(plan: Plan, seen_sizes: Sequence[Sequence[tuple[int, int]]], pairs: Sizes, count: int) -> int:
    """Rank the fit of feeds.

    `seen_sizes` are the (time, batch) of recurrences in each, `pairs` those meant. Recurrences must see a
    step of each of the first `count` feeds.
    """
    if plan.recurrences and not any(seen_sizes):
        return _UNREACHED
    if any(time == 0 for sizes in seen_sizes[:count] for time, _ in sizes):
        return _NO_STEPS
    both = list(zip(seen_sizes, pairs, strict=True))
    if all({batch for _, batch in sizes} <= {pair[1]} for sizes, pair in both):
        return _RIGHT_BATCH
    is_right = all({time for time, _ in sizes} <= {pair[0]} for sizes, pair in both)
    return _RIGHT_STEPS if is_right else _ACCEPTED


class _Windows:
    """The convolutions and pools of a plan's graph, with inputs."""

    def __init__(self, plan: Plan) -> None:
        graph = Graph.of(plan.graph)
        self._ops = [node.name for node in graph.node if node.op in _WINDOWS]
        self._graph = prune(graph, [f"{name}:0" for name in self._ops])
        #: Why inputs of these shapes are refused, or None.
        self._known: dict[tuple[Any, ...], str | None] = {}

    def require_filled(self, feed: Mapping[str, Array]) -> None:
        """Raise ValueError where a window would be empty, as far as shapes are static.

        An empty window takes or gives nothing.
        """
        inputs = {
            name: value
            for name, value in ((split(key)[0], value) for key, value in feed.items())
            if name in self._graph.index.nodes and value.dtype != object
        }
        key = tuple((name, value.shape) for name, value in inputs.items())
        if key not in self._known:
            self._known[key] = self._find_empty(inputs) if self._ops else None
        if (reason := self._known[key]) is not None:
            raise ValueError(reason)

    def _find_empty(self, inputs: Mapping[str, Array]) -> str | None:
        changes = {
            name: node_defs.placeholder(name, tf.as_dtype(value.dtype), tf.TensorShape(value.shape))
            for name, value in inputs.items()
        }
        try:
            graph = import_graph(replace_nodes(self._graph, changes))
        except ValueError as cause:
            return first_line(cause)
        for name in self._ops:
            op = graph.get_operation_by_name(name)
            shapes = (value.shape for value in (*op.inputs, *op.outputs))
            if any(0 in shape.as_list() for shape in shapes if shape.rank is not None):
                return f"{name} ({op.type}) would find nothing in its window"
        return None


def fit(plan: Plan, values: Mapping[str, Array], *, where: str) -> dict[str, Array]:
    """Convert arrays by signature key to a feed by tensor, of the placeholders' types.

    Raises UsageError.
    """
    seen, reasons, feed = plan.graph.shapes, [], {}
    named = {key: name for key, name in plan.signature.inputs.items() if key in values}
    for key, name in named.items():
        wanted, given, at = seen.get_tensor_by_name(name), values[key], f"{where}: {key}"
        dtype = np.dtype(wanted.dtype.as_numpy_dtype)
        if loss := casts.explain_loss(given, dtype):
            reasons.append(f"{at}: {loss}")
        elif not wanted.shape.is_compatible_with(given.shape):
            actual = f"{given.dtype}{list(given.shape)}"
            reasons.append(f"{at}: expected {wanted.dtype.name}{wanted.shape}, found {actual}")
        else:
            feed[name] = casts.cast(given, dtype, where=at)
    if reasons:
        raise UsageError(*reasons)
    return feed


def require_accepted(plan: Plan, source: RunningSource, feed: Mapping[str, Array], *, where: str) -> None:
    """Raise UsageError where the source refuses a feed."""
    try:
        _sizes(plan, source, feed)
    except (tf.errors.OpError, UnicodeDecodeError) as cause:
        # A reason of TensorFlow's that quotes bytes of an input is no text.
        is_quoted = isinstance(cause, UnicodeDecodeError)
        message = first_line(ValueError(cause.object.decode(errors="replace")) if is_quoted else cause)
        raise UsageError(f"{where}: the model does not accept these inputs: {message}") from cause


def _sizes(plan: Plan, source: RunningSource, feed: Mapping[str, Array]) -> list[tuple[int, int]]:
    source.restart()
    source.run(feed, list(plan.signature.outputs.values()))
    return list(source.sizes)


def _assignments(tensors: Mapping[str, Any]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield ways to call unknown dimensions time and batch.

    All inputs are alike first, then mixed.
    """
    choices = {}
    for name, tensor_of_input in tensors.items():
        unknown = sum(width is None for width in tensor_of_input.shape.as_list())
        batch_first = ("batch", *("time",) * (unknown - 1))
        time_first = ("time", "batch", *("time",) * (unknown - 2))
        choices[name] = [(), ()] if not unknown else [batch_first, time_first if unknown > 1 else ("time",)]
    alike = [dict(zip(choices, column, strict=True)) for column in zip(*choices.values(), strict=True)]
    # One-dimensional inputs are nearly always one per row, whichever way round the others are.
    per_row = {name: options[0] for name, options in choices.items() if len(options[0]) == 1}
    yield from ({**roles, **per_row} for roles in alike or [{}])
    mixed = product(*choices.values())
    yield from (
        dict(zip(choices, column, strict=True))
        for column, _ in zip(mixed, range(effort.MOST_MIXED_AXES), strict=False)
    )


def _value(
    rng: np.random.Generator,
    operand: Any,
    roles: tuple[str, ...],
    sizes: tuple[int, int],
    *,
    rows: int | None,
    most: int | None,
    words: Sequence[bytes],
    draw: Callable[[Sequence[int]], Array],
) -> Array:
    by_role = dict(zip(("time", "batch"), sizes, strict=True))
    left = iter(roles)
    shape = [by_role[next(left)] if width is None else width for width in operand.shape.as_list()]
    dtype = operand.dtype.as_numpy_dtype
    if operand.dtype == tf.string:
        return rng.choice(np.array([*words, _UNKNOWN], object), shape)
    if operand.dtype.is_bool:
        lengths = rng.integers(1, shape[-1] + 1, [*shape[:-1], 1]) if shape else 1
        return np.asarray(np.arange(shape[-1]) < lengths if shape else rng.integers(2) == 1)
    if operand.dtype.is_integer:
        # Integers that pick from no table are lengths: at least one step, at most all.
        longest = by_role["time"] if most is None else min(by_role["time"], most)
        low, high = (0, rows) if rows else (min(1, longest), longest + 1)
        return rng.integers(low, high, shape).astype(dtype)
    if rows:  # of ids, which Keras takes as floats
        return rng.integers(0, rows, shape).astype(dtype)
    return np.asarray(draw(shape), dtype)  # of no axes too an array
