"""Where the state of a graph goes: it stays in its variables, or becomes inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.graph import build, cut, detach, state, updates
from cudnn_convert.graph.index import Index, split
from cudnn_convert.graph.state import State
from cudnn_convert.model import InMemory, Model

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """An assigned variable of a plan. It stays; or it leaves for an input and an output of the plan's graph,
    the tensors `start` and `end`; or it is `dropped`, for no output reads it. `from_scalar`: the file holds a
    scalar, and only what an assignment writes has the shape of `start`.
    """

    state: State
    start: str | None = None
    end: str | None = None
    dropped: bool = False
    from_scalar: bool = False

    @property
    def stays(self) -> bool:
        return self.start is None and not self.dropped


@dataclass(frozen=True, slots=True)
class Settled:
    """A graph whose state is where its format can have it; `outputs` are those asked for, by its names."""

    model: Model
    graph: Any
    outputs: tuple[str, ...]
    carried: tuple[Carried, ...]

    @property
    def leaving(self) -> tuple[Carried, ...]:
        """The state that became inputs and outputs."""
        return tuple(found for found in self.carried if found.start is not None)


def settled(
    model: Model,
    graph: Any,
    outputs: Sequence[str],
    *,
    keep: bool,
    shapes: Mapping[str, Shape | None],
    asked: Mapping[str, str],
) -> Settled:
    """The state of `graph`, kept in variables or not; that named in `shapes` leaves them in any case.

    `asked` maps those of `outputs` that read what an assignment wrote to its op. Raises
    UnsupportedModelError, UsageError.
    """
    assigned = state.assigned(graph, outputs)
    found = [one for one in assigned if one.read and one.recurs]
    others = [] if keep else [one for one in assigned if one not in found]
    _refuse_read(model, others)
    leaving = [one for one in found if not keep or one.tensor in shapes]
    for one in found:
        if one not in leaving:
            _refuse_branches(one, asked)
    model = _with_initial_values(model, [*found, *others])
    index = Index(graph)
    written = _written(graph, [one for one in leaving if _is_scalar(model, index, one)])
    starts = {
        one.variable: _start(model, index, one, shapes.get(one.tensor), written.get(one.variable))
        for one in leaving
    }
    starts |= {one.variable: build.constant(one.variable, model.variables[one.key].read()) for one in others}
    detached, ends = detach.detached(model.path, graph, [*leaving, *others], starts)
    by_variable = {one.variable: end for one, end in zip(leaving, ends, strict=False)}
    last = {write: one.variable for one in leaving for write in updates.last_writes(index, one)}
    outputs = [by_variable[last[asked[name]]] if asked.get(name) in last else name for name in outputs]
    kept = [*outputs, *by_variable.values(), *(one.tensor for one in leaving)]
    detached = build.kept(detached, Index(detached).ancestors(split(name)[0] for name in kept))
    carried = [
        Carried(one, one.tensor, by_variable[one.variable], from_scalar=one.variable in written)
        for one in leaving
    ]
    carried += [Carried(one) for one in found if one not in leaving]
    carried += [Carried(one, dropped=True) for one in others]
    return Settled(model, detached, tuple(outputs), tuple(carried))


def _refuse_read(model: Model, others: Iterable[State]) -> None:
    """Raises UnsupportedModelError for variables that change from call to call by no recurrence."""
    cure = "choose other --outputs, or --format savedmodel"
    reasons = [
        f"variable {one.variable}: expected one that is only read, or a recurrence's state, found that "
        f"{one.writes[0].op} changes it; {cure}"
        for one in others
        if one.read
    ]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)


def _refuse_branches(one: State, asked: Mapping[str, str]) -> None:
    for write in one.writes:
        if write.passage and write.op in asked.values():
            raise UsageError(f"--outputs: expected an assignment outside of branches, found {write.op}")


def _with_initial_values(model: Model, found: Iterable[State]) -> Model:
    """The model with a value for each of these: where the file has none, that of a constant initializer."""
    index, values, reasons = Index(model.graph), dict(model.variables), []
    for one in found:
        if one.key not in values:
            value = updates.initial(index, one.variable)
            if value is None:
                expected = "a value in the file or a constant initializer"
                cure = "give a file that holds it, or choose other --outputs"
                reasons.append(f"state variable {one.key}: expected {expected}, found neither; {cure}")
            else:
                values[one.key] = InMemory(value)
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return replace(model, variables=values)


def _is_scalar(model: Model, index: Index, one: State) -> bool:
    """Whether a variable is declared without a shape, and the file holds a scalar of it."""
    unknown = tf.TensorShape(index.nodes[one.variable].attr["shape"].shape).rank is None
    return unknown and not model.variables[one.key].shape


def _written(graph: Any, scalars: Sequence[State]) -> dict[str, tf.TensorShape]:
    """The shapes that assignments write into variables that are scalars until then, where all agree."""
    if not scalars:
        return {}
    index, seen, found = Index(graph), build.imported(graph), {}
    for one in scalars:
        values = [index.data_inputs(index.nodes[write.op])[1] for write in one.writes]
        shapes = [seen.get_tensor_by_name(name).shape for name in values]
        ranks = {shape.rank for shape in shapes}
        if len(ranks) == 1 and not ranks & {None, 0}:
            columns = zip(*(shape.as_list() for shape in shapes), strict=True)
            found[one.variable] = tf.TensorShape(
                [widths[0] if len({*widths}) == 1 else None for widths in columns]
            )
    return found


def _start(
    model: Model, index: Index, one: State, wanted: Shape | None, written: tf.TensorShape | None
) -> Any:
    """The placeholder for a variable, of its shape or what the user says of it.

    A variable declared without a shape has the one that is `written`, or the rank of its value.
    """
    attributes = index.nodes[one.variable].attr
    declared = tf.TensorShape(attributes["shape"].shape)
    if declared.rank is None:
        declared = written or tf.TensorShape([None] * len(model.variables[one.key].shape))
    shape = declared if wanted is None else tf.TensorShape(wanted)
    if not declared.is_compatible_with(shape):
        known, asked = cut.written(declared), cut.written(shape)
        expected = f"expected {known} or narrower, as the variable has it, found {asked} in --inputs"
        raise UsageError(f"tensor {one.tensor}: {expected}; give {one.tensor}{known}")
    dtype = tf.as_dtype(attributes["dtype"].type)
    return build.placeholder(one.variable, dtype, declared.merge_with(shape))
