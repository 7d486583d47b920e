"""Entries of a checkpoint's tables: messages, dtypes, tensors made of slices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.checkpoints import claimed, save
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from cudnn_convert.read.tensorbundle import entries, tensors
from cudnn_convert.read.tensorbundle.entries import Extents

# What the values of a checkpoint's tables say: messages that TensorFlow's own classes write.

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
    expected = entries.IndexEntry(2, (4, 5), 3, 6, 7, 8, (((1, 2), (0, 5)),))
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


# TensorFlow's numbers of types: its own list of them is the judge.

NUMBERS = {name: number for name, number in types_pb2.DataType.items() if 0 < number < 100}
NO_NUMBERS = {"DT_STRING", "DT_RESOURCE", "DT_VARIANT"}
SMALL = "INT32 UINT8 INT16 INT8 QINT8 QUINT8 QINT32 UINT16"


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - NO_NUMBERS))
def test_each_number_is_the_type_that_tensorflow_means(name: str) -> None:
    expected = np.dtype(tf.as_dtype(NUMBERS[name]).as_numpy_dtype)
    assert entries.of(NUMBERS[name]) == entries.numeric(NUMBERS[name]) == expected


@pytest.mark.parametrize("number", [0, *sorted(NUMBERS[name] for name in NO_NUMBERS), 99])
def test_what_has_no_numbers_is_refused(number: int) -> None:
    assert entries.of(number) == np.dtype(object)
    with pytest.raises(ValueError, match=f"elements of type {number}, which are no numbers"):
        entries.numeric(number)


def test_the_types_that_have_names_of_their_own() -> None:
    names = "FLOAT DOUBLE STRING COMPLEX64 INT64 BOOL COMPLEX128 HALF".split()
    assert {name: getattr(entries, name) for name in names} == {name: NUMBERS[f"DT_{name}"] for name in names}
    assert {NUMBERS[f"DT_{name}"] for name in SMALL.split()} == entries.SMALL_INTEGERS
    assert {entries.numeric(number).itemsize for number in entries.SMALL_INTEGERS} == {1, 2, 4}


# Tensors put together from slices, by hand: numbers that tell where each came from.

WHOLE = np.arange(1, 31, dtype=np.float32).reshape(5, 6)


@dataclass(frozen=True)
class Held:
    """The slice of `WHOLE` at these extents; counts how often it is read."""

    extents: Extents
    reads: list[Any]

    def check(self) -> None:
        self.reads.append("check")

    def read(self) -> Any:
        (top, height), (left, width) = self.extents
        self.reads.append(WHOLE[top : top + height, left : left + width].copy())
        return self.reads[-1]


def stored(*extents: Extents) -> entries.StoredTensor:
    return entries.StoredTensor((5, 6), 1, tuple(Held(each, []) for each in extents))


#: Five that cover everything, in no order; each touches others.
CUT: tuple[Extents, ...] = (
    ((3, 2), (0, 6)),
    ((0, 3), (4, 2)),
    ((1, 2), (0, 4)),
    ((0, 1), (2, 2)),
    ((0, 1), (0, 2)),
)


@pytest.mark.parametrize(
    "wanted", [((0, 5), (0, 6)), ((2, 2), (3, 2)), ((0, 1), (1, 5)), ((4, 1), (5, 1)), ((2, 0), (0, 6))]
)
def test_any_part_of_what_is_cut_anyhow(wanted: Extents) -> None:
    (top, height), (left, width) = wanted
    found = stored(*CUT).read(wanted)
    np.testing.assert_array_equal(found, WHOLE[top : top + height, left : left + width], strict=True)


def test_only_what_is_needed_is_read_and_all_is_checked_before() -> None:
    whole = stored(*CUT)
    whole.read(((0, 2), (0, 3)))
    seen = [[type(one) for one in piece.reads] for piece in whole.pieces]
    assert seen == [[], [], [str, np.ndarray], [str, np.ndarray], [str, np.ndarray]]


def test_a_slice_that_is_stored_so_is_handed_out_without_a_copy() -> None:
    whole = stored(*CUT)
    found = whole.read(CUT[2])
    assert found is whole.pieces[2].reads[0]


def test_what_is_in_use_is_handed_out_again_and_cannot_be_written_to() -> None:
    whole = stored(*CUT)
    first = whole.read(CUT[0])
    assert whole.read(CUT[0]) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 7
    del first
    whole.pieces[0].reads.clear()
    assert whole.read(CUT[0]) is whole.pieces[0].reads[0]


@pytest.mark.parametrize(
    "extra", [((4, 1), (5, 1)), ((2, 2), (3, 1)), ((0, 5), (0, 6)), ((0, 2), (3, 2))], ids=str
)
@pytest.mark.parametrize("first", [True, False])
def test_slices_that_share_an_element_are_refused(extra: Extents, first: bool) -> None:
    with pytest.raises(ValueError, match="slices that overlap"):
        stored(*([extra, *CUT] if first else [*CUT, extra]))


def test_slices_that_share_nothing_but_a_row_are_sound() -> None:
    """The first and the last overlap along one axis each with others, along both with none."""
    stored(((0, 5), (0, 1)), ((2, 3), (1, 5)), ((0, 2), (1, 5)))
    stored(((2, 3), (1, 5)), ((0, 2), (1, 5)), ((0, 5), (0, 1)))


def test_slices_that_leave_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="slices that hold less or more than"):
        stored(*CUT[1:]).read(((0, 5), (0, 6)))


@pytest.mark.parametrize("slices", [((0, 1),), ((0, 1), (0, 2), (0, 1)), ((0, 1), (1, 3)), ((-1, 1), (0, 1))])
def test_a_slice_lies_in_its_tensor(slices: Extents) -> None:
    with pytest.raises(ValueError, match=r"a slice .* of the shape \(2, 3\)"):
        entries.resolve_slice(slices, (2, 3))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (((0, 3), (4, 2)), ((1, 2), (0, 6)), ((1, 2), (4, 2))),
        (((0, 3), (0, 2)), ((3, 2), (0, 2)), ((3, 0), (0, 2))),
        (((0, 1), (0, 2)), ((3, 2), (1, 1)), ((3, 0), (1, 1))),
        ((), (), ()),
    ],
)
def test_what_two_slices_share(one: Extents, other: Extents, expected: Extents) -> None:
    assert entries.common(one, other) == entries.common(other, one) == expected
