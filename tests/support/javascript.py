"""Node.js with packages of npm, and what artifacts answer in it.

`make test-every` installs the packages into `javascript/` of its virtual environment, and
CUDNN_CONVERT_JAVASCRIPT names another folder with a `node_modules`. CUDNN_CONVERT_TENSORFLOWJS names a
`tensorflowjs_converter`, where none is on the PATH: it needs an older TensorFlow and so an environment of its
own.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from cudnn_convert.model import Array
from support.recorded import assert_close
from support.user_processes import FOLDER

#: The packages that a runtime of `user.mjs` imports.
ONNX_RUNTIMES: Final = {"onnxruntime-web": ("onnxruntime-web",), "onnxruntime-node": ("onnxruntime-node",)}
TENSORFLOW: Final = {
    "tfjs-cpu": ("@tensorflow/tfjs",),
    "tfjs-wasm": ("@tensorflow/tfjs", "@tensorflow/tfjs-backend-wasm"),
}
PACKAGES: Final = {**ONNX_RUNTIMES, **TENSORFLOW}


@dataclass(frozen=True)
class Stream:
    """How a batch-major sequence is cut: the `cut` input into `chunks` of steps, and the `lengths` with it.

    `states` has the depth and the width of each state, which begins with zeros.
    """

    cut: str
    chunks: Sequence[int]
    states: Mapping[str, tuple[int, int]]
    lengths: Sequence[str] = ()


#: Seconds that Node.js may take for the jobs of a test.
_SECONDS: Final = 300


def find_modules(*packages: str) -> Path:
    """The folder `node_modules` that has the packages; skips without it, or without Node.js."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine: Node.js 20 or newer")
    named = os.environ.get("CUDNN_CONVERT_JAVASCRIPT")
    folder = Path(named or Path(sys.prefix) / "javascript") / "node_modules"
    for package in packages:
        if not (folder / package / "package.json").is_file():
            pytest.skip(f"no {package} in {folder}; make test-every installs it")
    return folder.resolve()


def find_converter() -> str:
    """The path of `tensorflowjs_converter`; skips without it."""
    found = shutil.which(os.environ.get("CUDNN_CONVERT_TENSORFLOWJS", "tensorflowjs_converter"))
    if found is None:
        cure = "docs/serving/javascript.md installs it, CUDNN_CONVERT_TENSORFLOWJS names it"
        pytest.skip(f"no tensorflowjs_converter: {cure}")
    return found


