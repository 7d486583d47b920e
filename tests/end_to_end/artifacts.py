"""Conversions for the end-to-end tests, and their answers from a user's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from samples import Fixture

import cudnn_convert
from cudnn_convert.verification import origin

USER = Path(__file__).with_name("user.py")


def convert(
    sample: Fixture, form: str, folder: Path, **flags: Any
) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    """Converts a sample with its own flags and `flags`; gives the report and the user's job."""
    out = folder / sample.name
    report = cudnn_convert.convert(sample.prefix, out, format=form, **sample.options | flags)
    _, path, recorded = origin.read(out)
    assert recorded is not None
    names = {
        kind: {
            key: {"source": source, "artifact": recorded["tensors"][kind][key]}
            for key, source in recorded[kind].items()
        }
        for kind in ("inputs", "outputs")
    }
    golden, answers = str(sample.folder / "golden.npz"), str(folder / f"{sample.name}.npz")
    return report, {"artifact": str(path), "format": form, "golden": golden, "answers": answers, **names}


def answer(jobs: list[dict[str, Any]], folder: Path) -> None:
    """Runs the jobs where cudnn_convert cannot be imported."""
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-I", str(USER), str(listed)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def agree(sample: Fixture, report: cudnn_convert.Report, path: Path, *, bound: float) -> None:
    """Every answer that the user's process stored at `path` is what TensorFlow 1 recorded."""
    with np.load(path) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key, name in report.outputs.items():
                found, expected = answers[f"feed{number}/{key}"], feed[name]
                if expected.dtype.kind in "iu":
                    np.testing.assert_array_equal(found, expected)
                else:
                    assert within(found, expected, atol=bound, rtol=bound) <= 1, (sample.name, key)


def within(found: np.ndarray, expected: np.ndarray, *, atol: float, rtol: float) -> float:
    """The share of `atol + rtol*|expected|` that the worst element uses."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    wide = expected.astype(np.float64)
    gap = np.abs(found.astype(np.float64) - wide)
    assert gap.size and np.isfinite(gap).all()
    return float(np.max(gap / (atol + rtol * np.abs(wide))))
