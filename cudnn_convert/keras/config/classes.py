"""Layer classes: of Keras, of cuDNN, unknown, the user's, and lambdas.

Tables say which classes are Keras's own, which are cuDNN's, and what a missing key meant. A layer is foreign
where neither Keras nor the user brings its class: it passes through to Keras 3 untouched, where the loader
looks it up by its registered name among its custom objects. A user brings classes and functions as
`module:name`, imported as Python would. The code of a Lambda stays as it is in the file: it is never called,
unmarshalled or imported here.
Source: keras 2.0.9-2.3.1 layers/, tensorflow v1.15.0 python/keras/layers/, tf_keras v2.21.0 src/layers/;
keras v3.15 src/saving/serialization_lib.py `_retrieve_class_or_fn`, src/layers/core/lambda_layer.py
`from_config`, src/utils/python_utils.py `func_load`; Python/marshal.c.
"""

from __future__ import annotations

import binascii
import importlib
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.keras.config import layer_tree, public_layers, values
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Mode

#: The CPU layer that takes the place of each cuDNN layer.
CUDNN: Final = MappingProxyType({"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"})
MODES: Final = MappingProxyType(
    {"CuDNNLSTM": Mode.LSTM, "CuDNNGRU": Mode.GRU, "LSTM": Mode.LSTM, "GRU": Mode.GRU}
)
_RECURRENT: Final = MappingProxyType(
    {"activation": "tanh", "use_bias": True, "dropout": 0.0, "recurrent_dropout": 0.0}
)
#: cuDNN's arithmetic as settings of a CPU layer.
CPU: Final = MappingProxyType({**_RECURRENT, "recurrent_activation": "sigmoid", "unroll": False})
#: Defaults of Keras 2 and TensorFlow 1 for missing keys; newer classes have others.
MISSING: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        name: MappingProxyType({**_RECURRENT, "recurrent_activation": "hard_sigmoid", **more})
        for names, more in (("LSTM LSTMCell", {}), ("GRU GRUCell", {"reset_after": False}))
        for name in names.split()
    }
)
ACTIVATIONS: Final = frozenset(
    "elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softmax softplus softsign "
    "swish tanh".split()
)
#: Those that Keras 3 has too (keras v3.15.0 src/activations/__init__.py): it writes `swish` as `silu`.
ACTIVATIONS_OF_KERAS_3: Final = ACTIVATIONS | frozenset(
    "celu glu hard_shrink hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax relu6 silu "
    "soft_shrink sparse_plus sparse_sigmoid sparsemax squareplus tanh_shrink threshold".split()
)
#: Layers whose arithmetic is code in the file, or in another file.
CODE: Final = frozenset("Lambda TFOpLambda TensorFlowOpLayer SlicingOpLambda ClassMethod".split())
BUILT_IN: Final = frozenset(
    """
    Model Functional Sequential InputLayer
    Activation ActivityRegularization AlphaDropout Dense Dropout EinsumDense Embedding Flatten Identity
    Masking Permute RepeatVector Reshape SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout
    GaussianNoise
    ELU LeakyReLU PReLU ReLU Softmax ThresholdedReLU
    Add Average Concatenate Dot Maximum Minimum Multiply Subtract
    Attention AdditiveAttention MultiHeadAttention
    AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    BatchNormalization BatchNormalizationV1 BatchNormalizationV2 SyncBatchNormalization LayerNormalization
    GroupNormalization UnitNormalization RMSNormalization
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose DepthwiseConv1D DepthwiseConv2D
    SeparableConv1D SeparableConv2D Cropping1D Cropping2D Cropping3D UpSampling1D UpSampling2D UpSampling3D
    ZeroPadding1D ZeroPadding2D ZeroPadding3D LocallyConnected1D LocallyConnected2D
    RNN SimpleRNN SimpleRNNCell LSTM LSTMCell GRU GRUCell StackedRNNCells ConvLSTM1D ConvLSTM2D ConvLSTM3D
    ConvLSTM2DCell CuDNNLSTM CuDNNGRU Bidirectional TimeDistributed
    CategoryEncoding CenterCrop Discretization Normalization Rescaling Resizing
    """.split()
)


