"""A refusal's advice as options: each sentence that refusals use, and nothing that only looks like one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.inspection import alternatives
from cudnn_convert.model import Model, Signature
from cudnn_convert.options import Options

NONE = Signature({}, {"y": "y:0"})
MODEL = Model(Path("model"), "SavedModel", None, {}, signatures={"encode": NONE, "score": NONE})
DROPOUT = "a/Floor: expected no dropout at inference, found one that is on; turn it off with --set {}:0=1"

ADVICE: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "dropout": ([DROPOUT.format("keep_prob")], [{"set": ("keep_prob:0=1",)}]),
    "two dropouts and a hint": (
        [DROPOUT.format("a"), DROPOUT.format("b"), "outputs chosen: y:0; others with --outputs"],
        [{"set": ("a:0=1", "b:0=1")}],
    ),
    "twins": (
        ["w feed 2 recurrences; choose one of: --outputs a:0,b:0 | --outputs c:0"],
        [{"outputs": ("a:0,b:0",)}, {"outputs": ("c:0",)}],
    ),
    "copies": (
        ["r: expected to agree, found 1; choose with --weights canonical or --weights raw"],
        [{"weights": "canonical"}, {"weights": "raw"}],
    ),
    "a forget bias": (
        ["r: found a difference of 1; they agree with --forget-bias 1"],
        [{"forget_bias": 1.0}],
    ),
    "one way of each reason": (
        [DROPOUT.format("a"), "choose with --weights canonical or --weights raw"],
        [{"set": ("a:0=1",), "weights": "canonical"}, {"set": ("a:0=1",), "weights": "raw"}],
    ),
    "sizes": (
        [
            "k: a blob of 9 values: name --mode, --layers, --units and --directions; its length fits "
            "--mode lstm --layers 1 --units 2 --directions 1 (input size 3); --mode gru --layers 2 --units 4 "
            "--directions 2 (input size 5) and 3 more"
        ],
        [
            {"mode": "lstm", "layers": 1, "units": 2, "directions": 1},
            {"mode": "gru", "layers": 2, "units": 4, "directions": 2},
        ],
    ),
    "a signature": (
        ["signatures: expected one, found encode, score; choose with --signature"],
        [{"signature": "encode"}, {"signature": "score"}],
    ),
    "what only the user knows": (["x: bind it with --set x:0=VALUE or cut behind it with --inputs"], []),
    "no advice": (["params: expected 10 values, found 9; are graph and weights of one model?"], []),
    "flags of writing": (["--opset 17 and --force may help"], []),
}


@pytest.mark.parametrize(("reasons", "changes"), ADVICE.values(), ids=ADVICE)
def test_advice_is_taken_at_its_word(reasons: list[str], changes: list[dict[str, Any]]) -> None:
    given = Options()
    assert alternatives.follow_remedies(reasons, MODEL, given) == [
        replace(given, **change) for change in changes
    ]


def test_what_was_said_is_not_contradicted() -> None:
    copies = ["choose with --weights canonical or --weights raw"]
    assert alternatives.follow_remedies(copies, MODEL, Options(weights="ema")) == []
    said = Options(set=("z:0=2",))
    [found] = alternatives.follow_remedies([DROPOUT.format("a")], MODEL, said)
    assert found.set == ("z:0=2", "a:0=1")
    assert alternatives.follow_remedies([DROPOUT.format("a")], MODEL, found) == []
