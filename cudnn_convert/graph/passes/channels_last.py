"""Computes convolutions, pools and normalisations channels last, with kernels of every CPU.

TensorFlow's CPU kernels of most such ops take `NHWC` alone; those for `NCHW` belong to oneDNN, which is not
on with every processor. Each op reads its image transposed, and its old name becomes the transposition back,
so that every tensor keeps its name and its value.

    before:  y = Conv2D(x, w, data_format="NCHW", strides=[1, 1, 2, 1])
    after:   y/channels_last = Conv2D(Transpose(x, [0, 2, 3, 1]), w, data_format="NHWC", strides=[1, 2, 1, 1])
             y = Transpose(y/channels_last, [0, 3, 1, 2])

A layout goes on where `carried_layouts` has a rule: what reads `y` reads `y/channels_last` instead. What
nobody reads any more is pruned where the graph is written.

Source: tensorflow v2.21.0 core/ops/nn_ops.cc (which attributes and inputs follow `data_format`),
core/util/tensor_format.h; core/kernels/conv_ops_impl.h, maxpooling_op.cc, depthwise_conv_op.cc (what a CPU
refuses).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import function_graphs, node_defs, ops
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import FunctionDef, Index, NodeDef, reference, split, tensor, walk_behind
from cudnn_convert.graph.passes import carried_layouts, plain_convolutions
from cudnn_convert.graph.passes.image_layouts import (
    Order,
    RewrittenNode,
    TransposedTensor,
    TransposedTensors,
    element_type,
    invert,
    order_of,
    permute_attribute,
)
from cudnn_convert.graph.passes.subgraphs import output_types


@dataclass(frozen=True, slots=True)
class LayoutSensitiveOp:
    """The image input of an op, with attributes and inputs of a number per axis."""

    image: int = 0
    lists: tuple[str, ...] = ()
    vectors: tuple[int, ...] = ()


_CONVOLUTION: Final = LayoutSensitiveOp(lists=("strides", "dilations", "explicit_paddings"))
_POOL: Final = LayoutSensitiveOp(lists=("ksize", "strides", "explicit_paddings"))
_BACKWARD: Final = LayoutSensitiveOp(2, ("strides", "dilations", "explicit_paddings"), (0,))
#: The ops whose channels lie where `data_format` says.
FORMS: Final[Mapping[str, LayoutSensitiveOp]] = MappingProxyType(
    {
        **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _CONVOLUTION),
        **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _BACKWARD),
        **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _POOL),
        "MaxPoolV2": LayoutSensitiveOp(vectors=(1, 2)),
        **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), LayoutSensitiveOp()),
        **dict.fromkeys(("BiasAdd", "SpaceToDepth", "DepthToSpace"), LayoutSensitiveOp()),
    }
)
#: Those that CPUs compute in either layout.
_OF_BOTH: Final = frozenset("BiasAdd FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split())
#: The most outputs of an op of `FORMS`.
_MOST: Final = 6
_LAST: Final = MappingProxyType({b"NCHW": b"NHWC", b"NCDHW": b"NDHWC"})


def is_channels_first(node: NodeDef) -> bool:
    """Return True if a node takes images with channels before rows."""
    return node.op in FORMS and "data_format" in node.attr and node.attr["data_format"].s in _LAST


def needs_rewriting(node: NodeDef) -> bool:
    """Return True if a node of `FORMS` is computed in another way on CPUs."""
    return is_channels_first(node) or not plain_convolutions.is_plain(node)


def lacks_kernel(node: NodeDef) -> bool:
    """Return True if some CPUs lack a kernel for a node's layout or window."""
    return needs_rewriting(node) and node.op not in _OF_BOTH


