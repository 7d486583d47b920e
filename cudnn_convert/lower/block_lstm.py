"""Prepares BlockLSTM and LSTMBlockCell nodes for ONNX and TensorFlow Lite.

A node that does not clip, and of which only hidden states and the last cell state are read, equals the LSTM
of a cuDNN node: it becomes one, with a `Recurrence`. Any other becomes a `while` loop of plain ops with all
outputs of the node, and tf2onnx converts it to a Loop. An LSTMBlockCell is one such step, which TensorFlow
Lite alone lacks.

Equations: tensorflow v2.21.0 core/kernels/rnn/lstm_ops.cc LSTMBlockCellFprop, BlockLSTMOp (steps behind
seq_len_max are zero).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import control_flow
from cudnn_convert.graph.graph import Graph, expand_nodes
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, reference
from cudnn_convert.graph.node_defs import read_attribute
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.model import CanonicalEvidence, Gate, Mode, Recurrence, Sizes
from cudnn_convert.recurrences import resolve
from cudnn_convert.recurrences.resolve import Block
from cudnn_convert.weights import layouts

#: The name of a cuDNN node inside what stands for a block.
_NODE: Final = "cudnn"


def lower_block_lstm(
    graph: AnyGraph, outputs: Iterable[str], *, nests_loops: bool
) -> tuple[Graph, tuple[Recurrence, ...]]:
    """Replace the BlockLSTM nodes of a frozen `graph`; return the graph and the new recurrences.

    `outputs` are the tensors needed; all tensors keep their names. Raises UnsupportedModelError where a loop
    would lie inside a loop of the graph, unless the format `nests_loops`; tf2onnx (v1.17.0) does not.
    """
    graph = Graph.of(graph)
    wanted = resolve.blocks(graph, outputs)
    if not wanted:
        return graph, ()
    if not nests_loops:
        _refuse_nested(graph.index, wanted)
    replacements: dict[str, list[NodeDef]] = {}
    recurrences = []
    functions = dict(graph.functions)
    for block in wanted:
        fused = _is_fused(block)
        body = inlining.trace_function(_fuse(block) if fused else _loop(block), *_specs(block))
        nodes = inlining.call(body, block.node.name, [reference(name) for name in block.inputs])
        for node in nodes:
            # Else TensorFlow's optimizer makes a loop of the older kind, which tf2onnx knows no lists in.
            node.attr.pop(inlining.LOWERED, None)
        replacements[block.node.name] = nodes
        functions |= {function.signature.name: function for function in body.library}
        recurrences += [_recurrence(block)] if fused else []
    replaced = expand_nodes(graph, replacements).node
    return Graph(graph, replaced, (functions[name] for name in sorted(functions))), tuple(recurrences)


def _refuse_nested(index: Index, wanted: Iterable[Block]) -> None:
    loops = control_flow.frames(index)
    reasons = [
        f"{block.node.name}: expected a {block.node.op} that fits into one op (constant weights, no clip, "
        f"only the last cell state read), found one in the loop {loops[block.node.name][-1]} that does not; "
        "choose the format savedmodel or frozen"
        for block in wanted
        if not _is_fused(block) and loops.get(block.node.name)
    ]
    if reasons:
        raise UnsupportedModelError("onnx", reasons)


def _is_fused(block: Block) -> bool:
    inner = block.read - {resolve.HIDDEN_STATES, resolve.CELL_STATES}
    return block.cell is not None and not block.clip and not inner and block.last_only


def _recurrence(block: Block) -> Recurrence:
    assert block.cell is not None
    _, units, inputs = block.cell.kernel.shape
    return Recurrence(
        node=f"{block.node.name}/{_NODE}",
        op=block.node.op,
        sizes=Sizes(Mode.LSTM, 1, 1, units, inputs),
        time_major=True,
        lengths=not block.full,
        dtype=np.dtype(block.dtype.as_numpy_dtype),
        cells=((block.cell,),),
        evidence=CanonicalEvidence({}),  # nobody judges by it: the source runs its own op
        shared=block.node.name,
    )


def _specs(block: Block) -> list[Any]:
    """Return the TensorSpecs of a block's inputs, with sizes unknown before inlining."""
    shapes = [[None, None, None], [None, None], [None, None], [None, None], *[[None]] * 4]
    return [tf.TensorSpec([], tf.int64), *(tf.TensorSpec(shape, block.dtype) for shape in shapes)]


def _fuse(block: Block) -> Callable[..., list[Any]]:
    """Return a function computing a block's outputs with a cuDNN node.

    Of the cell states it gives the last step only.
    """

    def compute(steps: Any, x: Any, c: Any, h: Any, *_: Any) -> list[Any]:
        inputs = {"input": x, "input_h": h[None], "input_c": c[None], "params": tf.zeros([0], x.dtype)}
        if block.full:
            y, _, last, _ = tf.raw_ops.CudnnRNN(**inputs, name=_NODE)
        else:
            time, batch = tf.shape(x)[0], tf.shape(x)[1]
            rows = tf.fill([batch], tf.minimum(tf.cast(steps, tf.int32), time))
            y, _, last, _, _ = tf.raw_ops.CudnnRNNV3(**inputs, sequence_lengths=rows, name=_NODE)
            # The last step of all is zero where the block ends before it.
            last = tf.where(tf.cast(steps, tf.int32) < time, tf.zeros_like(last), last)
        last = last[: tf.shape(x)[0]]  # of no steps there is no last
        return [last if k == resolve.CELL_STATES else y for k in range(resolve.OUTPUTS)]

    return compute


