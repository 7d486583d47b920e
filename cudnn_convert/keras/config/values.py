"""Values beside layers in a layer's config, in the form built by Keras 2.

These are initializers, regularizers, constraints, dtypes, shapes, and what a model's training had. Both forms
of tf_keras 2.21 are read, the older (src/saving/legacy/serialization.py) and the newer
(src/saving/serialization_lib.py), which names a module for every object that its loader imports. Modules are
left out, and so is what inference does not need. Of the training config that part is kept which needs no code
of the user's.
Source: keras 2.2.4 initializers.py, regularizers.py, constraints.py, losses.py, metrics.py, optimizers.py;
tf_keras v2.21.0, the same files; keras v3.15 src/initializers/, src/regularizers/, src/constraints/,
src/dtype_policies/.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from cudnn_convert.keras.config import layer_tree
from cudnn_convert.keras.config.layer_tree import Entry, is_entry

#: The keys that each class of Keras 3 takes.
_KNOWN: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "initializer": {
        "Zeros": (),
        "Ones": (),
        "Constant": ("value",),
        "RandomNormal": ("mean", "stddev", "seed"),
        "RandomUniform": ("minval", "maxval", "seed"),
        "TruncatedNormal": ("mean", "stddev", "seed"),
        "VarianceScaling": ("scale", "mode", "distribution", "seed"),
        "Orthogonal": ("gain", "seed"),
        "Identity": ("gain",),
        **dict.fromkeys(
            ("GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform"),
            ("seed",),
        ),
    },
    "regularizer": {"L1L2": ("l1", "l2"), "L1": ("l1",), "L2": ("l2",)},
    "constraint": {
        "MaxNorm": ("max_value", "axis"),
        "NonNeg": (),
        "UnitNorm": ("axis",),
        "MinMaxNorm": ("min_value", "max_value", "rate", "axis"),
    },
}


def translate_object(sort: str, stored: Any) -> tuple[Any, str]:
    """Return an initializer, regularizer or constraint for Keras 3, and a dropped object's name."""
    if stored is None:
        return None, ""
    kind = stored.get("class_name") if isinstance(stored, Mapping) else stored
    keys = _KNOWN[sort].get(str(kind))
    if keys is None:
        # An initializer that is not Keras's never runs: the weights are loaded.
        zeros = write_object("keras.initializers", "Zeros", {})
        return (zeros if sort == "initializer" else None), str(kind)
    config = (stored.get("config") if isinstance(stored, Mapping) else None) or {}
    kept = {key: plain_value(config[key]) for key in keys if key in config}
    if kept.get("maxval", 0) is None:  # TensorFlow up to 1.12: from 0 to what a dtype holds
        del kept["maxval"]
    if kept.get("distribution") == "normal":
        kept["distribution"] = "truncated_normal"
    return write_object(f"keras.{sort}s", str(kind), kept), ""


def write_object(module: str | None, kind: str, config: Any, registered: str | None = None) -> dict[str, Any]:
    """Return an object in Keras 3's form.

    Without a module, the registered name finds it.
    """
    return {"module": module, "class_name": kind, "config": config, "registered_name": registered}


def function(name: str) -> dict[str, Any]:
    """Return a function for the loader's look-up by name, custom objects first."""
    return write_object(None, "function", name, name)


def dtype(stored: Any) -> str | None:
    """Return a dtype or the name of a policy.

    A policy is `{"class_name": "Policy", "config": {"name": "mixed_float16"}}`.
    """
    if isinstance(stored, Mapping):
        stored = stored.get("config", {}).get("name")
    return None if stored is None else str(stored)


def plain_value(stored: Any) -> Any:
    """Return a value with tuples and arrays of older forms as lists and numbers.

    tf_keras v2.21.0 src/saving/legacy/saved_model/json_utils.py; keras 2.2.4 engine/saving.py get_json_type.
    """
    if isinstance(stored, Mapping):
        if stored.get("class_name") in ("__tuple__", "TensorShape"):
            return [plain_value(item) for item in stored.get("items", [])]
        if stored.get("type") == "ndarray" or stored.get("class_name") == "__numpy__":
            stored = stored.get("config", stored)
        if "value" in stored and ("type" in stored or "dtype" in stored):
            return plain_value(stored.get("value"))
        return {key: plain_value(item) for key, item in stored.items()}
    return [plain_value(item) for item in stored] if isinstance(stored, list) else stored


def shape(stored: Any) -> list[int | None] | None:
    """Return a shape, batch included."""
    size = plain_value(stored)
    return size if isinstance(size, list) else None


def input_of(model: Entry) -> tuple[list[int | None] | None, str]:
    """Return the shape and dtype of a Sequential's input.

    They are of its first layer or its build.
    """
    first = layer_tree.layer_entries(model)[0]
    config, own = layer_tree.settings(first), layer_tree.settings(model)
    size = shape(config.get("batch_input_shape", config.get("batch_shape")))
    if size is None and layer_tree.is_model(first):
        inner = layer_tree.layer_entries(first)
        if inner and (first["class_name"] == "Sequential" or inner[0]["class_name"] == "InputLayer"):
            return input_of(first)
    built = model.get("build_config") or {}
    size = size or shape(own.get("build_input_shape")) or shape(built.get("input_shape"))
    return size, dtype(config.get("dtype")) or "float32"


