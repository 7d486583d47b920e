"""Are two sets of outputs the same? A value that explains itself, never a vacuous pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array

#: The noise is measured in one order of rounding; an artifact has another, and may err further.
_MARGIN: Final = 2
#: Relative rounding of a type; half and bfloat16 are judged by it.
_EPSILON: Final = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|a-b| <= atol + rtol*|b|`, and where the numbers come from."""

    atol: float
    rtol: float
    reason: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one feed, compared; `needed` is the share of the tolerance that the worst value used."""

    output: str
    passed: bool
    compared: int
    worst: float
    needed: float
    message: str = ""
    excused: int = 0


def tolerance(
    dtype: np.dtype[Any], noise: float, *, atol: float | None = None, rtol: float | None = None
) -> Tolerance:
    """The bound for floats of `dtype`: 1e-5 for float32, never below; twice the noise where that is more."""
    if dtype.kind not in "fcV":  # bfloat16 is of kind V
        return Tolerance(0.0, 0.0, "equal")
    base = {"float64": 1e-12}.get(dtype.name, _EPSILON.get(dtype.name, 1e-5))
    wide = _MARGIN * noise if noise > base else base
    if atol is not None or rtol is not None:
        return Tolerance(wide if atol is None else atol, base if rtol is None else rtol, "asked for")
    if noise > base:
        return Tolerance(wide, base, f"{dtype.name}, widened to twice the model's noise floor {noise:.1e}")
    return Tolerance(base, base, dtype.name)


def outputs(
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    bounds: Mapping[str, Tolerance],
    slack: Mapping[str, Array],
    *,
    single: bool = False,
) -> list[Difference]:
    """Every expected output against the one found; a missing or extra one fails.

    `slack` marks, per output of integers, the elements whose deciding scores are too close to call.
    `single`: floats of every type are found as float32.
    """
    results = [
        _one(name, found.get(name), value, bounds[name], slack.get(name), single=single)
        for name, value in expected.items()
    ]
    extra = (name for name in found if name not in expected)
    return results + [Difference(name, False, 0, np.inf, np.inf, "not expected") for name in extra]


def _one(
    name: str, found: Array | None, expected: Array, bound: Tolerance, slack: Array | None, *, single: bool
) -> Difference:
    if found is None:
        return Difference(name, False, 0, np.inf, np.inf, "missing")
    if found.shape != expected.shape or not _is_same_type(found.dtype, expected.dtype, single=single):
        message = f"expected {expected.dtype}{list(expected.shape)}, found {found.dtype}{list(found.shape)}"
        return Difference(name, False, 0, np.inf, np.inf, message)
    if expected.dtype.kind not in "fc" and expected.dtype.name != "bfloat16":
        return _exact(name, found, expected, slack)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    return _close(name, found.astype(wide), expected.astype(wide), bound)


def _is_same_type(found: np.dtype[Any], expected: np.dtype[Any], *, single: bool) -> bool:
    """ONNX artifacts give float32 for bfloat16; strings have a type in each runtime."""
    if single and expected.kind == "f":
        return found == np.float32
    if expected.name == "bfloat16":
        return found.name in ("bfloat16", "float32")
    return found == expected or {found.kind, expected.kind} <= set("OSU")


def _exact(name: str, found: Array, expected: Array, slack: Array | None) -> Difference:
    wrong = found != expected
    excused = int(np.sum(wrong & slack)) if slack is not None else 0
    left = int(np.sum(wrong)) - excused
    message = f"{left} of {wrong.size} values differ" if left else ""
    return Difference(name, not left, wrong.size, float(left), float(left), message, excused)


def _close(name: str, found: Array, expected: Array, bound: Tolerance) -> Difference:
    odd = ~np.isfinite(expected) | ~np.isfinite(found)
    same = np.array_equal(found[odd], expected[odd], equal_nan=True)
    if not same:
        return Difference(name, False, expected.size, np.inf, np.inf, "NaN or Inf at other places")
    gap = np.abs(np.subtract(found, expected, where=~odd, out=np.zeros_like(expected)))
    limit = bound.atol + bound.rtol * np.where(odd, 0, np.abs(expected))
    # Equal values need nothing, even where nothing is allowed.
    share = np.divide(gap, limit, where=limit > 0, out=np.where(gap > 0, np.inf, 0.0))
    worst, needed = float(gap.max(initial=0.0)), float(share.max(initial=0.0))
    message = "NaN or Inf at the same places on both sides" if odd.any() else ""
    if needed > 1:
        place = np.unravel_index(int(np.argmax(share)), gap.shape)
        message = (
            f"at {[int(i) for i in place]} expected {expected[place]:.9g}, found {found[place]:.9g}, "
            f"allowed {limit[place]:.1e}"
        )
    return Difference(name, needed <= 1, expected.size, worst, needed, message)
