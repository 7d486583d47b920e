"""From a plan to an artifact: the lowering and the writer of each format.

Lowerings and writers are imported by the format that needs them: not each needs TensorFlow.

The accuracy gate of `--quantize` is here too: an artifact that is less exact than its source on purpose is
judged by a bound that its user gives, on the user's own inputs. Where the bound does not hold, nothing lies
at OUT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cudnn_convert import report
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS, part_file
from cudnn_convert.keras.config import classes
from cudnn_convert.model import Convention, Mode, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.report import OutputReport, Verification

if TYPE_CHECKING:
    from cudnn_convert.lower.onnx.finish import Finished
    from cudnn_convert.lower.tensorflow.lower import Form, Lowered
    from cudnn_convert.lower.tensorflow.tf1_cells import Slots


def check_gate_options(options: Options) -> None:
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


def gate_provenance(options: Options) -> dict[str, Any]:
    """What an artifact says of its gate; nothing where it has none."""
    if options.quantize is None:
        return {}
    return {"quantize": options.quantize, "max_error": options.max_error}


def failure_message(result: Verification, options: Options) -> str:
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


def add_errors(text: str, result: Verification) -> str:
    """The provenance beside an artifact, with the errors that were measured on this machine."""
    return json.dumps({**json.loads(text), "errors": errors(result)}, indent=2)


def _lower(made: Plan, options: Options, form: Form | None = None) -> Lowered:
    """The CPU graph of a plan, with the signature's inputs even where nothing reads them."""
    from cudnn_convert.lower.tensorflow import lower

    kept = [*made.signature.inputs.values(), *made.signature.outputs.values(), *made.initializers]
    return lower.lower(
        made.graph,
        made.recurrences,
        made.model.variables,
        outputs=kept,
        lowering=_lowering(options),
        form=form,
    )


def _lowering(options: Options) -> str:
    if not options.jit:
        return options.lowering
    from cudnn_convert.lower.tensorflow.layer_stack import COMPILED

    return COMPILED