#: tf_keras src/mixed_precision/policy.py; Policy is also what Keras 3 calls DTypePolicy.
_POLICIES: Final = frozenset({"Policy", "PolicyV1", "DTypePolicy"})
_INITIALIZER: Final = "_initializer"
_NEEDLESS: Final = ("_regularizer", "_constraint", "build_config", "compile_config", "shared_object_id")


def inner(layer: Entry) -> Iterator[Entry]:
    """Yield the objects for building a layer: inner layers, and activations."""
    yield from _objects(layer["config"])
    yield from _objects(layer.get("inbound_nodes"))


#: Values of JSON that have a class and a config as layers do: what a call has beside its inputs.
#: Source: keras v3.15.0 src/saving/serialization_lib.py serialize_keras_object.
_CONSTANTS: Final = frozenset({"__slice__", "__ellipsis__", "__numpy__", "__tensor__", "__bytes__"})


def _objects(value: Any) -> Iterator[Entry]:
    if is_entry(value) and value["class_name"] in _CONSTANTS:
        yield from _objects(value["config"])
    elif is_entry(value):
        if value["class_name"] != layer_tree.TENSOR and not isinstance(name_of(value), str):
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not str(key).endswith((*_NEEDLESS, _INITIALIZER)):
                yield from _objects(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _objects(item)


def name_of(value: Any) -> Any:
    """Return the name of a function or a dtype policy.

    Any other value is returned unchanged.
    """
    config = value["config"] if is_entry(value) else None
    if config is not None and value["class_name"] == "function" and isinstance(config, str):
        return config
    if isinstance(config, Mapping) and value["class_name"] in _POLICIES:
        return str(config.get("name"))
    return value


def to_legacy_form(layer: Entry, *, kept: Collection[str] = ()) -> dict[str, Any]:
    """Return a layer or model in the older form; configs of `kept` classes stay unchanged.

    A Sequential in a model has its name beside it before Keras 2.2.3, where its config is a list of layers.
    """
    class_name = layer["class_name"].rpartition(">")[2]  # a registered class has its package in front
    changed = {key: layer[key] for key in ("config", "name") if key in layer} | {"class_name": class_name}
    if "inbound_nodes" in layer:
        changed["inbound_nodes"] = _value(layer["inbound_nodes"], kept)
    if class_name not in kept:
        changed["config"] = _value(layer["config"], kept)
        if isinstance(changed["config"], list) and "name" in layer:
            changed["config"] = {"name": layer["name"], "layers": changed["config"]}
    return without_optional(changed)


def without_optional(value: dict[str, Any]) -> dict[str, Any]:
    """Drop `optional=False` from an InputLayer: unknown to tf_keras 2.16, and the later default."""
    config = value.get("config")
    if value.get("class_name") != "InputLayer" or not isinstance(config, Mapping):
        return value
    return {**value, "config": {key: item for key, item in config.items() if (key, item) != _NOT_OPTIONAL}}


_NOT_OPTIONAL: Final = ("optional", False)
#: Arguments that Keras 3.12 refuses, the last Keras 3 for Python 3.10, with the defaults of later ones.
#: Source: keras v3.15 src/initializers/random_initializers.py VarianceScaling, src/layers/core/dense.py,
#: src/layers/normalization/batch_normalization.py.
_NEW_ARGUMENTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("quantization_config", "input_axes", "output_axes", "renorm_clipping")),
    "renorm": False,
    "renorm_momentum": 0.99,
}


def without_new_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """Drop default-valued arguments unknown to an older Keras 3 from an object of Keras' own."""
    config = value.get("config")
    if value.get("module") not in ("keras.layers", "keras.initializers") or not isinstance(config, Mapping):
        return value
    kept = {
        key: item for key, item in config.items() if key not in _NEW_ARGUMENTS or item != _NEW_ARGUMENTS[key]
    }
    return {**value, "config": kept}


def _value(value: Any, kept: Collection[str]) -> Any:
    value = name_of(value)
    if is_entry(value):
        return to_legacy_form(value, kept=kept)
    if isinstance(value, list | tuple):
        return [_value(item, kept) for item in value]
    if not isinstance(value, Mapping):
        return value
    simple = plain_value(value)
    if not isinstance(simple, Mapping):
        return simple
    return {
        key: "zeros" if key.endswith(_INITIALIZER) and item is not None else _value(item, kept)
        for key, item in value.items()
        if not key.endswith(_NEEDLESS)
    }


