"""Checkpoints without TensorFlow, sound and hostile: TensorFlow's own reader is the judge."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.checkpoints import (
    block,
    by_tensorflow,
    claimed,
    header,
    masked,
    save,
    save_v1,
    table,
    v1_made,
    varint,
)
from support.checkpoints import bundle as v2_made
from support.samples import REAL, ROOT, fixture
from tensorflow.core.framework import types_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from cudnn_convert.errors import AccessError, CudnnConvertError, ReadError
from cudnn_convert.read import tensorbundle
from cudnn_convert.read.tensorbundle import is_v1, is_v2, tensors
from cudnn_convert.read.tensorbundle.entries import parse_slice, slice_key
from cudnn_convert.read.tensorbundle.tables import Table

# Checkpoints without TensorFlow: its own reader is the judge of what is in them.

DATA = ROOT / "tests" / "data"


def prefixes() -> list[Path]:
    """Every sound checkpoint among the samples, of either format."""
    found = {path.with_suffix("") for root in (DATA, REAL) for path in root.rglob("*.index")}
    found = {path for path in found if DATA / "broken" not in path.parents}
    for folder in DATA.glob("tf1/*/*"):
        names = {re.sub(r"-\d{5}-of-\d{5}$", "", path.name) for path in folder.iterdir() if path.is_file()}
        found |= {folder / name for name in names if is_v1(folder / name)}
    return sorted(path for path in found if path.suffix != ".index")


def same(found: Any, expected: Any) -> None:
    if found.dtype == object:
        assert found.tolist() == (expected.tolist() if isinstance(expected, np.ndarray) else expected)
    else:
        expected = np.asarray(expected)
        assert (found.shape, found.dtype.itemsize) == (expected.shape, expected.dtype.itemsize)
        assert found.tobytes() == expected.tobytes()


PREFIXES = prefixes()


def test_both_formats_are_among_the_samples() -> None:
    assert sum(map(is_v2, PREFIXES)) > 100
    assert sum(map(is_v1, PREFIXES)) > 1


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda path: "-".join(path.parts[-4:]))
def test_every_sample_reads_as_tensorflow_reads_it(prefix: Path) -> None:
    judge, found = by_tensorflow(prefix), tensors(prefix)
    assert found
    assert list(found) == sorted(judge.get_variable_to_shape_map())
    for key, tensor in found.items():
        assert tensor.shape == tuple(judge.get_variable_to_shape_map()[key])
        assert tensor.dtype == np.dtype(judge.get_variable_to_dtype_map()[key].as_numpy_dtype)
        array = tensor.read()
        assert (array.shape, array.dtype) == (tensor.shape, tensor.dtype)
        same(array, judge.get_tensor(key))


def restore(path: Path, key: str, dtype: Any, slices: str = "") -> Any:
    """What TensorFlow's ops read, of either format."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        op = tf.raw_ops.RestoreV2(
            prefix=str(path), tensor_names=[key], shape_and_slices=[slices], dtypes=[dtype]
        )
        return session.run(op)[0]


NUMBER = [name for name, number in types_pb2.DataType.items() if 0 < number < 100]
NUMBERS = [name for name in NUMBER if name not in ("DT_STRING", "DT_RESOURCE", "DT_VARIANT")]
#: What the writer of V1 takes, beside strings.
OF_V1 = "FLOAT DOUBLE INT32 UINT8 INT16 INT8 COMPLEX64 INT64 BOOL QINT8 QUINT8 QINT32 UINT16 COMPLEX128 HALF"


def sample(name: str) -> tuple[Any, Any]:
    """A type, and an array of it in which every element differs where there are enough of them."""
    dtype = tf.as_dtype(types_pb2.DataType.Value(name))
    kind = np.dtype(dtype.as_numpy_dtype)
    if name == "DT_BOOL":
        return dtype, np.array([[True, False, True], [True, True, False]])
    if dtype.size > 1 or kind.fields or kind in (np.int8, np.uint8):
        raw = np.random.default_rng(3).integers(0, 256, 6 * kind.itemsize, np.uint8)
        return dtype, raw.view(kind).reshape(2, 3)
    return dtype, (np.arange(6).reshape(2, 3) % 2 if "INT" in name else np.arange(6).reshape(2, 3)).astype(
        kind
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_every_type(tmp_path: Path, name: str) -> None:
    dtype, value = sample(name)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.compat.v1.placeholder(dtype, value.shape)
        op = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "a"), tensor_names=["x"], shape_and_slices=[""], tensors=[given]
        )
        session.run(op, {given: value})
    found = tensors(tmp_path / "a")["x"]
    assert (found.shape, found.dtype) == ((2, 3), np.dtype(dtype.as_numpy_dtype))
    assert found.read().dtype == found.dtype
    same(found.read(), value)
    same(found.read(), by_tensorflow(tmp_path / "a").get_tensor("x"))


