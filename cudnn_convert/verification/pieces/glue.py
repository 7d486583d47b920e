"""What stands around the recurrences, run by itself: their outputs are given, and nothing amplifies an error.

Source and artifact get the same values in the place of what every recurrence gives. Compared are the
outputs, what enters each recurrence, and what each product of matrices in the artifact gives: outputs may
hide products as they hide recurrences, so each must be among the source's tensors, by its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import reference
from cudnn_convert.graph import build
from cudnn_convert.graph.frames import certain
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, Index, split
from cudnn_convert.model import Array, InMemory
from cudnn_convert.plan import Plan
from cudnn_convert.report import GlueReport
from cudnn_convert.verification import compare, noise
from cudnn_convert.verification.computed import Call
from cudnn_convert.verification.computed import steps as steps_of
from cudnn_convert.verification.way import Source

#: The attributes that have the type of what an op gives.
_TYPES: Final = ("T", "dtype", "Tparams", "DstT")
_FLOATS: Final = frozenset(one.as_datatype_enum for one in build.FLOATS)
#: The products of matrices in a graph.
PRODUCTS: Final = frozenset(
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative Einsum".split()
)
#: Runs with everything given moved by one unit in the last place: what they move is noise of the glue.
_DRAWS: Final = 2
#: The bound of float32 for values about 1; half and bfloat16 have coarser ones.
_FINE: Final = compare.tolerance(np.dtype(np.float32), 0.0).atol


@dataclass(frozen=True, slots=True)
class Given:
    """One layer of a recurrence: what it takes, and the values to give in its place.

    `x [time, batch, inputs]`, `h` and `c` `[directions, batch, units]` at the start, `lengths [batch]` or
    None; `y [time, directions, batch, units]` and the final `h_end` and `c_end`. All are of float32.

    With `projections`, those of each direction, y and h_end are what stands before them, and h is what stands
    behind; `beside` is what the products with them give.
    """

    x: Array
    h: Array
    c: Array
    lengths: Array | None
    y: Array
    h_end: Array
    c_end: Array
    projections: Sequence[Array] = ()
    beside: Sequence[Array] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The artifact's glue on one feed: its outputs by key, what entered recurrences, and its products.

    `entered`: `(what, found, expected)` of each tensor that enters a recurrence. `beside` is what products
    of the artifact may also give, as `Given` has it, `hidden` names products whose values cannot be had.
    """

    outputs: Mapping[str, Array]
    entered: Sequence[tuple[str, Array, Array]]
    products: Mapping[str, Array]
    beside: Sequence[Array] = ()
    hidden: Sequence[str] = ()


#: `(feed by tensor, the recurrences' calls on it) -> what the artifact's glue answers`. Raises LookupError
#: with the reason where the glue cannot be run by itself.
Run = Callable[[Mapping[str, Array], Sequence[Call]], Seen]


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor of the source, how far rounding moves it, and whether a product of matrices gives it."""

    value: Array
    floor: float
    is_product: bool


@dataclass(slots=True)
class _Worst:
    """What was compared so far; `least` is the bound of the coarsest type that anything is stored in."""

    least: float
    compared: int = 0
    needed: float = 0.0
    message: str = ""
    unjudged: list[str] = field(default_factory=list)

    def see(self, name: str, found: Array, expected: Array, floor: float) -> None:
        """Compares floats by their type's bound, or ten times their noise where that is still sharp."""
        if found.shape != expected.shape:
            self.needed = np.inf
            self.message = self.message or f"{name}: expected {[*expected.shape]}, found {[*found.shape]}"
            return
        if expected.dtype.kind != "f":
            return  # a choice between scores: the products that made these are compared
        share = _share(found, expected, floor, self.least)
        if share is None:
            self.unjudged.append(name)
            return
        self.compared += expected.size
        if share > max(1.0, self.needed):
            self.message = f"{name}: off by {share:.3g} times the tolerance"
        self.needed = max(self.needed, share)


def rounded(plan: Plan, dtype: np.dtype[Any]) -> Plan:
    """A plan whose matrices are those of another, rounded to a type and back."""

    def round_off(value: Array) -> Array:
        if value.dtype.kind != "f" or value.ndim < 2:
            return value
        with np.errstate(over="ignore"):
            return value.astype(dtype).astype(value.dtype)

    graph = type(plan.whole)()
    graph.CopyFrom(plan.whole)
    for node in graph.node:
        if node.op == "Const" and node.attr["dtype"].type in _FLOATS:
            value = round_off(tf.make_ndarray(node.attr["value"].tensor))
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    held = {name: InMemory(round_off(one.read())) for name, one in plan.model.variables.items()}
    return replace(plan, whole=graph, model=replace(plan.model, variables=held))


