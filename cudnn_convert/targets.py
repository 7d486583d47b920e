"""From a plan to an artifact: which lowering and which writer make each format.

They are imported by the format that needs them: not each needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cudnn_convert import gate, report
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS, part_file
from cudnn_convert.keras import custom
from cudnn_convert.model import Convention, Mode, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan

if TYPE_CHECKING:
    from cudnn_convert.keras.rewrite import Rewritten
    from cudnn_convert.lower.onnx_finish import Finished
    from cudnn_convert.lower.slots import Slots
    from cudnn_convert.lower.tensorflow import Form, Lowered


def _lowered(made: Plan, options: Options, form: Form | None = None) -> Lowered:
    """The CPU graph of a plan, with the signature's inputs even where nothing reads them."""
    from cudnn_convert.lower import tensorflow as lower_tensorflow

    kept = [*made.signature.inputs.values(), *made.signature.outputs.values(), *made.initializers]
    return lower_tensorflow.lower(
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
    from cudnn_convert.lower.recurrence import COMPILED

    return COMPILED


def _write_saved_model(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.write import repaired, saved_model

    if made.model.saved is not None:
        from cudnn_convert.lower import functions

        convention = Convention(options.gate_order, options.forget_bias)
        saved = functions.lowered(made.model.path, made.model.saved, convention, lowering=_lowering(options))
        repaired.write(path, made.model.path, saved, provenance=provenance, trust=options.trust)
        return
    lowered = _lowered(made, options)
    saved_model.write(
        path,
        lowered.graph,
        made.parts,
        lowered.variables,
        provenance=provenance,
        initializers=made.initializers,
        files=made.model.assets,
    )


def _write_checkpoint(made: Plan, path: Path, _: str, options: Options) -> None:
    from cudnn_convert.lower import compatible, slots
    from cudnn_convert.write import checkpoint as write_checkpoint

    cells = compatible.cells(
        made.model, made.graph, made.recurrences, cell=options.cell, lowering=options.lowering
    )
    others = slots.kept(_slots(made), made.recurrences, cells) if options.slots else {}
    lowered = _lowered(made, options, cells.form)
    renames = options.rename
    write_checkpoint.write(path, lowered.graph, made.parts, lowered.variables, others=others, renames=renames)


def _slots(made: Plan) -> Slots:
    from cudnn_convert.lower import slots

    return slots.find(made.model, made.graph, made.recurrences, [*made.signature.outputs.values()])


def _write_frozen(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.lower import freeze
    from cudnn_convert.write import frozen_graph

    lowered = _lowered(made, options)
    # An input that nothing reads any more, such as lengths that are all full, is still fed by its name.
    kept = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    frozen_graph.write(path, freeze.frozen(lowered.graph, lowered.variables, kept), provenance=provenance)


def _write_onnx(made: Plan, path: Path, provenance: str, options: Options) -> tuple[str, ...]:
    from cudnn_convert.write import onnx as write_onnx

    said: list[str] = []
    count = 0
    for part, found in zip(made.parts, _onnx_models(made, options), strict=True):
        if options.weights_dtype == "float16":
            from cudnn_convert.lower import onnx_half

            found = onnx_half.halved(found)  # noqa: PLW2901 - the same model
        file = part_file(path, part.name)
        if options.quantize:
            from cudnn_convert.lower import onnx_int8

            quantized = onnx_int8.quantized(found)
            found, count = quantized.model, count + quantized.nodes  # noqa: PLW2901
            said += [f"{file.name}: {line}" for line in onnx_int8.notes(quantized)]
        said_of = report.with_pieces(provenance, found.pieces)
        write_onnx.write(found.model, found.weights, file, provenance=said_of)
    if options.quantize and not count:
        expected = "an LSTM of float32 whose weights are constants"
        raise UsageError(f"--quantize: expected {expected}, found none; leave it out, and --max-error")
    return tuple(said)


def _onnx_models(made: Plan, options: Options) -> Iterator[Finished]:
    """The model of each part; that of a recurrence alone needs neither TensorFlow nor tf2onnx."""
    if made.singles:
        from cudnn_convert.lower import onnx_bare

        yield from (onnx_bare.lower(one, opset=options.opset) for one in made.singles)
        return
    from cudnn_convert.lower import freeze
    from cudnn_convert.lower import onnx as lower_onnx

    detached = freeze.without_parameters(made.graph, made.recurrences, made.signature.outputs.values())
    graph = freeze.frozen(detached, made.model.variables, made.signature.outputs.values())
    for part in made.parts:
        yield lower_onnx.lower(graph, part.signature, made.recurrences, opset=options.opset)


def _write_tflite(made: Plan, path: Path, provenance: str, options: Options) -> tuple[str, ...]:
    from cudnn_convert.lower import tflite as lower_tflite
    from cudnn_convert.write import tflite as write_tflite

    ends = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    lowered = lower_tflite.lower(made.graph, made.recurrences, made.model.variables, ends=ends)
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
    from cudnn_convert.write import keras_archive

    brought = custom.vouched(options.custom_objects).keras
    model = _rewritten(made, options).architecture
    keras_archive.write(path, made.model.path, model, provenance=provenance, custom_objects=brought)


def _write_h5(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.write import keras_hdf5

    keras_hdf5.write(path, _rewritten(made, options).architecture, provenance=provenance)


def _rewritten(made: Plan, options: Options) -> Rewritten:
    from cudnn_convert.keras import rewrite

    assert made.model.architecture is not None
    return rewrite.rewritten(made.model.path, made.model.architecture, slots=options.slots)


def _write_weights(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert import weights
    from cudnn_convert.write import arrays

    found = [weights.decoded(one) for one in made.singles]
    arrays.write(path, found, form=options.format, provenance=provenance)


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


def refuse(options: Options) -> None:
    """Raises UsageError for a flag that another format has."""
    gate.refuse(options)
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


def require(model: Model, options: Options) -> None:
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


def notes(made: Plan, options: Options) -> tuple[str, ...]:
    """What the format leaves out of a plan. Raises UsageError where a flag of the format finds nothing."""
    if options.jit and not made.recurrences:
        raise UsageError("--jit: expected a model with a cuDNN recurrence, found none; leave it out")
    if options.format == "keras":
        from cudnn_convert.write import keras_archive

        model, brought = _rewritten(made, options).architecture, custom.vouched(options.custom_objects).keras
        return keras_archive.notes(made.model.path, model, custom_objects=brought)
    if options.format == "h5":
        from cudnn_convert.write import keras_hdf5

        rewritten = _rewritten(made, options)
        return (*rewritten.notes, *keras_hdf5.notes(rewritten.architecture))
    if options.format == "tflite":
        from cudnn_convert.lower import tflite as lower_tflite

        return lower_tflite.notes(made.graph)
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


def write(made: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Lowers a plan and writes the artifact of `options.format` to `path`. Raises as the target's writer.

    Gives the notes that only the finished artifact could tell.
    """
    return WRITERS[options.format](made, path, provenance, options) or ()
