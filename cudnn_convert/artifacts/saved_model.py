"""Opens a SavedModel like a user: `tf.saved_model.load`, functions beside signatures too."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.artifacts import checkpoint, runners, safety
from cudnn_convert.errors import ReadError
from cudnn_convert.formats import PROVENANCE
from cudnn_convert.graph import session
from cudnn_convert.graph.control_flow import FunctionCall
from cudnn_convert.graph.graph import import_graph, open_session
from cudnn_convert.model import Array, Part, Signature
from cudnn_convert.read import graph_def
from cudnn_convert.recurrences import saved_functions


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in `assets.extra`."""
    return runners.read_record(path / "assets.extra" / PROVENANCE)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise UnsupportedModelError if loading and calling `parts` runs more than arithmetic."""
    if trust:
        return
    metas = _metas(path)
    for meta in metas:
        declared = graph_def.signatures(meta)
        named = [declared[part.name] for part in parts if part.name in declared] or [*declared.values()]
        ends = [name for signature in named for name in signature.outputs.values()]
        tables = safety.Filling(graph_def.initializers(meta), graph_def.list_assets(meta, path))
        if len(metas) == 1 and meta.HasField("object_graph_def"):
            tables = safety.NONE  # a loader of objects runs nothing of the graph beside them
        library = {function.signature.name for function in meta.graph_def.library.function}
        beside = [FunctionCall(name) for name in library & {part.name for part in parts} - declared.keys()]
        safety.refuse(path, meta, [*ends, *safety.local_initializers(meta)], tables, beside)


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open the SavedModel through `tf.saved_model.load`.

    A Session alone would hide frame errors. Its parts share their variables, and so the state in them. A part
    that is no signature is a function.
    """
    loaded = tf.saved_model.load(str(path))
    beside = [part.name for part in parts if part.name not in loaded.signatures]
    others = _functions(path, beside) if beside and len(parts) > 1 else {}

    def runner(part: Part) -> runners.Runner:
        if part.name in others:
            return others[part.name]
        name = runners.choose_signature(path, part.name, [*loaded.signatures])
        _, arguments = loaded.signatures[name].structured_input_signature
        named = runners.pair_inputs(path, part.signature.inputs, arguments)

        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            # Through `loaded`, which owns the variables: a function alone does not keep them alive.
            given = {named[key]: tf.constant(value) for key, value in feeds.items()}
            outputs = loaded.signatures[name](**given)
            keys = runners.pair_outputs(part.signature.outputs, outputs)
            return {keys[key]: np.asarray(value) for key, value in outputs.items()}

        return run

    return [runner(part) for part in parts]


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """List an interface for each signature, by the signature's keys."""
    listed = []
    for meta in _metas(path):
        for name, signature in graph_def.signatures(meta).items():
            # A sparse tensor is several inputs, of which the signature gives no shapes.
            infos = {key: meta.signature_def[name].inputs.get(key) for key in signature.inputs}
            if None not in infos.values():
                specs = {
                    key: checkpoint.tensor_spec(info.dtype, info.tensor_shape) for key, info in infos.items()
                }
                part = Part(name, Signature.of_names(signature.inputs, signature.outputs))
                listed.append(runners.Interface(part, specs))
    return listed


def _functions(path: Path, names: Sequence[str]) -> dict[str, runners.Runner]:
    """Return a runner for each function beside the signatures.

    No signature calls such a function.
    """
    (meta,) = _metas(path)
    graph, signatures = saved_functions.add_calls(meta, meta.graph_def, names)
    running = open_session(import_graph(graph))
    prefix = {meta.saver_def.filename_tensor_name: str(path / "variables" / "variables")}
    running.run(running.graph.get_operation_by_name(meta.saver_def.restore_op_name), prefix)
    return {name: session.answering(running, ends.inputs, ends.outputs) for name, ends in signatures.items()}


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the variables, then the constants of the graphs."""
    prefix = path / "variables" / "variables"
    if Path(f"{prefix}.index").is_file():
        yield from checkpoint.variables(prefix)
    for meta in _metas(path):
        yield from checkpoint.constants(meta.graph_def)


def load_graph(path: Path) -> tuple[Any, Path]:
    """Return the first MetaGraphDef, and the prefix of the checkpoint with the variables."""
    return _metas(path)[0], path / "variables" / "variables"


def _metas(path: Path) -> Any:
    """Return the MetaGraphDefs. Raises ReadError."""
    file = path / "saved_model.pb"
    try:
        return saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    except DecodeError as cause:
        raise ReadError(file, "artifact", expected="a SavedModel", found="a damaged file") from cause
