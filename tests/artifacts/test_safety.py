"""Artifacts of somebody else write and read no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.watched_file import Watched
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.keras.config.classes import Vouched
from cudnn_convert.model import SERVING, Part, Signature

v1 = tf.compat.v1
PARTS = [Part(SERVING, Signature({"x": "x:0"}, {"y": "y:0"}))]
FEED = {"x": np.array([1.0, 2.0], np.float32)}
CURE = "vouch for the file with --trust"
#: Makes an artifact in a folder, with an op that writes `target` where it is told to; gives its path.
Maker = Callable[[Path, Path | None], Path]


def write(target: Path | None, name: str = "write") -> list[Any]:
    """What is to be done before the artifact's own arithmetic: the canary, or nothing."""
    if target is None:
        return []
    return [tf.raw_ops.WriteFile(filename=str(target), contents="seen", name=name)]


def drawn(target: Path | None, *, restore: bool = False, init: bool = False) -> tuple[Any, Any, Any]:
    """In the current graph `y = x * w`; which of its parts writes, what restores and what initialises."""
    weight = v1.get_variable("w", initializer=np.float32(3), use_resource=True)
    x = v1.placeholder(tf.float32, [None], "x")
    with tf.control_dependencies(write(None if restore or init else target)):
        tf.multiply(x, weight, "y")
    saver = v1.train.Saver([weight])
    with tf.control_dependencies(write(target if init else None)):
        ready = tf.no_op("ready")
    return saver, ready, weight


