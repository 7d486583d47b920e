"""Answers of two models: paired by name or place, compared, and kept in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudnn_convert.benchmark import answers
from cudnn_convert.benchmark.answers import disagreement


def test_answers_are_paired_and_compared(tmp_path: Path) -> None:
    value = np.array([1.0, np.nan, -2.0], np.float32)
    close, ids = {"scope_y": value + np.float32(1e-4)}, np.array([1, 2])
    assert disagreement({"scope/y:0": value}, close, atol=1e-3, rtol=0) is None
    assert disagreement({"scope/y:0": value}, close, atol=1e-5, rtol=0) == "output scope/y:0: 1.0e-04 apart"
    assert disagreement({"a": ids}, {"b": ids}, atol=0, rtol=0) is None, "by place"
    assert disagreement({"a": ids, "b": value}, {"c": ids, "d": value}, atol=0, rtol=0) is None
    assert disagreement({"a": ids}, {"b": ids + 1}, atol=9, rtol=9) == "output a: other values"
    assert disagreement({"a": ids}, {"a": ids[None]}, atol=0, rtol=0) == "output a: shapes [2] and [1, 2]"
    apart = disagreement({"a": ids}, {"b": ids, "c": ids}, atol=0, rtol=0)
    assert apart == "no output in common: a and b, c"
    calls = [{"a/b:0": value, "c": np.array([[b"x", b"yz"]])}, {"d": ids}]
    answers.write_calls(tmp_path / "c.npz", calls)
    for call, again in zip(calls, answers.read_calls(tmp_path / "c.npz"), strict=True):
        assert [*call] == [*again]
        for key, each in call.items():
            np.testing.assert_array_equal(again[key], each)
