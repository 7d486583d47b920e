"""Turns a model of Keras 1 into Keras 2, and flips kernels of Theano.

Each layer's config gets the names of Keras 2, and its weights their form: gates side by side, kernels of
images in TensorFlow's order. `Highway` and `MaxoutDense` become small models of the layers that Keras 2 has,
a Sequential over a `Merge` a functional model. What training alone needs is left out.
Source: keras 1.2.2 layers/, engine/topology.py save_weights_to_hdf5_group, models.py Sequential
flattened_layers; keras 2.2.4 engine/saving.py preprocess_weights_for_loading.

Theano computes convolutions, TensorFlow correlations: a kernel of one is that of the other back to front.
Keras 2 writes its backend into the file, Keras 1 does not, but names of TensorFlow's weights end in `:0`.
Source: keras 2.2.4 engine/saving.py _need_convert_kernel, utils/conv_utils.py convert_kernel.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras.config import layer_tree
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Array, Mode, Model, Tensor
from cudnn_convert.weights import layouts

#: The version of the translated config: the first one of Keras 2, by the same authors.
_VERSION: Final = "2.0.0"
_THEANO: Final = "theano"
#: Keys that only Keras 1 has, by which a config without a version is known.
_KEYS: Final = frozenset({"inner_init", "W_regularizer", "border_mode", "consume_less"})

Listed = tuple[tuple[str, Tensor], ...]

#: What Keras 2 calls a layer.
_CLASSES: Final = {
    "Convolution1D": "Conv1D",
    "Convolution2D": "Conv2D",
    "Convolution3D": "Conv3D",
    "AtrousConvolution1D": "Conv1D",
    "AtrousConvolution2D": "Conv2D",
    "Deconvolution2D": "Conv2DTranspose",
    "SeparableConvolution2D": "SeparableConv2D",
    "TimeDistributedDense": "Dense",
}
#: What Keras 2 calls a setting.
_SETTINGS: Final = {
    "output_dim": "units",
    "inner_activation": "recurrent_activation",
    "bias": "use_bias",
    "nb_filter": "filters",
    "border_mode": "padding",
    "subsample": "strides",
    "atrous_rate": "dilation_rate",
    "filter_length": "kernel_size",
    "subsample_length": "strides",
    "pool_length": "pool_size",
    "stride": "strides",
    "length": "size",
    "p": "rate",
    "sigma": "stddev",
    "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout",
}
#: Settings of training, of the making of weights, and of how a layer computes.
_LEFT_OUT: Final = re.compile(
    r"(.*_)?init|.*_regularizer|.*_constraint|consume_less|input_dtype|input_dim|mode|output_shape_type"
)
_ORDERINGS: Final = {"th": "channels_first", "tf": "channels_last"}
_SIZES: Final = ("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3")
_MERGES: Final = {
    **{"sum": "Add", "mul": "Multiply", "concat": "Concatenate", "ave": "Average", "max": "Maximum"}
}
_GATES: Final = {"LSTM": Mode.LSTM, "GRU": Mode.GRU, "ConvLSTM2D": Mode.LSTM}
_DEPRECATED: Final = frozenset({"Highway", "MaxoutDense"})
_CONVOLUTIONS: Final = frozenset({"Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "ConvLSTM2D"})


@dataclass(frozen=True, slots=True)
class _Computed:
    """A tensor computed from tensors of the file when read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: tuple[Tensor, ...]
    compute: Callable[..., Array]

    def read(self) -> Array:
        return self.compute(*(part.read() for part in self.parts))


def translate_model(model: Model) -> Model:
    """Return the model in the form of Keras 2, unchanged if already so.

    Raises UnsupportedModelError for a layer that Keras 2 computes otherwise.
    """
    architecture = model.layers
    if not _is_keras1(architecture):
        model = _flip_kernels(model, architecture) if architecture.backend == _THEANO else model
        return _replace_deprecated(model)
    translated = _Translation(model.path, _find_backend(architecture)).model(architecture)
    notes = [f"layers of Keras {architecture.keras_version or 1} are written as those of Keras 2"]
    if architecture.optimizer:
        notes.append("optimizer state dropped: that of Keras 1 is of other weights")
    return replace(model, architecture=translated, notes=(*model.notes, *notes))


def _is_keras1(architecture: Architecture) -> bool:
    version = architecture.keras_version.partition(".")[0]
    if version:
        return version == "1"
    return any(_KEYS & {*layer_tree.settings(entry)} for _, entry in layer_tree.walk(architecture.config))


