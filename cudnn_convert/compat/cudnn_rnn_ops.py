"""Converters, saveables, and functions and classes on a parameter blob.

What `tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops` has; the op-level classes with the names of the
layers too, as in TensorFlow 1.4 to 1.15. Messages are those of TensorFlow 1.15, one line each.
Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import tensorflow as tf

from cudnn_convert.compat import branches, parameters
from cudnn_convert.compat.cells import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from cudnn_convert.model import Mode, Sizes
from cudnn_convert.private import tf_private
from cudnn_convert.weights import layouts, parameter_blob

__all__ = [
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnGRUSaveable",
    "CudnnLSTM",
    "CudnnLSTMSaveable",
    "CudnnOpaqueParamsSaveable",
    "CudnnParamsFormatConverter",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNRelu",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanh",
    "CudnnRNNTanhSaveable",
    "check_direction",
    "check_input_mode",
    "cudnn_gru",
    "cudnn_lstm",
    "cudnn_rnn_canonical_to_opaque_params",
    "cudnn_rnn_opaque_params_size",
    "cudnn_rnn_opaque_params_to_canonical",
    "cudnn_rnn_relu",
    "cudnn_rnn_tanh",
]

CUDNN_RNN_UNIDIRECTION: Final = "unidirectional"
CUDNN_RNN_BIDIRECTION: Final = "bidirectional"
CUDNN_LSTM: Final = Mode.LSTM.value
CUDNN_GRU: Final = Mode.GRU.value
CUDNN_RNN_RELU: Final = Mode.RNN_RELU.value
CUDNN_RNN_TANH: Final = Mode.RNN_TANH.value
CUDNN_INPUT_LINEAR_MODE: Final = "linear_input"
CUDNN_INPUT_SKIP_MODE: Final = "skip_input"
CUDNN_INPUT_AUTO_MODE: Final = "auto_select"
#: Matrices, and as many biases, of a pseudo-layer: those of the input, then the recurrent ones.
CUDNN_LSTM_PARAMS_PER_LAYER: Final = 2 * len(Mode.LSTM.gates)
CUDNN_GRU_PARAMS_PER_LAYER: Final = 2 * len(Mode.GRU.gates)
CUDNN_RNN_TANH_PARAMS_PER_LAYER: Final = 2 * len(Mode.RNN_TANH.gates)
CUDNN_RNN_RELU_PARAMS_PER_LAYER: Final = 2 * len(Mode.RNN_RELU.gates)

_DIRECTIONS: Final = (CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION)
_INPUT_MODES: Final = (CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE)
#: What restores a variable. Source: tensorflow v2.21.0 python/training/saving/saveable_object_util.py.
_ASSIGN: Final = ("Assign", "AssignVariableOp")
_MODES: Final = (CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU)


def check_direction(direction: str) -> None:
    """Raise ValueError for anything but "unidirectional" and "bidirectional"."""
    if direction not in _DIRECTIONS:
        raise ValueError(f"Invalid direction: {direction}, expecting unidirectional or bidirectional")


def check_input_mode(input_mode: str) -> None:
    """Raise ValueError for anything but "linear_input", "skip_input" and "auto_select"."""
    if input_mode not in _INPUT_MODES:
        raise ValueError(f"Invalid input_mode: {input_mode}, expect one of ({', '.join(_INPUT_MODES)})")


def sizes_of(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    input_mode: str,
    direction: str,
    num_proj: int | None = None,
) -> Sizes:
    """Return a blob's sizes. Raises ValueError for a wrong mode, direction or input mode."""
    if rnn_mode not in _MODES:
        raise ValueError(f"Invalid rnn_mode: {rnn_mode}, expect one of ({', '.join(_MODES)})")
    check_direction(direction)
    check_input_mode(input_mode)
    equal = input_size == num_units
    if input_mode == CUDNN_INPUT_SKIP_MODE and not equal:
        raise ValueError(
            f"Invalid input_mode: {input_mode}, expecting input_size == num_units, got {input_size} and "
            f"{num_units}"
        )
    if num_proj and rnn_mode != CUDNN_LSTM:
        raise ValueError(f"Invalid num_proj: {num_proj}, expecting none for rnn_mode {rnn_mode}")
    return Sizes(
        Mode(rnn_mode),
        int(num_layers),
        1 + _DIRECTIONS.index(direction),
        int(num_units),
        int(input_size),
        skip_input=input_mode != CUDNN_INPUT_LINEAR_MODE and equal,
        projection=num_proj or 0,
    )


