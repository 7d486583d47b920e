"""Lambda layers: what is code in a file stays what it is, and is never called, unmarshalled or imported here.

Source: keras 2.2.4 layers/core.py, tf_keras v2.21.0 src/layers/core/lambda_layer.py `get_config`; keras v3.15
src/layers/core/lambda_layer.py `from_config`, src/utils/python_utils.py `func_load`; Python/marshal.c.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from cudnn_convert.keras import architecture, layers, objects
from cudnn_convert.keras.architecture import Entry

#: How many numbers stand before a code object's bytes: the first Python with so many, and the last.
_PYTHONS: Final = {4: "2", 5: "3.7 or older", 6: "3.8 to 3.10"}
_NEWER: Final = "3.11 or newer"
#: RESUME in 3.11 and 3.12, in 3.13, in 3.14: it begins each function, behind a few others.
_RESUME: Final = frozenset({151, 149, 128})
#: A code object, and bytes, with or without marshal's flag for what is referred to again.
_CODE: Final = (b"c", b"\xe3")
_BYTES: Final = (b"s", b"\xf3")


def is_lambda(entry: Entry) -> bool:
    """Whether an entry is Keras's Lambda."""
    return entry["class_name"] == "Lambda" and isinstance(entry["config"], Mapping)


def modern(config: Mapping[str, Any]) -> dict[str, Any]:
    """A Lambda's config for Keras 3, its code as it was. Raises ValueError for what has no place there."""
    if config.get("mask") is not None:
        raise ValueError("expected a Lambda without a mask of its own, found one")
    made = {key: config[key] for key in ("name", "trainable") if key in config}
    if config.get("dtype") is not None:
        made["dtype"] = objects.dtype(config["dtype"])
    made["function"] = _function(config, "function")
    if config.get("output_shape") is not None:
        is_plain = config.get("output_shape_type", "raw") == "raw"
        made["output_shape"] = config["output_shape"] if is_plain else _function(config, "output_shape")
    arguments = config.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise ValueError("expected a Lambda's arguments by their names, found others")
    return {**made, "arguments": {key: _argument(value) for key, value in arguments.items()}}


def _function(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    stored, kind = config.get(key), config.get(f"{key}_type")
    if kind == "function" and isinstance(stored, str):
        return objects.function(stored)
    if kind != "lambda" or not isinstance(stored, list) or len(stored) != 3:
        raise ValueError(f"expected a Lambda's {key} as Keras 2 writes it, found {key}_type {kind}")
    code, defaults, closure = stored
    # Keras 3 makes the tuple that defaults must be of JSON's list only where the three stand together.
    made = {"code": stored if defaults else code, "defaults": None, "closure": closure}
    return {"class_name": "__lambda__", "config": made}


def _argument(stored: Any) -> Any:
    if not isinstance(stored, Mapping) or stored.get("type") != "ndarray":
        return stored
    told = {"value": stored["value"], "dtype": np.asarray(stored["value"]).dtype.name}
    return {"class_name": "__numpy__", "config": told}


def notes(model: Entry, *, safe_mode: bool) -> Iterator[str]:
    """What the loader of a model with Lambdas needs; `safe_mode`: whether it has to be told to run code."""
    coded: dict[str, str | None] = {}
    for path, entry in architecture.below(model):
        if entry["class_name"] not in layers.CODE:
            continue
        config = entry["config"] if is_lambda(entry) else {}
        if config.get("function_type") == "function":
            yield f"loading needs custom_objects with {config['function']}, the function of layer {path}"
        else:
            stored = config.get("function")
            coded[path] = python(stored[0]) if isinstance(stored, list) and stored else None
    if coded:
        yield f"{', '.join(coded)}: code of the source is in the file, and runs where it is loaded"
    if coded and safe_mode:
        yield "loading needs safe_mode=False"
    for version in dict.fromkeys(coded.values()):
        if version is not None:
            told = ", ".join(path for path, found in coded.items() if found == version)
            yield f"{told}: its bytecode is of Python {version}, and runs in the very version that wrote it"


def python(code: Any) -> str | None:
    """The Pythons whose bytecode this is, in base64; None where that cannot be told. Only its bytes are read.

    Python/marshal.c `r_object`, TYPE_CODE: argcount, since 3.8 posonlyargcount, since 3.0 kwonlyargcount,
    until 3.10 nlocals, then stacksize, flags and the bytes of the code, each number in 4 bytes.
    """
    try:
        raw = binascii.a2b_base64(code.encode("ascii"))
    except (ValueError, AttributeError):
        return None
    if not raw.startswith(_CODE):
        return None
    for count, found in _PYTHONS.items():
        start = 1 + 4 * count
        if raw.startswith(_BYTES, start) and len(raw) >= start + 5:
            (length,) = struct.unpack_from("<i", raw, start + 1)
            operations = raw[start + 5 : start + 5 + length : 2]
            if 0 < length <= len(raw) - start - 5:
                return _NEWER if count == 5 and _RESUME.intersection(operations[:8]) else found
    return None
