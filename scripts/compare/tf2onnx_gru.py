"""tf2onnx makes of a frozen `CudnnRNN` in mode gru a model that runs, and answers something else.

The graph is that of a TensorFlow 1.15 checkpoint with its parameter blob as a constant; the answers are those
that TensorFlow 1.15 recorded with its own CPU cells.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

FOLDER = Path(__file__).parents[2] / "tests/data/tf1/1.15.5/gru_bi"
BLOB = "cudnn_gru/opaque_kernel"


def frozen() -> bytes:
    meta = meta_graph_pb2.MetaGraphDef.FromString((FOLDER / "model.ckpt.meta").read_bytes())
    graph = tf.compat.v1.graph_util.extract_sub_graph(meta.graph_def, ["rnn_out"])
    blob = tf.train.load_variable(str(FOLDER / "model.ckpt"), BLOB)
    for node in graph.node:
        if node.name == BLOB:
            node.op = "Const"
            node.attr.clear()
            node.attr["dtype"].type = tf.float32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(blob))
        if "_class" in node.attr:
            del node.attr["_class"]
    return graph.SerializeToString()


def holds() -> bool:
    with tempfile.TemporaryDirectory() as name, np.load(FOLDER / "golden.npz") as golden:
        folder = Path(name)
        (folder / "frozen.pb").write_bytes(frozen())
        words = ["--graphdef", folder / "frozen.pb", "--inputs", "x:0,h0:0", "--outputs", "rnn_out:0"]
        done = subprocess.run(
            [sys.executable, "-m", "tf2onnx.convert", *words, "--output", folder / "model.onnx"],
            check=False,
            capture_output=True,
        )
        print(f"python -m tf2onnx.convert: exit code {done.returncode}")
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        (found,) = session.run(None, {key: golden[f"feed0/{key}"] for key in ("x:0", "h0:0")})
        expected = golden["feed0/rnn_out:0"]
    error = np.abs(found - expected).max()
    print(f"onnxruntime: {error:.2f} from TensorFlow's answers, which reach {np.abs(expected).max():.2f}")
    return done.returncode == 0 and bool(error > 0.1)


if __name__ == "__main__":
    sys.exit(not holds())
