"""Flax's msgpack as a source: kinds of values, pieces, types, and what is refused."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from support.samples import ROOT

from cudnn_convert import reference
from cudnn_convert.errors import MissingDependencyError, ReadError
from cudnn_convert.read import is_model, read
from cudnn_convert.read.arrays import flax_msgpack
from cudnn_convert.weights import lazy

FLAX = ROOT / "tests/data/arrays/flax"
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def array(value: Any, *, code: int = 1, **changes: Any) -> msgpack.ExtType:
    """An array as flax/serialization.py `_ndarray_to_bytes` packs it, with other parts where given."""
    value = np.asarray(value)
    parts = {"shape": value.shape, "dtype": value.dtype.name, "content": value.tobytes()} | changes
    return msgpack.ExtType(code, msgpack.packb([*parts.values()]))


def write(path: Path, content: Any) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else msgpack.packb(content))
    return path


def test_arrays_of_each_type_have_the_names_of_their_maps(tmp_path: Path) -> None:
    types = [np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64]
    types += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4]
    names = {np.dtype(kind).name: VALUES.astype(kind) for kind in types}
    content: dict[str, Any] = {"a": {"b": {name: array(value) for name, value in names.items()}}}
    content |= {"step": array(np.int32(3), code=3), "none": array(np.zeros([0, 3]))}
    content |= {"history": [1.5, None, array(VALUES)], "text": "x", "raw": b"y", "z": msgpack.ExtType(2, b"")}
    model = read(write(tmp_path / "m.msgpack", content))
    assert model.kind == "Flax file"
    expected = {f"a/b/{name}": value for name, value in names.items()}
    expected |= {"step": np.int32(3), "none": np.zeros([0, 3]), "history/2": VALUES}
    assert [*model.variables] == [*expected]
    for name, tensor in model.variables.items():
        np.testing.assert_array_equal(tensor.read(), expected[name], strict=True)
        assert (tensor.shape, tensor.dtype) == (expected[name].shape, expected[name].dtype)


@pytest.mark.parametrize("name", ["chunked", "kinds"])
def test_files_of_flax_are_the_same_weights(name: str) -> None:
    """Arrays in pieces, and arrays beside every other kind of value."""
    whole = read(FLAX / "lstm_bi/weights.msgpack").variables
    other = read(FLAX / f"lstm_bi/{name}.msgpack").variables
    assert whole.keys() <= other.keys()
    for key, tensor in whole.items():
        np.testing.assert_array_equal(other[key].read(), tensor.read(), strict=True)
        assert other[key].shape == tensor.shape


def test_bfloat16_is_what_flax_computed_with() -> None:
    (found,) = read(FLAX / "lstm_bfloat16/weights.msgpack").canonical
    assert found.dtype.name == "bfloat16"
    golden = np.load(FLAX / "lstm_bfloat16/golden.npz")
    steps = reference.DIALECTS["flax"](lazy.read(found.tensors), "lstm", layers=1, directions=1)
    states = golden["h0"].astype(np.float64), golden["c0"].astype(np.float64)
    answers = reference.run(steps, golden["x"].astype(np.float64), *states, directions=1)
    for answer, key in zip(answers, ("ys", "hs", "cs"), strict=True):
        np.testing.assert_allclose(answer, golden[key], rtol=0, atol=1e-6)


def chunked(**changes: Any) -> dict[str, Any]:
    pieces = {"0": array(VALUES.ravel()[:7]), "1": array(VALUES.ravel()[7:])}
    return {"__msgpack_chunked_array__": True, "shape": {"0": 3, "1": 4}, "chunks": pieces} | changes


SOUND = {"x": array(VALUES)}
PIECES = "x: expected a shape, and arrays of one type that fill it, found shape"
NO_FLAX = "file: expected what Flax's to_bytes writes, found"
OTHER = "expected numbers of a known type, found"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (msgpack.packb(SOUND)[:-1], f"{NO_FLAX} .*; copy it again"),
        (msgpack.packb(SOUND) + b"\xc0", f"{NO_FLAX} 1 bytes behind it; copy it again"),
        (b"\x82" + msgpack.packb(SOUND)[1:] * 2, f"{NO_FLAX} a key twice in one map"),
        ({**SOUND, "y": {1: 2}}, f"{NO_FLAX} "),
        ({**SOUND, "y": {b"k": 2}}, f"{NO_FLAX} a key that is no text"),
        (msgpack.packb(SOUND | {"y": 0})[:-1] + b"\x91" * 2000, f"{NO_FLAX} "),
        (msgpack.packb(SOUND | {"y": 0})[:-1] + b"\xdd\x7f\xff\xff\xff", f"{NO_FLAX} .* exceeds"),
        ({**SOUND, "y": array(VALUES, shape=[3, -4])}, f"{NO_FLAX} an array without shape, type and bytes"),
        ({**SOUND, "y": array(VALUES, content=5)}, f"{NO_FLAX} an array without shape, type and bytes"),
        (
            {**SOUND, "y": array(VALUES, shape=[3, 5])},
            r"y: expected 60 bytes for shape \(3, 5\) of float32, ",
        ),
        ({**SOUND, "y": array(VALUES, shape=[2**40, 2**10])}, "y: expected .* bytes for shape"),
        ({**SOUND, "y": array(VALUES[:0], shape=[0, 2**62])}, f"{NO_FLAX} an array without shape, type and "),
        ({**SOUND, "y": array(VALUES[0, 0], shape=[1] * 33)}, f"{NO_FLAX} an array without shape, type and "),
        (
            {**SOUND, "y": chunked(shape={"0": 0, "1": 2**62}, chunks={"0": array(VALUES[:0, 0])})},
            "y: expected",
        ),
        (
            {**SOUND, "y": array(VALUES, dtype="object")},
            f"y: {OTHER} object; save the weights by themselves, ",
        ),
        ({**SOUND, "y": array(VALUES, dtype="float9_x")}, f"y: {OTHER} float9_x"),
        ({**SOUND, "y": array(VALUES, dtype="finfo")}, f"y: {OTHER} finfo"),
        (
            {"a/b": array(VALUES), "a": {"b": array(VALUES)}},
            "a/b: expected one array of this name, found two",
        ),
        ({"x": chunked(shape={"0": 3, "1": 5})}, PIECES),
        ({"x": chunked(shape={"0": 3, "2": 4})}, PIECES),
        ({"x": chunked(shape={"0": -3, "1": -4})}, PIECES),
        ({"x": chunked(chunks={"0": array(VALUES), "1": 5})}, PIECES),
        ({"x": chunked(chunks={"0": array(VALUES[0]), "1": array(VALUES[1:].astype("f8"))})}, PIECES),
        ({**SOUND, "y": chunked(chunks={})}, PIECES.replace("x", "y", 1)),
    ],
)
def test_what_is_damaged_or_strange_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path / "m.msgpack", content)
    with pytest.raises(ReadError, match=message):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        array(VALUES),
        [array(VALUES)],
        {1: array(VALUES)},
        {"x": VALUES.tobytes()},
        {"x": msgpack.ExtType(1, b"plain")},
        {"x": msgpack.ExtType(2, msgpack.packb([1.0, 2.0]))},
        b"",
        b"\x81\xa1x",
        b'{"x": 1}',
        b"\x81\xa1\x00" + msgpack.packb(SOUND)[3:],
    ],
)
def test_other_files_are_not_taken_for_one(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "m.msgpack", content)
    assert flax_msgpack.recognise(path) is None
    assert flax_msgpack.recognise(tmp_path) is None


def test_a_large_map_and_large_shapes_are_recognised(tmp_path: Path) -> None:
    for content in (
        {f"k{number}": array(VALUES) for number in range(20)},
        {"k" * 40: array(np.zeros((1, 70_000), np.uint8))},
        {"x": array(np.ones((1,) * 9, ml_dtypes.float8_e4m3b11fnuz))},
        {"x": {"y": "text" * 1000, "z": array(VALUES)}},
    ):
        assert flax_msgpack.recognise(write(tmp_path / "m.msgpack", content)) is not None


def test_long_names_take_no_more_memory_than_the_file(tmp_path: Path) -> None:
    """Each array's name has those of all maps around it."""
    inner: Mapping[str, Any] = {f"{number}": array(np.zeros(0)) for number in range(20_000)}
    path = write(tmp_path / "m.msgpack", SOUND | {"k" * 100_000: inner})
    tracemalloc.start()
    try:
        with pytest.raises(ReadError, match="file: expected names shorter than the weights, found names of"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_without_msgpack_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    path = FLAX / "gru/weights.msgpack"
    with pytest.raises(MissingDependencyError) as caught:
        read(path)
    expected = "expected msgpack, which reads Flax's files, found that it is not installed; install it"
    assert str(caught.value) == f"{path}: {expected}: pip install 'cudnn-convert[flax]'"
    assert is_model(path), "a batch says why it cannot read the file"
