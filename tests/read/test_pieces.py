"""Tensors put together from slices, by hand: numbers that tell where each came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cudnn_convert.read.tensorbundle import entries
from cudnn_convert.read.tensorbundle.entries import Extents

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


def stored(*extents: Extents) -> entries.Stored:
    return entries.Stored((5, 6), 1, tuple(Held(each, []) for each in extents))


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
