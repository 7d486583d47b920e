"""The accuracy gate of `--quantize`: a bound of the user's, on the user's inputs.

An artifact that is less exact than its source on purpose is judged by that bound. Where it exceeds the bound,
nothing is written to OUT.
"""

import json
from typing import Any

from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.report import Verification
from cudnn_convert.report.values import OutputReport


def check_options(options: Options) -> None:
    """Check the flags of the accuracy gate.

    Raises UsageError where one is missing, or has no effect with the gate.
    """
    if options.quantize is None:
        if options.max_error is not None:
            raise UsageError(
                "--max-error needs --quantize; for an exact artifact use --atol in place of --max-error"
            )
        return
    flag = "--quantize"
    if options.form.calibrates and not options.has_fixed_sizes:
        raise UsageError(f"{flag} of TensorFlow Lite needs --lowering fused: loops stay in float32")
    if options.max_error is None and not options.form.calibrates:
        raise UsageError(f"{flag} needs --max-error: the largest error that you accept")
    if not options.verify:
        raise UsageError(f"{flag} needs a proof of --max-error; leave out --no-verify")
    if options.data is None:
        raise UsageError(f"{flag} needs --data: inputs of yours to measure the error on")
    if options.weights_dtype != "float32":
        raise UsageError(
            f"{flag} cannot be combined with --weights-dtype {options.weights_dtype}; leave one out"
        )
    if options.atol is not None or options.rtol is not None:
        raise UsageError(f"{flag} is judged by --max-error alone; leave out --atol and --rtol")


def gate_provenance(options: Options) -> dict[str, Any]:
    """Return the gate's entries for an artifact's provenance; empty unless `--quantize` is given."""
    if options.quantize is None:
        return {}
    return {"quantize": options.quantize, "max_error": options.max_error}


def failure_message(result: Verification, options: Options) -> str:
    """Return a line with the largest errors, the outputs, and the bound."""
    wrong = sorted(
        (output for output in result.outputs if not output.passed), key=lambda output: -output.needed
    )
    actual = ", ".join(f"{_worst(output)} in output {output.output}" for output in wrong)
    bounds = dict.fromkeys(_describe_bound(output, options) for output in wrong)
    expected = f"no error above {' or '.join(bounds)} on {result.data}"
    given = options.max_error is not None
    leave = "leave out --quantize and --max-error" if given else "leave out --quantize"
    # A larger bound does not help an output of integers or strings that differs.
    more = "raise --max-error" if given else "give a larger one with --max-error"
    cure = f"{more}, or {leave}" if all(map(_is_above, wrong)) else leave
    return f"--quantize: expected {expected}, found {actual}; {cure}"


def _describe_bound(output: OutputReport, options: Options) -> str:
    if options.max_error is not None:
        return f"{options.max_error:g}"
    return f"{output.atol:.2g} ({output.reason})"


def _worst(output: OutputReport) -> str:
    return f"{output.max_abs:.2e}" if _is_above(output) else output.message


def _is_above(output: OutputReport) -> bool:
    """Return True if a float output has an error above the bound."""
    return output.max_abs is not None and output.max_abs > output.atol


def errors(result: Verification) -> dict[str, float]:
    """Return the largest absolute error of each float output."""
    return {output.output: output.max_abs for output in result.outputs if output.max_abs is not None}


def note(result: Verification, options: Options) -> str:
    """Return the report's note on a passed gate."""
    figures = errors(result)
    worst = max(figures, key=lambda name: figures[name], default=None)
    message = (
        "all outputs are choices"
        if worst is None
        else f"largest error {figures[worst]:.2e} in output {worst}"
    )
    if options.max_error is not None:
        bound = f"--max-error {options.max_error:g}"
    else:
        floats = [output for output in result.outputs if output.max_abs is not None]
        bound = f"at most {', '.join(dict.fromkeys(_describe_bound(each, options) for each in floats))}"
    return f"{options.quantize}: {message}, on {result.data}; {bound}"


def add_errors(text: str, result: Verification) -> str:
    """Add the locally measured errors to the provenance beside an artifact."""
    return json.dumps({**json.loads(text), "errors": errors(result)}, indent=2)
