"""Replaces TensorArrays by tensors, for TensorFlow Lite's converter.

A TensorArray has a handle, and a flow of which each write makes the next. A tensor takes the flow's place. An
array that is filled from a tensor and then read is that tensor:

    before:  a, f = TensorArrayV3(n); g = TensorArrayScatterV3(a, all, x, f); TensorArrayReadV3(a, i, g)
    after:   GatherV2(x, i)

Of an array that is written item by item there are two: all items in a row, and their shape `[count, *item]`.
So the size of an item need not be known before one is written:

    before:  TensorArrayWriteV3(a, i, y, f)
    after:   row = DynamicUpdateSlice(row and as many zeros as count * size(y) needs, y, i * size(y))

A zero stands before the row, since TensorFlow Lite's loops lose a variable that begins empty, and there is
room for one item at least, since it prepares a loop that takes no step for the write of one. Each write
copies the row, as TensorFlow Lite does with a TensorList. Items that are not written are zeros.
Source: tensorflow v2.21.0 core/ops/data_flow_ops.cc, core/kernels/tensor_array_ops.cc,
lite/kernels/dynamic_update_slice.cc.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import Index, NodeDef, claim, split, tensor
from cudnn_convert.graph.node_defs import constant, copy_node, gather, node, read_attribute

_ARRAY: Final = "TensorArrayV3"
_WRITE: Final = "TensorArrayWriteV3"
_FILL: Final = "TensorArrayScatterV3"
_READ: Final = "TensorArrayReadV3"
_STACK: Final = "TensorArrayGatherV3"
_SIZE: Final = "TensorArraySizeV3"
#: Position of the flow among an op's inputs; that of the handle is 0.
_FLOW: Final = {_WRITE: 3, _FILL: 3, _READ: 2, _STACK: 2, _SIZE: 1}


def replace_arrays(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Replace each array filled whole or written item by item; keep the rest.

    `graph` has no effects. Where it has arrays, it loses what the tensors `outputs` do not need.
    """
    outputs = [*outputs]
    while begins := [node for node in graph.node if node.op == _ARRAY]:
        graph = prune(graph, outputs)
        every = [_describe(graph, node) for node in begins if node.name in graph.index.nodes]
        arrays = [array for array in every if array is not None]
        alone = [a for a in arrays if all(a.members.isdisjoint(b.members) for b in arrays if b is not a)]
        if not alone:
            break
        # The rank of what is written may be known only where what is read is a tensor.
        graph = prune(_Rewrite(graph, alone).rewrite(), outputs)
    return graph


@dataclass(frozen=True, slots=True)
class _Array:
    """An array: the creating node, and the nodes of the flow.

    `item`: the static shape of an item; None where the array is filled from a tensor.
    """

    begin: NodeDef
    members: frozenset[str]
    item: tf.TensorShape | None

    @property
    def dtype(self) -> tf.DType:
        return tf.as_dtype(self.begin.attr["dtype"].type)

    @property
    def grows(self) -> bool:
        """True where the row's length is unknown before the writes."""
        is_static = self.item is not None and self.item.is_fully_defined()
        return bool(self.begin.attr["dynamic_size"].b) or not is_static


def _describe(graph: Graph, begin: NodeDef) -> _Array | None:
    """Return the array created by a node.

    None where anything else is done with it.
    """
    nodes = graph.index.nodes
    handled = _follow(graph.index, begin.name, 0, lambda _: 0)
    members = _follow(graph.index, begin.name, 1, lambda node: _FLOW[node.op])
    if handled is None or members is None:
        return None
    used = [nodes[name] for name in sorted(members) if nodes[name].op in _FLOW]
    if {node.name for node in used} != {name for name in handled if nodes[name].op in _FLOW}:
        return None
    fills = [node for node in used if node.op == _FILL]
    writes = [node for node in used if node.op == _WRITE]
    if [node.input[3] for node in fills] == [f"{begin.name}:1"] and not writes:
        is_alone = len([*graph.index.consumers(begin.name, 1)]) == 1
        is_whole = is_alone and _is_range(graph.index, fills[0].input[1])
        return _Array(begin, frozenset(members), None) if is_whole else None
    flows = {tensor(node.input[3]) for node in writes}
    is_equal = begin.attr["identical_element_shapes"].b or any(node.op == _STACK for node in used)
    has_zeros = tf.as_dtype(begin.attr["dtype"].type) != tf.string
    if fills or not writes or len(flows) < len(writes) or not is_equal or not has_zeros:
        return None
    shapes = [graph.first_iteration.get_tensor_by_name(tensor(node.input[2])).shape for node in writes]
    item = reduce(tf.TensorShape.merge_with, shapes)
    return None if item.rank is None else _Array(begin, frozenset(members), item)


