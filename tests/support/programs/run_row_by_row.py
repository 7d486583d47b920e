"""Runs a TensorFlow Lite file of one row, row by row, as a user does.

    python -I run_row_by_row.py FILE ROWS.npz RUNTIME=ANSWERS.npz [RUNTIME=ANSWERS.npz] [STATE=NEXT ...]

RUNTIME is `lite` or `micro`. ROWS has the inputs by key, rows first. States are inputs of a stream: each row
is run step by step from zeros, and ANSWERS has the outputs of its last step, and of every step `KEY/steps`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

file, rows_path, *pairs = sys.argv[1:]
states = dict(pair.split("=") for pair in pairs)
answers_paths = {runtime: states.pop(runtime) for runtime in ("lite", "micro") if runtime in states}
rows = dict(np.load(rows_path))
#: The axis of rows of an output: behind the layers in a state.
STATE = "state_"


def open_lite() -> tuple[Any, dict[str, Any]]:
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(file)
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner()
    details = runner.get_input_details()

    def call(feed: dict[str, Any]) -> dict[str, Any]:
        interpreter.reset_all_variables()
        return runner(**feed)

    return call, {key: detail["shape"] for key, detail in details.items()}


def open_micro() -> tuple[Any, dict[str, Any]]:
    from tensorflow.lite.python import schema_py_generated as schema
    from tflite_micro.python.tflite_micro import runtime as micro

    content = open(file, "rb").read()  # noqa: PTH123, SIM115 - a script of a user
    interpreter = micro.Interpreter.from_bytes(content)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    (signature,), graph = model.signatureDefs, model.subgraphs[0]
    takes = {end.name.decode(): [*graph.inputs].index(end.tensorIndex) for end in signature.inputs}
    gives = {end.name.decode(): [*graph.outputs].index(end.tensorIndex) for end in signature.outputs}

    def call(feed: dict[str, Any]) -> dict[str, Any]:
        interpreter.reset()
        for key, number in takes.items():
            interpreter.set_input(feed[key], number)
        interpreter.invoke()
        return {key: interpreter.get_output(number) for key, number in gives.items()}

    return call, {key: graph.tensors[graph.inputs[number]].shape for key, number in takes.items()}


def run(call: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    for row in range(len(next(iter(rows.values())))):
        feed = {key: np.ascontiguousarray(value[row : row + 1]) for key, value in rows.items()}
        if not states:
            answers.append(call(feed))
            continue
        ((key, sequence),) = feed.items()
        carried = {state: np.zeros(shapes[state], np.float32) for state in states}
        steps = []
        for step in range(sequence.shape[1]):
            steps.append(call({key: np.ascontiguousarray(sequence[:, step : step + 1]), **carried}))
            carried = {state: steps[-1][following] for state, following in states.items()}
        every = {f"{name}/steps": np.stack([each[name] for each in steps], 1) for name in steps[-1]}
        answers.append(steps[-1] | every)
    return {
        key: np.concatenate([answer[key] for answer in answers], 1 if key.startswith(STATE) else 0)
        for key in answers[0]
    }


for runtime, answers_path in answers_paths.items():
    np.savez(answers_path, **run(*{"lite": open_lite, "micro": open_micro}[runtime]()))