def _find_backend(architecture: Architecture) -> str:
    names = [name for listed in architecture.weights.values() for name, _ in listed]
    return architecture.backend or (_THEANO if names and not names[0].endswith(":0") else "tensorflow")


def _flip_kernels(model: Model, architecture: Architecture) -> Model:
    """Return a model of Keras 2 with convolution kernels in TensorFlow's form."""
    flipped, names = dict(architecture.weights), list[str]()
    for entry in layer_tree.layer_entries(architecture.config):
        name = layer_tree.layer_name(entry)
        kinds = [str(inner["class_name"]) for _, inner in layer_tree.walk(entry)]
        if not _CONVOLUTIONS & {*kinds} or name not in flipped:
            continue
        if layer_tree.is_model(entry) or kinds[0] == "Bidirectional":
            expected = "expected convolutions of Theano directly in the model"
            reason = f"layer {name}: {expected}, found some in a {kinds[0]}"
            cure = "save the model with TensorFlow as backend"
            raise UnsupportedModelError(model.path, [f"{reason}; {cure}"])
        count = 2 if "ConvLSTM2D" in kinds else 1
        kernels = [(weight, _flip(tensor)) for weight, tensor in flipped[name][:count]]
        flipped[name] = (*kernels, *flipped[name][count:])
        names.append(name)
    note = f"{', '.join(names)}: kernels are those of Theano back to front"
    changed = replace(architecture, weights=flipped, backend="tensorflow", translated=True)
    return replace(model, architecture=changed, notes=(*model.notes, *([note] if names else [])))


def _replace_deprecated(model: Model) -> Model:
    """Replace the layers of Keras 1 kept by keras-team in a model of Keras 2.

    Source: keras 2.2.4 legacy/layers.py.
    """
    architecture = model.layers
    if not architecture.keras_version.startswith("2.") or not layer_tree.is_model(architecture.config):
        return model
    entries, weights = layer_tree.layer_entries(architecture.config), dict(architecture.weights)
    kinds = {str(inner["class_name"]) for entry in entries for _, inner in layer_tree.walk(entry)}
    if not _DEPRECATED & kinds:
        return model
    translation, translated = _Translation(model.path, "tensorflow"), []
    for entry in entries:
        name = layer_tree.layer_name(entry)
        own = [str(inner["class_name"]) for _, inner in layer_tree.walk(entry)]
        if own[-1] in _DEPRECATED and own[:-1] in ([], ["TimeDistributed"]) and name in weights:
            changed, weights[name] = translation.layer(entry, weights[name])
            translated.append(changed)
        else:
            translated.append(dict(entry))
    replaced = replace(
        architecture,
        config=layer_tree.with_layers(architecture.config, translated),
        weights=weights,
        optimizer=(),
        translated=True,
    )
    return replace(model, architecture=replaced)


def _flip(kernel: Tensor) -> Tensor:
    """Return a kernel `[*size, inputs, filters]` back to front along the size axes."""
    axes = tuple(range(len(kernel.shape) - 2))
    return _Computed(kernel.shape, kernel.dtype, (kernel,), lambda value: np.flip(value, axes))