@pytest.mark.parametrize("name", [f"DT_{name}" for name in OF_V1.split()])
def test_numbers_of_every_type_of_v1(tmp_path: Path, name: str) -> None:
    dtype, value = sample(name)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.compat.v1.placeholder(dtype, value.shape)
        session.run(
            tf.raw_ops.Save(filename=str(tmp_path / "a"), tensor_names=["x"], data=[given]), {given: value}
        )
    found = tensors(tmp_path / "a")["x"]
    assert (found.shape, found.dtype) == ((2, 3), np.dtype(dtype.as_numpy_dtype))
    assert found.read().dtype == found.dtype
    same(found.read(), value)


@pytest.mark.parametrize("write", [save, save_v1])
def test_a_name_is_no_pattern(tmp_path: Path, write: Callable[..., Path]) -> None:
    """`a[1]` is itself alone, not `a1`, and the other way round."""
    names = ["a[1]", "a1"]
    for number, name in enumerate(names):
        shard = "-00000-of-00001" if write is save_v1 else ""
        write(tmp_path / f"{name}{shard}", [("x", np.float32([number]))])
    for number, name in enumerate(names):
        assert tensors(tmp_path / name)["x"].read() == [number]
    for path in tmp_path.glob("a[[]1]*0000*"):
        path.unlink()
    with pytest.raises(ReadError, match=r"expected a\[1\]\.(index|data-\*), found no such file"):
        tensors(tmp_path / "a[1]")


def missing(prefix: Path) -> str:
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    return str(caught.value).removeprefix(f"{prefix}: checkpoint: ")


def test_a_checkpoint_that_is_not_all_there(tmp_path: Path) -> None:
    prefix, advice = tmp_path / "a", "copy all files of the checkpoint"
    assert missing(prefix) == f"expected a.index, found no such file; {advice}"
    save(prefix, [("x", np.float32([1]))])
    (tmp_path / "a.data-00000-of-00001").rename(prefix)
    assert missing(prefix) == f"expected a.data-*, found no such file; {advice}"
    (tmp_path / "a.index").unlink()
    assert missing(prefix) == f"expected a.index, found the file a, which is no checkpoint; {advice}"
    prefix.write_bytes(b"")
    assert missing(prefix) == f"expected a.index, found the file a, which is no checkpoint; {advice}"


def test_any_file_of_a_sharded_checkpoint_tells_its_format(tmp_path: Path) -> None:
    """One that is cut off is no reason to take the others for nothing."""
    for number, name in enumerate("xy"):
        save_v1(tmp_path / f"a-{number:05d}-of-00002", [(name, np.float32([number]))])
    first = tmp_path / "a-00000-of-00002"
    first.write_bytes(first.read_bytes()[:-1])
    assert is_v1(tmp_path / "a")
    with pytest.raises(ReadError, match=r"index: .* found a file that does not end as a table"):
        tensors(tmp_path / "a")


def test_the_end_of_a_table_is_told_from_less(tmp_path: Path) -> None:
    """What ends as a table is one that was cut off at its front."""
    for cut, found in ((8, True), (7, False), (0, False)):
        (tmp_path / "a").write_bytes(bytes.fromhex("57fb808b247547db")[8 - cut :])
        assert is_v1(tmp_path / "a") is found


