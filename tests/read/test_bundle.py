"""Checkpoints without TensorFlow: its own reader is the judge of what is in them."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from samples import REAL, ROOT, fixture
from tables import by_tensorflow, save, save_v1, v1_made, varint
from tensorflow.core.framework import types_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.read.tensorbundle import is_v1, is_v2, part_shape, tensors
from cudnn_convert.read.tensorbundle.tables import Table

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
    assert missing(prefix) == f"expected a.index, found a file of another kind; {advice}"
    prefix.write_bytes(b"")
    assert missing(prefix) == f"expected a.index, found a file of another kind; {advice}"


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
        assert array.shape == part.shape == part_shape(f"300 70 {extents}")
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
        part_shape(words)


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


@pytest.mark.parametrize("name", ["gru_bi", "checkpoint_sharded", "checkpoint_v1", "checkpoint_v1_sharded"])
def test_a_checkpoint_without_a_graph_needs_no_tensorflow(tmp_path: Path, name: str) -> None:
    for path in fixture(f"1.15.5-{name}").folder.iterdir():
        if path.suffix not in (".meta", ".npz", ".json"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    loads_without_tensorflow(tmp_path)


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
