"""What a layer's config holds beside layers: initializers, regularizers, constraints, dtypes, shapes.

Source: keras 2.2.4 initializers.py, regularizers.py, constraints.py; tf_keras v2.21.0, the same files;
keras v3.15 src/initializers/, src/regularizers/, src/constraints/, src/dtype_policies/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cudnn_convert.keras import architecture
from cudnn_convert.keras.architecture import Entry

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
#: What stands for an initializer that is not Keras's: the weights are loaded, so that it never runs.
_DEFAULT: Final = {"initializer": "Zeros"}


def translated(sort: str, stored: Any) -> tuple[Any, str]:
    """An initializer, regularizer or constraint for Keras 3, and the name of one that had to go."""
    if stored is None:
        return None, ""
    kind = stored.get("class_name") if isinstance(stored, Mapping) else stored
    known = _KNOWN[sort]
    keys = known.get(str(kind))
    if keys is None:
        return (_object(sort, _DEFAULT[sort], {}) if sort in _DEFAULT else None), str(kind)
    config = (stored.get("config") if isinstance(stored, Mapping) else None) or {}
    kept = {key: value(config[key]) for key in keys if key in config}
    if kept.get("distribution") == "normal":
        kept["distribution"] = "truncated_normal"
    return _object(sort, str(kind), kept), ""


def _object(sort: str, kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return written(f"keras.{sort}s", kind, config)


def written(module: str | None, kind: str, config: Any, registered: str | None = None) -> dict[str, Any]:
    """An object as Keras 3 writes it; one without a module is looked up by its registered name."""
    return {"module": module, "class_name": kind, "config": config, "registered_name": registered}


def function(name: str) -> dict[str, Any]:
    """A function that the loader looks up by its name, among its custom objects first."""
    return written(None, "function", name, name)


def dtype(stored: Any) -> str | None:
    """A dtype or the name of a policy: `{"class_name": "Policy", "config": {"name": "mixed_float16"}}`."""
    if isinstance(stored, Mapping):
        stored = stored.get("config", {}).get("name")
    return None if stored is None else str(stored)


def value(stored: Any) -> Any:
    """A plain value: tuples and arrays of the older writings become lists and numbers.

    tf_keras v2.21.0 src/saving/legacy/saved_model/json_utils.py; keras 2.2.4 engine/saving.py get_json_type.
    """
    if isinstance(stored, Mapping):
        if stored.get("class_name") in ("__tuple__", "TensorShape"):
            return [value(one) for one in stored.get("items", [])]
        if stored.get("type") == "ndarray" or stored.get("class_name") == "__numpy__":
            stored = stored.get("config", stored)
        if "value" in stored and ("type" in stored or "dtype" in stored):
            return value(stored.get("value"))
        return {key: value(one) for key, one in stored.items()}
    return [value(one) for one in stored] if isinstance(stored, list) else stored


def shape(stored: Any) -> list[int | None] | None:
    """A shape with its batch."""
    found = value(stored)
    return found if isinstance(found, list) else None


def input_of(model: Entry) -> tuple[list[int | None] | None, str]:
    """The shape and the dtype of a Sequential's input, from its first layer or what it was built with."""
    first = architecture.layers(model)[0]
    config = first["config"] if isinstance(first["config"], Mapping) else {}
    own = model["config"] if isinstance(model["config"], Mapping) else {}
    found = shape(config.get("batch_input_shape", config.get("batch_shape")))
    if found is None and architecture.is_model(first):
        inner = architecture.layers(first)
        if inner and inner[0]["class_name"] == "InputLayer":
            return input_of(first)
        if first["class_name"] == "Sequential" and inner:
            return input_of(first)
    built = model.get("build_config") or {}
    found = found or shape(own.get("build_input_shape")) or shape(built.get("input_shape"))
    return found, dtype(config.get("dtype")) or "float32"
