"""Writers: from a plan to an artifact, one module per format.

Says what a format takes, leaves out and writes. The module of a format is named in its row of
`formats.FORMATS`, has the functions of `Target`, and is imported on demand: some formats need no TensorFlow.
The accuracy gate of `--quantize` is here too: an artifact that is less exact than its source on purpose is
judged by the user's bound, on the user's inputs. Where it exceeds the bound, nothing is written to OUT.

* saved_model: Writes SavedModels: new ones, repaired ones, their assets.
* frozen     : Writes a frozen graph: one binary GraphDef, tensor names as in the source.
* checkpoint : Writes variable bundles, and TensorFlow 1 checkpoints with their MetaGraph.
* onnx       : Writes an ONNX file; weights past 2 GiB go to a file beside it.
* tflite     : Writes a TensorFlow Lite file with its provenance in the metadata.
* keras      : Writes a `.keras` archive for Keras 3, the same bytes every time.
* h5         : Writes a Keras model in one HDF5 file, as Keras 2 and tf_keras do.
* weights    : Writes decoded weights as `.npz` or safetensors.

May import: errors, private, formats, context, model, options, weights, report, graph, graph.passes,
recurrences, keras, keras.config, lower, lower.tensorflow, lower.onnx, plan, artifacts.tflite.
Entry: `write_artifact`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras import cut_layers
from cudnn_convert.keras.config import channels_first, channels_last, classes
from cudnn_convert.model import Architecture, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, prepare
from cudnn_convert.report import OutputReport, Verification


def check_gate_options(options: Options) -> None:
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
    if options.format not in (formats := _formats_with("quantize")):
        raise _other_format([flag], formats, options)
    if options.max_error is None:
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
    """The gate's entries in an artifact's provenance, empty without `--quantize`."""
    if options.quantize is None:
        return {}
    return {"quantize": options.quantize, "max_error": options.max_error}


def failure_message(result: Verification, options: Options) -> str:
    """One line with the largest errors, their outputs, and the bound."""
    wrong = sorted(
        (output for output in result.outputs if not output.passed), key=lambda output: -output.needed
    )
    actual = ", ".join(f"{_worst(output)} in output {output.output}" for output in wrong)
    expected = f"no error above {options.max_error:g} on {result.data}"
    leave = "leave out --quantize and --max-error"
    # A larger bound does not help an output of integers or strings that differs.
    cure = f"raise --max-error, or {leave}" if all(map(_is_above, wrong)) else leave
    return f"--quantize: expected {expected}, found {actual}; {cure}"


def _worst(output: OutputReport) -> str:
    return f"{output.max_abs:.2e}" if _is_above(output) else output.message


def _is_above(output: OutputReport) -> bool:
    """Whether a float output has an error above the bound."""
    return output.max_abs is not None and output.max_abs > output.atol


def errors(result: Verification) -> dict[str, float]:
    """The largest absolute error of each float output."""
    return {output.output: output.max_abs for output in result.outputs if output.max_abs is not None}


def note(result: Verification, options: Options) -> str:
    """The report's note on a gate that passed."""
    figures = errors(result)
    worst = max(figures, key=lambda name: figures[name], default=None)
    message = (
        "all outputs are choices"
        if worst is None
        else f"largest error {figures[worst]:.2e} in output {worst}"
    )
    return f"{options.quantize}: {message}, on {result.data}; --max-error {options.max_error:g}"


def add_errors(text: str, result: Verification) -> str:
    """Add the errors measured on this machine to the provenance beside an artifact."""
    return json.dumps({**json.loads(text), "errors": errors(result)}, indent=2)


