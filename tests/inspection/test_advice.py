"""The remedies of a refusal as options: how several reasons go together, and what was said already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cudnn_convert.errors import Reason, Remedy
from cudnn_convert.inspection import alternatives
from cudnn_convert.options import Options


def reason(*changes: dict[str, Any]) -> Reason:
    return Reason("a: expected b, found c", *map(Remedy, changes))


COPIES = reason({"weights": "canonical"}, {"weights": "raw"})
A, B = reason({"set": ("a:0=1",)}), reason({"set": ("b:0=1",)})
SIZES = [
    {"mode": "lstm", "layers": 1, "units": 2, "directions": 1},
    {"mode": "gru", "layers": 2, "units": 4, "directions": 2},
]

REMEDIES: dict[str, tuple[list[Reason], list[dict[str, Any]]]] = {
    "one": ([A], [{"set": ("a:0=1",)}]),
    "two constants and none": ([A, B, reason()], [{"set": ("a:0=1", "b:0=1")}]),
    "the same constant twice": ([A, A], [{"set": ("a:0=1",)}]),
    "alternatives": ([COPIES], [{"weights": "canonical"}, {"weights": "raw"}]),
    "several options at once": ([reason(*SIZES)], SIZES),
    "the same alternative twice": ([reason(SIZES[0], SIZES[0])], [SIZES[0]]),
    "one of each reason": (
        [A, COPIES],
        [{"set": ("a:0=1",), "weights": "canonical"}, {"set": ("a:0=1",), "weights": "raw"}],
    ),
    "the first of two choices": ([COPIES, reason(*SIZES)], [{"weights": "canonical"}, {"weights": "raw"}]),
    "none": ([reason()], []),
    "text alone": ([Reason("a: expected b, found c; choose with --weights raw")], []),
}


@pytest.mark.parametrize(("reasons", "changes"), REMEDIES.values(), ids=REMEDIES)
def test_remedies_are_applied(reasons: list[Reason], changes: list[dict[str, Any]]) -> None:
    given = Options()
    assert alternatives.follow_remedies(reasons, given) == [replace(given, **change) for change in changes]


def test_what_was_said_is_not_contradicted() -> None:
    assert alternatives.follow_remedies([COPIES], Options(weights="ema")) == []
    assert alternatives.follow_remedies([COPIES], Options(weights="raw")) == []
    (chosen,) = alternatives.follow_remedies([reason(*SIZES)], Options(layers=2))
    assert chosen == Options(**SIZES[1])
    listed = Options(outputs=["y:0"])  # as the command line has it
    assert alternatives.follow_remedies([reason({"outputs": ("y:0",)})], listed) == [
        replace(listed, outputs=("y:0",))
    ]
    assert alternatives.follow_remedies([reason({"outputs": ("z:0",)})], listed) == []


def test_constants_add_up() -> None:
    (chosen,) = alternatives.follow_remedies([A], Options(set=("z:0=2",)))
    assert chosen.set == ("z:0=2", "a:0=1")
    assert alternatives.follow_remedies([A], chosen) == []
