"""A recurrence in a graph: cuDNN's op on a GPU, CPU ops elsewhere.

The device is chosen when the graph is built, as TensorFlow 1's own layers had it: a graph built where
TensorFlow sees a GPU has cuDNN's op, outside of `tf.device("/cpu:0")`. Any other has CPU ops, which also run
on a GPU. `build_for` chooses by hand. Weights, scopes and checkpoints are the same for both.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.compat import parameters
from cudnn_convert.lower.tensorflow import layer_stack, while_loop
from cudnn_convert.model import Mode, Sizes

#: The device that `build_for` names, "" for TensorFlow's own choice.
_CHOSEN: ContextVar[str] = ContextVar("device", default="")
DEVICES: Final = ("CPU", "GPU")
#: Chooses the op CudnnRNNV2, as TensorFlow 1.9 to 1.15 did. Source: tensorflow v1.15.0
#: contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py _cudnn_rnn.
USE_V2: Final = "TF_CUDNN_RNN_USE_V2"
_BLOCK_DTYPES: Final = (tf.float32, tf.float16)


@contextmanager
def build_for(device: str) -> Iterator[None]:
    """Build recurrences for "CPU" or "GPU" within, whatever devices this machine has.

    A graph for a GPU can be built and saved anywhere; only a GPU runs it. Raises ValueError for another name.
    """
    if device not in DEVICES:
        raise ValueError(f"Invalid device: {device}, expecting one of (CPU, GPU)")
    token = _CHOSEN.set(device)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def uses_gpu() -> bool:
    """Whether a recurrence that is built now gets cuDNN's op."""
    if _CHOSEN.get():
        return _CHOSEN.get() == "GPU"
    if not tf.config.list_physical_devices("GPU"):
        return False
    with tf.name_scope("device_scope"):
        # A new op is where `tf.device` around the caller puts it.
        scope = tf.zeros([]).device
    return "CPU" not in scope.upper()


def recurrence(
    x: Any,
    h: Any,
    c: Any,
    blob: Any,
    sizes: Sizes,
    *,
    lengths: Any = None,
    time_major: bool = True,
    training: Any = True,
    dropout: float = 0.0,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Compute `(y, h, c)` from inputs, states and the 1-D blob, all of one float dtype.

    x `[time, batch, inputs]` and states `[layers*directions, batch, units]`, or all with the batch first if
    not `time_major`; lengths int32 `[batch]`, None for full rows. `training` is a bool or a bool tensor:
    `dropout` applies between layers while it is true. c is ignored, and given back, but in an LSTM.
    """
    on_gpu = uses_gpu()
    compute = partial(_cudnn_op if on_gpu else _lower_to_cpu, sizes, lengths, time_major, dropout, seed, name)
    known = training if isinstance(training, bool | int) else tf.get_static_value(training)
    if known is not None:
        return compute(bool(known), x, h, c, blob)
    if not on_gpu:
        return compute(training, x, h, c, blob)
    # The op's attribute is_training is fixed: one op for each, and a branch between them.
    branches = [lambda is_training=value: compute(is_training, x, h, c, blob) for value in (True, False)]
    y, h, c = tf.compat.v1.cond(training, *branches)
    return y, h, c


def _lower_to_cpu(
    sizes: Sizes,
    lengths: Any,
    time_major: bool,
    dropout: float,
    seed: int | None,
    name: str | None,
    training: Any,
    *tensors: Any,
) -> tuple[Any, Any, Any]:
    """CPU ops: BlockLSTM for an LSTM of float or half, else a loop over the steps."""
    x, h, c, blob = tensors
    block = sizes.mode is Mode.LSTM and x.dtype in _BLOCK_DTYPES and not sizes.projection
    layer = layer_stack.block_layer if block else while_loop.layer
    between = partial(_drop, dropout, training, seed) if dropout and training is not False else None
    with tf.name_scope(name or "CudnnRNN"), _sizes_as_numbers():
        # The op's shapes, which the cells rely on; of a placeholder they may be unknown.
        hidden, cell = sizes.states(time_major=time_major)
        x = tf.ensure_shape(x, [None, None, sizes.input_size])
        h = tf.ensure_shape(h, hidden)
        c = tf.ensure_shape(c, cell) if sizes.mode is Mode.LSTM else c
        arrays = parameters.for_lowering(blob, sizes, block=block)
        each = len(arrays) // (sizes.layers * sizes.directions)
        compute = layer_stack.stack_layers(sizes, layer, each, time_major=time_major, between=between)
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        y, h, c = compute(x, h, c, lengths, *arrays)
        return y, h, c


@contextmanager
def _sizes_as_numbers() -> Iterator[None]:
    """Give the sizes of static shapes as numbers, as TensorFlow 2 does.

    After `disable_v2_behavior` they are objects, which the lowering does not know.
    """
    if not hasattr(tf.TensorShape([1])[0], "value"):
        yield
        return
    tf.compat.v1.enable_v2_tensorshape()
    try:
        yield
    finally:
        tf.compat.v1.disable_v2_tensorshape()


def _drop(rate: float, training: Any, seed: int | None, x: Any) -> Any:
    """cuDNN's dropout between two layers: what stays is divided by its share."""
    now: Any = rate if training is True else tf.where(training, rate, 0.0)
    return tf.nn.dropout(x, tf.cast(now, x.dtype), seed=seed)


def _cudnn_op(
    sizes: Sizes,
    lengths: Any,
    time_major: bool,
    dropout: float,
    seed: int | None,
    name: str | None,
    training: bool,
    *tensors: Any,
) -> tuple[Any, Any, Any]:
    """The op as TensorFlow 1.15 chose it: CudnnRNNV3 for lengths, batch-major inputs and projections."""
    x, h, c, blob = tensors
    seeds = [number or 0 for number in tf.compat.v1.get_seed(seed)]
    named = {
        "input": x,
        "input_h": h,
        "input_c": c,
        "params": blob,
        "rnn_mode": sizes.mode.value,
        "input_mode": "skip_input" if sizes.skip_input else "linear_input",
        "direction": "unidirectional" if sizes.directions == 1 else "bidirectional",
        "dropout": dropout,
        "seed": seeds[0],
        "seed2": seeds[1],
        "is_training": training,
        "name": name,
    }
    op: Callable[..., Any] = tf.raw_ops.CudnnRNN
    if lengths is not None or not time_major or sizes.projection:
        time, batch = (0, 1) if time_major else (1, 0)
        rows = tf.fill([tf.shape(x)[batch]], tf.shape(x)[time]) if lengths is None else lengths
        named |= {"sequence_lengths": rows, "time_major": time_major, "num_proj": sizes.projection}
        op = tf.raw_ops.CudnnRNNV3
    elif os.environ.get(USE_V2) == "1":
        op = tf.raw_ops.CudnnRNNV2
    y, h, c, *_ = op(**named)
    return y, h, c