def with_input_shape(model: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield configs to try for a Sequential with the first call's shape alone.

    One with any number of steps, then one with as many as that call had; any other model as it is.
    """
    config = model["config"]
    deferred = model["class_name"] == "Sequential" and isinstance(config, dict)
    shape: list[Any] = (config.get("build_input_shape") if deferred else None) or []
    first, *rest = config["layers"] if shape else [None]
    if first is None or first["class_name"] == "InputLayer" or "batch_input_shape" in first["config"]:
        yield model
        return
    for candidate in ([shape[0], *([None] * (len(shape) - 2)), *shape[1:][-1:]], shape):
        changed = {**first, "config": {**first["config"], "batch_input_shape": list(candidate)}}
        left = {key: value for key, value in config.items() if key != "build_input_shape"}
        yield {**model, "config": {**left, "layers": [changed, *rest]}}


_OPTIMIZERS: Final = frozenset("sgd rmsprop adagrad adadelta adam adamax nadam ftrl".split())
_LOSSES: Final = frozenset(
    """
    mse mean_squared_error mae mean_absolute_error mape mean_absolute_percentage_error msle
    mean_squared_logarithmic_error hinge squared_hinge categorical_hinge logcosh log_cosh huber huber_loss
    categorical_crossentropy sparse_categorical_crossentropy binary_crossentropy kld
    kullback_leibler_divergence kl_divergence poisson cosine_similarity cosine_proximity cosine
    """.split()
)
_METRICS: Final = _LOSSES | frozenset(
    """
    acc accuracy binary_accuracy categorical_accuracy sparse_categorical_accuracy top_k_categorical_accuracy
    sparse_top_k_categorical_accuracy ce crossentropy
    """.split()
)


def keep_training_config(
    training: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """Return the training config for tf_keras, free of user code, and notes on the rest."""
    if training is None:
        return None, ()
    optimizer = training.get("optimizer_config")
    kind = str(optimizer.get("class_name", "")).rpartition(">")[2] if isinstance(optimizer, Mapping) else ""
    if kind.lower() not in _OPTIMIZERS or not isinstance(optimizer, Mapping):
        why = f"its optimizer {kind or 'of no name'} is not Keras's own"
        return None, (f"training config dropped, {describe_training(training)}: {why}",)
    foreign = sorted(_unknown(training.get("loss"), _LOSSES))
    if foreign:
        why = f"its loss {', '.join(foreign)} is not Keras's own"
        return None, (f"training config dropped, {describe_training(training)}: {why}",)
    notes = []
    changed = {**training, "optimizer_config": {**optimizer, "class_name": kind}}
    for key in ("metrics", "weighted_metrics"):
        lost = sorted(_unknown(training.get(key), _METRICS))
        if lost:
            changed[key] = _keep_own_metrics(training[key])
            notes.append(f"{key} dropped, for they are not Keras's own: {', '.join(lost)}")
    return changed, tuple(notes)


def describe_training(training: Mapping[str, Any]) -> str:
    """Describe the arguments of `compile`: `compiled with Adam(learning_rate=0.01), mse`.

    The text is for who compiles anew.
    """
    optimizer = training.get("optimizer_config")
    optimizer = optimizer if isinstance(optimizer, Mapping) else {}
    config = optimizer.get("config")
    config = config if isinstance(config, Mapping) else {}
    rate = config.get("learning_rate", config.get("lr"))  # `lr` before Keras 2.3
    shown = f"{rate:.6g}" if isinstance(rate, int | float) else title_of(rate)
    name = title_of(optimizer).rpartition(">")[2] or "no optimizer"
    parts = [f"{name}(learning_rate={shown})" if shown else name, title_of(training.get("loss")) or "no loss"]
    if metrics := title_of(training.get("metrics")):
        parts.append(f"metrics {metrics}")
    return f"compiled with {', '.join(parts)}"


def title_of(value: Any) -> str:
    """Return the name of a training config's value, or of all outputs' values.

    Values of several outputs stand in a list or dict. The name is "" for none.
    """
    if isinstance(value, Mapping) and "class_name" in value:
        config = value.get("config")
        # A function wrapped as a loss or metric is known by its name.
        function = config.get("fn") if isinstance(config, Mapping) else None
        return str(function if isinstance(function, str) else value["class_name"])
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {title}" for key, item in value.items() if (title := title_of(item)))
    if isinstance(value, list):
        return ", ".join(filter(None, map(title_of, value)))
    return "" if value is None else str(value)


def _unknown(value: Any, known: frozenset[str]) -> set[str]:
    """Return the unknown names in a list or dict of losses or metrics."""
    if isinstance(value, str):
        return set() if value.lower() in known else {value}
    if isinstance(value, Mapping) and "class_name" in value:
        own = str(value.get("module") or "keras").partition(".")[0] in ("keras", "tf_keras", "builtins")
        return set() if own and not value.get("registered_name") else {str(value["class_name"])}
    return set().union(*(_unknown(item, known) for item in layer_tree.children(value)))


def _keep_own_metrics(value: Any) -> Any:
    if isinstance(value, Mapping) and "class_name" not in value:
        return {key: _keep_own_metrics(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item for item in map(_keep_own_metrics, value) if item is not None]
    return None if _unknown(value, _METRICS) else value
