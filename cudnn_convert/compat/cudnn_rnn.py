"""The layers of `tf.contrib.cudnn_rnn`, and `install` for unchangeable code.

import tensorflow.compat.v1 as tf
from cudnn_convert.compat import cudnn_rnn

outputs, (h, c) = cudnn_rnn.CudnnLSTM(2, 128, direction="bidirectional")(inputs, training=True)

A layer has one variable, `<scope>/opaque_kernel`. A Saver without `var_list` also writes the variables of the
CPU cells (`CudnnCompatibleLSTMCell` and others) under the scope in which the layer was built, and restores
the blob from them, as TensorFlow 1.15 does. A recurrence is built for the GPU or the CPU: see `branches`.
Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/layers/cudnn_rnn.py.
"""

import sys
from typing import Any, ClassVar, Final

import tensorflow as tf

from cudnn_convert.compat import branches, contrib, cudnn_rnn_ops, parameters, rnn
from cudnn_convert.compat.branches import build_for
from cudnn_convert.compat.cells import (
    CudnnCompatibleGRUCell,
    CudnnCompatibleLSTMCell,
    LSTMBlockCell,
    LSTMBlockFusedCell,
    TimeReversedFusedRNN,
)
from cudnn_convert.compat.cudnn_rnn_ops import (
    CUDNN_GRU,
    CUDNN_GRU_PARAMS_PER_LAYER,
    CUDNN_INPUT_AUTO_MODE,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_INPUT_SKIP_MODE,
    CUDNN_LSTM,
    CUDNN_LSTM_PARAMS_PER_LAYER,
    CUDNN_RNN_BIDIRECTION,
    CUDNN_RNN_RELU,
    CUDNN_RNN_RELU_PARAMS_PER_LAYER,
    CUDNN_RNN_TANH,
    CUDNN_RNN_TANH_PARAMS_PER_LAYER,
    CUDNN_RNN_UNIDIRECTION,
    CudnnGRUSaveable,
    CudnnLSTMSaveable,
    CudnnOpaqueParamsSaveable,
    CudnnParamsFormatConverterGRU,
    CudnnParamsFormatConverterLSTM,
    CudnnParamsFormatConverterRelu,
    CudnnParamsFormatConverterTanh,
    CudnnRNNReluSaveable,
    CudnnRNNTanhSaveable,
)
from cudnn_convert.compat.rnn import stack_bidirectional_dynamic_rnn
from cudnn_convert.model import Mode, Sizes
from cudnn_convert.private import keras_private

__all__ = [
    "CUDNN_GRU",
    "CUDNN_GRU_PARAMS_PER_LAYER",
    "CUDNN_INPUT_AUTO_MODE",
    "CUDNN_INPUT_LINEAR_MODE",
    "CUDNN_INPUT_SKIP_MODE",
    "CUDNN_LSTM",
    "CUDNN_LSTM_PARAMS_PER_LAYER",
    "CUDNN_RNN_BIDIRECTION",
    "CUDNN_RNN_RELU",
    "CUDNN_RNN_RELU_PARAMS_PER_LAYER",
    "CUDNN_RNN_TANH",
    "CUDNN_RNN_TANH_PARAMS_PER_LAYER",
    "CUDNN_RNN_UNIDIRECTION",
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnGRUSaveable",
    "CudnnLSTM",
    "CudnnLSTMSaveable",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNRelu",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanh",
    "CudnnRNNTanhSaveable",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "TimeReversedFusedRNN",
    "build_for",
    "install",
    "stack_bidirectional_dynamic_rnn",
]

_, _layers = keras_private.legacy_namespaces()
_DTYPES: Final = (tf.float16, tf.float32, tf.float64)


