"""Beam search of TensorFlow 1: its op GatherTree, which TensorFlow 2 has not, as a loop of gathers.

`GatherTree(step_ids, parent_ids, max_sequence_lengths, end_token)` walks the beams back from their last step:
ids `[time, batch, beam]`, each with the beam of the step before that it came from. Behind a row's length and
behind the first end token there are end tokens. The node becomes an IdentityN of the beams and of what they
were made from, with a mark by which the proof finds it and computes it by itself.
Source: tensorflow v1.15.0 contrib/seq2seq/ops/beam_search_ops.cc, kernels/beam_search_ops.cc.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import build, inline
from cudnn_convert.graph.flat import LOWERED
from cudnn_convert.graph.index import Index

_OP: Final = "GatherTree"
#: The attribute of a node that stands for a GatherTree: its first output, made from the others.
MARK: Final = "_gather_tree"
_SPECS: Final = tuple(tf.TensorSpec(shape, tf.int32) for shape in ([None] * 3, [None] * 3, [None], []))


def replaced(graph: Any) -> Any:
    """`graph` with each GatherTree computed by ops that TensorFlow 2 has. Raises InvalidModelError."""
    trees = [node for node in graph.node if node.op == _OP]
    for node in graph.node:
        if MARK in node.attr:
            expected = "no attribute that this tool alone sets"
            raise InvalidModelError(node.name, expected=expected, found=MARK)
    if not trees:
        return graph
    body, index = inline.traced(_beams, *_SPECS), Index(graph)
    made = {}
    for node in trees:
        inputs = index.data_inputs(node)
        if len(inputs) != len(_SPECS):
            expected = "ids, parents, lengths and an end token"
            raise InvalidModelError(node.name, expected=expected, found=f"{len(inputs)} inputs")
        made[node.name] = inline.call(body, node.name, inputs)
    for node in (node for nodes in made.values() for node in nodes):
        # Made of Switch nodes, as TensorFlow does in the loops of a decoder, tf2onnx knows no list in it.
        node.attr.pop(LOWERED, None)
    for nodes in made.values():
        nodes[-1].attr[MARK].b = True
    nodes = [found for node in graph.node for found in made.get(node.name, [node])]
    result = build.with_nodes(graph, nodes)
    known = {function.signature.name for function in result.library.function}
    result.library.function.extend(one for one in body.library if one.signature.name not in known)
    return result


def _beams(ids: Any, parents: Any, lengths: Any, end: Any) -> tuple[Any, ...]:
    """The beams, and the inputs."""
    time, batch, width = tf.unstack(tf.shape(ids))
    rows = tf.reshape(tf.range(batch) * width, [-1, 1])
    from_last, parents_from_last = tf.reverse(ids, [0]), tf.reverse(parents, [0])
    shape = tf.stack([batch, width])
    empty = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=time, element_dtype=tf.int32)

    def step(t: Any, beam: Any, held: Any) -> tuple[Any, ...]:
        alive = tf.broadcast_to(tf.reshape(time - 1 - t < lengths, [-1, 1]), shape)
        taken = tf.gather(tf.reshape(from_last[t], [-1]), rows + beam)
        item = tf.where(alive, taken, tf.fill(shape, end))
        held = tf.raw_ops.TensorListSetItem(input_handle=held, index=t, item=item)
        parent = tf.gather(tf.reshape(parents_from_last[t], [-1]), rows + beam)
        return t + 1, tf.where(alive, parent, beam), held

    own = tf.broadcast_to(tf.reshape(tf.range(width), [1, -1]), shape)
    *_, held = tf.while_loop(lambda t, *_: t < time, step, (tf.constant(0), own, empty))
    found = tf.raw_ops.TensorListStack(input_handle=held, element_shape=shape, element_dtype=tf.int32)
    # A loop of no steps leaves its runtime without the other widths.
    found = tf.reverse(tf.reshape(found, tf.shape(ids)), [0])
    ended = tf.cumsum(tf.cast(tf.equal(found, end), tf.int32), axis=0, exclusive=True) > 0
    return tf.where(ended, tf.fill(tf.shape(ids), end), found), ids, parents, lengths, end
