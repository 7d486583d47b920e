"""Replaces TensorLists of loops by TensorArrays, for conversion in the next step.

That is tf2onnx for ONNX, and `tensor_arrays` for TensorFlow Lite.

A loop of TensorFlow 2 carries a list from one iteration to the next. A TensorArray has a handle, and a flow
of which each write makes the next:

    before:  l = TensorListReserve(shape, n); Loop(l: TensorListSetItem(l, i, y)); TensorListStack(l, shape)
    after:   a, f = TensorArrayV3(n); Loop(f: TensorArrayWriteV3(a, i, y, f)); TensorArrayGatherV3(a, all, f)

A list that any other op takes stays. So does a list made from a tensor and then written: each item of a
TensorArray can be written only once. Unwritten items of a list are zeros; tf2onnx stacks only items that a
loop writes, so zeros are added for the rest.
Source: tensorflow v2.21.0 core/ops/list_ops.cc, core/ops/data_flow_ops.cc, python/ops/tensor_array_ops.py
_GraphTensorArray; tf2onnx v1.17.0 tf2onnx/rewriter/loop_rewriter_base.py.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import NodeDef, claim, split, tensor
from cudnn_convert.graph.node_defs import constant, copy_node, gather, node
from cudnn_convert.graph.passes import inference, inlining

_FROM_TENSOR: Final = "TensorListFromTensor"
_BEGINS: Final = frozenset({"TensorListReserve", _FROM_TENSOR})
_STACK: Final = "TensorListStack"
_READS: Final = frozenset({"TensorListGetItem", _STACK, "TensorListLength"})
_WRITE: Final = "TensorListSetItem"
#: The type of a list, as an item of another.
_VARIANT: Final = tf.variant.as_datatype_enum
_RESIZES: Final = "resize_if_index_out_of_bounds"


def inline_loops(
    graph: Graph, outputs: Iterable[str], is_replaced: Callable[[NodeDef], bool] = lambda _: False
) -> Graph:
    """Inline loops and branches holding lists, or nodes chosen by `is_replaced`."""
    bodies = (node for function in graph.library.function for node in function.node_def)
    around = {node.op for node in bodies if node.op.startswith("TensorList") or is_replaced(node)}
    return inlining.inline_functions(graph, outputs, around=around) if around else graph


def replace_lists(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Replace each list taken by loops, branches, and item reads and writes alone.

    `graph` has no effects. Where it has lists, it loses what the tensors `outputs` do not need.
    """
    if not any(node.op in _BEGINS for node in graph.node):
        return graph
    graph = prune(inference.copy_strides_into_loops(inference.drop_waits(graph)), outputs)
    arrays = _Arrays(graph)
    nodes: list[NodeDef] = []
    for old in graph.node:
        nodes += arrays.replace(old) if old.name in arrays.begins else [old]
    return Graph(graph, (node_defs.redirect(new, arrays.moved) for new in nodes)) if arrays.begins else graph


def _members(graph: Graph, begin: NodeDef) -> set[str] | None:
    """Return the nodes taking or returning a list.

    None if an op takes it that TensorArrays do not have.
    """
    members, todo = {begin.name}, [begin.name]
    while todo:
        name = todo.pop()
        for reader in graph.index.consumers(name):
            inputs = graph.index.data_inputs(reader)
            positions = [k for k, source in enumerate(inputs) if split(source)[0] == name]
            is_written = reader.op == _WRITE and begin.op != _FROM_TENSOR
            is_item = reader.op in _READS or is_written
            if reader.op not in ops.CARRIERS and not (is_item and positions == [0]):
                return None
            if reader.name not in members:
                members.add(reader.name)
                todo += [] if reader.op in _READS else [reader.name]
    return members