class Target(Protocol):
    """The functions of a format's module."""

    def target_notes(self, plan: Plan, options: Options, /) -> tuple[str, ...]:
        """What an artifact leaves out of a plan.

        Raises UsageError for a flag of the format that has no effect.
        """

    def write_artifact(self, plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
        """Lower and write a plan; returns notes that need the finished artifact."""


def _target(options: Options) -> Target:
    return cast(Target, import_module(f"cudnn_convert.targets.{options.form.module}"))


def _formats_with(option: str) -> tuple[str, ...]:
    """The formats that have an option of their own; empty for options of all formats."""
    return tuple(name for name, form in FORMATS.items() if option in form.flags)


def _other_format(flags: Sequence[str], formats: Sequence[str], options: Options) -> UsageError:
    *others, last = formats
    expected = f"expected --format {', '.join(others)} or {last}" if others else f"expected --format {last}"
    return UsageError(f"{', '.join(flags)}: {expected}, found {options.format}")


def with_target_model(plan: Plan, options: Options) -> Plan:
    """The plan with layers rewritten for a format of layers, else unchanged.

    Raises UnsupportedModelError.
    """
    form = options.form
    if not form.layers:
        return plan
    from cudnn_convert.keras import cpu_layers, translate

    path, architecture = plan.model.path, plan.model.architecture
    assert architecture is not None
    if architecture.is_keras3:
        return replace(plan, target_model=_keep_layers(plan.model, architecture, options))
    architecture, images = channels_last.rewrite(architecture, keras3=form.is_keras3)
    _refuse_channels_first(path, architecture, keras3=form.is_keras3)
    if images:
        note = f"{', '.join(images)}: images are computed channels last; a Permute turns them"
        plan = replace(plan, notes=(*plan.notes, note))
    rewritten = cpu_layers.rewritten(path, architecture, slots=options.slots)
    if not form.is_keras3:
        return replace(plan, target_model=rewritten)
    brought = classes.import_user_objects(options.custom_objects).keras
    fallback = "savedmodel" if _has_already(plan.model, "h5", options) else "h5"
    modern = translate.modern(path, rewritten.architecture, vouched=brought, fallback=fallback)
    return replace(plan, target_model=replace(modern, notes=(*rewritten.notes, *modern.notes)))


def _has_already(model: Model, form: str, options: Options) -> bool:
    """Whether a source is what a conversion to another format would give: advice to write it leads back."""
    return prepare.is_portable(model, replace(options, format=form))


def _keep_layers(model: Model, architecture: Architecture, options: Options) -> Any:
    """A model of Keras 3 for its own format. Raises UnsupportedModelError for that of tf_keras."""
    path = model.path
    if not options.form.is_keras3:
        other = "savedmodel" if _has_already(model, "keras", options) else "keras"
        actual = f"found Keras {architecture.keras_version}; choose --format {other}"
        raise UnsupportedModelError(path, [f"model: expected one of Keras 2 for tf_keras, {actual}"])
    _refuse_channels_first(path, architecture, keras3=True)
    from cudnn_convert.keras import translate

    brought = classes.import_user_objects(options.custom_objects).keras
    return translate.modern(path, architecture, vouched=brought)


def _refuse_channels_first(path: Path, architecture: Architecture, *, keras3: bool) -> None:
    if layers := channels_first.find_layers(architecture, keras3=keras3):
        expected = "expected layers that every CPU runs, found images whose channels come first"
        raise UnsupportedModelError(path, [f"{', '.join(layers)}: {expected}; choose --format savedmodel"])


def check_options(options: Options) -> None:
    """Check the flags against the format. Raises UsageError for one of another format."""
    check_gate_options(options)
    given: dict[tuple[str, ...], list[str]] = {}
    for field in fields(Options):
        formats, value = _formats_with(field.name), getattr(options, field.name)
        if formats and options.format not in formats and value and value != field.default:
            given.setdefault(formats, []).append(f"--{field.name.replace('_', '-')}")
    for formats, flags in given.items():
        raise _other_format(flags, formats, options)
    if options.jit and options.lowering != "fast":
        raise UsageError(f"--jit cannot be combined with --lowering {options.lowering}; leave one out")
    form = options.form
    if form.layers or form.alone:
        # A format of layers may be cut at some, as only the source tells.
        outputs = () if form.layers else options.outputs
        _refuse_cuts(options, {"--inputs": options.inputs, "--outputs": outputs, "--set": options.set})


def _refuse_cuts(options: Options, cuts: Mapping[str, Sequence[str]]) -> None:
    flags = [flag for flag, value in cuts.items() if value]
    if flags:
        raise UsageError(f"{', '.join(flags)}: expected a format of graphs, found {options.format}")


def settle_layers(model: Model, options: Options) -> Options:
    """The options of a source; where a format of layers finds none, of its recurrences alone.

    Raises UsageError where the user must say so, or where it has layers or the format needs them.
    """
    form, actual = FORMATS[options.format], f"found {model.kind} {model.path}"
    if form.layers and not cut_layers.names_layers(model, options.outputs):
        _refuse_cuts(options, {"--outputs": options.outputs})
    if model.architecture is not None:
        if options.recurrences_only:
            raise UsageError(
                f"--recurrences-only: expected a source without Keras layers, {actual}; leave out "
                "--recurrences-only"
            )
        return options
    if not form.layers or options.recurrences_only:
        return options
    lead = f"--format {options.format}: expected"
    if not form.is_keras3:
        others = ", ".join(name for name, form in FORMATS.items() if not form.layers)
        cure = "give --architecture, or " if model.keras else ""
        raise UsageError(f"{lead} the layers of a Keras model, {actual}; {cure}choose {others}")
    if model.keras:
        advice = "give --architecture, or --recurrences-only to take its recurrences alone"
        raise UsageError(f"{lead} the layers of a Keras model, {actual}; {advice}")
    if model.graph is not None and (beside := prepare.list_other_ops(model)):
        advice = "give --recurrences-only to leave the rest of the graph out"
        others = ", ".join(beside)
        raise UsageError(
            f"{lead} recurrences alone, which become layers, found {others} beside them; {advice}"
        )
    return replace(options, recurrences_only=True)


def target_notes(plan: Plan, options: Options) -> tuple[str, ...]:
    """What the format leaves out of a plan.

    Raises UsageError where a flag of the format has no effect.
    """
    if options.jit and not plan.recurrences:
        raise UsageError("--jit: expected a model with a cuDNN recurrence, found none; leave it out")
    return _target(options).target_notes(plan, options)


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Lower a plan and write the artifact of `options.format` to `path`.

    Returns notes that need the finished artifact. Raises as the target's writer.
    """
    return _target(options).write_artifact(plan, path, options, provenance=provenance)
