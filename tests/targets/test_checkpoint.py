"""The checkpoint writer and `--rename`, on graphs of a few nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, resource, variable
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.errors import UsageError
from cudnn_convert.model import SERVING, InMemory, Part, Signature
from cudnn_convert.targets import checkpoint as write_checkpoint

v1 = tf.compat.v1
KEYS = ("a/w", "a/b", "ab/w", "c")
W, B = np.array([0.25, -1.5], np.float32), np.array([3.125, 0.75], np.float32)


def graph(*, unused_function: bool = False) -> tf.Graph:
    """`y = x * w + b` of a reference and a resource; an attribute at its default stands in it."""
    with drawing() as made:
        x = v1.placeholder(tf.float32, [None, 2], "x")
        b = tf.raw_ops.ReadVariableOp(resource=resource("scope/b", [2]), dtype=tf.float32, name="b_read")
        y = tf.add(x * variable("scope/w", [2]), b, name="y")
        tf.matmul(y, y, transpose_b=True, name="product")
        if unused_function:
            tf.function(lambda z: z + 1).get_concrete_function(x).add_to_graph(made)
    return made


def written(prefix: Path, *, outputs: dict[str, str], renames: tuple[str, ...] = (), **options: bool) -> None:
    values = {"scope/w": InMemory(W), "scope/b": InMemory(B)}
    part = Part(SERVING, Signature({"x": "x:0"}, outputs))
    others = {"scope/w/Adam": InMemory(W[::-1].copy()), "step": InMemory(np.array(7, np.int64))}
    definition = graph(**options).as_graph_def()
    write_checkpoint.write(prefix, definition, [part], values, others=others, renames=renames)


def restored(prefix: Path, name: str) -> np.ndarray:
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(f"{prefix}.meta").restore(session, str(prefix))
        return np.asarray(session.run(name, {"x:0": np.array([[1.0, 2.0]], np.float32)}))


def test_restores_by_its_own_meta_graph(tmp_path: Path) -> None:
    written(tmp_path / "model.ckpt", outputs={"y": "y:0"})
    np.testing.assert_array_equal(restored(tmp_path / "model.ckpt", "y:0"), [[0.25 + 3.125, -3.0 + 0.75]])
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt"))
    assert set(reader.get_variable_to_shape_map()) == {"scope/w", "scope/b", "scope/w/Adam", "step"}
    np.testing.assert_array_equal(reader.get_tensor("scope/w/Adam"), W[::-1])


def test_a_saver_of_the_imported_variables_saves_the_same_keys(tmp_path: Path) -> None:
    written(tmp_path / "model.ckpt", outputs={"y": "y:0"}, renames=("scope/w=kernel",))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(str(tmp_path / "model.ckpt.meta"))
        saver = v1.train.Saver()
        saver.restore(session, str(tmp_path / "model.ckpt"))
        saver.save(session, str(tmp_path / "again"), write_meta_graph=False, write_state=False)
    found = tf.train.load_checkpoint(str(tmp_path / "again"))
    np.testing.assert_array_equal(found.get_tensor("kernel"), W)
    np.testing.assert_array_equal(found.get_tensor("scope/b"), B)


def test_the_meta_graph_holds_what_an_older_tensorflow_can_take(tmp_path: Path) -> None:
    written(tmp_path / "model.ckpt", outputs={"y": "y:0"}, unused_function=True)
    meta = meta_graph_pb2.MetaGraphDef()
    meta.ParseFromString((tmp_path / "model.ckpt.meta").read_bytes())
    assert meta.meta_info_def.stripped_default_attrs
    assert meta.graph_def.versions.producer <= 134
    assert not meta.graph_def.library.function
    (product,) = (node for node in meta.graph_def.node if node.name == "product")
    assert set(product.attr) == {"T", "transpose_b"}


def test_an_output_that_is_a_renamed_variable_keeps_its_name(tmp_path: Path) -> None:
    written(tmp_path / "model.ckpt", outputs={"w": "scope/w:0"}, renames=("scope=",))
    np.testing.assert_array_equal(restored(tmp_path / "model.ckpt", "scope/w:0"), W)
    with pytest.raises(UsageError, match="expected a free name for scope/b, found scope/w, an op"):
        written(tmp_path / "other.ckpt", outputs={"w": "scope/w:0"}, renames=("scope/w=v", "scope/b=scope/w"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], KEYS),
        (["a=z"], ("z/w", "z/b", "ab/w", "c")),
        (["a/w=x"], ("x", "a/b", "ab/w", "c")),
        (["a="], ("w", "b", "ab/w", "c")),
        (["c=s/c/"], ("a/w", "a/b", "ab/w", "s/c")),
        (["a=t", "ab=a", "t=ab"], ("ab/w", "ab/b", "a/w", "c")),
        (["a/w=a/t", "a/b=a/w", "a/t=a/b"], ("a/b", "a/w", "ab/w", "c")),
        (["a=a"], KEYS),
    ],
)
def test_keys_in_order(settings: list[str], expected: tuple[str, ...]) -> None:
    assert tuple(write_checkpoint.rename_keys(KEYS, settings).values()) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["b=x"], "expected OLD to be a key or a scope, found no b among a/b, a/w, ab/w, c"),
        (["a=x", "a=y"], "expected OLD to be a key or a scope, found no a among ab/w, c, x/b, x/w"),
        (["=x"], "expected OLD=NEW, found '=x'"),
        (["c"], "expected OLD=NEW, found 'c'"),
        (["a=ab"], "expected keys that differ, found ab/w for a/w and ab/w"),
        (["c=_c"], "expected the name of a variable for c, found '_c'"),
        (["c="], "expected the name of a variable for c, found ''"),
    ],
)
def test_keys_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        write_checkpoint.rename_keys(KEYS, settings)
    assert str(caught.value) == f"--rename: {message}"