def call_converter(*words: object, code: int = 0) -> str:
    """What `tensorflowjs_converter` prints, which has to end with `code`."""
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [find_converter(), *map(str, words)],
        capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def run_node(program: Path, *words: object, packages: Sequence[str]) -> str:
    """What a program that imports packages prints; it lies in the folder that it runs in."""
    modules = program.parent / "node_modules"
    if not modules.exists():
        modules.symlink_to(find_modules(*packages), target_is_directory=True)
    done = subprocess.run(
        ["node", program.name, *map(str, words)],
        cwd=program.parent, capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(runtime: str, jobs: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Runs jobs of `artifacts.job` in Node.js, and stores their answers as `user.py` does.

    A job may have a `stream`: then each feed is given in chunks, which take the states from call to call.
    """
    find_modules(*PACKAGES[runtime])
    shutil.copy(FOLDER / "user.mjs", folder)
    asked, files = [_ask(runtime, job) for job in jobs], (folder / "jobs.json", folder / "told.json")
    files[0].write_text(json.dumps(asked), encoding="utf-8")
    run_node(folder / "user.mjs", *files, packages=PACKAGES[runtime])
    for job, told in zip(jobs, json.loads(files[1].read_text(encoding="utf-8")), strict=True):
        assert isinstance(told, list), f"{job['artifact']}\n{told}"
        calls = [{name: _decode(value) for name, value in call.items()} for call in told]
        np.savez(job["answers"], **_join(runtime, job, calls))  # type: ignore[arg-type]


def compare(job: Mapping[str, Any], bounds: Mapping[str, float]) -> None:
    """Compares the answers to a job with those in its `golden`, floats by the bound of their type."""
    compared = 0
    with np.load(job["golden"]) as golden, np.load(job["answers"]) as answers:
        for feed in _feeds(golden):
            for key, names in job["outputs"].items():
                if "stream" in job and key.endswith("_next"):
                    continue  # what was recorded is the whole answer
                expected = golden[f"{feed}/{names['source']}"]
                found = answers[f"{feed}/{key}"]
                if expected.dtype.kind in "iu":
                    np.testing.assert_array_equal(found, expected, err_msg=key)
                else:
                    assert_close(found, expected, bounds[expected.dtype.name], name=(feed, key))
                compared += 1
    assert compared


def _feeds(golden: Any) -> list[str]:
    return sorted({key.partition("/")[0] for key in golden.files})


def _ask(runtime: str, job: Mapping[str, Any]) -> dict[str, Any]:
    with np.load(job["golden"]) as golden:
        calls = [call for feed in _feeds(golden) for call in _calls(job, golden, feed)]
    ends = partial(_name, runtime, job)
    states = job["stream"].states if "stream" in job else {}
    return {
        "runtime": runtime,
        "model": job["artifact"],
        "calls": [{ends("inputs", key): _encode(value) for key, value in call.items()} for call in calls],
        "states": {ends("inputs", key): ends("outputs", f"{key}_next") for key in states},
        "outputs": [ends("outputs", key) for key in job["outputs"]],
    }


def _name(runtime: str, job: Mapping[str, Any], kind: str, key: str) -> str:
    """ONNX has the keys of the signature; TensorFlow.js has the graph's tensors, the first without `:0`."""
    return key if runtime in ONNX_RUNTIMES else str(job[kind][key]["artifact"]).removesuffix(":0")


def _calls(job: Mapping[str, Any], golden: Any, feed: str) -> Iterator[dict[str, Array]]:
    """The calls of a feed: one, or its chunks."""
    stream: Stream | None = job.get("stream")
    states = stream.states if stream else {}
    sources = {key: names["source"] for key, names in job["inputs"].items() if key not in states}
    given = {key: golden[f"{feed}/{name}"] for key, name in sources.items()}
    if stream is None:
        yield given
        return
    rows, begin = given[stream.cut].shape[0], 0
    zeros = {key: np.zeros([depth, rows, width], np.float32) for key, (depth, width) in states.items()}
    for size in stream.chunks:
        end = begin + size
        left = {key: np.clip(given[key] - begin, 0, size) for key in stream.lengths}
        yield given | left | {stream.cut: given[stream.cut][:, begin:end]} | (zeros if not begin else {})
        begin = end
    assert begin == given[stream.cut].shape[1]


def _join(runtime: str, job: Mapping[str, Any], calls: list[dict[str, Array]]) -> dict[str, Array]:
    """The answers by feed and key; those to chunks are joined along the steps, the second axis."""
    with np.load(job["golden"]) as golden:
        feeds = _feeds(golden)
    each = len(calls) // len(feeds)
    found = {}
    for number, feed in enumerate(feeds):
        for key in job["outputs"]:
            name = _name(runtime, job, "outputs", key)
            parts = [call[name] for call in calls[number * each : (number + 1) * each]]
            is_state = key.endswith("_next")
            found[f"{feed}/{key}"] = (
                parts[-1] if is_state else np.concatenate(parts, 1) if each > 1 else parts[0]
            )
    return found


def _encode(value: Array) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"dtype": value.dtype.name, "shape": value.shape, "bytes": data}


def _decode(told: Mapping[str, Any]) -> Array:
    return np.frombuffer(base64.b64decode(told["bytes"]), told["dtype"]).reshape(told["shape"])
