"""How an artifact without provenance is paired with its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UsageError
from cudnn_convert.model import Signature

PATH = Path("artifact")


def test_a_key_comes_before_a_tensor_and_a_tensor_before_its_op() -> None:
    wanted = {"a": "scope/x:0", "b": "y:0", "c": "z:1"}
    there = ["b:0", "a", "scope/x:0", "z:1"]
    with pytest.raises(
        UsageError, match="expected the artifact's a, b:0, scope/x:0, z:1, found a, b, c; name"
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
