"""No artifact has a function that nothing calls, nor a path of the machine that made its source."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from support.leftovers import PATHS, assert_nothing_left
from support.samples import GRAPH_FORMATS, Fixture, fixture
from support.tiers import combinations

from cudnn_convert import convert

#: Cases whose sources have functions: datasets, loops of TensorFlow 2, exports.
CASES: Final = ("dataset_input", "gather_tree", "iterator_input", "while_rows", "frozen_layer_norm")
FIRST: Final = (("dataset_input", "savedmodel"), ("dataset_input", "frozen"), ("dataset_input", "checkpoint"))


@combinations(lambda name, form: (name, form) in FIRST, name=CASES, form=GRAPH_FORMATS)
def test_nothing_is_left_of_what_was_cut(name: str, form: str, tmp_path: Path) -> None:
    sample: Fixture = fixture(f"1.15.5-{name}")
    if not sample.fits(form):
        pytest.skip(f"{name} does not fit {form}")
    convert(sample.prefix, tmp_path / "out", format=form, verify=False, **sample.options)
    assert_nothing_left(tmp_path, sample.prefix)


def test_a_path_is_seen() -> None:
    assert PATHS.findall(b"\x00\x0a/home/me/train.txt\x00") == [b"/home/me/train.txt"]
    assert not PATHS.findall(b"scope/home/me cudnn_lstm/tmp/x")
