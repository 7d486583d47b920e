"""Reads the sizes of initial states from a graph's inputs, instead of a recurrence's output.

Zeros for a second layer take their number of rows from what the first one gives. The first need not run for
that: its output is as long as its input, and of a known width.

    before:  y = CudnnRNN(x, ...); rows = Shape(y); first = Fill(rows, 0); z = CudnnRNN(y, first, ...)
    after:   BEGIN/y = zeros of the sizes of y; BEGIN/rows = Shape(BEGIN/y); BEGIN/first = Fill(BEGIN/rows, 0)

The nodes on the way from the recurrence to the initial state are copied under `BEGIN/`; those of the steps
stay as they are. A state that depends on what a recurrence gives is left as it is.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import node_defs, ops, stepwise
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import INPUT, Index, NodeDef, reference, split, tensor, walk
from cudnn_convert.graph.passes import inlining

#: Depend on the sizes of their operands alone.
_OF_SIZES: Final = stepwise.SHAPES | {"ZerosLike", "OnesLike"}
#: Have a state, or belong to a frame, of which there is one.
_UNCOPIED: Final = ops.RECURRENCES | ops.SWITCHES | ops.MERGES | ops.ENTERS | ops.EXITS
#: The axes of a recurrence's input and output before their widths.
_LEADING: Final = 2


def read_initial_sizes(
    graph: Graph, initial: str, name: str, widths: Mapping[str, int]
) -> tuple[str, list[NodeDef]]:
    """Return tensor `initial`, or a copy independent of recurrences, and the copy's nodes.

    `widths` are the sizes of the last axis of the outputs of recurrences, by node; `name` is the scope of
    the copy.
    """
    index, source = graph.index, tensor(initial)
    needed = index.ancestors([split(source)[0]], control=False)
    runs = needed & widths.keys()
    copied = index.descendants(runs) & needed
    has_uncopied = any(index.nodes[op].op in _UNCOPIED for op in copied - runs)
    if not runs or has_uncopied or not _needs_sizes_alone(index, source, runs):
        return initial, []
    # Of a final state the sizes are not those of an output.
    read = {each for op in copied for each in index.data_inputs(index.nodes[op])}
    if any(split(each)[0] in runs and split(each)[1] for each in read):
        return initial, []
    renamed = {each: f"{name}/{each}" for each in {*read, source} if split(each)[0] in copied}
    nodes = list[NodeDef]()
    for node in (each for each in graph.node if each.name in copied):
        if node.name in runs:
            body = _trace_zeros(widths[node.name], tf.as_dtype(node.attr["T"].type))
            x = tensor(node.input[INPUT])
            nodes += inlining.call(body, f"{name}/{node.name}", [reference(renamed.get(x, x))])
            continue
        copy = node_defs.copy_node(node, name=f"{name}/{node.name}", inputs=index.data_inputs(node))
        nodes.append(node_defs.redirect(copy, {each: reference(to) for each, to in renamed.items()}))
    return reference(renamed[source]), nodes


def _needs_sizes_alone(index: Index, name: str, runs: Collection[str]) -> bool:
    """Return True if a tensor needs only the sizes of outputs of the recurrences `runs`."""

    def above(op: str) -> list[str]:
        node = index.nodes[op]
        return [] if node.op in _OF_SIZES else [split(each)[0] for each in index.data_inputs(node)]

    return not {*walk([split(name)[0]], above)} & {*runs}


def _trace_zeros(width: int, dtype: Any) -> inlining.Body:
    def zeros(x: Any) -> Any:
        return tf.zeros(tf.concat([tf.shape(x)[:_LEADING], [width]], 0), dtype)

    return inlining.trace_function(zeros, tf.TensorSpec([None, None, None], dtype))
