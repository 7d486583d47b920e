"""What numbers may be: probabilities, their logarithms or logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.options import Options
from cudnn_convert.verification import scales


@dataclass
class Searching:
    """What the numbers of a search are decided by."""

    decoder: Any
    source: Any = field(default_factory=lambda: SimpleNamespace(outputs={"y": "y:0"}))
    model: Any = field(default_factory=lambda: SimpleNamespace(path=Path("model")))
    notes: tuple[str, ...] = ()


def planned(scale: str, *, is_given: bool) -> Any:
    return Searching(SimpleNamespace(logits="y", scale=scale, is_scale_given=is_given))


@pytest.mark.parametrize(
    ("numbers", "offered"),
    [
        ([0.25, 31.7], ["logits"]),
        ([0.25, 0.5], ["probabilities", "logits"]),
        ([-0.25, -4.0], ["log_probabilities", "logits"]),
        ([-0.25, 0.5], ["logits"]),
    ],
)
def test_no_scale_is_offered_that_the_numbers_contradict(
    monkeypatch: pytest.MonkeyPatch, numbers: list[float], offered: list[str]
) -> None:
    monkeypatch.setattr(scales, "_run", lambda *_: [np.float32([numbers])])
    plan = planned("", is_given=False)
    with pytest.raises(UnsupportedModelError) as refused:
        scales.decide_scale(plan, Options.of({"decode": "greedy", "steps": 3}))
    [reason] = refused.value.reasons
    assert [remedy.options["logits"] for remedy in reason.remedies] == [f"y:0={scale}" for scale in offered]


@pytest.mark.parametrize(
    ("given", "notes"),
    [
        ("probabilities", ()),
        (
            "logits",
            ("decode: y:0 is taken for logits, as was asked for; its numbers look like probabilities",),
        ),
    ],
)
def test_a_scale_that_is_given_stays(
    monkeypatch: pytest.MonkeyPatch, given: str, notes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(scales, "_run", lambda *_: [np.float32([[0.25, 0.75]])])
    decided = scales.decide_scale(planned(given, is_given=True), Options.of({"decode": "greedy", "steps": 3}))
    assert (decided.decoder.scale, decided.notes) == (given, notes)