SHAPES = {
    "scalar": np.float32(1.5),
    "one": np.array([2.5], np.float32),
    "empty": np.zeros((0, 3), np.float64),
    "wide": np.arange(24, dtype=np.int64).reshape(1, 2, 3, 4, 1) - 12,
    "of chunks": np.random.default_rng(1).standard_normal((3, 50_001)).astype(np.float32),
    "alike": np.tile(np.float32([0.125, -3.0]), 40_000),
}
STRINGS = {
    "word": np.array(b"word", object),
    "none": np.array([], object),
    "words": np.array([[b"", b"a" * 300], [b"\0\xff", "grün".encode()]], object),
}


@pytest.mark.parametrize("write", [save, save_v1])
def test_shapes_and_strings(tmp_path: Path, write: Callable[..., Path]) -> None:
    strings = {key: value for key, value in STRINGS.items() if value.size}
    prefix = write(tmp_path / "a", [*SHAPES.items(), *strings.items()])
    found, judge = tensors(prefix), by_tensorflow(prefix)
    assert sorted(found) == sorted(judge.get_variable_to_shape_map())
    for key, tensor in found.items():
        array = tensor.read()
        assert (array.shape, array.dtype) == (tensor.shape, tensor.dtype)
        same(array, judge.get_tensor(key))
        same(array, (SHAPES | STRINGS)[key])
        assert array.flags.aligned


def test_no_strings_at_all(tmp_path: Path) -> None:
    found = tensors(save(tmp_path / "a", [("none", tf.zeros([0, 2], tf.string))]))["none"]
    assert (found.shape, found.read().tolist()) == ((0, 2), [])


def test_many_tensors_under_long_names(tmp_path: Path) -> None:
    words = np.random.default_rng(2).integers(0, 2**63, (2500, 10))
    names = ["/".join(f"{word:x}" for word in name) for name in words]
    values = {name: np.float32(number) for number, name in enumerate(names)}
    for prefix in (save(tmp_path / "a", values.items()), save_v1(tmp_path / "b", values.items())):
        files = Table(prefix if is_v1(prefix) else Path(f"{prefix}.index"))
        assert len(files._handles) > 1
        found = tensors(prefix)
        assert {name: float(tensor.read()) for name, tensor in found.items()} == values


def test_v1_reads_no_block_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {f"{number:03}": np.full(1000, number, np.float64) + 0.1 for number in range(200)}
    path, inner, read = save_v1(tmp_path / "a", values.items()), Table._block, []
    monkeypatch.setattr(Table, "_block", lambda self, *given: read.append(given[1]) or inner(self, *given))
    for key, tensor in tensors(path).items():
        np.testing.assert_array_equal(tensor.read(), values[key])
    assert len(read) == len(set(read)) > 2


def test_what_snappy_made_small_is_read(tmp_path: Path) -> None:
    value = np.tile(np.float32([0.125, -3.0, 7.0]), 100_000)
    path = v1_made(tmp_path, 1, b"\x2a" + varint(value.nbytes) + value.tobytes(), [300_000], kind=1)
    assert path.stat().st_size < value.nbytes / 4
    same(tensors(path)["x"].read(), value)
    same(by_tensorflow(path).get_tensor("x"), value)


@pytest.mark.parametrize("name", ["x", "s"])
def test_several_data_files(tmp_path: Path, name: str) -> None:
    values = {"x": np.float32([1, 2]), "s": np.array([b"one", b"two"], object)}
    parts = [save(tmp_path / f"part{key}", [(key, value)]) for key, value in values.items()]
    prefix = tmp_path / "whole"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=list(map(str, parts)), destination_prefix=str(prefix))
    assert len(list(tmp_path.glob("whole.data-*-of-00002"))) == 2
    found = tensors(prefix)
    for key, value in values.items():
        np.testing.assert_array_equal(found[key].read(), value)
    lost = f"whole.data-{found[name].stored.pieces[0].entry.shard:05d}-of-00002"
    (tmp_path / lost).unlink()
    with pytest.raises(ReadError) as caught:
        found[name].read()
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value) == f"{prefix}: tensor {name}: {expected}, found no file {lost}; copy it again"


#: A tensor of 300 x 70 in slices that cut both axes, and what may be asked of it.
CUTS = {"0,100:0,70": (0, 100, 0, 70), "100,200:0,65": (100, 300, 0, 65), "100,200:65,5": (100, 300, 65, 70)}
ASKED = ["0,100:-", "100,200:0,65", "-:-", "90,20:60,10", "299,1:69,1", "-:64,2", "100,200:-", "5,0:-"]


