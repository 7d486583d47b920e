"""A recurrence in a graph: cuDNN's op on a GPU, CPU ops elsewhere.

The device is chosen when the graph is built, as TensorFlow 1's own layers had it: a graph built where
TensorFlow sees a GPU has cuDNN's op, outside of `tf.device("/cpu:0")`. Any other has CPU ops, which also run
on a GPU. `build_for` chooses by hand. Weights, scopes and checkpoints are the same for both.
"""

from collections.abc import Iterator
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
_BLOCK_DTYPES: Final = (tf.float32, tf.float16)


@contextmanager
def build_for(device: str) -> Iterator[None]:
    """Build recurrences for "CPU" or "GPU" within, whatever the machine's devices.

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
    """Return True if a recurrence built now gets cuDNN's op."""
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
    """Compute `(y, h, c)` from inputs, states and the 1-D blob.

    All are of one float dtype. x `[time, batch, inputs]` and states `[layers*directions, batch, units]`, or
    all with the batch first if not `time_major`; lengths int32 `[batch]`, None for full rows. `training` is a
    bool or a bool tensor: `dropout` applies between layers while it is true. c is ignored, and given back,
    but in an LSTM.
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
    """Run CPU ops: BlockLSTM for a float or half LSTM, else a loop over steps."""
    x, h, c, blob = tensors
    block = sizes.mode is Mode.LSTM and x.dtype in _BLOCK_DTYPES and not sizes.projection
    layer = layer_stack.block_layer if block else while_loop.layer
    between = partial(_drop, dropout, training, seed) if dropout and training is not False else None
    with tf.name_scope(name or "CudnnRNN"), _sizes_as_numbers():
        x, h, c = _with_shapes(sizes, x, h, c, time_major=time_major)
        arrays = parameters.for_lowering(blob, sizes, block=block)
        each = len(arrays) // (sizes.layers * sizes.directions)
        compute = layer_stack.stack_layers(sizes, layer, each, time_major=time_major, between=between)
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        y, h, c = compute(x, h, c, lengths, *arrays)
        return y, h, c


def _with_shapes(sizes: Sizes, x: Any, h: Any, c: Any, *, time_major: bool) -> tuple[Any, Any, Any]:
    """Set the op's shapes, relied on by the cells. Raises ValueError.

    Shapes of a placeholder may be unknown.
    """
    hidden, cell = sizes.states(time_major=time_major)
    x = tf.ensure_shape(x, [None, None, sizes.input_size])
    h = tf.ensure_shape(h, hidden)
    return x, h, tf.ensure_shape(c, cell) if sizes.mode is Mode.LSTM else c


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
    """Apply cuDNN's dropout between two layers: kept values are divided by the kept share."""
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
    """Run CudnnRNNV3 in every case, as required by TensorFlow with cuDNN 9.

    TensorFlow with cuDNN 9 runs neither CudnnRNN nor CudnnRNNV2. cuDNN 9 asks for lengths, which those two do
    not have: recorded in tests/data/cudnn/tensorflow.json.
    """
    *given, blob = tensors
    x, h, c = _with_shapes(sizes, *given, time_major=time_major)
    is_lstm = sizes.mode is Mode.LSTM
    # The kernel reads batch-major states as time-major ones: with several, rows and layers are mixed up.
    swaps = not time_major and sizes.layers * sizes.directions > 1
    if swaps:
        x, h = (_swap_batch(value) for value in (x, h))
        c = _swap_batch(c) if is_lstm else c
    time_major = time_major or swaps
    time, batch = (0, 1) if time_major else (1, 0)
    steps = tf.shape(x)[time]
    if lengths is None:
        rows = tf.fill([tf.shape(x)[batch]], steps)
    else:
        # One step more than any row has: the kernel keeps what it set up for full rows, and fails on
        # shorter rows of the same shape.
        rows = tf.cast(lengths, tf.int32)
        x = tf.pad(x, [[0, int(axis == time)] for axis in range(3)])
    seeds = [number or 0 for number in tf.compat.v1.get_seed(seed)]
    y, h, c, *_ = tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=h,
        input_c=c,
        params=blob,
        sequence_lengths=rows,
        rnn_mode=sizes.mode.value,
        input_mode="skip_input" if sizes.skip_input else "linear_input",
        direction="unidirectional" if sizes.directions == 1 else "bidirectional",
        dropout=dropout,
        seed=seeds[0],
        seed2=seeds[1],
        num_proj=sizes.projection,
        is_training=training,
        time_major=time_major,
        name=name,
    )
    if lengths is not None:
        y = y[:steps] if time_major else y[:, :steps]
    if swaps:
        y, h = (_swap_batch(value) for value in (y, h))
        c = _swap_batch(c) if is_lstm else c
    return y, h, c


def _swap_batch(value: Any) -> Any:
    """Swap batch-major and time-major in a tensor of rank 3."""
    return tf.transpose(value, [1, 0, 2])
