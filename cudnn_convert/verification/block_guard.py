"""BlockLSTM ends the process where it is asked for more steps than its input has: a guard asks before it.

The feeds that are tried for a model of unknown axes may ask so. Source: tensorflow v2.21.0
core/kernels/rnn/lstm_ops.cc BlockLSTMOp (slices its input without a check).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from cudnn_convert.graph import build
from cudnn_convert.graph.block import BLOCK_OPS, STEPS, X
from cudnn_convert.graph.index import unique
from cudnn_convert.model import Array


def insert(graph: Any, seen: list[tuple[int, int]]) -> list[Any]:
    """Put a guard before each BlockLSTM of a GraphDef, in place; it adds the (time, batch) it saw to `seen`.

    Returns the functions, which the caller keeps.
    """

    def guard(steps: Array, x: Array) -> Array:
        if not 0 <= steps <= x.shape[0]:
            raise ValueError(f"BlockLSTM: expected at most {x.shape[0]} steps, found {steps}")
        seen.append((x.shape[0], x.shape[1]))
        return np.asarray(steps, np.int64)

    names = {node.name for node in graph.node}
    blocks = [node for node in graph.node if node.op in BLOCK_OPS]
    for node in blocks:
        name, inputs = unique(f"{node.name}/guard", names), [node.input[STEPS], node.input[X]]
        token, types = script_ops._py_funcs.insert(guard), [tf.int64, tf.as_dtype(node.attr["T"].type)]
        graph.node.append(build.node(name, "PyFunc", inputs, token=token, Tin=types, Tout=[tf.int64]))
        node.input[STEPS] = name
    return [guard] if blocks else []
