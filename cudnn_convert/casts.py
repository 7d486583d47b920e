"""Casts a user's arrays to the types of model inputs, with lossy casts refused.

Floats may be rounded, since a model computes with its own precision in any case. A fraction, a number outside
the range, an imaginary part, or an integer that a float does not have would become another number without a
word: an id would pick another row.
"""

from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array, is_float

#: The kinds of dtypes that hold text or bytes: strings have a type in each runtime, and one more in files.
_TEXT: Final = frozenset("OSU")


def cast(value: Array, wanted: np.dtype[Any], *, where: str) -> Array:
    """Cast an array, except for text. Raises UsageError if a number would change."""
    if loss := explain_loss(value, wanted):
        raise UsageError(f"{where}: {loss}")
    return value if {value.dtype.kind, wanted.kind} <= _TEXT else _to(value, wanted)


def explain_loss(value: Array, wanted: np.dtype[Any], *, of: str = "") -> str:
    """Describe the change by a cast to `wanted`, as "expected ..., found ...".

    Empty where nothing changes. `of` follows the type that is expected.
    """
    given = value.dtype
    if given == wanted or {given.kind, wanted.kind} <= _TEXT:
        return ""
    expected = f"expected {'text' if wanted.kind in _TEXT else wanted.name}{of}"
    if not (_is_number(given) and _is_number(wanted)):
        return f"{expected}, found {'text' if given.kind in _TEXT else given.name}"
    changed = find_changed(value, wanted)
    if not changed.any():
        return ""
    if given.kind in "biu":
        return f"{expected}, found values from {value.min()} to {value.max()}"
    return f"{expected}, found {value[changed].flat[0]}"


def find_changed(value: Array, wanted: np.dtype[Any]) -> Array:
    """Mark numbers changed by a cast to `wanted` beyond the rounding of a float."""
    if value.dtype.kind == "c":
        if wanted.kind != "c":
            return np.asarray(value.imag != 0) | find_changed(value.real, wanted)
        part = np.zeros((), wanted).real.dtype
        return find_changed(value.real, part) | find_changed(value.imag, part)
    if wanted.kind == "c":
        return find_changed(value, np.zeros((), wanted).real.dtype)
    if wanted.kind in "biu":
        return _is_no_integer(value, wanted)
    rounded = _to(value, wanted).astype(np.float64)
    if value.dtype.kind not in "biu":
        return np.asarray(np.isfinite(value) & ~np.isfinite(rounded))
    # An integer just below a power of two may be rounded up to it, and be out of its own type's range then.
    outside = _is_no_integer(rounded, value.dtype)
    return np.asarray(outside | (_to(np.where(outside, 0, rounded), value.dtype) != value))


def _is_no_integer(value: Array, wanted: np.dtype[Any]) -> Array:
    """Mark numbers outside an integer type, or outside a bool's 0 and 1."""
    low, high = _bounds(wanted)
    if value.dtype.kind in "biu":  # compared with numbers of its own type, for NumPy has no others beside it
        least, most = _bounds(value.dtype)
        whole = value.astype(np.uint8) if value.dtype.kind == "b" else value
        return np.asarray(whole < max(low, least)) | (whole > min(high, most))
    wide = value.astype(np.float64)  # has every power of two, so the first number past `high`
    with np.errstate(invalid="ignore"):  # NumPy 1.26 warns of comparisons with NaN
        return np.asarray((wide < low) | (wide >= high + 1) | (np.floor(wide) != wide) | np.isnan(wide))


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuc" or is_float(dtype)


def _to(value: Array, wanted: np.dtype[Any]) -> Array:
    """Cast with NumPy's warnings turned off: `find_changed` judges the range."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = (value.real if value.dtype.kind == "c" and wanted.kind != "c" else value).astype(wanted)
        return cast