def _loop(block: Block) -> Callable[..., list[Any]]:
    """Return a function computing a block's outputs step by step, in float32.

    Unread outputs are replaced by the hidden states.
    """
    kept = sorted(block.read | {resolve.HIDDEN_STATES})
    one_step = partial(_step, block.layout, forget_bias=block.forget_bias, clip=block.clip)

    def compute(steps: Any, *tensors: Any) -> list[Any]:
        x, c, h, kernel, *peepholes, bias = (tf.cast(tensor, tf.float32) for tensor in tensors)
        time, batch, width = tf.unstack(tf.shape(x))
        recurrent = kernel[width:]
        sums = tf.reshape(x, [-1, width]) @ kernel[:width] + bias
        sums = tf.reshape(sums, tf.stack([time, batch, tf.shape(kernel)[1]]))
        # One list for all: tf2onnx would take two that begin alike for one.
        shape = tf.stack([len(kept), batch, tf.shape(h)[1]])
        empty = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=time, element_dtype=x.dtype)

        def step(t: Any, c: Any, h: Any, items: Any) -> tuple[Any, ...]:
            results = one_step(sums[t] + h @ recurrent, c, peepholes if block.use_peephole else ())
            item = tf.stack([results[k] for k in kept])
            items = tf.raw_ops.TensorListSetItem(input_handle=items, index=t, item=item)
            return t + 1, results[resolve.CELL_STATES], results[resolve.HIDDEN_STATES], items

        *_, items_written = tf.while_loop(lambda t, *_: t < time, step, (tf.constant(0), c, h, empty))
        values = tf.raw_ops.TensorListStack(
            input_handle=items_written, element_shape=shape, element_dtype=x.dtype
        )
        # A loop of no steps leaves its runtime without the other widths.
        values = tf.reshape(values, tf.concat([[time], shape], 0))
        alive = (tf.range(time) < tf.cast(steps, tf.int32))[:, None, None, None]
        values = tf.cast(tf.where(alive, values, tf.zeros_like(values)), block.dtype)
        stacked = dict(zip(kept, tf.unstack(values, len(kept), axis=1), strict=True))
        return [stacked.get(k, stacked[resolve.HIDDEN_STATES]) for k in range(resolve.OUTPUTS)]

    return compute


def _step(
    layout: layouts.Layout, sums: Any, c: Any, peepholes: Sequence[Any], *, forget_bias: float, clip: float
) -> tuple[Any, ...]:
    """Compute the results of a step, in the order of the op's outputs.

    `clip` is 0 where it is off, `peepholes` are empty where there are none.
    """
    gates = dict(zip(layout.gates[Mode.LSTM], tf.split(sums, 4, 1), strict=True))
    wci, wcf, wco = peepholes or (0.0, 0.0, 0.0)
    i = tf.sigmoid(gates[Gate.INPUT] + wci * c)
    f = tf.sigmoid(gates[Gate.FORGET] + forget_bias + wcf * c)
    memory = tf.tanh(gates[Gate.CELL])
    new = f * c + i * memory
    if clip:
        new = tf.clip_by_value(new, -clip, clip)
    o = tf.sigmoid(gates[Gate.OUTPUT] + wco * new)
    seen = tf.tanh(new)
    return i, new, f, o, memory, seen, o * seen


def replace_cells(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each LSTMBlockCell by plain ops, with unchanged output names."""
    calls: dict[str, list[NodeDef]] = {}
    for node in graph.node:
        if node.op == "LSTMBlockCell":
            kind = tf.as_dtype(node.attr["T"].type)
            specs = [tf.TensorSpec([None] * rank, kind) for rank in (2, 2, 2, 2, 1, 1, 1, 1)]
            body = inlining.trace_function(_cell(node), *specs)
            calls[node.name] = inlining.call(body, node.name, graph.index.data_inputs(node))
    return expand_nodes(graph, calls)


def _cell(node: NodeDef) -> Callable[..., tuple[Any, ...]]:
    """Return a function computing an LSTMBlockCell's outputs."""
    forget_bias, clip = (read_attribute(node, name).f for name in ("forget_bias", "cell_clip"))
    one_step = partial(_step, layouts.BLOCK_LSTM_V1, forget_bias=forget_bias, clip=max(0.0, clip))
    use_peephole = read_attribute(node, "use_peephole").b

    def compute(x: Any, c: Any, h: Any, kernel: Any, *rest: Any) -> tuple[Any, ...]:
        *peepholes, bias = rest
        return one_step(tf.concat([x, h], 1) @ kernel + bias, c, peepholes if use_peephole else ())

    return compute
