"""From a plan to an artifact: which lowering and which writer make each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cudnn_convert.formats import part_file
from cudnn_convert.lower import freeze
from cudnn_convert.lower import tensorflow as lower_tensorflow
from cudnn_convert.lower.tensorflow import Lowered
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.write import frozen_graph, saved_model


def _lowered(made: Plan, options: Options) -> Lowered:
    """The CPU graph of a plan, with the signature's inputs even where nothing reads them."""
    kept = [*made.signature.inputs.values(), *made.signature.outputs.values()]
    return lower_tensorflow.lower(
        made.graph, made.recurrences, made.model.variables, outputs=kept, lowering=options.lowering
    )


def _write_saved_model(made: Plan, path: Path, provenance: str, options: Options) -> None:
    lowered = _lowered(made, options)
    saved_model.write(path, lowered.graph, made.parts, lowered.variables, provenance=provenance)


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
    {"savedmodel": _write_saved_model, "frozen": _write_frozen, "onnx": _write_onnx}
)


def write(made: Plan, path: Path, options: Options, *, provenance: str) -> None:
    """Lowers a plan and writes the artifact of `options.format` to `path`. Raises as the target's writer."""
    WRITERS[options.format](made, path, provenance, options)