def _follow(index: Index, begin: str, output: int, position: Callable[[NodeDef], int]) -> set[str] | None:
    """Return the nodes reached by a handle (output 0) or a flow (1).

    None if another op takes it.
    """
    members: set[str] = set()
    todo: list[tuple[str, int | None]] = [(begin, output)]
    while todo:
        name, k = todo.pop()
        for reader in index.consumers(name, k):
            sources = [split(source) for source in index.data_inputs(reader)]
            positions = [p for p, (op, number) in enumerate(sources) if op == name and k in (None, number)]
            if reader.op in _FLOW:
                is_known = positions == [position(reader)]
            elif reader.op in ops.MERGES:
                is_known = True
            else:
                is_known = reader.op in ops.CARRIERS and positions == [0]
            if not is_known:
                return None
            if reader.name not in members:
                members.add(reader.name)
                goes_on = reader.op in ops.CARRIERS or (output == 1 and reader.op in (_WRITE, _FILL))
                todo += [(reader.name, None)] if goes_on else []
    merges = (index.nodes[name] for name in members if index.nodes[name].op in ops.MERGES)
    merged = {split(source)[0] for merge in merges for source in index.data_inputs(merge)}
    return members if merged <= {*members, begin} else None


def _is_range(index: Index, name: str) -> bool:
    """Return True if a tensor is 0, 1, 2 and so on."""
    source = index.nodes[split(name)[0]]
    if source.op != "Range":
        return False
    ends = [constant_folding.fold_constant(index, tensor(source.input[k])) for k in (0, 2)]
    return [None if end is None else int(end) for end in ends] == [0, 1]


