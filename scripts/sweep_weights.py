"""Single weights of an artifact's recurrences, each off by 0.001 of its matrix's norm: does the proof see it?

    python scripts/sweep_weights.py [--fixture gru_bi] [--format onnx|tflite] [--count 50] [--seed 0]

Converts a TensorFlow 1.15.5 fixture, moves so many weights drawn at random, one at a time, and has every
recurrence asked by itself. Prints how many were seen, and by how many tolerances the weakest; ends with 1
where one was not seen.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from cudnn_convert import pipeline
from cudnn_convert.context import silence
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.verification.pieces import ask
from cudnn_convert.verification.pieces.piece_inputs import Artifact

DATA: Final = Path(__file__).resolve().parents[1] / "tests" / "data" / "tf1" / "1.15.5"
_FUSED: Final = ("LSTM", "GRU", "RNN")
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}


def move_in_onnx(path: Path, plan: Any, rng: np.random.Generator, other: Path) -> str:
    """Writes a copy of a model with one weight of one fused node moved, and says which."""
    model = onnx.load(str(path))
    nodes = [node for node in model.graph.node if node.op_type in _FUSED]
    node = nodes[rng.integers(len(nodes))]
    kind = int(rng.integers(1, 3))  # W or R
    tensor = next(one for one in model.graph.initializer if one.name == node.input[kind])
    value = numpy_helper.to_array(tensor).copy()
    units = value.shape[1] // _GATES[node.op_type]
    number = int(rng.integers(len(value)))
    name = f"{node.name} {'WR'[kind - 1]}[{number}]"
    name += move(value[number], units, rng)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(model, str(other))
    return name


def move_in_tflite(path: Path, plan: Any, rng: np.random.Generator, other: Path) -> str:
    """Writes a copy of a file with one weight of one matrix of a recurrence moved, and says which."""
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(path))
    code = schema.BuiltinOperator.FULLY_CONNECTED
    products = [
        (number, graph.tensors[op.inputs[1]], graph.tensors[op.outputs[0]].name.decode())
        for number, graph in enumerate(model.subgraphs)
        for op in graph.operators
        if model.operatorCodes[op.opcodeIndex].builtinCode == code
    ]
    nodes = tuple(f"{one.node}/" for one in plan.recurrences)
    # Those of the states stand in subgraphs of their own, where names are short.
    matrices = [(tensor, name) for number, tensor, name in products if number or name.startswith(nodes)]
    tensor, name = matrices[rng.integers(len(matrices))]
    data = np.frombuffer(bytes(bytearray(model.buffers[tensor.buffer].data)), np.float32)
    value = data.reshape(tensor.shape).copy()
    (units,) = {one.sizes.units for one in plan.recurrences}
    name += move(value, units, rng)
    model.buffers[tensor.buffer] = copy.copy(model.buffers[tensor.buffer])
    model.buffers[tensor.buffer].data = np.frombuffer(value.tobytes(), np.uint8)
    flatbuffer_utils.write_model(model, str(other))
    return name


#: How a weight of an artifact is moved, by format.
MOVES: Final[Mapping[str, Callable[..., str]]] = MappingProxyType(
    {"onnx": move_in_onnx, "tflite": move_in_tflite}
)


def move(value: np.ndarray, units: int, rng: np.random.Generator) -> str:
    """Moves one entry of a matrix, whose gates are `units` rows each, and says which."""
    place = tuple(int(rng.integers(width)) for width in value.shape)
    gate = place[0] // units * units
    value[place] += 1e-3 * np.linalg.norm(value[gate : gate + units])
    return str([*place])


def main() -> int:
    parser = argparse.ArgumentParser(description="Move single weights, and ask whether the proof sees it.")
    parser.add_argument("--fixture", default="gru_bi")
    parser.add_argument("--format", default="onnx", choices=MOVES)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    source, rng = DATA / given.fixture / "model.ckpt", np.random.default_rng(given.seed)
    options = Options(format=given.format)
    with tempfile.TemporaryDirectory() as folder, silence():
        out, other = (Path(folder, f"{name}.{given.format}") for name in ("model", "other"))
        pipeline.convert(source, out, options)
        plan = make_plan(read_source(source, options, tag=None), options)
        shown = []
        for _ in range(given.count):
            name = MOVES[given.format](out, plan, rng, other)
            artifact = Artifact(given.format, other, plan, lambda _: {})
            reports = ask.reports(artifact, stored="float32", seed=given.seed)
            shown.append((max(one.needed for one in reports), name))
    hidden = [name for share, name in shown if share <= 1]
    least = min(shown)
    print(f"{given.fixture}: {len(shown) - len(hidden)} of {len(shown)} seen, the weakest by {least[0]:.1f}")
    print("".join(f"not seen: {name}\n" for name in hidden), end="")
    return int(bool(hidden))


if __name__ == "__main__":
    sys.exit(main())
