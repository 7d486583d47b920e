"""The accuracy gate of `--quantize`: what it asks for, what it says where it fails, what it leaves behind.

An artifact that is less exact than its source on purpose is judged by a bound that its user gives, on the
user's own inputs. Nothing lies at OUT where the bound does not hold.
"""

from __future__ import annotations

import json
from typing import Any

from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.report import OutputReport, Verification


def refuse(options: Options) -> None:
    """Raises UsageError where a flag is missing, or has no meaning beside the gate."""
    if options.quantize is None:
        if options.max_error is not None:
            raise UsageError(
                "--max-error: expected --quantize, found none; give it, or --atol in the place of --max-error"
            )
        return
    flag = "--quantize"
    if options.format != "onnx":
        raise UsageError(f"{flag}: expected --format onnx, found {options.format}")
    if options.max_error is None:
        raise UsageError(f"{flag}: expected --max-error, the largest error that you accept, found none")
    if not options.verify:
        raise UsageError(f"{flag}: expected a proof of --max-error, found --no-verify")
    if options.data is None:
        raise UsageError(f"{flag}: expected --data, inputs of yours to measure the error on, found none")
    if options.weights_dtype != "float32":
        raise UsageError(f"{flag}: expected --weights-dtype float32, found {options.weights_dtype}")
    if options.atol is not None or options.rtol is not None:
        raise UsageError(f"{flag}: expected --max-error alone, found --atol or --rtol")


def recorded(options: Options) -> dict[str, Any]:
    """What an artifact says of its gate; nothing where it has none."""
    if options.quantize is None:
        return {}
    return {"quantize": options.quantize, "max_error": options.max_error}


def failed(result: Verification, options: Options) -> str:
    """One line: the largest error, where it is, and the bound."""
    wrong = sorted((one for one in result.outputs if not one.passed), key=lambda one: -one.needed)
    found = ", ".join(f"{_worst(one)} in output {one.output}" for one in wrong)
    expected = f"no error above {options.max_error:g} on {options.data}"
    leave = "leave out --quantize and --max-error"
    # No bound lets a choice pass that is another one.
    cure = f"raise --max-error, or {leave}" if all(map(_is_above, wrong)) else leave
    return f"--quantize: expected {expected}, found {found}; {cure}"


def _worst(found: OutputReport) -> str:
    return f"{found.max_abs:.2e}" if _is_above(found) else found.message


def _is_above(found: OutputReport) -> bool:
    """Whether an output of floats has a larger error than the bound."""
    return found.max_abs is not None and found.max_abs > found.atol


def errors(result: Verification) -> dict[str, float]:
    """The largest absolute error of each output of floats."""
    return {found.output: found.max_abs for found in result.outputs if found.max_abs is not None}


def note(result: Verification, options: Options) -> str:
    """What a report says of a gate that held."""
    found = errors(result)
    worst = max(found, key=lambda name: found[name], default=None)
    told = (
        "all outputs are choices" if worst is None else f"largest error {found[worst]:.2e} in output {worst}"
    )
    return f"{options.quantize}: {told}, on {options.data}; --max-error {options.max_error:g}"


def told(text: str, result: Verification) -> str:
    """The provenance beside an artifact, with the errors that were measured on this machine."""
    return json.dumps({**json.loads(text), "errors": errors(result)}, indent=2)