@dataclass(frozen=True, slots=True)
class _Translation:
    path: Path
    backend: str

    def model(self, architecture: Architecture) -> Architecture:
        """Translate a whole model, with the weights of each top-level layer."""
        entry, weights = architecture.config, dict(architecture.weights)
        kept = {key: value for key, value in entry.items() if key in ("class_name", "config")}
        entries = layer_tree.layer_entries(entry)
        if entries and entries[0]["class_name"] == "Merge" and entry["class_name"] == "Sequential":
            kept = _spread(self.path, entry)
        translated, listed = list[dict[str, Any]](), dict[str, Listed]()
        for layer in layer_tree.layer_entries(kept):
            name = layer_tree.layer_name(layer)
            changed, given = self.layer(layer, _gather(layer, weights))
            translated.append(changed)
            listed |= {name: given} if given else {}
        return replace(
            architecture,
            config=layer_tree.with_layers(kept, translated),
            weights=listed,
            keras_version=_VERSION,
            backend="tensorflow",
            optimizer=(),
            translated=True,
        )

    def layer(self, entry: Entry, listed: Listed) -> tuple[dict[str, Any], Listed]:
        """Translate a layer and the weights, including weights of inner layers."""
        kind, config = str(entry["class_name"]), entry["config"]
        if layer_tree.is_model(entry):
            return self._inner_model(entry, listed)
        if kind in ("TimeDistributed", "Bidirectional") and layer_tree.is_entry(config.get("layer")):
            return self._wrapper(entry, listed)
        if kind in _DEPRECATED and listed:
            build = _highway if kind == "Highway" else _maxout
            model, weights = build(layer_tree.layer_name(entry), config, [tensor for _, tensor in listed])
            return {**entry, **model}, weights
        changed = self._settings(entry)
        return changed, self._weights(changed, entry, listed)

    def _inner_model(self, entry: Entry, listed: Listed) -> tuple[dict[str, Any], Listed]:
        layers, shares = layer_tree.layer_entries(entry), _share(entry, listed)
        if shares is None or (layers and layers[0]["class_name"] == "Merge"):
            reason = "expected an inner model whose weights are named after its layers, found other names"
            raise self._refuse(entry, f"{reason}; save it with Keras 2")
        pairs = [self.layer(layer, shares[layer_tree.layer_name(layer)]) for layer in layers]
        return layer_tree.with_layers(entry, [layer for layer, _ in pairs]), _order_trained(pairs)

    def _wrapper(self, entry: Entry, listed: Listed) -> tuple[dict[str, Any], Listed]:
        inner, half = entry["config"]["layer"], len(listed) // 2
        parts = (listed[:half], listed[half:]) if entry["class_name"] == "Bidirectional" else (listed,)
        pairs = [self.layer(inner, part) for part in parts]
        outer = self._settings({**entry, "config": {**entry["config"], "layer": None}})
        config = {**outer["config"], "layer": pairs[0][0]}
        return {**outer, "config": config}, tuple(pair for _, given in pairs for pair in given)

    def _settings(self, entry: Entry) -> dict[str, Any]:
        """Return a layer's class and config under Keras 2's names."""
        kind, config = str(entry["class_name"]), dict(entry["config"])
        if kind == "Lambda":
            config.pop("input_dtype", None)
            return {**entry, "config": config}
        if kind == "Merge":
            return self._merge(entry)
        if kind == "BatchNormalization" and config.get("mode", 0) != 0:
            actual = f"found mode={config['mode']}"
            raise self._refuse(
                entry, f"expected mode=0, the only mode of Keras 2, {actual}; build the model in Keras 2"
            )
        changed = {
            _SETTINGS.get(key, key): value for key, value in config.items() if not _LEFT_OUT.fullmatch(key)
        }
        if kind == "InputLayer":
            changed["dtype"] = config.get("input_dtype") or "float32"
        if kind == "Embedding":
            changed["output_dim"], changed["input_dim"] = changed.pop("units"), config["input_dim"]
            changed.pop("dropout", None)
        else:
            changed.pop("input_length", None)
        if "dim_ordering" in changed:
            changed["data_format"] = _ORDERINGS.get(changed.pop("dim_ordering"), "channels_last")
        for sizes in _SIZES:
            if all(size in changed for size in sizes):
                changed["kernel_size"] = [changed.pop(size) for size in sizes]
        if kind == "Deconvolution2D":
            changed.pop("output_shape", None)
        padding = changed.get("padding")
        if kind == "ZeroPadding2D" and isinstance(padding, list) and len(padding) == 4:
            changed["padding"] = [padding[:2], padding[2:]]
        return {**entry, "class_name": _CLASSES.get(kind, kind), "config": changed}

    def _merge(self, entry: Entry) -> dict[str, Any]:
        config, mode = entry["config"], entry["config"].get("mode")
        if mode not in _MERGES:
            expected = f"expected one of the modes {', '.join(_MERGES)}"
            raise self._refuse(entry, f"{expected}, found {mode}; build the model in Keras 2")
        axis = {"axis": config.get("concat_axis", -1)} if mode == "concat" else {}
        name = layer_tree.layer_name(entry)
        return {**entry, "class_name": _MERGES[mode], "config": {"name": name, **axis}}

    def _weights(self, changed: Entry, entry: Entry, listed: Listed) -> Listed:
        """Return a layer's own weights in the form of the class in Keras 2."""
        kind, config = str(changed["class_name"]), changed["config"]
        tensors = [tensor for _, tensor in listed]
        first = config.get("data_format") == "channels_first"
        is_by_gate = kind in _GATES and len(tensors) == 3 * len(_GATES[kind].gates)
        is_fixed = kind == "SeparableConv2D" or (kind == "ConvLSTM2D" and is_by_gate)
        if is_fixed and (first or self.backend == _THEANO):
            raise self._refuse(entry, "expected kernels of TensorFlow, found Theano's; save it with Keras 2")
        if is_by_gate:
            return _side_by_side(layer_tree.layer_name(entry), _GATES[kind], tensors)
        if kind not in _CONVOLUTIONS or not tensors:
            return listed
        kernel = tensors[0]
        if kind == "Conv1D" and len(kernel.shape) == 4:
            kernel = _transpose(kernel, (0, 2, 3), drops=1)
        elif kind == "Conv2DTranspose":
            kernel = _transpose(kernel, (2, 3, 0, 1) if first else (0, 1, 3, 2))
        elif first:  # [filters, inputs, *size]
            kernel = _transpose(kernel, (*range(2, len(kernel.shape)), 1, 0))
        return ((listed[0][0], _flip(kernel) if self.backend == _THEANO else kernel), *listed[1:])

    def _refuse(self, entry: Entry, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(self.path, [f"layer {layer_tree.layer_name(entry)}: {reason}"])


def _gather(entry: Entry, weights: Mapping[str, Listed]) -> Listed:
    """Return the weights of a top-level layer.

    A Sequential lists those of a Sequential in it by their layers.
    """
    name = layer_tree.layer_name(entry)
    if name in weights or not layer_tree.is_model(entry):
        return weights.get(name, ())
    return tuple(pair for inner in layer_tree.layer_entries(entry) for pair in _gather(inner, weights))


def _share(model: Entry, listed: Listed) -> dict[str, Listed] | None:
    """Group an inner model's weights by the layer names at the start of weight names.

    Returns None if that fails.
    """
    owners = {
        f"{name}_": layer_tree.layer_name(layer)
        for layer in layer_tree.layer_entries(model)
        for name in (layer_tree.layer_name(inner) for _, inner in layer_tree.walk(layer))
    }
    shares: dict[str, list[tuple[str, Tensor]]] = {owner: [] for owner in owners.values()}
    for name, tensor in listed:
        fits = [start for start in owners if name.rpartition("/")[2].startswith(start)]
        if not fits:
            return None
        shares[owners[max(fits, key=len)]].append((name, tensor))
    return {owner: tuple(share) for owner, share in shares.items()}


#: The weights that a layer does not train, at the end of its list.
_UNTRAINED: Final = {"BatchNormalization": 2}


def _order_trained(pairs: Sequence[tuple[Entry, Listed]]) -> Listed:
    """Return the weights of an inner model's layers: all trained weights, then the rest."""
    trained, rest = list[tuple[str, Tensor]](), list[tuple[str, Tensor]]()
    for entry, listed in pairs:
        count = len(listed) - (_UNTRAINED.get(str(entry["class_name"]), 0) if listed else 0)
        trained += listed[:count]
        rest += listed[count:]
    return (*trained, *rest)


def _side_by_side(name: str, mode: Mode, tensors: Sequence[Tensor]) -> Listed:
    """Join each gate's weights into a kernel, a recurrent kernel and a bias.

    Keras 1 lists them by gate.
    """
    order = layouts.moves(mode, layouts.KERAS_1, layouts.KERAS)
    named = []
    for offset, weight in enumerate(("kernel", "recurrent_kernel", "bias")):
        parts = tuple(tensors[3 * gate + offset] for gate in order)
        *outer, _ = parts[0].shape
        shape = (*outer, sum(part.shape[-1] for part in parts))
        named.append((f"{name}/{weight}:0", _Computed(shape, parts[0].dtype, parts, _join)))
    return tuple(named)


def _join(*parts: Array) -> Array:
    return np.concatenate(parts, axis=-1)


def _transpose(tensor: Tensor, axes: tuple[int, ...], *, drops: int | None = None) -> Tensor:
    """Return a tensor with reordered axes; the axis `drops`, of size 1, goes."""
    shape = tuple(tensor.shape[axis] for axis in axes)
    whole = axes if drops is None else (*axes, drops)
    return _Computed(shape, tensor.dtype, (tensor,), lambda value: value.transpose(whole).reshape(shape))


def _layer(kind: str, name: str, **settings: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **settings}}


