"""A pseudo-layer as a `while` loop over its steps, with the input's product hoisted out of it.

What TensorFlow spends on an iteration it spends on several steps at once: a first loop takes so many of them
`together`, a further one fewer of those that are left, the last goes one by one. A single step, as in
streaming, needs no loop. A loop by itself is plain, with one step an iteration: TensorFlow Lite's converter
takes it, which knows no items of several sizes.
Whatever a loop carries or reads costs three ops an iteration, so that it carries no second counter.
Source: tensorflow v2.21.0 core/kernels/list_kernels.h TensorListConcat (items differ in their first size),
core/common_runtime/lower_while_op.cc (what is read goes round with what is carried).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.graph import build
from cudnn_convert.layouts import Layout
from cudnn_convert.lower import steps
from cudnn_convert.lower.sequences import alive
from cudnn_convert.lower.steps import State, Step
from cudnn_convert.model import Mode

#: Of a plain loop.
PLAIN: Final = (1,)


def layer(
    mode: Mode,
    x: Any,
    state: State,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    layout: Layout = layouts.LOOP,
    together: Sequence[int] = PLAIN,
) -> tuple[Any, Any, Any]:
    """`y [time, batch, width]` and the final states of one pseudo-layer.

    `together`: the steps of an iteration of one loop after another, of which the last takes one.
    """
    sums, step = steps.of(mode, x, arrays, layout)
    if lengths is None:
        return _walked(sums, step, state, backward=backward, together=together)
    now = alive(x, lengths)
    y, h, c = _walked([*sums, now], _masked(step), state, backward=backward, together=together)
    return tf.where(now, y, tf.zeros_like(y)), h, c


def _masked(step: Step) -> Step:
    """The last of the rows tells who goes on; the others keep their state."""

    def masked(rows: Sequence[Any], old: State) -> State:
        *rows, now = rows
        return tuple(tf.where(now, one, other) for one, other in zip(step(rows, old), old, strict=True))

    return masked


def _walked(
    sums: Sequence[Any], step: Step, state: State, *, backward: bool, together: Sequence[int]
) -> tuple[Any, Any, Any]:
    if tuple(together) == PLAIN:
        return _looped(sums, step, state, backward=backward, together=together)
    bound = _on_cpu(step)

    def loops() -> tuple[Any, Any, Any]:
        return _looped(sums, bound, state, backward=backward, together=together)

    def single() -> tuple[Any, Any, Any]:
        new = bound([rows[0] for rows in sums], state)
        return new[0][None], new[0], new[-1]

    y, h, c = tf.cond(tf.equal(tf.shape(sums[0])[0], 1), single, loops)
    return tf.ensure_shape(y, [None, None, state[0].shape[1]]), h, c


def _on_cpu(step: Step) -> Step:
    """TensorFlow makes one op of a product and its bias where it knows them to be on a CPU.

    In the function of a branch only nodes themselves say so. XLA, whose loop is plain, has no such op.
    Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc NodeIsOnCpu.
    """

    def bound(rows: Sequence[Any], state: State) -> State:
        with tf.device(build.ON_CPU):
            return step(rows, state)

    return bound


def _looped(
    sums: Sequence[Any], step: Step, state: State, *, backward: bool, together: Sequence[int]
) -> tuple[Any, Any, Any]:
    time, batch, width = tf.shape(sums[0])[0], tf.shape(sums[0])[1], state[0].shape[1]
    turns = [*_Turn.each(time, together)]
    held = _List.reserved(sums[0].dtype, turns[-1].end, [batch, width], several=len(turns) > 1)
    known = [tf.TensorShape([])] * 2 + [tf.TensorShape([None, part.shape[1]]) for part in state]

    def walked(carried: Sequence[Any], turn: _Turn) -> Sequence[Any]:
        def body(item: Any, handle: Any, *state: Any) -> tuple[Any, ...]:
            since, count = turn.since(item), turn.count
            first = time - count - since if backward else since
            given = []
            for rows in _ordered(zip(*(_rows(part, first, count) for part in sums), strict=True), backward):
                state = step(rows, state)
                given.append(state[0])
            at = held.items - 1 - item if backward else item
            return item + 1, held.put(handle, at, _ordered(given, backward)), *state

        done: Sequence[Any] = tf.while_loop(
            lambda item, *_: item < turn.end, body, [*carried], shape_invariants=[*known]
        )
        return done

    carried: Sequence[Any] = (tf.constant(0), held.handle, *state)
    for turn in turns:
        carried = walked(carried, turn)
    _, handle, *final = carried
    return tf.ensure_shape(held.joined(handle), [None, None, width]), final[0], final[-1]


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one of several loops does: `count` steps an item, until the item `end`.

    Had all items before its own as many, `skipped` would be the steps before the first; None is none.
    """

    count: int
    end: Any
    skipped: Any

    @classmethod
    def each(cls, time: Any, counts: Sequence[int]) -> Iterator[_Turn]:
        first, *others = counts
        items = time if first == 1 else time // first
        yield cls(first, items, None)
        done = items * first
        for count in others:
            skipped = done - items * count
            items += time - done if count == 1 else (time - done) // count
            yield cls(count, items, skipped)
            done = items * count + skipped

    def since(self, item: Any) -> Any:
        """The steps before an item."""
        steps = item if self.count == 1 else item * self.count
        return steps if self.skipped is None else steps + self.skipped


def _rows(sums: Any, first: Any, count: int) -> list[Any]:
    return [sums[first]] if count == 1 else tf.unstack(sums[first : first + count], count)


def _ordered(values: Iterable[Any], backward: bool) -> list[Any]:
    return [*values][:: -1 if backward else 1]


@dataclass(frozen=True, slots=True)
class _List:
    """A TensorList of `items`: of single steps, or of as many at once as an iteration took (`several`)."""

    handle: Any
    items: Any
    shape: Any
    dtype: Any
    several: bool

    @classmethod
    def reserved(cls, dtype: Any, items: Any, step: Sequence[Any], *, several: bool) -> _List:
        # The shape is given at run time: without a step there would be none to make an empty result of.
        shape = tf.stack([-1, *step] if several else step)
        made = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=items, element_dtype=dtype)
        return cls(made, items, shape, dtype, several)

    def put(self, handle: Any, at: Any, steps: Sequence[Any]) -> Any:
        item = tf.stack(steps) if self.several else steps[0]
        return tf.raw_ops.TensorListSetItem(input_handle=handle, index=at, item=item)

    def joined(self, handle: Any) -> Any:
        """`[time, batch, width]`."""
        told = {"input_handle": handle, "element_shape": self.shape, "element_dtype": self.dtype}
        if not self.several:
            return tf.raw_ops.TensorListStack(**told)
        return tf.raw_ops.TensorListConcatV2(**told, leading_dims=tf.zeros([0], tf.int64)).tensor
