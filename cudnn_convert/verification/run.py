"""Running an artifact the way its user will: TensorFlow 2's loader, a Session, ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.graph import build
from cudnn_convert.model import Array, Signature
from cudnn_convert.plan import SERVING

#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


def saved_model(path: Path, signature: Signature) -> Runner:
    """A SavedModel folder through `tf.saved_model.load`; a Session alone would hide frame errors."""
    loaded = tf.saved_model.load(str(path))

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        # Through `loaded`, which owns the variables: a function alone does not keep them alive.
        outputs = loaded.signatures[SERVING](**{key: tf.constant(value) for key, value in feeds.items()})
        return {key: np.asarray(value) for key, value in outputs.items()}

    return run


def frozen(path: Path, signature: Signature) -> Runner:
    """A frozen graph in a Session, by the tensor names of `signature`."""
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(path.read_bytes())
    made = build.imported(graph)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        with tf.compat.v1.Session(graph=made) as session:
            fed = {signature.inputs[key]: value for key, value in feeds.items()}
            values = session.run(list(signature.outputs.values()), fed)
        return dict(zip(signature.outputs, map(np.asarray, values), strict=True))

    return run


def onnx(path: Path, signature: Signature) -> Runner:
    """An ONNX file in ONNX Runtime on the CPU; its names are the signature's keys."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in session.get_outputs()]
        values: list[Any] = session.run(names, dict(feeds))
        return dict(zip(names, values, strict=True))

    return run


def opened(form: str, path: Path, signature: Signature) -> Runner:
    """The runner of an artifact. Raises ReadError where it does not load."""
    try:
        return RUNNERS[form](path, signature)
    except Exception as cause:  # each runtime has exceptions of its own
        first = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise ReadError(path, "artifact", expected=f"one that loads as {form}", found=first) from cause


RUNNERS: Final = MappingProxyType({"savedmodel": saved_model, "frozen": frozen, "onnx": onnx})