def compute_channels_last(graph: Graph, ends: Collection[str] = (), *, carry: bool = True) -> Graph:
    """Return the graph with ops of `FORMS` in forms with kernels on every CPU.

    Its functions change too. Returns the graph itself if all ops are in such forms. `ends` are the tensors
    that are asked for by name. Without `carry` what follows such an op stays as it is: ONNX is channels first
    by itself, and tf2onnx cancels the transpositions that then stand side by side.
    """
    functions = compute_in_functions(graph.functions, graph.functions.keys())
    if any(functions[name] is not each for name, each in graph.functions.items()):
        graph = Graph(graph, graph.node, functions.values())
    if any(map(is_channels_first, graph.node)):
        graph = _Rewriting(graph, ends, carry=carry).run()
    return plain_convolutions.replace_convolutions(graph)


def compute_in_functions(
    functions: Mapping[str, FunctionDef], names: Collection[str]
) -> dict[str, FunctionDef]:
    """Return the functions of a library, with such ops rewritten in functions of `names`."""
    return {
        name: _compute_in_function(each, functions)
        if name in names and any(map(needs_rewriting, each.node_def))
        else each
        for name, each in functions.items()
    }


def _compute_in_function(function: FunctionDef, functions: Mapping[str, FunctionDef]) -> FunctionDef:
    graph = function_graphs.make_graph(function, functions)
    results = {source.partition(":")[0] for source in function.ret.values()}
    rewriting = _Rewriting(graph, [f"{name}:{k}" for name in results for k in range(_MOST)])
    rewritten = plain_convolutions.replace_convolutions(rewriting.prune(rewriting.run(), results))
    apart = plain_convolutions.separate_groups(rewritten)
    return function_graphs.with_body(function, apart, functions)


