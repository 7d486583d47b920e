"""Compares the numbers of two models in a user's tests.

    from cudnn_convert.testing import assert_equivalent
    assert_equivalent("converted.onnx", original, {"x": x})

Nothing heavy is imported before a comparison needs it: functions and arrays need NumPy alone.

* compare: Compares two sides on the same calls: pairs of names, values, and bounds.
* sides  : Opens a side of a comparison: a model, file, function or answers.
* plugin : The plugin of pytest: a fixture, and a page for each failed comparison.

May import: text, errors, private, formats, context, model, weights, report, keras.config, artifacts,
verification.
Entry: `assert_equivalent`.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.context import hold_process_lock
from cudnn_convert.errors import UsageError, VerificationError
from cudnn_convert.report import Verification
from cudnn_convert.report.values import OutputReport, OverTime
from cudnn_convert.testing import compare, sides
from cudnn_convert.testing.sides import Side

__all__ = ["EquivalenceError", "assert_equivalent"]


class EquivalenceError(VerificationError, AssertionError):
    """A difference in the answers of two models.

    `report` is the `Verification` that says where.
    """


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
    """Run two sides on the same arrays, and raise EquivalenceError if answers differ.

    `actual`, `expected`: a function, a file or folder, a model in memory, or the answers themselves. `feeds`:
    the inputs of one call or of several in a row, by the names of `expected`; None: those of a recording.
    `inputs` and `outputs` map names of `actual` to those of `expected` where they differ. `docs/testing.md`
    has all of it. Raises UsageError where the two cannot be compared, ReadError where a file does not load.
    """
    __tracebackhide__ = True
    with hold_process_lock():  # what another thread converts changes how models of Keras run
        fed = compare.of_recording(expected) if feeds is None else compare.calls(feeds)
        ours, theirs = _open_side(actual, "actual", signature), _open_side(expected, "expected", signature)
        if signature is not None and not (ours.signed or theirs.signed):
            kinds = f"{ours.kind} and {theirs.kind}"
            raise UsageError(f"signature: expected a model with signatures, found {kinds}")
        parameters = compare.Parameters(
            inputs=inputs or {},
            outputs=outputs or {},
            atol=atol,
            rtol=rtol,
            noise=noise,
            dtype=None if dtype is None else _float(dtype),
            time_axis=time_axis,
            lengths=lengths,
        )
        result = compare.judge_sides(ours, theirs, fed, parameters)
    lines = () if report is None else (write_report(result, Path(report)),)
    if not result.passed:
        raise EquivalenceError(result, *describe_failure(result), *lines)
    return result


def _open_side(given: Any, where: str, signature: str | None) -> Side:
    if isinstance(given, str | os.PathLike):
        return sides.open_file(Path(given), where=where, signature=signature)
    if isinstance(given, Mapping) or sides.is_array(given):
        given = [given]
    if isinstance(given, list | tuple):
        return sides.replay_answers(f"arrays given as {where}", given)
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
    """Write the report over an older report, and return a line with the path.

    Raises UsageError where another file is there, WriteError.
    """
    from cudnn_convert.report.files import write_reports

    with write_reports(path, force=True) as keep:
        keep(result)
    return f"report: {path}"


_HEADS: Final = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "expected", "found", "judged as"),
)
#: The most points of an error over time.
_POINTS: Final = 8
_NOTHING: Final = "-"
#: From here on a share of the tolerance is told in times, as on the page.
_TIMES: Final = 10


def describe_failure(result: Verification) -> Iterator[str]:
    """Yield the message of a failure, a line each."""
    wrong = [output for output in result.outputs if not output.passed]
    subject = result.subject
    both = f": {subject.artifact} against {subject.source}" if subject else ""
    yield f"{len(wrong)} of {len(result.outputs)} outputs differ{both}"
    for output in wrong:
        yield f"output {output.output}: {output.message}"
    yield from _table([_HEADS, *map(_row, result.outputs)])
    for output in result.outputs:
        if output.over_time is not None and not output.passed:
            yield f"{output.output}: largest error from step: {_over_time(output.over_time)}"
    for warning in result.warnings:
        yield f"warning: {warning}"
    for remark in result.remarks:
        yield f"remark: {remark}"
    shapes = (", ".join(f"{key} {[*shape]}" for key, shape in feed.items()) for feed in result.feeds)
    yield f"compared on: {'; '.join(shapes)}"


def _row(output: OutputReport) -> Sequence[str]:
    worst = output.worst_element
    exact = output.max_abs is None
    return (
        output.output,
        "equal" if output.passed else "different",
        str(output.compared),
        _number(output.max_abs, ".2e"),
        _number(output.max_rel, ".2e"),
        _number(output.ulp, "d"),
        _number(output.cosine, ".9f"),
        _NOTHING if exact else _share(output.needed),
        f"feed {worst.feed + 1} {[*worst.index]}" if worst else _NOTHING,
        _value(worst.expected) if worst else _NOTHING,
        _value(worst.found) if worst else _NOTHING,
        output.reason,
    )


def _number(value: float | int | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _share(needed: float) -> str:
    """Format a share of the tolerance in per cent, a large share as a multiple."""
    return f"{needed:,.0f} times" if _TIMES <= needed < math.inf else f"{needed:.1%}"


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _over_time(over_time: OverTime) -> str:
    """Format the errors over time as maxima of at most `_POINTS` groups of steps."""
    size = -(-len(over_time.errors) // _POINTS)
    starts = range(0, len(over_time.errors), size)
    return ", ".join(f"{k * over_time.group}: {max(over_time.errors[k : k + size]):.1e}" for k in starts)