@pytest.mark.first("float32-save", "float32-save_v1", "int16-save", "int16-save_v1")
@pytest.mark.parametrize("write", [save, save_v1])
@pytest.mark.parametrize("dtype", [np.float32, np.int16, object])
def test_any_part_of_a_partitioned_variable(tmp_path: Path, write: Callable[..., Path], dtype: Any) -> None:
    value = np.arange(21_000).reshape(300, 70).astype(dtype)
    if dtype is object:
        value = np.array([str(number).encode() for number in value.ravel()], object).reshape(300, 70)
    prefix = tmp_path / "a"
    pieces = [("x", value[top:bottom, left:right]) for top, bottom, left, right in CUTS.values()]
    write(prefix, pieces, [f"300 70 {extents}" for extents in CUTS])
    found = tensors(prefix)
    assert list(found) == ["x"]
    assert found["x"].shape == (300, 70)
    same(found["x"].read(), value)
    for extents in ASKED:
        part = found["x"].part(f"300 70 {extents}")
        array = part.read()
        assert array.shape == part.shape
        top, height, left, width = (int(number) for number in re.split("[,:]", spelt(extents)))
        same(array, value[top : top + height, left : left + width])
        if dtype is not object and array.size:
            same(array, restore(prefix, "x", part.dtype, part.slices))


def spelt(extents: str) -> str:
    first, second = extents.split(":")
    return f"{'0,300' if first == '-' else first}:{'0,70' if second == '-' else second}"


@pytest.mark.parametrize("start", [0, 63, 64, 8191, 8192, 1_048_575, 1_048_576, 3_000_000])
def test_slices_that_begin_anywhere_have_keys(tmp_path: Path, start: int) -> None:
    """The ordered code of a number takes another byte at every seventh bit."""
    value, size = np.int8([[1], [2], [3]]), start + 3
    words = [f"{size} 1 0,{start}:-", f"{size} 1 {start},3:0,1"]
    pieces = [("x", np.zeros([start, 1], np.int8)), ("x", value)]
    save(tmp_path / "a", pieces if start else pieces[1:], words if start else words[1:])
    found = tensors(tmp_path / "a")["x"]
    np.testing.assert_array_equal(found.part(f"{size} 1 {start},3:0,1").read(), value)
    np.testing.assert_array_equal(found.read()[start:], value)


def test_a_part_of_what_is_stored_whole(tmp_path: Path) -> None:
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    prefix = save(tmp_path / "a", [("x", value)])
    part = tensors(prefix)["x"].part("3 4 1,2:0,3")
    np.testing.assert_array_equal(part.read(), value[1:, :3])
    with pytest.raises(ReadError) as caught:
        tensors(prefix)["x"].part("6 4 1,2:0,3").read()
    message = "expected the shape (6, 4) for its part 6 4 1,2:0,3, found (3, 4)"
    assert str(caught.value) == f"{prefix}: tensor x: {message}"


@pytest.mark.parametrize(
    "words", ["3 4", "3 4 0,3", "3 4 0,4:-", "3 4 -1,2:-", "3 4 1,-1:-", "3 4 a:b", "3 4 1:-"]
)
def test_words_that_are_no_slice(words: str) -> None:
    with pytest.raises(ValueError):
        parse_slice(words)


def test_a_tensor_is_read_without_a_copy(tmp_path: Path) -> None:
    value = np.random.default_rng(5).integers(0, 256, 16 << 20, np.uint8)
    found = tensors(save(tmp_path / "a", [("x", value)]))["x"]
    tracemalloc.start()
    try:
        array = found.read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < value.nbytes + (1 << 20)
    np.testing.assert_array_equal(array, value)


def test_what_is_in_use_is_not_read_again(tmp_path: Path) -> None:
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = tensors(save(tmp_path / "a", [("x", value)]))["x"]
    first, part = found.read(), found.part("3 4 1,2:-").read()
    assert found.read() is first
    assert found.part("3 4 1,2:-").read() is part
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 7
    (tmp_path / "a.data-00000-of-00001").unlink()
    same(found.read(), value)
    del first
    with pytest.raises(ReadError):  # nothing was kept
        found.read()


