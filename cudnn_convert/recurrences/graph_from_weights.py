"""Builds a graph for graphless weights: each recurrence between placeholders.

Each recurrence is a cuDNN op, as in other sources, so later stages need no special case.
"""

from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.index import is_op_name
from cudnn_convert.model import Mode, Model, PartialSizes, Signature
from cudnn_convert.recurrences import graphless
from cudnn_convert.recurrences.graphless import Alone, SignatureOptions
from cudnn_convert.weights import parameter_blob

_CURE: Final = "choose a format without such names: --format onnx or --format npz"


def assemble_graph(
    model: Model, description: PartialSizes, interface: SignatureOptions, *, wanted: str | None = None
) -> Model:
    """Return the model with a graph and a signature for each recurrence.

    Raises as `graphless.find_blob_recurrences`, and UnsupportedModelError for names that are no op names.
    """
    alone = graphless.find_blob_recurrences(model, description, wanted=wanted)
    if reasons := [
        f"{name}: expected a name that TensorFlow allows for an op, found one that it refuses; {_CURE}"
        for name in dict.fromkeys(
            name for recurrence in alone for name in (recurrence.variable, recurrence.name)
        )
        if not is_op_name(name)
    ]:
        raise UnsupportedModelError(model.path, reasons)
    with tf.Graph().as_default() as graph:
        # Variables first, so that TensorFlow does not rename them: their names are keys.
        blobs = [_variable(recurrence) for recurrence in alone]
        signatures = {
            recurrence.name: _signature(recurrence, interface, blob)
            for recurrence, blob in zip(alone, blobs, strict=True)
        }
    notes = (note for recurrence in alone for note in interface.notes(recurrence))
    return replace(
        model, graph=graph.as_graph_def(), signatures=signatures, together=True, notes=(*model.notes, *notes)
    )


def _variable(recurrence: Alone) -> Any:
    """Add a variable under the key of the blob, even for a missing blob."""
    shape = [parameter_blob.length(recurrence.sizes)]
    return tf.raw_ops.VarHandleOp(
        dtype=recurrence.dtype, shape=shape, shared_name=recurrence.variable, name=recurrence.variable
    )


def _signature(recurrence: Alone, interface: SignatureOptions, blob: Any) -> Signature:
    """Add a recurrence to the current graph, in a scope named like the signature."""
    sizes, batch_major = recurrence.sizes, interface.batch_major(recurrence)
    with tf.name_scope(f"{recurrence.name}/"):
        x = tf.compat.v1.placeholder(recurrence.dtype, [None, None, sizes.input_size], "inputs")
        inputs = {"inputs": x.name}
        x = tf.transpose(x, [1, 0, 2]) if batch_major else x
        states = _states(recurrence, tf.shape(x)[1], given=interface.states)
        inputs |= {f"initial_{key}": state.name for key, state in states.items() if interface.states}
        lengths = (
            tf.compat.v1.placeholder(tf.int32, [None], "sequence_lengths") if interface.lengths else None
        )
        inputs |= {"sequence_lengths": lengths.name} if lengths is not None else {}
        y, h, c = _recurrence(recurrence, x, states, lengths, blob)
        y = tf.transpose(y, [1, 0, 2]) if batch_major else y
        ends = {"outputs": y, "state_h": h} | ({"state_c": c} if sizes.mode is Mode.LSTM else {})
        return Signature(inputs, {key: tf.identity(end, key).name for key, end in ends.items()})


def _states(recurrence: Alone, batch: Any, *, given: bool) -> dict[str, Any]:
    depth = recurrence.sizes.layers * recurrence.sizes.directions
    widths = {"h": recurrence.sizes.width, "c": recurrence.sizes.units}
    if recurrence.sizes.mode is not Mode.LSTM:
        del widths["c"]

    def state(key: str, width: int) -> Any:
        if given:
            return tf.compat.v1.placeholder(recurrence.dtype, [depth, None, width], f"initial_{key}")
        return tf.zeros(tf.stack([depth, batch, width]), recurrence.dtype)

    return {key: state(key, width) for key, width in widths.items()}


def _recurrence(
    recurrence: Alone, x: Any, states: dict[str, Any], lengths: Any, blob: Any
) -> tuple[Any, Any, Any]:
    """Add the cuDNN op."""
    dtype = tf.as_dtype(recurrence.dtype)
    sizes = recurrence.sizes
    attributes = {
        "input": x,
        "input_h": states["h"],
        "input_c": states.get("c", tf.zeros([], dtype)),
        "params": tf.raw_ops.ReadVariableOp(resource=blob, dtype=dtype),
        "rnn_mode": sizes.mode.value,
        "direction": "bidirectional" if sizes.directions == 2 else "unidirectional",
        "input_mode": "skip_input" if sizes.skip_input else "linear_input",
        "is_training": False,
    }
    if lengths is None and not sizes.projection:
        y, h, c, _ = tf.raw_ops.CudnnRNN(**attributes, name="CudnnRNN")
    else:
        if lengths is None:  # only the op that takes lengths has projections
            lengths = tf.fill([tf.shape(x)[1]], tf.shape(x)[0])
        projected = {"num_proj": sizes.projection} if sizes.projection else {}
        y, h, c, _, _ = tf.raw_ops.CudnnRNNV3(
            **attributes, **projected, sequence_lengths=lengths, name="CudnnRNN"
        )
    return y, h, c
