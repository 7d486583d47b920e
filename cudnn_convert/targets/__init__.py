"""Writers: from a plan to an artifact, with a module for each format.

The module of a format is named in its row of `formats.FORMATS`, has the functions of `Target`, and is
imported on demand: some formats need no TensorFlow.

* saved_model: Writes SavedModels: new models, repaired models, and assets.
* frozen     : Writes a frozen graph: a binary GraphDef with the tensor names of the source.
* checkpoint : Writes TensorFlow 1 checkpoints, each with a MetaGraph.
* bundle     : Writes variable bundles, and the ops for restoring variables.
* onnx       : Writes an ONNX file, with weights past 2 GiB in a second file.
* tflite     : Writes a TensorFlow Lite file with the provenance in the metadata.
* fused_ops  : Fused LSTM ops of a TensorFlow Lite file: weights, bounds and names.
* eight_bits : Corrects the converter's ranges and scales of fused LSTMs in 8 bits.
* firmware   : C++ source of a TensorFlow Lite file for firmware: bytes, arena and operators.
* keras      : Writes a `.keras` archive for Keras 3, the same bytes every time.
* h5         : Writes a Keras model in a single HDF5 file, as Keras 2 and tf_keras do.
* layers     : Rewrites the layers of a Keras 2 model for a CPU.
* weights    : Writes decoded weights as `.npz` or safetensors.
* flags      : Checks flags against the requested format.
* accuracy_gate: The accuracy gate of `--quantize`: a bound of the user's, on the user's inputs.

May import: text, errors, private, formats, context, model, values, options, weights, report, graph,
graph.passes, recurrences, keras, keras.config, lower, lower.tensorflow, lower.onnx, plan, artifacts.tflite,
artifacts.micro_operators.
Entry: `prepare`, then `write_artifact`.
"""

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan


class Target(Protocol):
    """The functions of a format's module."""

    def prepare(self, plan: Plan, options: Options, /) -> Plan:
        """Return the plan in the form of the format, with notes on omissions.

        Raises UnsupportedModelError, and UsageError for a flag of the format that has no effect.
        """

    def write_artifact(self, plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
        """Lower and write a plan; return notes on the finished artifact."""


def _target(options: Options) -> Target:
    return cast(Target, import_module(f"cudnn_convert.targets.{options.form.module}"))


def prepare(plan: Plan, options: Options) -> Plan:
    """Return the plan in the form of `options.format`, with notes on omissions.

    Raises UnsupportedModelError, and UsageError where a flag of the format has no effect.
    """
    if options.jit and not plan.recurrences:
        raise UsageError("--jit: expected a model with a cuDNN recurrence, found none; leave it out")
    return _target(options).prepare(plan, options)


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Lower a plan and write the artifact of `options.format` to `path`.

    Returns notes that need the finished artifact. Raises as the target's writer.
    """
    return _target(options).write_artifact(plan, path, options, provenance=provenance)
