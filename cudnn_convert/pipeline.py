"""Converts, verifies, records, loads and maps: read, plan, lower, write, verify."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudnn_convert import context, read, storage, targets
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import Answers
from cudnn_convert.context import mute_output, silence
from cudnn_convert.errors import (
    CudnnConvertError,
    ReadError,
    UnprovenError,
    UnsupportedModelError,
    UsageError,
    VerificationError,
    name_access,
)
from cudnn_convert.feeds.data import Data, Shard, read_calls
from cudnn_convert.formats import Content, Keeps, part_file
from cudnn_convert.model import Model
from cudnn_convert.options import READING, Options, from_provenance, is_seed, list_flags, with_limits
from cudnn_convert.plan import Plan, RecurrencesPlan, from_weights, keras_recurrences, network, notes
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import (
    cut_at_layers,
    is_portable,
    needs_gpu,
    read_shared,
    read_source,
    stays_whole,
    user_code,
)
from cudnn_convert.read import paths
from cudnn_convert.report import Report, Verification, model_reports
from cudnn_convert.report.provenance import make_provenance
from cudnn_convert.report.values import DecoderReport, Origin, Subject, WeightsReport
from cudnn_convert.storage import staging
from cudnn_convert.targets import accuracy_gate, firmware, flags
from cudnn_convert.text import command
from cudnn_convert.verification import check, recordings, shards, trials
from cudnn_convert.verification.end_to_end import Bounds
from cudnn_convert.verification.settings import (
    Settings,
    choose_judge,
    choose_seed,
    make_settings,
    open_runner,
)
from cudnn_convert.version import __version__, list_versions
from cudnn_convert.weights import buffers

if TYPE_CHECKING:
    from cudnn_convert.recurrences.named_weights import Loaded

#: As `map`: calls a function with the items of several lists, somewhere, and yields its results in order.
Share = Callable[..., Iterator[Any]]
#: Characters of a path of variables that TensorFlow takes for a pattern that does not match itself:
#: tensorflow v2.21.0 core/util/tensor_slice_reader.cc (TensorSliceReader, GetMatchingPaths).
_PATTERN: Final = frozenset("[\\" if os.sep == "/" else "[")


@staging.with_copies
@silence()
@with_limits
def convert(
    source: Path,
    out: Path,
    options: Options,
    *,
    ready: Callable[[Report], None] = lambda report: None,
    shared: Collection[str] = (),
) -> Report:
    """Convert `source` to `out`; an error leaves `out` as before.

    `ready` is called with the report before the artifact is moved to `out`; what it raises ends the
    conversion. `shared` names the options that other models have too: one that means nothing for the kind of
    this one is passed over with a warning. Raises the errors of `cudnn_convert.errors`.
    """
    flags.check_options(options)
    read.require(source)
    destination = storage.Destination(out, runners.is_ours, apart(source, options), options.force)
    storage.refuse(destination)
    model, options, passed_over = read_shared(source, options, shared)
    if is_portable(model, options) and not options.force_convert:
        summary = replace(_report_portable(model, source, options), warnings=passed_over)
        ready(summary)
        return summary
    options = flags.settle_layers(model, options)
    plan = targets.prepare(_make_plan(model, options), options)
    plan = replace(plan, warnings=(*passed_over, *plan.warnings))
    plan = _with_examples(_with_axes(plan, options), options)
    folder, target = _target(plan, out, options)
    summary = replace(_report(plan, source, target, options), origin=_origin(plan, source, out, options))
    text = make_provenance(
        summary,
        tensors={"inputs": dict(plan.signature.inputs), "outputs": dict(plan.signature.outputs)},
        options={"version": __version__, **_options_record(options)},
        begins=dict(plan.streaming.begins) if plan.streaming else {},
        encoded=[each.key for each in plan.streaming.encoded] if plan.streaming else [],
    )
    with storage.atomic_output(destination, folder=folder) as fresh:
        artifact = fresh / target.relative_to(out) if folder else fresh
        context.report_progress("lowering")
        with buffers.buffer_pool():
            notes_of_target = targets.write_artifact(plan, artifact, options, provenance=text)
        notes_of_target += notes.late(plan.recurrences, summary.notes)
        summary = replace(summary, notes=(*summary.notes, *notes_of_target))
        if options.lineage:
            summary = replace(summary, weights=_weights(plan, artifact, options))
        if folder and not options.form.has_own_folder:
            (fresh / storage.RECORD).write_text(text, encoding="utf-8")
        if options.verify:
            context.report_progress("verifying")
            summary = _proven(summary, plan, artifact, options)
        # Another runtime lacks some kernels.
        elif options.form.has_foreign_runtime and not isinstance(plan, RecurrencesPlan):
            with _name_refusals(plan, artifact, options):
                runners.require_loadable(options.format, artifact, plan.all_parts)
        if options.has_fixed_sizes:
            summary = _measure_in_micro(summary, plan, artifact, options)
            if folder:
                _write_firmware(summary, artifact, out.stem)
        if options.quantize and (proof := summary.verification):
            summary = replace(summary, notes=(*summary.notes, accuracy_gate.note(proof, options)))
            if folder:
                (fresh / storage.RECORD).write_text(accuracy_gate.add_errors(text, proof), encoding="utf-8")
        ready(summary)
    return summary


def _make_plan(model: Model, options: Options) -> Plan:
    """Plan a model, and decide the scale of a search by the model's numbers.

    Raises as `make_plan` and `decide_scale` do.
    """
    plan = make_plan(model, options)
    if plan.decoder is None:
        return plan
    from cudnn_convert.verification import scales

    with mute_output():
        return scales.decide_scale(plan, options)


def apart(source: Path, options: Options, artifact: Path | None = None) -> list[tuple[str, Path]]:
    """List the files read by a call, described and as paths.

    None of them may be written.
    """
    given = {"--golden": options.golden, "--architecture": options.architecture}
    flags = [(f"{flag} {path}", path) for flag, path in given.items() if path is not None]
    if data := Data.of(options, seed=0):
        flags += [(f"--data {file}", file) for file in data.match()]
    models = [("the source", source)] + ([("the artifact", artifact)] if artifact is not None else [])
    return [*((f"{what} {path}", file) for what, path in models for file in read.files(path)), *flags]


def _report_portable(model: Model, source: Path, options: Options) -> Report:
    """Report an already portable source, left unconverted."""
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


def _with_axes(plan: Plan, options: Options) -> Plan:
    """Name the axes of a plan for an artifact with a graph."""
    form = options.form
    is_graph = form.content is Content.GRAPH and not isinstance(plan, RecurrencesPlan)
    if not is_graph or stays_whole(plan.model, options) or options.has_fixed_sizes:
        return plan
    from cudnn_convert.plan import axes

    return replace(plan, axes=axes.name_axes(plan))


def _with_examples(plan: Plan, options: Options) -> Plan:
    """Read the calls for the calibration of 8 bits, if requested. Raises UsageError."""
    data = Data.of(options, seed=choose_seed(options)) if options.quantize else None
    if data is None or not options.form.calibrates:
        return plan
    feeds = recordings.read_feeds(choose_judge(plan), read_calls(data))
    return replace(plan, examples=tuple(trials.by_key(plan, feed) for feed in feeds))


def _origin(plan: Plan, source: Path, out: Path, options: Options) -> Origin:
    """Digest the source, and record the versions and the command behind the artifact."""
    words = ("cudnn-convert", str(source), str(out), *list_flags(options))
    return Origin(read.digest_files(plan.model.path), list_versions(), words)


def _target(plan: Plan, out: Path, options: Options) -> tuple[bool, Path]:
    form = options.form
    searches = [plan.decoder.part] if plan.decoder else []
    parts = [*plan.all_parts, *searches]
    is_streamed = plan.streaming is not None and len(parts) > 1
    folder, target = form.target(out, together=plan.model.together or is_streamed)
    if Keeps.ONE_FILE not in form.keeps and len(parts) > 1 and not folder:
        several = ", ".join(part.name for part in parts)
        other = f"name one without suffix and give --format {options.format}"
        other += "" if is_streamed else ", or choose with --signature"
        raise UsageError(f"OUT: expected a folder for the parts {several}, found {out.name}; {other}")
    path = str(out.absolute())
    if Keeps.VARIABLES in form.keeps and not form.has_layers and (special := _PATTERN & {*path}):
        expected = f"expected a path that TensorFlow can read variables from, found one with {min(special)}"
        raise UsageError(f"OUT {path}: {expected}; choose another path")
    return folder, target


def _proven(summary: Report, plan: Plan, artifact: Path, options: Options) -> Report:
    """Verify the artifact and add the proof to the report.

    A failed proof raises VerificationError with that report, and an artifact that another runtime than
    TensorFlow's graphs refuses UnsupportedModelError.
    """
    try:
        # Weights quantized to int8 are no copies.
        is_copy = options.quantize is None
        with _name_refusals(plan, artifact, options):
            proof = verify_plan(plan, artifact, options, is_copy=is_copy, is_fresh=True)
    except VerificationError as error:
        reasons = (*plan.model.suspects, *error.reasons)
        raise VerificationError(replace(summary, verification=error.report), *reasons) from error
    return replace(summary, verification=proof)


def _measure_in_micro(summary: Report, plan: Plan, artifact: Path, options: Options) -> Report:
    """Add the needs of a file in TensorFlow Lite Micro to the report.

    A file that Micro refuses gets a note. Raises VerificationError where Micro's numbers differ.
    """
    from cudnn_convert.artifacts import micro  # with TensorFlow, which many conversions do without

    context.report_progress("measuring for TensorFlow Lite Micro")
    files = [part_file(artifact, part.name, ".tflite") for part in plan.parts]
    notes = [f"the figures of TensorFlow Lite Micro are those of {files[0].name}"] if files[1:] else []
    try:
        needs, *others = map(micro.measure, files)
        if missing := dict.fromkeys(name for each in (needs, *others) for name in each.missing):
            notes.append(f"TensorFlow Lite Micro has no kernel for {', '.join(missing)}")
        elif not micro.is_available():
            package = "pip install 'cudnn-convert[micro]' for its interpreter"
            notes.append(f"not run in TensorFlow Lite Micro: {package}")
        elif options.verify:
            pairs = zip(plan.parts, files, strict=True)
            opened = [(part, micro.open_part(file, part)) for part, file in pairs]
            runner = runners.OpenArtifact(options.format, artifact, opened)
            needs = replace(needs, errors=_verify_in_micro(summary, plan, runner, options))
    except micro.MicroError as cause:
        notes = [f"TensorFlow Lite Micro refuses the file: {cause}"]
        return replace(summary, notes=(*summary.notes, *notes))
    return replace(summary, notes=(*summary.notes, *notes), micro=needs)


def _verify_in_micro(
    summary: Report, plan: Plan, runner: runners.Runner, options: Options
) -> dict[str, float]:
    """Return the largest error of each float output in TensorFlow Lite Micro. Raises VerificationError."""
    with mute_output():
        result = check.verify_artifact(plan, runner, options)
    if not result.passed:
        lead = f"{plan.model.path}: in TensorFlow Lite Micro"
        reasons = [f"{lead}: {reason}" for reason in _failures(result, options)]
        raise VerificationError(replace(summary, verification=result), *reasons)
    return accuracy_gate.errors(result)


def _write_firmware(summary: Report, artifact: Path, name: str) -> None:
    """Write C++ source beside a file for TensorFlow Lite Micro.

    A file that Micro refuses has none.
    """
    if summary.micro is None or summary.micro.missing or not artifact.is_file():
        return
    from cudnn_convert.artifacts import micro

    text = firmware.make_source(micro.strip(artifact.read_bytes()), name, summary.micro)
    artifact.with_suffix(".cc").write_text(text, encoding="utf-8")


@contextmanager
def _name_refusals(plan: Plan, artifact: Path, options: Options) -> Iterator[None]:
    """Turn a runtime's complaints about the artifact into the source's refusal, within the context."""
    try:
        yield
    except UnsupportedModelError as cause:
        if cause.path != str(artifact):
            raise
        raise UnsupportedModelError(plan.model.path, cause.reasons) from cause
    except ReadError as cause:
        if cause.path != str(artifact):
            raise
        if options.form.has_foreign_runtime or options.form.has_layers:
            what = "layers" if options.form.has_layers else "a graph"
            reason = (
                f"expected {what} that {options.format}'s runtime accepts, "
                f"found an error: {cause.found}; choose --format savedmodel"
            )
            raise UnsupportedModelError(options.format, [reason]) from cause
        raise RuntimeError("the artifact that was just written does not load") from cause


def verify_plan(
    plan: Plan,
    artifact: Path | runners.Runner,
    options: Options,
    *,
    is_copy: bool = False,
    is_fresh: bool = False,
    measure: shards.Measure | None = None,
) -> Verification:
    """Verify an artifact, or an artifact's runner. Raises VerificationError where the numbers differ.

    `is_copy`: this tool wrote it, and its weights are the source's bit for bit; `is_fresh`: just now.
    `measure` compares shards of `--data` in other processes.
    """
    with mute_output():
        result = check.verify_artifact(plan, artifact, options, measure, is_copy=is_copy, is_fresh=is_fresh)
    if isinstance(artifact, Path):
        result = _check_weight_map(result, plan, artifact, options, is_copy=is_copy)
    path = plan.model.path
    if not result.passed:
        raise VerificationError(result, *(f"{path}: {reason}" for reason in _failures(result, options)))
    if result.unproven:
        raise UnprovenError(path, [_unproven(node, result) for node in result.unproven])
    if result.streaming is not None and not result.streaming.compared:
        expected = "expected an output of a sequence in chunks that can be judged"
        reason = (
            f"streaming: not proven: {expected}, found none on these inputs; give smaller values with --data"
        )
        raise UnprovenError(path, [reason])
    return result


def _failures(result: Verification, options: Options) -> Iterator[str]:
    """Yield a line for each failed output, recurrence, product and weight of a verification.

    Outputs of an artifact of lower precision have one line, with the bound.
    """
    wrong = [each for each in result.outputs if not each.passed]
    if options.quantize and wrong:
        yield accuracy_gate.failure_message(result, options)
    else:
        yield from (f"output {each.output}: {each.message}" for each in wrong)
    for piece in result.recurrences:
        if not piece.passed:
            yield f"recurrence {piece.node}, by itself: {piece.message}; in {piece.piece}"
    if result.glue is not None and not result.glue.passed:
        yield f"around the recurrences: {result.glue.message}"
    if result.ops is not None and not result.ops.passed:
        yield f"op by op: {result.ops.verdict}"
    if result.streaming is not None and not result.streaming.passed:
        yield f"streaming: {result.streaming.message}"
    yield from (f"weights of recurrence {line}" for line in result.misplaced)
    if result.decoding is not None and not result.decoding.passed:
        yield f"decode: {result.decoding.message}"
    if result.recording:  # its warnings tell whether the artifact alone differs, or the source too
        yield from result.warnings


def _check_weight_map(
    result: Verification, plan: Plan, artifact: Path, options: Options, *, is_copy: bool
) -> Verification:
    """Fail a verification also where weights are misplaced in the artifact."""
    from cudnn_convert.weight_map import objections

    try:
        misplaced = objections(plan, options.format, artifact, is_copy=is_copy)
    except ReadError as cause:
        return replace(result, warnings=(*result.warnings, f"weights were not looked for: {cause}"))
    return replace(result, passed=result.passed and not misplaced, misplaced=misplaced)


def _unproven(node: str, result: Verification) -> str:
    """Explain the missing proof of a recurrence."""
    why = next((piece.message for piece in result.recurrences if piece.node == node), "not asked by itself")
    expected = "expected an output that depends on it and can be judged"
    cure = "give inputs on which one does with --data, or convert with --no-verify"
    return f"recurrence {node}: not proven: {why}; {expected}, found none on these inputs; {cure}"


def _report(plan: Plan, source: Path, target: Path, options: Options) -> Report:
    return Report(
        source=str(source),
        kind=plan.model.kind,
        format=options.format,
        out=str(target),
        inputs=dict(plan.source.inputs),
        outputs=dict(plan.source.outputs),
        recurrences=tuple(model_reports.of_recurrence(recurrence) for recurrence in plan.recurrences),
        notes=plan.notes,
        flags=plan.flags,
        verification=None,
        states=model_reports.of_states(plan.streaming, plan.variable_states),
        axes=dict(plan.axes),
        network=network.draw_network(plan),
        decoder=_search(plan),
        alone=plan.alone,
        warnings=plan.warnings,
        unverified=plan.model.unverified,
    )


def _search(plan: Plan) -> DecoderReport | None:
    decoder = plan.decoder
    if decoder is None:
        return None
    token, logits = plan.source.inputs[decoder.token], plan.source.outputs[decoder.logits]
    return model_reports.of_decoder(decoder, token, logits)


def _options_record(options: Options) -> dict[str, Any]:
    """Return the options needed by a later verification."""
    also = ("lowering", "jit", "weights_dtype", "recurrences_only")
    settings = {name: getattr(options, name) for name in (*READING, *also)}
    settings |= accuracy_gate.gate_provenance(options) | {"seed": choose_seed(options)}
    return {
        name: list(value) if isinstance(value, list | tuple) else value for name, value in settings.items()
    }


@staging.with_copies
@silence()
@with_limits
def verify(source: Path, artifact: Path, options: Options, share: Share | None = None) -> Verification:
    """Verify an artifact by the provenance, or else by the options.

    `share` is a `map` over other processes, among which the shards of `options.data` are shared out.
    """
    pair = plan_for_artifact(source, artifact, options)
    context.report_progress("verifying")
    call = (staging.name_again(source), staging.name_again(artifact), staging.name_again(options))

    def measure(parts: Sequence[Shard], bounds: Bounds | None) -> Iterator[shards.Partial]:
        assert share is not None
        columns = [[value] * len(parts) for value in (*call, bounds)]
        named = map(staging.name_again, parts)
        for done, partial in enumerate(share(measure_shard, *columns[:3], named, columns[3])):
            context.report_progress("verifying", done + 1, len(parts))
            yield partial

    try:
        result = verify_plan(
            pair.plan, pair.path, pair.options, is_copy=pair.is_copy, measure=measure if share else None
        )
    except VerificationError as error:
        result = replace(error.report, subject=_subject(pair.plan, source, pair.path, pair.options))
        raise VerificationError(result, *error.reasons) from error
    return replace(result, subject=_subject(pair.plan, source, pair.path, pair.options))


#: What a pool's process keeps: the call that it measured last, with its settings and its runner.
_opened: list[tuple[tuple[Path, Path, Options], Settings, runners.Runner]] = []


@silence()
@with_limits
def measure_shard(
    source: Path, artifact: Path, options: Options, shard: Shard, bounds: Bounds | None
) -> shards.Partial:
    """Compare an artifact with the source on a shard of feeds, in a pool's process."""
    call = (source, artifact, options)
    with mute_output():
        if not _opened or _opened[0][0] != call:
            local = staging.keep_copy(options)
            pair = plan_for_artifact(staging.keep_copy(source), staging.keep_copy(artifact), local)
            settings = make_settings(pair.plan, pair.options, shared=True)
            _opened[:] = [(call, settings, open_runner(settings, pair.path))]
        _, settings, runner = _opened[0]
        return shards.measure_shard(settings, runner, shard, bounds)


