"""Each private function of TensorFlow that is called: an upgrade fails here first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from cudnn_convert.private import tf_private


def test_ops_are_known_by_name() -> None:
    assert [argument.name for argument in tf_private.find_op("CudnnRNNV3").input_arg][:2] == [
        "input",
        "input_h",
    ]
    assert tf_private.find_op("NoSuchOp") is None


def test_kernels_say_their_device() -> None:
    assert "CPU" in {kernel.device_type for kernel in tf_private.list_kernels("MatMul")}
    assert "CPU" not in {kernel.device_type for kernel in tf_private.list_kernels("CudnnRNNV3")}


def test_attributes_with_default_values_go() -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    node = meta.graph_def.node.add(name="product", op="MatMul")
    node.attr["transpose_a"].b, node.attr["transpose_b"].b = False, True
    tf_private.strip_defaults(meta)
    assert list(node.attr) == ["transpose_b"]


def test_grappler_inlines_a_function() -> None:
    twice = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([], tf.float32))
    with tf.Graph().as_default() as graph:
        tf.identity(twice(tf.compat.v1.placeholder(tf.float32, [])), "answer")
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.append("answer")
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    config.graph_options.rewrite_options.optimizers.append("function")
    with tf.Graph().as_default():
        result = tf_private.optimize_graph(config, meta)
    assert isinstance(result, graph_pb2.GraphDef)
    assert "Mul" in {node.op for node in result.node}


def test_a_registered_function_runs_in_a_graph() -> None:
    def double(x: Any) -> Any:
        return x * np.float32(2)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        token = tf_private.register_function(double)
        x = tf.constant([1.0, 3.0])
        [answer] = tf.raw_ops.PyFunc(input=[x], token=token, Tout=[tf.float32])
        assert session.run(answer).tolist() == [2.0, 6.0]


def test_eager_mode_holds_where_a_graph_stands_open() -> None:
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        with tf_private.eager_mode():
            assert float(tf.constant(1.5)) == 1.5


def test_a_tensor_shares_the_memory_of_an_array() -> None:
    array = np.arange(64, dtype=np.float32)
    tensor = tf_private.share_memory(array, tf.float32)
    assert tensor.dtype == tf.float32
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_devices_have_names_types_and_descriptions() -> None:
    first = tf_private.list_devices()[0]
    assert (first.device_type, first.name.rpartition("/")[2]) == ("CPU", "device:CPU:0")
    assert isinstance(first.physical_device_desc, str)


def test_a_fingerprint_is_written(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path))
    (tmp_path / "fingerprint.pb").unlink()
    tf_private.write_fingerprint(str(tmp_path))
    assert (tmp_path / "fingerprint.pb").stat().st_size


def test_a_slice_is_updated() -> None:
    values = tf.function(tf_private.dynamic_update_slice, jit_compile=True)(
        tf.zeros([3, 2]), tf.constant([[5.0, 7.0]]), tf.constant([1, 0])
    )
    assert values.numpy().tolist() == [[0, 0], [5, 7], [0, 0]]


def test_savers_save_what_is_no_variable(tmp_path: Path) -> None:
    """A saveable object's tensors are saved under their keys, and it is asked to restore them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("variable", initializer=3.0)
        spec = tf_private.SaveSpec(2 * variable, "", "twice")

        class Half(tf_private.SaveableObject):  # type: ignore[misc, name-defined]
            def restore(self, tensors: Any, shapes: Any) -> Any:
                return variable.assign(tensors[0] / 2)

        saver = tf.compat.v1.train.Saver([Half(variable, [spec], "half")])
        session.run(variable.initializer)
        prefix = saver.save(session, str(tmp_path / "saved"))
        session.run(variable.assign(0.0))
        saver.restore(session, prefix)
        assert session.run(variable) == 3.0
    assert tf.train.list_variables(prefix) == [("twice", [])]


def test_the_functions_of_a_loop_run_on_one_thread() -> None:
    """By an attribute of each; the loop stays an op."""
    with tf.Graph().as_default() as graph:
        done = tf.while_loop(lambda k: k < 3, lambda k: (k + 1,), (tf.constant(0),))
        tf_private.run_on_one_thread(done[0].op)
        tf_private.run_on_one_thread(tf.constant(1).op)  # no loop: nothing happens
    (loop,) = (node for node in graph.as_graph_def().node if node.op == "StatelessWhile")
    for name in ("cond", "body"):
        assert loop.attr[name].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"
    assert "_lower_using_switch_merge" not in loop.attr
    with tf.compat.v1.Session(graph=graph) as session:
        assert session.run(done[0]) == 3


def test_the_first_branch_runs_on_one_thread() -> None:
    """With the loop in it; the other branch runs as TensorFlow runs it."""
    with tf.Graph().as_default() as graph:
        rows = tf.compat.v1.placeholder(tf.int32, [])

        def count() -> Any:
            (done,) = tf.while_loop(lambda k: k < rows, lambda k: (k + 1,), (tf.constant(0),))
            tf_private.run_on_one_thread(done.op)
            return done

        counted = tf.cond(rows > 0, count, lambda: tf.constant(-1))
        tf_private.run_on_one_thread(counted.op)
    (branch,) = (node for node in graph.as_graph_def().node if node.op in {"If", "StatelessIf"})
    assert branch.attr["then_branch"].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"
    assert "_executor" not in branch.attr["else_branch"].func.attr
    assert "_lower_using_switch_merge" not in branch.attr
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        assert [int(session.run(counted, {rows: n})) for n in (3, 0)] == [3, -1]