def frozen(folder: Path, target: Path | None) -> Path:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        with tf.control_dependencies(write(target)):
            tf.multiply(x, 3.0, "y")
    path = folder / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def loop(folder: Path, target: Path | None) -> Path:
    """The body of a While of functions writes."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")

        def body(k: Any, y: Any) -> Any:
            with tf.control_dependencies(write(target)):
                return k + 1, y * 3.0

        tf.identity(tf.while_loop(lambda k, _: k < 1, body, [tf.constant(0), x])[1], "y")
    assert {"While", "StatelessWhile"} & {node.op for node in graph.as_graph_def().node}
    path = folder / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def checkpoint(folder: Path, target: Path | None, *, restore: bool = False) -> Path:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        saver, _, weight = drawn(target, restore=restore)
        session.run(weight.initializer)
        saver.save(session, str(folder / "model.ckpt"))
    if restore:
        meta = v1.MetaGraphDef.FromString((folder / "model.ckpt.meta").read_bytes())
        with graph.as_default():
            writing = write(target)
        added = graph.as_graph_def().node
        known = {node.name for node in meta.graph_def.node}
        meta.graph_def.node.extend(node for node in added if node.name not in known)
        restoring = next(n for n in meta.graph_def.node if n.name == meta.saver_def.restore_op_name)
        restoring.input.extend(f"^{op.name}" for op in writing)
        (folder / "model.ckpt.meta").write_bytes(meta.SerializeToString())
    return folder / "model.ckpt"


def checkpoint_restoring(folder: Path, target: Path | None) -> Path:
    return checkpoint(folder, target, restore=True)


def of_tensorflow_1(folder: Path, target: Path | None, *, init: bool = False) -> Path:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        _, ready, weight = drawn(target, init=init)
        session.run(weight.initializer)
        builder = v1.saved_model.Builder(str(folder / "saved"))
        infos = {
            name: v1.saved_model.build_tensor_info(graph.get_tensor_by_name(f"{name}:0")) for name in "xy"
        }
        signature = v1.saved_model.build_signature_def({"x": infos["x"]}, {"y": infos["y"]})
        builder.add_meta_graph_and_variables(session, ["serve"], {SERVING: signature}, main_op=ready)
        builder.save()
    return folder / "saved"


def initialising(folder: Path, target: Path | None) -> Path:
    return of_tensorflow_1(folder, target, init=True)


def of_tensorflow_2(folder: Path, target: Path | None) -> Path:
    module = tf.Module()
    module.w = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def serve(x: Any) -> Any:
        with tf.control_dependencies(write(target)):
            return {"y": x * module.w}

    tf.saved_model.save(module, str(folder / "saved"), signatures={SERVING: serve})
    return folder / "saved"


def with_a_method(folder: Path, target: Path | None) -> Path:
    """A function that its loader calls, for it has the name of a method: nothing of the model needs it."""
    module = tf.Module()
    module.w = tf.Variable(3.0)
    module.child = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def serve(x: Any) -> Any:
        return {"y": x * module.w}

    @tf.function(input_signature=[])
    def method() -> Any:
        with tf.control_dependencies(write(target)):
            return tf.constant(1)

    module.child.method = method
    tf.saved_model.save(module, str(folder / "saved"), signatures={SERVING: serve})
    if target is not None:
        path = folder / "saved" / "saved_model.pb"
        saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        for node in saved.meta_graphs[0].object_graph_def.nodes:
            for child in node.children:
                if child.local_name == "method":
                    child.local_name = "_maybe_initialize_trackable"
        path.write_bytes(saved.SerializeToString())
    return folder / "saved"


ARTIFACTS: dict[str, tuple[str, Maker]] = {
    "a frozen graph": ("frozen", frozen),
    "a loop": ("frozen", loop),
    "a checkpoint": ("checkpoint", checkpoint),
    "a checkpoint where it is restored": ("checkpoint", checkpoint_restoring),
    "a SavedModel of TensorFlow 1": ("savedmodel", of_tensorflow_1),
    "a SavedModel of TensorFlow 1 where it is loaded": ("savedmodel", initialising),
    "a SavedModel of TensorFlow 2": ("savedmodel", of_tensorflow_2),
    "a method of an object": ("savedmodel", with_a_method),
}


@pytest.fixture(params=ARTIFACTS.values(), ids=ARTIFACTS)
def artifact(request: pytest.FixtureRequest) -> tuple[str, Maker]:
    found: tuple[str, Maker] = request.param
    return found


def table() -> Any:
    return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)


def fill(made: Any, file: Any) -> Any:
    return tf.raw_ops.InitializeTableFromTextFileV2(
        table_handle=made, filename=file, key_index=-2, value_index=-1, name="fill"
    )


def filled(made: Any, file: Any) -> Any:
    """The size of a table that a file fills, as the model's `y` needs it."""
    with tf.control_dependencies([fill(made, file)]):
        return tf.cast(tf.raw_ops.LookupTableSizeV2(table_handle=made), tf.float32)


def saved(folder: Path, serve: Any, **objects: Any) -> Path:
    """A SavedModel of TensorFlow 2 whose signature gives `y = serve(x)`."""
    module = tf.Module()
    module.objects = objects
    wrapped = tf.function(lambda x: {"y": serve(x)}, autograph=False)
    signature = wrapped.get_concrete_function(tf.TensorSpec([None], name="x"))
    tf.saved_model.save(module, str(folder / "saved"), signatures={SERVING: signature})
    return folder / "saved"


def changed(path: Path, change: Callable[[Any], None]) -> Path:
    made = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    change(made.meta_graphs[0])
    (path / "saved_model.pb").write_bytes(made.SerializeToString())
    return path


def by_a_call(folder: Path, canary: Path) -> Path:
    """The path is the argument of the function that fills, as an asset's would be."""
    inner = tf.function(lambda file: filled(table(), file), autograph=False)
    return saved(folder, lambda x: x + inner(tf.constant(str(canary))))


def by_an_asset_too(folder: Path, canary: Path) -> Path:
    """The same function fills from an asset where the model is loaded, and from a path where it is called."""
    (folder / "words.txt").write_text("a\nb")
    inner = tf.function(filled, autograph=False)

    class Filled(tf.saved_model.experimental.TrackableResource):
        def __init__(self) -> None:
            super().__init__()
            self.file = tf.saved_model.Asset(str(folder / "words.txt"))

        def _create_resource(self) -> Any:
            return table()

        def _initialize(self) -> Any:
            return inner(self.resource_handle, self.file)

    held = Filled()
    return saved(folder, lambda x: x + inner(table(), tf.constant(str(canary))), held=held)


