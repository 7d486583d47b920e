"""What a report says of a recurrence that no recording of cuDNN confirms."""

from __future__ import annotations

from cases import Case

from cudnn_convert.model import Mode, Signature
from cudnn_convert.plan import notes


def told(case: Case) -> tuple[str, ...]:
    return notes.notes(Signature({}, {}), [case.recurrence()], [], chosen_here=False)


def test_an_ordinary_recurrence_needs_no_note() -> None:
    assert told(Case(Mode.LSTM, 2, 2, "CudnnRNNV3")) == ()


def test_a_skipped_input() -> None:
    assert told(Case(Mode.GRU, 2, input_mode="skip_input")) == (
        "rnn: the input goes into every gate of the first layer as it is (skip_input); "
        "not confirmed by a recording of cuDNN (docs/equations.md, Q3)",
    )


def test_a_projection() -> None:
    assert told(Case(Mode.LSTM, op="CudnnRNNV3", projection=3)) == (
        "rnn: each direction's output is projected to 3 values (num_proj); "
        "not confirmed by a recording of cuDNN (docs/equations.md, Q2)",
    )
