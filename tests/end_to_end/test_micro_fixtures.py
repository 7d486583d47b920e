"""The small trained networks in ONNX Runtime, judged by the framework that trained them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.micro_data import (
    MOTION_STEPS,
    TEST_ROWS,
    TEST_SEED,
    TRAINING_ROWS,
    TRAINING_SEED,
    Maker,
    make_keywords,
    make_motions,
    make_tokens,
)
from support.micro_fixtures import CASES, MICRO, Arrays
from support.tiers import some

import cudnn_convert

#: Those that the first tier converts: the others come through readers that it tests with other files.
FIRST = ("keyword_torch-weights",)
#: A case of each network.
NETWORKS = {case.expected.parent.name: case for case in CASES.values()}


def ask(session: onnxruntime.InferenceSession, feeds: Arrays) -> Arrays:
    keys = [each.name for each in session.get_outputs()]
    return dict(zip(keys, session.run(keys, feeds), strict=True))


@pytest.mark.parametrize("name", some(FIRST, *(name for name in CASES if name not in FIRST)))
def test_each_source_answers_as_the_trained_network_did(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    # what is compared here was recorded, so that a proof would say nothing more
    cudnn_convert.convert(case.source, tmp_path / "out.onnx", format="onnx", verify=False, **case.flags)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    answers = case.answer(functools.partial(ask, session))
    case.assert_close(answers)
    assert case.count_agreements(answers) == 1
    one = case.answer(functools.partial(ask, session), rows=1)
    np.testing.assert_array_equal(case.classify(one), case.golden["classes"][:1])
    assert {key: value.shape[1:] for key, value in case.data.items()} == {
        each.name: tuple(
            size if isinstance(size, int) else case.data[each.name].shape[axis]
            for axis, size in enumerate(each.shape)
        )[1:]
        for each in session.get_inputs()
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_have_learned_their_classes(name: str) -> None:
    """Random weights would have ties, and one class for most rows."""
    case = NETWORKS[name]
    described = json.loads((case.expected.parent / "case.json").read_text())
    classes, labels = case.golden["classes"], case.rows.labels
    assert classes.shape == labels.shape == (TEST_ROWS,)
    accuracy = float((classes == labels).mean())
    assert accuracy == pytest.approx(described["accuracy"])
    assert accuracy >= 0.97
    assert described["least_margin"] > 0.1
    assert np.bincount(classes).min() > 0.1 * TEST_ROWS


def test_wrong_weights_change_classes() -> None:
    """A gate that is lost shows in the classes of the recurrence alone, and not in its floats only."""
    case = CASES["keyword_torch-weights"]
    answers = {case.output: np.stack([np.roll(case.golden["state_h"], 1, axis=1)])}
    assert case.count_agreements(answers) < 0.9


def test_a_stream_s_data_has_the_states_of_its_sequences(tmp_path: Path) -> None:
    """After most of the steps, the class of a single step is that of the whole row."""
    case = CASES["motion_stream-h5"]
    cudnn_convert.convert(case.source, tmp_path / "out.onnx", format="onnx", verify=False)
    scores = ask(onnxruntime.InferenceSession(tmp_path / "out.onnx"), case.data)[case.output]
    late = np.arange(TEST_ROWS) % MOTION_STEPS >= 30
    assert float((scores.argmax(axis=1) == case.golden["classes"])[late].mean()) > 0.9


@pytest.mark.first("make_motions")
@pytest.mark.parametrize("make", [make_keywords, make_motions, make_tokens])
def test_no_test_row_was_trained_on(make: Maker) -> None:
    trained = {row.tobytes() for row in make(TRAINING_ROWS, TRAINING_SEED).inputs}
    assert not any(row.tobytes() in trained for row in make(TEST_ROWS, TEST_SEED).inputs)


def test_files_are_small() -> None:
    """A repository keeps each version of a file for ever."""
    sizes = {path: path.stat().st_size for path in MICRO.glob("**/*") if path.is_file()}
    assert len(sizes) > len(CASES)
    assert {path.name: size for path, size in sizes.items() if size > 150_000} == {}


def test_each_network_is_a_case() -> None:
    assert {path.name for path in MICRO.iterdir()} == set(NETWORKS)
