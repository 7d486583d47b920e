"""Casts of a user's arrays: what keeps every number, judged by Python's own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from support.command_line import refused

import cudnn_convert
from cudnn_convert import casts

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(kind) for kind in ("?", *("i1 u1 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()))] + [BFLOAT16]
NUMBERS = (
    *(0, 1, -1, 2, 255, 256, -129, 2**24 + 1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)),
    *(2**63, 2**64 - 1, 0.5, 1.0, 70000.0, 2.0**63, 2.0**64, 1e39, 1e300, 1e-300),
    *(math.nan, math.inf, -math.inf, 1 + 0j, 1 + 2j),
)
#: Bits of the significand of each float, and its largest number.
FLOATS = {
    "float16": (11, 65504),
    "bfloat16": (8, float(ml_dtypes.finfo(BFLOAT16).max)),
    "float32": (24, float(np.finfo(np.float32).max)),
    "float64": (53, float(np.finfo(np.float64).max)),
}
PARTS = {"complex64": "float32", "complex128": "float64"}


def array_of(number: Any, dtype: np.dtype[Any]) -> Any:
    """An array of a number; None where the dtype does not take it as it is."""
    if dtype == BFLOAT16:
        return np.array([number], np.float64).astype(dtype) if isinstance(number, float) else None
    try:
        return np.array([number], dtype)
    except (OverflowError, TypeError, ValueError):
        return None


def is_changed(number: Any, wanted: np.dtype[Any]) -> bool:
    """Whether a type does not have a number, but for the rounding of a float."""
    if isinstance(number, complex):
        if wanted.kind == "c":
            return is_changed(number.real, wanted) or is_changed(number.imag, wanted)
        return number.imag != 0 or is_changed(number.real, wanted)
    if wanted.kind == "b":
        return number not in (0, 1)
    if wanted.kind in "iu":
        bounds = np.iinfo(wanted)
        is_whole = math.isfinite(number) and int(number) == number
        return not (is_whole and bounds.min <= int(number) <= bounds.max)
    bits, largest = FLOATS[PARTS.get(wanted.name, wanted.name)]
    if isinstance(number, int):
        odd = abs(int(number))
        while odd and odd % 2 == 0:
            odd //= 2
        return odd.bit_length() > bits or abs(number) > largest
    return math.isfinite(number) and abs(number) > largest * (1 + 2.0 ** -(bits + 1))


def cases() -> Iterator[tuple[Any, np.dtype[Any], bool]]:
    for number, given, wanted in product(NUMBERS, DTYPES, DTYPES):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            array = array_of(number, given)
        if array is not None and given != wanted:
            python = array.astype(np.float64) if given == BFLOAT16 else array
            yield array, wanted, is_changed(python[0].item(), wanted)


@pytest.mark.filterwarnings("error")
def test_a_cast_keeps_every_number_or_is_refused() -> None:
    seen = {True: 0, False: 0}
    for array, wanted, changed in cases():
        loss = casts.explain_loss(array, wanted)
        assert bool(loss) == changed, (array, wanted, loss)
        seen[changed] += 1
        if not changed:
            assert casts.cast(array, wanted, where="x").dtype == wanted
    assert min(seen.values()) > 500


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ([1, 3_000_000_000], "i4", "expected int32, found values from 1 to 3000000000"),
        ([-1, 7], "u1", "expected uint8, found values from -1 to 7"),
        ([1, 2.5], "i4", "expected int32, found 2.5"),
        ([2, math.nan], "i4", "expected int32, found nan"),
        ([1, 2 + 1j], "f4", "expected float32, found (2+1j)"),
        ([1.0, 1e300], "f4", "expected float32, found 1e+300"),
        (["a"], "f4", "expected float32, found text"),
        ([1.5], "O", "expected text, found float64"),
        (np.zeros(1, "V2"), "f4", "expected float32, found void16"),
        (["a"], "O", ""),
        (np.zeros((0, 3)), "i4", ""),
        (3.0, "i4", ""),
    ],
)
def test_what_would_change_is_in_the_line(given: Any, wanted: str, message: str) -> None:
    assert casts.explain_loss(np.asarray(given), np.dtype(wanted)) == message


@pytest.mark.parametrize(
    ("given", "wanted", "is_lost"),
    [
        *(
            ("f4", "f4", False),
            ("f8", "f4", False),
            ("i8", "f4", False),
            ("?", "i4", False),
            ("u1", "i4", False),
        ),
        *(("f4", "i4", True), ("f4", "?", True), ("f4", "u1", True), ("c8", "f4", True), ("c8", "c8", False)),
        *(("S3", "f4", True), ("U3", "O", False), ("S3", "O", False), ("f4", "O", True), ("f4", "S3", True)),
        *(("V2", "f4", True), ("V2", "V2", False), ("i4", "u1", False)),
    ],
)
def test_which_types_may_lose_values(given: str, wanted: str, is_lost: bool) -> None:
    """A fraction of a float, an imaginary part, text for numbers."""
    value = {"f": 0.5, "c": 1 + 2j}.get(np.dtype(given).kind, 1)
    array = np.zeros(2, given) if given == "V2" else np.full(2, value).astype(given)
    assert bool(casts.explain_loss(array, np.dtype(wanted))) == is_lost


class Rows(tf.Module):
    """A table that ids of int32 pick rows of, which does what Python's own indices do."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "ids")])
    def pick(self, ids: Any) -> Any:
        return {"y": tf.gather(tf.constant([3.0, 5.0, 7.0]), ids)}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "saved"
    module = Rows()
    tf.saved_model.save(module, path, module.pick)
    return path


@pytest.mark.parametrize(
    ("ids", "number"),
    [
        ([0.5, 1], "0.5"),
        pytest.param([1, math.nan], "nan", marks=pytest.mark.every),
        pytest.param([1, 1 + 2j], "(1+2j)", marks=pytest.mark.every),
        pytest.param([1, 2 + 2**32], f"values from 1 to {2 + 2**32}", marks=pytest.mark.every),
    ],
)
def test_an_artifact_is_not_run_on_other_numbers(
    rows: Path, tmp_path: Path, is_first_tier: bool, ids: list[Any], number: str
) -> None:
    """Each of these was cast to a valid row. `benchmark` loads TensorFlow in a process of its own."""
    np.savez(tmp_path / "x.npz", ids=ids)
    commands = [["run", rows], *([] if is_first_tier else [["benchmark", rows, "--rounds", "1"]])]
    for words in commands:
        [line] = refused(tmp_path, *words, "--data", tmp_path / "x.npz", code=2)
        assert line.endswith(f": ids: expected int32, found {number}")
    with pytest.raises(cudnn_convert.UsageError, match="ids: expected int32, found"):
        cudnn_convert.run(rows, data={"ids": ids})


@pytest.mark.parametrize("dtype", ["i8", "u1", "f4", "f8", "c8"])
def test_whole_numbers_of_another_type_pick_the_same_rows(rows: Path, dtype: str) -> None:
    answers = cudnn_convert.run(rows, data={"ids": np.array([2, 0], dtype)})
    assert answers.outputs[0]["y"].tolist() == [7, 3]
