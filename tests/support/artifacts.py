"""Conversions for the end-to-end tests, and the processes of users who run what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cudnn_convert
from cudnn_convert.artifacts import runners
from support import user_processes
from support.recorded import assert_close
from support.samples import Fixture

#: What a user runs who has ONNX Runtime, OpenVINO or NumPy alone.
WITHOUT_TENSORFLOW = ("onnx", "openvino", "npz", "safetensors")


def convert(
    sample: Fixture, form: str, folder: Path, **flags: Any
) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    """Converts a sample with its own flags and `flags`; gives the report and the user's job."""
    out = folder / sample.name
    report = cudnn_convert.convert(sample.prefix, out, format=form, **sample.options | flags)
    return report, job(out, form, sample.folder / "golden.npz", folder / f"{sample.name}.npz")


def job(out: Path, form: str, golden: Path, answers: Path) -> dict[str, Any]:
    """The user's job for what was written to `out`: `golden` has the feeds, `answers` is written."""
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    names = {
        kind: {
            key: {"source": source, "artifact": recorded["tensors"][kind][key]}
            for key, source in recorded[kind].items()
        }
        for kind in ("inputs", "outputs")
    }
    return {"artifact": str(path), "format": form, "golden": str(golden), "answers": str(answers), **names}


def jobs_of_parts(out: Path, form: str, golden: Path, answers: Path) -> list[dict[str, Any]]:
    """What a user runs: one job for each signature."""
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    parts = sorted({key.rpartition("/")[0] for key in recorded["inputs"]})
    jobs = []
    for part in parts:
        names = {
            kind: {
                key.rpartition("/")[2]: {"source": key, "artifact": name}
                for key, name in recorded["tensors"][kind].items()
                if key.rpartition("/")[0] == part
            }
            for kind in ("inputs", "outputs")
        }
        own = path.glob(f"*.{form}") if form in ("onnx", "tflite") else ()
        files = [file for file in own if not part or file.stem == part] or [path]
        job = {"artifact": str(files[0]), "format": form, "golden": str(golden), "signature": part}
        jobs.append(job | {"answers": f"{answers}.{part}.npz"} | names)
    return jobs


def answer(jobs: list[dict[str, Any]]) -> None:
    """Runs the jobs where cudnn_convert cannot be imported, ONNX and arrays also without TensorFlow."""
    for tensorflow in (False, True):
        chosen = [job for job in jobs if (job["format"] not in WITHOUT_TENSORFLOW) == tensorflow]
        if chosen:
            process = user_processes.user(tensorflow=tensorflow)
            errors = [error for error in process.ask(chosen) if error]
            assert not errors, "\n".join([*errors, process.printed()])


def agree(sample: Fixture, report: cudnn_convert.Report, path: Path, *, bound: float) -> None:
    """Every answer that the user's process stored at `path` is what TensorFlow 1 recorded."""
    with np.load(path) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key, name in report.outputs.items():
                found, expected = answers[f"feed{number}/{key}"], feed[name]
                if expected.dtype.kind in "iuS":
                    np.testing.assert_array_equal(found.astype(expected.dtype), expected)
                else:
                    assert_close(found, expected, bound, name=(sample.name, key))
