"""What the values of a checkpoint's tables say: messages that TensorFlow's own classes write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import claimed, save
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from cudnn_convert.read.tensorbundle import entries, tensors

LATER = "a format for other readers than those of version 1"


def of_bundle(**fields: Any) -> memoryview:
    proto = tensor_bundle_pb2.BundleHeaderProto(num_shards=3)
    proto.version.CopyFrom(type(proto.version)(producer=1, **fields))
    return memoryview(proto.SerializeToString())


def of_v1(**fields: Any) -> memoryview:
    proto = saved_tensor_slice_pb2.SavedTensorSlices()
    proto.meta.versions.CopyFrom(type(proto.meta.versions)(producer=1, **fields))
    held = proto.meta.tensor.add(name="x", type=3)
    for size in (5, 7):
        held.shape.dim.add(size=size)
    first, second = held.slice.add(), held.slice.add()
    first.extent.add(start=0, length=2)
    first.extent.add()  # the whole axis
    second.extent.add(start=2, length=3)
    second.extent.add(start=0, length=7)
    return memoryview(proto.SerializeToString())


@pytest.mark.parametrize("fields", [{}, {"min_consumer": 1}, {"bad_consumers": [0, 2, 129]}], ids=str)
def test_what_version_1_may_read(fields: dict[str, Any]) -> None:
    assert entries.shards(of_bundle(**fields)) == 3
    (found,) = entries.list_announced(of_v1(**fields))
    assert found == entries.Announced("x", (5, 7), 3, (((0, 2), (0, -1)), ((2, 3), (0, 7))))


@pytest.mark.parametrize("fields", [{"min_consumer": 2}, {"bad_consumers": [1]}], ids=str)
def test_what_version_1_may_not_read(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=LATER):
        entries.shards(of_bundle(**fields))
    with pytest.raises(ValueError, match=LATER):
        entries.list_announced(of_v1(**fields))


def test_every_field_of_an_entry() -> None:
    held = claimed(4, 5, dtype=2, shard_id=3, offset=6, size=7, crc32c=8, slices=[[(1, 2), (0, 5)]])
    expected = entries.Entry(2, (4, 5), 3, 6, 7, 8, (((1, 2), (0, 5)),))
    assert entries.entry(memoryview(held)) == expected


def test_as_many_axes_as_a_tensor_may_have() -> None:
    """TensorShape::MaxDimensions() is 254."""
    assert entries.entry(memoryview(claimed(*range(1, 255)))).shape == tuple(range(1, 255))
    with pytest.raises(ValueError, match="a tensor of 255 axes"):
        entries.entry(memoryview(claimed(*[1] * 255)))


def test_a_shape_of_unknown_rank_is_refused() -> None:
    proto = tensor_bundle_pb2.BundleEntryProto(dtype=1)
    proto.shape.unknown_rank = True
    with pytest.raises(ValueError, match="a tensor of 0 axes, or of sizes unknown"):
        entries.entry(memoryview(proto.SerializeToString()))


@pytest.mark.parametrize("name", ["x", "a\0b", "\0", "grün\0"])
def test_slices_of_any_name_have_the_keys_that_tensorflow_gives_them(tmp_path: Path, name: str) -> None:
    halves = [np.float32([1, 2]), np.float32([3, 4, 5])]
    prefix = save(tmp_path / "a", [(name, half) for half in halves], ["5 0,2", "5 2,3"])
    np.testing.assert_array_equal(tensors(prefix)[name].read(), [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("extents", "key"),
    [
        (((0, -1),), b"\0x\0\1\1\1\x80\x7f"),
        (((0, 2), (63, 64)), b"\0x\0\1\1\2\x80\x82\xbf\xc0\x40"),
        ((), b"\0x\0\1\0"),
    ],
    ids=["all", "two axes", "none"],
)
def test_the_key_of_a_slice(extents: entries.Extents, key: bytes) -> None:
    """Ordered code by hand: a one for each byte of a signed number, -1 for an axis that is taken whole."""
    assert entries.slice_key("x", extents) == key
