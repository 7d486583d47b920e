"""Computes in float32 the ops of half lacking CPU kernels, and rounds the result.

    before:  y = Rint(x)                                       x and y in half
    after:   y/single = Rint(Cast(x, float32)); y = Cast(y/single, half)

The table `graph.gpu_ops` says which ops these are.
"""

from __future__ import annotations

import tensorflow as tf

from cudnn_convert.graph import gpu_ops, node_defs
from cudnn_convert.graph.graph import Graph, rewrite_nodes
from cudnn_convert.graph.index import NodeDef, claim, reference
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.private import tf_private

_HALF = tf.float16.as_datatype_enum


def is_only_single(node: NodeDef) -> bool:
    """Return True if a CPU computes a node of half in float32 alone."""
    row = gpu_ops.find_row(node)
    return row is not None and row.done == "lowered" and row.type.endswith("=float16")


def compute_in_float32(graph: Graph, _: Keep = ()) -> Graph:
    """Return the graph with such nodes in float32; the graph itself if unchanged."""

    def widen(node: NodeDef, taken: set[str]) -> list[NodeDef]:
        return _widen(node, graph.index.data_inputs(node), taken) if is_only_single(node) else []

    return rewrite_nodes(graph, widen)


def _widen(node: NodeDef, inputs: list[str], taken: set[str]) -> list[NodeDef]:
    """Return the casts, the op in float32, and the cast with the node's name."""
    definition = tf_private.find_op(node.op)
    wide = [
        each.name for each in definition.attr if each.type == "type" and node.attr[each.name].type == _HALF
    ]
    nodes, waits = [], [name for name in node.input if name.startswith("^")]
    for position, argument in enumerate(definition.input_arg):
        if argument.type_attr in wide:
            name = claim(f"{node.name}/single/input", taken)
            nodes.append(_cast(name, inputs[position], tf.float16, tf.float32))
            inputs[position] = name
    single = node_defs.copy_node(
        node, name=claim(f"{node.name}/single", taken), inputs=[*map(reference, inputs), *waits]
    )
    for attribute in wide:
        single.attr[attribute].type = tf.float32.as_datatype_enum
    is_half = definition.output_arg[0].type_attr in wide
    back = tf.float16 if is_half else tf.float32
    return [*nodes, single, _cast(node.name, single.name, tf.float32, back)]


def _cast(name: str, source: str, given: tf.DType, wanted: tf.DType) -> NodeDef:
    return node_defs.node(name, "Cast", [reference(source)], SrcT=given, DstT=wanted)
