"""What real cuDNN computed on a device judges artifacts in every format, element by element.

tests/recorder/test_replay.py holds the float64 reference against all of the recordings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts
from support.published_artifacts import Repaired, convert_for_user, read_answers, write_frozen
from support.recorded_networks import Call, Recorded, read_gradients, read_outputs, turn
from support.tiers import combinations, some

from cudnn_convert.model import Array, Mode

pytestmark = pytest.mark.xdist_group("published")

FORMATS: Final = ("savedmodel", "frozen", "onnx", "tflite", "npz")
#: The first tier has each mode once; a frozen graph has the nodes of a SavedModel.
FIRST: Final = {
    *((Mode.LSTM, "onnx"), (Mode.GRU, "onnx")),
    *((Mode.RNN_TANH, "tflite"), (Mode.RNN_RELU, "npz")),
}
#: Both cuDNN and the artifact compute in float32, of sums of some 20 products and 9 steps. ONNX Runtime's
#: tanh is off by up to 1e-5 where its argument is small.
BOUND: Final = 1e-5
#: Of the largest element of a gradient: sums of 72 rows and steps.
BOUND_OF_GRADIENTS: Final = 1e-5
#: Both directions, two layers, and what only this network has.
WIDE: Final = {"layers": 2, "directions": 2}


def measure_distances(network: Recorded, call: Call, answers: Mapping[str, Array]) -> dict[str, float]:
    """The largest difference of y, hy and cy from what cuDNN wrote, where both mean the same.

    Only the final states of a row of length 0 do not: cuDNN wrote zeros, artifacts hand the initial state
    on (docs/cudnn-questions.md, Q8).
    """
    rows = np.ones(call.feeds["x"].shape[1], bool)
    if "lengths" in call.feeds:
        rows = call.feeds["lengths"] > 0
    distances = {}
    for name in network.outputs:
        answer = answers[name] if network.time_major else answers[name].swapaxes(0, 1)
        recorded = call.outputs[name]
        assert answer.shape == recorded.shape
        kept = slice(None) if name == "y" else rows
        gap = np.abs(answer.astype(np.float64) - recorded)[:, kept]
        distances[name] = float(gap.max(initial=0)) if np.isfinite(gap).all() else np.inf
        if name != "y":
            np.testing.assert_array_equal(answer[:, ~rows], call.feeds[name[0]][:, ~rows])
    return distances


def judge(network: Recorded, calls: Mapping[str, Call], form: str, folder: Path) -> None:
    """Converts the network, has a user's process run every call, and compares."""
    feeds = [turn(call.feeds, network) for call in calls.values()]
    job = convert_for_user(network, write_frozen(network, folder), form, folder / "out", feeds)
    artifacts.answer([job])
    for (name, call), answers in zip(calls.items(), read_answers(network, job), strict=True):
        distances = measure_distances(network, call, answers)
        assert max(distances.values()) <= BOUND, (name, distances)


@combinations(lambda mode, form: (mode, form) in FIRST, mode=Mode, form=FORMATS)
def test_an_artifact_computes_what_cudnn_did(tmp_path: Path, mode: Mode, form: str) -> None:
    """Full, short, ragged and empty rows, initial states of zeros and others, NaN past the lengths."""
    network, calls = read_outputs(mode, **WIDE)
    assert len(calls) >= 9
    judge(network, calls, form, tmp_path)


#: Networks without lengths, and one with the batch first.
OTHER: Final[dict[str, dict[str, Any]]] = {
    "deep": {"layers": 3, "directions": 1, "op": "CudnnRNN"},
    "wide": {"layers": 1, "directions": 2, "op": "CudnnRNN"},
    "batch-first": {"layers": 1, "directions": 1, "time_major": False},
}


@pytest.mark.every
@pytest.mark.parametrize(
    ("other", "form"),
    # Who computes by hand has the arrays, of which no layout is right or wrong.
    [(other, form) for other in OTHER for form in FORMATS if (other, form) != ("batch-first", "npz")],
)
@pytest.mark.parametrize("mode", Mode)
def test_so_do_other_shapes(tmp_path: Path, mode: Mode, form: str, other: str) -> None:
    judge(*read_outputs(mode, **OTHER[other]), form, tmp_path)


#: What few networks have, by a name.
RARE: Final = {
    "projected": (Mode.LSTM, {"projection": 3}),
    **{f"skipping-{mode.value}": (mode, {"skip_input": True}) for mode in Mode},
}


@combinations(
    lambda rare, form: (rare, form) in {("projected", "savedmodel"), ("skipping-gru", "onnx")},
    rare=RARE,
    form=FORMATS,
)
def test_so_do_projections_and_skipped_inputs(tmp_path: Path, rare: str, form: str) -> None:
    mode, other = RARE[rare]
    judge(*read_outputs(mode, **WIDE, **other), form, tmp_path)


@pytest.mark.parametrize("changed", ["swap", "transpose", "bias", "weight"])
def test_a_small_mistake_is_further_than_rounding(changed: str) -> None:
    """Of the bound: what each mistake in the parameters does to the outputs of the reference."""
    network, calls = read_outputs(Mode.LSTM, **WIDE)
    blob, units = network.blob.copy(), network.units
    kernel = blob[: 4 * units * network.inputs].reshape(4, units, network.inputs)
    if changed == "swap":
        kernel[[0, 1]] = kernel[[1, 0]]
    elif changed == "transpose":
        kernel[0] = kernel[0].T.reshape(units, network.inputs)
    elif changed == "bias":
        blob[-units:] = 0
    else:
        kernel[2, 3, 4] += 0.001 * np.abs(kernel[2]).max()
    call = next(call for call in calls.values() if call.feeds["h"].any())
    spoiled = Recorded(**{**vars(network), "parameters": blob})
    distances = [
        np.abs(answer - call.outputs[name]).max()
        for name, answer in zip(network.outputs, spoiled.expected(call.feeds), strict=True)
    ]
    assert max(distances) > 2 * BOUND


@pytest.mark.slow("cudnn_convert/lower/", "cudnn_convert/graph/", "tests/data/cudnn/")
@pytest.mark.parametrize("lowering", some(["portable"], "fast"))
@pytest.mark.parametrize("mode", Mode)
def test_a_repaired_model_has_the_gradients_of_cudnn(tmp_path: Path, mode: Mode, lowering: str) -> None:
    """Of x, both initial states and each parameter, with ragged lengths and a factor for each output."""
    network, calls = read_gradients(mode, **WIDE)
    model = Repaired(network, lowering, tmp_path)
    assert calls
    for call in calls:
        gradients = model.measure_gradients(call.feeds | {"w": network.blob}, call.factors)
        for key in ("x", "h", "w", *(["c"] if mode is Mode.LSTM else [])):
            recorded = call.gradients[key]
            gap = np.abs(gradients[key] - recorded).max()
            assert recorded.any() and gap <= BOUND_OF_GRADIENTS * np.abs(recorded).max(), key
