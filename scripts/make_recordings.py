"""Writes models/NAME/recording.npz: the recorded answers of golden.npz in the form that `--golden` takes.

golden.npz is as TensorFlow 1.15.5's CPU cells gave it to scripts/make_models.py, by names of tensors; a
recording has keys, and says where it comes from. Run it after that script: python scripts/make_recordings.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.verification import recordings

MODELS: Final = Path(__file__).resolve().parents[1] / "models"


def write(folder: Path) -> None:
    """Write the recording of one model; what only its evaluation needs, such as `truth`, is left out."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    with np.load(folder / "golden.npz") as golden:
        arrays = {key: golden[key] for key in golden.files}
    count = 1 + max(int(re.match(r"feed(\d+)/", key)[1]) for key in arrays)  # type: ignore[index]
    sides = [
        [_by_key(arrays, number, case[side]) for number in range(count)] for side in ("inputs", "outputs")
    ]
    meta = {
        "recorder": "scripts/make_recordings.py",
        "source": next(name for name in ("model.ckpt", "model.h5") if any(folder.glob(f"{name}*"))),
        "tensorflow": case["tensorflow"],
        "python": "3.7",
        "cuda": None,
        "cudnn": None,
        "devices": [{"type": "CPU", "description": "TensorFlow's own cells, on a CPU"}],
        "tf32": {"on": False, "reason": "no GPU"},
    }
    for name, side in zip(("inputs", "outputs"), sides, strict=True):
        tensors = {_key(tensor): tensor for tensor in case[name] if _key(tensor) in side[0]}
        meta[name] = recordings.describe_tensors(
            {key: (tensor, side[0][key].dtype.name) for key, tensor in tensors.items()}
        )
    recordings.write(folder / "recording.npz", meta, *sides)


def _by_key(arrays: dict[str, Any], number: int, tensors: list[str]) -> dict[str, Any]:
    named = ((_key(tensor), f"feed{number}/{tensor}") for tensor in tensors)
    return {key: arrays[name] for key, name in named if name in arrays}


def _key(tensor: str) -> str:
    return tensor.removesuffix(":0").replace("/", "_")


if __name__ == "__main__":
    for case in sorted(MODELS.glob("*/case.json")):
        write(case.parent)