@pytest.mark.parametrize("place", [0, 300_000, -1])
def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, place: int) -> None:
    prefix = save(tmp_path / "a", [("x", np.zeros(200_000, np.float32))])
    path = Path(f"{prefix}.data-00000-of-00001")
    held = bytearray(path.read_bytes())
    held[place] ^= 1
    path.write_bytes(held)
    with pytest.raises(ReadError, match="found bytes of another checksum"):
        tensors(prefix)["x"].read()


@pytest.mark.first("checkpoint_sharded")
@pytest.mark.parametrize("name", ["gru_bi", "checkpoint_sharded", "checkpoint_v1", "checkpoint_v1_sharded"])
def test_a_checkpoint_without_a_graph_needs_no_tensorflow(tmp_path: Path, name: str) -> None:
    for path in fixture(f"1.15.5-{name}").folder.iterdir():
        if path.suffix not in (".meta", ".npz", ".json"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    loads_without_tensorflow(tmp_path)


@pytest.mark.first(".keras")
@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_keras_file_needs_no_tensorflow_to_be_read(suffix: str) -> None:
    loads_without_tensorflow(next(iter(sorted(DATA.glob(f"keras/**/*{suffix}")))))


def loads_without_tensorflow(path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom cudnn_convert.read import read\n"
        "model = read(Path(sys.argv[1]))\n"
        "for tensor in model.variables.values(): tensor.read()\n"
        "print(sorted({'tensorflow', 'keras', 'tf_keras'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ended.stdout == "[]\n"


# Checkpoints of the V1 format, entry by entry: what TensorFlow writes is read in `test_tensorbundle`.


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


# Data files of the V2 format, byte by byte: what TensorFlow writes is read in `test_tensorbundle`.


def test_a_file_that_is_too_short_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, opened = save(tmp_path / "a", [("x", np.arange(9, dtype=np.float32))]), list[FileIO]()
    data = Path(f"{prefix}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:-1])
    monkeypatch.setattr(
        f"{tensors.__module__}.FileIO", lambda path: opened.append(FileIO(path)) or opened[-1]
    )
    with pytest.raises(ReadError, match="of 35 bytes where 36 are needed"):
        tensors(prefix)["x"].read()
    assert [stream.closed for stream in opened] == [True]


@pytest.mark.parametrize("length", [1 << 32, (1 << 32) + 7, (1 << 32) - 1])
def test_the_lengths_of_long_strings_are_covered_as_words_of_64_bits(tmp_path: Path, length: int) -> None:
    """ReadStringTensor: what needs no more than 32 bits is a word of these. The string is not there."""
    words = (2).to_bytes(4, "little") + length.to_bytes(8 if length >= 1 << 32 else 4, "little")
    data = varint(2) + varint(length) + masked(words).to_bytes(4, "little") + b"ab"
    entry = claimed(2, size=len(data), dtype=7)
    with pytest.raises(ReadError, match=f"found {length + 2} bytes of strings in 2"):
        tensors(v2_made(tmp_path, {b"": header(), b"x": entry}, data))["x"].read()


# Checkpoints whose checksums are right and whose claims are not: one line, no memory for a mere claim.

SOUND = claimed(2, size=8, crc32c=masked(b"12345678"))
HALVES = [[(0, 2)], [(2, 2)]]
#: Keys of slices that `test_slices_that_begin_anywhere_have_keys` holds against TensorFlow's.
FRONT, BACK = b"\0x\0\1\1\1\x80\x82", b"\0x\0\1\1\1\x82\x82"

#: What the index of a checkpoint says, and what is said of that when it is opened.
OPENED: dict[str, tuple[dict[bytes, bytes], str]] = {
    "no header": ({b"x": SOUND}, "no header"),
    "big-endian": ({b"": header(endianness=1)}, "big-endian numbers"),
    "for later readers": ({b"": header(reader=2)}, "a format for other readers than those of version 1"),
    "no message": ({b"": header(), b"x": b"\x0b"}, "a field of kind 3"),
    "a name of no text": ({b"": header(), b"\xff\xfe": SOUND}, "b'\\xff\\xfe' for a name"),
    "a negative size": (
        {b"": header(), b"x": claimed(2, -1, size=8)},
        "a tensor of 2 axes, or of sizes unknown",
    ),
    "255 axes": (
        {b"": header(), b"x": claimed(*[1] * 255, size=4)},
        "a tensor of 255 axes, or of sizes unknown",
    ),
    "a slice that is not there": (
        {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND},
        "no entry for the slice [(2, 2)] of the shape (4,)",
    ),
    "a slice of another shape": (
        {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND, BACK: claimed(3, size=12)},
        "no entry for the slice [(2, 2)] of the shape (4,)",
    ),
    "a slice outside": (
        {b"": header(), b"x": claimed(3, slices=HALVES), FRONT: SOUND, BACK: SOUND},
        "a slice ((2, 2),) of the shape (3,)",
    ),
    "a slice of more axes": (
        {b"": header(), b"x": claimed(2, 2, slices=HALVES), FRONT: SOUND, BACK: SOUND},
        "no entry for the slice",
    ),
    "a slice twice": (
        {b"": header(), b"x": claimed(4, slices=[*HALVES, [(2, 2)]]), FRONT: SOUND, BACK: SOUND},
        "slices that overlap",
    ),
}
OPENED["a slice of more axes"] = (OPENED["a slice of more axes"][0], "a slice ((0, 2),) of the shape (2, 2)")


@pytest.mark.parametrize(("entries", "found"), OPENED.values(), ids=OPENED)
def test_an_index_that_claims_too_much_is_refused(
    tmp_path: Path, entries: dict[bytes, bytes], found: str
) -> None:
    prefix = v2_made(tmp_path, entries, b"12345678")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value) == f"{prefix}: index: {expected}, found {found}; copy it again"


def test_slices_have_the_keys_that_are_made_up_here(tmp_path: Path) -> None:
    entries = {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND, BACK: SOUND}
    prefix = v2_made(tmp_path, entries, b"12345678")
    expected = np.frombuffer(b"12345678" * 2, np.float32)
    np.testing.assert_array_equal(tensors(prefix)["x"].read(), expected)
    np.testing.assert_array_equal(by_tensorflow(prefix).get_tensor("x"), expected)


HUGE = 1 << 62
WHERE = "made.data-00000-of-00001 of 8 bytes where"
#: What an entry says of its tensor, and what is said when that is read.
READ: dict[str, tuple[bytes, str]] = {
    "beyond the file": (claimed(2, size=8, offset=1), f"{WHERE} 9 are needed"),
    "far beyond the file": (claimed(2, size=8, offset=HUGE), f"{WHERE} {HUGE + 8} are needed"),
    "before the file": (claimed(2, size=8, offset=-1), f"{WHERE} 7 are needed"),
    "larger than the file": (claimed(HUGE // 4, size=HUGE), f"{WHERE} {HUGE} are needed"),
    "more than its bytes": (claimed(3, size=8), "8 bytes for a tensor of 12"),
    "too much for 64 bits": (claimed(HUGE, HUGE, HUGE, size=8), f"8 bytes for a tensor of {4 * HUGE**3}"),
    "nothing, but long": (claimed(0, HUGE, HUGE), "array is too big"),
    "another checksum": (claimed(2, size=8, crc32c=1), "bytes of another checksum"),
    "a file that there is not": (claimed(2, size=8, shard_id=1), "a tensor in file 1 of 1"),
    "a file before all": (claimed(2, size=8, shard_id=-1), "a tensor in file -1 of 1"),
    "resources": (claimed(2, size=8, dtype=20), "elements of type 20, which are no numbers"),
    "variants": (claimed(2, size=8, dtype=21), "elements of type 21, which are no numbers"),
    "a type of tomorrow": (claimed(2, size=8, dtype=77), "elements of type 77, which are no numbers"),
    "strings without an end": (claimed(9, size=8, dtype=7), "8 bytes for 9 strings"),
    "strings of another checksum": (claimed(2, size=8, dtype=7), "lengths of another checksum"),
    "negative strings": (claimed(2, size=-8, dtype=7), f"{WHERE} -8 are needed"),
}


@pytest.mark.parametrize(("entry", "found"), READ.values(), ids=READ)
def test_an_entry_that_claims_too_much_is_refused_when_it_is_read(
    tmp_path: Path, entry: bytes, found: str
) -> None:
    prefix = v2_made(tmp_path, {b"": header(), b"good": SOUND, b"x": entry}, b"12345678")
    held = tensors(prefix)
    assert held["good"].read().tobytes() == b"12345678"
    with pytest.raises(ReadError) as caught:
        held["x"].read()
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value).startswith(f"{prefix}: tensor x: {expected}, found {found}")
    assert str(caught.value).endswith("; copy it again")


def words(lengths: Sequence[int], held: bytes) -> bytes:
    checksum = masked(b"".join(length.to_bytes(4, "little") for length in lengths)).to_bytes(4, "little")
    return b"".join(map(varint, lengths)) + checksum + held


def test_strings_longer_than_the_file_are_refused(tmp_path: Path) -> None:
    data = words([3, 1 << 30], b"abcdefgh")
    entry = claimed(2, size=len(data), dtype=7)
    with pytest.raises(ReadError, match="found 1073741827 bytes of strings in 8"):
        tensors(v2_made(tmp_path, {b"": header(), b"x": entry}, data))["x"].read()


def test_a_name_of_two_lines_is_told_in_one(tmp_path: Path) -> None:
    prefix = v2_made(tmp_path, {b"": header(), b"two\nlines": claimed(2, size=8, crc32c=1)}, b"12345678")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)["two\nlines"].read()
    assert str(caught.value).startswith(f"{prefix}: tensor 'two\\nlines': expected")


def test_slices_that_leave_a_gap_are_refused(tmp_path: Path) -> None:
    entries = {b"": header(), b"x": claimed(4, slices=HALVES[:1]), FRONT: SOUND}
    found = tensors(v2_made(tmp_path, entries, b"12345678"))["x"]
    assert found.part("4 0,2").read().tobytes() == b"12345678"
    with pytest.raises(ReadError, match=re.escape("found slices that hold less or more than [(0, 4)]")):
        found.read()


def test_a_huge_tensor_of_one_small_slice_takes_no_memory(tmp_path: Path) -> None:
    whole = (((0, HUGE // 4 - 1),), ((HUGE // 4 - 1, 1),))
    first, second = (slice_key("x", extents) for extents in whole)
    entries = {
        b"": header(),
        b"x": claimed(HUGE // 4, slices=whole),
        first: claimed(HUGE // 4 - 1, size=HUGE - 4),
        second: claimed(1, size=4),
    }
    prefix = v2_made(tmp_path, entries, b"12345678")
    with pytest.raises(ReadError, match=f"{WHERE} {HUGE - 4} are needed"):
        tensors(prefix)["x"].read()


FLOATS = b"\x2a\x08" + np.float32([1.5, -2.5]).tobytes()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    "tensor", [FLOATS, b"\x2d" + FLOATS[2:6] + b"\x2d" + FLOATS[6:]], ids=["packed", "apart"]
)
def test_floats_of_v1_packed_or_not(tmp_path: Path, tensor: bytes, kind: int) -> None:
    path = v1_made(tmp_path, 1, tensor, [2], kind=kind)
    np.testing.assert_array_equal(tensors(path)["x"].read(), np.float32([1.5, -2.5]))
    np.testing.assert_array_equal(by_tensorflow(path).get_tensor("x"), np.float32([1.5, -2.5]))


@pytest.mark.parametrize(
    ("dtype", "tensor", "shape", "found"),
    [
        (1, FLOATS, [3], "2 elements for the shape (3,)"),
        (1, FLOATS[:-1] + b"", [2], "a message that ends within a field"),
        (1, b"\x2a\7" + FLOATS[2:9], [2], "7 bytes for elements of 4"),
        (1, FLOATS, [HUGE], f"a block too small for {HUGE} elements"),
        (3, b"\x3a\2\1\x80", [2], "a number without an end"),
        (7, b"\x42\1a", [2], "1 elements for the shape (2,)"),
        (21, b"", [1], "elements of type 21, which the format does not have"),
    ],
)
def test_a_v1_tensor_that_claims_too_much(
    tmp_path: Path, dtype: int, tensor: bytes, shape: list[int], found: str
) -> None:
    path = v1_made(tmp_path, dtype, tensor, shape)
    with pytest.raises(ReadError) as caught:
        tensors(path)["x"].read()
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value) == f"{path}: tensor x: {expected}, found {found}; copy it again"


def test_v1_files_of_one_save_are_all_needed(tmp_path: Path) -> None:
    prefix = tmp_path / "a"
    for number, name in enumerate("xyz"):
        save_v1(tmp_path / f"a-{number:05d}-of-00003", [(name, np.float32([number]))])
    assert {key: tensor.read().tolist() for key, tensor in tensors(prefix).items()} == {
        "x": [0],
        "y": [1],
        "z": [2],
    }
    kept = (tmp_path / "a-00001-of-00003").rename(tmp_path / "elsewhere")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    found = "checkpoint: expected a-00001-of-00003, found no such file; copy all files of the checkpoint"
    assert str(caught.value) == f"{prefix}: {found}"
    kept.rename(tmp_path / "a-00001-of-00002")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    found = "checkpoint: expected the files of one save, found files of saves in 2 and 3 parts"
    assert str(caught.value) == f"{prefix}: {found}; copy one save to a folder of its own"


def test_v1_files_that_hold_the_same_slice_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        save_v1(tmp_path / f"a-{number:05d}-of-00002", [("x", np.float32([number]))])
    with pytest.raises(ReadError, match=r"index: .* found slices that overlap"):
        tensors(tmp_path / "a")
    save_v1(tmp_path / "a-00001-of-00002", [("x", np.float64([1]))])
    with pytest.raises(ReadError, match=r"index: .* found tensor x of two kinds"):
        tensors(tmp_path / "a")


def test_a_data_file_that_may_not_be_read_is_the_systems_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> FileIO:
        raise PermissionError(13, "Permission denied", path)

    prefix = save(tmp_path / "a", [("x", np.float32([1, 2]))])
    found = tensors(prefix)["x"]
    monkeypatch.setattr(f"{tensors.__module__}.FileIO", denied)
    with pytest.raises(AccessError) as caught:
        found.read()
    assert str(caught.value) == f"{prefix}.data-00000-of-00001: cannot read: Permission denied"


def everything(prefix: Path) -> dict[str, Any]:
    """What a checkpoint holds; an entry that cannot be read is its message."""
    found = {}
    for key, tensor in tensors(prefix).items():
        try:
            found[key] = tensor.read().tobytes()
        except CudnnConvertError as error:
            assert "\n" not in str(error)
            found[key] = str(error)
    return found


MUTATION = st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["set", "drop", "insert"]))


def mutated(held: bytes, changes: Sequence[tuple[int, int, str]]) -> bytes:
    data = bytearray(held)
    for place, value, how in changes:
        at = place % max(1, len(data))
        data[at : at + (how != "insert")] = b"" if how == "drop" else bytes([value])
    return bytes(data)


@pytest.mark.first("1.15.5-partitioned-a value", "1.15.5-partitioned-a block", "1.15.5-checkpoint_v1-a block")
@pytest.mark.parametrize("deep", [True, False], ids=["a value", "a block"])
@pytest.mark.parametrize("name", ["1.15.5-partitioned", "1.15.5-checkpoint_v1"])
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(which=st.integers(0, 1000), changes=st.lists(MUTATION, min_size=1, max_size=3))
def test_no_change_under_a_right_checksum_ends_in_anything_but_a_refusal(
    tmp_path: Path, name: str, deep: bool, which: int, changes: list[tuple[int, int, str]]
) -> None:
    source = fixture(name).prefix
    index = Path(f"{source}.index") if is_v2(source) else source
    entries = {key: bytes(value) for key, value in Table(index).entries()}
    last = max(entries)
    if deep:
        key = sorted(entries)[which % len(entries)]
        entries[key] = mutated(entries[key], changes)
    made = block(entries) if deep else mutated(block(entries), changes)
    prefix = tmp_path / "model.ckpt"
    Path(f"{prefix}.index" if is_v2(source) else prefix).write_bytes(table([(last, made)]))
    for path in source.parent.glob(f"{source.name}.data-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    try:
        assert isinstance(everything(prefix), dict)
    except CudnnConvertError as error:
        assert "\n" not in str(error)