@staging.with_copies
@silence()
@with_limits
def map_weights(source: Path, artifact: Path | None, options: Options) -> Subject:
    """Trace where each weight of `source` is in `artifact`, or in a temporary conversion.

    The numbers are not compared. Raises as `convert` and `verify` do.
    """
    options = replace(options, lineage=True, verify=False, force_convert=True)
    if artifact is not None:
        pair = plan_for_artifact(source, artifact, options)
        return _subject(pair.plan, source, pair.path, pair.options)
    with tempfile.TemporaryDirectory() as folder:
        result = convert(source, Path(folder, "out"), options)
    return result.as_subject(None)


@staging.with_copies
@silence(on_cpu=False)  # nothing runs: weights alone need no TensorFlow
@with_limits
def alone(source: Path, options: Options) -> RecurrencesPlan:
    """Plan a source's recurrences alone, for a format of weights."""
    plan = make_plan(read_source(source, options, tag=options.tag), options)
    assert isinstance(plan, RecurrencesPlan)
    return plan


@staging.with_copies
@with_limits
def load(source: Path, options: Options) -> Loaded:
    """Decode the weights of a source. Raises the errors of `cudnn_convert.errors`."""
    from cudnn_convert.recurrences import named_weights

    plan = alone(source, options)
    weights = tuple(named_weights.decode(single) for single in plan.singles)
    singles = {single.name: single for single in plan.singles}

    @silence()
    def prove(name: str, model: Any) -> None:
        """Compare a Keras model with the recurrence `name`. Raises VerificationError."""
        from cudnn_convert.artifacts.keras import run_recurrence

        states = len(model.inputs) > 1
        given = replace(options, format="keras", recurrences_only=True, states=states)
        single = singles[name]
        own = replace(single, recurrence=replace(single.recurrence, lengths=states))  # it takes a mask
        alone = from_weights.join_plans(plan.model, [own], notes=(), flags=(), graph=plan.graph)
        layers = keras_recurrences.plan_layers(alone, given)
        verify_plan(layers, run_recurrence(model, layers.parts[0]), given)

    return named_weights.Loaded(str(source), plan.model.kind, weights, plan.notes, prove)


