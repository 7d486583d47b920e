"""A row alone, and among copies of itself, shows which outputs depend on the others of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import asking_graphs

from cudnn_convert import convert
from cudnn_convert.verification import neighbours
from cudnn_convert.verification.trials import Trial

RNG = np.random.default_rng(9)
FEEDS = [{"x": RNG.normal(size=shape)} for shape in [(5, 3, 2), (4, 2, 2)]]
SIZES = [[(5, 3)], [(4, 2)]]


def influence(answer: Callable[[Any], Any], *, refuses: bool = False) -> dict[str, float]:
    def run(feed: Mapping[str, Any]) -> list[Any] | None:
        if refuses and feed["x"].shape[1] == 1:
            return None
        return [answer(feed["x"])]

    trial = Trial(FEEDS, [[answer(feed["x"])] for feed in FEEDS], SIZES)
    return neighbours.measure_influence(trial, {"y": 0}, run)


@pytest.mark.parametrize(
    ("answer", "is_moved"),
    [
        (np.tanh, False),
        (lambda x: x - x.mean(0), False),
        (lambda x: x - x.mean(1, keepdims=True), True),
        (lambda x: x / np.abs(x).max(), True),
        (lambda x: x[:, :, 0].T @ x[:, :, 1], True),
        (lambda x: np.zeros((*x.shape[:2], 4)) + x.shape[1], True),
    ],
    ids=["own", "time", "mean", "largest", "products", "size"],
)
def test_other_rows_move_an_answer(answer: Callable[[Any], Any], is_moved: bool) -> None:
    (found,) = influence(answer).values()
    assert (found > 1e-2) == is_moved


def test_a_model_that_takes_no_single_row_is_asked_with_copies() -> None:
    assert influence(lambda x: x - x.mean(1, keepdims=True), refuses=True)["y"] > 1e-2


def test_outputs_without_rows_are_left_out() -> None:
    assert influence(lambda x: x.mean()) == {}
    assert influence(lambda x: np.argmax(x, 2)) == {}


def test_rounding_is_no_influence() -> None:
    assert neighbours.describe({"y": 1e-6}, {"y": 1.0}, {"y": 1e-7}) == []
    assert neighbours.describe({"y": 1e-2}, {"y": 1.0}, {"y": 1e-3}) == []
    (line,) = neighbours.describe({"y": 1e-2}, {"y": 1.0}, {"y": 1e-7})
    assert line == "output y: the answer to a row depends on the other rows of its batch, by 1.0e-02"


def test_a_proof_names_the_output(tmp_path: Path) -> None:
    def add(y: Any) -> None:
        tf.identity(y, "own")
        tf.divide(y, tf.reduce_max(tf.abs(y)), "mixed")

    source = asking_graphs.behind(tmp_path, add)
    report = convert(source, tmp_path / "model.pb", format="frozen", outputs=["own", "mixed"])
    assert report.verification is not None
    (line,) = report.verification.warnings
    assert line.startswith("output mixed: the answer to a row depends on the other rows of its batch, by ")