#: Keras 3's operations that compute and call nothing. Its functional models hold them beside layers: the
#: mask of an Embedding is one.
_OPERATIONS: Final = frozenset(f"keras.src.ops.{name}" for name in ("numpy", "nn", "math", "linalg", "image"))
#: Operations of keras v3.15 src/ops/core.py that compute; its others call functions.
_CORE: Final = frozenset(
    "Cast ConvertToTensor SaturateCast Scatter ScatterUpdate Slice SliceUpdate StopGradient Unstack".split()
)


def is_keras_class(entry: Entry, newer: Collection[str] = ()) -> bool:
    """Return True if an entry is of a class of Keras.

    A user's class of that name does not count. `newer` are the names that the writer's Keras had not yet.
    """
    registered = entry.get("registered_name")
    module = str(entry.get("module") or "keras")
    return (
        not is_registered(entry)
        and (
            (entry["class_name"] in BUILT_IN and entry["class_name"] not in newer)
            or module in _OPERATIONS
            or (module == "keras.src.ops.core" and entry["class_name"] in _CORE)
        )
        and registered in (None, entry["class_name"])
        and module.partition(".")[0] in ("keras", "tf_keras")
        and not public_layers.has_name_of_keras(entry)
    )


def is_registered(value: Any) -> bool:
    """Return True if an object is a user's, found by the registered name alone.

    `keep_as_is` writes it so.
    """
    return isinstance(value, Mapping) and value.get("module", "") is None


def registration_name(entry: Entry) -> str:
    """Return a loader's name for an entry's class: `package>name`, or the name alone."""
    return str(entry.get("registered_name") or entry["class_name"])


def class_name(entry: Entry) -> str:
    """Return the name of an entry's class, stripped of a registration package."""
    return str(entry["class_name"]).rpartition(">")[2]


def is_cudnn(entry: Entry) -> bool:
    """Return True if an entry is a cuDNN layer of Keras."""
    return is_keras_class(entry) and entry["class_name"] in CUDNN and isinstance(entry["config"], Mapping)


def cudnn_layers(model: Architecture) -> list[str]:
    """Return the paths of a model's cuDNN layers, each once."""
    paths = (path for path, entry in layer_tree.below(model.config) if is_cudnn(entry))
    return list(dict.fromkeys(paths))


def is_foreign(entry: Entry, brought: Collection[str], newer: Collection[str]) -> bool:
    """Return True if an entry is a Lambda or of an unknown class.

    False for a class that is `brought`.
    """
    if class_name(entry) in brought:
        return False
    return is_lambda(entry) or not (entry["class_name"] in CODE or is_keras_class(entry, newer))


def has_foreign(entry: Entry, brought: Collection[str], newer: Collection[str]) -> bool:
    """Return True if an entry, or a layer inside, is foreign."""
    return any(is_foreign(inner, brought, newer) for _, inner in layer_tree.walk(entry))


def keep_as_is(entry: Entry, brought: Collection[str]) -> dict[str, Any]:
    """Return a foreign or brought layer in Keras 3's form, config nearly unchanged.

    An input's shape goes, a dtype is written anew. Raises ValueError for a Lambda that Keras 3 cannot hold.
    """
    config = entry["config"]
    if is_lambda(entry) and "Lambda" not in brought:
        return values.write_object("keras.layers", "Lambda", modern(config))
    if isinstance(config, Mapping):
        # Keras 3's Layer, which a user's class hands both to, does not know the first: it has an InputLayer.
        kept = {key: value for key, value in config.items() if key != "batch_input_shape"}
        config = {**kept, "dtype": values.dtype(kept["dtype"])} if kept.get("dtype") is not None else kept
    return values.write_object(None, class_name(entry), config, registration_name(entry))