@dataclass(frozen=True)
class Pair:
    """An artifact and the plan, actual or possible, behind the artifact."""

    plan: Plan
    #: Of the artifact's own file or folder, and the options with its format.
    path: Path
    options: Options
    #: Whether its weights are copies of the source's, read as they were read then.
    is_copy: bool


def plan_for_artifact(source: Path, artifact: Path, options: Options) -> Pair:
    """Plan a source by an artifact's provenance, or else by the options."""
    with context.on(artifact):
        form, path, recorded = identify_artifact(artifact, trust=options.trust)
    written = recorded["options"] if recorded else {}
    is_again = recorded is not None and not (options.inputs or options.outputs or options.set)
    # Without a graph of its own, the source has the signatures that these options gave it.
    again = from_provenance(written, where=f"{path}: provenance") if is_again else {}
    model = read_source(source, options, tag=again.get("tag", options.tag))
    if recorded:
        options = replace(options, recurrences_only=written.get("recurrences_only") is True)
    if recorded and is_again:
        model, _ = cut_at_layers(model, replace(options, outputs=again.get("outputs", ())))
        given = replace(options, format=form, **again)
        if not (model.is_graphless or given.form.content is Content.RECURRENCES or stays_whole(model, given)):
            # Inputs as they were given, where they were: they may refine shapes.
            names = ("key", "next_key", "begin_key")
            states = {state[key] for state in recorded.get("states", ()) for key in names if key in state}
            states |= {*recorded.get("encoded", ())}
            taken = {**recorded["inputs"], **recorded.get("begins", {})}
            again["inputs"] = again["inputs"] or _pairs(taken, states)
            again["outputs"] = _pairs(recorded["outputs"], states)
        options = replace(options, **again)
    stored = written.get("weights_dtype", "float32") if recorded else options.weights_dtype
    lowering = written.get("lowering", options.lowering)
    options = replace(options, format=form, weights_dtype=stored, lowering=lowering)
    if options.has_fixed_sizes:  # whose numbers in 8 bits are judged by the bound of the conversion
        bound = written.get("max_error")
        options = replace(options, quantize=written.get("quantize"), max_error=bound)
    if options.seed is None and is_seed(written.get("seed")):
        options = replace(options, seed=written["seed"])
    is_copy = is_again and written.get("quantize") is None
    if recorded or model.signatures or options.signature is None:
        return Pair(_make_plan(model, options), path, options, is_copy)
    # A source without signatures has none to choose: the artifact's is meant.
    plan = _make_plan(model, replace(options, signature=None))
    if len(plan.parts) == 1:
        plan = replace(plan, parts=(replace(plan.parts[0], name=options.signature),))
    return Pair(plan, path, options, is_copy)


