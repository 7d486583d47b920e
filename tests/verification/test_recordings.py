"""Recordings that do not fit are refused in a line each; tensors pair what keys do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, UNITS, drawing, lstm, model, placeholder, variable
from support.plans import plan_graph

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.verification import check, graph_judge, recordings
from cudnn_convert.verification.compare import Tolerance

Arrays = dict[str, np.ndarray]
DEVICES = [{"name": "/device:CPU:0", "type": "CPU", "description": ""}]
META: dict[str, Any] = {
    "recorder": "a test",
    "source": "model",
    "tensorflow": "1.15.5",
    "python": "3.7.16",
    "cuda": None,
    "cudnn": None,
    "devices": DEVICES,
    "tf32": {"on": False, "reason": "no GPU"},
    "inputs": recordings.describe_tensors({"x": ("x:0", "float32")}),
    "outputs": recordings.describe_tensors({"scores": ("scores:0", "float32")}),
}
X = np.linspace(-1, 1, 5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)


@pytest.fixture(scope="module")
def made() -> Plan:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, "scores")
    return plan_graph(model(graph), outputs=["scores"])


def answered(made: Plan, *feeds: np.ndarray) -> list[np.ndarray]:
    with graph_judge.open_source(made) as judge:
        return [judge.run({"x:0": feed}, [made.signature.outputs["scores"]])[0] for feed in feeds]


def written(folder: Path, made: Plan, change: Callable[[Arrays, dict[str, Any]], None]) -> Path:
    """A recording of what the reference answers, but for `change`."""
    arrays = {"feed0/in/x": X, "feed0/out/scores": answered(made, X)[0]}
    meta = json.loads(json.dumps({"format": recordings.FORMAT, "version": recordings.VERSION, **META}))
    change(arrays, meta)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(folder / "golden.npz", **arrays)
    return folder / "golden.npz"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    feeds = [{"a/b": np.arange(6.0).reshape(2, 3)}, {"a/b": np.ones((1, 2))}]
    answers = [{"y": np.array([b"one", b"two"])}, {"y": np.array([b"three"])}]
    meta = META | {
        "inputs": recordings.describe_tensors({"a/b": ("a/b:0", "float64")}),
        "outputs": recordings.describe_tensors({"y": ("y:1", "string")}),
    }
    recordings.write(tmp_path / "file", meta, feeds, answers)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    found = recordings.read_recording(tmp_path / "file")
    assert (found.inputs, found.outputs, found.is_tf32) == ({"a/b": "a/b:0"}, {"y": "y:1"}, False)
    for told, read in ((feeds, found.feeds), (answers, found.answers)):
        for one, other in zip(told, read, strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[key], other[key]) for key in one)
    assert found.facts["file"] == "file"


def test_bfloat16_survives_a_file_that_does_not_know_it(tmp_path: Path) -> None:
    value = np.array([1.5, -0.25, 3.0], tf.bfloat16.as_numpy_dtype)
    meta = META | {"outputs": recordings.describe_tensors({"scores": ("scores:0", "bfloat16")})}
    recordings.write(tmp_path / "file", meta, [{"x": X}], [{"scores": value}])
    (answer,) = recordings.read_recording(tmp_path / "file").answers
    assert answer["scores"].dtype == value.dtype
    assert answer["scores"].tolist() == [1.5, -0.25, 3.0]


def nothing(arrays: Arrays, meta: dict[str, Any]) -> None:
    """No change."""


def test_answers_take_the_reference_s_place(tmp_path: Path, made: Plan) -> None:
    told = recordings.open_recording(graph_judge.GraphJudge(made), written(tmp_path, made, nothing))
    (scores,) = made.signature.outputs.values()
    exact = [[np.zeros((5, 2, UNITS), np.float32), np.ones(3)]]
    ((first, second),) = told.instead(exact, [scores, "other:0"], {scores: "scores"})
    np.testing.assert_array_equal(first, answered(made, X)[0])
    assert second is exact[0][1]


def renamed(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays["feed0/in/input"] = arrays.pop("feed0/in/x")
    arrays["feed0/out/y"] = arrays.pop("feed0/out/scores")
    meta["inputs"] = {"input": meta["inputs"]["x"]}
    meta["outputs"] = {"y": meta["outputs"]["scores"]}


def test_other_keys_are_paired_by_tensor(tmp_path: Path, made: Plan) -> None:
    told = recordings.open_recording(graph_judge.GraphJudge(made), written(tmp_path, made, renamed))
    assert [[*feed] for feed in told.feeds] == [["x:0"]]
    np.testing.assert_array_equal(told.answers[0][made.signature.outputs["scores"]], answered(made, X)[0])


def other_tensor(arrays: Arrays, meta: dict[str, Any]) -> None:
    renamed(arrays, meta)
    meta["inputs"]["input"]["tensor"] = "elsewhere:0"
    meta["outputs"]["y"]["tensor"] = "elsewhere:0"


def one_more(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays["feed0/out/more"] = np.ones(2)
    meta["outputs"]["more"] = {"tensor": "more:0", "dtype": "float64"}


def short(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays["feed0/out/scores"] = arrays["feed0/out/scores"][1:]


def double(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays["feed0/out/scores"] = arrays["feed0/out/scores"].astype(np.float64)


def wide(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays["feed0/in/x"] = np.ones((5, 2, 4), np.float32)


def without_an_array(arrays: Arrays, meta: dict[str, Any]) -> None:
    del arrays["feed0/out/scores"]


def without_a_call(arrays: Arrays, meta: dict[str, Any]) -> None:
    arrays |= {key.replace("feed0", "feed2"): value for key, value in arrays.items()}


def newer(arrays: Arrays, meta: dict[str, Any]) -> None:
    meta["version"] = 2


def without_devices(arrays: Arrays, meta: dict[str, Any]) -> None:
    del meta["devices"], meta["tf32"]


Change = Callable[[Arrays, dict[str, Any]], None]
REFUSED: dict[str, tuple[Change, str]] = {
    "unknown input": (
        other_tensor,
        "inputs: expected x, found nothing for x and input, which the conversion does not have; "
        "record with the --inputs of the conversion",
    ),
    "output too many": (
        one_more,
        "outputs: expected scores, found more, which the conversion does not have; "
        "record with the --outputs of the conversion",
    ),
    "shape": (
        short,
        "feed0/out/scores: expected float32[5, 2, 2] as the source gives it, found float32[4, 2, 2]",
    ),
    "type": (
        double,
        "feed0/out/scores: expected float32[5, 2, 2] as the source gives it, found float64[5, 2, 2]",
    ),
    "input's shape": (wide, "feed0/in: x: expected float32(None, None, 3), found float32[5, 2, 4]"),
    "array": (without_an_array, "feed0/out: expected scores, found none"),
    "call": (without_a_call, "expected feed0 to feed1, found feed0, feed2"),
    "version": (
        newer,
        "expected a cudnn_convert recording 1, found cudnn_convert recording 2; "
        "record again, or take a newer cudnn-convert",
    ),
    "facts": (without_devices, "meta: expected devices, tf32, found none; record again"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, made: Plan, monkeypatch: pytest.MonkeyPatch, change: Change, message: str
) -> None:
    monkeypatch.setattr(
        runners, "open_artifact", lambda *_: lambda feeds: {"scores": answered(made, feeds["x"])[0]}
    )
    path = written(tmp_path, made, change)
    with pytest.raises(UsageError) as caught:
        check.verify_artifact(made, Path("artifact"), Options(format="savedmodel", golden=path))
    begin = f"--golden {path}"
    assert str(caught.value) in (f"{begin}: {message}", f"{begin} {message}")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "expected a recording, found a file without meta; make one with record"),
        ({"meta": X}, "expected a recording, found meta of another program; make one with record"),
        (None, "expected an .npz file of plain arrays, found a file that is not one"),
        (
            {"meta": np.array({"a": 1}, object)},
            "expected an .npz file of plain arrays, found a file that is not one",
        ),
    ],
    ids=["feeds", "other", "no-archive", "pickle"],
)
def test_other_files_are_refused(tmp_path: Path, made: Plan, arrays: Arrays | None, message: str) -> None:
    path = tmp_path / "file.npz"
    if arrays is None:
        path.write_bytes(b"no archive")
    else:
        np.savez(path, **arrays)
    with pytest.raises(UsageError) as caught:
        recordings.open_recording(graph_judge.GraphJudge(made), path)
    assert str(caught.value) == f"--golden {path}: {message}"


def with_tf32(arrays: Arrays, meta: dict[str, Any]) -> None:
    meta["tf32"] = {"on": True, "reason": "compute capability 8"}


@pytest.mark.parametrize(
    ("dtype", "bound", "atol"),
    [
        ("float32", Tolerance(1e-5, 1e-5, "float32"), 2.0**-10),
        ("float32", Tolerance(0.5, 1e-5, "float32, widened"), 0.5),
        ("float32", Tolerance(1e-7, 0.0, "asked for", "given"), 1e-7),
        ("float64", Tolerance(1e-12, 1e-12, "float64"), 1e-12),
        ("int32", Tolerance(0.0, 0.0, "equal"), 0.0),
    ],
)
def test_tf32_is_a_floor_for_float32(
    tmp_path: Path, made: Plan, dtype: str, bound: Tolerance, atol: float
) -> None:
    told = recordings.open_recording(graph_judge.GraphJudge(made), written(tmp_path, made, with_tf32))
    found = told.bound(bound, np.dtype(dtype))
    assert found.atol == atol
    assert ("TF32" in found.reason) == (found != bound)
    plain = recordings.open_recording(graph_judge.GraphJudge(made), written(tmp_path, made, nothing))
    assert plain.bound(bound, np.dtype(dtype)) == bound
    assert (plain.widen(1e-5), told.widen(1e-9)) == (1e-5, 2.0**-10)


def test_tf32_widens_with_the_noise_of_float32(tmp_path: Path, made: Plan) -> None:
    """Deep networks err further than one rounding: by as many roundings of TF32 as they do by float32's."""
    told = recordings.open_recording(graph_judge.GraphJudge(made), written(tmp_path, made, with_tf32))
    bound = told.bound(Tolerance(2e-5, 1e-5, "float32, widened"), np.dtype("float32"), 2e-6)
    assert (bound.atol, bound.rtol) == (2e-6 * 2**13, 2.0**-10) == (told.widen(2e-6), 2.0**-10)
    assert bound.reason == (
        "float32, the model's noise floor is 2.0e-06; 8192 times it for TF32, "
        "to which the recording's device rounded"
    )