def _calls(entry: Mapping[str, Any], *layers: str) -> dict[str, Any]:
    nodes = [[[layer, 0, 0, {}] for layer in layers]] if layers else []
    return {**entry, "name": entry["config"]["name"], "inbound_nodes": nodes}


def _input(name: str, size: int) -> dict[str, Any]:
    return _calls(_layer("InputLayer", name, batch_input_shape=[None, size], dtype="float32", sparse=False))


def _functional(name: str, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a functional model of called layers, with the last layer as output.

    Inputs are the layers without a call.
    """
    config = {
        "name": name,
        "layers": layers,
        "input_layers": [[layer["name"], 0, 0] for layer in layers if not layer["inbound_nodes"]],
        "output_layers": [[layers[-1]["name"], 0, 0]],
    }
    return {"class_name": "Model", "config": config}


def _highway(
    name: str, config: Mapping[str, Any], tensors: Sequence[Tensor]
) -> tuple[dict[str, Any], Listed]:
    """Build a functional model for a Highway layer, and list the weights.

    It computes t * f(x W + b) + (1 - t) * x with t = sigmoid(x V + c): 1 - t is the sigmoid of the negative.
    """
    kernel, carry, *biases = tensors
    size, start = kernel.shape[0], f"{name}_input"
    activation = str(config.get("activation") or "linear")
    if not biases:
        zeros = _Computed((size,), kernel.dtype, (), lambda: np.zeros(size, kernel.dtype))
        biases = [zeros, zeros]
    layers = [
        _input(start, size),
        _calls(_layer("Dense", f"{name}_transform", units=size, activation=activation), start),
        _calls(_layer("Dense", f"{name}_gate", units=size, activation="sigmoid"), start),
        _calls(_layer("Dense", f"{name}_rest", units=size, activation="sigmoid"), start),
        _calls(_layer("Multiply", f"{name}_taken"), f"{name}_transform", f"{name}_gate"),
        _calls(_layer("Multiply", f"{name}_carried"), f"{name}_rest", start),
        _calls(_layer("Add", f"{name}_sum"), f"{name}_taken", f"{name}_carried"),
    ]
    weights = [(kernel, biases[0]), (carry, biases[1]), (_negative(carry), _negative(biases[1]))]
    names = ("transform", "gate", "rest")
    listed = tuple(
        (f"{name}_{part}/{weight}:0", tensor)
        for part, pair in zip(names, weights, strict=True)
        for weight, tensor in zip(("kernel", "bias"), pair, strict=True)
    )
    return _functional(name, layers), listed


def _negative(tensor: Tensor) -> Tensor:
    return _Computed(tensor.shape, tensor.dtype, (tensor,), lambda value: -value)


def _maxout(name: str, config: Mapping[str, Any], tensors: Sequence[Tensor]) -> tuple[dict[str, Any], Listed]:
    """Build a functional model for a Maxout layer, and list the weights.

    It is the largest of several linear layers: one layer of all, and a maximum over its parts.
    """
    kernel = tensors[0]
    parts, inputs, units = kernel.shape
    wide = parts * units
    layers = [
        _input(f"{name}_input", inputs),
        _calls(_layer("Dense", f"{name}_all", units=wide, activation="linear"), f"{name}_input"),
        _calls(_layer("Reshape", f"{name}_parts", target_shape=[parts, units]), f"{name}_all"),
        _calls(_layer("GlobalMaxPooling1D", f"{name}_largest"), f"{name}_parts"),
    ]
    joined = _Computed(
        (inputs, wide), kernel.dtype, (kernel,), lambda value: value.transpose(1, 0, 2).reshape(inputs, wide)
    )
    bias = tensors[1:2]
    flat = _Computed(
        (wide,),
        kernel.dtype,
        tuple(bias),
        lambda *value: value[0].ravel() if value else np.zeros(wide, kernel.dtype),
    )
    return _functional(name, layers), ((f"{name}_all/kernel:0", joined), (f"{name}_all/bias:0", flat))


def _spread(path: Path, entry: Entry) -> dict[str, Any]:
    """Turn a Sequential over a Merge into a functional model of all layers."""
    layers = list[dict[str, Any]]()

    def add(sequential: Entry) -> str:
        """Add a Sequential's layers, and return the last layer's name."""
        last = ""
        for layer in layer_tree.layer_entries(sequential):
            name = layer_tree.layer_name(layer)
            if layer["class_name"] == "Merge" and not last:
                branches = layer["config"].get("layers") or []
                others = [branch for branch in branches if branch["class_name"] != "Sequential"]
                if others or not branches:
                    reason = f"layer {name}: expected a Merge of Sequential models, found one of other layers"
                    raise UnsupportedModelError(path, [f"{reason}; build the model in Keras 2"])
                layers.append(_calls(layer, *[add(branch) for branch in branches]))
            elif not last:
                given = {key: layer["config"].get(key) for key in ("batch_input_shape", "input_dtype")}
                first = _layer("InputLayer", f"{name}_input", **given)
                layers.extend((_calls(first), _calls(layer, f"{name}_input")))
            else:
                layers.append(_calls(layer, last))
            last = name
        return last

    add(entry)
    return _functional("model", layers)