def judge_glue(
    plan: Plan,
    judge: Source,
    feed: Mapping[str, Array],
    run: Run,
    *,
    dtype: np.dtype[Any],
    rough: Source | None = None,
) -> GlueReport:
    """Compares the glue of an artifact with the source's on one feed.

    `dtype` is the coarsest type that a recurrence has or that the artifact stores matrices in. `rough` is
    the source with its matrices rounded to that, where they are: so far an artifact may be off.
    """
    judge.restart()
    judge.run(feed, list(plan.signature.outputs.values()))
    calls = [*judge.calls]  # of later runs there will be others
    least = compare.tolerance(dtype, 0.0).atol
    by_node = {node: [call for call in calls if call.node == node] for node in {call.node for call in calls}}
    if not calls:
        return GlueReport(asked=False, message="no recurrence runs on these inputs")
    try:
        seen = run(feed, calls)
    except LookupError as reason:
        return GlueReport(asked=False, message=str(reason.args[0]))
    outputs = plan.signature.outputs
    candidates = _tensors(plan, feed) if seen.products else []
    wanted = [*outputs.values(), *candidates]
    exact, floors = _answers(judge, feed, by_node, wanted)
    if rough is not None:
        rough.give(by_node)
        gaps = map(noise.difference, exact, rough.run(feed, wanted))
        floors = [max(pair) for pair in zip(floors, gaps, strict=True)]
    worst = _Worst(least)
    for place, (key, _) in enumerate(outputs.items()):
        if key in seen.outputs:
            worst.see(f"output {key}", seen.outputs[key], exact[place], floors[place])
    for name, found, expected in seen.entered:
        worst.see(name, found, expected, 0.0)
    ops = {f"{node.name}:0": node.op for node in plan.whole.node}
    tensors = zip(candidates, exact[len(outputs) :], floors[len(outputs) :], strict=True)
    held = [_Held(value, floor, ops[name] in PRODUCTS) for name, value, floor in tensors]
    held += [_Held(value, 0.0, is_product=True) for value in seen.beside]
    lost = []
    for name, value in seen.products.items():
        among = _is_among(value, held, least)
        if among is None:
            worst.unjudged.append(name)
            continue
        worst.compared += value.size
        if not among:
            lost.append(name)
    if lost and worst.needed <= 1:
        worst.needed = np.inf
        worst.message = f"{', '.join(lost)}: expected values of a tensor of the source, found others"
    idle = sorted({one.node for one in plan.recurrences} - {*by_node})
    hidden = [*seen.hidden, *(f"what is around {node}, which these inputs do not reach" for node in idle)]
    if hidden and worst.needed <= 1:
        worst.message = f"not looked at: {', '.join(hidden)}"
    return GlueReport(
        asked=True,
        passed=worst.needed <= 1,
        compared=worst.compared,
        products=len(seen.products),
        needed=worst.needed,
        unjudged=tuple(worst.unjudged),
        message=worst.message,
    )


def fitting(
    plan: Plan, calls: Sequence[Call], named: Mapping[str, tuple[str, int]], *, projected: bool = False
) -> dict[str, list[Given]]:
    """The values that each piece of an artifact may give.

    They are those of its layer, or of one with the same weights: `named` has by piece the recurrence and the
    layer that it stands for. `projected`: a projection is part of
    it. Raises LookupError where a layer that was called has no piece.
    """
    by_layer = _layers(plan, calls, projected=projected)
    weights = {one.node: (one.shared, one.sizes, one.dtype) for one in plan.recurrences}
    wanted = {piece: (weights.get(node), layer) for piece, (node, layer) in named.items()}
    if {(weights[node], layer) for node, layer in by_layer} - {*wanted.values()}:
        raise LookupError("the artifact does not have one node for each layer of each recurrence")
    return {
        piece: [
            given
            for (node, layer), values in by_layer.items()
            if (weights[node], layer) == key
            for given in values
        ]
        for piece, key in wanted.items()
    }


def _layers(plan: Plan, calls: Sequence[Call], *, projected: bool) -> dict[tuple[str, int], list[Given]]:
    """By node and layer, what to give in the place of each call of each layer of each recurrence."""
    found: dict[tuple[str, int], list[Given]] = {}
    for call in calls:
        for key, value in _of_call(plan, call, projected=projected).items():
            found.setdefault(key, []).append(value)
    return found


def _of_call(plan: Plan, call: Call, *, projected: bool) -> dict[tuple[str, int], Given]:
    """The values of each layer of a recurrence on what it took."""
    one = next(one for one in plan.recurrences if one.node == call.node)
    sizes, floats = one.sizes, [np.asarray(value, np.float64) for value in (call.x, call.h, call.c)]
    steps = tuple(steps_of(one, np.float64))
    found = {}
    run = reference.layers(steps, *floats, directions=sizes.directions, lengths=call.lengths)
    for number, layer in enumerate(run):
        places = slice(number * sizes.directions, (number + 1) * sizes.directions)
        first_h, first_c = floats[1][places], floats[2][places]
        projections: tuple[Array, ...] = ()
        beside: tuple[Array, ...] = ()
        inner = layer
        if sizes.projection and not projected:
            cells = [step.gates() for step in steps[places]]
            projections = tuple(np.asarray(cell.projection) for cell in cells)
            starts = [
                one @ np.linalg.pinv(matrix).T for one, matrix in zip(first_h, projections, strict=True)
            ]
            alone = [cell.composed().step() for cell in cells]
            taken = (layer.x, np.stack(starts), first_c)
            (inner,) = reference.layers(alone, *taken, directions=sizes.directions, lengths=call.lengths)
            beside = (*np.split(layer.y, sizes.directions, axis=2), *layer.h, *starts)
        time, batch, _ = layer.y.shape
        y = inner.y.reshape(time, batch, sizes.directions, -1).swapaxes(1, 2)
        values = (layer.x, first_h, first_c, y, inner.h, inner.c)
        x, h, c, y, h_end, c_end = (np.ascontiguousarray(value, np.float32) for value in values)
        found[call.node, number] = Given(x, h, c, call.lengths, y, h_end, c_end, projections, beside)
    return found


