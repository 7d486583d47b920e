"""For the tests of others: do two models give the same numbers?

    from cudnn_convert.testing import assert_equivalent
    assert_equivalent("converted.onnx", original, {"x": x})

Nothing heavy is imported before a comparison needs it: functions and arrays need NumPy alone.

* compare: Compares two sides on the same calls, and words a failure.
* sides  : One side of a comparison: a model, a function or answers, and its names.
* files  : Models in files, recognised by their content.
* plugin : The plugin of pytest: a fixture, and a page for each failed comparison.

May import: errors, formats, context, model, weights, report, keras.config, artifacts, verification.
Entry: `assert_equivalent`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.report import Verification
from cudnn_convert.testing import compare, files, sides
from cudnn_convert.testing.compare import EquivalenceError, Terms, judge_sides
from cudnn_convert.testing.sides import Side

__all__ = ["EquivalenceError", "assert_equivalent"]


def assert_equivalent(
    actual: Any,
    expected: Any,
    feeds: Any = None,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    signature: str | None = None,
    dtype: Any = None,
    noise: float | Mapping[str, float] = 0.0,
    atol: float | None = None,
    rtol: float | None = None,
    time_axis: int | Mapping[str, int] | None = None,
    lengths: Any = None,
    report: str | os.PathLike[str] | None = None,
) -> Verification:
    """Runs both on the same arrays; gives what was found, or raises EquivalenceError, which says where.

    `actual`, `expected`: a function, a file or folder, a model in memory, or the answers themselves. `feeds`:
    the inputs of one call or of several in a row, by the names of `expected`; None: those of a recording.
    `inputs` and `outputs` map names of `actual` to those of `expected` where they differ. `docs/testing.md`
    has all of it. Raises UsageError where the two cannot be compared, ReadError where a file does not load.
    """
    __tracebackhide__ = True
    fed = sides.of_recording(expected) if feeds is None else sides.calls(feeds)
    ours, theirs = _open_side(actual, "actual", signature), _open_side(expected, "expected", signature)
    if signature is not None and not (ours.signed or theirs.signed):
        kinds = f"{ours.kind} and {theirs.kind}"
        raise UsageError(f"signature: expected a model with signatures, found {kinds}")
    terms = Terms(
        inputs=inputs or {},
        outputs=outputs or {},
        atol=atol,
        rtol=rtol,
        noise=noise,
        dtype=None if dtype is None else _float(dtype),
        time_axis=time_axis,
        lengths=lengths,
    )
    result = judge_sides(ours, theirs, fed, terms)
    lines = () if report is None else (write_report(result, Path(report)),)
    if not result.passed:
        raise EquivalenceError(result, *compare.lines(result), *lines)
    return result


def _open_side(given: Any, where: str, signature: str | None) -> Side:
    if isinstance(given, str | os.PathLike):
        return files.open_file(Path(given), where=where, signature=signature)
    if isinstance(given, Mapping) or sides.is_array(given):
        return sides.replay_answers(where, [given])
    if isinstance(given, list | tuple):
        return sides.replay_answers(where, given)
    return sides.open_model(given, where=where, signature=signature)


def _float(dtype: Any) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError as cause:
        raise UsageError(f"dtype: expected a type of floats, found {dtype}") from cause
    if kind.kind != "f" and kind.name != "bfloat16":
        raise UsageError(f"dtype: expected a type of floats, found {kind}")
    return kind


def write_report(result: Verification, path: Path) -> str:
    """Writes the report, over an older one, and gives the line that says so.

    Raises UsageError where another file is there, WriteError.
    """
    from cudnn_convert.report import prepare_report

    with prepare_report(path, force=True) as keep:
        keep(result)
    return f"report: {path}"
