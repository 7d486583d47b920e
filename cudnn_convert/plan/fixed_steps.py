"""Opens the number of steps of a plan whose source fixed it, as a model does that saw pieces of one length.

The source then runs on that number alone. What is opened is proven in chunks of other sizes against the
whole sequence: `verification/streaming.py` runs the source as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, Final

from cudnn_convert.errors import Reason
from cudnn_convert.graph import time_axis
from cudnn_convert.graph.index import INPUT, split
from cudnn_convert.graph.passes.open_steps import open_steps
from cudnn_convert.graph.time_axis import Mixing
from cudnn_convert.model import Recurrence
from cudnn_convert.plan import Plan, beginnings

#: Sets of the inputs' axes that are tried.
_MOST_AXES: Final = 16
NOTE: Final = "the number of steps is open; the source fixed it"


def find_fixed_steps(plan: Plan, recurrences: Sequence[Recurrence]) -> int | None:
    """The number of steps that the graph of a plan binds all `recurrences` to; None where one is open."""
    steps = set()
    for recurrence in recurrences:
        shape = plan.graph.shapes.get_operation_by_name(recurrence.node).inputs[INPUT].shape
        steps.add(shape[0 if recurrence.time_major else 1] if shape.rank == 3 else None)
    known = steps.pop() if len(steps) == 1 else None
    return known if isinstance(known, int) else None


def _find_maker(plan: Plan, steps: int) -> Mixing:
    """The op that makes so many steps of inputs which have no axis of that size."""
    index, seen = plan.graph.index, plan.graph.shapes
    ends = [split(name)[0] for name in plan.signature.outputs.values()]
    needed = {*beginnings.walk_up(index, ends)}
    op = next(
        op
        for op in time_axis.in_order(seen, needed)
        if op.inputs and op.name in needed and any(steps in _sizes(each) for each in op.outputs)
    )
    return Mixing(op.name, op.type)


@dataclass(frozen=True, slots=True)
class OpenedPlan:
    """A plan with an open number of steps: the inputs that have them, and how the sizes of ops were read."""

    plan: Plan
    inputs: Mapping[str, int]
    shapes: Mapping[str, tuple[int | None, ...]]


def open_plan(plan: Plan, steps: int, *, flag: str, cure: str) -> tuple[list[OpenedPlan], list[Reason]]:
    """The plan with an open number of steps, once for each way to read its sizes, or why there is none."""
    count = time_axis.choose_prime(plan.whole.shapes)
    held: Mixing | None = None
    plans = []
    ends = [split(name)[0] for name in plan.signature.outputs.values()]
    for inputs in islice(_list_axes(plan, steps), _MOST_AXES):

        def open_graph(graph: Any, known: Any, inputs: Mapping[str, int] = inputs) -> Any:
            needed = {*beginnings.walk_up(graph.index, ends)}
            return open_steps(graph, inputs, steps, count=count, needed=needed, known=known)

        opened, refused = open_graph(plan.graph, {})
        held = held or refused
        for each in opened:
            wholes, refused = open_graph(plan.whole, each.shapes)
            held = held or refused
            if wholes:
                changed = replace(plan, graph=each.graph, whole=wholes[0].graph, notes=(*plan.notes, NOTE))
                plans.append(OpenedPlan(changed, inputs, each.shapes))
    if plans:
        return plans, []
    expected = f"{flag}: expected ops that take any number of steps"
    if held is None:
        held = _find_maker(plan, steps)
    return [], [Reason(f"{held.node}: {expected}, found {held.what} for {steps} alone; {cure}")]


def find_difference(one: OpenedPlan, other: OpenedPlan) -> str:
    """The name of an op, or of an input, whose sizes two plans read differently."""
    names = (name for name, sizes in one.shapes.items() if other.shapes.get(name) != sizes)
    axes = (split(name)[0] for name, axis in one.inputs.items() if other.inputs.get(name) != axis)
    return [*names, *axes, split(next(iter(one.inputs)))[0]][0]


def _list_axes(plan: Plan, steps: int) -> Iterator[Mapping[str, int]]:
    """The sets of axes that may have the steps, at most one of each input; first those of most inputs."""
    axes: dict[str, list[int | None]] = {}
    for name in plan.signature.inputs.values():
        sizes = _sizes(plan.graph.shapes.get_tensor_by_name(name))
        axes[name] = [*(axis for axis, size in enumerate(sizes) if size == steps), None]
    ways = sorted(product(*axes.values()), key=lambda way: way.count(None))
    for way in ways:
        chosen = {name: axis for name, axis in zip(axes, way, strict=True) if axis is not None}
        if chosen:
            yield chosen


def _sizes(value: Any) -> list[int | None]:
    return value.shape.as_list() if value.shape.rank is not None else []
