"""Sessions: variables with values from files, and variables that become constants."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.command_line import refused
from support.graphs import BLOB, drawing, lstm, ops, placeholder, resource, saved, v1, variable
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import session
from cudnn_convert.graph.graph import Graph
from cudnn_convert.model import Array, InMemory, Mode

# Sessions whose variables get their values from files.


@pytest.mark.parametrize("together", [1, 40, 1 << 24], ids=["alone", "two in a run", "all in a run"])
def test_every_variable_has_its_value(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(session, "_TOGETHER", together)
    random = np.random.default_rng(5)
    values = {f"v{k}": random.normal(size=(2, k + 2)).astype(np.float32) for k in range(3)}
    with tf.Graph().as_default() as graph:
        for k, (name, value) in enumerate(values.items()):
            v1.get_variable(name, value.shape, use_resource=k != 1)
        reads = [variable.value().name for variable in v1.global_variables()]
    stored = {name: InMemory(value) for name, value in values.items()}
    with session.session(graph.as_graph_def(), stored) as running:
        seen = running.run(reads)
    for value, expected in zip(seen, values.values(), strict=True):
        np.testing.assert_array_equal(value, expected)


# Lookup tables: filled in the judge and in the artifact, or refused with the way out.

WORDS = ["one", "two", "three", "four"]
EMBEDDING = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
Fill = Callable[[Any], Any]


def table(name: str = "table", **attributes: Any) -> Any:
    return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, name=name, **attributes)


def from_constants(made: Any, words: list[str] = WORDS, name: str = "fill") -> Any:
    numbers = tf.constant(list(range(len(words))), tf.int64, name=f"{name}_numbers")
    keys = tf.constant(words, name=f"{name}_words")
    return tf.raw_ops.InitializeTableV2(table_handle=made, keys=keys, values=numbers, name=name)


def from_file(made: Any, path: str = "somewhere/else/words.txt") -> Any:
    return tf.raw_ops.InitializeTableFromTextFileV2(
        table_handle=made, filename=tf.constant(path, name="file"), key_index=-2, value_index=-1, name="fill"
    )


def imported(made: Any) -> Any:
    return tf.raw_ops.LookupTableImportV2(
        table_handle=made, keys=tf.constant(WORDS), values=tf.constant([3, 2, 1, 0], tf.int64), name="fill"
    )


def drawn(*fills: Fill, shared_name: str = "") -> tf.Graph:
    """Words -> table -> embedding -> recurrence -> `scores`."""
    with drawing() as graph:
        words = v1.placeholder(tf.string, [None, None], "words")
        made = table(shared_name=shared_name)
        default = tf.constant(4, tf.int64)
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=made, keys=words, default_value=default, name="lookup"
        )
        embedded = tf.gather(tf.identity(variable("embedding", EMBEDDING.shape)), found)
        tf.identity(lstm(embedded, variable("blob", BLOB.shape)).output, name="scores")
        for fill in fills:
            fill(made)
    return graph


def source(folder: Path, *fills: Fill, shared_name: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    return saved(folder, drawn(*fills, shared_name=shared_name), {"blob": BLOB, "embedding": EMBEDDING})


def answer(out: Path, words: list[list[str]]) -> np.ndarray:
    loaded = tf.saved_model.load(str(out))
    return loaded.signatures["serving_default"](words=tf.constant(words))["scores"].numpy()


def with_session(out: Path, words: list[list[str]]) -> np.ndarray:
    with tf.Graph().as_default(), v1.Session() as session:
        v1.saved_model.loader.load(session, ["serve"], str(out))
        return session.run("scores:0", {"words:0": words})


@pytest.mark.first("file")
@pytest.mark.parametrize(
    ("fill", "order"),
    [(from_constants, [0, 1, 2, 3]), (from_file, [0, 1, 2, 3]), (imported, [3, 2, 1, 0])],
    ids=["constants", "file", "import"],
)
def test_a_table_is_filled_by_both_loaders(tmp_path: Path, fill: Fill, order: list[int]) -> None:
    prefix = source(tmp_path / "source", fill)
    (tmp_path / "source" / "words.txt").write_text("\n".join(WORDS))
    report = cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])
    assert report.verification is not None
    assert report.verification.passed
    # The same graph on ids, without a table.
    ids = cudnn_convert.convert(prefix, tmp_path / "ids", outputs=["scores"], inputs=["ids=lookup[?,?]"])
    assert ids.inputs == {"ids": "lookup:0"}
    bare = tf.saved_model.load(str(tmp_path / "ids")).signatures["serving_default"]
    words, numbers = [["one", "two", "none"], ["three", "four", "one"]], [[0, 1, 4], [2, 3, 0]]
    known = [[order[k] if k < 4 else k for k in row] for row in numbers]
    expected = bare(ids=tf.constant(known, tf.int64))["scores"].numpy()
    assert np.ptp(expected) > 0.01
    for run in (answer, with_session):
        np.testing.assert_array_equal(run(tmp_path / "out", words), expected)


def test_the_file_goes_into_the_assets(tmp_path: Path) -> None:
    prefix = source(tmp_path / "source", from_file)
    words = tmp_path / "source" / "words.txt"
    words.write_text("\n".join(WORDS))
    cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])
    shutil.rmtree(tmp_path / "source")
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    assert (moved / "assets" / "words.txt").read_text().split() == WORDS
    [meta] = saved_model_pb2.SavedModel.FromString((moved / "saved_model.pb").read_bytes()).meta_graphs
    [listed] = meta.asset_file_def
    assert (listed.tensor_info.name, listed.filename) == ("file:0", "words.txt")
    assert answer(moved, [["two"]]).shape == (1, 1, 2)


def test_a_table_that_the_outputs_do_not_need_stays_behind(tmp_path: Path) -> None:
    def another(_: Any) -> Any:
        return from_constants(table("other"), ["five"], "fill_other")

    prefix = source(tmp_path / "source", from_constants, another)
    cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])
    [meta] = saved_model_pb2.SavedModel.FromString(
        (tmp_path / "out" / "saved_model.pb").read_bytes()
    ).meta_graphs
    names = {node.name for node in meta.graph_def.node}
    assert {"table", "fill"} <= names
    assert not {"other", "fill_other"} & names


def test_a_table_of_a_shared_name_is_filled_through_its_twin(tmp_path: Path) -> None:
    def twin(_: Any) -> Any:
        return from_constants(table("twin", shared_name="words"))

    prefix = source(tmp_path / "source", twin, shared_name="words")
    cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])
    assert not np.array_equal(answer(tmp_path / "out", [["one"]]), answer(tmp_path / "out", [["none"]]))


def restored(made: Any) -> Any:
    """As a saver fills a table from a checkpoint."""
    values = tf.raw_ops.RestoreV2(
        prefix="model", tensor_names=["k", "v"], shape_and_slices=["", ""], dtypes=[tf.string, tf.int64]
    )
    return tf.raw_ops.LookupTableImportV2(table_handle=made, keys=values[0], values=values[1])


def fed(made: Any) -> Any:
    numbers = tf.constant([0], tf.int64)
    keys = v1.placeholder(tf.string, [1], "keys")
    return tf.raw_ops.InitializeTableV2(table_handle=made, keys=keys, values=numbers)


def again(made: Any) -> Any:
    return from_constants(made, WORDS[::-1], "again")


CURE = "; cut the graph behind its lookup with --inputs lookup:0"
ONE = "expected one op that fills it from constants or a file"
#: What fills a table, and why that does not do.
REFUSED: dict[str, tuple[list[Fill], str]] = {
    "nothing": ([], f"{ONE}, found none"),
    "a saver": ([restored], f"{ONE}, found none"),
    "the program": ([fed], f"{ONE}, found none"),
    "one of two": ([from_constants, again], f"{ONE}, found none"),
    "a file elsewhere": (
        [from_file],
        "expected its file among the source's assets or beside the source, found none for file:0",
    ),
}


@pytest.mark.parametrize(("fills", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_be_filled_is_refused(tmp_path: Path, fills: list[Fill], reason: str) -> None:
    prefix = source(tmp_path / "source", *fills)
    for trust in ([], ["--trust"]):
        [line] = refused(tmp_path, prefix, tmp_path / "out", "--outputs", "scores", *trust, code=1)
        assert line == f"{prefix}: table table: {reason}{CURE}"


def test_no_path_of_the_graph_is_followed(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(WORDS))
    for path in (str(tmp_path / "words.txt"), "../words.txt"):
        prefix = source(tmp_path / "source", lambda made, path=path: from_file(made, path))
        with pytest.raises(UnsupportedModelError, match="beside the source, found none for file:0"):
            cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])


@pytest.mark.first("checkpoint")
@pytest.mark.parametrize("form", ["onnx", "frozen", "checkpoint"])
def test_a_format_that_cannot_fill_a_table(tmp_path: Path, form: str) -> None:
    prefix = source(tmp_path / "source", from_constants)
    command = [prefix, tmp_path / "out", "--outputs", "scores", "--format", form]
    [line] = refused(tmp_path, *command, code=1)
    what = f"expected no table in the format {form}, which cannot fill it, found one"
    assert line == f"{prefix}: table table: {what}{CURE}"
    report = cudnn_convert.convert(
        prefix, tmp_path / "out", format=form, outputs=["scores"], inputs=["ids=lookup[?,?]"]
    )
    assert report.inputs == {"ids": "lookup:0"}


# Variables that become constants, and what a GraphDef has room for.

#: 2 GiB less one MiB for all that is no weight.
MOST = 2**31 - 2**20


class UnreadError(Exception):
    pass


class Huge:
    """A tensor that is too much to hold, and says so when it is read."""

    dtype = np.dtype(np.float32)

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def read(self) -> Array:
        raise UnreadError


def of_one_variable(shape: tuple[int, ...]) -> Any:
    with tf.Graph().as_default() as graph:
        tf.identity(variable("w", shape), name="y")
    return graph.as_graph_def()


def test_weights_that_just_fit_are_read() -> None:
    shape = (2, MOST // 8)
    with pytest.raises(UnreadError):
        session.freeze_variables(Graph(of_one_variable(shape)), ["y:0"], variables={"w": Huge(*shape)})


def test_more_weights_than_fit_are_refused_unread() -> None:
    shape = (2, MOST // 8 + 1)
    with pytest.raises(UnsupportedModelError) as refused:
        session.freeze_variables(Graph(of_one_variable(shape)), ["y:0"], variables={"w": Huge(*shape)})
    assert refused.value.reasons == (
        f"expected under 2 GiB of weights, found {MOST + 8} bytes; choose --format savedmodel",
    )


@pytest.mark.parametrize("make", [variable, resource], ids=["reference", "resource"])
def test_a_variable_is_a_constant_of_its_value_in_a_graph_of_its_version(make: Any) -> None:
    value = np.array([[1.5, -2], [0.25, 8]], np.float32)
    with tf.Graph().as_default() as graph:
        held = make("w", value.shape)
        read = tf.raw_ops.ReadVariableOp(resource=held, dtype=tf.float32) if make is resource else held
        tf.matmul(placeholder("x", [None, 2]), read, name="y")
    given = graph.as_graph_def()
    given.versions.producer, given.versions.min_consumer = 27, 12
    made = session.freeze_variables(Graph(given), ["y:0"], variables={"w": InMemory(value)})
    assert not {"VariableV2", "VarHandleOp", "ReadVariableOp"} & {*ops(made).values()}
    assert ops(made)["w"] == "Const"
    np.testing.assert_array_equal(
        tf.make_ndarray(next(node for node in made.node if node.name == "w").attr["value"].tensor), value
    )
    assert (made.versions.producer, made.versions.min_consumer) == (27, 12)


def test_without_variables_a_graph_stays_what_it_is() -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(placeholder("x"), name="y")
        tf.constant(1.0, name="beside")
    given = Graph(graph.as_graph_def())
    assert session.freeze_variables(given, ["y:0"], variables={}) is given


def test_an_empty_constant_in_the_frame_of_the_node_stands_for_a_blob() -> None:
    case = Case(Mode.GRU, dtype="float64")
    graph, signature = case.graph()
    graph.node.add(name="rnn/parameters", op="NoOp")  # the name is taken
    made = session.without_parameters(graph, [case.recurrence()], signature.outputs.values())
    nodes = {node.name: node for node in made.node}
    assert "rnn/blob" not in nodes
    assert nodes["rnn"].input[3] == "rnn/parameters_1"
    empty = nodes["rnn/parameters_1"]
    value = tf.make_ndarray(empty.attr["value"].tensor)
    assert (value.shape, value.dtype) == ((0,), np.float64)
    assert [*empty.input] == ["^x"]


def test_a_variable_that_is_itself_a_predicate_is_frozen() -> None:
    """As in `tf.cond(variable, ...)`: TensorFlow's own freezing fails there."""
    with drawing() as graph:
        flag = variable("flag", [], tf.bool)
        x = placeholder("x", [None, 3])
        scale = tf.identity(variable("scale", [3]), "scale/read")
        taken, left = v1.cond(flag, lambda: (x * scale, x), lambda: (x, x * 2.0))
        tf.add(taken, left, "y")
    scale_value = np.array([0.5, 2.0, -1.5], np.float32)
    fed = np.array([[1.0, 2.0, 3.0]], np.float32)
    for value, expected in ((True, fed * scale_value + fed), (False, fed * 3.0)):
        held = {"flag": InMemory(np.array(value)), "scale": InMemory(scale_value)}
        frozen = session.freeze_variables(Graph(graph.as_graph_def()), ["y:0"], variables=held)
        assert not any(node.op.startswith(("Ref", "Variable")) for node in frozen.node)
        with session.session(frozen, {}) as running:
            np.testing.assert_array_equal(running.run("y:0", {"x:0": fed}), expected)
