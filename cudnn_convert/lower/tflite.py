"""Lowers a graph to TensorFlow Lite ops, in float32.

Recurrences become loops (`tflite_loops`), or in graphs of fixed sizes fused ops and steps (`tflite_fused`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops, session
from cudnn_convert.graph.graph import Graph, copy_graph, graph_floats_as, replace_nodes, rewrite_nodes
from cudnn_convert.graph.index import (
    INPUT,
    AttrValue,
    Index,
    NodeDef,
    all_nodes,
    claim,
    split,
    tensor,
    unique,
)
from cudnn_convert.graph.passes import inference, tf1_ops
from cudnn_convert.graph.passes.run import Keep, Pass, run_passes
from cudnn_convert.lower import (
    block_lstm,
    empty_axes,
    fixed_shapes,
    image_blocks,
    inexact_kernels,
    missing_ops,
    missing_pools,
    permutations,
    same_padding,
    tensor_arrays,
    tensor_lists,
    tflite_fused,
    tflite_loops,
)
from cudnn_convert.lower.tensorflow import lower
from cudnn_convert.model import WAYS, Cell, Recurrence, Tensor
from cudnn_convert.private import tf_private

_ELSE: Final = "choose --format savedmodel or frozen"
#: Float types for which TensorFlow Lite lacks kernels that a recurrence needs.
_OTHERS: Final[dict[int, str]] = {
    tf.float64.as_datatype_enum: "float64",
    tf.float16.as_datatype_enum: "float16",
    tf.bfloat16.as_datatype_enum: "bfloat16",
}


@dataclass(frozen=True, slots=True)
class LiteGraph:
    """A graph; `pieces` names the loop or fused op of each direction of a layer.

    `fused` has the cells of fused ops by name; `notes` are for the user.
    """

    graph: Graph
    pieces: tuple[dict[str, Any], ...]
    fused: Mapping[str, Cell] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def lower_tflite(
    graph: Any,
    recurrences: Sequence[Recurrence],
    values: Mapping[str, Tensor],
    *,
    ends: Sequence[str],
    fused: bool = False,
) -> LiteGraph:
    """Lower to a graph of constants, with float32 for every float type.

    Tensor names stay. `values` are those of the source's variables, `ends` the tensors of the signature,
    inputs included. Block LSTMs, which TensorFlow Lite lacks, become loops as for ONNX. `fused`: recurrences
    become fused ops or steps in the place of loops (`tflite_fused`). Raises UnsupportedModelError where a
    block LSTM lies inside a loop, where the constants do not fit a GraphDef, and as `choose_forms`.
    """
    if fused:
        return _lower_fused(graph, recurrences, values, ends)
    lowered = run_passes(_lower(graph, recurrences, values, ends), BEFORE_BLOCKS, ends)
    lowered, blocks = block_lstm.lower_block_lstm(lowered, ends, nests_loops=True)
    lowered = _lower(lowered, blocks, {}, ends) if blocks else lowered
    return LiteGraph(run_passes(lowered, PASSES, ends), tuple(_pieces([*recurrences, *blocks])))


def _lower_fused(
    graph: Any, recurrences: Sequence[Recurrence], values: Mapping[str, Tensor], ends: Sequence[str]
) -> LiteGraph:
    """Lower recurrences after all else: passes would lay a marked function flat."""
    graph = session.without_parameters(graph, recurrences, ends)
    lowered = run_passes(_lower(graph, (), values, ends), BEFORE_BLOCKS, ends)
    lowered, blocks = block_lstm.lower_block_lstm(lowered, ends, nests_loops=True)
    lowered = run_passes(lowered, (*PASSES, *OF_FIXED_SIZES), ends)
    sized = tflite_fused.choose_forms(lowered, [*recurrences, *blocks], ends)
    for each in sized:
        form = tflite_fused.unroll(each) if each.reason else tflite_fused.fuse(each)
        single = replace(each.recurrence, dtype=np.dtype(np.float32), passage=())
        lowered = _lower(lowered, [single], {}, ends, form)
    fused = [each.recurrence for each in sized if not each.reason]
    pieces = tuple(_pieces(fused))
    cells = [cell for recurrence in fused for layer in recurrence.cells for cell in layer]
    names = [piece["piece"] for piece in pieces]
    return LiteGraph(lowered, pieces, dict(zip(names, cells, strict=True)), tuple(tflite_fused.notes(sized)))


def _is_replaced(node: NodeDef) -> bool:
    """Return True if a node in a function is replaced before conversion."""
    return node.op == "Transpose" or same_padding.may_leave_out(node)


def _pieces(recurrences: Sequence[Recurrence]) -> Iterator[dict[str, Any]]:
    for recurrence in recurrences:
        node, sizes = recurrence.node, recurrence.sizes
        for number, name in enumerate(tflite_loops.list_names(sizes)):
            layer, direction = divmod(number, sizes.directions)
            yield {"piece": f"{node}/{name}", "node": node, "layer": layer, "direction": WAYS[direction]}


def notes(graph: Any) -> tuple[str, ...]:
    """Return notes on float types turned into float32, and on inexact ops."""
    kinds = {value.type for node in graph.node for value in node.attr.values()} & _OTHERS.keys()
    names = " and ".join(sorted(_OTHERS[kind] for kind in kinds))
    actual = f"{names} becomes float32, inputs and outputs too: TensorFlow Lite has no kernels for it"
    return (*((actual,) if kinds else ()), *inexact_kernels.notes(graph))


def _lower(
    graph: Any,
    recurrences: Sequence[Recurrence],
    values: Mapping[str, Tensor],
    ends: Sequence[str],
    form: lower.WeightForm = tflite_loops.FORM,
) -> Any:
    """Lower recurrences to the ops of a form, and freeze all variables."""
    _refuse_doubles(graph)
    graph = _behind_switches(graph, recurrences)
    lowered = lower.lower(graph, recurrences, values, outputs=ends, form=form)
    passes: tuple[Pass, ...] = (
        *tf1_ops.make_resources(lowered.variables),
        partial(session.freeze_variables, variables=lowered.variables),
    )
    return run_passes(lowered.graph, passes, ends)


def _refuse_doubles(graph: Any) -> None:
    """Refuse ops with a fixed double argument, before every float becomes float32."""
    reasons = []
    for node in all_nodes(graph):
        definition = tf_private.find_op(node.op)
        arguments = () if definition is None else (*definition.input_arg, *definition.output_arg)
        if any(argument.type in _OTHERS for argument in arguments):
            expected = "an op that TensorFlow Lite has"
            reasons.append(f"{node.name}: expected {expected}, found {node.op}; {_ELSE}")
    if reasons:
        raise UnsupportedModelError("tflite", reasons)


def _behind_switches(graph: Any, recurrences: Sequence[Recurrence]) -> Any:
    """Insert an Identity between each recurrence and a Switch feeding the recurrence.

    Constants in the replaced node get a control edge from the op of its input, and a Switch runs on either
    branch: the converter would not know to which branch they belong.
    """
    graph = Graph.of(graph)
    index, changes, added = graph.index, {}, []
    for recurrence in recurrences:
        node = index.nodes[recurrence.node]
        if index.nodes[split(node.input[INPUT])[0]].op in ops.SWITCHES:
            dtype = tf.as_dtype(recurrence.dtype).as_datatype_enum
            name = unique(f"{node.name}/input", index.nodes)
            added.append(node_defs.identity(name, node.input[INPUT], dtype))
            inputs = [name, *node.input[INPUT + 1 :]]
            changes[node.name] = node_defs.copy_node(node, inputs=inputs)
    return replace_nodes(graph, changes, added)


def _slice_squeezed(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Squeeze leaving several open sizes by a StridedSlice.

    The converter of v2.21.0 fails on such a Squeeze behind a Transpose ("failed to satisfy constraint").
    """

    def slice_node(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        dims = node.attr["squeeze_dims"].list.i if node.op == "Squeeze" else ()
        shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape if dims else None
        if shape is None or shape.rank is None:
            return
        squeezed = {dim % shape.rank for dim in dims}
        kept = [k for k in range(shape.rank) if k not in squeezed]
        if sum(shape[k] is None for k in kept) < 2:
            return
        # An Identity, since a constant cannot wait for one output of a Switch.
        source = node_defs.identity(claim(f"{node.name}/input", taken), node.input[0], node.attr["T"].type)
        yield source
        inputs, first = [source.name], np.zeros(shape.rank, np.int32)
        for value in (first, first + 1, first + 1):  # begin, end, strides
            inputs.append(claim(f"{node.name}/slice", taken))
            yield node_defs.constant(inputs[-1], value, control=[f"^{source.name}"])
        masks = {"end_mask": sum(1 << k for k in kept), "shrink_axis_mask": sum(1 << k for k in squeezed)}
        kind = tf.as_dtype(node.attr["T"].type)
        yield node_defs.node(node.name, "StridedSlice", inputs, T=kind, Index=tf.int32, **masks)

    return rewrite_nodes(graph, slice_node)


def _expand_slices(graph: Graph, _: Keep = ()) -> Graph:
    """Insert the new axes of a StridedSlice by ExpandDims, if several open sizes remain.

    The converter makes a Reshape of such a slice, which knows all sizes but one, and fails elsewhere.
    Source: tensorflow v2.21.0 compiler/mlir/lite/transforms/prepare_tf.cc ConvertTFStridedSlice.

    before: y = StridedSlice(x, [0, 0, 0], ...), new_axis_mask=4, which is x[:, :, None]
    after:  y/slice = StridedSlice(x, [0, 0], ...), y = ExpandDims(y/slice, -1)
    """

    def expand(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        if node.op != "StridedSlice" or not _mask(node, "new_axis_mask"):
            return
        shape = graph.shapes.get_tensor_by_name(tensor(node.name)).shape
        if shape.rank is not None and sum(size is None for size in shape) < 2:
            return
        spec = _SliceSpec.of(graph.index, node)
        if spec is not None and spec.axes:
            yield from spec.nodes(node, taken)

    return rewrite_nodes(graph, expand)


_MASKS: Final = ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask")


@dataclass(frozen=True, slots=True)
class _SliceSpec:
    """A StridedSlice stripped of new axes.

    `bounds`: begin, end and strides of what is `kept`, arrays or tensors of a Pack. `axes`: where to insert
    axes, one after the other.
    Source: tensorflow v2.21.0 core/util/strided_slice_op.cc BuildDenseSpec.
    """

    kept: Sequence[int]
    bounds: Sequence[Any]
    masks: Mapping[str, int]
    axes: Sequence[int]
    index: tf.DType

    @classmethod
    def of(cls, index: Index, node: NodeDef) -> "_SliceSpec | None":
        """Describe the StridedSlice `node`, or return None.

        None where a bound is neither constant nor a Pack.
        """
        given = [_read_bounds(index, name) for name in index.data_inputs(node)[1:]]
        if any(bounds is None for bounds in given):
            return None
        count = len(given[0])
        has = {name: [bool(_mask(node, name) >> k & 1) for k in range(count)] for name in _MASKS}
        axes = _mask(node, "new_axis_mask")
        new = [bool(axes >> k & 1) and not has["ellipsis_mask"][k] for k in range(count)]
        kept = [k for k in range(count) if not new[k]]
        masks = {name: sum(1 << at for at, k in enumerate(kept) if has[name][k]) for name in _MASKS}
        # What each entry leaves, in order; an entry that shrinks leaves nothing.
        shrunk = [has["shrink_axis_mask"][k] and not new[k] for k in range(count)]
        left = [k for k in range(count) if has["ellipsis_mask"][k] or not shrunk[k]]
        rest = next((at for at, k in enumerate(left) if has["ellipsis_mask"][k]), len(left))
        before = [at for at, k in enumerate(left[:rest]) if new[k]]
        after = [at - len(left) for at, k in enumerate(left) if at > rest and new[k]]
        bounds = [_select(each, kept) for each in given]
        return cls(kept, bounds, masks, [*before, *reversed(after)], tf.as_dtype(node.attr["Index"].type))

    def nodes(self, node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        """Yield the nodes computing the slice `node` by ExpandDims; add new names to `taken`.

        The last node has the name of `node`.
        """
        kind = tf.as_dtype(node.attr["T"].type)
        source = node_defs.identity(claim(f"{node.name}/input", taken), node.input[0], node.attr["T"].type)
        yield source
        after, current = [f"^{source.name}"], source.name
        if self.kept:
            inputs = [source.name]
            for bounds in self.bounds:
                inputs.append(claim(f"{node.name}/bounds", taken))
                if isinstance(bounds, list):
                    yield node_defs.node(inputs[-1], "Pack", bounds, T=self.index, N=len(bounds))
                else:
                    yield node_defs.constant(inputs[-1], bounds, control=after)
            current = claim(f"{node.name}/slice", taken)
            yield node_defs.node(current, "StridedSlice", inputs, T=kind, Index=self.index, **self.masks)
        for number, axis in enumerate(self.axes, 1):
            at = claim(f"{node.name}/axis", taken)
            yield node_defs.constant(at, np.array(axis, np.int32), control=after)
            name = node.name if number == len(self.axes) else claim(f"{node.name}/expanded", taken)
            yield node_defs.node(name, "ExpandDims", [current, at], T=kind, Tdim=tf.int32)
            current = name


def _mask(node: NodeDef, name: str) -> int:
    """Return a mask of a StridedSlice, 0 if absent.

    Reading an attribute that is not there would add it.
    """
    return node.attr[name].i if name in node.attr else 0


def _read_bounds(index: Index, name: str) -> Any:
    """Return a constant's array, or the tensors joined by a Pack, else None."""
    maker = index.nodes[split(name)[0]]
    return index.data_inputs(maker) if maker.op == "Pack" else constant_folding.fold_constant(index, name)


def _select(bounds: Any, kept: Sequence[int]) -> Any:
    return [bounds[k] for k in kept] if isinstance(bounds, list) else bounds[[*kept]]


def _keep_switches(graph: Graph, _: Keep = ()) -> Graph:
    """Add a Switch to each loop variable read by the loop's condition alone.

    The converter expects one of each. Source: tensorflow v2.21.0 compiler/tf2xla/functionalize_while.cc.
    """
    index, taken = graph.index, {node.name for node in graph.node}
    frames = control_flow.frames(index)
    conditions = {frames[node.name]: node.name for node in graph.node if node.op == "LoopCond"}
    changes, added = {}, []
    for merge in graph.node:
        later = [index.nodes[split(source)[0]] for source in index.data_inputs(merge)]
        later = [node for node in later if node.op in ops.NEXT_ITERATIONS]
        switched = any(reader.op in ops.SWITCHES for reader in index.consumers(merge.name, 0))
        if merge.op not in ops.MERGES or not later or switched:
            continue
        switch = claim(f"{merge.name}/switch", taken)
        read = claim(f"{merge.name}/read", taken)
        kind = merge.attr["T"].type
        inputs = [merge.name, conditions[frames[merge.name]]]
        added.append(node_defs.node(switch, "Switch", inputs, T=tf.as_dtype(kind)))
        added.append(node_defs.identity(read, f"{switch}:1", kind))
        changes[later[0].name] = node_defs.copy_node(later[0], inputs=[*later[0].input, f"^{read}"])
    return replace_nodes(graph, changes, added)


def _keep_ends(graph: Graph, ends: Keep) -> Graph:
    """Insert an Identity of the old name behind signature ends of loops and branches.

    The converter makes functions of loops and branches, whose nodes it does not find again.
    """
    changes, added = {}, []
    for name in dict.fromkeys(split(end)[0] for end in ends):
        node = graph.index.nodes[name]
        if node.op in ops.EXITS | ops.MERGES:
            renamed = node_defs.copy_node(node, name=unique(f"{name}/end", graph.index.nodes))
            added.append(renamed)
            changes[name] = node_defs.identity(name, renamed.name, node.attr["T"].type)
    return replace_nodes(graph, changes, added)


def _drop_checks(graph: Graph, _: Keep = ()) -> Graph:
    """Replace EnsureShape ops beyond the static shapes by identities, as for ONNX."""
    changes = {}
    for node in graph.node:
        if node.op == "EnsureShape":
            known = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
            if not known.is_subtype_of(tf.TensorShape(node.attr["shape"].shape)):
                changes[node.name] = node_defs.copy_node(node, op="Identity")
                del changes[node.name].attr["shape"]
    return replace_nodes(graph, changes)


def _compute_in_float32(graph: Graph, _: Keep = ()) -> Graph:
    """Replace every float type by float32, in functions too."""
    functions = graph.library.function
    attributes = (value for node in all_nodes(graph) for value in node.attr.values())
    arguments = (end for each in functions for end in (*each.signature.input_arg, *each.signature.output_arg))
    if not any(map(_is_other_float, attributes)) and not any(each.type in _OTHERS for each in arguments):
        return graph
    single = copy_graph(graph)
    graph_floats_as(single, tf.float32)
    return Graph(single)


def _is_other_float(value: AttrValue) -> bool:
    kinds = (value.type, value.tensor.dtype, *value.list.type)
    return not _OTHERS.keys().isdisjoint(kinds)


#: What comes before block LSTMs become recurrences, which are lowered as those of the model are.
BEFORE_BLOCKS: Final[tuple[Pass, ...]] = (missing_ops.replace_gru_cells, block_lstm.replace_cells)
PASSES: Final[tuple[Pass, ...]] = (
    # First, since no other pass looks into functions: branches and loops become nodes.
    partial(tensor_lists.inline_loops, is_replaced=_is_replaced),
    inference.drop_waits,
    # The converter knows lists of static shapes alone. They become arrays, and arrays tensors.
    tensor_lists.replace_lists,
    tensor_arrays.replace_arrays,
    missing_ops.replace_sign_bits,
    missing_pools.replace_pools,
    image_blocks.widen_blocks,
    same_padding.replace_padding,
    inexact_kernels.replace_inexact,
    empty_axes.replace_reductions,
    empty_axes.copy_outputs,
    # After all that add slices of their own.
    _slice_squeezed,
    _expand_slices,
    _keep_switches,
    _keep_ends,
    # After all that add a Transpose.
    permutations.separate_permutations,
    # Last, since what is folded until here is folded in the model's own types.
    _compute_in_float32,
    _drop_checks,
)


#: What comes behind `PASSES` where all sizes are known.
OF_FIXED_SIZES: Final[tuple[Pass, ...]] = (
    fixed_shapes.fold_shapes,
    fixed_shapes.reverse_whole_rows,
    fixed_shapes.replace_selects,
)
