"""Opens a TensorFlow 1 checkpoint and MetaGraph like `import_meta_graph` and the saver."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import ReadError
from cudnn_convert.graph.index import AnyGraph, all_nodes
from cudnn_convert.model import SERVING, Array, Part, Signature
from cudnn_convert.storage import RECORD


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in the file beside the checkpoint."""
    return runners.read_record(path.parent / RECORD)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise UnsupportedModelError if loading and calling `parts` runs more than arithmetic."""
    if trust:
        return
    from cudnn_convert.artifacts import safety

    meta, _ = load_graph(path)
    safety.refuse(path, meta, runners.outputs_of_graph(path, meta.graph_def, parts))


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open a session for each part, run by the tensor names of the signature."""
    return [_open(path, part) for part in parts]


def _open(path: Path, part: Part) -> runners.Runner:
    import tensorflow as tf

    from cudnn_convert.graph.graph import open_session
    from cudnn_convert.graph.session import answering

    graph = tf.Graph()
    with graph.as_default():
        saver = tf.compat.v1.train.import_meta_graph(f"{path}.meta")
        session = open_session(graph)
        saver.restore(session, str(path))
    ops = {op.name for op in graph.get_operations()}
    return answering(session, *runners.pair_tensors(path, part.signature, ops))


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """Return the signature in the file beside the checkpoint."""
    return graph_interfaces(path, load_graph(path)[0].graph_def, provenance(path))


def graph_interfaces(
    path: Path, graph: AnyGraph, recorded: Mapping[str, Any] | None
) -> list[runners.Interface]:
    """Return a graph's signature from a provenance. Raises ReadError if missing."""
    if recorded is None:
        expected = "a graph with the list of its inputs and outputs, as this tool writes it"
        advice = "convert it first, and run the result"
        raise ReadError(path, "provenance", expected=expected, found="no such list", advice=advice)
    tensors = recorded["tensors"]
    nodes = {node.name: node for node in graph.node}
    specs = {}
    for key, name in tensors["inputs"].items():
        attributes = nodes[name.partition(":")[0]].attr
        specs[key] = tensor_spec(attributes["dtype"].type, attributes["shape"].shape)
    part = Part(SERVING, Signature(tensors["inputs"], tensors["outputs"]))
    return [runners.Interface(part, specs)]


def tensor_spec(dtype: int, shape: Any) -> runners.TensorSpec:
    """Return the spec of a DataType and a TensorShapeProto."""
    import tensorflow as tf

    sizes = None if shape.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
    return runners.TensorSpec(np.dtype(tf.as_dtype(dtype).as_numpy_dtype), sizes)


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the checkpoint's variables, then the constants of the graph."""
    yield from variables(path)
    if Path(f"{path}.meta").is_file():
        yield from constants(load_graph(path)[0].graph_def)


def variables(prefix: Path) -> Iterator[tuple[str, Array]]:
    """Yield the float variables by key."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating:
            yield name, np.asarray(reader.get_tensor(name))


def constants(graph: AnyGraph) -> Iterator[tuple[str, Array]]:
    """Yield the float constants in a GraphDef and in the functions."""
    import tensorflow as tf

    for node in all_nodes(graph):
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            yield node.name, tf.make_ndarray(node.attr["value"].tensor)


def load_graph(path: Path) -> tuple[Any, Path]:
    """Return the MetaGraphDef, and the prefix of the checkpoint with the variables."""
    from tensorflow.core.protobuf import meta_graph_pb2

    return meta_graph_pb2.MetaGraphDef.FromString(Path(f"{path}.meta").read_bytes()), path
