"""Writers: from a plan to an artifact, one module per format.

Says what a format takes, leaves out and writes. The module of a format is named in its row of
`formats.FORMATS`, has the functions of `Target`, and is imported on demand: some formats need no TensorFlow.

* saved_model: Writes SavedModels: new ones, repaired ones, their assets.
* frozen     : Writes a frozen graph: one binary GraphDef, tensor names as in the source.
* checkpoint : Writes TensorFlow 1 checkpoints with their MetaGraph.
* bundle     : Writes variable bundles, and the ops that restore them.
* onnx       : Writes an ONNX file; weights past 2 GiB go to a file beside it.
* tflite     : Writes a TensorFlow Lite file with its provenance in the metadata.
* keras      : Writes a `.keras` archive for Keras 3, the same bytes every time.
* h5         : Writes a Keras model in one HDF5 file, as Keras 2 and tf_keras do.
* weights    : Writes decoded weights as `.npz` or safetensors.
* flags      : Checks flags against the format that they are given with.
* accuracy_gate: The accuracy gate of `--quantize`: a bound of the user's, on the user's inputs.

May import: text, errors, private, formats, context, model, options, weights, report, graph, graph.passes,
recurrences, keras, keras.config, lower, lower.tensorflow, lower.onnx, plan, artifacts.tflite.
Entry: `write_artifact`.
"""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.keras.config import channels_first, channels_last, classes
from cudnn_convert.model import Architecture, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.source import is_portable


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
    return is_portable(model, replace(options, format=form))


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