class _CudnnRNN(keras_private.legacy_layer()):  # type: ignore[misc]
    """A stack of recurrent layers with a single parameter blob; a subclass per mode."""

    _rnn_mode: ClassVar[str]
    _saveable_cls: ClassVar[type[CudnnOpaqueParamsSaveable]]
    built: bool

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: Any = tf.float32,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
    ) -> None:
        """Take the sizes; variables are made by the first call, or by `build`.

        `dropout` is a rate, between layers. Initializers are called for each of cuDNN's matrices
        `[units, inputs]` and biases `[units]`; by default Glorot uniform, and zeros. `name` is the default
        scope, else the class's in snake case. Raises ValueError for a wrong direction, input mode or dtype.
        """
        super().__init__(dtype=dtype, name=name)
        cudnn_rnn_ops.check_direction(direction)
        cudnn_rnn_ops.check_input_mode(input_mode)
        if dtype not in _DTYPES:
            raise ValueError(f"Only support float16, float32, float64, provided {dtype}")
        self._plain_dtype = tf.as_dtype(dtype)
        self._num_layers, self._num_units = num_layers, num_units
        self._input_mode, self._direction = input_mode, direction
        self._dropout, self._seed = dropout, seed
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer
        self._sizes: Sizes | None = None
        self._saveable: CudnnOpaqueParamsSaveable | None = None

    @property
    def num_layers(self) -> int:
        return self._num_layers

    @property
    def num_units(self) -> int:
        return self._num_units

    @property
    def input_mode(self) -> str:
        return self._input_mode

    @property
    def input_size(self) -> int:
        """The width of the inputs. Raises ValueError before the layer is built."""
        if self._sizes is None:
            raise ValueError("'input_size' is unknown since layer has not been built.")
        return self._sizes.input_size

    @property
    def rnn_mode(self) -> str:
        return self._rnn_mode

    @property
    def direction(self) -> str:
        return self._direction

    @property
    def num_dirs(self) -> int:
        return 1 if self._direction == CUDNN_RNN_UNIDIRECTION else 2

    @property
    def saveable(self) -> CudnnOpaqueParamsSaveable | None:
        return self._saveable

    @property
    def canonical_weight_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of cuDNN's matrices, in the blob's order. Raises RuntimeError before `build`."""
        return [shape for _, shape in parameters.regions(self._require_sizes("canonical_weight_shapes"))[0]]

    @property
    def canonical_bias_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of cuDNN's biases, in the blob's order. Raises RuntimeError before `build`."""
        return [shape for _, shape in parameters.regions(self._require_sizes("canonical_bias_shapes"))[1]]

    def _require_sizes(self, asked: str) -> Sizes:
        if self._sizes is None:
            raise RuntimeError(f"{type(self).__name__}.{asked} invoked before input shape is known")
        return self._sizes

    def build(self, input_shape: Any) -> None:
        """Make the variable and the saveable, for inputs `[time, batch, inputs]`.

        Called before the layer itself it leaves the layer's scope out of the canonical keys. Raises
        ValueError for another rank, or where the last dimension is unknown.
        """
        if self.built:
            return
        shape = tf.TensorShape(input_shape)
        if shape.rank != 3:
            raise ValueError(f"Expecting input_shape with 3 dims, got {shape.rank}")
        inputs = shape.as_list()[-1]
        if inputs is None:
            raise ValueError(
                "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`."
            )
        sizes = cudnn_rnn_ops.sizes_of(
            self._rnn_mode, self._num_layers, self._num_units, inputs, self._input_mode, self._direction
        )
        if sizes.skip_input:
            # TensorFlow 1.15 ends the process here: its saveable has no keys for a layer without kernel.
            raise ValueError(
                f"Invalid input_mode: {self._input_mode}, expecting linear_input for a layer with input_size "
                "== num_units; cudnn_rnn_ops has classes for skip_input"
            )
        self._sizes = sizes
        self.input_spec = _layers.InputSpec(ndim=3, axes={-1: inputs})
        self._set_scope(None)
        with tf.compat.v1.variable_scope(self._scope, custom_getter=self._track):
            self.kernel = tf.compat.v1.get_variable(
                "opaque_kernel",
                dtype=self._plain_dtype,
                initializer=self._initial_blob(sizes),
                validate_shape=False,
            )
        # In the scope around the layer's, where cells without a scope of their own look for their variables.
        if tf.compat.v1.get_variable_scope().reuse is not True:
            self._create_saveable()
        self.built = True

    def _initial_blob(self, sizes: Sizes) -> Any:
        kernel = self._kernel_initializer or tf.compat.v1.glorot_uniform_initializer(seed=self._seed)
        bias = self._bias_initializer or tf.compat.v1.zeros_initializer()
        matrices, biases = (
            [initializer(shape, dtype=self._plain_dtype) for shape in shapes]
            for initializer, shapes in (
                (kernel, self.canonical_weight_shapes),
                (bias, self.canonical_bias_shapes),
            )
        )
        with tf.name_scope("CudnnRNNCanonicalToParams"):
            return parameters.join(matrices, biases, sizes)

    def _track(self, getter: Any, *args: Any, **named: Any) -> Any:
        """Get a variable as a custom getter, and add the variable to the layer."""
        variable = getter(*args, **named)
        own = self._trainable_weights if named.get("trainable", True) else self._non_trainable_weights
        if all(variable is not other for other in own):
            own.append(variable)
        return variable

    def _create_saveable(self) -> None:
        assert self._sizes is not None
        if self._saveable is not None:
            raise RuntimeError("Cudnn saveable already created.")
        self._saveable = self._saveable_cls(
            opaque_params=self.kernel,
            num_layers=self._num_layers,
            num_units=self._num_units,
            input_size=self._sizes.input_size,
            direction=self._direction,
            scope=tf.compat.v1.get_variable_scope(),
            name=f"{self.kernel.name.split(':')[0]}_saveable",
        )
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, self._saveable)

    def _gather_saveables_for_checkpoint(self) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}: tf.train.Checkpoint is not supported, use tf.compat.v1.train.Saver"
        )

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(
        self,
        inputs: Any,
        initial_state: tuple[Any, ...] | None = None,
        sequence_lengths: Any = None,
        time_major: bool = True,
        training: Any = True,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return `(outputs, states)`: outputs `[time, batch, directions*units]`, a state `(h, c)` or `(h,)`.

        inputs `[time, batch, inputs]`; states `[layers*directions, batch, units]`, zeros if not given; all
        with the batch first if not `time_major`. `sequence_lengths` int32 `[batch]`: steps past a row's are
        zero, and states are those of its last step. `training` may be a bool tensor. Raises TypeError for a
        state that is no tuple, ValueError for one of another size.
        """
        if initial_state is not None and not isinstance(initial_state, tuple):
            raise TypeError(f"Invalid initial_state type: {type(initial_state).__name__}, expecting tuple.")
        assert self._sizes is not None
        x = tf.convert_to_tensor(inputs, self._plain_dtype)
        if initial_state is None:
            initial_state = self._zero_state(tf.shape(x)[1 if time_major else 0], time_major=time_major)
        count = 2 if self._sizes.mode is Mode.LSTM else 1
        if len(initial_state) != count:
            raise ValueError(f"Invalid initial_state: expecting {count} tensors, got {len(initial_state)}")
        _check_lengths(sequence_lengths, x, time_major=time_major)
        # What computes without a cell state takes an empty one.
        empty = tf.constant([], x.dtype)
        h, c, *_ = *(tf.convert_to_tensor(s, self._plain_dtype) for s in initial_state), empty
        y, h, c = branches.recurrence(
            x, h, c, tf.convert_to_tensor(self.kernel), self._sizes,
            lengths=sequence_lengths, time_major=time_major, training=training, dropout=self._dropout,
            seed=self._seed,
        )  # fmt: skip
        return y, (h, c)[:count]

    def state_shape(self, batch_size: Any) -> tuple[list[Any], ...]:
        """Return the time-major state shapes: two for an LSTM, else a single shape."""
        shape = [self.num_layers * self.num_dirs, batch_size, self.num_units]
        return (shape, list(shape)) if self._rnn_mode == CUDNN_LSTM else (shape,)

    def _zero_state(self, batch_size: Any, *, time_major: bool) -> tuple[Any, ...]:
        shapes = [shape if time_major else [shape[1], shape[0], shape[2]] for shape in
                  self.state_shape(batch_size)]  # fmt: skip
        return tuple(tf.zeros(tf.stack(shape), self._plain_dtype) for shape in shapes)


def _check_lengths(lengths: Any, x: Any, *, time_major: bool) -> None:
    """Raise ValueError if known sizes contradict a single length for each row."""
    if lengths is None:
        return
    rows = x.shape.as_list()[1 if time_major else 0]
    shape = tf.convert_to_tensor(lengths).shape
    count = shape.as_list()[0] if shape.rank == 1 else None
    if None in (rows, count) or rows == count:
        return
    major = "time-major" if time_major else "batch-major"
    cure = (
        "transpose the input to [steps, batch, features], or call with time_major=False"
        if time_major
        else "call without time_major=False for an input [steps, batch, features]"
    )
    raise ValueError(
        f"Invalid sequence_lengths: expecting one for each of {rows} rows of a {major} input, got {count}; "
        f"{cure}"
    )


class CudnnLSTM(_CudnnRNN):
    """LSTM layers; the state is `(h, c)`."""

    _rnn_mode = CUDNN_LSTM
    _saveable_cls = CudnnLSTMSaveable


class CudnnGRU(_CudnnRNN):
    """GRU layers, the reset gate after the recurrent product; the state is `(h,)`."""

    _rnn_mode = CUDNN_GRU
    _saveable_cls = CudnnGRUSaveable


class CudnnRNNTanh(_CudnnRNN):
    """Plain recurrent layers with tanh; the state is `(h,)`."""

    _rnn_mode = CUDNN_RNN_TANH
    _saveable_cls = CudnnRNNTanhSaveable


class CudnnRNNRelu(_CudnnRNN):
    """Plain recurrent layers with relu; the state is `(h,)`."""

    _rnn_mode = CUDNN_RNN_RELU
    _saveable_cls = CudnnRNNReluSaveable


def install() -> None:
    """Put the layers at `tf.contrib` of `tensorflow` and `tensorflow.compat.v1`, for unchanged code.

    `tf.contrib.cudnn_rnn` and `tf.contrib.rnn` are there then, also for `import tensorflow.contrib.rnn`; any
    other part raises NotImplementedError when it is used. Where TensorFlow uses Keras 3, `tf.layers` and
    `tf.nn.rnn_cell` of `tensorflow.compat.v1` become tf_keras', which Keras 3 has not. May be called again.
    """
    layers = sys.modules[__name__]
    contrib.install(
        {
            "cudnn_rnn": layers,
            "cudnn_rnn.python.ops.cudnn_rnn_ops": cudnn_rnn_ops,
            "cudnn_rnn.python.layers.cudnn_rnn": layers,
            "rnn": rnn,
            "rnn.python.ops.rnn": rnn,
            "rnn.python.ops.lstm_ops": rnn,
            "rnn.python.ops.fused_rnn_cell": rnn,
        }
    )
