"""Our artifacts of the checkpoint, called as their users do, and every form that our lowering could take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from contender import Built
from problem import INPUT, OUTPUT, Problem, tensorflow_1
from runtimes import onnxruntime_session

import cudnn_convert
from cudnn_convert.lower import recurrence as lowering
from cudnn_convert.model import Mode

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True)
class Form:
    """A way to state a recurrence in TensorFlow ops: `stack` and `weights` as `lower/recurrence.py` has them.

    `frames`: its loops are TensorFlow 1's, made of Enter and Switch, where an artifact has one op a loop.
    """

    stack: Callable[..., Any]
    weights: Callable[..., Any]
    lstm_only: bool = False
    frames: bool = False


_LOOP: Final = (partial(lowering.stack, block=False), partial(lowering.weights, block=False))
#: What our SavedModel might be instead; a further form is one more entry.
FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "block": Form(
            partial(lowering.stack, block=True), partial(lowering.weights, block=True), lstm_only=True
        ),
        "loop": Form(*_LOOP),
        "loop_in_frames": Form(*_LOOP, frames=True),
    }
)


def savedmodel(problem: Problem, threads: int) -> Built:
    """Loaded into a Session, as users of TensorFlow 1 and TensorFlow Serving have it."""
    folder = _converted(problem, "savedmodel")
    with tf.Graph().as_default() as graph:
        session = v1.Session(graph=graph, config=config(threads))
        meta = v1.saved_model.load(session, ["serve"], str(folder))
    signature = meta.signature_def["serving_default"]
    return in_session(problem, session, signature.inputs[INPUT].name, signature.outputs[OUTPUT].name)


def savedmodel_function(problem: Problem, threads: int) -> Built:
    """Loaded by `tf.saved_model.load`, its signature called."""
    return as_function(problem, _converted(problem, "savedmodel"), batch_major=False)


def onnx(problem: Problem, threads: int) -> Built:
    return onnxruntime_session(problem, str(_converted(problem, "onnx")), threads)


def form(name: str, problem: Problem, threads: int) -> Built:
    """One of `FORMS` in a graph of its own, its weights variables."""
    chosen, recurrence, sizes = FORMS[name], problem.recurrence, problem.recurrence.sizes
    values = {}
    with tensorflow_1() if chosen.frames else tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, sizes.input_size], INPUT)
        zeros = tf.zeros([sizes.layers * sizes.directions, tf.shape(x)[1], sizes.units])
        arrays = []
        for p, cell in enumerate(cell for layer in recurrence.cells for cell in layer):
            for key, value in chosen.weights(cell).items():
                variable = v1.get_variable(f"{key}_{p}", value.shape, use_resource=True)
                values[variable.ref()] = value
                arrays.append(variable.read_value())
        y, _, _ = chosen.stack(recurrence)(x, zeros, zeros, None, *arrays)
        tf.identity(y, OUTPUT)
        session = v1.Session(graph=graph, config=config(threads))
        for variable, value in values.items():
            variable.deref().load(value, session)
    return in_session(problem, session, f"{INPUT}:0", f"{OUTPUT}:0")


def fits(name: str, problem: Problem) -> bool:
    """Whether a form knows the problem's cell."""
    return problem.mode is Mode.LSTM or not FORMS[name].lstm_only


def config(threads: int) -> Any:
    return v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)


def in_session(problem: Problem, session: Any, taken: str, given: str) -> Built:
    """A Session's callable, which costs less per call than `Session.run` and the same for all."""
    run = session.make_callable(given, feed_list=[taken])
    return Built(lambda: run(problem.x), np.asarray)


def as_function(problem: Problem, folder: Path, *, batch_major: bool) -> Built:
    """The only signature of a SavedModel, from a tensor to an array."""
    loaded = tf.saved_model.load(str(folder))
    function = loaded.signatures["serving_default"]
    (key,) = function.structured_input_signature[1]
    (given,) = function.structured_outputs
    x = tf.constant(problem.x.transpose(1, 0, 2) if batch_major else problem.x)

    def call(held: Any = loaded) -> Any:  # nothing else keeps the variables
        return function(**{key: x})[given].numpy()

    return Built(call, lambda y: y.transpose(1, 0, 2) if batch_major else y)


def _converted(problem: Problem, form: str) -> Path:
    """The artifact, made once."""
    out = problem.folder / ("model.onnx" if form == "onnx" else form)
    if not out.exists():
        taken, given = (f"{name}={name}:0" for name in (INPUT, OUTPUT))
        cudnn_convert.convert(problem.checkpoint, out, format=form, inputs=taken, outputs=given, verify=False)
    return out
