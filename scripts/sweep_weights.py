"""Single weights of an artifact's recurrences, each off by 0.001 of its matrix's norm: does the proof see it?

    python scripts/sweep_weights.py [--fixture gru_bi] [--count 50] [--seed 0]

Converts a TensorFlow 1.15.5 fixture to ONNX, moves so many weights drawn at random, one at a time, and has
every recurrence asked by itself. Prints for each recurrence how many were seen, and by how many tolerances
the weakest; ends with 1 where one was not seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from cudnn_convert import pipeline, planning
from cudnn_convert.options import Options
from cudnn_convert.quiet import quiet
from cudnn_convert.verification.pieces import asking
from cudnn_convert.verification.pieces.piece import Artifact

DATA: Final = Path(__file__).resolve().parents[1] / "tests" / "data" / "tf1" / "1.15.5"
_FUSED: Final = ("LSTM", "GRU", "RNN")
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}


def moved(model: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """A copy of a model with one weight of one fused node moved, and which."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = [node for node in made.graph.node if node.op_type in _FUSED]
    node = nodes[rng.integers(len(nodes))]
    kind = int(rng.integers(1, 3))  # W or R
    tensor = next(one for one in made.graph.initializer if one.name == node.input[kind])
    value = numpy_helper.to_array(tensor).copy()
    place = tuple(int(rng.integers(width)) for width in value.shape)
    units = value.shape[1] // _GATES[node.op_type]
    gate = place[1] // units * units
    value[place] += 1e-3 * np.linalg.norm(value[place[0], gate : gate + units])
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return made, f"{node.name} {'WR'[kind - 1]}{[*place]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Move single weights, and ask whether the proof sees it.")
    parser.add_argument("--fixture", default="gru_bi")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    source, rng = DATA / given.fixture / "model.ckpt", np.random.default_rng(given.seed)
    options = Options(format="onnx")
    with tempfile.TemporaryDirectory() as folder, quiet():
        out = Path(folder, "model.onnx")
        pipeline.convert(source, out, options)
        plan = planning.planned(planning.opened(source, options, tag=None), options)
        model, other = onnx.load(str(out)), Path(folder, "other.onnx")
        shown = []
        for _ in range(given.count):
            wrong, name = moved(model, rng)
            onnx.save(wrong, str(other))
            artifact = Artifact("onnx", other, plan, lambda _: {})
            reports = asking.reports(artifact, stored="float32", seed=given.seed)
            shown.append((max(one.needed for one in reports), name))
    hidden = [name for share, name in shown if share <= 1]
    least = min(shown)
    print(f"{given.fixture}: {len(shown) - len(hidden)} of {len(shown)} seen, the weakest by {least[0]:.1f}")
    print("".join(f"not seen: {name}\n" for name in hidden), end="")
    return int(bool(hidden))


if __name__ == "__main__":
    sys.exit(main())
