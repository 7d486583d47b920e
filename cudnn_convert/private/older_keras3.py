"""Layers of Keras 3 computing as in older releases of Keras 3.

`keras/config/differences.py` says which release differs in what, and has the sources. The patches are seen by
all threads, as those of `keras_private` are.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import Any, Final
from unittest.mock import patch

#: Called with the name of a layer that computes otherwise.
Report = Callable[[str], None]
#: An attribute of a class, and what takes its place.
Patch = tuple[Any, str, Callable[..., Any]]


@contextmanager
def compute_as(differences: Collection[str]) -> Iterator[dict[str, list[str]]]:
    """Compute layers of Keras 3 as an older release, within the context.

    `differences` are names of keras/config/differences.py. The dict gets the layers that compute otherwise
    than those of the installed Keras, as often as they do, by the name of the difference.
    """
    layers: dict[str, list[str]] = {}

    def report(difference: str, layer: str) -> None:
        layers.setdefault(difference, []).append(layer)

    with ExitStack() as stack:
        for name, patches in _PATCHES.items():
            for change in patches(partial(report, name)) if name in differences else ():
                stack.enter_context(patch.object(*change))
        yield layers


def _stop_masks_of_several(report: Report) -> Iterator[Patch]:
    """Stop masks at a layer with several tensors in the first argument.

    Masks that the call itself gives its results stay: those of a model inside a model.
    """
    import keras

    layer = keras.layers.Layer
    set_masks = layer._set_mask_metadata

    def _set_mask_metadata(self: Any, inputs: Any, outputs: Any, previous_mask: Any) -> None:
        if not keras.tree.is_nested(inputs):
            set_masks(self, inputs, outputs, previous_mask)
            return
        unmasked = [each for each in keras.tree.flatten(outputs) if _get_mask(each) is None]
        set_masks(self, inputs, outputs, previous_mask)
        for each in unmasked:
            if _get_mask(each) is not None:
                report(self.name)
                _remove_mask(each)

    yield layer, "_set_mask_metadata", _set_mask_metadata


def _merge_masked_values(report: Report) -> Iterator[Patch]:
    """Make merges ignore masks of inputs, and give out unmasked results."""
    import keras

    for name in ("Maximum", "Minimum", "Multiply"):
        merge = getattr(keras.ops, name.lower())

        def _merge_function(self: Any, inputs: Any, merge: Any = merge) -> Any:
            if any(_get_mask(each) is not None for each in inputs):
                report(self.name)
            return reduce(merge, inputs)

        yield getattr(keras.layers, name), "_merge_function", _merge_function


def _add_to_masked_scores(report: Report) -> Iterator[Patch]:
    """Make a Softmax spread over padding in rows of padding alone."""
    import keras

    layer = keras.layers.Softmax
    softmax = layer.call

    def call(self: Any, inputs: Any, mask: Any = None) -> Any:
        if mask is not None:
            report(self.name)
            lowest = -3e4 if keras.backend.standardize_dtype(inputs.dtype) == "float16" else -1e9
            inputs = inputs + (1.0 - keras.ops.cast(mask, inputs.dtype)) * lowest
        return softmax(self, inputs)

    yield layer, "call", call


def _pass_masks_of_inputs(report: Report) -> Iterator[Patch]:
    """Let a layer pass on the masks of inputs, despite a mask in the call."""
    import keras

    layer = keras.layers.Layer
    set_masks = layer._set_mask_metadata

    def _set_mask_metadata(self: Any, inputs: Any, outputs: Any, previous_mask: Any) -> None:
        if self._call_has_mask_arg:
            given = any(each is not None for each in keras.tree.flatten(previous_mask))
            previous_mask = keras.tree.map_structure(_get_mask, inputs)
            if given and all(each is None for each in keras.tree.flatten(previous_mask)):
                report(self.name)
        set_masks(self, inputs, outputs, previous_mask)

    yield layer, "_set_mask_metadata", _set_mask_metadata


def _get_mask(tensor: Any) -> Any:
    """Return the mask of a tensor, or None; before Keras 3.6 an attribute alone has it."""
    from keras.src import backend

    get = getattr(backend, "get_keras_mask", None)
    return get(tensor) if get else getattr(tensor, "_keras_mask", None)


def _remove_mask(tensor: Any) -> None:
    from keras.src import backend

    if hasattr(backend, "set_keras_mask"):
        backend.set_keras_mask(tensor, None)
    else:
        tensor._keras_mask = None


#: The patches of a difference. A later one of the same method is called before an earlier one.
_PATCHES: Final[Mapping[str, Callable[[Report], Iterator[Patch]]]] = {
    "masks_of_several": _stop_masks_of_several,
    "masked_values_in_merges": _merge_masked_values,
    "softmax_of_padding": _add_to_masked_scores,
    "given_mask_ends": _pass_masks_of_inputs,
}
