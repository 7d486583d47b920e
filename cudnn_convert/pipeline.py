"""The walk: read, plan, lower, write, verify. Everything else is a room of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudnn_convert import __version__, gate, matrices, notes, planning, progress, read, report, specs, targets
from cudnn_convert.errors import AccessError, ReadError, UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Model
from cudnn_convert.options import READING, Options, is_seed, kept, limited
from cudnn_convert.plan import Plan
from cudnn_convert.quiet import muted, quiet
from cudnn_convert.read import extent, links
from cudnn_convert.report import Report, Subject, Verification, WeightsReport
from cudnn_convert.verification import origin, recording
from cudnn_convert.verification.check import SEED, verified
from cudnn_convert.verification.run import Runner
from cudnn_convert.write import place

if TYPE_CHECKING:
    from cudnn_convert.weights import Loaded


@quiet()
@limited
def convert(
    source: Path, out: Path, options: Options, *, ready: Callable[[Report], None] = lambda report: None
) -> Report:
    """Converts `source` to `out`. Raises the errors of `cudnn_convert.errors`; `out` is then as it was.

    `ready` is called with the report once all is done but for putting the artifact in its place; what it
    raises ends the conversion.
    """
    targets.refuse(options)
    read.require(source)
    destination = place.Target(out, origin.is_ours, apart(source, options), options.force)
    place.refuse(destination)
    model = planning.opened(source, options, tag=options.tag)
    if planning.is_portable(model, options) and not options.force_convert:
        summary = _left_alone(model, source, options)
        ready(summary)
        return summary
    targets.require(model, options)
    made = planning.planned(model, options)
    made = replace(made, notes=(*made.notes, *targets.notes(made, options)))
    folder, target = _target(made, out, options)
    summary = _report(made, source, target, options)
    text = report.provenance(
        summary,
        tensors={"inputs": dict(made.signature.inputs), "outputs": dict(made.signature.outputs)},
        options={"version": __version__, **_recorded(options)},
    )
    with place.placed(destination, folder=folder) as fresh:
        artifact = fresh / target.relative_to(out) if folder else fresh
        progress.at("lowering")
        with matrices.recycled():
            said = targets.write(made, artifact, options, provenance=text)
        said += notes.late(made.recurrences, summary.notes)
        summary = replace(summary, notes=(*summary.notes, *said))
        if options.lineage:
            summary = replace(summary, weights=_weights(made, artifact, options))
        if folder and options.format != "savedmodel":
            (fresh / place.RECORD).write_text(text, encoding="utf-8")
        if options.verify:
            progress.at("verifying")
            summary = _proven(summary, made, artifact, options)
        if options.quantize and (proof := summary.verification):
            summary = replace(summary, notes=(*summary.notes, gate.note(proof, options)))
            if folder:
                (fresh / place.RECORD).write_text(gate.told(text, proof), encoding="utf-8")
        ready(summary)
    return summary


def apart(source: Path, options: Options, artifact: Path | None = None) -> list[tuple[str, Path]]:
    """The files that a call reads, in words and as paths: none may be written. Raises AccessError."""
    given = {"--data": options.data, "--golden": options.golden, "--architecture": options.architecture}
    flags = [(f"{flag} {path}", path) for flag, path in given.items() if path is not None]
    models = [("the source", source)] + ([("the artifact", artifact)] if artifact is not None else [])
    return [*((f"{what} {path}", one) for what, path in models for one in read.files(path)), *flags]


def _left_alone(model: Model, source: Path, options: Options) -> Report:
    """The report of a conversion that is none."""
    note = "portable already: nothing reaches a cuDNN op, so nothing was written; --force-convert writes it"
    return Report(
        source=str(source),
        kind=model.kind,
        format=options.format,
        out=None,
        inputs={},
        outputs={},
        recurrences=(),
        notes=(*model.notes, note),
        flags=(),
        verification=None,
    )


def _target(made: Plan, out: Path, options: Options) -> tuple[bool, Path]:
    form = FORMATS[options.format]
    folder, target = form.target(out, together=made.model.together)
    if form.each and len(made.parts) > 1 and not folder:
        several = ", ".join(part.name for part in made.parts)
        raise UsageError(
            f"OUT: expected a folder for {several}, found {out.name}; or choose with --signature"
        )
    return folder, target


def _proven(summary: Report, made: Plan, artifact: Path, options: Options) -> Report:
    """The report with the proof in it, also where that failed and the report travels in the error."""
    try:
        # In int8 a weight is another number.
        is_copy = options.quantize is None
        return replace(summary, verification=checked(made, artifact, options, is_copy=is_copy))
    except VerificationError as error:
        raise VerificationError(replace(summary, verification=error.report), *error.reasons) from error
    except ReadError as cause:
        if cause.path != str(artifact):
            raise
        raise RuntimeError("the artifact that was just written does not load") from cause


def checked(made: Plan, artifact: Path | Runner, options: Options, *, is_copy: bool = False) -> Verification:
    """The verification of an artifact, or of what runs as one.

    `is_copy`: this tool wrote it, and its weights are the source's bit for bit. Raises VerificationError
    where the numbers differ.
    """
    with muted():
        result = verified(
            made,
            artifact,
            form=options.format,
            weights_dtype=options.weights_dtype,
            data=options.data,
            recording=options.golden,
            atol=options.atol,
            rtol=options.rtol,
            max_error=options.max_error,
            seed=_seed(options),
            vouched=planning.vouched(options),
        )
    if isinstance(artifact, Path):
        result = _mapped(result, made, artifact, options, is_copy=is_copy)
    if not result.passed and options.quantize:
        raise VerificationError(result, f"{made.model.path}: {gate.failed(result, options)}")
    if not result.passed:
        wrong = (found for found in result.outputs if not found.passed)
        lines = [f"{made.model.path}: output {found.output}: {found.message}" for found in wrong]
        inside = (found for found in result.recurrences if not found.passed)
        lines += [
            f"{made.model.path}: recurrence {found.node}, by itself: {found.message}; in {found.piece}"
            for found in inside
        ]
        if result.glue is not None and not result.glue.passed:
            lines.append(f"{made.model.path}: around the recurrences: {result.glue.message}")
        lines += [f"{made.model.path}: weights of recurrence {line}" for line in result.misplaced]
        if result.recording:  # its warnings tell whether the artifact alone differs, or the source too
            lines += [f"{made.model.path}: {warning}" for warning in result.warnings]
        raise VerificationError(result, *lines)
    if result.unproven:
        raise UnsupportedModelError(made.model.path, [_unproven(node, result) for node in result.unproven])
    return result


def _mapped(
    result: Verification, made: Plan, artifact: Path, options: Options, *, is_copy: bool
) -> Verification:
    """A verification that also fails where weights lie in the artifact as they should not."""
    from cudnn_convert.lineage.objections import objections

    try:
        misplaced = objections(made, options.format, artifact, is_copy=is_copy)
    except ReadError as cause:
        return replace(result, warnings=(*result.warnings, f"weights were not looked for: {cause}"))
    return replace(result, passed=result.passed and not misplaced, misplaced=misplaced)


def _unproven(node: str, result: Verification) -> str:
    """Why nothing was shown of a recurrence."""
    why = next((one.message for one in result.recurrences if one.node == node), "not asked by itself")
    expected = "expected an output that depends on it and can be judged"
    cure = "give inputs on which one does with --data, or convert with --no-verify"
    return f"recurrence {node}: not proven: {why}; {expected}, found none on these inputs; {cure}"


def _seed(options: Options) -> int:
    """The seed of the proof's random inputs."""
    return SEED if options.seed is None else options.seed


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
    found = {name: getattr(options, name) for name in (*READING, "lowering", "jit", "weights_dtype")}
    found |= gate.recorded(options) | {"seed": _seed(options)}
    return {name: list(value) if isinstance(value, list | tuple) else value for name, value in found.items()}


