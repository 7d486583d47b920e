"""How an artifact without provenance is paired with its source."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import ReadError, UsageError, WriteError
from cudnn_convert.model import SERVING, Part, Signature

PATH = Path("artifact")
PARTS = [Part(SERVING, Signature({"x": "x:0"}, {"y": "y:0"}))]


def test_a_key_comes_before_a_tensor_and_a_tensor_before_its_op() -> None:
    wanted = {"a": "scope/x:0", "b": "y:0", "c": "z:1"}
    there = ["b:0", "a", "scope/x:0", "z:1"]
    with pytest.raises(
        UsageError, match="expected the artifact's inputs a, b:0, scope/x:0, z:1, found a, b, c; name"
    ):
        runners.pair_inputs(PATH, wanted, there)
    assert runners.pair_inputs(PATH, wanted, ["b:0", "a", "z:1"]) == {"a": "a", "b": "b:0", "c": "z:1"}
    assert runners.pair_inputs(PATH, {"a": "scope/x:0"}, ["scope/x"]) == {"a": "scope/x"}


def test_an_output_that_no_key_finds_stands_for_itself() -> None:
    assert runners.pair_outputs({"a": "x:0", "b": "y:0"}, ["y:0", "more"]) == {"y:0": "b", "more": "more"}


def test_a_graph_has_the_names_of_the_source_or_those_that_the_keys_say() -> None:
    told = Signature({"x": "feed:0"}, {"answer": "probs:0", "second:1": "state:0", "gone": "lost:0"})
    inputs, outputs = runners.pair_tensors(PATH, told, {"x", "answer", "second"})
    assert inputs == {"x": "x:0"}
    assert outputs == {"answer": "answer:0", "second:1": "second:1"}
    inputs, _ = runners.pair_tensors(PATH, told, {"feed", "x"})
    assert inputs == {"x": "feed:0"}
    with pytest.raises(UsageError, match="expected feed:0 in the graph, found no such op; name them with"):
        runners.pair_tensors(PATH, told, {"answer"})


def test_the_only_signature_is_taken_for_the_usual_one() -> None:
    assert runners.choose_signature(PATH, "serving_default", ["predict"]) == "predict"
    assert runners.choose_signature(PATH, "b", ["a", "b"]) == "b"
    for name, there in (("serving_default", ["a", "b"]), ("b", ["a"])):
        with pytest.raises(UsageError, match=f"expected {name}, found .*choose with --signature"):
            runners.choose_signature(PATH, name, there)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_of_temporary_files_is_no_damage_of_the_artifact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """A loader unpacks a file there, and has an exception of its own for what fails."""

    class Unpacking:
        def check(self, *_: Any) -> None:
            pass

        def open_parts(self, *_: Any) -> Any:
            try:
                raise OSError(number, os.strerror(number))
            except OSError as cause:
                raise ValueError("the file does not load") from cause

    monkeypatch.setattr(runners, "opener", lambda _: Unpacking())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises((WriteError, ReadError)) as caught:
        runners.open_artifact("keras", PATH, PARTS)
    expected = f"{tmp_path}: cannot write: {os.strerror(number)}; set TMPDIR to a folder with more space"
    if number == errno.EIO:
        expected = "artifact: artifact: expected a model that loads as keras, found the file does not load"
    assert str(caught.value) == expected
