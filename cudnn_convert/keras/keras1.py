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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import windows
from cudnn_convert.keras.config import layer_tree
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Array, Mode, Model, Tensor
from cudnn_convert.weights import layouts

#: The version of the translated config: the first one of Keras 2, by the same authors.
_VERSION: Final = "2.0.0"
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
#: Layers that do not write where the channels of their images are.
_UNORDERED: Final = frozenset(
    f"{kind}{rank}D" for kind in ("UpSampling", "ZeroPadding", "Cropping") for rank in (2, 3)
)
#: The keys of a padding that is a dict. Missing ones are 0.
_SIDES: Final = {
    "ZeroPadding1D": ("left_pad", "right_pad"),
    "ZeroPadding2D": ("top_pad", "bottom_pad", "left_pad", "right_pad"),
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
_DEPRECATED: Final = frozenset({"Highway", "MaxoutDense", "Merge"})
#: Settings of the input that the first layer of a branch has.
_OF_INPUT: Final = frozenset({"batch_input_shape", "input_dtype", "dtype"})
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
    is_keras1, version = _is_keras1(architecture), architecture.weights_version.partition(".")[0]
    has_older_weights = version == "1" if version else is_keras1
    backend = _find_backend(architecture) if has_older_weights else architecture.backend
    if architecture.is_keras3 or not (is_keras1 or has_older_weights):
        windows.refuse_others(model.path, architecture.config, backend, architecture.keras_version)
        model = _flip_kernels(model, architecture) if backend == windows.THEANO else model
        return _replace_deprecated(model)
    translation = _Translation(model.path, backend, is_keras1=is_keras1, has_older_weights=has_older_weights)
    translated = translation.model(architecture)
    windows.refuse_others(model.path, translated.config, backend, architecture.keras_version)
    notes = ["weights of Keras 1 are arranged as those of Keras 2"]
    if is_keras1:
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
    return architecture.backend or (windows.THEANO if names and not names[0].endswith(":0") else "tensorflow")


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
        flipped[name] = _flip_first(flipped[name], kinds)
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
    translation, config = _Translation(model.path, "tensorflow"), _spread(model.path, architecture.config)
    weights, parts = architecture.weights, list[_Layer]()
    for entry in layer_tree.layer_entries(config):
        listed = weights.get(layer_tree.layer_name(entry), ())
        kinds = [str(inner["class_name"]) for _, inner in layer_tree.walk(entry)]
        is_one = kinds[-1] in _DEPRECATED and kinds[:-1] in ([], ["TimeDistributed"])
        parts.append(translation.layer(entry, listed) if is_one else _Layer(dict(entry), listed))
    changed = _with_parts(config, parts)
    if changed == architecture.config:
        return model
    named = {layer_tree.layer_name(part.entry): part.weights for part in parts if part.weights}
    replaced = replace(architecture, config=changed, weights=named, optimizer=(), translated=True)
    return replace(model, architecture=replaced)


def _flip_first(listed: Listed, kinds: Collection[str]) -> Listed:
    """Return the weights of a convolution, the kernels back to front."""
    count = 2 if "ConvLSTM2D" in kinds else 1
    return (*((name, _flip(tensor)) for name, tensor in listed[:count]), *listed[count:])


def _flip(kernel: Tensor) -> Tensor:
    """Return a kernel `[*size, inputs, filters]` back to front along the size axes."""
    axes = tuple(range(len(kernel.shape) - 2))
    return _Computed(kernel.shape, kernel.dtype, (kernel,), lambda value: np.flip(value, axes))


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer in the form of Keras 2, with trained weights and the rest.

    The weights are in the order of tf_keras.
    """

    entry: dict[str, Any]
    trained: Listed = ()
    rest: Listed = ()

    @property
    def weights(self) -> Listed:
        return (*self.trained, *self.rest)


#: The weights that a layer does not train, at the end of its list.
_UNTRAINED: Final = {"BatchNormalization": 2}


def _split(entry: dict[str, Any], listed: Listed) -> _Layer:
    """Divide the own weights of a layer into trained weights and the rest."""
    is_frozen = layer_tree.settings(entry).get("trainable") is False
    kept = 0 if is_frozen or not listed else len(listed) - _UNTRAINED.get(str(entry["class_name"]), 0)
    return _Layer(entry, listed[:kept], listed[kept:])


def _combine(entry: dict[str, Any], parts: Sequence[_Layer]) -> _Layer:
    """Combine inner layers: all trained weights, then the rest.

    Source: tf_keras v2.21.0 src/engine/training.py, base_layer.py non_trainable_weights.
    """
    trained = tuple(pair for part in parts for pair in part.trained)
    rest = tuple(pair for part in parts for pair in part.rest)
    if layer_tree.settings(entry).get("trainable") is False:
        return _Layer(entry, (), tuple(pair for part in parts for pair in part.weights))
    return _Layer(entry, trained, rest)


@dataclass(frozen=True, slots=True)
class _Translation:
    """A translation from Keras 1, of layers, weights or both.

    `orderings` are those of images in the model, which some layers do not write.
    """

    path: Path
    backend: str
    is_keras1: bool = True
    has_older_weights: bool = True
    orderings: frozenset[str] = frozenset()

    def model(self, architecture: Architecture) -> Architecture:
        """Translate a whole model, with the weights of each top-level layer."""
        kept = _name_models(_spread(self.path, architecture.config), architecture.weights)
        weights = architecture.weights
        orderings = {layer_tree.settings(entry).get("dim_ordering") for _, entry in layer_tree.walk(kept)}
        within = replace(self, orderings=frozenset({*_ORDERINGS} & orderings))
        parts = [
            within.layer(layer, weights.get(layer_tree.layer_name(layer), ()))
            for layer in layer_tree.layer_entries(kept)
        ]
        return replace(
            architecture,
            config=_with_parts(kept, parts),
            weights={layer_tree.layer_name(part.entry): part.weights for part in parts if part.weights},
            keras_version=_VERSION if self.is_keras1 else architecture.keras_version,
            backend="tensorflow",
            optimizer=(),
            translated=True,
        )

    def layer(self, entry: Entry, listed: Listed) -> _Layer:
        """Translate a layer and the weights, including weights of inner layers."""
        kind, config = str(entry["class_name"]), entry["config"]
        if layer_tree.is_model(entry):
            return self._inner_model(entry, listed)
        if kind in ("TimeDistributed", "Bidirectional") and layer_tree.is_entry(config.get("layer")):
            return self._wrapper(entry, listed)
        if kind in _BUILDERS and listed:
            tensors = [tensor for _, tensor in listed]
            model, weights = _BUILDERS[kind](layer_tree.layer_name(entry), config, tensors)
            return _Layer({**entry, **model}, weights)
        changed = self._settings(entry, listed)
        return _split(changed, self._weights(changed, entry, listed))

    def _inner_model(self, entry: Entry, listed: Listed) -> _Layer:
        layers, shares = layer_tree.layer_entries(entry), _share(entry, listed)
        if shares is None or (layers and layers[0]["class_name"] == "Merge"):
            reason = "expected an inner model whose weights are named after its layers, found other names"
            raise self._refuse(entry, f"{reason}; save it with Keras 2")
        parts = [self.layer(layer, shares[layer_tree.layer_name(layer)]) for layer in layers]
        return _combine(_with_parts(entry, parts), parts)

    def _wrapper(self, entry: Entry, listed: Listed) -> _Layer:
        inner, half = entry["config"]["layer"], len(listed) // 2
        shares = (listed[:half], listed[half:]) if entry["class_name"] == "Bidirectional" else (listed,)
        parts = [self.layer(inner, share) for share in shares]
        outer = self._settings({**entry, "config": {**entry["config"], "layer": None}}, ())
        return _combine({**outer, "config": {**outer["config"], "layer": parts[0].entry}}, parts)

    def _settings(self, entry: Entry, listed: Listed) -> dict[str, Any]:
        """Return a layer's class and config under Keras 2's names."""
        kind, config = str(entry["class_name"]), dict(entry["config"])
        if kind == "Merge":
            return self._merge(entry)
        if kind == "Lambda":
            config.pop("input_dtype", None)
        if kind == "Lambda" or not self.is_keras1:
            return {**entry, "config": config}
        if kind == "BatchNormalization" and config.get("mode", 0) != 0:
            actual = f"found mode={config['mode']}"
            raise self._refuse(
                entry, f"expected mode=0, the only mode of Keras 2, {actual}; build the model in Keras 2"
            )
        changed = {
            _SETTINGS.get(key, key): value for key, value in config.items() if not _LEFT_OUT.fullmatch(key)
        }
        if kind == "InputLayer":
            changed["dtype"] = config.get("input_dtype") or config.get("dtype") or "float32"
        if kind == "Embedding":
            changed["output_dim"], changed["input_dim"] = changed.pop("units"), config["input_dim"]
            changed.pop("dropout", None)
        else:
            changed.pop("input_length", None)
        if kind == "PReLU" and listed:
            changed["shared_axes"] = [axis for axis, size in enumerate(listed[0][1].shape, 1) if size == 1]
        return {**entry, "class_name": _CLASSES.get(kind, kind), "config": self._set_images(entry, changed)}

    def _set_images(self, entry: Entry, changed: dict[str, Any]) -> dict[str, Any]:
        """Write the settings of images in the form of Keras 2."""
        kind = str(entry["class_name"])
        if "dim_ordering" in changed:
            changed["data_format"] = _ORDERINGS.get(changed.pop("dim_ordering"), "channels_last")
        elif kind in _UNORDERED:
            changed["data_format"] = self._find_ordering(entry)
        for sizes in _SIZES:
            if all(size in changed for size in sizes):
                changed["kernel_size"] = [changed.pop(size) for size in sizes]
        if kind == "Deconvolution2D":
            changed["output_padding"] = self._pad_output(entry, changed, changed.pop("output_shape", None))
        if kind in _SIDES:
            changed["padding"] = _pair_padding(kind, changed.get("padding"))
        return changed

    def _find_ordering(self, entry: Entry) -> str:
        """Return the data format written by the model's remaining layers.

        Source: keras 1.2.2 layers/convolutional.py get_config.
        """
        if len(self.orderings) == 1:
            return _ORDERINGS[next(iter(self.orderings))]
        actual = "found both" if self.orderings else "found none"
        expected = "expected other layers with one dim_ordering, for this one writes none"
        raise self._refuse(entry, f"{expected}, {actual}; save it with Keras 2")

    def _pad_output(self, entry: Entry, config: Mapping[str, Any], shape: Any) -> list[int] | None:
        """Return the output padding of a transposed convolution, None for the usual.

        Source: keras 1.2.2 layers/convolutional.py Deconvolution2D; tf_keras v2.21.0 src/utils/conv_utils.py
        deconv_output_length.
        """
        sizes = (shape or [])[2:] if config.get("data_format") == "channels_first" else (shape or [])[1:3]
        paddings, usual = list[int](), list[bool]()
        for size, kernel, step in zip(sizes, config["kernel_size"], config["strides"], strict=False):
            if not isinstance(size, int):
                break
            is_same = config["padding"] == "same"
            count = -(-(size if is_same else size - kernel + 1) // step)  # as many as make such an output
            paddings.append(size - (count - 1) * step - (kernel % 2 if is_same else kernel))
            usual.append(size == count * step + (0 if is_same else max(kernel - step, 0)))
        if len(usual) == 2 and all(usual):
            return None
        fits = (0 <= padding < step for padding, step in zip(paddings, config["strides"], strict=False))
        if len(paddings) == 2 and all(fits):
            return paddings
        expected = "expected an output_shape that Keras 2 can make"
        raise self._refuse(entry, f"{expected}, found {shape}; build the model in Keras 2")

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
        is_older = self.has_older_weights
        is_by_gate = is_older and kind in _GATES and len(tensors) == 3 * len(_GATES[kind].gates)
        is_fixed = kind == "SeparableConv2D" or (kind == "ConvLSTM2D" and is_by_gate)
        if is_fixed and ((first and is_older) or self.backend == windows.THEANO):
            raise self._refuse(entry, "expected kernels of TensorFlow, found Theano's; save it with Keras 2")
        if is_by_gate:
            return _side_by_side(layer_tree.layer_name(entry), _GATES[kind], tensors)
        if kind not in _CONVOLUTIONS or not tensors:
            return listed
        (name, kernel), *others = listed
        if self.has_older_weights:
            kernel = _arrange(kind, kernel, first=first)
        arranged = ((name, kernel), *others)
        return _flip_first(arranged, [kind]) if self.backend == windows.THEANO else arranged

    def _refuse(self, entry: Entry, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(self.path, [f"layer {layer_tree.layer_name(entry)}: {reason}"])


def _pair_padding(kind: str, padding: Any) -> Any:
    """Return the padding of a ZeroPadding in the form of Keras 2.

    Source: keras 1.2.2 layers/convolutional.py ZeroPadding1D, ZeroPadding2D.
    """
    if isinstance(padding, Mapping):
        padding = [padding.get(side, 0) for side in _SIDES[kind]]
    is_each_side = kind == "ZeroPadding2D" and isinstance(padding, list) and len(padding) == 4
    return [padding[:2], padding[2:]] if is_each_side else padding


def _with_parts(model: Entry, parts: Sequence[_Layer]) -> dict[str, Any]:
    """Return a model of translated layers.

    tf_keras counts the calls of a layer from 1 once it is a model. Source: tf_keras v2.21.0
    src/engine/functional.py _should_skip_first_node.
    """
    before, layers = layer_tree.layer_entries(model), [part.entry for part in parts]
    built = {
        layer_tree.layer_name(layer)
        for layer, old in zip(layers, before, strict=True)
        if layer_tree.is_model(layer) and not layer_tree.is_model(old)
    }

    def count(reference: layer_tree.Reference) -> layer_tree.Reference:
        name, call, output = reference
        return name, call + (name in built), output

    def recount(holder: Mapping[str, Any]) -> dict[str, Any]:
        keys = {"inbound_nodes", "output_layers"} & {*holder}
        return {**holder, **{key: layer_tree.change_references(holder[key], count) for key in keys}}

    if not built or model["class_name"] == "Sequential":
        return layer_tree.with_layers(model, layers)
    changed = layer_tree.with_layers(model, [recount(layer) for layer in layers])
    return {**changed, "config": recount(changed["config"])}


def _name_models(model: Entry, weights: Mapping[str, Listed]) -> dict[str, Any]:
    """Name inner models after the groups of weights.

    A Sequential of Keras 1 writes no name. Source: keras 1.2.2 models.py Sequential.get_config.
    """
    layers = []
    for layer in layer_tree.layer_entries(model):
        if not layer_tree.is_model(layer):
            layers.append(layer)
            continue
        named = _name_models(layer, {})
        if not layer_tree.layer_name(named):
            own = (name for name, listed in weights.items() if listed and _share(named, listed) is not None)
            first = next(iter(layer_tree.names(named)), "")
            name = next(own, f"{first}_model")
            named = {**named, "config": {"name": name, "layers": layer_tree.layer_entries(named)}}
        layers.append(named)
    return layer_tree.with_layers(model, layers)


def _share(model: Entry, listed: Listed) -> dict[str, Listed] | None:
    """Group an inner model's weights by the layer names at the start of weight names.

    Returns None if that fails. Source: keras 1.2.2 layers/wrappers.py Bidirectional names its directions.
    """
    owners = {
        f"{direction}{name}_": layer_tree.layer_name(layer)
        for layer in layer_tree.layer_entries(model)
        for name in (layer_tree.layer_name(inner) for _, inner in layer_tree.walk(layer))
        for direction in ("", "forward_", "backward_")
    }
    shares: dict[str, list[tuple[str, Tensor]]] = {owner: [] for owner in owners.values()}
    for name, tensor in listed:
        fits = [start for start in owners if name.rpartition("/")[2].startswith(start)]
        if not fits:
            return None
        shares[owners[max(fits, key=len)]].append((name, tensor))
    return {owner: tuple(share) for owner, share in shares.items()}


def _arrange(kind: str, kernel: Tensor, *, first: bool) -> Tensor:
    """Return a kernel of Keras 1 with the axes of Keras 2."""
    if kind == "Conv1D":
        return _transpose(kernel, (0, 2, 3), drops=1) if len(kernel.shape) == 4 else kernel
    if kind == "Conv2DTranspose":
        return _transpose(kernel, (2, 3, 0, 1) if first else (0, 1, 3, 2))
    # [filters, inputs, *size]
    return _transpose(kernel, (*range(2, len(kernel.shape)), 1, 0)) if first else kernel


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


def _calls(entry: Mapping[str, Any], *layers: str, models: Collection[str] = ()) -> dict[str, Any]:
    """Add the calls of a layer with the results of named layers."""
    nodes = [[[layer, int(layer in models), 0, {}] for layer in layers]] if layers else []
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
        "output_layers": [[layers[-1]["name"], int(layer_tree.is_model(layers[-1])), 0]],
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


_BUILDERS: Final[Mapping[str, Callable[..., tuple[dict[str, Any], Listed]]]] = MappingProxyType(
    {"Highway": _highway, "MaxoutDense": _maxout}
)


def _spread(path: Path, model: Entry) -> Entry:
    """Turn a Sequential over a Merge into a functional model of all layers.

    Other models are unchanged.
    """
    entries = layer_tree.layer_entries(model)
    if model["class_name"] != "Sequential" or not entries or entries[0]["class_name"] != "Merge":
        return model
    layers, models = list[dict[str, Any]](), set[str]()

    def begin(layer: Entry) -> None:
        """Add the first layer of a branch, behind an InputLayer of the branch."""
        name = layer_tree.layer_name(layer)
        if layer["class_name"] == "InputLayer":
            layers.append(_calls(layer))
            return
        if layer_tree.is_model(layer):
            reason = "expected a layer at the begin of a merged model, found a model"
            raise UnsupportedModelError(path, [f"layer {name}: {reason}; build the model in Keras 2"])
        given = {key: value for key, value in layer["config"].items() if key in _OF_INPUT}
        first = _layer("InputLayer", f"{name}_input", **given)
        layers.extend((_calls(first), _calls(layer, f"{name}_input")))

    def add(sequential: Entry) -> str:
        """Add a Sequential's layers, and return the last layer's name."""
        last = ""
        for layer in layer_tree.layer_entries(sequential):
            name = layer_tree.layer_name(layer)
            models.update([name] if layer_tree.is_model(layer) else [])
            if last:
                layers.append(_calls(layer, last, models=models))
            elif layer["class_name"] != "Merge":
                begin(layer)
            else:
                branches = layer["config"].get("layers") or []
                others = [branch for branch in branches if branch["class_name"] != "Sequential"]
                if others or not branches:
                    reason = f"layer {name}: expected a Merge of Sequential models, found one of other layers"
                    raise UnsupportedModelError(path, [f"{reason}; build the model in Keras 2"])
                layers.append(_calls(layer, *[add(branch) for branch in branches], models=models))
            last = name
        return last

    add(model)
    return _functional("model", layers)
