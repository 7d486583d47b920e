"""Checkpoints: how one is recognised, and what is said of one that is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from samples import FIXTURES, Fixture, fixture
from sources import DATA, beside, copied, refused

from cudnn_convert.errors import AccessError, ReadError
from cudnn_convert.read import READERS, checkpoint, read

Damage = Callable[[Path], None]


def test_every_reader_has_its_three_names() -> None:
    assert READERS
    for reader in READERS:
        assert isinstance(reader.KIND, str)
        assert callable(reader.recognise)
        assert callable(reader.read)


@pytest.mark.parametrize("name", ["model.ckpt", "model.ckpt.index", "model.ckpt.meta", "."])
def test_a_checkpoint_is_known_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    prefix = copied(tmp_path)
    assert checkpoint.recognise(prefix.parent / name) == prefix


def test_a_folder_of_the_prefix_name_does_not_hide_the_checkpoint(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    prefix.mkdir()
    assert checkpoint.recognise(prefix) == prefix


def test_a_copied_folder_means_its_own_files(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    state = prefix.parent / "checkpoint"
    state.write_text(f'model_checkpoint_path: "{prefix}"\n')
    other = shutil.copytree(prefix.parent, tmp_path / "copy")
    assert checkpoint.recognise(other) == other / "model.ckpt"
    beside(other / "model.ckpt", ".index").unlink()
    assert checkpoint.recognise(other) == prefix


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: None, "found no such file or folder"),
        (lambda path: path.mkdir(), "found a file or folder of another kind"),
        (lambda path: path.write_text("text"), "found a file or folder of another kind"),
    ],
    ids=["nothing", "empty folder", "text"],
)
def test_what_is_no_source_is_refused(tmp_path: Path, make: Damage, found: str) -> None:
    path = tmp_path / "thing"
    make(path)
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line == f"{path}: source: expected TensorFlow 1 checkpoint, {found}"


@pytest.mark.parametrize("sample", FIXTURES, ids=lambda sample: sample.name)
def test_every_tensor_has_the_shape_and_type_it_announces(sample: Fixture) -> None:
    model = read(sample.prefix)
    assert model.kind == checkpoint.KIND
    assert model.variables
    for key, found in model.variables.items():
        array = found.read()
        assert (array.shape, array.dtype) == (found.shape, found.dtype), key


def remove(suffix: str) -> Damage:
    return lambda prefix: beside(prefix, suffix).unlink()


def keep(suffix: str, length: int) -> Damage:
    """Cuts a file off; a negative `length` counts from the end."""

    def damage(prefix: Path) -> None:
        path = beside(prefix, suffix)
        path.write_bytes(path.read_bytes()[:length])

    return damage


def flip(suffix: str, place: int) -> Damage:
    """Flips all bits of one byte."""

    def damage(prefix: Path) -> None:
        path = beside(prefix, suffix)
        held = bytearray(path.read_bytes())
        held[place] ^= 0xFF
        path.write_bytes(held)

    return damage


def write(suffix: str, text: bytes) -> Damage:
    return lambda prefix: beside(prefix, suffix).write_bytes(text) and None


def take(suffix: str, name: str) -> Damage:
    """Puts another sample's file in the place of the checkpoint's own."""
    return lambda prefix: shutil.copy(beside(fixture(name).prefix, suffix), beside(prefix, suffix)) and None


def rename_shard(prefix: Path) -> None:
    beside(prefix, DATA).rename(beside(prefix, ".data-00000-of-00002"))


def make_v1(prefix: Path) -> None:
    beside(prefix, DATA).rename(prefix)
    beside(prefix, ".index").unlink()


INDEX = ": index: expected readable bytes that match their checksum, found "
BLOB = ": tensor cudnn_rnn_tanh/opaque_kernel: expected readable bytes that match their checksum, found "
LAST = (
    ": tensor cudnn_rnn_tanh/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/basic_rnn_cell/kernel: "
    "expected readable bytes that match their checksum, found "
)
META = ".meta: file: expected a MetaGraphDef, found a damaged or cut-off one"

#: What is broken, and how the message goes on after the checkpoint's path.
BROKEN: dict[str, tuple[Damage, str]] = {
    "no index": (remove(".index"), ": checkpoint: expected model.ckpt.index, found no such file"),
    "no data": (remove(DATA), ": checkpoint: expected model.ckpt.data-*, found no such file"),
    "V1": (make_v1, ": checkpoint: expected model.ckpt.index, found a checkpoint of the V1 format"),
    "other shard": (rename_shard, BLOB),
    "index empty": (keep(".index", 0), INDEX),
    "index cut": (keep(".index", 100), INDEX),
    "index cut by one": (keep(".index", -1), INDEX),
    "index flipped": (flip(".index", 5), INDEX),
    "index of text": (write(".index", b"text " * 99), INDEX),
    "data empty": (keep(DATA, 0), BLOB + "Read less bytes than requested"),
    "data cut": (keep(DATA, 100), BLOB + "Read less bytes than requested"),
    "data cut by one": (keep(DATA, -1), LAST + "Read less bytes than requested"),
    "data flipped in the blob": (flip(DATA, 50), BLOB),
    "data flipped in a kernel": (flip(DATA, -3), LAST),
    "data of another model": (take(DATA, "1.15.5-gru_bi"), BLOB),
    "meta empty": (keep(".meta", 0), ".meta: graph_def: expected nodes, found none"),
    "meta cut": (keep(".meta", 3000), META),
    "meta cut by one": (keep(".meta", -1), META),
    "meta of text": (write(".meta", b"text " * 99), META),
}


@pytest.mark.parametrize(("damage", "message"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_file_is_a_read_error(tmp_path: Path, damage: Damage, message: str) -> None:
    prefix = copied(tmp_path)
    damage(prefix)
    [line] = refused(tmp_path, prefix, tmp_path / "out", code=1)
    assert line.startswith(f"{prefix}{message}")


def test_a_checkpoint_without_its_graph_is_refused(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    beside(prefix, ".meta").unlink()
    [line] = refused(tmp_path, prefix, tmp_path / "out", code=1)
    assert line == f"{prefix}: expected its graph beside it, found no model.ckpt.meta; put it there"


#: The graph of one model beside the weights of another: weights, graph, what must be said.
STRANGERS = {
    "other cell": (
        "v3_batch_major",
        "gru_bi",
        ["cudnn_gru/CudnnRNN: weights: expected the blob cudnn_gru/opaque_kernel or canonical keys under"],
    ),
    "other layer names": (
        "lstm_bi_2l_states",
        "same_sizes",
        [
            "left/cudnn_lstm/CudnnRNN: weights: expected the blob left/cudnn_lstm/opaque_kernel",
            "right/cudnn_lstm/CudnnRNN: weights: expected the blob right/cudnn_lstm/opaque_kernel",
        ],
    ),
    "more units, more layers": (
        "v3_batch_major",
        "rnn_tanh_bi_2l",
        [
            "x:0: expected shape [None, None, 3] by the weights, found (None, None, 5); are graph and",
            "h0:0: expected shape [2, None, 6] by the weights, found (4, None, 8); are graph and weights of",
        ],
    ),
    "other directions": (
        "v3_batch_major",
        "rnn_tanh_uni",
        ["opaque_kernel: expected a length that 1 layers of 5 units can have, found 132"],
    ),
    "other layers": (
        "lstm_bi_2l_states",
        "lstm_uni_3l",
        ["opaque_kernel: expected a length that 3 layers of 6 units can have, found 1240"],
    ),
}


@pytest.mark.parametrize(("weights", "graph", "messages"), STRANGERS.values(), ids=STRANGERS)
def test_the_graph_of_another_model_is_refused(
    tmp_path: Path, weights: str, graph: str, messages: list[str]
) -> None:
    prefix = copied(tmp_path, f"1.15.5-{weights}")
    take(".meta", f"1.15.5-{graph}")(prefix)
    lines = refused(tmp_path, prefix, tmp_path / "out", code=1)
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(f"{prefix}: ")
        assert message in line


def test_no_flipped_byte_of_the_index_changes_what_is_read(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    path = beside(prefix, ".index")
    whole = path.read_bytes()

    def values() -> dict[str, bytes]:
        return {key: found.read().tobytes() for key, found in read(prefix).variables.items()}

    expected, damaged = values(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert values() == expected, f"byte {place}"
        except ReadError:
            damaged += 1
    assert damaged > len(whole) // 2


def test_a_damaged_tensor_that_nothing_needs_is_never_read(tmp_path: Path) -> None:
    model = read(copied(tmp_path))
    flip(DATA, 50)(tmp_path / "source" / "model.ckpt")  # the raw blob
    kernel = next(found for key, found in model.variables.items() if key.endswith("kernel") and "fw" in key)
    assert np.isfinite(kernel.read()).all()


def test_a_file_that_may_not_be_read_is_the_systems_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    prefix = copied(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(AccessError) as caught:
        read(prefix)
    assert str(caught.value) == f"{prefix}.meta: cannot read: Permission denied"
    assert caught.value.exit_code == 4
