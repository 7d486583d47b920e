"""What one node of a flat graph says of itself, and what the tensors say that its parameters come from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.graph import lengths, pairing, resolve, sizing, trace
from cudnn_convert.graph.facts import Facts
from cudnn_convert.graph.index import CUDNN_OPS, PARAMS, Index
from cudnn_convert.graph.trace import Origin
from cudnn_convert.inspection.seen import Seen
from cudnn_convert.inspection.value import Held
from cudnn_convert.model import CanonicalParameters, Mode, Model, Sizes


def seen(model: Model, index: Index, node: Any, tensors: Any) -> Seen:
    """A cuDNN or block node; `tensors` are its inputs as TensorFlow sees them, None where it does not."""
    unknown = SimpleNamespace(shape=tf.TensorShape(None))
    tensors = tensors or [unknown] * len(index.data_inputs(node))
    origin = trace.parameters(index, node)
    leaves = tuple(held for name in origin.leaves if (held := _held(model, index, name)) is not None)
    if node.op not in CUDNN_OPS:
        return _block(node, tensors, leaves)
    facts = resolve.described(node, tensors)
    blob = leaves[0] if leaves and not origin.computed else None
    known = Seen(
        mode=facts.mode,
        layers=facts.layers,
        directions=facts.directions,
        units=facts.units,
        input_size=facts.input_size,
        projection=facts.projection,
        dtype=facts.dtype,
        time_major=resolve.is_time_major(node),
        lengths=node.op == "CudnnRNNV3" and not _are_full(index, node),
        dropout=resolve.dropout(node),
        blob=blob,
        matrices=leaves if origin.computed else (),
        keys=None if facts.projection else _keys(model, facts, origin, blob),
    )
    elements = int(np.prod(blob.shape)) if blob else tensors[PARAMS].shape.num_elements()
    return _sized(known, facts, elements)


def _sized(known: Seen, facts: Facts, elements: int | None) -> Seen:
    """With the sizes that its canonical keys have, or that the length of its parameters leaves."""
    if known.keys is not None:
        keys = known.keys
        return replace(known, layers=keys.layers, units=keys.units, input_size=keys.input_size)
    if None in (known.layers, known.units, elements):
        return known
    assert known.layers is not None and known.units is not None and elements is not None
    sizes = Sizes(known.mode, known.layers, known.directions, known.units, known.input_size or 0)
    solved = sizing.solve(elements, replace(sizes, projection=known.projection), facts.input_mode)
    if solved is None:
        return known
    return replace(known, input_size=solved.input_size, skip_input=solved.skip_input)


def _keys(model: Model, facts: Facts, origin: Origin, blob: Held | None) -> CanonicalParameters | None:
    """As `graph.weights` pairs them: by scope, and without a blob by sizes."""
    if origin.computed:
        return None
    found = pairing.by_scope(model, origin.op, facts.mode, facts.directions)
    if found is None and blob is None:
        try:
            return pairing.by_sizes(model, facts, has_blob=False)
        except AmbiguousSourceError:  # the refusal says so
            return None
    return found


def _held(model: Model, index: Index, name: str) -> Held | None:
    """A variable or a constant, without its value."""
    if name in model.variables:
        tensor = model.variables[name]
        return Held(name, tuple(tensor.shape), tensor.dtype.name)
    node = index.nodes[name]
    if node.op != "Const":
        return None
    value = node.attr["value"].tensor
    dtype = tf.as_dtype(node.attr["dtype"].type).name
    return Held(name, tuple(dim.size for dim in value.tensor_shape.dim), dtype)


def _are_full(index: Index, node: Any) -> bool:
    try:
        return lengths.are_full(index, node)
    except KeyError:  # a node of a function on its own
        return False


def _block(node: Any, tensors: Any, leaves: tuple[Held, ...]) -> Seen:
    """A BlockLSTM or LSTMBlockCell, whose kernel is `[inputs + units, 4*units]` (tensorflow v2.21.0
    core/ops/rnn_ops.cc); the cell sees one step, `[batch, inputs]`.
    """
    whole = node.op.startswith("BlockLSTM")
    kernel = tensors[4 if whole else 3].shape
    rows, columns = kernel.as_list() if kernel.rank == 2 else (None, None)
    units = None if columns is None else columns // 4
    inputs = None if rows is None or units is None else rows - units
    dtype = np.dtype(tf.as_dtype(node.attr["T"].type).as_numpy_dtype)
    return Seen(Mode.LSTM, 1, 1, units, inputs, 0, dtype, True, False, 0.0, matrices=leaves)
