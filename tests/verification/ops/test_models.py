"""What a file says of its tensors, as text."""

from __future__ import annotations

import pytest

from cudnn_convert.verification.ops.models import StoredCuts

CUTS = StoredCuts({"b": "y:0", "a": "x:0"}, {"z:0": "differs"})


def test_cuts_are_read_as_they_were_written() -> None:
    text = CUTS.format()
    assert StoredCuts.parse(text) == StoredCuts.parse(text.encode()) == CUTS
    assert StoredCuts(dict(reversed(CUTS.names.items())), CUTS.left).format() == text


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"names": {}}', '{"names": 3, "left": {}}', b"\xff"])
def test_other_texts_say_nothing(text: str | bytes | None) -> None:
    assert StoredCuts.parse(text) is None