@contextmanager
def name_conversion(path: Path, options: Options) -> Iterator[None]:
    """Name the converting command in errors of sources in need of a GPU.

    Within the context, raises ReadError in the place of such an error.
    """
    try:
        yield
    except CudnnConvertError as cause:
        try:
            model = read.read(path, trust=options.trust)
            is_source = needs_gpu(model)
        except CudnnConvertError:
            is_source = False
        if not is_source:
            raise
        why = "needs a GPU" if model.graphless.needs_gpu else "has weights alone"
        actual = f"a {model.kind} that {why}"
        words = ("cudnn-convert", str(path), "model_cpu")
        advice = f"convert it first: {command(words)}"
        raise ReadError(
            path, "artifact", expected="a model that runs on a CPU", found=actual, advice=advice
        ) from cause


def identify_artifact(artifact: Path, *, trust: bool) -> tuple[str, Path, dict[str, Any] | None]:
    """Return the format, path and provenance of an artifact.

    Its files must lie in its folder unless it is trusted.
    """
    with name_access(artifact):
        paths.refuse(artifact, trust=trust)
        form, path, recorded = runners.identify(artifact)
        paths.refuse(artifact, [path, *paths.prefix_files(path)], trust=trust)
    return form, path, recorded


def _subject(plan: Plan, source: Path, artifact: Path, options: Options) -> Subject:
    subject = _report(plan, source, artifact, options).as_subject(str(artifact))
    return replace(subject, weights=_weights(plan, artifact, options)) if options.lineage else subject


