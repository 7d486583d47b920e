"""Running an artifact the way its user will: TensorFlow 2's loader, a Session, ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.formats import part_file
from cudnn_convert.graph import build
from cudnn_convert.model import Array, Part

#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


def saved_model(path: Path, part: Part) -> Runner:
    """A SavedModel folder through `tf.saved_model.load`; a Session alone would hide frame errors."""
    loaded = tf.saved_model.load(str(path))

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        # Through `loaded`, which owns the variables: a function alone does not keep them alive.
        outputs = loaded.signatures[part.name](**{key: tf.constant(value) for key, value in feeds.items()})
        return {key: np.asarray(value) for key, value in outputs.items()}

    return run


def checkpoint(path: Path, part: Part) -> Runner:
    """A checkpoint through `import_meta_graph` and the saver it gives, as TensorFlow 1's users do."""
    signature, made = part.signature, tf.Graph()
    with made.as_default():
        saver = tf.compat.v1.train.import_meta_graph(f"{path}.meta")
        session = tf.compat.v1.Session()
        saver.restore(session, str(path))

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        fed = {signature.inputs[key]: value for key, value in feeds.items()}
        values = session.run(list(signature.outputs.values()), fed)
        return dict(zip(signature.outputs, map(np.asarray, values), strict=True))

    return run


def frozen(path: Path, part: Part) -> Runner:
    """A frozen graph in a Session, by the tensor names of the signature."""
    signature = part.signature
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(path.read_bytes())
    made = build.imported(graph)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with tf.compat.v1.Session(graph=made) as session:
            fed = {signature.inputs[key]: value for key, value in feeds.items()}
            values = session.run(list(signature.outputs.values()), fed)
        return dict(zip(signature.outputs, map(np.asarray, values), strict=True))

    return run


def onnx(path: Path, part: Part) -> Runner:
    """An ONNX file in ONNX Runtime on the CPU; its names are the signature's keys."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(part_file(path, part.name)), options, providers=["CPUExecutionProvider"]
    )

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in session.get_outputs()]
        values: list[Any] = session.run(names, dict(feeds))
        return dict(zip(names, values, strict=True))

    return run


def opened(form: str, path: Path, parts: Sequence[Part]) -> Runner:
    """The runner of an artifact, by the keys of all its parts. Raises ReadError where it does not load."""
    try:
        runners = [(part, RUNNERS[form](path, part)) for part in parts]
    except Exception as cause:  # each runtime has exceptions of its own
        first = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise ReadError(path, "artifact", expected=f"one that loads as {form}", found=first) from cause

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for part, runner in runners:
            fed = {key: feeds[part.prefix + key] for key in part.signature.inputs}
            found |= {part.prefix + key: value for key, value in runner(fed).items()}
        return found

    return run


RUNNERS: Final = MappingProxyType(
    {"savedmodel": saved_model, "checkpoint": checkpoint, "frozen": frozen, "onnx": onnx}
)
