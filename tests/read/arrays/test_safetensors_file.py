"""safetensors as sources: types, shards, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from cudnn_convert.errors import ReadError
from cudnn_convert.read import read

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_arrays_of_each_type(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    types = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_]
    save_file({np.dtype(kind).name: VALUES.astype(kind) for kind in types}, path)
    tensors = read(path).variables
    assert len(tensors) == len(types)
    for name, tensor in tensors.items():
        assert (tensor.dtype.name, tensor.shape) == (name, VALUES.shape)
        np.testing.assert_array_equal(tensor.read(), VALUES.astype(tensor.dtype), strict=True)


def test_the_shards_of_a_folder_are_one_source(tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({f"x{number}": VALUES * number}, tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    model = read(tmp_path)
    assert (model.kind, {*model.variables}) == ("safetensors file", {"x1", "x2"})
    np.testing.assert_array_equal(model.variables["x2"].read(), VALUES * 2)


@pytest.mark.parametrize("damage", ["cut", "offset", "type"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": VALUES}, path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    if damage == "offset":
        header["x"]["data_offsets"] = [0, 1 << 40]
    if damage == "type":
        header["x"] |= {"dtype": "F8_E8M0", "shape": [48]}
    text = json.dumps(header).encode()
    body = whole[8 + size :]
    path.write_bytes(len(text).to_bytes(8, "little") + text + (body[:-1] if damage == "cut" else body))
    with pytest.raises(
        ReadError, match=r"expected (a whole safetensors file|numbers of a known type), found"
    ):
        read(path)


def test_a_part_of_a_model_is_refused(tmp_path: Path) -> None:
    """Its names may be those of a smaller model."""
    first, second = (tmp_path / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    save_file({"a": VALUES}, first)
    with pytest.raises(
        ReadError, match=r"shards: expected 2 files model-....-of-00002, found 1; give the folder"
    ):
        read(first)
    with pytest.raises(
        ReadError, match=r"shards: expected 2 files model-....-of-00002, found 1; copy it again"
    ):
        read(tmp_path)
    save_file({"b": VALUES}, second)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": first.name, "b": second.name}}))
    assert {*read(tmp_path).variables} == {"a", "b"}
    other = tmp_path / "old.safetensors"
    save_file({"c": VALUES}, other)
    with pytest.raises(
        ReadError, match=r"old\.safetensors beside them; put the files of one model into a folder"
    ):
        read(tmp_path)
    other.unlink()
    index.write_text(json.dumps({"weight_map": {"a": first.name, "b": "third.safetensors"}}))
    with pytest.raises(ReadError, match=r"expected the files that model\.safetensors\.index\.json lists"):
        read(tmp_path)
    index.write_text("[]")
    with pytest.raises(ReadError, match="file: expected a weight_map of files, found none"):
        read(tmp_path)


def test_metadata_may_be_null(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = json.dumps({"__metadata__": None, "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    assert {*read(path).variables} == {"x"}