def _weights(plan: Plan, artifact: Path, options: Options) -> WeightsReport:
    context.report_progress("tracing")
    from cudnn_convert import weight_map

    with context.on(artifact):
        return weight_map.trace_weights(plan, options.format, artifact)


@staging.with_copies
@silence(on_cpu=False)
@with_limits
def record(source: Path, out: Path, options: Options) -> dict[str, Any]:
    """Run the original on `options.data`, write the outputs to `out`, return the `meta`.

    Raises the errors of `cudnn_convert.errors`; `out` is then as it was.
    """
    data = Data.of(options, seed=choose_seed(options))
    if data is None:
        raise UsageError("--data: expected an .npz with the inputs, found none")
    if options.states:
        raise UsageError(
            "--states: expected no such flag, for the original is recorded as it is, found one; leave it out"
        )
    read.require(source)
    destination = storage.Destination(out, recordings.is_ours, apart(source, options), options.force)
    storage.refuse(destination)
    model = read_source(source, options, tag=options.tag)
    if model.is_graphless:
        reason = "graph: expected one to run, found weights alone; give the source that they were trained in"
        raise UnsupportedModelError(model.path, [reason])
    from cudnn_convert.verification.record import record_source

    plan = make_plan(model, options)
    calls = read_calls(data)
    with storage.atomic_output(destination, folder=False) as fresh, mute_output():
        context.report_progress("recording")
        return record_source(plan, calls, fresh, constants=options.set, trust=options.trust)


