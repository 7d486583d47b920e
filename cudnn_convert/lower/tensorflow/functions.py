"""Lowers cuDNN nodes inside functions of a SavedModel, and blobs that may change.

The lowering inside a SavedModel of TensorFlow 2: cuDNN nodes of functions become calls of CPU functions.

Nothing else changes: signatures, objects, variables and gradients stay what they are, and the weights in the
variables they are in.
Source: tensorflow v2.21.0 core/framework/function.proto (a function's tensors are `node:output:k`),
core/ops/cudnn_rnn_ops.cc (names of the outputs).

A parameter blob taken apart at run time: for a blob that a program may still change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, PARAMS
from cudnn_convert.graph.passes import inlining
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.model import Array, Cell, Convention, Mode, Sizes
from cudnn_convert.recurrences import saved_functions
from cudnn_convert.recurrences.saved_functions import Stored
from cudnn_convert.weights import cudnn_blob, layouts
from cudnn_convert.weights.layouts import LOOP

#: The outputs of a cuDNN op, in order; the last two serve its gradient alone.
_OUTPUTS: Final = ("output", "output_h", "output_c", "reserve_space", "host_reserved")
_RESULTS: Final = 3
_ON_GPU: Final = "GPU"


def lower_functions(path: Path, saved: Any, convention: Convention, *, lowering: str) -> Any:
    """A copy of the SavedModel proto in which each cuDNN node that a program can reach calls CPU ops.

    Raises UnsupportedModelError, about the file `path`.
    """
    made = saved_model_pb2.SavedModel()
    made.CopyFrom(saved)
    for meta in made.meta_graphs:
        _lower(path, meta, convention, lowering)
        _off_gpu(meta.graph_def)
    return made


def _lower(path: Path, meta: Any, convention: Convention, lowering: str) -> None:
    calls = saved_functions.call_functions(meta)
    if not calls.node:
        return
    graph = inlining.inline_functions(calls, [node.name for node in calls.node], origins=True)
    library = {function.signature.name: function for function in meta.graph_def.library.function}
    added: dict[str, Any] = {}
    for found in saved_functions.locate_packed_weights(path, graph, convention):
        made, functions = _function(found, convention, lowering)
        added |= {function.signature.name: function for function in functions}
        _call(library[found.function], found, made)
    meta.graph_def.library.function.extend(added[name] for name in sorted(added.keys() - library.keys()))


def _function(found: Stored, convention: Convention, lowering: str) -> tuple[Any, Sequence[Any]]:
    """`(x, h, c, lengths?, weights ...) -> (y, h, c, two empty tensors)` as functions of a library."""
    sizes, dtype = found.sizes, tf.as_dtype(found.dtype)
    direct = found.matrices is not None
    layout = layouts.KERAS if direct else layouts.LOOP
    compute = layer_stack.switch_at_runtime(
        sizes,
        found.dtype,
        layout,
        time_major=found.time_major,
        each=count(sizes),
        lowering=lowering,
    )

    def body(x: Any, h: Any, c: Any, *rest: Any) -> tuple[Any, ...]:
        lengths, *arrays = rest if found.lengths else (None, *rest)
        if not direct:
            arrays = [*slice_blob(arrays[0], sizes, convention)]
        elif sizes.mode is Mode.GRU:
            arrays = [*arrays[:2], *tf.unstack(arrays[2])]
        y, h, c = compute(x, h, c, lengths, *arrays)
        c = c if sizes.mode is Mode.LSTM else tf.zeros([], dtype)  # as the op says of its third output
        return y, h, c, tf.zeros([0], dtype), tf.zeros([0], tf.int8)

    return inlining.library(body, *_specs(found), compiled=lowering == layer_stack.COMPILED)


def _specs(found: Stored) -> list[Any]:
    sizes, dtype = found.sizes, tf.as_dtype(found.dtype)
    hidden, cell = sizes.states(time_major=found.time_major)
    shapes: list[Any] = [[None, None, sizes.input_size], hidden, cell if sizes.mode is Mode.LSTM else None]
    if found.matrices is None:
        shapes.append([None])
    else:
        wide = len(sizes.mode.gates) * sizes.units
        bias = [2, wide] if sizes.mode is Mode.GRU else [wide]
        shapes += [[sizes.input_size, wide], [sizes.units, wide], bias]
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    return [*specs[:3], tf.TensorSpec([None], tf.int32), *specs[3:]] if found.lengths else specs


def _call(function: Any, found: Stored, called: Any) -> None:
    """The node becomes a call of the function `called`, and what reads it reads the call."""
    node = next(one for one in function.node_def if one.name == found.node)
    inputs = [name for name in node.input if not name.startswith("^")]
    weights = [inputs[PARAMS]] if found.matrices is None else [*found.matrices]
    lengths = [inputs[LENGTHS]] if found.lengths else []
    shapes = list(node.attr["_output_shapes"].list.shape)
    inlining.make_call(node, called, [inputs[INPUT], inputs[INPUT_H], inputs[INPUT_C], *lengths, *weights])
    if shapes:
        node.attr["_output_shapes"].list.shape.extend(shapes[:_RESULTS])
        empty = tf.TensorShape([0]).as_proto()
        node.attr["_output_shapes"].list.shape.extend([empty, empty])
    places = {f"{found.node}:{output}:0": f"{found.node}:output:{k}" for k, output in enumerate(_OUTPUTS)}
    for reader in function.node_def:
        for position, source in enumerate(reader.input):
            reader.input[position] = places.get(source, source)
    for key, source in list(function.ret.items()):
        function.ret[key] = places.get(source, source)


def _off_gpu(graph: Any) -> None:
    """No node is bound to a GPU any more."""
    for node in (*graph.node, *(one for function in graph.library.function for one in function.node_def)):
        if _ON_GPU in node.device.upper():
            node.device = ""


def slice_blob(blob: Any, sizes: Sizes, convention: Convention) -> Iterator[Any]:
    """The tensors of each pseudo-layer in turn, in the form of the loop (`layer_stack.layer_weights`).

    Where each lies is asked of `cudnn_blob` and `layouts`, by the places of the blob's elements.
    """
    places = np.arange(cudnn_blob.length(sizes))
    for number, layer in enumerate(cudnn_blob.split(places, sizes, where="params")):
        for cell in layer:
            found = layouts.conventional(cell, convention, canonical=False)
            skipped = number == 0 and sizes.skip_input
            yield from _cell(blob, found, skipped=skipped)


def count(sizes: Sizes) -> int:
    """How many tensors a pseudo-layer has."""
    return 3 + (sizes.mode is Mode.GRU) + bool(sizes.projection)


def _cell(blob: Any, cell: Cell, *, skipped: bool) -> Iterator[Any]:
    kernel, recurrent = layouts.columns(cell, LOOP)
    yield tf.constant(kernel, blob.dtype) if skipped else _matrix(blob, kernel, cell)
    yield _matrix(blob, recurrent, cell)
    bias, recurrent_bias = (_row(blob, places, cell) for places in layouts.biases(cell, LOOP))
    yield from [bias, recurrent_bias] if cell.mode is Mode.GRU else [bias + recurrent_bias]
    for projection in layouts.projection_columns(cell):
        yield _block(blob, projection)


def _matrix(blob: Any, places: Array, cell: Cell) -> Any:
    """`[inputs, gates*units]`: the blob has each gate's part as rows."""
    parts = np.split(places, len(cell.mode.gates), axis=1)
    return tf.concat([_block(blob, part) for part in parts], 1)


def _block(blob: Any, places: Array) -> Any:
    """A matrix that the blob has transposed, `[columns, rows]`, value after value."""
    rows, columns = places.shape
    first = int(places[0, 0])
    return tf.transpose(tf.reshape(blob[first : first + places.size], [columns, rows]))


def _row(blob: Any, places: Array, cell: Cell) -> Any:
    parts = np.split(places, len(cell.mode.gates))
    return tf.concat([blob[int(part[0]) : int(part[0]) + part.size] for part in parts], 0)