class CudnnParamsFormatConverter:
    """A converter between a blob and TensorFlow 1's CPU cell tensors; a subclass per mode."""

    _rnn_mode: ClassVar[str]

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        num_proj: int | None = None,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
    ) -> None:
        """Take the sizes of a recurrence, like the layers. Raises ValueError for wrong sizes."""
        self._sizes = sizes_of(
            self._rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj
        )

    def opaque_to_tf_canonical(self, opaque_param: Any) -> tuple[list[Any], ...]:
        """Return weights and biases, and any projection's matrices, from the 1-D blob."""
        weights, biases, projections = parameters.to_canonical(
            *parameters.split(tf.convert_to_tensor(opaque_param), self._sizes), self._sizes
        )
        return (weights, biases, projections) if self._sizes.projection else (weights, biases)

    def tf_canonical_to_opaque(
        self, tf_canonicals: Sequence[Any], weights_proj: Sequence[Any] | None = None
    ) -> Any:
        """Return the 1-D blob from all weights, followed by all biases."""
        count = len(tf_canonicals) // 2
        matrices, biases = parameters.from_canonical(
            tf_canonicals[:count], tf_canonicals[count:], weights_proj or (), self._sizes
        )
        return parameters.join(matrices, biases, self._sizes)


class CudnnParamsFormatConverterLSTM(CudnnParamsFormatConverter):
    """An LSTM's converter: `kernel [inputs+units, 4*units]` and `bias [4*units]`, gates i, c, f, o."""

    _rnn_mode = CUDNN_LSTM


class CudnnParamsFormatConverterGRU(CudnnParamsFormatConverter):
    """A GRU's converter: the gates' kernel, and the candidate's input and hidden projection; biases alike."""

    _rnn_mode = CUDNN_GRU


class CudnnParamsFormatConverterTanh(CudnnParamsFormatConverter):
    """A tanh RNN's converter: `kernel [inputs+units, units]` and `bias [units]`."""

    _rnn_mode = CUDNN_RNN_TANH


class CudnnParamsFormatConverterRelu(CudnnParamsFormatConverter):
    """A relu RNN's converter: `kernel [inputs+units, units]` and `bias [units]`."""

    _rnn_mode = CUDNN_RNN_RELU


