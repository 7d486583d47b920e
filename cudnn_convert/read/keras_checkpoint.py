"""Reads a model's objects, the default of TensorFlow 2's `save_weights`.

Its keys lead from object to object: `layer_with_weights-1/forward_layer/cell/kernel`, counted over the layers
that have weights. The model's config, which lies in another file, gives their names and classes.
Source: tf_keras v2.21.0 src/engine/functional.py `_trackable_children`, src/engine/base_layer.py.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Model, Tensor
from cudnn_convert.read import architecture_file, tensorbundle

_VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER: Final = re.compile(r"layer_with_weights-(\d+)/(.+)")
#: Parts of a path in the order of a layer's weights.
_PARTS: Final = ("forward_layer", "backward_layer", "layer", "cell")
#: A layer's variables, in the order in which it lists them.
_VARIABLES: Final = (
    *("embeddings", "depthwise_kernel", "pointwise_kernel", "kernel", "recurrent_kernel", "bias"),
    *("gamma", "beta", "alpha", "moving_mean", "moving_variance"),
)


def with_architecture(model: Model, path: Path) -> Model:
    """Add the layers of a model's JSON or YAML to a checkpoint of objects.

    Raises UnsupportedModelError where the checkpoint is of other layers, ReadError, AccessError.
    """
    config = architecture_file.read_config(path)
    layers: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensorbundle.tensors(model.path).items():
        name = key.removesuffix(_VALUE)
        matched = _LAYER.fullmatch(name)
        if matched and "OPTIMIZER_SLOT" not in key:
            layers.setdefault(int(matched[1]), {})[matched[2]] = tensor
    able = architecture_file.list_able(config)
    if len(able) != len(layers):
        expected = f"expected {len(able)} layers with weights, as {path.name} has"
        actual = f"found {len(layers)} of the form layer_with_weights-0"
        raise UnsupportedModelError(
            model.path, [f"checkpoint: {expected}, {actual}; does it belong to this model?"]
        )
    weights = {
        name: tuple(_order(model.path, f"layer_with_weights-{number}", layers[number]))
        for name, number in zip(able, sorted(layers), strict=True)
    }
    return Model(model.path, model.kind, None, {}, architecture=architecture_file.describe(config, weights))


def _order(path: Path, layer: str, named: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return a layer's weights in the layer's own order.

    Raises UnsupportedModelError for weights of other layers.
    """

    def rank(name: str) -> Any:
        *parts, variable = name.split("/")
        numbers = [_PARTS.index(part) for part in parts]
        trained = variable not in ("moving_mean", "moving_variance")
        return (not trained, numbers, _VARIABLES.index(variable))

    try:
        return [(f"{layer}/{name}", named[name]) for name in sorted(named, key=rank)]
    except ValueError as cause:
        expected = "expected variables of Keras' plain and recurrent layers"
        reason = f"{layer}: {expected}, found {', '.join(named)}; save the whole model, or its weights as .h5"
        raise UnsupportedModelError(path, [reason]) from cause