def _tensors(plan: Plan, feed: Mapping[str, Array]) -> list[str]:
    """The tensors of the source that a product of the artifact may be, where they surely have one value."""
    index = Index(plan.whole)
    nodes = {one.node for one in plan.recurrences}
    needed = index.ancestors(
        (split(name)[0] for name in plan.signature.outputs.values()), control=False, stop=nodes
    )
    for node in nodes & needed:  # but for what their parameters are packed from, which the judge leaves out
        read = index.data_inputs(index.nodes[node])
        ends = [split(read[place])[0] for place in (INPUT, INPUT_H, INPUT_C)]
        needed |= index.ancestors(ends, control=False, stop=nodes)
    fed = {split(name)[0] for name in feed}
    others = (node.name for node in plan.whole.node if node.op == "Placeholder" and node.name not in fed)
    once = (needed & certain(index) & index.descendants(fed | nodes)) - index.descendants(others) - nodes
    return [f"{name}:0" for name in sorted(once) if _is_of_floats(index.nodes[name])]


def _is_of_floats(node: Any) -> bool:
    return any(node.attr[key].type in _FLOATS for key in _TYPES if key in node.attr)


def _answers(
    judge: Source, feed: Mapping[str, Array], given: Mapping[str, Sequence[Call]], wanted: Sequence[str]
) -> tuple[list[Array], list[float]]:
    """The source's tensors where recurrences give what is given, and how far rounding moves each."""
    floors = [0.0] * len(wanted)
    exact: list[Array] = []
    for draw in range(_DRAWS + 1):
        judge.give({node: [_moved(call, draw) for call in calls] for node, calls in given.items()})
        judge.restart()
        values = judge.run(noise.moved(feed, seed=1, draw=draw), wanted)
        exact = exact or values
        gaps = map(noise.difference, exact, values)
        floors = [max(pair) for pair in zip(floors, gaps, strict=True)]
    judge.give({})
    return exact, floors


def _moved(call: Call, draw: int) -> Call:
    """A call that gave values a unit in the last place away."""
    named = {str(place): value for place, value in enumerate(call.gave)}
    return replace(call, gave=[*noise.moved(named, seed=0, draw=draw).values()])


def _share(found: Array, expected: Array, floor: float, least: float, *, scale: float = 1.0) -> float | None:
    """The largest share of the tolerance that is used; None where the noise leaves nothing to judge.

    `scale` multiplies what is allowed of any value, however small.
    """
    base = max(least, compare.tolerance(expected.dtype, 0.0).atol)
    atol = max(base * scale, compare.MARGIN * floor)
    wide = expected.astype(np.float64)
    if atol > base * scale and atol > compare.SHARP * _spread(wide):
        return None
    both = (np.isnan(found) & np.isnan(wide)) | (found == wide)
    with np.errstate(invalid="ignore"):
        share = np.where(both, 0.0, np.abs(found - wide) / (atol + base * np.abs(wide)))
    return float(np.nan_to_num(share, nan=np.inf).max(initial=0.0))


def _spread(values: Array) -> float:
    """How far apart the finite ones of some values lie."""
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0


def _is_among(value: Array, held: Sequence[_Held], least: float) -> bool | None:
    """Whether a product's values are those of a tensor of the source, in its order or in any.

    None where noise hides a product of the source that it may be, or where it shows nothing itself: no value
    is finite, or what is allowed of each is more than they differ by. It is compared at its own scale: a
    converter may make one small matrix of a matrix and what its product is multiplied by.
    """
    if value.dtype.kind != "f" or not value.size or not np.ptp(value):
        return True  # one constant value shows nothing
    flat = value.astype(np.float64).ravel()
    spread = _spread(flat)
    largest = np.abs(flat[np.isfinite(flat)]).max(initial=0.0)
    sharp = compare.SHARP if least <= _FINE else compare.COARSELY_SHARP
    is_blunt = not spread or least * largest > sharp * spread
    scale = min(1.0, spread) or 1.0
    same = [one for one in held if one.value.size == value.size and one.value.dtype.kind == "f"]
    hidden = False
    for order in (np.asarray, np.sort):
        for one in same:
            share = _share(order(flat), order(one.value.ravel()), one.floor, least, scale=scale)
            if share is not None and share <= 1:
                return None if is_blunt else True
            hidden |= share is None and one.is_product
    return None if hidden else False