class _Arrays:
    """The replacement of list nodes by nodes of TensorArrays.

    `begins` maps each node of a list to the node that creates it, `moved` each renamed tensor to its name.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._index = graph, graph.index
        self._taken = {node.name for node in graph.node}
        begins = [
            node for node in graph.node if node.op in _BEGINS and node.attr["element_dtype"].type != _VARIANT
        ]
        self._frames = control_flow.frames(self._index)
        self._enters = {node.attr["frame_name"].s: node for node in graph.node if node.op in ops.ENTERS}
        #: The array of a list, by the node that begins it and the loops around.
        self._handles: dict[tuple[str, tuple[str, ...]], str] = {}
        #: What begins lists that grow where an item is written behind their end.
        self._growing: set[str] = set()
        self.moved: dict[str, str] = {}
        self.begins: dict[str, str] = {}
        lists = [(begin.name, _members(graph, begin)) for begin in begins]
        for begin, members in lists:
            others = [other for name, more in lists if name != begin for other in more or ()]
            around = self._frames.get(begin, ())
            if (
                members
                and members.isdisjoint(others)
                and all(self._is_within(name, around) for name in members)
                and self._is_stacked_outside(begin, members, around)
            ):
                self.begins |= dict.fromkeys(members, begin)
                self._growing |= {begin} if any(map(self._resizes, members)) else set()
                self._handles[begin, around] = self._name(f"{begin}/array")

    def _resizes(self, name: str) -> bool:
        attributes = self._index.nodes[name].attr
        return _RESIZES in attributes and bool(attributes[_RESIZES].b)

    def _is_within(self, name: str, around: tuple[str, ...]) -> bool:
        return self._frames.get(name, ())[: len(around)] == around

    def _is_stacked_outside(self, begin: str, members: set[str], around: tuple[str, ...]) -> bool:
        """Return True if a list is stacked in the loops around the list's start alone.

        A list that begins filled may be stacked anywhere.
        """
        stacks = [name for name in members if self._index.nodes[name].op == _STACK]
        is_filled = self._index.nodes[begin].op == _FROM_TENSOR
        return is_filled or all(self._frames.get(name, ()) == around for name in stacks)

    def _name(self, wanted: str) -> str:
        return claim(wanted, self._taken)

    def replace(self, old: NodeDef) -> Iterator[NodeDef]:
        """Yield the nodes in place of a list's node.

        Its output keeps its name, or is in `moved`.
        """
        begin = self._index.nodes[self.begins[old.name]]
        kind, name = tf.as_dtype(begin.attr["element_dtype"].type), old.name
        if old.op in ops.CARRIERS:
            changed = copy_node(old)
            changed.attr["T"].type = tf.float32.as_datatype_enum
            yield changed
        elif old.op in _BEGINS:
            yield from self._begin(old, kind, old.input)
        else:
            handle = yield from self._enter(begin.name, self._frames.get(name, ()))
            flow, *others = old.input
            if old.op == _WRITE:
                yield node(name, "TensorArrayWriteV3", [handle, *others, flow], T=kind)
            elif old.op == "TensorListGetItem":
                yield node(name, "TensorArrayReadV3", [handle, others[0], flow], dtype=kind)
            elif old.op == "TensorListLength":
                yield node(name, "TensorArraySizeV3", [handle, flow])
            else:
                size, shape = self._name(f"{name}/size"), self._shape(others[0], begin.name)
                yield node(size, "TensorArraySizeV3", [handle, flow])
                every = yield from self._range(name, size)
                is_filled = begin.op == _FROM_TENSOR or begin.name in self._growing
                stacked = name if is_filled else self._name(f"{name}/written")
                yield node(
                    stacked, "TensorArrayGatherV3", [handle, every, flow], dtype=kind, element_shape=shape
                )
                if not is_filled:
                    yield from self._fill(name, stacked, begin.input[1], kind)

    def _begin(self, old: NodeDef, kind: tf.DType, inputs: Sequence[str]) -> Iterator[NodeDef]:
        array = self._handles[old.name, self._frames.get(old.name, ())]
        size, shape = inputs[1], self._shape(inputs[0], old.name)
        if old.op == _FROM_TENSOR:
            known = self._graph.shapes.get_tensor_by_name(tensor(inputs[0])).shape
            size, shape = self._name(f"{old.name}/size"), known[1:]
            yield from self._count(old.name, inputs[0], size)
        yield node(
            array,
            "TensorArrayV3",
            [size],
            dtype=kind,
            element_shape=shape,
            dynamic_size=old.name in self._growing,
            clear_after_read=False,
            identical_element_shapes=True,
        )
        if old.op == _FROM_TENSOR:
            every = yield from self._range(old.name, size)
            yield node(old.name, "TensorArrayScatterV3", [array, every, inputs[0], f"{array}:1"], T=kind)
        else:
            self.moved |= {f"{old.name}:0": f"{array}:1", f"{old.name}:-1": f"^{array}"}

    def _fill(self, name: str, stacked: str, count: str, kind: tf.DType) -> Iterator[NodeDef]:
        """Add zeros to the items `stacked` until there are `count`, as the tensor `name`."""
        words = "shape first rest wanted missing sizes value zeros".split()
        at = {word: self._name(f"{name}/fill_{word}") for word in words}
        yield node(at["shape"], "Shape", [stacked], T=kind)
        axis = yield from self._constant(f"{name}/fill_axis", 0, after=at["shape"])
        first = yield from self._constant(f"{name}/fill_zero", [0], after=at["shape"])
        second = yield from self._constant(f"{name}/fill_one", [1], after=at["shape"])
        yield constant(at["value"], np.zeros((), kind.as_numpy_dtype), control=[f"^{at['shape']}"])
        yield gather(at["first"], at["shape"], first, axis)
        ends = [second, first, second]  # up to the end, whatever the second says, in steps of 1
        yield node(at["rest"], "StridedSlice", [at["shape"], *ends], T=tf.int32, Index=tf.int32, end_mask=1)
        yield node(at["wanted"], "ExpandDims", [count, axis], T=tf.int32)
        yield node(at["missing"], "Sub", [at["wanted"], at["first"]], T=tf.int32)
        yield node(at["sizes"], "ConcatV2", [at["missing"], at["rest"], axis], T=tf.int32, N=2)
        yield node(at["zeros"], "Fill", [at["sizes"], at["value"]], T=kind)
        yield node(name, "ConcatV2", [stacked, at["zeros"], axis], T=kind, N=2)

    def _shape(self, stated: str, begin: str) -> tf.TensorShape:
        """Return the shape of a list's items: a constant's, else the written items' shape."""
        value = constant_folding.fold_constant(self._index, tensor(stated))
        if value is not None and value.ndim:
            return tf.TensorShape([None if width < 0 else int(width) for width in value])
        members = (self._index.nodes[name] for name, other in self.begins.items() if other == begin)
        items = [tensor(member.input[2]) for member in members if member.op == _WRITE]
        shapes = [self._graph.shapes.get_tensor_by_name(name).shape for name in items]
        return reduce(tf.TensorShape.most_specific_compatible_shape, shapes or [tf.TensorShape(None)])

    def _count(self, scope: str, source: str, size: str) -> Iterator[NodeDef]:
        """Add the first size of a tensor, as `size`."""
        shape = self._name(f"{scope}/shape")
        yield node(shape, "Shape", [source], T=self._graph.shapes.get_tensor_by_name(tensor(source)).dtype)
        axis = yield from self._constant(f"{scope}/axis", 0, after=shape)
        yield gather(size, shape, axis, axis)

    def _range(self, scope: str, size: str) -> Generator[NodeDef, None, str]:
        """Add a Range of the numbers below a size; return the name."""
        start = yield from self._constant(f"{scope}/zero", 0, after=size)
        step = yield from self._constant(f"{scope}/one", 1, after=size)
        every = self._name(f"{scope}/all")
        yield node(every, "Range", [start, size, step])
        return every

    def _constant(self, wanted: str, value: int | list[int], *, after: str) -> Generator[NodeDef, None, str]:
        """Add an int32 constant in the same loops as the op `after`; return the name."""
        name = self._name(wanted)
        yield constant(name, np.array(value, np.int32), control=[f"^{after}"])
        return name

    def _enter(self, begin: str, around: tuple[str, ...]) -> Generator[NodeDef, None, str]:
        """Add Enter nodes for an array's handle in the loops `around`; return the innermost handle."""
        if (begin, around) not in self._handles:
            outer = yield from self._enter(begin, around[:-1])
            name = self._handles[begin, around] = self._name(f"{begin}/enter")
            enter = copy_node(self._enters[around[-1].encode()], name=name, inputs=[outer])
            enter.attr["T"].type, enter.attr["is_constant"].b = tf.resource.as_datatype_enum, True
            yield enter
        return self._handles[begin, around]