def _write_saved_model(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.targets import saved_model as write_saved_model

    if made.model.saved is not None:
        from cudnn_convert.lower.tensorflow import lower

        convention = Convention(options.gate_order, options.forget_bias)
        saved = lower.lower_functions(
            made.model.path, made.model.saved, convention, lowering=_lowering(options)
        )
        write_saved_model.write_repaired(
            path, made.model.path, saved, provenance=provenance, trust=options.trust
        )
        return
    lowered = _lower(made, options)
    write_saved_model.write(
        path,
        lowered.graph,
        made.parts,
        lowered.variables,
        provenance=provenance,
        initializers=made.initializers,
        files=made.model.assets,
    )


def _write_checkpoint(made: Plan, path: Path, _: str, options: Options) -> None:
    from cudnn_convert.lower.tensorflow import tf1_cells
    from cudnn_convert.targets import checkpoint as write_checkpoint

    cells = tf1_cells.cells(
        made.model, made.graph, made.recurrences, cell=options.cell, lowering=options.lowering
    )
    others = tf1_cells.keep_slots(_slots(made), made.recurrences, cells) if options.slots else {}
    lowered = _lower(made, options, cells.form)
    renames = options.rename
    write_checkpoint.write(path, lowered.graph, made.parts, lowered.variables, others=others, renames=renames)


def _slots(made: Plan) -> Slots:
    from cudnn_convert.lower.tensorflow import tf1_cells

    return tf1_cells.find(made.model, made.graph, made.recurrences, [*made.signature.outputs.values()])


def _write_frozen(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.graph import session
    from cudnn_convert.targets import frozen

    lowered = _lower(made, options)
    # An input that nothing reads any more, such as lengths that are all full, is still fed by its name.
    kept = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    frozen.write(
        path, session.freeze_variables(lowered.graph, lowered.variables, kept), provenance=provenance
    )


def _write_onnx(made: Plan, path: Path, provenance: str, options: Options) -> tuple[str, ...]:
    from cudnn_convert.targets import onnx as write_onnx

    said: list[str] = []
    count = 0
    for part, found in zip(made.parts, _onnx_models(made, options), strict=True):
        if options.weights_dtype == "float16":
            from cudnn_convert.lower.onnx import reduced_precision

            found = reduced_precision.to_float16(found)  # noqa: PLW2901 - the same model
        file = part_file(path, part.name)
        if options.quantize:
            from cudnn_convert.lower.onnx import reduced_precision

            quantized = reduced_precision.to_int8(found)
            found, count = quantized.model, count + quantized.nodes  # noqa: PLW2901
            said += [f"{file.name}: {line}" for line in reduced_precision.notes(quantized)]
        said_of = report.with_pieces(provenance, found.pieces)
        write_onnx.write(found.model, found.weights, file, provenance=said_of)
    if options.quantize and not count:
        expected = "an LSTM of float32 whose weights are constants"
        raise UsageError(f"--quantize: expected {expected}, found none; leave it out, and --max-error")
    return tuple(said)


def _onnx_models(made: Plan, options: Options) -> Iterator[Finished]:
    """The model of each part; that of a recurrence alone needs neither TensorFlow nor tf2onnx."""
    if made.singles:
        from cudnn_convert.lower.onnx import finish

        yield from (finish.lower(one, opset=options.opset) for one in made.singles)
        return
    from cudnn_convert.graph import session
    from cudnn_convert.lower.onnx import convert

    detached = session.without_parameters(made.graph, made.recurrences, made.signature.outputs.values())
    graph = session.freeze_variables(detached, made.model.variables, made.signature.outputs.values())
    for part in made.parts:
        yield convert.lower(graph, part.signature, made.recurrences, opset=options.opset)


def _write_tflite(made: Plan, path: Path, provenance: str, options: Options) -> tuple[str, ...]:
    from cudnn_convert.lower import tflite
    from cudnn_convert.targets import tflite as write_tflite

    ends = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    lowered = tflite.lower_tflite(made.graph, made.recurrences, made.model.variables, ends=ends)
    text = report.with_pieces(provenance, lowered.pieces)
    said = []
    for part in made.parts:
        file = part_file(path, part.name, ".tflite")
        found = write_tflite.write(
            lowered.graph,
            part.signature,
            file,
            provenance=text,
            built_in=options.verify,
            known={node.name for node in made.graph.node},
            recurrences={one.node for one in made.recurrences},
        )
        needs = f"{file.name} needs TensorFlow's own kernels (Flex) for {', '.join(found)}"
        said += [needs] if found else []
    return tuple(said)


def _write_keras(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.targets import keras as write_keras

    write_keras.write(path, made.model.path, made.target_model, provenance=provenance)


def _write_h5(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.targets import h5 as write_h5

    write_h5.write(path, made.target_model.architecture, provenance=provenance)


def with_target_model(made: Plan, options: Options) -> Plan:
    """The plan with its layers as a format of layers takes them. Raises UnsupportedModelError."""
    if not FORMATS[options.format].layers:
        return made
    from cudnn_convert.keras import cpu_layers, translate

    path, architecture = made.model.path, made.model.architecture
    assert architecture is not None
    rewritten = cpu_layers.rewritten(path, architecture, slots=options.slots)
    if options.format != "keras":
        return replace(made, target_model=rewritten)
    brought = classes.import_user_objects(options.custom_objects).keras
    return replace(made, target_model=translate.modern(path, rewritten.architecture, vouched=brought))


def _write_weights(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.recurrences import named_weights
    from cudnn_convert.targets import weights

    found = [named_weights.decode(one) for one in made.singles]
    weights.write(path, found, form=options.format, provenance=provenance)


WRITERS: Final[Mapping[str, Callable[[Plan, Path, str, Options], tuple[str, ...] | None]]] = MappingProxyType(
    {
        "savedmodel": _write_saved_model,
        "checkpoint": _write_checkpoint,
        "frozen": _write_frozen,
        "onnx": _write_onnx,
        "tflite": _write_tflite,
        "keras": _write_keras,
        "h5": _write_h5,
        "npz": _write_weights,
        "safetensors": _write_weights,
    }
)


def check_options(options: Options) -> None:
    """Raises UsageError for a flag that another format has."""
    check_gate_options(options)
    given = {"--cell": options.cell != "compatible", "--rename": options.rename}
    flags = [flag for flag, value in given.items() if value]
    if flags and options.format != "checkpoint":
        raise UsageError(f"{', '.join(flags)}: expected --format checkpoint, found {options.format}")
    if options.weights_dtype != "float32" and options.format != "onnx":
        raise UsageError(f"--weights-dtype: expected --format onnx, found {options.format}")
    if options.jit and options.format not in ("savedmodel", "frozen"):
        raise UsageError(f"--jit: expected --format savedmodel or frozen, found {options.format}")
    if options.jit and options.lowering != "fast":
        raise UsageError(f"--jit: expected --lowering fast, found {options.lowering}")
    if options.slots and options.format not in ("checkpoint", "h5"):
        raise UsageError(f"--slots: expected --format checkpoint or h5, found {options.format}")
    given = {"--inputs": options.inputs, "--outputs": options.outputs, "--set": options.set}
    flags = [flag for flag, value in given.items() if value]
    form = FORMATS[options.format]
    if flags and (form.layers or form.alone):
        raise UsageError(f"{', '.join(flags)}: expected a format of graphs, found {options.format}")


def check_source(model: Model, options: Options) -> None:
    """Raises UsageError where a format of layers is to be made of a source without, or of a part of one."""
    if not FORMATS[options.format].layers:
        return
    if model.architecture is None:
        others = ", ".join(name for name, form in FORMATS.items() if not form.layers)
        found = f"found {model.kind} {model.path}"
        cure = "give --architecture, or " if model.kind.startswith("Keras") else ""
        raise UsageError(
            f"--format {options.format}: expected the layers of a Keras model, {found}; {cure}choose {others}"
        )


def target_notes(made: Plan, options: Options) -> tuple[str, ...]:
    """What the format leaves out of a plan. Raises UsageError where a flag of the format finds nothing."""
    if options.jit and not made.recurrences:
        raise UsageError("--jit: expected a model with a cuDNN recurrence, found none; leave it out")
    if options.format == "keras":
        from cudnn_convert.targets import keras as write_keras

        return write_keras.notes(made.target_model)
    if options.format == "h5":
        from cudnn_convert.targets import h5 as write_h5

        return (*made.target_model.notes, *write_h5.notes(made.target_model.architecture))
    if options.format == "tflite":
        from cudnn_convert.lower import tflite

        return tflite.notes(made.graph)
    if options.format != "checkpoint":
        return tuple(_renamed(made)) if options.format == "frozen" else ()
    if options.cell != "compatible" and all(r.sizes.mode is not Mode.LSTM for r in made.recurrences):
        raise UsageError(f"--cell {options.cell}: expected a model with an LSTM, found none; leave it out")
    found = _slots(made)
    if options.slots:
        lost = ", ".join(found.lost)
        return (f"optimizer slots dropped, for their variables are packed anew: {lost}",) if lost else ()
    return (f"{len(found)} optimizer slots dropped; keep them with --slots",) if len(found) else ()


def _renamed(made: Plan) -> Iterator[str]:
    """The tensors of a frozen graph, whose users name tensors, that are not called as in the source."""
    pairs = ((made.source.inputs, made.signature.inputs), (made.source.outputs, made.signature.outputs))
    for kind, (source, found) in zip(("input", "output"), pairs, strict=True):
        for key, name in source.items():
            if found[key] != name:
                yield f"{kind} {key}: {name} of the source is called {found[key]} in the frozen graph"


def write_artifact(made: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Lowers a plan and writes the artifact of `options.format` to `path`. Raises as the target's writer.

    Gives the notes that only the finished artifact could tell.
    """
    return WRITERS[options.format](made, path, provenance, options) or ()
