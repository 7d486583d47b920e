"""What TensorFlow computed on a GPU, replayed: ops against the reference, models against their fixtures.

`python scripts/record_tensorflow.py` on a machine with a GPU makes the recordings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import record_tensorflow as rec
from support.keras3_samples import EXPORTED
from support.samples import ROOT

from cudnn_convert import reference
from cudnn_convert.reference import CellSteps

DATA = ROOT / "tests" / "data"
#: Of a value and of 1 together: some roundings of the type, over the steps and layers of the networks here.
ROUNDING = {"float64": 1e-13, "float32": 4e-6, "float16": 2.0**-7}
#: How far a gradient may be from the reference's slope, relative to its length: some roundings of float32.
BOUND_OF_GRADIENTS = {"float64": 1e-9, "float32": 1e-6}
OPS = tuple(rec.list_ops())


@cache
def results() -> dict[str, Any]:
    """Each recorded job's status, and what is said of it."""
    recorded = json.loads((DATA / "cudnn" / "tensorflow.json").read_text())
    assert recorded["source"] == "TensorFlow on a device", "only a device's answers are a recording"
    return dict(recorded["jobs"])


@cache
def arrays(kind: str) -> dict[str, dict[str, np.ndarray]]:
    """The recorded arrays of each job of a kind, by name."""
    grouped: dict[str, dict[str, np.ndarray]] = {}
    jobs = sorted((job for job in results() if job.startswith(f"{kind}/")), key=len, reverse=True)
    with np.load(DATA / "cudnn" / f"tensorflow_{kind}.npz") as data:
        for key in data.files:
            job = next(job for job in jobs if key.startswith(f"{job}/"))
            grouped.setdefault(job, {})[key.removeprefix(f"{job}/")] = data[key]
    return grouped


def ran(kind: str) -> Iterator[str]:
    return (job for job, result in results().items() if job.startswith(kind) and result["status"] == "ok")


