"""The failures that docs/troubleshooting/ is about: each function runs in the folder of its files.

A user's process calls them (user.py), in which cudnn_convert cannot be imported.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import meta_graph_pb2

v1 = tf.compat.v1


def run(graph_def, fetch, fed=None, **options):
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=v1.ConfigProto(**options)) as session:
            return session.run(fetch, fed)


def frozen_graph():
    """Placed softly, and without the devices that it names: nothing helps."""
    graph_def = v1.GraphDef.FromString(Path("model.pb").read_bytes())
    for node in graph_def.node:
        node.device = ""
    run(graph_def, "logits:0", {"x:0": np.ones([5, 2, 4])}, allow_soft_placement=True)


def meta():
    return meta_graph_pb2.MetaGraphDef.FromString(Path("model.ckpt.meta").read_bytes())


def initialization():
    name = "cudnn_lstm/opaque_kernel/Assign"
    run(v1.graph_util.extract_sub_graph(meta().graph_def, [name]), f"{name}:0")


def cells():
    """The variables of CudnnCompatibleLSTMCells, outside of the layer's scope."""
    for direction in ("fw", "bw"):
        scope = f"stack_bidirectional_rnn/cell_0/bidirectional_rnn/{direction}/cudnn_compatible_lstm_cell"
        with v1.variable_scope(scope):
            v1.get_variable("kernel", [40, 96])
            v1.get_variable("bias", [96])


def restored(path):
    """The values of the cells, as a graph written by hand restores them."""
    with tf.Graph().as_default(), v1.Session() as session:
        cells()
        v1.train.Saver().restore(session, path)
        return session.run({found.op.name: found for found in v1.global_variables()})


def missing_keys():
    restored("./model.ckpt")


def missing_keys_of_a_blob_alone():
    restored("./blob/model.ckpt")


def found_keys():
    assert all(np.ptp(value) > 0 for value in restored("cells/model.ckpt").values())


def import_meta_graph():
    with tf.Graph().as_default():
        v1.train.import_meta_graph("model.ckpt.meta")


def another_graphs_saver():
    with tf.Graph().as_default():
        cells()
        v1.train.Saver()
        saver = v1.train.Saver()
    with tf.Graph().as_default(), v1.Session() as session:
        cells()
        saver.restore(session, "./model.ckpt")


def trailing_slash():
    restored("model.ckpt/")


def the_folder_alone():
    restored(".")


def contrib():
    tf.contrib.cudnn_rnn.CudnnLSTM(1, 24)


def load_in_keras_3():
    (path,) = [path for path in ("model.h5", "model.keras", "weights.h5") if Path(path).exists()]
    keras.models.load_model(path)


def load_archive_in_keras_3():
    keras.models.load_model("model.keras")


def load_in_tf_keras():
    (path,) = [path for path in ("model.h5", "model.keras") if Path(path).exists()]
    tf_keras.models.load_model(path)


def another_class_in_keras_3():
    keras.models.load_model("model.h5", custom_objects={"CuDNNLSTM": keras.layers.LSTM})


def predict_in_tf_keras():
    tf_keras.models.load_model("model.h5").predict_on_batch(np.ones([2, 5, 4], np.float32))


def weights_in_keras_3():
    layers = [keras.Input((None, 4)), keras.layers.LSTM(5, name="cu_dnnlstm"), keras.layers.Dense(3)]
    keras.Sequential(layers).load_weights("model.h5")


def another_gru():
    x = tf_keras.Input((None, 4), batch_size=3)
    y = tf_keras.layers.GRU(5, return_sequences=True, reset_after=False, name="first")(x)
    y = tf_keras.layers.GRU(3, reset_after=False, name="second")(y)
    tf_keras.Model(x, y).load_weights("model.h5")


def export_of_keras_3():
    call = tf.saved_model.load("saved_model").signatures["serving_default"]
    call(x=tf.ones([2, 5, 3]))


def tflite():
    tf.lite.TFLiteConverter.from_saved_model("saved_model").convert()


def onnx():
    import onnxruntime
    import tf2onnx

    graph_def, inputs, outputs = tf2onnx.tf_loader.from_saved_model("saved_model", None, None)
    with tf.Graph().as_default():
        ends = {"input_names": [*inputs], "output_names": [*outputs]}
        model, _ = tf2onnx.convert.from_graph_def(graph_def, **ends)
    onnxruntime.InferenceSession(model.SerializeToString())


def onnx_of_a_frozen_graph():
    import onnxruntime
    import tf2onnx

    graph_def = v1.GraphDef.FromString(Path("model.pb").read_bytes())
    model, _ = tf2onnx.convert.from_graph_def(graph_def, input_names=["x:0"], output_names=["logits:0"])
    onnxruntime.InferenceSession(model.SerializeToString())


def portable():
    call = tf.saved_model.load("saved_model").signatures["serving_default"]
    assert np.ptp(call(x=tf.ones([2, 5, 3]))["output_0"]) > 0
