"""The items of `--inputs` and `--outputs`, and notes on recurrences."""

from __future__ import annotations

import runpy

import pytest
from support.cases import Case
from support.samples import ROOT

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Mode, Signature
from cudnn_convert.plan import notes
from cudnn_convert.plan.notes import Spec

# The items of `--inputs` and `--outputs`.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", [Spec(None, "x:0")]),
        ("a/b:2", [Spec(None, "a/b:2")]),
        ("k=a/b:2", [Spec("k", "a/b:2")]),
        ("x[?,?,39]", [Spec(None, "x:0", (None, None, 39))]),
        ("k=x:0[ ?, 3 ], y", [Spec("k", "x:0", (None, 3)), Spec(None, "y:0")]),
        ("x[]", [Spec(None, "x:0", ())]),
        ("x,y,z=w:1", [Spec(None, "x:0"), Spec(None, "y:0"), Spec("z", "w:1")]),
    ],
)
def test_an_item_is_a_key_a_tensor_and_a_shape(text: str, expected: list[Spec]) -> None:
    assert notes.parse([text], flag="--inputs") == expected


KEYS = ["a=b", "a,b", "a[b", "a]b", '"', 'a"b', "a\\b", '\\"', " a", "a ", "=", '"q"', "x:0", "plain", "순환"]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_can_be_written(key: str) -> None:
    """What is printed to repeat a conversion is read again, here and where the original is recorded."""
    text = f"{notes.item(key, 'x:1', (None, 3))},y,{notes.item('p=q', 'z:0')}"
    expected = [Spec(key, "x:1", (None, 3)), Spec(None, "y:0"), Spec("p=q", "z:0")]
    assert notes.parse([text], flag="--inputs") == expected
    recorder = runpy.run_path(str(ROOT / "scripts" / "record_tf1.py"))
    assert recorder["specs"]([text], "--inputs") == [(spec.key, spec.tensor) for spec in expected]


def test_the_flag_can_be_repeated() -> None:
    assert notes.parse(["x", "y,z"], flag="--inputs") == [Spec(None, f"{name}:0") for name in "xyz"]


@pytest.mark.parametrize("text", ["a=b=c", "=x", "k=", "x[?,,3]", "x[?][3]"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--outputs: expected "):
        notes.parse([text], flag="--outputs")


def test_the_key_is_the_op_name_without_slashes() -> None:
    found = [Spec(None, "a/b:0"), Spec(None, "a/b:2"), Spec("mine", "c:0"), Spec(None, "a_b:0")]
    assert notes.key_tensors(found) == {"a_b": "a/b:0", "a_b_2": "a/b:2", "mine": "c:0", "a_b_1": "a_b:0"}


def test_one_tensor_can_have_two_keys() -> None:
    assert notes.key_tensors([Spec("a", "x:0"), Spec("b", "x:0")]) == {"a": "x:0", "b": "x:0"}


def test_a_chosen_key_comes_before_a_made_one() -> None:
    assert notes.key_tensors([Spec(None, "a:0"), Spec("a", "b:0")]) == {"a_1": "a:0", "a": "b:0"}


def test_a_key_chosen_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="expected keys that differ, found a twice"):
        notes.key_tensors([Spec("a", "x:0"), Spec("a", "y:0")])


# What a report says of a recurrence.


def told(case: Case) -> tuple[str, ...]:
    return notes.notes(Signature({}, {}), [case.recurrence()], [], chosen_here=False)


@pytest.mark.parametrize(
    "case",
    [
        Case(Mode.LSTM, 2, 2, "CudnnRNNV3"),
        Case(Mode.GRU, 2, input_mode="skip_input"),
        Case(Mode.LSTM, op="CudnnRNNV3", projection=3),
        Case(Mode.LSTM, op="CudnnRNNV3", time_major=False),
    ],
    ids=["deep", "skipping", "projected", "batch-first"],
)
def test_what_a_recording_confirms_needs_no_note(case: Case) -> None:
    assert told(case) == ()


def test_states_that_the_kernel_mixes() -> None:
    assert told(Case(Mode.GRU, 1, 2, "CudnnRNNV3", time_major=False)) == (
        "rnn: states read as [batch, layers*directions, units], as the op declares them; on a GPU "
        "TensorFlow mixes layers and rows there, in batches of several (docs/cudnn-questions.md, Q10)",
    )
