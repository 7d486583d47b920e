"""Our artifacts of the checkpoint, called as their users do, and every form that our lowering could take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from contender import TOLERANCE_INT8, Built
from problem import INPUT, OUTPUT, Problem, tensorflow_1
from runtimes import onnxruntime_session, openvino_model, tflite_interpreter

import cudnn_convert
from cudnn_convert.lower.tensorflow import layer_stack, while_loop
from cudnn_convert.lower.tensorflow.layer_stack import stack_layers
from cudnn_convert.model import Array, Cell, Mode

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True)
class Form:
    """A way to state a recurrence in TensorFlow ops: `layer` and `weights` as
    `lower/tensorflow/layer_stack.py` has them.

    `frames`: its loops are TensorFlow 1's, made of Enter and Switch, where an artifact has one op a loop.
    """

    layer: Callable[..., tuple[Any, Any, Any]]
    weights: Callable[[Cell], Mapping[str, Array]] = while_loop.weights
    lstm_only: bool = False
    frames: bool = False


#: What our SavedModel might be instead; a further form is one more entry.
FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "block": Form(layer_stack.block_layer, layer_stack.block_weights, lstm_only=True),
        "loop": Form(while_loop.layer),
        "loop_of_5": Form(partial(while_loop.layer, together=(5, 1))),
        "loop_of_10": Form(partial(while_loop.layer, together=(10, 1))),
        "loop_of_20": Form(partial(while_loop.layer, together=(20, 1))),
        "loop_in_frames": Form(partial(while_loop.layer, together=(10, 1)), frames=True),
    }
)


def savedmodel(problem: Problem, threads: int) -> Built:
    """Loaded into a Session, as users of TensorFlow 1 and TensorFlow Serving have it."""
    return _loaded(problem, threads, _converted(problem, "savedmodel"))


def savedmodel_jit(problem: Problem, threads: int) -> Built:
    """The same, its recurrences compiled by XLA."""
    folder = _converted(problem, "savedmodel", problem.folder / "savedmodel_jit", jit=True)
    return _loaded(problem, threads, folder)


def _loaded(problem: Problem, threads: int, folder: Path) -> Built:
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


def onnx_int8(problem: Problem, threads: int) -> Built:
    """Judged on the very input that is timed, by the bound of the check before the timing."""
    feeds = problem.folder / "feeds.npz"
    np.savez(feeds, **{INPUT: problem.x})
    out = problem.folder / "int8.onnx"
    flags = {"quantize": "int8", "max_error": TOLERANCE_INT8, "data": feeds}
    return onnxruntime_session(problem, str(_converted(problem, "onnx", out, verify=True, **flags)), threads)


def onnx_in_openvino(problem: Problem, threads: int) -> Built:
    """The same file as in ONNX Runtime, with steps and batch open."""
    return openvino_model(problem, _converted(problem, "onnx"), threads)


def tflite(problem: Problem, threads: int) -> Built:
    return tflite_interpreter(problem, _converted(problem, "tflite", problem.folder / "loop.tflite"), threads)


def tflite_fused(problem: Problem, threads: int) -> Built:
    """The file of a microcontroller, of the sizes of the problem, in TensorFlow Lite."""
    sizes = {"inputs": f"{INPUT}={INPUT}:0[{','.join(map(str, problem.x.shape))}]"}
    out = problem.folder / "fused.tflite"
    file = _converted(problem, "tflite", out, lowering="fused", **sizes)
    return tflite_interpreter(problem, file, threads)


def is_lstm(problem: Problem) -> bool:
    return problem.mode is Mode.LSTM


def form(name: str, problem: Problem, threads: int) -> Built:
    """One of `FORMS` in a graph of its own, its weights variables."""
    chosen, recurrence, sizes = FORMS[name], problem.recurrence, problem.recurrence.sizes
    values: list[tuple[Any, Array]] = []
    with tensorflow_1() if chosen.frames else tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, sizes.input_size], INPUT)
        zeros = tf.zeros([sizes.layers * sizes.directions, tf.shape(x)[1], sizes.units])
        arrays = []
        for p, cell in enumerate(cell for layer in recurrence.cells for cell in layer):
            weights = chosen.weights(cell)
            for key, value in weights.items():
                variable = v1.get_variable(f"{key}_{p}", value.shape, use_resource=True)
                values.append((variable, value))
                arrays.append(variable.read_value())
        compute = stack_layers(sizes, chosen.layer, len(weights), time_major=recurrence.time_major)
        y, _, _ = compute(x, zeros, zeros, None, *arrays)
        tf.identity(y, OUTPUT)
        session = v1.Session(graph=graph, config=config(threads))
        restore(session, values, problem.folder)
    return in_session(problem, session, f"{INPUT}:0", f"{OUTPUT}:0")


def restore(session: Any, values: Sequence[tuple[Any, Array]], folder: Path) -> None:
    """Gives the variables of the current graph their values by way of a checkpoint, as a user's come.

    What is fed lies in NumPy's memory, whose pages are larger: matrices that no cache holds are read faster.
    """
    for variable, value in values:
        variable.load(value, session)
    saver = v1.train.Saver([variable for variable, _ in values])
    saver.restore(session, saver.save(session, str(folder / "form.ckpt"), write_meta_graph=False))


def fits(name: str, problem: Problem) -> bool:
    """Whether a form knows the problem's cell."""
    return is_lstm(problem) or not FORMS[name].lstm_only


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


def _converted(problem: Problem, form: str, out: Path | None = None, **flags: Any) -> Path:
    """The artifact, made once; not verified unless the flags say so."""
    out = out or problem.folder / ("model.onnx" if form == "onnx" else form)
    if not out.exists():
        taken, given = (f"{name}={name}:0" for name in (INPUT, OUTPUT))
        ends = {"inputs": taken, "outputs": given}
        cudnn_convert.convert(problem.checkpoint, out, format=form, **{"verify": False} | ends | flags)
    return out
