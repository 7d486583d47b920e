"""Replaces tests of a float's sign bit by comparisons, for ONNX and TensorFlow Lite.

Keras 3 tests it in argmax and argmin, which order -0 before 0. Neither format has a Bitcast of floats.
Source: keras v3.15.1 src/backend/tensorflow/numpy.py signbit, argmax.

    before:  bits = Bitcast(x); sign = BitwiseAnd(bits, int32.min); negative = Less(sign, 0)
    after:   negative = LogicalOr(Less(x, 0), Less(Reciprocal(x), 0))

The reciprocal of -0 is -infinity. A NaN counts as positive, whatever its sign bit.
"""

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import Index, NodeDef, claim, reference, split


def replace_sign_bits(graph: node_defs.Graph) -> node_defs.Graph:
    """Replace each such comparison; what it no longer reads stays for other readers."""
    if not any(node.op == "Bitcast" for node in graph.node):
        return graph
    taken = {node.name for node in graph.node}
    changes, added = {}, list[NodeDef]()
    for node in graph.node:
        if (source := _find_float(graph.index, node)) is None:
            continue
        name, kind = source
        names = {part: claim(f"{node.name}/{part}", taken) for part in ("zero", "less", "inverse", "below")}
        added += [
            node_defs.node(names["zero"], "ZerosLike", [name], T=kind),
            node_defs.node(names["less"], "Less", [name, names["zero"]], T=kind),
            node_defs.node(names["inverse"], "Reciprocal", [name], T=kind),
            node_defs.node(names["below"], "Less", [names["inverse"], names["zero"]], T=kind),
        ]
        changes[node.name] = node_defs.node(node.name, "LogicalOr", [names["less"], names["below"]])
    return node_defs.replace_nodes(graph, changes, added)


def _find_float(index: Index, node: NodeDef) -> tuple[str, tf.DType] | None:
    """The tensor whose sign bit a node tests, and its type; None if it tests none."""
    if node.op != "Less":
        return None
    bits, zero = index.data_inputs(node)
    masked = index.nodes[split(bits)[0]]
    if masked.op != "BitwiseAnd" or node_defs.fold_scalar(index, zero) != 0:
        return None
    cast, mask = index.data_inputs(masked)
    maker = index.nodes[split(cast)[0]]
    if maker.op != "Bitcast":
        return None
    kind, whole = tf.as_dtype(maker.attr["T"].type), tf.as_dtype(maker.attr["type"].type)
    if not kind.is_floating or whole.is_unsigned or kind.size != whole.size:
        return None
    lowest = np.iinfo(whole.as_numpy_dtype).min
    return (reference(maker.input[0]), kind) if node_defs.fold_scalar(index, mask) == lowest else None
