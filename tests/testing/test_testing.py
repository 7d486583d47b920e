"""How a failure reads, what it is, and the report beside it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import CudnnConvertError, UsageError, VerificationError, WriteError
from cudnn_convert.testing import EquivalenceError, assert_equivalent

MESSAGE = """\
2 of 3 outputs differ: arrays given as actual against arrays given as expected
output y: at [1, 2, 0] expected 4, found 4.5, allowed 5.0e-05
output ids: at [1] expected 7, found 8; 1 of 2 values differ
output  verdict    values  max abs   max rel   max ULP  cosine       of tolerance  worst element     \
expected  found  judged as
y       different  12      5.00e-01  1.25e-01  1048576  0.998328437  10,000 times  feed 1 [1, 2, 0]  \
4         4.5    float32
h       equal      2       0.00e+00  0.00e+00  0        1.000000000  0.0%          feed 1 [0, 0]     \
1         1      float32
ids     different  2       -         -         -        -            -             feed 1 [1]        \
7         8      equal
y: largest error from step: 0: 0.0e+00, 1: 0.0e+00, 2: 5.0e-01
compared on: x [2, 3, 1]"""


def test_the_message() -> None:
    """4.5 where 4 stands: 2^20 floats apart, 10000 tolerances, and a cosine of 44.25 / sqrt(42.25 * 46.5)."""
    y = np.array([[[1, 2], [-1, 0.5], [3, 1]], [[2, 1], [0, -2], [4, 1]]], np.float32)
    expected = {"y": y, "h": np.ones((2, 1), np.float32), "ids": np.array([5, 7])}
    wrong = y.copy()
    wrong[1, 2, 0] = 4.5
    actual = {"y": wrong, "h": np.ones((2, 1), np.float32), "ids": np.array([5, 8])}
    x = {"x": np.zeros((2, 3, 1), np.float32)}
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(actual, expected, x, time_axis=1)
    assert str(caught.value) == MESSAGE


@pytest.mark.parametrize(
    ("steps", "wrong", "told"),
    [
        (17, 4, "0: 0.0e+00, 3: 1.0e+00, 6: 0.0e+00, 9: 0.0e+00, 12: 0.0e+00, 15: 0.0e+00"),
        # 342 points of 3 steps, 43 of them told as one.
        (1025, 1024, ", ".join(f"{k}: 0.0e+00" for k in range(0, 900, 129)) + ", 903: 1.0e+00"),
    ],
)
def test_an_error_over_time_is_told_in_a_line(steps: int, wrong: int, told: str) -> None:
    """From which step on the largest error is what; of outputs that differ alone."""
    expected = {"y": np.ones((1, steps, 1), np.float32), "z": np.ones((1, steps, 1), np.float32)}
    actual = {"y": expected["y"].copy(), "z": expected["z"]}
    actual["y"][0, wrong] = 2
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(actual, expected, np.ones((1, steps, 1), np.float32), time_axis=1)
    lines = [line for line in str(caught.value).splitlines() if "largest error from step" in line]
    assert lines == [f"y: largest error from step: {told}"]


def test_the_error_is_an_assertion_of_ours_and_goes_between_processes(lstm: Any, feeds: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_equivalent(lstm.swapped(), lstm, feeds)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, VerificationError)
    assert isinstance(error, CudnnConvertError)
    assert str(error) == str(caught.value)
    assert not error.report.passed
    assert error.report.seed is None


def test_the_report_is_the_page_of_the_command_line(lstm: Any, feeds: Any, tmp_path: Path) -> None:
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(lstm.swapped(), lstm, feeds, time_axis=1, report=tmp_path / "differ.html")
    assert str(caught.value).endswith(f"report: {tmp_path}/differ.html")
    page, told = (tmp_path / "differ.html").read_text(), json.loads((tmp_path / "differ.json").read_text())
    assert "<title>Different in 3 of 3 outputs: Lstm</title>" in page
    assert "0 of 3 outputs agree with what was expected." in page
    assert "seed" not in page
    assert (told["passed"], told["seed"]) == (False, None)
    (y, h, _) = told["outputs"]
    assert (y["over_time"]["axis"], len(y["over_time"]["errors"]), h["over_time"]) == (1, 9, None)
    assert told["subject"]["source"] == told["subject"]["artifact"] == "Lstm"
    assert_equivalent(lstm, lstm, feeds, report=str(tmp_path / "same.json"))
    assert json.loads((tmp_path / "same.json").read_text())["passed"] is True
    assert_equivalent(lstm, lstm, feeds, report=tmp_path / "new" / "same.json")
    assert_equivalent(lstm, lstm, feeds, report=tmp_path / "new" / "same.json")  # over the older one
    with pytest.raises(WriteError, match="cannot write here: File exists"):
        assert_equivalent(lstm, lstm, feeds, report=tmp_path / "same.json" / "other.json")
    (tmp_path / "thesis.json").write_text("{}")
    with pytest.raises(UsageError, match="found a file that this tool did not write"):
        assert_equivalent(lstm, lstm, feeds, report=tmp_path / "thesis.html")
    assert not (tmp_path / "thesis.html").exists()