class _Rewrite:
    """A rewriter of the nodes of arrays, with unchanged names for the tensors read."""

    def __init__(self, graph: Graph, arrays: Sequence[_Array]) -> None:
        self._graph, self._index = graph, graph.index
        self._taken = {node.name for node in graph.node}
        self._frames = control_flow.frames(graph.index)
        self._nodes: list[NodeDef] = []
        self._moved: dict[str, str] = {}
        self._arrays: dict[str, _Array] = {}
        #: The tensor with the shape of all items, by the tensor that has the items.
        self._shapes: dict[str, str] = {}
        self._written = [array for array in arrays if array.item is not None]
        for array in arrays:
            self._arrays |= dict.fromkeys(sorted(array.members), array)
            self._arrays[array.begin.name] = array

    def rewrite(self) -> Graph:
        """Return the graph with all ops on the arrays replaced.

        What creates the arrays is left, unread.
        """
        for name in self._arrays:
            if self._index.nodes[name].op in ops.CARRIERS | {_WRITE, _FILL}:
                self._rename(name)
        for written in self._written:
            self._begin(written)
        for old in self._graph.node:
            array = self._arrays.get(old.name)
            if array is None or old.op == _ARRAY:
                self._nodes.append(old)
            elif old.op in ops.CARRIERS:
                self._carry(old, array)
            elif array.item is None:
                self._use_tensor(old, array)
            else:
                self._use_row(old, array, array.item)
        return Graph(self._graph, (node_defs.redirect(new, self._moved) for new in self._nodes))

    def _rename(self, name: str) -> None:
        """Name the tensors in the place of a flow.

        No op of the source's graph returns them.
        """
        items = claim(f"{name}/items", self._taken)
        shape = claim(f"{name}/shape", self._taken)
        for k in range(2):
            self._moved[f"{name}:{k}"] = f"{items}:{k}"
            self._shapes[f"{name}:{k}"] = f"{shape}:{k}"
        self._moved[f"{name}:-1"] = f"^{items}"

    def _items(self, name: str) -> str:
        return split(self._moved[f"{name}:0"])[0]

    def _begin(self, array: _Array) -> None:
        """Add the first row of an array, and the shape of all items.

        The row has zeros where their number is known. Sizes that are not static are 0 in the shape.
        """
        name, size = array.begin.name, array.begin.input[0]
        assert array.item is not None
        count = self._op(f"{name}/count", "Pack", [size], T=tf.int32, N=1)
        axis, length = self._constant(f"{name}/axis", 0, count), self._constant(f"{name}/first", [1], count)
        item = self._constant(f"{name}/item", [width or 0 for width in array.item], count)
        shape = self._op(f"{name}/shape", "ConcatV2", [count, item, axis], T=tf.int32, N=2)
        if array.grows:  # no constant, or the converter would take it for the length in every iteration
            none = self._constant(f"{name}/none", [0], count)
            number = self._unknown(array.begin, count)
            items = self._op(f"{name}/items", "Minimum", [number, none], T=tf.int32)
        else:
            width = self._constant(f"{name}/size", int(np.prod(array.item)), count)
            least = self._constant(f"{name}/least", [1], count)
            room = self._op(f"{name}/room", "Maximum", [count, least], T=tf.int32)
            items = self._op(f"{name}/items", "Mul", [room, width], T=tf.int32)
        length = self._op(f"{name}/length", "AddV2", [items, length], T=tf.int32)
        zero = self._constant(f"{name}/zero", 0, count, array.dtype)
        row = self._op(f"{name}/row", "Fill", [length, zero], T=array.dtype)
        self._moved[f"{name}:1"] = f"{row}:0"
        self._shapes[f"{name}:1"] = f"{shape}:0"

    def _unknown(self, begin: NodeDef, count: str) -> str:
        """Return a number `[1]` of at least 0, unknown to the converter."""
        scope, around = begin.name, self._frames.get(begin.name, ())
        if around:
            return self._square(scope, around) or count
        ancestors = sorted(self._index.ancestors(self._arrays[begin.name].members))
        names = [name for name in ancestors if self._index.nodes[name].op in ops.PLACEHOLDERS]
        given = [self._graph.shapes.get_tensor_by_name(f"{name}:0") for name in names]
        value = next((value for value in given if not value.shape.is_fully_defined()), None)
        if value is None:
            value = next((value for value in given if value.dtype.is_floating), None)
        if value is None:
            return count
        kind = value.dtype
        sizes = self._op(f"{scope}/sizes", "Shape", [value.name], T=kind)
        axis = self._constant(f"{scope}/axis", 0, sizes)
        if value.shape.is_fully_defined():
            flat = self._constant(f"{scope}/flat", [-1], sizes)
            row = self._op(f"{scope}/given", "Reshape", [value.name, flat], T=kind)
            number = self._op(f"{scope}/place", "ArgMax", [row, axis], T=kind, output_type=tf.int32)
        else:
            number = self._op(f"{scope}/number", "Prod", [sizes, axis], T=tf.int32)
        return self._op(f"{scope}/numbers", "ExpandDims", [number, axis], T=tf.int32)

    def _square(self, scope: str, around: tuple[str, ...]) -> str | None:
        """Return the square of the innermost loop's counter, or None."""
        for switch in self._graph.node:
            read = [self._index.nodes[split(name)[0]].op for name in self._index.data_inputs(switch)]
            is_variable = switch.op in ops.SWITCHES and read[1] == "LoopCond"
            if is_variable and self._frames.get(switch.name) == around:
                value = self._graph.first_iteration.get_tensor_by_name(f"{switch.name}:1")
                if value.dtype == tf.int32 and value.shape.rank == 0:
                    number = self._op(f"{scope}/square", "Mul", [value.name, value.name], T=tf.int32)
                    return self._op(f"{scope}/squares", "Pack", [number], T=tf.int32, N=1)
        return None

    def _carry(self, old: NodeDef, array: _Array) -> None:
        changed = copy_node(old, name=self._items(old.name))
        changed.attr["T"].type = array.dtype.as_datatype_enum
        self._nodes.append(changed)
        if array.item is not None:
            inputs = [self._shapes.get(tensor(source), source) for source in old.input]
            shape = copy_node(old, name=split(self._shapes[f"{old.name}:0"])[0], inputs=inputs)
            shape.attr["T"].type = tf.int32.as_datatype_enum
            self._nodes.append(shape)

    def _use_tensor(self, old: NodeDef, array: _Array) -> None:
        """Replace an op on an array filled from a tensor."""
        flow = old.input[_FLOW[old.op]]
        if old.op == _FILL:
            items = self._items(old.name)
            self._nodes.append(node_defs.identity(items, old.input[2], array.dtype.as_datatype_enum))
            return
        sizes = self._op(f"{old.name}/sizes", "Shape", [flow], T=array.dtype)
        axis = self._constant(f"{old.name}/axis", 0, sizes)
        if old.op == _SIZE:
            self._nodes.append(gather(old.name, sizes, axis, axis))
        else:
            self._nodes.append(gather(old.name, flow, old.input[1], axis, array.dtype))

    def _use_row(self, old: NodeDef, array: _Array, item: tf.TensorShape) -> None:
        """Replace an op on an array written item by item."""
        name, flow = old.name, old.input[_FLOW[old.op]]
        shape = self._shapes[tensor(flow)]
        if old.op == _WRITE:
            self._write(old, array, shape)
            return
        sizes = self._op(f"{name}/sizes", "Identity", [shape], T=tf.int32)
        axis = self._constant(f"{name}/axis", 0, sizes)
        if old.op == _SIZE:
            self._nodes.append(gather(name, sizes, axis, axis))
            return
        stated = tf.TensorShape(read_attribute(old, "element_shape").shape if old.op == _STACK else None)
        widths = [None, *item.merge_with(stated)]
        parts = [
            self._pick(f"{name}/size_{k}", sizes, k, axis)
            if width is None
            else self._constant(f"{name}/size_{k}", width, sizes)
            for k, width in enumerate(widths)
        ]
        first = self._constant(f"{name}/first", [1], sizes)
        target = self._op(f"{name}/target", "Pack", parts, T=tf.int32, N=len(parts))
        end, mask = first, 1  # from the second on; the end is not looked at
        if not array.grows:  # of none there is room for one
            many = self._op(f"{name}/many", "Prod", [target, axis], T=tf.int32)
            end, mask = self._op(f"{name}/end", "AddV2", [first, many], T=tf.int32), 0
        ends = [first, end, first]
        flow = self._op(
            f"{name}/row", "StridedSlice", [flow, *ends], T=array.dtype, Index=tf.int32, end_mask=mask
        )
        items = self._op(f"{name}/items", "Reshape", [flow, target], T=array.dtype)
        self._nodes.append(gather(name, items, old.input[1], axis, array.dtype))

    def _write(self, old: NodeDef, array: _Array, shape: str) -> None:
        name, kind = old.name, array.dtype
        _, position, value, row = self._index.data_inputs(old)
        item = self._op(f"{name}/item", "Shape", [value], T=kind)
        axis, first = self._constant(f"{name}/axis", 0, item), self._constant(f"{name}/first", 1, item)
        size = self._op(f"{name}/size", "Prod", [item, axis], T=tf.int32)
        count = self._pick(f"{name}/count", shape, 0, axis, after=item)
        end = self._op(f"{name}/end", "AddV2", [position, first], T=tf.int32)
        count = self._op(f"{name}/more", "Maximum", [count, end], T=tf.int32)
        if array.grows:
            wanted = self._op(f"{name}/wanted", "Mul", [count, size], T=tf.int32)
            wanted = self._op(f"{name}/wanted_in_row", "AddV2", [wanted, first], T=tf.int32)
            row = self._grow(old, wanted, item, axis)
        flat = self._constant(f"{name}/flat", [-1], item)
        part = self._op(f"{name}/part", "Reshape", [value, flat], T=kind)
        start = self._op(f"{name}/start", "Mul", [position, size], T=tf.int32)
        start = self._op(f"{name}/start_in_row", "AddV2", [start, first], T=tf.int32)
        start = self._op(f"{name}/starts", "ExpandDims", [start, axis], T=tf.int32)
        self._nodes.append(
            node(self._items(name), "XlaDynamicUpdateSlice", [row, part, start], T=kind, Tindices=tf.int32)
        )
        count = self._op(f"{name}/counts", "ExpandDims", [count, axis], T=tf.int32)
        sizes = split(self._shapes[f"{name}:0"])[0]
        self._nodes.append(node(sizes, "ConcatV2", [count, item, axis], T=tf.int32, N=2))

    def _grow(self, old: NodeDef, wanted: str, item: str, axis: str) -> str:
        """Extend the row of a write with zeros to the length `wanted`; return the name."""
        name, row, kind = old.name, old.input[3], self._arrays[old.name].dtype
        wanted = self._op(f"{name}/wanted_length", "ExpandDims", [wanted, axis], T=tf.int32)
        length = self._op(f"{name}/length", "Shape", [row], T=kind)
        missing = self._op(f"{name}/missing", "Sub", [wanted, length], T=tf.int32)
        zero = self._constant(f"{name}/zero", 0, item, kind)
        zeros = self._op(f"{name}/zeros", "Fill", [missing, zero], T=kind)
        return self._op(f"{name}/whole", "ConcatV2", [row, zeros, axis], T=kind, N=2)

    def _op(self, wanted: str, op: str, inputs: Iterable[str], **attributes: Any) -> str:
        """Add a node; return the name."""
        name = claim(wanted, self._taken)
        self._nodes.append(node(name, op, inputs, **attributes))
        return name

    def _constant(self, wanted: str, value: int | list[int], after: str, kind: tf.DType = tf.int32) -> str:
        """Add a constant in the loops and branches of the op `after`; return the name."""
        name = claim(wanted, self._taken)
        self._nodes.append(constant(name, np.array(value, kind.as_numpy_dtype), control=[f"^{after}"]))
        return name

    def _pick(self, wanted: str, values: str, position: int, axis: str, after: str | None = None) -> str:
        """Add a scalar of int32 `values`; return the name."""
        index = self._constant(f"{wanted}/at", position, after or values)
        name = claim(wanted, self._taken)
        self._nodes.append(gather(name, values, index, axis))
        return name
