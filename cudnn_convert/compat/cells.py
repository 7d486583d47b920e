"""TensorFlow 1's fused LSTM cells, and the CPU cells of cuDNN's layers.

Cells are those of `tf.nn.rnn_cell`, from tf_keras, so that `MultiRNNCell` and `dynamic_rnn` take them; scopes
and variables are TensorFlow 1.15's.
Source: tensorflow v1.15.0 contrib/rnn/python/ops/lstm_ops.py, contrib/rnn/python/ops/fused_rnn_cell.py,
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py.
"""

import contextlib
from typing import Any

import tensorflow as tf

from cudnn_convert.lower.tensorflow.while_loop import at_end, backwards
from cudnn_convert.private import keras_private

LSTMStateTuple = keras_private.legacy_cells().LSTMStateTuple

#: No clip: the ops' own default is 3. Source: tensorflow v2.21.0 core/ops/rnn_ops.cc.
_NO_CLIP = -1.0


def _read_size(shape: Any, axis: int) -> int:
    size = tf.TensorShape(shape).as_list()[axis]
    if size is None:
        shape = tf.TensorShape(shape)
        if axis == -1:
            raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {shape}")
        raise ValueError(f"Expecting inputs_shape[{axis}] to be set: {shape}")
    return int(size)


class _CellWeights:
    """The variables of both fused LSTMs, in the scope of the layer."""

    def _make_weights(self: Any, inputs: int) -> None:
        units = self._num_units
        self._kernel = self.add_weight("kernel", [inputs + units, 4 * units])
        self._bias = self.add_weight("bias", [4 * units], initializer=tf.compat.v1.zeros_initializer())
        names = ["w_i_diag", "w_f_diag", "w_o_diag"] if self._use_peephole else []
        self._diagonals = [self.add_weight(name, [units]) for name in names]
        self.built = True

    def _arguments(self: Any, dtype: Any) -> dict[str, Any]:
        """Return the arguments common to both ops."""
        peepholes = self._diagonals or [tf.zeros([self._num_units], dtype)] * 3
        return {
            "w": tf.convert_to_tensor(self._kernel),
            "b": tf.convert_to_tensor(self._bias),
            **dict(zip(("wci", "wcf", "wco"), map(tf.convert_to_tensor, peepholes), strict=True)),
            "forget_bias": float(self._forget_bias),
            "cell_clip": _NO_CLIP if self._cell_clip is None else float(self._cell_clip),
            "use_peephole": self._use_peephole,
        }


class LSTMBlockCell(_CellWeights, keras_private.legacy_cells().LayerRNNCell):  # type: ignore[misc]
    """An LSTM cell in a single op; gates i, c, f, o.

    The forget bias is 1 unless another is given.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: bool | None = None,
        name: str | None = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self._num_units, self._forget_bias = num_units, forget_bias
        self._cell_clip, self._use_peephole = cell_clip, use_peephole

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Make the variables. Raises ValueError where the last dimension is unknown."""
        self._make_weights(_read_size(inputs_shape, 1))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Run a step: inputs `[batch, inputs]`, state `(c, h)`, each `[batch, units]`."""
        if len(state) != 2:
            raise ValueError("Expecting state to be a tuple with length 2.")
        results = tf.raw_ops.LSTMBlockCell(
            x=inputs, cs_prev=state[0], h_prev=state[1], **self._arguments(inputs.dtype)
        )
        return results.h, LSTMStateTuple(results.cs, results.h)


def _lstm_block_cell_gradient(op: Any, *gradients: Any) -> tuple[Any, ...]:
    """Return the gradient of LSTMBlockCell, removed from TensorFlow with contrib.

    Its kernel has stayed.
    """
    x, cs_prev, h_prev, w, wci, wcf, wco, b = op.inputs
    names = ("i", "cs", "f", "o", "ci", "co")
    results = tf.raw_ops.LSTMBlockCellGrad(
        x=x, cs_prev=cs_prev, h_prev=h_prev, w=w, wci=wci, wcf=wcf, wco=wco, b=b,
        **dict(zip(names, op.outputs, strict=False)),
        cs_grad=gradients[1], h_grad=gradients[6], use_peephole=op.get_attr("use_peephole"),
    )  # fmt: skip
    gates = results.dicfo
    both = tf.matmul(gates, w, transpose_b=True)
    width = tf.shape(x)[1]
    x_gradient, h_gradient = both[:, :width], both[:, width:]
    x_gradient.set_shape(x.shape)
    h_gradient.set_shape(h_prev.shape)
    w_gradient = tf.matmul(tf.concat([x, h_prev], 1), gates, transpose_a=True)
    peepholes = (results.wci_grad, results.wcf_grad, results.wco_grad)
    return x_gradient, results.cs_prev_grad, h_gradient, w_gradient, *peepholes, tf.reduce_sum(gates, 0)


with contextlib.suppress(KeyError):  # another library of contrib's ops has registered it
    tf.RegisterGradient("LSTMBlockCell")(_lstm_block_cell_gradient)


class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """A single step and direction of a CudnnLSTM on CPU, with the Saver's variables."""

    def __init__(self, num_units: int, reuse: bool | None = None) -> None:
        super().__init__(num_units, forget_bias=0.0, reuse=reuse, name="cudnn_compatible_lstm_cell")


