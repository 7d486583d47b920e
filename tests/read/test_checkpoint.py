"""Checkpoints: how one is recognised, the file `checkpoint`, and damage."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from support import artifacts, tiers
from support.checkpoints import save
from support.command_line import DATA, SMALL, beside, copied, refused
from support.samples import FIXTURES, Fixture, fixture
from support.tiers import some
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2

import cudnn_convert
from cudnn_convert.errors import AccessError, ReadError
from cudnn_convert.model import Signature
from cudnn_convert.read import READERS, checkpoint, read
from cudnn_convert.read.checkpoint import latest

# Checkpoints: how one is recognised, and what is said of one that is damaged.

Damage = Callable[[Path], None]


def test_every_reader_has_its_three_names() -> None:
    assert READERS
    for reader in READERS:
        assert isinstance(reader.KIND, str)
        assert callable(reader.recognise)
        assert callable(reader.read)


def prefix_of(path: Path) -> Path:
    found = checkpoint.recognise(path)
    assert found is not None
    return found.prefix


#: Any name of a checkpoint of each layout.
NAMES = {
    SMALL: ["model.ckpt", "model.ckpt.index", "model.ckpt.meta", "model.ckpt.data-00000-of-00001", "."],
    "1.15.5-checkpoint_sharded": ["model.ckpt", "model.ckpt.data-00001-of-00002", "."],
    "1.15.5-checkpoint_v1": ["model.ckpt", "model.ckpt.meta", "."],
    "1.15.5-checkpoint_v1_sharded": ["model.ckpt", "model.ckpt-00001-of-00002", "."],
}


@pytest.mark.parametrize(("sample", "name"), [(sample, name) for sample in NAMES for name in NAMES[sample]])
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "no graph"])
def test_a_checkpoint_is_known_by_any_of_its_names(
    tmp_path: Path, sample: str, name: str, graph: bool
) -> None:
    prefix = copied(tmp_path, sample)
    expected = sorted(read(prefix).variables)
    if not graph and not name.endswith(".meta"):
        beside(prefix, ".meta").unlink()
    assert prefix_of(prefix.parent / name) == prefix
    model = read(prefix.parent / name)
    assert sorted(model.variables) == expected
    latest = (f"model.ckpt taken, the latest that {prefix.parent / 'checkpoint'} names",)
    assert model.notes == (latest if name == "." else ())


def test_another_name_of_the_same_stem_is_another_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "model", [("x", np.float32([1]))])
    for name in ("model.ckpt", "model.data", "models", "model.ckpt/inside", "model.index/inside"):
        assert checkpoint.recognise(tmp_path / name) is None
    assert prefix_of(tmp_path / "model.index") == tmp_path / "model"


def test_a_prefix_that_ends_as_a_file_does_is_itself_first(tmp_path: Path) -> None:
    for number, name in enumerate(("model", "model.index")):
        save(tmp_path / name, [("x", np.float32([number]))])
    assert prefix_of(tmp_path / "model.index") == tmp_path / "model.index"
    assert prefix_of(tmp_path / "model.index.index") == tmp_path / "model.index"


def test_what_the_graph_says_beside_its_nodes_is_read(tmp_path: Path) -> None:
    """A signature, a table that is filled from a file, and the op that fills it."""
    save(tmp_path / "model.ckpt", [("w", np.float32([1]))])
    (tmp_path / "words.txt").write_text("a\nb\n")
    meta = meta_graph_pb2.MetaGraphDef()
    nodes = meta.graph_def.node
    file = nodes.add(name="file", op="Const")
    file.attr["dtype"].type = tf.string.as_datatype_enum
    file.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(b"/made/elsewhere/words.txt"))
    nodes.add(name="table", op="HashTableV2")
    nodes.add(name="fill", op="InitializeTableFromTextFileV2", input=["table", "file"])
    nodes.add(name="w", op="VariableV2")
    meta.collection_def["table_initializer"].node_list.value.append("fill")
    meta.signature_def["serve"].inputs["x"].name = "in:0"
    meta.signature_def["serve"].outputs["y"].name = "out:1"
    beside(tmp_path / "model.ckpt", ".meta").write_bytes(meta.SerializeToString())
    model = read(tmp_path / "model.ckpt.meta")
    assert model.path == tmp_path / "model.ckpt"
    assert model.signatures == {"serve": Signature({"x": "in:0"}, {"y": "out:1"})}
    assert model.assets == {"file:0": tmp_path / "words.txt"}
    assert model.initializers == ("fill",)
    assert model.checkpoint is not None
    assert model.checkpoint.prefix == tmp_path / "model.ckpt"
    assert model.checkpoint.meta.signature_def["serve"] == meta.signature_def["serve"]
    assert model.keys == {}


def test_a_graph_that_is_none_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "model.ckpt", [("w", np.float32([1]))])
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.node.add(name="w", op="Identity", input=["nowhere"])
    path = beside(tmp_path / "model.ckpt", ".meta")
    path.write_bytes(meta.SerializeToString())
    with pytest.raises(ReadError, match=f"^{re.escape(str(path))}: .*nowhere"):
        read(tmp_path / "model.ckpt")


@pytest.mark.parametrize("sample", [SMALL, "1.15.5-checkpoint_v1_sharded"])
def test_a_folder_of_the_prefix_name_does_not_hide_the_checkpoint(tmp_path: Path, sample: str) -> None:
    prefix = copied(tmp_path, sample)
    shutil.copytree(fixture("1.15.5-gru_bi").folder, prefix)
    expected = {key: value.read() for key, value in read(fixture(sample).prefix).variables.items()}
    found = read(prefix).variables
    assert sorted(found) == sorted(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key].read(), value, strict=True)


@pytest.mark.parametrize("sample", [SMALL, "1.15.5-checkpoint_v1"])
def test_a_copied_folder_means_its_own_files(tmp_path: Path, sample: str) -> None:
    prefix = copied(tmp_path, sample)
    state = prefix.parent / "checkpoint"
    state.write_text(f'model_checkpoint_path: "{prefix}"\n')
    other = shutil.copytree(prefix.parent, tmp_path / "copy")
    assert prefix_of(other) == other / "model.ckpt"
    for path in other.glob("model.ckpt*"):
        path.unlink()
    with pytest.raises(ReadError, match="expected the latest in its own folder, found"):
        checkpoint.recognise(other)


def test_the_latest_of_several_is_taken_by_its_relative_path(tmp_path: Path) -> None:
    folder = copied(tmp_path).parent
    (folder / "kept").mkdir()
    for path in fixture("1.15.5-gru_bi").folder.glob("model.ckpt*"):
        for other in (folder / "kept", folder):  # a checkpoint of that name lies beside the file too
            shutil.copy(path, other / path.name.replace("model.ckpt", "model.ckpt-200"))
    lines = ['model_checkpoint_path: "kept/model.ckpt-200"', 'all_model_checkpoint_paths: "model.ckpt"']
    (folder / "checkpoint").write_text("\n".join(lines))
    model = read(folder)
    assert model.path == folder / "kept" / "model.ckpt-200"
    assert model.notes == (f"model.ckpt-200 taken, the latest that {folder / 'checkpoint'} names",)


def test_a_folder_without_a_list_must_hold_one_checkpoint(tmp_path: Path) -> None:
    folder = copied(tmp_path).parent
    (folder / "checkpoint").unlink()
    assert read(folder).notes == (f"model.ckpt taken, the only checkpoint in {folder}",)
    shutil.copy(folder / "model.ckpt.index", folder / "model-2.index")
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    expected = "expected one, or a file 'checkpoint' that names the latest, found model-2, model.ckpt"
    assert line == f"{folder}: checkpoints: {expected}; give one of them"


def test_two_models_under_one_name_are_a_choice(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    shutil.copytree(fixture("1.15.5-saved_model_tags").prefix, prefix)
    [line] = refused(tmp_path, prefix, tmp_path / "out", code=1)
    found = "a TensorFlow 1 checkpoint and a TensorFlow SavedModel; give the file of one of them"
    assert line == f"{prefix}: source: expected one model, found {found}"
    assert read(prefix.parent / "model.ckpt.index").kind == checkpoint.KIND
    assert read(prefix / "saved_model.pb").kind == "TensorFlow SavedModel"


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: None, "found no such file or folder; check the path"),
        (lambda path: path.mkdir(), "found an empty folder"),
        (lambda path: path.write_text("text"), "found a text file"),
    ],
    ids=["nothing", "empty folder", "text"],
)
def test_what_is_no_source_is_refused(tmp_path: Path, make: Damage, found: str) -> None:
    path = tmp_path / "thing"
    make(path)
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    kinds = "a TensorFlow 1 checkpoint, a TensorFlow SavedModel, a frozen graph, a Keras HDF5 file, "
    kinds += "a Keras archive or a file of arrays"
    assert line == f"{path}: source: expected {kinds}, {found}"


CHECKPOINTS = [sample for sample in FIXTURES if sample.prefix.name == "model.ckpt"]


def is_first(sample: Fixture) -> bool:
    """Whether it is in shards or in another form, of any version, or one that the first tier converts."""
    forms = ("checkpoint_", "partitioned", "params_")
    return sample.folder.name.startswith(forms) or sample.is_first(sample.form)


@tiers.samples(CHECKPOINTS, is_first)
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


def make_other(prefix: Path) -> None:
    beside(prefix, DATA).rename(prefix)
    beside(prefix, ".index").unlink()


INDEX = ": index: expected readable bytes that match their checksum, found "
BLOB = ": tensor cudnn_rnn_tanh/opaque_kernel: expected readable bytes that match their checksum, found "
LAST = (
    ": tensor cudnn_rnn_tanh/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/basic_rnn_cell/kernel: "
    "expected readable bytes that match their checksum, found "
)
NAME = f"model.ckpt{DATA}"
META = ".meta: file: expected a MetaGraphDef, found a damaged or incomplete one"

#: What is broken, and how the message goes on after the checkpoint's path.
BROKEN: dict[str, tuple[Damage, str]] = {
    "no index": (remove(".index"), ": checkpoint: expected model.ckpt.index, found no such file"),
    "no data": (remove(DATA), ": checkpoint: expected model.ckpt.data-*, found no such file"),
    "no V1 either": (
        make_other,
        ": checkpoint: expected model.ckpt.index, found the file model.ckpt, which is no checkpoint",
    ),
    "other shard": (rename_shard, BLOB + f"no file {NAME}"),
    "index empty": (keep(".index", 0), INDEX),
    "index cut": (keep(".index", 100), INDEX),
    "index cut by one": (keep(".index", -1), INDEX),
    "index flipped": (flip(".index", 5), INDEX),
    "index of text": (write(".index", b"text " * 99), INDEX),
    "data empty": (keep(DATA, 0), BLOB + f"{NAME} of 0 bytes where 528 are needed"),
    "data cut": (keep(DATA, 100), BLOB + f"{NAME} of 100 bytes where 528 are needed"),
    "data cut by one": (keep(DATA, -1), LAST + f"{NAME} of 1007 bytes where 1008 are needed"),
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


def test_a_checkpoint_without_its_graph_has_its_weights(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    expected = read(prefix)
    beside(prefix, ".meta").unlink()
    model = read(prefix)
    assert model.graph is None
    assert model.kind == "TensorFlow checkpoint without a graph"
    assert not model.signatures
    assert sorted(model.variables) == sorted(expected.variables)


@pytest.mark.first("graph.pb")
@pytest.mark.parametrize("name", ["graph.pbtxt", "graph.pb", "other.meta"])
def test_a_checkpoint_takes_its_graph_from_a_file(tmp_path: Path, name: str) -> None:
    """Of `tf.train.write_graph`, text or binary, or of another checkpoint: with TensorFlow's answers."""
    sample = fixture("1.15.5-lstm_bi_2l_states")
    prefix = shutil.copytree(sample.folder, tmp_path / "source") / "model.ckpt"
    path = prefix.with_name(name)
    meta = meta_graph_pb2.MetaGraphDef.FromString(beside(prefix, ".meta").read_bytes())
    beside(prefix, ".meta").rename(prefix.with_name("other.meta"))
    prefix.with_name("graph.pb").write_bytes(meta.graph_def.SerializeToString())
    prefix.with_name("graph.pbtxt").write_text(text_format.MessageToString(meta.graph_def))
    hint = f"model.ckpt has no .meta, graph.pbtxt lies beside it: for the whole model, --architecture {path}"
    assert (hint in read(prefix).notes) == (name == "graph.pbtxt")
    report = cudnn_convert.convert(prefix, tmp_path / "out", format="onnx", architecture=path)
    assert report.kind == checkpoint.KIND
    assert report.verification is not None
    assert report.verification.passed
    job = artifacts.job(tmp_path / "out", "onnx", sample.folder / "golden.npz", tmp_path / "answers.npz")
    artifacts.answer([job])
    artifacts.agree(sample, report, tmp_path / "answers.npz", bound=1e-5)


