"""Judges the traced layers of a Keras file, by equations in float64.

The source's graph is what tf_keras makes of the file, patched where the file's Keras computes otherwise.
Each layer that `reference.keras_layers` has an equation for is fed with values and masks of its own, whatever
stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph.index import split
from cudnn_convert.model import Array, LayerCall, Model
from cudnn_convert.reference.cells import KerasLayer, UnknownError
from cudnn_convert.reference.keras_layers import EQUATIONS, compute, passes_mask
from cudnn_convert.report.values import OpDifference
from cudnn_convert.verification import effort
from cudnn_convert.verification.judges import RunningSource

#: What a layer is fed with.
_VALUES: Final = "random values and masks"


def find_difference(
    model: Model, ops: Collection[str], source: RunningSource, feed: Mapping[str, Array], *, seed: int
) -> OpDifference | None:
    """Return the first layer of `model` in conflict with the layer's equation, and the difference.

    `source` runs the model's graph, of which it has `ops`; `feed` is one that it takes.
    """
    calls = [call for call in model.calls if _can_be_asked(call, ops)]
    if not calls:
        return None
    rng = np.random.default_rng(seed)
    names = _list_inputs(calls)
    source.restart()
    usual = dict(zip(names, source.run(feed, names), strict=True))
    masks = {name for call in calls for name in call.masks}
    for group in _group(calls):
        fed = {name: _vary(rng, usual[name], is_mask=name in masks) for name in _list_inputs(group)}
        asked = [*dict.fromkeys(name for call in group for name in call.outputs if name not in fed)]
        source.restart()
        try:
            values = fed | dict(zip(asked, source.run({**feed, **fed}, asked), strict=True))
        except tf.errors.OpError:  # a check in the graph refuses other values than those of a run
            continue
        for call in group:
            if text := _compare(model, call, values):
                return OpDifference(f"layer {call.layer}", (call.class_name,), text, _VALUES)
    return None


def _can_be_asked(call: LayerCall, there: Collection[str]) -> bool:
    if call.class_name not in EQUATIONS or set(call.inputs) & set(call.outputs):
        return False
    if sum(map(_estimate, call.shapes)) > effort.MOST_LAYER_VALUES:
        return False
    return all(split(name)[0] in there for name in (*call.inputs, *filter(None, call.masks), *call.outputs))


def _estimate(shape: Sequence[int | None] | None) -> int:
    """Return the possible number of values of a tensor."""
    if shape is None:
        return effort.MOST_LAYER_VALUES + 1
    return math.prod(effort.OPEN_AXIS_SIZE if size is None else size for size in shape)


def _list_inputs(calls: Sequence[LayerCall]) -> list[str]:
    """Return the input tensors of calls, and the masks."""
    return [*dict.fromkeys(name for call in calls for name in (*call.inputs, *filter(None, call.masks)))]


def _group(calls: Sequence[LayerCall]) -> list[list[LayerCall]]:
    """Group the calls for joint runs, with a group's feeds apart from the answers.

    No group feeds what it asks for, or what stands inside a layer of its own.
    """
    groups: list[list[LayerCall]] = []
    for call in calls:
        for group in groups:
            asked = {name for each in (*group, call) for name in each.outputs}
            if group[0].wrapper == call.wrapper and not asked & {*_list_inputs([*group, call])}:
                group.append(call)
                break
        else:
            groups.append([call])
    return groups


def _vary(rng: np.random.Generator, value: Array, *, is_mask: bool) -> Array:
    """Draw values of the shape and type of `value`: new floats, masks with holes.

    The holes are before, between and behind.
    """
    if is_mask or value.dtype == bool:
        drawn = rng.random(value.shape) < 2 / 3
        return drawn.astype(value.dtype)
    if value.dtype.kind != "f":
        return value
    return np.asarray(rng.standard_normal(value.shape), value.dtype)


def _compare(model: Model, call: LayerCall, values: Mapping[str, Array]) -> str:
    """Describe the difference between a call's answers and the equation's, or return ""."""
    inputs = [values[name] for name in call.inputs]
    masks = [values[name] if name else None for name in call.masks]
    stored = [model.variables.get(name) for name in call.weights]
    sizes = [value.size for value in inputs] + [math.prod(each.shape) for each in stored if each is not None]
    if None in stored or sum(sizes) > effort.MOST_LAYER_VALUES:
        return ""
    weights = [each.read() for each in stored if each is not None]
    layer = KerasLayer(
        call.class_name, call.config, weights, call.differences, call.wrapper.rpartition("/")[2]
    )
    try:
        expected = compute(layer, inputs, masks)
    except (UnknownError, LookupError, TypeError, ValueError):  # a setting that no equation has
        return ""
    for name, value in zip(call.outputs, expected, strict=False):
        if text := _difference(values[name], value):
            return text
    passes = passes_mask(layer)
    if passes is not None and call.masks[0] and passes != bool(call.output_masks[0]):
        return f"expected that a mask {'passes' if passes else 'does not pass'}, found the contrary"
    return ""


def _difference(actual: Array, expected: Array) -> str:
    if actual.shape != expected.shape:
        return f"expected shape {[*expected.shape]}, found {[*actual.shape]}"
    bound = effort.LAYER_TOLERANCES.get(actual.dtype.name, effort.LAYER_TOLERANCES["float32"])
    largest = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
    wrong = ~np.isclose(actual.astype(np.float64), expected, rtol=0, atol=bound * largest, equal_nan=True)
    if not wrong.any():
        return ""
    where = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return f"at {[*where]} expected {expected[where]:.7g}, found {actual[where]:.7g}"
