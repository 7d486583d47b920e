"""A manifest: what its rows say, and what is no manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_convert.batch import sources
from cudnn_convert.batch.sources import ModelEntry
from cudnn_convert.cli.batch import _read_flags
from cudnn_convert.errors import AccessError, UsageError

JSON_LINES = """
{"source": "a/model.ckpt"}
{"source": "/b/net.h5", "out": "nets/b", "flags": "--format onnx --set 'keep prob:0=1' --data in.npz"}

{"source": "c.pb", "flags": ["--no-verify", "--set", "x=1", "--set", "y=2"]}
"""
CSV = """source,flags,out
a/model.ckpt,,
/b/net.h5,--format onnx --set 'keep prob:0=1' --data in.npz,nets/b

c.pb,"--no-verify --set x=1 --set y=2"
"""


def read(folder: Path, text: str | bytes) -> list[ModelEntry]:
    path = folder / "models.list"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sources.read_manifest(path, _read_flags)


@pytest.mark.parametrize("text", [JSON_LINES, CSV, "\ufeff" + CSV], ids=["JSON Lines", "CSV", "CSV of Excel"])
def test_rows_have_sources_outs_and_flags(tmp_path: Path, text: str) -> None:
    data = {"format": "onnx", "set": ["keep prob:0=1"], "data": tmp_path / "in.npz"}
    assert read(tmp_path, text) == [
        ModelEntry(tmp_path / "a/model.ckpt"),
        ModelEntry(Path("/b/net.h5"), "nets/b", data),
        ModelEntry(tmp_path / "c.pb", None, {"verify": False, "set": ["x=1", "y=2"]}),
    ]


REFUSED = {
    "empty": ("", "{}: expected a model in each line, found no model"),
    "heads alone": ("source,out\n", "{}: expected a model in each line, found no model"),
    "no source": ("path\nx\n", "{}:2: expected the fields source, out, flags, found 'path'"),
    "an empty source": ("source,out\n,x\n", "{}:2: expected a path as source, found None"),
    "more cells": (
        "source\na,b\n",
        "{}:2: expected at most 1 cell, as in the first line, found 2; put a cell with commas",
    ),
    "a number": ('{"source": 1}', "{}:1: expected a path as source, found 1"),
    "no object": ('{"source": "a"}\n[]', "{}:2: expected a JSON object, found []"),
    "no JSON": ('{"source": "a"}\n{', "{}:2: expected a JSON object, found another text"),
    "a field": (
        '{"source": "a", "format": "onnx"}',
        "{}:1: expected the fields source, out, flags, found 'format'",
    ),
    "above": (
        '{"source": "a", "out": "../b"}',
        "{}:1: expected an out inside the batch's folder, found '../b';",
    ),
    "the root": (
        '{"source": "a", "out": "/b"}',
        "{}:1: expected an out inside the batch's folder, found '/b';",
    ),
    "no out": ('{"source": "a", "out": ""}', "{}:1: expected an out inside the batch's folder, found '';"),
    "a flag": (
        "source,flags\na,--fast\n",
        "{}:2: --fast: expected a flag of cudnn-convert batch, found an unknown one; see cudnn-",
    ),
    "of the call": ("source,flags\na,--jobs 2\n", "{}:2: --jobs: expected a flag of"),
    "a value": ("source,flags\na,--seed -1\n", "{}:2: --seed: expected a whole number from 0"),
    "quotes": (
        "source,flags\na,--set 'x\n",
        "{}:2: flags: expected words as in a shell, found an error: No closing quotation",
    ),
    "flags": ('{"source": "a", "flags": {"a": 1}}', "{}:1: flags: expected a text or a list of texts, found"),
    "bytes": (b"source\n\xff\n", "{}: expected a text in UTF-8, found one that is not"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"--manifest: {message.format(tmp_path / 'models.list')}")


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"none\.csv: cannot read: No such file"):
        sources.read_manifest(tmp_path / "none.csv", _read_flags)
