"""Other runtimes: ONNX Runtime on bare fused nodes and on what tf2onnx makes, OpenVINO and more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from contender import Built
from problem import INPUT, OUTPUT, Problem

from cudnn_convert.model import Array, Mode
from cudnn_convert.recurrences import named_weights
from cudnn_convert.weights import layouts


def onnxruntime_session(
    problem: Problem, model: str, threads: int, *, batch_major: bool = False, apart: bool = False
) -> Built:
    """The only input and the first output of a model; `apart`: the directions have an axis of their own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (taken,), given = session.get_inputs(), session.get_outputs()[0]
    feed = {taken.name: np.ascontiguousarray(problem.x.transpose(1, 0, 2)) if batch_major else problem.x}

    def answer(y: Array) -> Array:
        if apart:
            return side_by_side(y)
        return y.swapaxes(0, 1) if batch_major else y

    return Built(lambda: session.run([given.name], feed)[0], answer)


def tflite_interpreter(problem: Problem, model: Path, threads: int) -> Built:
    """The only input and output of a TensorFlow Lite file; each call begins with zeros."""
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(model), num_threads=threads)
    (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(taken["index"], problem.x.shape)
    interpreter.allocate_tensors()

    def call() -> Array:
        interpreter.reset_all_variables()
        interpreter.set_tensor(taken["index"], problem.x)
        interpreter.invoke()
        y: Array = interpreter.get_tensor(given["index"])
        return y

    return Built(call, lambda y: y)


def side_by_side(y: Array) -> Array:
    """`[steps, directions, batch, units]` as `[steps, batch, directions*units]`."""
    joined: Array = y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
    return joined


def bare_node(problem: Problem, threads: int) -> Built:
    """A model of the fused nodes alone; two layers have what joins the directions between them."""
    return onnxruntime_session(problem, str(bare(problem)), threads, apart=True)


def bare(problem: Problem) -> Path:
    """The file of that model, made once."""
    from onnx import TensorProto, helper, numpy_helper, save

    path = problem.folder / "bare.onnx"
    if path.exists():
        return path
    sizes, nodes, constants, x = problem.recurrence.sizes, [], [], INPUT
    own = {"linear_before_reset": 1} if problem.mode is Mode.GRU else {}
    way = "bidirectional" if sizes.directions == 2 else "forward"
    for number, layer in enumerate(problem.recurrence.cells):
        y = OUTPUT if number == sizes.layers - 1 else f"y{number}"
        arrays = [
            np.stack([np.concatenate(part) for part in parts])
            for parts in (
                *zip(*(layouts.rows(cell, layouts.ONNX) for cell in layer), strict=True),
                [layouts.biases(cell, layouts.ONNX) for cell in layer],
            )
        ]
        names = [f"{key}{number}" for key in "WRB"]
        constants += [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True)]
        op = problem.mode.value.upper()
        nodes.append(helper.make_node(op, [x, *names], [y], hidden_size=sizes.units, direction=way, **own))
        if y != OUTPUT:
            x, shape = f"x{number}", f"shape{number}"
            constants.append(numpy_helper.from_array(np.array([0, 0, -1]), shape))
            nodes.append(helper.make_node("Transpose", [y], [f"{y}t"], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [f"{y}t", shape], [x]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, *axes])
        for name, axes in ((INPUT, [None, sizes.input_size]), (OUTPUT, [sizes.directions, None, sizes.units]))
    ]
    graph = helper.make_graph(nodes, "bare", ends[:1], ends[1:], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def tf2onnx_of_tensorflow_1(problem: Problem, threads: int) -> Built:
    """The network of `tensorflow_one` with its variables frozen."""
    import tensorflow as tf
    import tf2onnx
    from tensorflow_one import session

    made = session(problem, threads)
    frozen = tf.compat.v1.graph_util.convert_variables_to_constants(made, made.graph.as_graph_def(), [OUTPUT])
    path = problem.folder / "tf2onnx_tf1.onnx"
    tf2onnx.convert.from_graph_def(
        frozen, input_names=[f"{INPUT}:0"], output_names=[f"{OUTPUT}:0"], opset=17, output_path=str(path)
    )
    return onnxruntime_session(problem, str(path), threads)


def torch_module(problem: Problem, threads: int) -> Built:
    """`nn.LSTM` or `nn.GRU` in inference mode."""
    import torch

    torch.set_num_threads(threads)
    sizes = problem.recurrence.sizes
    kind = torch.nn.LSTM if problem.mode is Mode.LSTM else torch.nn.GRU
    module = kind(sizes.input_size, sizes.units, sizes.layers, bidirectional=sizes.directions == 2).eval()
    state = named_weights.to_state_dict(problem.recurrence)
    module.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in state.items()})
    x = torch.from_numpy(problem.x)

    def call() -> Any:
        with torch.inference_mode():
            return module(x)[0]

    return Built(call, lambda y: np.asarray(y.numpy()))


def openvino_node(problem: Problem, threads: int) -> Built:
    """The bare nodes in OpenVINO, with the sizes fixed."""
    return openvino_model(problem, bare(problem), threads, fixed=True, apart=True)


def openvino_model(
    problem: Problem, model: Path, threads: int, *, fixed: bool = False, apart: bool = False
) -> Built:
    """The only input and the first output of a model in OpenVINO; `fixed`: it is told the input's sizes.

    It computes in float32: its default on some processors is bfloat16. `apart` as in `onnxruntime_session`.
    """
    import openvino

    core = openvino.Core()
    read = core.read_model(model)
    if fixed:
        read.reshape(list(problem.x.shape))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    request = core.compile_model(read, "CPU", settings).create_infer_request()

    def answer(y: Array) -> Array:
        return side_by_side(np.asarray(y)) if apart else np.asarray(y)

    return Built(lambda: request.infer([problem.x])[0], answer)
