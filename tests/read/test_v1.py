"""Checkpoints of the V1 format, entry by entry: what TensorFlow writes is read in `test_bundle`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tables import block, save_v1, table, v1_made
from tensorflow.core.util import saved_tensor_slice_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.read import tensorbundle
from cudnn_convert.read.tensorbundle import tensors
from cudnn_convert.read.tensorbundle.tables import Table


def test_a_type_of_v1_that_the_format_does_not_have(tmp_path: Path) -> None:
    made = v1_made(tmp_path, 14, b"\x6a\2\1\2", [2])
    with pytest.raises(ReadError, match="found elements of type 14, which the format does not have"):
        tensors(made)["x"].read()


def test_whatever_is_not_zero_is_true(tmp_path: Path) -> None:
    made = v1_made(tmp_path, 10, b"\x5a\3\2\0\1", [3])
    assert tensors(made)["x"].read().tobytes() == b"\1\0\1"


def test_a_field_that_holds_nothing(tmp_path: Path) -> None:
    made = v1_made(tmp_path, 3, b"\x3a\0", [0])
    assert tensors(made)["x"].read().shape == (0,)


def test_no_more_elements_than_snappy_can_hold_in_a_block(tmp_path: Path) -> None:
    held = Table(v1_made(tmp_path, 1, b"", [2]))
    most = 22 * held.block_size(b"")
    tensorbundle.Slice(held, b"", 1, ((0, most),)).check()
    tensorbundle.Slice(held, b"", 12, ((0, 1), (0, most))).check()
    with pytest.raises(ValueError, match=f"a block too small for {most + 1} elements"):
        tensorbundle.Slice(held, b"", 1, ((0, most + 1),)).check()


def test_a_slice_that_is_announced_and_not_there(tmp_path: Path) -> None:
    proto = saved_tensor_slice_pb2.SavedTensorSlices()
    for name, size in (("x", 3), ("none", 0)):
        tensor = proto.meta.tensor.add(name=name, type=1)
        tensor.shape.dim.add(size=size)
        tensor.slice.add().extent.add()
    (tmp_path / "made").write_bytes(table([(b"", block({b"": proto.SerializeToString()}))]))
    found = tensors(tmp_path / "made")
    with pytest.raises(ReadError, match=r"tensor x: .* found a block too small for 3 elements"):
        found["x"].read()
    with pytest.raises(ReadError, match=r"tensor none: .* found no such key"):
        found["none"].read()


def test_slices_of_two_files_are_one_tensor(tmp_path: Path) -> None:
    save_v1(tmp_path / "a-00000-of-00002", [("x", np.int16([[3, 4]]))], ["2 2 1,1:-"])
    save_v1(tmp_path / "a-00001-of-00002", [("x", np.int16([[1, 2]]))], ["2 2 0,1:-"])
    np.testing.assert_array_equal(
        tensors(tmp_path / "a")["x"].read(), np.int16([[1, 2], [3, 4]]), strict=True
    )


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "complex64", "complex128", "float16", "int64", "uint8"]
)
def test_every_kind_of_number(tmp_path: Path, kind: str) -> None:
    unit = 1 + 2j if kind.startswith("complex") else 1
    values = (unit * np.arange(1, 7).reshape(2, 3)).astype(kind)
    save_v1(tmp_path / "made", [("x", values)], [""])
    np.testing.assert_array_equal(tensors(tmp_path / "made")["x"].read(), values, strict=True)


@pytest.mark.parametrize(("number", "kind", "tag"), [(1, "float32", b"\x2d"), (8, "complex64", b"\x4d")])
def test_numbers_that_another_writer_did_not_pack(tmp_path: Path, number: int, kind: str, tag: bytes) -> None:
    values = np.array([1, 2.5], kind)
    content = b"".join(tag + one.tobytes() for one in values.view(np.float32))
    found = tensors(v1_made(tmp_path, number, content, [2]))["x"].read()
    np.testing.assert_array_equal(found, values, strict=True)
