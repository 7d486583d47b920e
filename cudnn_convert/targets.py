"""From a plan to an artifact: which lowering and which writer make each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.formats import part_file
from cudnn_convert.graph import tables
from cudnn_convert.lower import compatible, freeze, slots
from cudnn_convert.lower import tensorflow as lower_tensorflow
from cudnn_convert.lower.slots import Slots
from cudnn_convert.lower.tensorflow import Form, Lowered
from cudnn_convert.model import Mode
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.write import checkpoint as write_checkpoint
from cudnn_convert.write import frozen_graph, saved_model


def _lowered(made: Plan, options: Options, form: Form | None = None) -> Lowered:
    """The CPU graph of a plan, with the signature's inputs even where nothing reads them."""
    kept = [*made.signature.inputs.values(), *made.signature.outputs.values(), *made.initializers]
    return lower_tensorflow.lower(
        made.graph,
        made.recurrences,
        made.model.variables,
        outputs=kept,
        lowering=options.lowering,
        form=form,
    )


def _write_saved_model(made: Plan, path: Path, provenance: str, options: Options) -> None:
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
    cells = compatible.cells(
        made.model, made.graph, made.recurrences, cell=options.cell, lowering=options.lowering
    )
    others = slots.kept(_slots(made), made.recurrences, cells) if options.slots else {}
    lowered = _lowered(made, options, cells.form)
    renames = options.rename
    write_checkpoint.write(path, lowered.graph, made.parts, lowered.variables, others=others, renames=renames)


def _slots(made: Plan) -> Slots:
    return slots.find(made.model, made.graph, made.recurrences, [*made.signature.outputs.values()])


def _write_frozen(made: Plan, path: Path, _: str, options: Options) -> None:
    lowered = _lowered(made, options)
    graph = freeze.frozen(lowered.graph, lowered.variables, made.signature.outputs.values())
    frozen_graph.write(path, graph)


def _write_onnx(made: Plan, path: Path, provenance: str, options: Options) -> None:
    from cudnn_convert.lower import onnx as lower_onnx
    from cudnn_convert.write import onnx as write_onnx

    detached = freeze.without_parameters(made.graph, made.recurrences, made.signature.outputs.values())
    graph = freeze.frozen(detached, made.model.variables, made.signature.outputs.values())
    for part in made.parts:
        model = lower_onnx.lower(graph, part.signature, made.recurrences, opset=options.opset)
        write_onnx.write(model, part_file(path, part.name), provenance=provenance)


WRITERS: Final[Mapping[str, Callable[[Plan, Path, str, Options], None]]] = MappingProxyType(
    {
        "savedmodel": _write_saved_model,
        "checkpoint": _write_checkpoint,
        "frozen": _write_frozen,
        "onnx": _write_onnx,
    }
)


def refuse(options: Options) -> None:
    """Raises UsageError for a flag that another format has."""
    given = {"--cell": options.cell != "compatible", "--rename": options.rename, "--slots": options.slots}
    flags = [flag for flag, value in given.items() if value]
    if flags and options.format != "checkpoint":
        raise UsageError(f"{', '.join(flags)}: expected --format checkpoint, found {options.format}")


def notes(made: Plan, options: Options) -> tuple[str, ...]:
    """What the format leaves out of a plan. Raises UsageError where a flag of the format finds nothing."""
    if options.format != "checkpoint":
        return ()
    if options.cell != "compatible" and all(r.sizes.mode is not Mode.LSTM for r in made.recurrences):
        raise UsageError(f"--cell {options.cell}: expected a model with an LSTM, found none; leave it out")
    found = _slots(made)
    if options.slots:
        lost = ", ".join(found.lost)
        return (f"optimizer slots dropped, for their variables are packed anew: {lost}",) if lost else ()
    return (f"{len(found)} optimizer slots dropped; keep them with --slots",) if len(found) else ()


def write(made: Plan, path: Path, options: Options, *, provenance: str) -> None:
    """Lowers a plan and writes the artifact of `options.format` to `path`. Raises as the target's writer."""
    if options.format != "savedmodel":
        tables.refuse(made.model, made.graph, options.format)
    WRITERS[options.format](made, path, provenance, options)