@quiet()
@limited
def verify(source: Path, artifact: Path, options: Options) -> Verification:
    """Verifies an artifact by the provenance it carries, or by the options where it carries none."""
    pair = paired(source, artifact, options)
    progress.at("verifying")
    try:
        result = checked(pair.plan, pair.path, pair.options, is_copy=pair.is_copy)
    except VerificationError as error:
        result = replace(error.report, subject=_subject(pair.plan, source, pair.path, pair.options))
        raise VerificationError(result, *error.reasons) from error
    return replace(result, subject=_subject(pair.plan, source, pair.path, pair.options))


@quiet()
@limited
def mapped(source: Path, artifact: Path | None, options: Options) -> Subject:
    """Where each weight of `source` went in an artifact, by default in one that a conversion would write.

    That one is written to a temporary folder, and nothing is compared. Raises as `convert` and `verify` do.
    """
    options = replace(options, lineage=True, verify=False, force_convert=True)
    if artifact is not None:
        pair = paired(source, artifact, options)
        return _subject(pair.plan, source, pair.path, pair.options)
    with tempfile.TemporaryDirectory() as folder:
        found = convert(source, Path(folder, "out"), options)
    shared = {name: getattr(found, name) for name in ("inputs", "outputs", "recurrences", "notes", "weights")}
    return Subject(found.source, found.kind, found.format, artifact=None, **shared)


@quiet()
@limited
def alone(source: Path, options: Options) -> Plan:
    """The plan of a source's recurrences by themselves, for a format of weights."""
    return planning.planned(planning.opened(source, options, tag=options.tag), options)


