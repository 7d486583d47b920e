"""Opens the source's fixed number of steps in a plan.

A model that was trained on pieces of one length is such a source: it runs on that number alone. What is
opened is proven in chunks of other sizes against the whole sequence: `verification/streaming.py` runs the
source as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any, Final

from cudnn_convert.errors import Reason
from cudnn_convert.graph import time_axis
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import INPUT, split
from cudnn_convert.graph.passes.open_steps import open_steps
from cudnn_convert.graph.time_axis import Mixing
from cudnn_convert.model import Recurrence
from cudnn_convert.plan import Plan, beginnings

#: Sets of the inputs' axes that are tried.
_MOST_AXES: Final = 16
NOTE: Final = "the number of steps is open; the source fixed it"


def find_fixed_steps(plan: Plan, recurrences: Sequence[Recurrence]) -> int | None:
    """Return the number of steps bound by a plan's graph for all `recurrences`.

    None where one is open, or where a recurrence reads no input: then no input has steps to open.
    """
    index, steps = plan.graph.index, set()
    inputs = {split(name)[0] for name in plan.signature.inputs.values()}
    for recurrence in recurrences:
        if not inputs & {*beginnings.walk_up(index, [recurrence.node])}:
            return None
        shape = plan.graph.shapes.get_operation_by_name(recurrence.node).inputs[INPUT].shape
        steps.add(shape[0 if recurrence.time_major else 1] if shape.rank == 3 else None)
    known = steps.pop() if len(steps) == 1 else None
    return known if isinstance(known, int) else None


def _find_maker(plan: Plan, steps: int) -> Mixing:
    """Return the op introducing an axis of size `steps`, absent from all inputs."""
    seen, needed = plan.graph.shapes, _list_needed(plan, plan.graph)
    op = next(
        op
        for op in time_axis.in_order(seen, needed)
        if op.inputs and op.name in needed and any(steps in _sizes(each) for each in op.outputs)
    )
    return Mixing(op.name, op.type)


@dataclass(frozen=True, slots=True)
class OpenedPlan:
    """A plan with open steps: the inputs with steps, and the reading of ops' sizes."""

    plan: Plan
    inputs: Mapping[str, int]
    shapes: Mapping[str, tuple[int | None, ...]]


def open_plan(plan: Plan, steps: int, *, flag: str, cure: str) -> tuple[list[OpenedPlan], list[Reason]]:
    """Open the number of steps of a plan, once for each reading of sizes.

    Returns the reasons where there is no such plan.
    """
    count = time_axis.choose_prime(plan.whole.shapes)
    plans, obstacles = [], list[Mixing | None]()
    for inputs in islice(_list_axes(plan, steps), _MOST_AXES):
        opener = partial(open_steps, inputs=inputs, steps=steps, count=count)
        opened, obstacle = opener(plan.graph, needed=_list_needed(plan, plan.graph), known={})
        obstacles.append(obstacle)
        for each in opened:
            wholes, obstacle = opener(plan.whole, needed=_list_needed(plan, plan.whole), known=each.shapes)
            obstacles.append(obstacle)
            if wholes:
                changed = replace(plan, graph=each.graph, whole=wholes[0].graph, notes=(*plan.notes, NOTE))
                plans.append(OpenedPlan(changed, inputs, each.shapes))
    if plans:
        return plans, []
    first = next(filter(None, obstacles), None) or _find_maker(plan, steps)
    expected = f"{flag}: expected ops that take any number of steps"
    return [], [Reason(f"{first.node}: {expected}, found {first.what} for {steps} alone; {cure}")]


def _list_needed(plan: Plan, graph: Graph) -> set[str]:
    """Return the graph's ops needed by outputs, except for ops of initial states alone."""
    ends = [split(name)[0] for name in plan.signature.outputs.values()]
    return {*beginnings.walk_up(graph.index, ends)}


def find_difference(first: OpenedPlan, other: OpenedPlan) -> str:
    """Return the name of an op or input with sizes read differently by two plans."""
    names = (name for name, sizes in first.shapes.items() if other.shapes.get(name) != sizes)
    axes = (split(name)[0] for name, axis in first.inputs.items() if other.inputs.get(name) != axis)
    return [*names, *axes, split(next(iter(first.inputs)))[0]][0]


def _list_axes(plan: Plan, steps: int) -> Iterator[Mapping[str, int]]:
    """Yield the possible sets of step axes, sets of most inputs first.

    A set has at most one axis of each input.
    """
    axes: dict[str, list[int | None]] = {}
    for name in plan.signature.inputs.values():
        sizes = _sizes(plan.graph.shapes.get_tensor_by_name(name))
        axes[name] = [*(axis for axis, size in enumerate(sizes) if size == steps), None]
    sets = sorted(product(*axes.values()), key=lambda places: places.count(None))
    for places in sets:
        chosen = {name: axis for name, axis in zip(axes, places, strict=True) if axis is not None}
        if chosen:
            yield chosen


def _sizes(value: Any) -> list[int | None]:
    return value.shape.as_list() if value.shape.rank is not None else []
