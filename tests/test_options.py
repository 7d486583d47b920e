"""Options as an artifact keeps them: each of its type, and known to older ones."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_convert.errors import UsageError
from cudnn_convert.options import READING, Options, from_provenance

pass


def test_options_are_kept_as_they_were_written() -> None:
    told = OPTIONS | {"forget_bias": 1, "layers": 2**63 - 1, "mode": "lstm", "states": True}
    assert from_provenance(told | {"lowering": "fast"}, where="a: provenance") == told
    with pytest.raises(
        UsageError, match="--layers: expected a value as this tool writes it, found 9223372036854775808"
    ):
        from_provenance(told | {"layers": 2**63}, where="a: provenance")
    with pytest.raises(UsageError, match="--forget-bias: expected a value as this tool writes it, found -1"):
        from_provenance(told | {"forget_bias": -(10**400)}, where="a: provenance")


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("value", [{"a": 1}, [1]])
def test_an_option_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        from_provenance(OPTIONS | {name: value}, where="a: provenance")
    flag = name.replace("_", "-")
    assert (
        str(caught.value)
        == f"a: provenance: --{flag}: expected a value as this tool writes it, found {value!r}"
    )


@pytest.mark.parametrize("name", READING)
def test_an_artifact_may_be_older_than_an_option(name: str) -> None:
    recorded = {key: value for key, value in OPTIONS.items() if key != name}
    usual = getattr(Options(), name)
    assert from_provenance(recorded, where="a: provenance") == recorded | {name: usual}


LISTS = {name: ["a"] for name in ("inputs", "outputs", "set")}
OPTIONS = {name: getattr(Options(), name) for name in READING} | LISTS