class CudnnOpaqueParamsSaveable(tf_private.SaveableObject):  # type: ignore[misc]
    """A saveable of a blob as TensorFlow 1's CPU cell variables; a subclass per mode.

    A Saver without `var_list` finds it in the collection SAVEABLE_OBJECTS, where the layers put theirs.
    """

    _format_converter_cls: ClassVar[type[CudnnParamsFormatConverter]]
    _rnn_cell_name: ClassVar[str]

    def __init__(
        self,
        opaque_params: Any,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
        scope: Any = None,
        name: str = "cudnn_rnn_saveable",
    ) -> None:
        """Take the variable `opaque_params`, and `scope`, the beginning of the keys.

        `scope` is a VariableScope or its name.
        """
        self._variables = opaque_params
        self.format_converter = self._format_converter_cls(
            num_layers, num_units, input_size, input_mode=input_mode, direction=direction
        )
        prefix = getattr(scope, "name", scope)
        weights, biases = self.format_converter.opaque_to_tf_canonical(opaque_params)
        names = [f"{prefix}/{key}" if prefix else key for key in self._keys()]
        specs = [
            tf_private.SaveSpec(tensor, "", key)
            for tensor, key in zip([*weights, *biases], names, strict=True)
        ]
        with tf.compat.v1.name_scope(None):  # the root
            # A MetaGraph names the saveable as if it were an op: an import finds this one.
            producer = tf.identity(opaque_params, name=name)
        super().__init__(producer, specs, name)

    def _keys(self) -> Iterator[str]:
        """Yield the keys of all weights, then of all biases."""
        sizes = self.format_converter._sizes
        stems = (
            ["rnn/multi_rnn_cell/cell_{}/"]
            if sizes.directions == 1
            else [f"stack_bidirectional_rnn/cell_{{}}/bidirectional_rnn/{way}/" for way in ("fw", "bw")]
        )
        shapes = layouts.contrib_shapes(sizes.mode, units=sizes.units, inputs=sizes.input_size)
        for kind in ("kernel", "bias"):
            for layer in range(sizes.layers):
                for stem in stems:
                    for key in shapes:
                        if key.endswith(kind):
                            yield f"{stem.format(layer)}{self._rnn_cell_name}/{key}"

    def restore(self, restored_tensors: Sequence[Any], restored_shapes: Any) -> Any:
        """Assign the blob of the canonical tensors, in the order of the keys.

        A Saver of everything restores the variable itself too. The canonical tensors win: they come last.
        """
        blob = self.format_converter.tf_canonical_to_opaque(restored_tensors)
        scope = tf.compat.v1.get_default_graph().get_name_scope()
        reference = getattr(self._variables, "handle", None)
        readers = (self._variables.op.outputs[0] if reference is None else reference).consumers()
        earlier = [op for op in readers if op.type in _ASSIGN and op.name.startswith(f"{scope}/")]
        with tf.control_dependencies(earlier if scope else []):
            return tf.compat.v1.assign(self._variables, tf.identity(blob), validate_shape=False)


class CudnnLSTMSaveable(CudnnOpaqueParamsSaveable):
    """The saveable of an LSTM for CudnnCompatibleLSTMCells."""

    _format_converter_cls = CudnnParamsFormatConverterLSTM
    _rnn_cell_name = "cudnn_compatible_lstm_cell"


class CudnnGRUSaveable(CudnnOpaqueParamsSaveable):
    """The saveable of a GRU for CudnnCompatibleGRUCells."""

    _format_converter_cls = CudnnParamsFormatConverterGRU
    _rnn_cell_name = "cudnn_compatible_gru_cell"


class CudnnRNNTanhSaveable(CudnnOpaqueParamsSaveable):
    """The saveable of a tanh RNN for BasicRNNCells."""

    _format_converter_cls = CudnnParamsFormatConverterTanh
    _rnn_cell_name = "basic_rnn_cell"


class CudnnRNNReluSaveable(CudnnOpaqueParamsSaveable):
    """The saveable of a relu RNN for BasicRNNCells."""

    _format_converter_cls = CudnnParamsFormatConverterRelu
    _rnn_cell_name = "basic_rnn_cell"


def _last_size(value: Any) -> int | None:
    shape = tf.convert_to_tensor(value).shape
    size: int | None = shape.as_list()[-1] if shape.rank else None
    return size


def _read_sizes(inputs: Any, input_h: Any, time_major: bool) -> tuple[int, int, int]:
    """Return a state's depth and width, and the inputs' width, from static shapes."""
    shape = tf.convert_to_tensor(input_h).shape
    known = shape.as_list() if shape.rank == 3 else [None] * 3
    depth, width = known[0 if time_major else 1], known[2]
    features = _last_size(inputs)
    if depth is None or width is None or features is None:
        raise ValueError(
            "Expecting known sizes of input_h [num_layers * num_dirs, batch, num_units] and of inputs' last "
            f"dimension, got {shape} and {tf.convert_to_tensor(inputs).shape}"
        )
    return depth, width, features


