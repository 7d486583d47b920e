"""The pages of the report and of batches list every field, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from support.samples import ROOT

from cudnn_convert.batch.results import JobResult
from cudnn_convert.report import Report, Verification
from cudnn_convert.report.values import OutputReport, PieceReport, WeightsReport

#: A page, and the heading of the first column of a table there.
TABLES = {
    ("report-fields.md", "field"): Report,
    ("report-fields.md", "in `weights`"): WeightsReport,
    ("report-proof.md", "field"): Verification,
    ("report-proof.md", "per output"): OutputReport,
    ("report-proof.md", "per recurrence of the `verification`"): PieceReport,
    ("batch-results.md", "field"): JobResult,
}


@pytest.mark.parametrize(("page", "heading", "kind"), [(*place, kind) for place, kind in TABLES.items()])
def test_a_table_has_the_fields_of_its_object(page: str, heading: str, kind: Any) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"| {heading} | content |\n")
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(field.name for field in fields(kind))
