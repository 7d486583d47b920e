"""The walk: read, plan, lower, write, verify. Everything else is a room of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert import __version__, plan, report
from cudnn_convert.errors import ReadError, UsageError, VerificationError
from cudnn_convert.formats import FORMATS
from cudnn_convert.lower import freeze
from cudnn_convert.lower import tensorflow as lower_tensorflow
from cudnn_convert.lower.tensorflow import Lowered
from cudnn_convert.model import Model
from cudnn_convert.plan import Plan
from cudnn_convert.quiet import quiet
from cudnn_convert.read import read
from cudnn_convert.report import Report, Verification
from cudnn_convert.verification import origin
from cudnn_convert.verification.check import verified
from cudnn_convert.write import frozen_graph, place, saved_model

WEIGHTS: Final = ("auto", "canonical", "raw", "ema")
LOWERINGS: Final = ("fast", "portable")


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of a conversion, by their own names."""

    format: str = "savedmodel"
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    set: Sequence[str] = ()
    weights: str = "auto"
    opset: int = 17
    lowering: str = "fast"
    data: Path | None = None
    atol: float | None = None
    rtol: float | None = None
    verify: bool = True
    trust: bool = False
    force: bool = False
    progress: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        for flag, value, choices in (
            ("--format", self.format, tuple(FORMATS)),
            ("--weights", self.weights, WEIGHTS),
            ("--lowering", self.lowering, LOWERINGS),
        ):
            if value not in choices:
                raise UsageError(f"{flag}: expected {', '.join(choices)}, found {value!r}")
        for flag, bound in (("--atol", self.atol), ("--rtol", self.rtol)):
            if bound is not None and not 0 <= bound < math.inf:
                raise UsageError(f"{flag}: expected a number of at least 0, found {bound}")


@quiet()
def convert(source: Path, out: Path, options: Options) -> Report:
    """Converts `source` to `out`. Raises the errors of `cudnn_convert.errors`; `out` is then as it was."""
    folder, target = FORMATS[options.format].target(out)
    place.refuse(out, source=source, force=options.force)
    options.progress("reading")
    made = planned(read(source), options)
    summary = _report(made, source, target, options)
    text = report.provenance(
        summary,
        tensors={"inputs": dict(made.signature.inputs), "outputs": dict(made.signature.outputs)},
        options={"version": __version__, **_recorded(options)},
    )
    with place.placed(out, source=source, folder=folder, force=options.force) as fresh:
        artifact = fresh / target.relative_to(out) if folder else fresh
        options.progress("writing")
        _WRITERS[options.format](made, artifact, text, options)
        if folder and options.format != "savedmodel":
            (fresh / place.RECORD).write_text(text, encoding="utf-8")
        if options.verify:
            options.progress("verifying")
            summary = replace(summary, verification=_proven(made, artifact, options))
    return summary


def _proven(made: Plan, artifact: Path, options: Options) -> Verification:
    try:
        return checked(made, artifact, options)
    except ReadError as cause:
        if cause.path != str(artifact):
            raise
        raise RuntimeError("the artifact that was just written does not load") from cause


def planned(model: Model, options: Options) -> Plan:
    """The plan for a model that was read."""
    return plan.make(
        model,
        inputs=options.inputs,
        outputs=options.outputs,
        constants=options.set,
        weights=options.weights,
    )


def checked(made: Plan, artifact: Path, options: Options) -> Verification:
    """The verification of an artifact. Raises VerificationError where the numbers differ."""
    result = verified(
        made,
        artifact,
        form=options.format,
        data=options.data,
        atol=options.atol,
        rtol=options.rtol,
        trust=options.trust,
    )
    if not result.passed:
        wrong = (found for found in result.outputs if not found.passed)
        lines = [f"{made.model.path}: output {found.output}: {found.message}" for found in wrong]
        raise VerificationError(result, "\n".join(lines))
    return result


def _report(made: Plan, source: Path, target: Path, options: Options) -> Report:
    return Report(
        source=str(source),
        kind=made.model.kind,
        format=options.format,
        out=str(target),
        inputs=dict(made.source.inputs),
        outputs=dict(made.source.outputs),
        recurrences=tuple(report.of_recurrence(found) for found in made.recurrences),
        notes=made.notes,
        flags=made.flags,
        verification=None,
    )


def _recorded(options: Options) -> dict[str, Any]:
    """The options that a later verification needs."""
    return {
        "set": list(options.set),
        "weights": options.weights,
        "lowering": options.lowering,
        "inputs": list(options.inputs),
        "outputs": list(options.outputs),
    }


def _lowered(made: Plan, options: Options) -> Lowered:
    """The CPU graph of a plan, with the signature's inputs even where nothing reads them."""
    kept = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    return lower_tensorflow.lower(
        made.graph, made.recurrences, made.model.variables, outputs=kept, lowering=options.lowering
    )


def _write_saved_model(made: Plan, path: Path, provenance: str, options: Options) -> None:
    lowered = _lowered(made, options)
    saved_model.write(path, lowered.graph, made.signature, lowered.variables, provenance=provenance)


def _write_frozen(made: Plan, path: Path, _: str, options: Options) -> None:
    lowered = _lowered(made, options)
    graph = freeze.frozen(lowered.graph, lowered.variables, made.signature.outputs.values())
    frozen_graph.write(path, graph)


def _write_onnx(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.lower import onnx as lower_onnx
    from cudnn_convert.write import onnx as write_onnx

    detached = freeze.without_parameters(made.graph, made.recurrences, made.signature.outputs.values())
    graph = freeze.frozen(detached, made.model.variables, made.signature.outputs.values())
    model = lower_onnx.lower(graph, made.signature, made.recurrences, opset=options.opset)
    write_onnx.write(model, path, provenance=provenance)


_WRITERS: Final[Mapping[str, Callable[[Plan, Path, str, Options], None]]] = MappingProxyType(
    {"savedmodel": _write_saved_model, "frozen": _write_frozen, "onnx": _write_onnx}
)


@quiet()
def verify(source: Path, artifact: Path, options: Options) -> Verification:
    """Verifies an artifact by the provenance it carries, or by the options where it carries none."""
    form, path, recorded = origin.read(artifact)
    if recorded and not (options.inputs or options.outputs or options.set):
        kept = recorded["options"]
        options = replace(
            options,
            # As they were given, where they were: they may refine shapes.
            inputs=kept["inputs"] or _pairs(recorded["inputs"]),
            outputs=_pairs(recorded["outputs"]),
            set=kept["set"],
            weights=kept["weights"],
        )
    return checked(planned(read(source), options), path, replace(options, format=form))


def _pairs(names: Mapping[str, str]) -> list[str]:
    return [f"{key}={name}" for key, name in names.items()]