def by_a_loop(folder: Path, canary: Path) -> Path:
    """The path goes through a loop to the function that fills."""

    def serve(x: Any) -> Any:
        def body(k: Any, file: Any, y: Any) -> Any:
            return k + 1, file, y + filled(table(), file)

        loop = tf.while_loop(lambda k, *_: k < 1, body, [tf.constant(0), tf.constant(str(canary)), x])
        return loop[2]

    return saved(folder, serve)


def by_another_signature(folder: Path, canary: Path) -> Path:
    """What the loader gives as the signature is not what the graph beside it calls."""
    harmless = saved(folder, lambda x: x * 3)
    inside = saved_model_pb2.SavedModel.FromString((harmless / "saved_model.pb").read_bytes())
    (folder / "saved").rename(folder / "harmless")

    def change(meta: Any) -> None:
        kept = inside.meta_graphs[0]
        del meta.graph_def.node[:]
        meta.graph_def.node.extend(kept.graph_def.node)
        for function in kept.graph_def.library.function:
            function.signature.name = f"harmless_{function.signature.name}"
            for node in function.node_def:
                if node.attr["f"].func.name:
                    node.attr["f"].func.name = f"harmless_{node.attr['f'].func.name}"
            meta.graph_def.library.function.add().CopyFrom(function)
        for node in meta.graph_def.node:
            if node.attr["f"].func.name:
                node.attr["f"].func.name = f"harmless_{node.attr['f'].func.name}"
        meta.signature_def[SERVING].CopyFrom(kept.signature_def[SERVING])
        meta.saver_def.CopyFrom(kept.saver_def)

    return changed(saved(folder, lambda x: x + filled(table(), tf.constant(str(canary)))), change)