class CudnnCompatibleGRUCell(keras_private.legacy_cells().GRUCell):  # type: ignore[misc]
    """A single step and direction of a CudnnGRU on CPU: reset gate after the product."""

    def __init__(self, num_units: int, reuse: bool | None = None, kernel_initializer: Any = None) -> None:
        super().__init__(num_units, reuse=reuse, kernel_initializer=kernel_initializer)

    def build(self, inputs_shape: Any) -> None:
        """Make the variables. Raises ValueError where the last dimension is unknown."""
        inputs, units = _read_size(inputs_shape, -1), self._num_units
        first = self._bias_initializer or tf.compat.v1.constant_initializer(1.0)
        other = self._bias_initializer or tf.compat.v1.zeros_initializer()

        def make(scope: str, rows: int, columns: int, bias_initializer: Any) -> tuple[Any, Any]:
            kernel = self.add_weight(f"{scope}/kernel", [rows, columns], initializer=self._kernel_initializer)
            return kernel, self.add_weight(f"{scope}/bias", [columns], initializer=bias_initializer)

        self._gates = make("gates", inputs + units, 2 * units, first)
        self._from_input = make("candidate/input_projection", inputs, units, other)
        self._from_state = make("candidate/hidden_projection", units, units, other)
        self.built = True

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Run a step: inputs `[batch, inputs]`, state `[batch, units]`."""

        def affine(x: Any, weights: tuple[Any, Any]) -> Any:
            return tf.nn.bias_add(tf.matmul(x, weights[0]), weights[1])

        gates = tf.sigmoid(affine(tf.concat([inputs, state], 1), self._gates))
        reset, update = tf.split(gates, 2, 1)
        candidate = affine(inputs, self._from_input) + reset * affine(state, self._from_state)
        new = (1 - update) * self._activation(candidate) + update * state
        return new, new


class FusedRNNCell:
    """A base of cells for all steps at once.

    A cell is called as `(inputs, initial_state, dtype, sequence_length, scope)`.
    """


class LSTMBlockFusedCell(_CellWeights, keras_private.legacy_layer(), FusedRNNCell):  # type: ignore[misc]
    """An LSTM over all steps in a single op; gates i, c, f, o.

    The forget bias is 1 unless another is given.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: Any = None,
        name: str | None = "lstm_fused_cell",
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units, self._forget_bias = num_units, forget_bias
        self._cell_clip, self._use_peephole = cell_clip, use_peephole

    @property
    def num_units(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Make the variables; a list of steps has a list of shapes.

        Raises ValueError where the last dimension is unknown.
        """
        shape, axis = (input_shape[0], 1) if isinstance(input_shape, list) else (input_shape, 2)
        self._make_weights(_read_size(shape, axis))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None
    ) -> tuple[Any, Any]:
        """Return outputs `[time, batch, units]` and final state `(c, h)`, each `[batch, units]`.

        inputs `[time, batch, inputs]`, or a list of steps, then outputs are a list too. Steps past a row's
        `sequence_length` `[batch]` are zero, and its final state is that of its last step. Raises ValueError
        without `initial_state` and `dtype`.
        """
        steps = list(inputs) if isinstance(inputs, list) else None
        x = tf.stack(steps) if steps is not None else inputs
        if initial_state is None and dtype is None:
            raise ValueError("Either initial_state or dtype needs to be specified")
        if initial_state is not None and len(initial_state) != 2:
            raise ValueError("Expecting initial_state to be a tuple with length 2 or None")
        if initial_state is None:
            initial_state = [tf.zeros(tf.stack([tf.shape(x)[1], self._num_units]), dtype)] * 2
        c0, h0 = initial_state
        time = tf.shape(x)[0]
        last = time if sequence_length is None else tf.reduce_max(sequence_length)
        results = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(last, tf.int64), x=x, cs_prev=c0, h_prev=h0, **self._arguments(x.dtype)
        )
        y, cells = results.h, results.cs
        if sequence_length is None:
            final = LSTMStateTuple(cells[-1], y[-1])
        else:
            alive = tf.transpose(tf.sequence_mask(sequence_length, time, y.dtype))[:, :, None]
            y *= alive
            lengths = tf.cast(sequence_length, tf.int32)
            final = LSTMStateTuple(at_end(c0, cells, lengths), at_end(h0, y, lengths))
        return (tf.unstack(y, len(steps)) if steps is not None else y), final


class FusedRNNCellAdaptor(FusedRNNCell):
    """A fused cell made of an RNNCell, by a loop or by unrolled steps."""

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._use_dynamic_rnn = cell, use_dynamic_rnn

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return outputs and final state; a list of steps gives a list."""
        listed = isinstance(inputs, list)
        named = {"sequence_length": sequence_length, "initial_state": initial_state, "dtype": dtype}
        if self._use_dynamic_rnn:
            x = tf.stack(inputs) if listed else inputs
            y, state = tf.compat.v1.nn.dynamic_rnn(self._cell, x, time_major=True, scope=scope, **named)
            return (tf.unstack(y, len(inputs)) if listed else y), state
        steps = inputs if listed else tf.unstack(inputs)
        y, state = tf.compat.v1.nn.static_rnn(self._cell, steps, scope=scope, **named)
        return (y if listed else tf.stack(y)), state


class TimeReversedFusedRNN(FusedRNNCell):
    """A fused cell run backwards in time, within each row's length."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return outputs in the order of the inputs, and the state after the first step."""

        def turn(x: Any) -> Any:
            return x[::-1] if isinstance(x, list) else backwards(x, sequence_length)

        y, state = self._cell(
            turn(inputs),
            initial_state=initial_state,
            dtype=dtype,
            sequence_length=sequence_length,
            scope=scope,
        )
        return turn(y), state
