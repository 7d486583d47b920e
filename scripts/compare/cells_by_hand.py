"""A second network by hand, restored from the checkpoint's keys for CPU cells, is right if its settings are.

`BlockLSTM` is `CudnnCompatibleLSTMCell` over all steps. That cell is part of `tf.contrib`, which TensorFlow 2
does not have; the op's own defaults add a forget bias of 1 and clip the cell state, and nothing says so.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parents[2] / "tests/data/tf1/1.15.5/build_prefix"
UNITS = 5


def answer(x: np.ndarray, **settings: float) -> np.ndarray:
    """The layer's outputs [steps, batch, 2 * units]."""
    backwards = direction(x[::-1], "bw", settings)[::-1]
    return np.concatenate([direction(x, "fw", settings), backwards], axis=-1)


def direction(x: np.ndarray, way: str, settings: dict[str, float]) -> Any:
    key = f"main/stack_bidirectional_rnn/cell_0/bidirectional_rnn/{way}/cudnn_compatible_lstm_cell"
    kernel, bias = (
        tf.train.load_variable(str(FOLDER / "model.ckpt"), f"{key}/{n}") for n in ("kernel", "bias")
    )
    zeros, none = tf.zeros([x.shape[1], UNITS]), tf.zeros([UNITS])
    return tf.raw_ops.BlockLSTM(
        seq_len_max=len(x), x=x, cs_prev=zeros, h_prev=zeros, w=kernel, wci=none, wcf=none, wco=none, b=bias,
        **settings,
    ).h.numpy()  # fmt: skip


def holds() -> bool:
    with np.load(FOLDER / "golden.npz") as golden:
        x, expected = golden["feed0/x:0"], golden["feed0/rnn_out:0"]
    right, left = (
        np.abs(answer(x, **one) - expected).max() for one in ({"forget_bias": 0, "cell_clip": -1}, {})
    )
    print(f"BlockLSTM, forget_bias=0, cell_clip=-1: {right:.1e} from TensorFlow 1.15's answers")
    print(f"BlockLSTM, its defaults: {left:.2f}")
    print(f"tf.contrib in TensorFlow {tf.__version__}:", "yes" if hasattr(tf, "contrib") else "no")
    return bool(right < 1e-6 and left > 0.01 and not hasattr(tf, "contrib"))


if __name__ == "__main__":
    sys.exit(not holds())