def _run_blob(
    rnn_mode: str,
    inputs: Any,
    input_h: Any,
    input_c: Any,
    params: Any,
    is_training: Any,
    sequence_lengths: Any = None,
    time_major: bool = True,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: int | None = 0,
    num_proj: int | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    check_direction(direction)
    depth, width, features = _read_sizes(inputs, input_h, time_major)
    layers = depth // (1 + _DIRECTIONS.index(direction))
    units = (_last_size(input_c) if num_proj else None) or width
    sizes = sizes_of(rnn_mode, layers, units, features, input_mode, direction, num_proj)
    x, h, c, blob = (tf.convert_to_tensor(value) for value in (inputs, input_h, input_c, params))
    return branches.recurrence(
        x, h, c, blob, sizes,
        lengths=sequence_lengths, time_major=time_major, training=is_training, dropout=dropout, seed=seed,
        name=name,
    )  # fmt: skip


def cudnn_lstm(
    inputs: Any, input_h: Any, input_c: Any, params: Any, is_training: Any, *rest: Any, **named: Any
) -> tuple[Any, Any, Any]:
    """Run an LSTM on the 1-D blob `params`: `(outputs, output_h, output_c)`.

    inputs `[time, batch, inputs]`, states `[layers*directions, batch, units]`, or with the batch first if
    not `time_major`. More arguments, in order: sequence_lengths, time_major, input_mode, direction, dropout,
    seed, num_proj, name. Raises ValueError for a wrong one.
    """
    return _run_blob(CUDNN_LSTM, inputs, input_h, input_c, params, is_training, *rest, **named)


def cudnn_gru(
    inputs: Any,
    input_h: Any,
    params: Any,
    is_training: Any,
    sequence_lengths: Any = None,
    time_major: bool = True,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: int | None = 0,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Run a GRU on the 1-D blob `params`: `(outputs, output_h)`. Shapes and errors as `cudnn_lstm`."""
    return _run_without_c(
        CUDNN_GRU, inputs, input_h, params, is_training,
        sequence_lengths=sequence_lengths, time_major=time_major, input_mode=input_mode,
        direction=direction, dropout=dropout, seed=seed, name=name,
    )  # fmt: skip


def _run_without_c(
    rnn_mode: str,
    inputs: Any,
    input_h: Any,
    params: Any,
    is_training: Any,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: int | None = 0,
    sequence_lengths: Any = None,
    time_major: bool = True,
    name: str | None = None,
) -> tuple[Any, Any]:
    h = tf.convert_to_tensor(input_h)
    empty = tf.constant([], h.dtype)
    y, h, _ = _run_blob(
        rnn_mode, inputs, h, empty, params, is_training,
        sequence_lengths=sequence_lengths, time_major=time_major, input_mode=input_mode,
        direction=direction, dropout=dropout, seed=seed, name=name,
    )  # fmt: skip
    return y, h


def cudnn_rnn_relu(inputs: Any, input_h: Any, params: Any, is_training: Any, *rest: Any, **named: Any) -> Any:
    """Run a relu RNN on the 1-D blob `params`: `(outputs, output_h)`.

    Shapes and errors as `cudnn_lstm`. More arguments, in order: input_mode, direction, dropout, seed,
    sequence_lengths, time_major, name.
    """
    return _run_without_c(CUDNN_RNN_RELU, inputs, input_h, params, is_training, *rest, **named)


def cudnn_rnn_tanh(inputs: Any, input_h: Any, params: Any, is_training: Any, *rest: Any, **named: Any) -> Any:
    """Run a tanh RNN on the 1-D blob `params`; see `cudnn_rnn_relu`."""
    return _run_without_c(CUDNN_RNN_TANH, inputs, input_h, params, is_training, *rest, **named)


def cudnn_rnn_opaque_params_to_canonical(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    params: Any,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return cuDNN's matrices `[units, inputs]` and biases `[units]` of the 1-D blob, in order.

    The order is the blob's. `dropout` and `seed` change nothing. Raises ValueError for a wrong mode,
    direction or input mode.
    """
    sizes = sizes_of(rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj)
    with tf.name_scope(name or "CudnnRNNParamsToCanonical"):
        return parameters.split(tf.convert_to_tensor(params), sizes)


def cudnn_rnn_canonical_to_opaque_params(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    weights: Sequence[Any],
    biases: Sequence[Any],
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,
) -> Any:
    """Return the 1-D blob of cuDNN's matrices and biases; see `cudnn_rnn_opaque_params_to_canonical`."""
    sizes = sizes_of(rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj)
    with tf.name_scope(name or "CudnnRNNCanonicalToParams"):
        return parameters.join(weights, biases, sizes)


def cudnn_rnn_opaque_params_size(
    rnn_mode: str,
    num_layers: int,
    num_units: int,
    input_size: int,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dtype: Any = tf.float32,
    dropout: float = 0.0,
    seed: int = 0,
    num_proj: int | None = None,
    name: str | None = None,
) -> Any:
    """Return the number of values of the blob, an int32 scalar tensor.

    `dtype`, `dropout`, `seed` change nothing.
    """
    sizes = sizes_of(rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj)
    return tf.constant(parameter_blob.length(sizes), tf.int32, name=name or "CudnnRNNParamsSize")


class _CudnnRNN:
    """A recurrence with the blob in a variable of the caller; a subclass per mode."""

    _rnn_mode: ClassVar[str]

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_size: int,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
        dtype: Any = tf.float32,
        dropout: float = 0.0,
        seed: int = 0,
        num_proj: int | None = None,
    ) -> None:
        """Take a recurrence's sizes and dropout. Raises ValueError for wrong values."""
        self._sizes = sizes_of(
            self._rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj
        )
        self.num_layers, self.num_units, self.input_size = num_layers, num_units, input_size
        self.rnn_mode, self.input_mode, self.direction = self._rnn_mode, input_mode, direction
        self.num_proj = num_proj
        self._dropout, self._seed = dropout, seed

    def params_size(self) -> Any:
        """Return the number of values of the blob, an int32 scalar tensor."""
        return tf.constant(parameter_blob.length(self._sizes), tf.int32, name="CudnnRNNParamsSize")

    def params_to_canonical(self, params: Any) -> tuple[list[Any], list[Any]]:
        """Return cuDNN's matrices and biases of the 1-D blob, in the blob's order."""
        return parameters.split(tf.convert_to_tensor(params), self._sizes)

    def canonical_to_params(self, weights: Sequence[Any], biases: Sequence[Any]) -> Any:
        """Return the 1-D blob of cuDNN's matrices and biases."""
        return parameters.join(weights, biases, self._sizes)

    def _run(self, x: Any, h: Any, c: Any, params: Any, lengths: Any, time_major: bool, training: Any) -> Any:
        x, h, c, params = (tf.convert_to_tensor(value) for value in (x, h, c, params))
        return branches.recurrence(
            x, h, c, params, self._sizes,
            lengths=lengths, time_major=time_major, training=training, dropout=self._dropout, seed=self._seed,
        )  # fmt: skip


class CudnnLSTM(_CudnnRNN):
    """An LSTM on a blob."""

    _rnn_mode = CUDNN_LSTM

    def __call__(
        self,
        input_data: Any,
        input_h: Any,
        input_c: Any,
        params: Any,
        sequence_lengths: Any = None,
        time_major: bool = True,
        is_training: Any = True,
    ) -> tuple[Any, Any, Any]:
        """Return `(output, output_h, output_c)`; shapes as `cudnn_lstm`."""
        y, h, c = self._run(input_data, input_h, input_c, params, sequence_lengths, time_major, is_training)
        return y, h, c


class _WithoutC(_CudnnRNN):
    def __call__(
        self,
        input_data: Any,
        input_h: Any,
        params: Any,
        sequence_lengths: Any = None,
        time_major: bool = True,
        is_training: Any = True,
    ) -> tuple[Any, Any]:
        """Return `(output, output_h)`; shapes as `cudnn_lstm`."""
        empty = tf.constant([], tf.convert_to_tensor(input_h).dtype)
        y, h, _ = self._run(input_data, input_h, empty, params, sequence_lengths, time_major, is_training)
        return y, h


class CudnnGRU(_WithoutC):
    """A GRU on a blob."""

    _rnn_mode = CUDNN_GRU


class CudnnRNNTanh(_WithoutC):
    """A tanh RNN on a blob."""

    _rnn_mode = CUDNN_RNN_TANH


class CudnnRNNRelu(_WithoutC):
    """A relu RNN on a blob."""

    _rnn_mode = CUDNN_RNN_RELU
