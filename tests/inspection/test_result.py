"""docs/inspect.md lists every field of an inspection, and no other; the commands in it are parsed."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from support.command_line import command
from support.samples import ROOT, fixture

from cudnn_convert.inspection import Alternative, End, InspectedRecurrence, Inspection, Offered, WeightTensor

TEXT = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")
#: The heading of each table's first column.
TABLES = {
    "field": Inspection,
    "per recurrence": InspectedRecurrence,
    "per tensor": WeightTensor,
    "per signature": Offered,
    "per input and output": End,
    "per candidate": Alternative,
}


def listed(heading: str) -> list[str]:
    """The fields in the first column of a table, in order."""
    _, _, rest = TEXT.partition(f"| {heading} | ")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize(("heading", "kind"), TABLES.items(), ids=TABLES)
def test_the_schema_is_what_the_documentation_says(heading: str, kind: Any) -> None:
    assert listed(heading) == [field.name for field in fields(kind)]


def test_the_json_has_that_schema() -> None:
    ended = command("inspect", fixture("1.15.5-lstm_bi_2l_states").prefix, "--json")
    found = json.loads(ended.stdout)
    assert [*found] == listed("field")
    assert [*found["recurrences"][0]] == listed("per recurrence")
    assert [*found["recurrences"][0]["raw"][0]] == listed("per tensor")
    assert [*found["signatures"][0]] == listed("per signature")
    assert [*found["signatures"][0]["inputs"]["x"]] == listed("per input and output")