@limited
def load(source: Path, options: Options) -> Loaded:
    """The decoded weights of a source. Raises the errors of `cudnn_convert.errors`."""
    from cudnn_convert import weights

    made = alone(source, options)
    found = tuple(weights.decoded(one) for one in made.singles)
    return weights.Loaded(str(source), made.model.kind, found, made.notes)


@dataclass(frozen=True)
class Pair:
    """An artifact beside the plan that it was, or could have been, made by."""

    plan: Plan
    #: Of the artifact's own file or folder, and the options with its format.
    path: Path
    options: Options
    #: Whether its weights are copies of the source's, read as they were read then.
    is_copy: bool


def paired(source: Path, artifact: Path, options: Options) -> Pair:
    """Plans a source as an artifact's provenance says, or as the options where it carries none."""
    with progress.on(artifact):
        form, path, recorded = _opened(artifact, trust=options.trust)
    told = not (options.inputs or options.outputs or options.set)
    # Without a graph of its own, the source has the signatures that these options gave it.
    again = kept(recorded["options"], where=f"{path}: provenance") if recorded and told else {}
    model = planning.opened(source, options, tag=again.get("tag", options.tag))
    if recorded and told:
        given = replace(options, format=form, **again)
        together = model.graph is None and model.architecture is None
        if not (together or FORMATS[form].alone or planning.stays_whole(model, given)):
            # Inputs as they were given, where they were: they may refine shapes.
            again["inputs"] = again["inputs"] or _pairs(recorded["inputs"])
            again["outputs"] = _pairs(recorded["outputs"])
        options = replace(options, **again)
    stored = recorded["options"].get("weights_dtype", "float32") if recorded else options.weights_dtype
    options = replace(options, format=form, weights_dtype=stored)
    again_seed = recorded["options"].get("seed") if recorded else None
    if options.seed is None and is_seed(again_seed):
        options = replace(options, seed=again_seed)
    is_copy = recorded is not None and told and recorded["options"].get("quantize") is None
    if recorded or model.signatures or options.signature is None:
        return Pair(planning.planned(model, options), path, options, is_copy)
    # A source without signatures has nothing to choose from: the artifact's is meant.
    made = planning.planned(model, replace(options, signature=None))
    if len(made.parts) == 1:
        made = replace(made, parts=(replace(made.parts[0], name=options.signature),))
    return Pair(made, path, options, is_copy)


def _opened(artifact: Path, *, trust: bool) -> tuple[str, Path, dict[str, Any] | None]:
    """What an artifact is, and its provenance; its files lie in its folder, unless it is trusted."""
    try:
        links.refuse(artifact, trust=trust)
        form, path, recorded = origin.read(artifact)
        links.refuse(artifact, [path, *extent.prefix_files(path)], trust=trust)
    except OSError as cause:
        raise AccessError(cause.filename or artifact, cause.strerror or str(cause)) from cause
    return form, path, recorded


def _subject(made: Plan, source: Path, artifact: Path, options: Options) -> Subject:
    said = _report(made, source, artifact, options)
    return Subject(
        source=said.source,
        kind=said.kind,
        format=said.format,
        artifact=str(artifact),
        inputs=said.inputs,
        outputs=said.outputs,
        recurrences=said.recurrences,
        notes=said.notes,
        weights=_weights(made, artifact, options) if options.lineage else None,
    )


def _weights(made: Plan, artifact: Path, options: Options) -> WeightsReport:
    progress.at("tracing")
    from cudnn_convert import lineage

    with progress.on(artifact):
        return lineage.traced(made, options.format, artifact)


@quiet()
@limited
def record(source: Path, out: Path, options: Options) -> dict[str, Any]:
    """Runs the original on `options.data` and writes what it answers to `out`; gives the file's `meta`.

    Raises the errors of `cudnn_convert.errors`; `out` is then as it was.
    """
    if options.data is None:
        raise UsageError("--data: expected an .npz with the inputs, found none")
    read.require(source)
    destination = place.Target(out, recording.is_ours, apart(source, options), options.force)
    place.refuse(destination)
    model = planning.opened(source, options, tag=options.tag)
    if model.graph is None and model.architecture is None:
        reason = "graph: expected one to run, found weights alone; give the source that they were trained in"
        raise UnsupportedModelError(model.path, [reason])
    from cudnn_convert.verification.record import recorded

    made = planning.planned(model, options)
    with place.placed(destination, folder=False) as fresh, muted():
        progress.at("recording")
        return recorded(made, options.data, fresh, constants=options.set, trust=options.trust)


def _pairs(names: Mapping[str, str]) -> list[str]:
    return [specs.item(key, name) for key, name in names.items()]