def by_a_path_that_is_not_fed(folder: Path, canary: Path) -> Path:
    """The loader gives the tensor of the path an asset where tables are filled, and nowhere else."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x, file = v1.placeholder(tf.float32, [None], "x"), tf.constant(str(canary), name="file")
        tf.add(x, filled(table(), file), "y")
        builder = v1.saved_model.Builder(str(folder / "saved"))
        infos = {
            name: v1.saved_model.build_tensor_info(graph.get_tensor_by_name(f"{name}:0")) for name in "xy"
        }
        signature = v1.saved_model.build_signature_def({"x": infos["x"]}, {"y": infos["y"]})
        main = graph.get_operation_by_name("fill")
        builder.add_meta_graph_and_variables(session, ["serve"], {SERVING: signature}, main_op=main)
        builder.save()
    (folder / "saved" / "assets").mkdir()
    (folder / "saved" / "assets" / "words.txt").write_text("a\nb")

    def change(meta: Any) -> None:
        meta.asset_file_def.add(filename="words.txt").tensor_info.name = "file:0"

    return changed(folder / "saved", change)


#: Makes an artifact that reads the file which it is given the path of, by filling a table.
READS: dict[str, Callable[[Path, Path], Path]] = {
    "a call": by_a_call,
    "a call, and of an asset": by_an_asset_too,
    "a loop": by_a_loop,
    "another signature": by_another_signature,
    "a path that is not fed": by_a_path_that_is_not_fed,
}


@pytest.mark.parametrize("make", READS.values(), ids=READS)
def test_it_reads_no_file(make: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    canary = Watched(tmp_path / "canary")
    path = make(tmp_path, canary.path)
    assert not canary.opened
    with pytest.raises(UnsupportedModelError) as caught:
        answer("savedmodel", path, Vouched())
    assert not canary.opened
    assert all("found InitializeTableFromTextFileV2" in reason for reason in caught.value.reasons)
    answer("savedmodel", path, Vouched(trust=True))
    assert canary.opened
    canary.stop()


def test_a_path_that_never_answers_does_not_hold_it_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsupportedModelError, match="found InitializeTableFromTextFileV2"):
        answer("savedmodel", by_a_call(tmp_path, tmp_path / "pipe"), Vouched())


def test_a_table_is_filled_from_an_asset(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb")
    kind = tf.lookup.TextFileInitializer(
        str(tmp_path / "words.txt"),
        *(tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER),
    )
    held = tf.lookup.StaticHashTable(kind, -1)
    made = saved(tmp_path, lambda x: x + tf.cast(held.lookup(tf.constant("b")), tf.float32), held=held)
    (tmp_path / "words.txt").unlink()
    np.testing.assert_array_equal(answer("savedmodel", made, Vouched()), [2, 3])


def test_an_answer_is_no_table_read_out(tmp_path: Path) -> None:
    def serve(x: Any) -> Any:
        exported = tf.raw_ops.LookupTableExportV2(table_handle=table(), Tkeys=tf.string, Tvalues=tf.int64)
        return x + tf.cast(tf.size(exported.keys), tf.float32)

    with pytest.raises(UnsupportedModelError, match="found LookupTableExportV2"):
        answer("savedmodel", saved(tmp_path, serve), Vouched())


def test_variables_are_read_from_its_own_checkpoint_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = checkpoint(tmp_path / "other", None)
    path = checkpoint(tmp_path, None)
    meta = v1.MetaGraphDef.FromString(Path(f"{path}.meta").read_bytes())
    for node in meta.graph_def.node:
        if node.op == "RestoreV2":
            node.input[0] = "other"
    made = tf.make_tensor_proto(str(other))
    node = meta.graph_def.node.add(name="other", op="Const")
    node.attr["value"].tensor.CopyFrom(made)
    node.attr["dtype"].type = made.dtype
    Path(f"{path}.meta").write_bytes(meta.SerializeToString())
    with pytest.raises(UnsupportedModelError, match="found RestoreV2"):
        answer("checkpoint", path, Vouched())
    np.testing.assert_array_equal(answer("checkpoint", path, Vouched(trust=True)), [3, 6])


def answer(form: str, path: Path, vouched: Vouched) -> Any:
    return runners.open_artifact(form, path, PARTS, vouched)(FEED)["y"]


def test_it_writes_no_file(artifact: tuple[str, Maker], tmp_path: Path) -> None:
    form, make = artifact
    target = tmp_path / "canary"
    path = make(tmp_path, target)
    target.unlink(missing_ok=True)  # what made the artifact may have run it
    with pytest.raises(UnsupportedModelError) as caught:
        answer(form, path, Vouched())
    (reason,) = caught.value.reasons
    assert reason.endswith(f"write: expected arithmetic only while verifying, found WriteFile; {CURE}")
    assert caught.value.path == str(path)
    assert not target.exists()
    if make is not with_a_method:  # which TensorFlow itself would trip over
        np.testing.assert_array_equal(answer(form, path, Vouched(trust=True)), [3, 6])
        assert target.read_text() == "seen"


def test_it_runs_where_it_only_computes(artifact: tuple[str, Maker], tmp_path: Path) -> None:
    form, make = artifact
    np.testing.assert_array_equal(answer(form, make(tmp_path, None), Vouched()), [3, 6])


def test_a_file_outside_of_its_assets_is_refused(tmp_path: Path) -> None:
    path = of_tensorflow_2(tmp_path, None)
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    asset = saved.meta_graphs[0].asset_file_def.add(filename="../../../etc/passwd")
    asset.tensor_info.name = "name:0"
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(ReadError) as caught:
        answer("savedmodel", path, Vouched())
    assert str(caught.value) == f"{path}: asset: expected a file in assets/, found '../../../etc/passwd'"