def to_time_major(case: rec.Op, call: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A call's arrays in float64, time-major, with states `[layers*directions, batch, units]`.

    TensorFlow's kernel takes batch-major states for time-major ones: their memory has that order.
    """
    turned = {key: value.astype(np.float64) for key, value in call.items() if key != "lengths"}
    if not case.time_major:
        turned |= {key: turned[key].swapaxes(0, 1) for key in ("x", "y")}
        for key in ("h", "c", "h_n", "c_n"):
            if turned[key].ndim == 3:
                turned[key] = turned[key].reshape(case.depth, rec.BATCH, -1)
    return turned


def steps_of(case: rec.Op, blob: np.ndarray) -> CellSteps:
    return reference.steps_from_blob(
        blob,
        case.mode,
        layers=case.layers,
        directions=case.directions,
        units=rec.UNITS,
        input_size=case.inputs,
        skip_input=case.input_mode != "linear_input",
        projection=case.projection,
    )


def run_reference(case: rec.Op, given: dict[str, np.ndarray], lengths: np.ndarray) -> list[np.ndarray]:
    """What the reference gives, but for the final states of rows of length 0, where cuDNN has zeros."""
    c = given["c"] if case.mode == "lstm" else np.zeros_like(given["h"])
    y, *states = reference.run(
        steps_of(case, given["blob"]), given["x"], given["h"], c, directions=case.directions, lengths=lengths
    )
    states = [np.where(lengths[:, None] == 0, 0, state) for state in states]
    return [y, *states][: 3 if case.mode == "lstm" else 2]


@pytest.mark.first("gru", "rnn_tanh")
@pytest.mark.parametrize("mode", rec.GATES)
def test_ops_compute_what_the_reference_does(mode: str) -> None:
    cases = [case for case in OPS if case.mode == mode and results()[case.name]["status"] == "ok"]
    assert len(cases) > 40
    assert {case.lengths for case in cases} == {"", "ragged", "empty"}
    for case in cases:
        call = arrays("op")[case.name]
        recorded = to_time_major(case, call)
        expected = run_reference(case, recorded, call["lengths"])
        is_step = np.arange(rec.STEPS)[:, None] < call["lengths"]
        bound = ROUNDING[case.dtype]
        for key, value in zip(("y", "h_n", "c_n"), expected, strict=False):
            pair = [recorded[key], value]
            if key == "y" and case.dtype == "float64":  # see the next test
                pair = [each[is_step] for each in pair]
            np.testing.assert_allclose(*pair, rtol=bound, atol=bound, err_msg=f"{case.name} {key}")


def test_in_double_precision_tensorflow_fills_steps_past_a_length_with_what_lies_in_memory() -> None:
    """It hands cuDNN a float32 of 0 to fill with, which cuDNN reads as a double: half of it is 0."""
    fills = {"float32": set(), "float64": set()}
    for case in OPS:
        if case.lengths and case.name in arrays("op"):
            call = arrays("op")[case.name]
            y = to_time_major(case, call)["y"]
            fills[case.dtype].update(y[np.arange(rec.STEPS)[:, None] >= call["lengths"]].ravel())
    assert fills["float32"] == {0.0}
    assert fills["float64"] - {0.0}


def test_the_recorded_calls_are_those_of_the_script() -> None:
    """A recording of other numbers than the names give would be another script's."""
    assert {case.name for case in OPS} == {job for job in results() if job.startswith("op/")}
    assert set(arrays("op")) == set(ran("op/"))
    assert all(np.isfinite(value).all() for job in arrays("op").values() for value in job.values())


def test_gradients_are_the_slopes_of_the_reference() -> None:
    cases = [case for case in OPS if case.training and results()[case.name]["status"] == "ok"]
    assert len(cases) > 40
    for case in cases:
        call = arrays("op")[case.name]
        recorded = to_time_major(case, call)
        weights = {key: recorded[f"{key}_gradient"] for key in ("y", "h_n", "c_n")}
        lengths = call["lengths"]
        is_step = np.arange(rec.STEPS)[:, None] < lengths
        for key in ("blob", "x", "h", *(["c"] if case.mode == "lstm" else [])):
            slope = recorded[f"d{key}"]
            if key == "x":  # past a length lies what lay in memory, of float64 as of y
                slope = np.where(is_step[..., None], slope, 0)
            along = np.random.default_rng(1).normal(size=slope.shape)
            ends = [
                run_reference(case, {**recorded, key: recorded[key] + step * along}, lengths)
                for step in (1e-6, -1e-6)
            ]
            rise = sum(
                ((high - low) * weight).sum()
                for high, low, weight in zip(*ends, weights.values(), strict=False)
            )
            assert np.isfinite(slope).all() and np.linalg.norm(slope) < 1e6, f"{case.name} d{key}"
            error = abs(rise / 2e-6 - (slope * along).sum()) / (np.linalg.norm(slope) * np.linalg.norm(along))
            assert error < BOUND_OF_GRADIENTS[case.dtype], f"{case.name} d{key}: off by {error:.2g}"


def test_what_tensorflow_refuses_on_a_gpu() -> None:
    """With cuDNN 9 there is CudnnRNNV3 alone, without projections; it keeps what it set up for full rows."""
    for case in OPS:
        status = results()[case.name]["status"]
        if case.cell != "full" and case.mode == "lstm":
            assert status == "the process ended with code -6", case.name
        elif case.op == "CudnnRNN" or case.projection or case.after_full:
            assert "Failed to call DoRnnForward" in status, case.name
        elif case.op == "CudnnRNNV2":
            assert "No algorithm worked!" in status, case.name
        else:
            assert status == "ok", case.name


def valid(sample: str, key: str, value: np.ndarray) -> np.ndarray:
    """The steps of an export's output that are no padding: past them Keras on a CPU repeats a step."""
    export = next((each for each in EXPORTED if str(each.folder.relative_to(DATA)) == sample), None)
    if export is None:
        return value
    signature, row, *_ = key.split("/")
    each = next(each for each in export.signatures if each.name == signature)
    call = list(each.calls())[int(row.removeprefix("feed"))]
    name = key.rpartition("/")[2]
    return value[call.valid(value)] if name in each.described["per_step"] and call.lengths else value


@pytest.mark.first("keras")
@pytest.mark.parametrize("kind", ["keras", "keras3_exports"])
def test_committed_models_answer_on_a_gpu_as_they_are_recorded_to(kind: str) -> None:
    """Keras's own answers on a CPU judge the conversions; cuDNN gives the same ones."""
    jobs = list(ran(f"source/{kind}/"))
    assert len(jobs) > 50
    for job in jobs:
        sample = job.removeprefix("source/")
        with np.load(DATA / sample / "golden.npz") as golden:
            expected = {key.replace("/call", "/feed"): golden[key] for key in golden.files}
        half = any(word in sample for word in ("float16", "bfloat16"))
        bound = 2.0**-7 if half else 1e-6
        for key, value in arrays("source")[job].items():
            if value.dtype.kind == "f":
                pair = (valid(sample, key, each) for each in (value, expected[key]))
                np.testing.assert_allclose(*pair, rtol=bound, atol=bound, err_msg=f"{job} {key}")
            else:
                np.testing.assert_array_equal(
                    value, expected[key].astype(value.dtype), err_msg=f"{job} {key}"
                )


def test_a_projection_as_wide_as_the_units_is_none() -> None:
    """TensorFlow took a blob with a matrix of 4 by 4 behind an LSTM's own values, and did not read it."""
    call = arrays("source")["source/tf1/1.15.5/op_proj_plain"]
    layer = reference.steps_from_blob(
        call["blob"][:144],
        "lstm",
        layers=1,
        directions=1,
        units=4,
        input_size=3,
        skip_input=False,
        projection=0,
    )
    assert call["blob"].size == 160
    for row in ("feed0", "feed1"):
        x = call[f"{row}/x:0"].astype(np.float64)
        zeros = np.zeros((1, x.shape[1], 4))
        names = (f"{row}/rnn_out:0", f"{row}/state_h:0", f"{row}/state_c:0")
        for name, value in zip(names, reference.run(layer, x, zeros, zeros, directions=1), strict=True):
            np.testing.assert_allclose(call[name], value, atol=1e-6)


def test_an_export_from_a_gpu_has_the_nodes_of_its_fixture() -> None:
    """Fixtures are made where Keras is told that it has a GPU; one that has writes the same."""
    jobs = list(ran("written/"))
    assert len(jobs) == 23
    for job in jobs:
        assert results()[job]["about"]["same_nodes"], job
        assert results()[job]["about"]["nodes"]["CudnnRNNV3"], job


def test_conversions_of_tensorflow_1_answer_on_a_gpu_as_on_a_cpu() -> None:
    jobs = [job for job in results() if job.startswith("artifact/")]
    assert Counter(results()[job]["status"] for job in jobs) == {"ok": 124}
    for job in jobs:
        about = results()[job]["about"]
        bound = 2.0**-9 if job.endswith("float16") else 1e-6
        assert about["compared"] and not about["unequal"], job
        assert about["gap"] <= bound * (1 + about["largest"]), job
