"""What a notebook shows of a conversion and of a verification."""

from __future__ import annotations

from dataclasses import replace

from support.page_reader import Reader
from support.reports import PROOF, made


def test_a_notebook_shows_a_conversion_and_its_proof() -> None:
    report = replace(made(), notes=("of the conversion",))
    read = Reader(report._repr_html_())
    assert not read.open
    assert "Equal: largest error 1 % of the tolerance" in read.said
    assert "of the conversion" in read.said
    assert read.count("main", "meta") == 0
    assert "of the conversion" not in Reader(PROOF._repr_html_()).said
    assert "1 of 1 outputs agree" in Reader(PROOF._repr_html_()).said