class _Rewriting:
    """A walk over a graph, from the inputs on, to replace nodes."""

    def __init__(self, graph: Graph, ends: Collection[str], *, carry: bool = True) -> None:
        self.graph, self.index = graph, graph.index
        self.layouts = TransposedTensors(graph)
        self._ends, self._carry = {*ends}, carry
        self._changed: dict[str, NodeDef] = {}
        #: What computes in the place of a node, for those that wait for it.
        self._computing: dict[str, str] = {}

    def run(self) -> Graph:
        """Return the rewritten graph, the nodes in the old order."""
        for node in _sort(self.index):
            self.layouts.owner = node.name
            self._visit(node)
        nodes = []
        for node in self.graph.node:
            nodes += self.layouts.added.get(node.name, [])
            nodes.append(self._changed.get(node.name, node))
        waiting = (node_defs.with_inputs(node, [*map(self._wait, node.input)]) for node in nodes)
        return Graph(self.graph, waiting)

    def _wait(self, name: str) -> str:
        return f"^{self._computing.get(name[1:], name[1:])}" if name.startswith("^") else name

    def prune(self, graph: Graph, ends: Collection[str]) -> Graph:
        """Remove unread nodes among the added and changed nodes of the rewritten graph."""
        kept = {node.name for node in self.graph.node} - self._changed.keys() | {*ends}
        return prune(graph, sorted(kept))

    def _visit(self, node: NodeDef) -> None:
        if is_channels_first(node):
            result = self._convert(node)
        elif not self._carry:
            return
        elif node.op in carried_layouts.ENDS:
            if changed := carried_layouts.ENDS[node.op](self.layouts, node):
                self._changed[node.name] = changed
            return
        elif node.op in carried_layouts.RULES and (
            self.layouts.orders(self.index.data_inputs(node)) or self._begins(node)
        ):
            result = carried_layouts.RULES[node.op](self.layouts, node)
        else:
            return
        if result is not None:
            self._replace(node, result)

    def _begins(self, node: NodeDef) -> bool:
        """Lay a SpaceToBatchND's image channels last, if only ops of `FORMS` read the output.

        TensorFlow Lite takes such batches of rows and columns alone.
        """
        readers = [*self.index.consumers(node.name)] if node.op == "SpaceToBatchND" else []
        if not readers or not all(map(is_channels_first, readers)):
            return False
        rank = len(readers[0].attr["data_format"].s)
        self.layouts.lay(tensor(node.input[0]), order_of(rank), element_type(node))
        return True

    def _convert(self, node: NodeDef) -> RewrittenNode | None:
        """Compute a node channels last.

        Returns None where the rank of its image is not known.
        """
        form, inputs = FORMS[node.op], self.index.data_inputs(node)
        layout = node.attr["data_format"].s
        rank: int | None = len(layout)
        if node.op == "BiasAdd":  # which takes any rank
            shape = self.layouts.shape(inputs[0])
            known = self.layouts.known.get(inputs[0])
            rank = len(known.order) if known else None if shape is None else len(shape)
        if rank is None:
            return None
        order = order_of(rank)
        inputs[form.image] = self.layouts.lay(inputs[form.image], order, element_type(node))
        for position in form.vectors:
            inputs[position] = self._sizes(inputs[position], order)
        copied = self.layouts.copy(node, inputs)
        copied.attr["data_format"].s = _LAST[layout]
        for key in form.lists:
            permute_attribute(copied, key, order)
        others = len([*output_types(node)]) - 1
        return RewrittenNode(copied, (order, *[None] * others))

    def _sizes(self, name: str, order: Order) -> str:
        """Return sizes of all axes in an order; sizes of rows and columns alone stay.

        Source: tensorflow v2.21.0 core/kernels/conv_grad_shape_utils.cc Conv2DBackpropComputeInputShape.
        """
        shape = self.layouts.shape(name)
        is_whole = not shape or shape[0] is None or shape[0] == len(order)
        return self.layouts.vector(name, order) if is_whole else name

    def _replace(self, node: NodeDef, result: RewrittenNode) -> None:
        """Put a node in the place of another.

        The other's name becomes that of the transposition back.
        """
        layouts, copied = self.layouts, result.node
        layouts.added.setdefault(node.name, []).append(copied)
        self._computing[node.name] = copied.name
        kinds = [tf.as_dtype(kind) for kind in output_types(node)]
        names = []
        for k, order in enumerate(result.orders):
            name = f"{copied.name}:{k}"
            if order is not None and order != tuple(sorted(order)):
                layouts.known[f"{node.name}:{k}"] = TransposedTensor(name, order)
            names.append(name)
        if len(names) == 1 or self._is_read_alone(node):
            self._changed[node.name] = self._back(node.name, names[0], result.orders[0], kinds[0])
            return
        backs = []
        for k, (name, order, kind) in enumerate(zip(names, result.orders, kinds, strict=True)):
            back = self._back(f"{node.name}/channels_first_{k}", name, order, kind)
            layouts.added[node.name].append(back)
            backs.append(back.name)
        self._changed[node.name] = node_defs.node(node.name, "IdentityN", backs, T=kinds)

    def _is_read_alone(self, node: NodeDef) -> bool:
        """Return True if the image is the only output read or asked for."""
        if node.op not in FORMS:
            return False
        read = [tensor(name) for reader in self.index.consumers(node.name) for name in reader.input]
        others = {f"{node.name}:{k}" for k in range(1, len([*output_types(node)]))}
        return others.isdisjoint(read) and others.isdisjoint(self._ends)

    def _back(self, name: str, source: str, order: Order | None, kind: tf.DType) -> NodeDef:
        """Return the node to give a tensor the old layout again."""
        if order is None or order == tuple(sorted(order)):
            return node_defs.identity(name, reference(source), kind.as_datatype_enum)
        perm = self.layouts.constant("channels_first/perm", np.array(invert(order), np.int32))
        return node_defs.node(name, "Transpose", [reference(source), perm], T=kind, Tperm=tf.int32)


def _sort(index: Index) -> list[NodeDef]:
    """Sort nodes in data order, producers first, ignoring values given back by loops."""

    def above(name: str) -> list[str]:
        node = index.nodes[name]
        inputs = [] if node.op in ops.NEXT_ITERATIONS else index.data_inputs(node)
        return [split(read)[0] for read in reversed(inputs)]

    return [index.nodes[name] for name in walk_behind(index.nodes, above)]
