"""Reads `--features`: the feature of an example for each input, with type and shape.

    KEY=float32[?,13]       numbers; ? is a length of its own in each example, padded to the longest
    KEY=int64[]             one number
    KEY=bytes:uint8[28,28]  a string of bytes, whose elements are uint8; little-endian
    KEY=bits[1552]/2        a string of packed bits, the highest bit of a byte first; divided by 2
    KEY=lengths:OTHER       how many steps OTHER has in each example
    KEY=float32[?,batch,3]  the examples lie along the second axis: time first

Several are apart by commas, or are a JSON object, or a file `.json` of one. There a value is such a text, or
an object with `type` and `shape`, and perhaps `feature` (its name in the examples, where that is another),
`pad` (the value after the end, else 0) and `divisor`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError

_FLAG: Final = "--features"
_BYTES: Final = "bytes:"
BITS: Final = "bits"
_LENGTHS: Final = "lengths:"
_BATCH: Final = "batch"
#: The types that values may have; strings are bytes of any length.
_NUMBERS: Final = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
_STRING: Final = "string"
_SPEC: Final = re.compile(r"(?P<type>[a-z0-9:]+?)\[(?P<shape>[^\[\]]*)\](?:/(?P<divisor>[0-9.eE+-]+))?")
_COMMA: Final = re.compile(r",(?![^\[]*\])")
_KNOWN: Final = frozenset({"type", "shape", "feature", "pad", "divisor"})
#: The largest count of elements in an example.
_MOST: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class InputFeature:
    """An input of the model, made from a feature of each example.

    `shape` is that of one example: None, which only the first size may be, is a length of its own. `axis` is
    where the examples go. `coding` is empty for a list of values, else `bytes` or `bits` for a string of
    them. `length_of`: the input whose lengths this one is, then `name` is that input's feature.
    """

    key: str
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = ()
    axis: int = 0
    coding: str = ""
    pad: float = 0
    divisor: float | None = None
    length_of: str | None = None

    @property
    def is_variable(self) -> bool:
        """True for examples of different lengths."""
        return bool(self.shape) and self.shape[0] is None

    @property
    def inner(self) -> int:
        """The number of elements per step, or in total for fixed sizes."""
        return math.prod(size for size in self.shape if size is not None)

    @property
    def kind(self) -> str:
        """The kind of the feature's list in an example: `float`, `int64` or `bytes`."""
        if self.coding or self.dtype.kind == "O":
            return "bytes"
        return "float" if self.dtype.kind == "f" else "int64"

    @property
    def parsed_as(self) -> tuple[str, int | None]:
        """The kind and number of values of the feature's list.

        The number is None where any is allowed.
        """
        return self.kind, 1 if self.coding else None if self.is_variable else self.inner

    @property
    def bytes_per_step(self) -> int:
        """The bytes of a string per step, or in total for fixed sizes."""
        return -(-self.inner // 8) if self.coding == BITS else self.inner * self.dtype.itemsize

    def __str__(self) -> str:
        """Return the feature as text for `--features`.

        What only JSON can say is left out.
        """
        if self.length_of is not None:
            return f"{self.key}={_LENGTHS}{self.length_of}"
        name = {"": self.dtype.name, "bytes": f"{_BYTES}{self.dtype.name}", BITS: BITS}[self.coding]
        sizes = ["?" if size is None else str(size) for size in self.shape]
        name = _STRING if self.dtype.kind == "O" else name
        return f"{self.key}={name}[{','.join(sizes)}]"


def parse_features(given: Sequence[str]) -> dict[str, InputFeature]:
    """Parse the features, and return the features by input key. Raises UsageError."""
    specs: dict[str, Any] = {}
    for item in given:
        for key, spec in _items(item):
            if key in specs:
                raise UsageError(f"{_FLAG}: {key}: expected each input once, found this one twice")
            specs[key] = spec
    parsed = {key: _parse(key, spec) for key, spec in specs.items()}
    for key, feature in parsed.items():
        if feature.length_of is None:
            continue
        other = parsed.get(feature.length_of)
        if other is None or not other.is_variable:
            expected = f"the lengths of another input of a shape [?,...], found {feature.length_of!r}"
            raise UsageError(f"{_FLAG}: {key}: expected {expected}")
        parsed[key] = InputFeature(key, other.name, np.dtype(np.int32), length_of=other.key)
    _refuse_two_forms([feature for feature in parsed.values() if feature.length_of is None])
    return parsed


def _refuse_two_forms(features: Sequence[InputFeature]) -> None:
    """Raise UsageError if two inputs need a feature parsed in two ways."""
    first: dict[str, InputFeature] = {}
    for feature in features:
        other = first.setdefault(feature.name, feature)
        if feature.parsed_as != other.parsed_as:
            expected = f"the feature {feature.name} with as many values as in {other}"
            raise UsageError(f"{_FLAG}: {feature.key}: expected {expected}, found {feature}")


def _items(text: str) -> list[tuple[str, Any]]:
    """Return the keys and specs in a value of the flag."""
    if text.endswith(".json"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as cause:
            raise UsageError(
                f"{_FLAG} {text}: expected a JSON file, found nothing that can be read"
            ) from cause
    if text.lstrip().startswith("{"):
        try:
            specs = json.loads(text)
        except (ValueError, RecursionError) as cause:
            raise UsageError(f"{_FLAG}: expected a JSON object, found another text") from cause
        return [*specs.items()]
    items = []
    for item in _COMMA.split(text):
        key, equals, spec = item.partition("=")
        if not (key and equals and spec):
            raise UsageError(f"{_FLAG}: expected KEY=TYPE[SHAPE], found {item!r}")
        items.append((key, spec))
    return items


def _parse(key: str, spec: Any) -> InputFeature:
    if isinstance(spec, str):
        if spec.startswith(_LENGTHS):
            return InputFeature(key, key, np.dtype(np.int32), length_of=spec.removeprefix(_LENGTHS))
        match = _SPEC.fullmatch(spec)
        if match is None:
            raise UsageError(f"{_FLAG}: {key}: expected TYPE[SHAPE] or {_LENGTHS}KEY, found {spec!r}")
        sizes = [size.strip() for size in match["shape"].split(",")] if match["shape"].strip() else []
        return _make(key, {"type": match["type"], "shape": sizes, "divisor": match["divisor"]})
    if not isinstance(spec, Mapping) or not {"type", "shape"} <= spec.keys() <= _KNOWN:
        others = ", ".join(sorted(_KNOWN - {"type", "shape"}))
        raise UsageError(f"{_FLAG}: {key}: expected type, shape and perhaps {others}, found {spec!r}")
    return _make(key, spec)


def _make(key: str, spec: Mapping[str, Any]) -> InputFeature:
    where, kind = f"{_FLAG}: {key}", spec["type"]
    coding = "bytes" if str(kind).startswith(_BYTES) else BITS if kind == BITS else ""
    name = "uint8" if coding == BITS else str(kind).removeprefix(_BYTES)
    if name not in _NUMBERS and (name != _STRING or coding):
        expected = f"one of {', '.join(_NUMBERS)}, {_STRING}, {BITS} or {_BYTES}TYPE"
        raise UsageError(f"{where}: type: expected {expected}, found {kind!r}")
    shape, axis = _read_shape(spec["shape"], where)
    pad, divisor = _number(spec.get("pad"), where), _number(spec.get("divisor"), where)
    if divisor == 0:
        raise UsageError(f"{where}: divisor: expected a number other than 0, found 0")
    dtype = np.dtype(object) if name == _STRING else np.dtype(name)
    if dtype.kind == "O" and divisor is not None:
        raise UsageError(f"{where}: divisor: expected none for strings, found {divisor:g}")
    feature = InputFeature(
        key, str(spec.get("feature", key)), dtype, shape, axis, coding, pad or 0.0, divisor
    )
    if coding == BITS and feature.is_variable and feature.inner % 8:
        expected = "steps of whole bytes where lengths vary"
        raise UsageError(f"{where}: shape: expected {expected}, found {feature.inner} bits")
    return feature


def _read_shape(given: Any, where: str) -> tuple[tuple[int | None, ...], int]:
    """Return the sizes of an example, and the axis of `batch`."""
    sizes = [*given] if isinstance(given, list | tuple) else [None, None]
    axis = sizes.index(_BATCH) if _BATCH in sizes else 0
    sizes = [size for size in sizes if size != _BATCH]
    shape: list[int | None] = []
    size: Any
    for axis_of_size, size in enumerate(sizes):
        if size in ("?", None) and axis_of_size == 0:
            shape.append(None)
        elif str(size).isascii() and str(size).isdigit() and 0 < int(size) < _MOST:
            shape.append(int(size))
        else:
            expected = f"sizes, ? for the first where lengths vary, {_BATCH} where examples lie"
            raise UsageError(f"{where}: shape: expected {expected}, found {given}")
    if math.prod(size for size in shape if size) >= _MOST:
        raise UsageError(f"{where}: shape: expected fewer elements than 2^31, found {given}")
    return tuple(shape), axis


def _number(given: Any, where: str) -> float | None:
    if given is None:
        return None
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: expected a number, found {given!r}")
    return number