@dataclass(frozen=True, slots=True)
class Vouched:
    """The user's classes and functions by name, and with `trust` the code in the file.

    A class is written for one library: that for tf_keras builds the source, that for Keras 3 an archive.
    """

    tf_keras: Mapping[str, Any] = field(default_factory=dict)
    keras: Mapping[str, Any] = field(default_factory=dict)
    trust: bool = False

    def for_both(self) -> Vouched:
        """Return a copy with only the tf_keras classes brought for Keras 3 too."""
        kept = {name: brought for name, brought in self.tf_keras.items() if name in self.keras}
        return replace(self, tf_keras=kept)


NOTHING: Final = Vouched()


def import_user_objects(items: Sequence[str], *, trust: bool = False) -> Vouched:
    """Import `items`, each MODULE:NAME, from the current folder too. Raises UsageError.

    `sys.path` has that folder meanwhile: the caller holds the process lock.
    """
    objects: dict[str, dict[str, Any]] = {"tf_keras": {}, "keras": {}}
    for item in items:
        module, _, name = item.partition(":")
        try:
            with _current_folder():
                brought = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as cause:
            what = f"expected MODULE:NAME that Python can import, found an error: {cause}"
            raise UsageError(f"--custom-objects {item}: {what}") from cause
        for library in _libraries(brought) or objects:
            objects[library][name] = brought
    return Vouched(**objects, trust=trust)


def by_all_names(brought: Mapping[str, Any], model: Entry) -> dict[str, Any]:
    """Return the user's objects by own names and by names registered in a model."""
    named = {registration_name(entry): class_name(entry) for _, entry in layer_tree.walk(model)}
    return {**brought, **{name: brought[own] for name, own in named.items() if own in brought}}


def by_name(brought: Mapping[str, Any], value: Any) -> Any:
    """Return a config of Keras 3 with brought classes under own names alone.

    keras v3.15 src/saving/serialization_lib.py `_retrieve_class_or_fn` imports the module that a config names
    where nothing is brought under the registered name.
    """

    def rename(item: dict[str, Any]) -> dict[str, Any]:
        kind = str(item.get("class_name")).rpartition(">")[2]
        name = item.get("config") if kind == "function" else kind
        known = "class_name" in item and isinstance(name, str) and name in brought
        return {**item, "module": None, "registered_name": name} if known else item

    return layer_tree.map_objects(value, rename)


def _libraries(brought: Any) -> set[str]:
    """Return the libraries of a class's bases, among tf_keras and keras."""
    bases = brought.__mro__ if isinstance(brought, type) else ()
    return {base.__module__.partition(".")[0] for base in bases} & {"tf_keras", "keras"}


@contextmanager
def _current_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


#: How many numbers stand before a code object's bytes: the first Python with so many, and the last.
_PYTHONS: Final = {4: "2", 5: "3.7 or older", 6: "3.8 to 3.10"}
_NEWER: Final = "3.11 or newer"
_RUNS_HERE: Final = _NEWER if sys.version_info >= (3, 11) else _PYTHONS[6]
#: RESUME in 3.11 and 3.12, in 3.13, in 3.14: it begins each function, behind a few others.
_RESUME: Final = frozenset({151, 149, 128})
#: A code object, and bytes, with or without marshal's flag for what is referred to again.
_CODE: Final = (b"c", b"\xe3")
_BYTES: Final = (b"s", b"\xf3")


def is_lambda(entry: Entry) -> bool:
    """Return True if an entry is Keras's Lambda."""
    return entry["class_name"] == "Lambda" and isinstance(entry["config"], Mapping)


