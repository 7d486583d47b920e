"""What `scripts/fuzz` once found: each input ended in a traceback, a hang or a message of many lines.

`told.tsv` beside the inputs has, for each, what is done with it, what of its folder is given, and the
refusal, none where it is read. Keras configs lie without their weights.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.samples import ROOT

FOUND = ROOT / "tests" / "data" / "broken" / "fuzz"
WEIGHTS = ROOT / "tests" / "data" / "keras" / "keras-2.2.4" / "weights_functional" / "weights.h5"
TOLD = [line.split("\t") for line in (FOUND / "told.tsv").read_text(encoding="utf-8").splitlines()]


def test_every_input_is_tried() -> None:
    assert sorted(case for case, *_ in TOLD) == sorted(one.name for one in FOUND.iterdir() if one.is_dir())


@pytest.mark.parametrize("told", TOLD, ids=[case for case, *_ in TOLD])
def test_it_is_read_or_refused_in_a_line(
    told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, look, entry, refusal = told
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "fuzz"))
    import looks

    given = tmp_path / "given"
    shutil.copytree(FOUND / case, given)
    if look == "architecture":
        shutil.copy(WEIGHTS, given)
    said = looks.looked(look, given / entry)
    assert said.replace(f"{given}/", "").replace(str(given), "") == refusal
