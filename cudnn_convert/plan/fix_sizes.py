"""Fixes the sizes of a plan's inputs, for `--lowering fused`.

A microcontroller reserves the memory of every tensor before the first call, so its file has no open size.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.graph.index import split
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, Streaming, axes
from cudnn_convert.values import Axis

_BATCH, _TIME = "batch", "time"
#: Chunks of a sequence in a proof of a streamed model.
_CHUNKS: Final = 3


def fix_sizes(plan: Plan, options: Options) -> Plan:
    """Return a plan with inputs of fixed sizes, if requested by `options`.

    Open rows become those of `--batch`, or one; open steps those of `--steps`. Raises UsageError for
    `--steps` without an open axis of steps, UnsupportedModelError where a size stays open.
    """
    if not options.has_fixed_sizes or plan.whole is None:
        return plan
    known = _name_axes(plan)
    sizes = _choose_sizes(known, options)
    if any(of is None or None in of for of in sizes.values()):
        raise UnsupportedModelError(plan.model.path, [_ask_for_sizes(plan, known, options)])
    if options.steps is not None and not any(_is_time(axis) for of in known.values() for axis in of or ()):
        expected = "expected an input with an open number of steps"
        actual = "found sizes that the source fixes"
        raise UsageError(f"--steps {options.steps}: {expected}, {actual}; leave it out")
    note = "sizes are fixed: " + ", ".join(f"{key} {of}" for key, of in sizes.items())
    fixed = _with_sizes(plan, sizes)
    return replace(fixed, notes=(*plan.notes, note), streaming=_fix_chunks(plan, options))


def _fix_chunks(plan: Plan, options: Options) -> Streaming | None:
    """Return the chunks of a streamed plan, and the source for several chunks."""
    if plan.streaming is None or plan.streaming.whole is None or options.steps is None:
        return plan.streaming
    whole = plan.streaming.whole
    sizes = _choose_sizes(_name_axes(whole), replace(options, steps=_CHUNKS * options.steps))
    return replace(plan.streaming, chunk=options.steps, whole=_with_sizes(whole, sizes))


def _name_axes(plan: Plan) -> dict[str, list[Axis] | None]:
    """Return the axes of each input by key, if the rank is known."""
    named, known = axes.name_axes(plan), dict[str, list[Axis] | None]()
    for key, name in plan.signature.inputs.items():
        stated = plan.graph.shapes.get_tensor_by_name(name).shape
        known[key] = None if stated.rank is None else [*named.get(key, stated.as_list())]
    return known


def _choose_sizes(
    known: Mapping[str, list[Axis] | None], options: Options
) -> dict[str, list[int | None] | None]:
    """Return the sizes of each input by key; None for open sizes."""
    return {
        key: None if of is None else [_choose_size(axis, options) for axis in of] for key, of in known.items()
    }


def _with_sizes(plan: Plan, sizes: Mapping[str, list[int | None] | None]) -> Plan:
    shapes = {split(name)[0]: sizes[key] for key, name in plan.signature.inputs.items()}
    graph, whole = (axes.with_shapes(each, shapes) for each in (plan.graph, plan.whole))
    return replace(plan, graph=graph, whole=whole)


def _is_time(axis: Axis) -> bool:
    return isinstance(axis, str) and axis.startswith(_TIME)


def _choose_size(axis: Axis, options: Options) -> int | None:
    """Return the size of an axis: known, or given by options."""
    if axis == _BATCH:
        return options.rows
    if _is_time(axis):
        return options.steps
    return axis if isinstance(axis, int) else None


def _ask_for_sizes(plan: Plan, known: Mapping[str, list[Axis] | None], options: Options) -> Reason:
    """Return the reason for refusal: the first open input, and the flag for the size."""
    left = {
        key: None if of is None else [axis for axis in of if _choose_size(axis, options) is None]
        for key, of in known.items()
    }
    key = next(key for key, of in left.items() if of is None or of)
    shape = known[key]
    actual = "any shape" if shape is None else f"[{', '.join(str(axis or '?') for axis in shape)}]"
    expected = f"--lowering fused: expected an input of fixed sizes, found {actual}"
    if all(of is not None and all(map(_is_time, of)) for of in left.values()):
        return Reason(f"{key}: {expected}; give the number of steps with --steps")
    # An open size is shown as 1.
    shown = {key: [size if isinstance(size, int) else 1 for size in known[key] or ()] for key in known}
    items = [f"{key}={plan.source.inputs.get(key, key)}{sizes}" for key, sizes in shown.items()]
    cure = Remedy({"inputs": (",".join(items).replace(", ", ","),)}, "give all sizes, as in")
    return Reason(f"{key}: {expected}; {cure}", cure)