def modern(config: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a Lambda's config for Keras 3, code unchanged. Raises ValueError where impossible."""
    if config.get("mask") is not None:
        raise ValueError("expected a Lambda without a mask of its own, found one with a mask")
    result = {key: config[key] for key in ("name", "trainable") if key in config}
    if config.get("dtype") is not None:
        result["dtype"] = values.dtype(config["dtype"])
    result["function"] = _function(config, "function")
    if config.get("output_shape") is not None:
        is_plain = config.get("output_shape_type", "raw") == "raw"
        result["output_shape"] = config["output_shape"] if is_plain else _function(config, "output_shape")
    arguments = config.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise ValueError("expected a Lambda's arguments with their names, found arguments without names")
    return {**result, "arguments": {key: _argument(value) for key, value in arguments.items()}}


def _function(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    stored, kind = config.get(key), config.get(f"{key}_type")
    if kind == "function" and isinstance(stored, str):
        return values.function(stored)
    if kind != "lambda" or not isinstance(stored, list) or len(stored) != 3:
        raise ValueError(f"expected a Lambda's {key} as Keras 2 writes it, found {key}_type {kind}")
    code, defaults, closure = stored
    # Keras 3 makes the tuple that defaults must be of JSON's list only where the three stand together.
    function = {"code": stored if defaults else code, "defaults": None, "closure": closure}
    return {"class_name": "__lambda__", "config": function}


def _argument(stored: Any) -> Any:
    if not isinstance(stored, Mapping) or stored.get("type") != "ndarray":
        return stored
    argument = {"value": stored["value"], "dtype": np.asarray(stored["value"]).dtype.name}
    return {"class_name": "__numpy__", "config": argument}


def notes(model: Entry, *, safe_mode: bool) -> Iterator[str]:
    """Yield notes on the needs of a loader of Lambdas.

    `safe_mode`: whether the loader refuses code unasked.
    """
    coded: dict[str, str | None] = {}
    for path, entry in layer_tree.below(model):
        if entry["class_name"] not in CODE - {layer_tree.OP_LAYER}:
            continue
        config = entry["config"] if is_lambda(entry) else {}
        if config.get("function_type") == "function":
            yield f"loading needs custom_objects with {config['function']}, the function of layer {path}"
        else:
            coded[path] = _bytecode_version(config)
    if coded:
        yield f"{', '.join(coded)}: code of the source is in the file, and runs where it is loaded"
    if coded and safe_mode:
        yield "loading needs safe_mode=False"
    for version in dict.fromkeys(coded.values()):
        if version is not None:
            paths = ", ".join(path for path, release in coded.items() if release == version)
            yield f"{paths}: its bytecode is of Python {version}, and runs in the very version that wrote it"


def other_bytecode(model: Entry) -> Iterator[str]:
    """Yield the Lambdas with bytecode of a different Python, each as a reason."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path, entry in layer_tree.below(model):
        version = _bytecode_version(entry["config"]) if is_lambda(entry) else None
        if version not in (None, _RUNS_HERE):
            yield f"layer {path}: expected bytecode that Python {here} runs, found that of Python {version}"


def _bytecode_version(config: Mapping[str, Any]) -> str | None:
    """Return the Python versions of a Lambda's bytecode, where known.

    Returns None where its config has none that is known.
    """
    stored = config.get("function")
    return python(stored[0]) if isinstance(stored, list) and stored else None


def python(code: Any) -> str | None:
    """Return the Python versions of bytecode in base64, where recognized.

    Returns None where not; the bytes are only looked at. Python/marshal.c `r_object`, TYPE_CODE: argcount,
    since 3.8 posonlyargcount, since 3.0 kwonlyargcount, until 3.10 nlocals, then stacksize, flags and the
    bytes of the code, each number in 4 bytes.
    """
    try:
        raw = binascii.a2b_base64(code.encode("ascii"))
    except (ValueError, AttributeError):
        return None
    if not raw.startswith(_CODE):
        return None
    for count, version in _PYTHONS.items():
        start = 1 + 4 * count
        if raw.startswith(_BYTES, start) and len(raw) >= start + 5:
            (length,) = struct.unpack_from("<i", raw, start + 1)
            operations = raw[start + 5 : start + 5 + length : 2]
            if 0 < length <= len(raw) - start - 5:
                return _NEWER if count == 5 and _RESUME.intersection(operations[:8]) else version
    return None
