"""Serves a pool as a worker process: takes requests in turn and answers with outcomes.

A request and its answer are a line of JSON each, on the stdin and the stdout that the process was started
with: what a worker reads comes from strangers, so nothing that it says is unpickled. Other output of it goes
to stderr, a file that the pool keeps. What it has imported stays for the next model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudnn_convert import process, workers
from cudnn_convert.batch import jobs, results
from cudnn_convert.context import Limits
from cudnn_convert.errors import UnprovenError, VerificationError
from cudnn_convert.options import Options

if TYPE_CHECKING:
    from cudnn_convert.report import Verification

Request = Mapping[str, Any]
#: What a request's work says: fields of a `JobResult`.
Outcome = dict[str, Any]
#: The function that does the work of a request, as `module:name`.
CONVERT: Final = "cudnn_convert.batch.worker:convert_model"


def serve(parent: int, scratch: str, work: str) -> None:
    """Answer requests until stdin ends: `workers.answer_requests`."""
    workers.answer_requests(
        parent, scratch, partial(_answer, work), lambda request, error: explain(request["source"], error)
    )


def _answer(work: str, request: Request) -> Outcome:
    """Do the work of a request under the request's limits."""
    limits = Limits.of(request["options"].get("limit", ()))
    process.set_limits(replace(limits, memory=request["memory"]))
    module, _, name = work.partition(":")
    do: Callable[[Request], Outcome] = getattr(import_module(module), name)
    return do(request)


def explain(source: str, error: Exception) -> Outcome:
    """Return the outcome of an exception, a refusal or `crashed`.

    A refusal has the single command's exit code.
    """
    outcome = process.outcome_of(error)
    status, reasons = results.CRASHED, [*outcome.lines]
    if outcome.is_memory:
        reasons = [f"{source}: {line}" for line in reasons]
    elif outcome.is_bug:
        reasons = [process.explain_bug(), *reasons]
    else:
        statuses = {VerificationError: results.DIFFERENT, UnprovenError: results.UNPROVEN}
        status = statuses.get(type(error), results.REFUSED)
    return {"status": status, "exit_code": outcome.exit_code, "reasons": reasons}


def convert_model(request: Request) -> Outcome:
    """Convert the model of a request as the single command does."""
    source, out = Path(request["source"]), Path(request["out"])
    options = Options.of_json(request["options"])
    digests = {"source": jobs.digest_source(source)}
    page = None if request["page"] is None else Path(request["page"])
    try:
        from cudnn_convert import pipeline
        from cudnn_convert.report.files import write_reports

        apart = [] if page is None else [*pipeline.apart(source, options), (f"OUT {out}", out)]
        with write_reports(page, apart=apart, force=True) as keep:
            report = pipeline.convert(source, out, options, ready=keep, shared=request["shared"])
    except Exception as error:
        if process.stopping.is_set():
            raise
        proof = error.report.verification if isinstance(error, VerificationError) else None
        return {**explain(request["source"], error), "verification": sum_up(proof), "digests": digests}
    warnings = [*report.warnings, *(report.verification.warnings if report.verification else ())]
    reasons = [f"{request['source']}: {warning}" for warning in warnings]
    if report.out is not None:
        digests["artifact"] = jobs.digest_path(out)
    return {
        "status": results.PORTABLE if report.out is None else results.CONVERTED,
        "exit_code": 0,
        "reasons": reasons,
        "verification": sum_up(report.verification),
        "digests": digests,
    }


def sum_up(proof: Verification | None) -> dict[str, Any] | None:
    """Return a summary of a proof, if any.

    It is None where there was none. `needed` is the largest share of a tolerance used.
    """
    if proof is None:
        return None
    shares = [output.needed for output in proof.outputs if output.judged]
    shares += [piece.needed for piece in proof.recurrences if piece.asked]
    needed = max(shares, default=math.inf)
    return {
        "passed": proof.passed,
        "end_to_end": proof.end_to_end,
        "needed": needed if math.isfinite(needed) else None,
        "outputs": len(proof.outputs),
        "recurrences": len(proof.recurrences),
        "unproven": list(proof.unproven),
        "seed": proof.seed,
    }
