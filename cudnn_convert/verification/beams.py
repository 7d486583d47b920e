"""The beams of TensorFlow 1's GatherTree, computed beam by beam where the source's graph has the op.

Source: tensorflow v1.15.0 contrib/seq2seq/kernels/beam_search_ops.cc, the CPU kernel.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops

from cudnn_convert.graph import build
from cudnn_convert.graph.gather_tree import MARK
from cudnn_convert.model import Array


def insert(graph: Any) -> list[Any]:
    """Each node that stands for a GatherTree becomes a PyFunc; returns their functions, to be kept."""
    functions = []
    for node in graph.node:
        if MARK in node.attr:
            functions.append(beams)
            _, *inputs = node.input
            token = script_ops._py_funcs.insert(beams)
            kinds = [tf.int32] * 4
            node.CopyFrom(build.node(node.name, "PyFunc", inputs, token=token, Tin=kinds, Tout=kinds[:1]))
    return functions


def beams(ids: Array, parents: Array, lengths: Array, end: Array) -> Array:
    """The whole beams `[time, batch, beam]`."""
    found = ids * 0 + end
    for row, length in enumerate(lengths):
        for beam in range(ids.shape[2]):
            at = beam
            for t in range(min(int(length), len(ids)) - 1, -1, -1):
                found[t, row, beam], at = ids[t, row, at], parents[t, row, at]
            ends = (found[:, row, beam] == end).nonzero()[0]
            if len(ends):
                found[ends[0] :, row, beam] = end
    return found
