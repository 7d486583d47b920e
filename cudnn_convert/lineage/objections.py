"""What the map of weights holds against an artifact: weights that lie nowhere in it, or in an odd order.

A separate check of a proof, by values alone: nothing is run. It can fail a proof and never pass one, so it
speaks only where values leave no doubt: of weights that many places may hold it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert import layers
from cudnn_convert.lineage import arrays, places
from cudnn_convert.lineage.doubts import gate_order
from cudnn_convert.lineage.places import Key, Places
from cudnn_convert.model import WAYS, Array, Recurrence, is_float
from cudnn_convert.plan import Plan

#: Values of fewer kinds may lie anywhere by chance.
_KINDS: Final = 4
#: The matrices that are compared with those of the first layer.
_COMPARED: Final = ("kernel", "recurrent_kernel")


def objections(plan: Plan, form: str, artifact: Path, *, is_copy: bool) -> tuple[str, ...]:
    """What is wrong with the weights in an artifact of format `form`, a line each.

    `is_copy`: every weight is there bit for bit, or rounded to the type that it is stored in. Otherwise only
    the order of those that are there is looked at. Recurrences too large to be read at once are left out.
    """
    small = [one for one in plan.recurrences if not layers.are_large(one.sizes, one.dtype)]
    if not small:
        return ()
    there = arrays.read(form, artifact)
    here = {} if plan.graph is None else dict(arrays.of_graph(plan.graph))
    return tuple(line for one in small for line in _of(plan, here, there, one, is_copy=is_copy))


def _of(
    plan: Plan, here: Mapping[str, Array], there: Mapping[str, Array], one: Recurrence, *, is_copy: bool
) -> Iterator[str]:
    held = places.of_artifact(there, one)
    values = dict(places.parts(one))
    clear = _clear(values)
    for key in values:
        text = _odd(one, held, key)
        if text and _group(key, values) | _group((0, 0, *key[2:]), values) <= clear:
            yield f"{_name(one, key)}: {text}"
    lost = [key for key in values if key in clear and held.get(key) is None]
    if not (is_copy and lost):
        return
    stored = places.of_source(plan, here, one)
    # Of a direction that no output needs nothing is kept; what the source computes lies in no tensor.
    kept = {key[:2] for key, place in held.items() if place is not None}
    for key in lost:
        if key[:2] in kept and stored.get(key) is not None:
            yield f"{_name(one, key)}: expected the source's values in a tensor, found them in none"


def _clear(values: Mapping[Key, Array]) -> set[Key]:
    """The weights whose place their values tell: finite, of several kinds, like no other, not symmetric."""
    alike = Counter(text for value in values.values() for text in {value.tobytes(), value.T.tobytes()})
    return {
        key
        for key, value in values.items()
        if is_float(value.dtype)
        and np.isfinite(value.astype(np.float64)).all()
        and np.unique(value.astype(np.float64)).size >= min(_KINDS, max(2, value.size))
        and alike[value.tobytes()] == 1
        and not (value.ndim > 1 and value.shape[0] == value.shape[1] and np.array_equal(value, value.T))
    }


def _group(key: Key, values: Mapping[Key, Array]) -> set[Key]:
    """The weights of all gates that lie beside one another."""
    layer, way, _, field = key
    return {other for other in values if (*other[:2], other[3]) == (layer, way, field)}


def _odd(one: Recurrence, held: Places, key: Key) -> str:
    """How a matrix lies otherwise than that of the first layer; nothing where it does not.

    Matrices of one kind are read in one way. A graph may read biases, or the other kind, through ops that
    rearrange them.
    """
    layer, way, gate, field = key
    if field not in _COMPARED:
        return ""
    usual, order = (gate_order(one, held, group) for group in ((0, 0, field), (layer, way, field)))
    if usual and order and usual != order:
        first, own = (", ".join(gate.value for gate in gates) for gates in (usual, order))
        return f"gates in the order {own}, where the first layer has {first}"
    places = [held.get((0, 0, gate, field)), held.get(key)]
    axes = [place.place.axes for place in places if place is not None]
    if sorted(axes) == ["as it is", "transposed"]:
        return f"{axes[1]}, where that of the first layer lies {axes[0]}"
    return ""


def _name(one: Recurrence, key: Key) -> str:
    layer, way, gate, field = key
    return f"{one.node}: layer {layer} {WAYS[way]}, {gate}, {field}"
