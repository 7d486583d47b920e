"""Separates the permutations of Transpose nodes in and around loops, for TensorFlow Lite.

`separate_permutations`: each Transpose of a graph with loops reads a constant of its own, with an attribute
that no other has. Of equal constants the converter makes one, the outermost. Where it moves a Transpose of
the loop, it puts this constant into the loop, and the Transpose outside of it can no longer read it:
"operand #1 does not dominate this use".
Source: tensorflow v2.21.0 compiler/mlir/lite/tf_tfl_passes.cc (CSE, then the layouts),
compiler/mlir/tensorflow/transforms/layout_optimization.cc MoveTransposeBefore, MoveTransposeAfter.

    before:  p = [0, 2, 3, 1]; y = Transpose(x, p); in a loop, z = Transpose(y, p)
    after:   y = Transpose(x, [0, 2, 3, 1]); in the loop, z = Transpose(y, [0, 2, 3, 1])
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from cudnn_convert.graph import constant_folding, node_defs, ops
from cudnn_convert.graph.graph import Graph, rewrite_nodes
from cudnn_convert.graph.index import Index, NodeDef, claim, split, tensor
from cudnn_convert.graph.passes.run import Keep

#: What a constant notes, that it equals no other.
_READER: Final = "_reader"


def separate_permutations(graph: Graph, _: Keep = ()) -> Graph:
    """Give each Transpose a separate constant.

    Return `graph` itself if it has no loops.
    """
    if not any(node.op in ops.ENTERS for node in graph.node):
        return graph
    return rewrite_nodes(graph, partial(_separate, graph.index))


def _separate(index: Index, node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
    if node.op != "Transpose":
        return
    perm = constant_folding.fold_constant(index, tensor(node.input[1]))
    if perm is None:
        return
    image, _, *waits = node.input
    if index.nodes[split(image)[0]].op in ops.SWITCHES:  # a constant cannot wait for one output of it
        source = node_defs.identity(claim(f"{node.name}/input", taken), image, node.attr["T"].type)
        yield source
        image = source.name
    own = node_defs.constant(claim(f"{node.name}/perm", taken), perm, control=[f"^{split(image)[0]}"])
    own.attr[_READER].s = node.name.encode()
    yield own
    yield node_defs.copy_node(node, inputs=[image, own.name, *waits])