@staging.with_copies
@silence()
@with_limits
def run(artifact: Path, options: Options, *, out: Path | None = None) -> Answers:
    """Run an artifact on `options.data` or random inputs; `out` gets an `.npz` of outputs.

    Raises the errors of `cudnn_convert.errors`; `out` is then as it was.
    """
    with ExitStack() as stack:
        stack.enter_context(name_conversion(artifact, options))
        fresh = None
        if out is not None:
            destination = storage.Destination(out, lambda _: False, [("the artifact", artifact)], force=False)
            fresh = stack.enter_context(storage.atomic_output(destination, folder=False))
        with context.on(artifact):
            form, path, _ = identify_artifact(artifact, trust=options.trust)
        data = Data.of(options, seed=choose_seed(options))
        calls = None if data is None else read_calls(data)
        with mute_output():
            context.report_progress("running")
            answers = runners.call_artifact(
                form,
                path,
                None if calls is None else calls.feeds,
                seed=choose_seed(options),
                signature=options.signature,
                vouched=user_code(replace(options, format=form)),
            )
        if calls is not None:
            answers = replace(answers, data=calls.summary)
        if fresh is not None:
            with fresh.open("wb") as file:
                np.savez(file, **answers.arrays())  # type: ignore[arg-type]
    return answers


def _pairs(names: Mapping[str, str], left_out: Collection[str]) -> list[str]:
    return [notes.item(key, name) for key, name in names.items() if key not in left_out]