@pytest.mark.slow("cudnn_convert/read", "cudnn_convert/verification")
def test_a_graph_that_no_saver_has_touched(tmp_path: Path) -> None:
    """Without a Saver's ops, keys are the names of variables, and those of contrib's layers are known."""
    sample = fixture("1.15.5-gru_bi")
    prefix = shutil.copytree(sample.folder, tmp_path / "source") / "model.ckpt"
    graph = meta_graph_pb2.MetaGraphDef.FromString(beside(prefix, ".meta").read_bytes()).graph_def
    kept = [node for node in graph.node if not node.name.startswith("save/")]
    assert len(kept) < len(graph.node)
    beside(prefix, ".meta").unlink()
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_pb2.GraphDef(node=kept, versions=graph.versions).SerializeToString())
    model = checkpoint.with_graph(read(prefix), path)
    expected = read(sample.prefix)
    scopes = [{layer.scope for layer in each.canonical} for each in (model, expected)]
    assert scopes[0] == scopes[1]
    report = cudnn_convert.convert(prefix, tmp_path / "out", architecture=path)
    assert report.verification is not None
    assert report.verification.passed


def test_a_graph_for_what_has_one(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    refusal = "--architecture: expected weights of Keras, or a checkpoint without .meta, found TensorFlow 1 "
    [line] = refused(tmp_path, prefix, tmp_path / "out", "--architecture", beside(prefix, ".meta"), code=2)
    assert line.startswith(refusal)
    beside(prefix, ".meta").rename(tmp_path / "cut.meta")
    (tmp_path / "cut.meta").write_bytes((tmp_path / "cut.meta").read_bytes()[:-3])
    flags = ("--architecture", tmp_path / "cut.meta")
    [line] = refused(tmp_path, prefix, tmp_path / "out", *flags, code=1)
    assert line.startswith(f"{tmp_path / 'cut.meta'}: file: expected a MetaGraphDef")


def test_a_step_without_its_graph_is_told_of_another_steps(tmp_path: Path) -> None:
    """What it is told is the command that gives it the graph of the step before it."""
    prefix = copied(tmp_path)
    steps = {number: prefix.with_name(f"model a-{number}") for number in (90, 100, 200, 300)}
    for number, step in steps.items():
        for suffix in (".index", DATA, *([".meta"] if number != 200 else [])):
            shutil.copy(beside(prefix, suffix), beside(step, suffix))
    [note] = read(steps[200]).notes
    begin, _, words = note.partition(": for the whole model, ")
    assert begin == "model a-200 has no .meta, model a-100.meta lies beside it"
    subprocess.run(shlex.split(words), check=True)
    model = read(steps[200])
    assert (model.kind, model.notes) == (checkpoint.KIND, ())
    beside(steps[90], ".meta").unlink()
    beside(steps[100], ".meta").unlink()
    beside(steps[200], ".meta").unlink()
    assert "model a-300.meta lies beside it" in read(steps[200]).notes[0]
    beside(steps[300], ".meta").unlink()
    assert not read(steps[200]).notes  # the .meta of model.ckpt is of no step


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", ["checkpoint_v1", "checkpoint_v1_sharded"])
def test_a_damaged_v1_file_is_a_read_error(tmp_path: Path, name: str, place: float) -> None:
    prefix = copied(tmp_path, f"1.15.5-{name}")
    path = prefix if prefix.is_file() else beside(prefix, "-00000-of-00002")
    held = bytearray(path.read_bytes())
    held[int(place * len(held))] ^= 0xFF
    path.write_bytes(held)
    [line] = refused(tmp_path, prefix, tmp_path / "out", code=1)
    assert line.startswith(f"{prefix}: ")
    assert ": expected readable bytes that match their checksum, found " in line


def parts(name: str) -> dict[str, np.ndarray]:
    model = read(fixture("1.15.5-partitioned").prefix)
    return {key: found.read() for key, found in model.variables.items() if key.startswith(f"{name}/part_")}


@pytest.mark.parametrize(
    ("name", "count", "axis", "shape"), [("embedding", 3, 0, (11, 4)), ("head", 2, 1, (6, 5))]
)
def test_the_parts_of_a_variable_make_the_whole(
    name: str, count: int, axis: int, shape: tuple[int, int]
) -> None:
    whole = tf.train.load_checkpoint(str(fixture("1.15.5-partitioned").prefix)).get_tensor(name)
    assert whole.shape == shape
    found = parts(name)
    assert sorted(found) == [f"{name}/part_{number}" for number in range(count)]
    np.testing.assert_array_equal(np.concatenate([found[key] for key in sorted(found)], axis), whole)


def test_the_graph_alone_tells_the_parts_too(tmp_path: Path) -> None:
    prefix = copied(tmp_path, "1.15.5-partitioned")
    meta = meta_graph_pb2.MetaGraphDef.FromString(beside(prefix, ".meta").read_bytes())
    del meta.collection_def["variables"]
    beside(prefix, ".meta").write_bytes(meta.SerializeToString())
    found = read(prefix).variables
    for name in ("embedding", "head"):
        for key, value in parts(name).items():
            assert (found[key].shape, found[key].dtype) == (value.shape, value.dtype)
            np.testing.assert_array_equal(found[key].read(), value)


def test_a_variable_saved_under_another_key_is_found(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        one, two = (
            tf.compat.v1.get_variable(name, initializer=[value]) for name, value in (("a", 1.5), ("b", 2.5))
        )
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver({"first": one, "deep/second": two})
        saver.save(session, str(tmp_path / "model.ckpt"))
    model = read(tmp_path / "model.ckpt")
    assert sorted(model.variables) == ["a", "b", "deep/second", "first"]
    assert (model.variables["a"].read(), model.variables["b"].read()) == ([1.5], [2.5])
    assert model.keys == {"a": "first", "b": "deep/second"}


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
        ["opaque_kernel: expected 80 values for linear_input, 35 for skip_input, found 132 where the op"],
    ),
    "other layers": (
        "lstm_bi_2l_states",
        "lstm_uni_3l",
        ["opaque_kernel: expected 960 values for linear_input, 864 for skip_input, found 1240 where"],
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


@pytest.mark.parametrize("stride", some([3], 1))
def test_no_flipped_byte_of_the_index_changes_what_is_read(tmp_path: Path, stride: int) -> None:
    prefix = copied(tmp_path)
    path = beside(prefix, ".index")
    whole = path.read_bytes()

    def values() -> dict[str, bytes]:
        return {key: found.read().tobytes() for key, found in read(prefix).variables.items()}

    expected, damaged = values(), 0
    places = range(0, len(whole), stride)
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert values() == expected, f"byte {place}"
        except ReadError:
            damaged += 1
    assert damaged > len(places) // 2


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


# The file `checkpoint`: TensorFlow, which writes and reads it, is the judge.

STATE_NAMES = [
    "model.ckpt-7",
    "/made/elsewhere/model.ckpt",
    "kept/grün",
    'a "quoted" \\ name',
    "two\nlines",
    "tab\t\x7f",
]


@pytest.mark.parametrize("name", STATE_NAMES)
def test_the_latest_is_the_one_that_tensorflow_names(tmp_path: Path, name: str) -> None:
    older = [str(tmp_path / "older"), str(tmp_path / name)]
    tf.compat.v1.train.update_checkpoint_state(
        str(tmp_path), str(tmp_path / name), older, all_model_checkpoint_timestamps=[1.5, 2.5]
    )
    named = latest(tmp_path / "checkpoint")
    assert named is not None
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert str(tmp_path / named) == state.model_checkpoint_path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("held", "name"),
    [
        (b'# by hand\nlater: 3 model_checkpoint_path: "a" "b"', "ab"),
        (rb"model_checkpoint_path: 'a\x41\102'", "aAB"),
        (b"", None),
        (b'all_model_checkpoint_paths: "a"', None),
        (b'model_checkpoint_path: ""', None),
        (b"model_checkpoint_path: 7", None),
        (b'model_checkpoint_path: "a', None),
        (rb'model_checkpoint_path: "\xff"', None),
        (b"\xff\xfe", None),
        (b"<html>", None),
        (b"{" * 10_000, None),
    ],
)
def test_a_file_by_anybody_else(tmp_path: Path, held: bytes, name: str | None) -> None:
    (tmp_path / "checkpoint").write_bytes(held)
    assert latest(tmp_path / "checkpoint") == name
