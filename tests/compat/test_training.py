"""The drop-in trains as plain Keras layers do: 20 steps from the same weights, on one and two devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.compat import cudnn_rnn

v1 = tf.compat.v1
STEPS, TIME, BATCH, INPUTS, UNITS, CLASSES = 20, 7, 6, 4, 5, 3
RATE: Final = 0.02
#: Rounding of 20 steps, in which both sides sum in another order.
BOUND: Final = 5e-5
Build = Callable[[str, int, int], tuple[Any, Any]]
LAYERS: Final = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU, "rnn_tanh": cudnn_rnn.CudnnRNNTanh}


def draw() -> tuple[np.ndarray, np.ndarray]:
    """x [time, batch, inputs] and a class for each step [time, batch], which x decides."""
    random = np.random.default_rng(8)
    x = random.normal(size=(TIME, BATCH, INPUTS)).astype(np.float32)
    return x, np.argmax(np.cumsum(x, axis=0)[:, :, :CLASSES], axis=2)


def scores(mode: str, layers: int, x: Any) -> Any:
    biases = v1.random_uniform_initializer(-0.5, 0.5, seed=5)
    layer = LAYERS[mode](
        layers, UNITS, direction="bidirectional", seed=3, bias_initializer=biases, name="layer"
    )
    y, _ = layer(x, training=True)
    kernel = v1.get_variable("kernel", [2 * UNITS, CLASSES], initializer=v1.glorot_uniform_initializer(1))
    return tf.tensordot(y, kernel, 1) + v1.get_variable("bias", [CLASSES], initializer=v1.zeros_initializer())


def loss_of(logits: Any, labels: Any) -> Any:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def towers(mode: str, layers: int, devices: int) -> tuple[Any, Any]:
    """The mean loss, and a step of Adam on the mean of the towers' gradients, as TensorFlow 1 code has it."""
    x, labels = draw()
    optimizer, losses, gradients = v1.train.AdamOptimizer(RATE), [], []
    parts = zip(np.split(x, devices, axis=1), np.split(labels, devices, axis=1), strict=True)
    for number, (inputs, wanted) in enumerate(parts):
        with tf.device(f"/cpu:{number}"), v1.variable_scope("model", reuse=number > 0):
            losses.append(loss_of(scores(mode, layers, tf.constant(inputs)), wanted))
            gradients.append(optimizer.compute_gradients(losses[-1]))
    mean = [
        (tf.add_n([gradient for gradient, _ in pairs]) / devices, pairs[0][1])
        for pairs in zip(*gradients, strict=True)
    ]
    return tf.add_n(losses) / devices, optimizer.apply_gradients(mean)


def replicas(mode: str, layers: int, devices: int) -> tuple[Any, Any]:
    """The same of tf.distribute, each replica with its share of the batch."""
    x, labels = draw()
    shares = list(zip(np.split(x, devices, axis=1), np.split(labels, devices, axis=1), strict=True))
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{number}" for number in range(devices)])

    def step() -> tuple[Any, Any]:
        context = tf.distribute.get_replica_context()
        number = context.replica_id_in_sync_group
        known = number if isinstance(number, int) else int(tf.get_static_value(number))
        inputs, wanted = shares[known]
        with v1.variable_scope("model"):
            loss = loss_of(scores(mode, layers, tf.constant(inputs)), wanted)
        return loss, v1.train.AdamOptimizer(RATE).minimize(loss / devices)

    with strategy.scope():
        losses, updates = strategy.run(step)
        mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
    return mean, tf.group(strategy.experimental_local_results(updates))


def train(mode: str, layers: int, devices: int, build: Build, prefix: Path) -> list[float]:
    """The losses of 20 steps; `prefix` gets the weights before the first."""
    with tf.Graph().as_default():
        loss, update = build(mode, layers, devices)
        config = v1.ConfigProto(device_count={"CPU": devices}, allow_soft_placement=False)
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(prefix), write_meta_graph=False)
            return [float(session.run([loss, update])[0]) for _ in range(STEPS)]


def read_keras(mode: str, prefix: Path, inputs: int, layer: int) -> list[np.ndarray]:
    """The weights of one bidirectional Keras layer from canonical tensors, by hand."""
    reader, found = tf.train.load_checkpoint(str(prefix)), []
    cell = {"lstm": "cudnn_compatible_lstm_cell", "gru": "cudnn_compatible_gru_cell"}.get(
        mode, "basic_rnn_cell"
    )
    for way in ("fw", "bw"):
        scope = f"model/layer/stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/{cell}/"

        def read(key: str, scope: str = scope) -> np.ndarray:
            return np.asarray(reader.get_tensor(scope + key))

        if mode == "gru":
            reset, update = np.split(read("gates/kernel"), 2, axis=1)
            kernel = [update[:inputs], reset[:inputs], read("candidate/input_projection/kernel")]
            recurrent = [update[inputs:], reset[inputs:], read("candidate/hidden_projection/kernel")]
            reset_bias, update_bias = np.split(read("gates/bias") / 2, 2)
            both = [update_bias, reset_bias]
            biases = [
                np.concatenate([*both, read("candidate/input_projection/bias")]),
                np.concatenate([*both, read("candidate/hidden_projection/bias")]),
            ]
            found += [np.concatenate(kernel, 1), np.concatenate(recurrent, 1), np.stack(biases)]
            continue
        kernel_and_bias = [
            np.split(read(key), 4 if mode == "lstm" else 1, axis=-1) for key in ("kernel", "bias")
        ]
        order = [0, 2, 1, 3] if mode == "lstm" else [0]  # i, c, f, o of TensorFlow 1 as i, f, c, o
        kernel, bias = (np.concatenate([parts[gate] for gate in order], -1) for parts in kernel_and_bias)
        found += [kernel[:inputs], kernel[inputs:], bias]
    return found


def train_keras(mode: str, count: int, prefix: Path) -> list[float]:
    """The losses of 20 steps of plain Keras layers, from the weights of a checkpoint."""
    classes = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn_tanh": keras.layers.SimpleRNN}
    inputs = keras.layers.InputLayer([TIME, INPUTS])
    layers = [keras.layers.Bidirectional(classes[mode](UNITS, return_sequences=True)) for _ in range(count)]
    dense = keras.layers.Dense(CLASSES)
    model = keras.Sequential([inputs, *layers, dense])
    for number, layer in enumerate(layers):
        layer.set_weights(read_keras(mode, prefix, INPUTS if number == 0 else 2 * UNITS, number))
    reader = tf.train.load_checkpoint(str(prefix))
    dense.set_weights([reader.get_tensor(f"model/{key}") for key in ("kernel", "bias")])
    optimizer = keras.optimizers.Adam(RATE, epsilon=1e-8)
    x, labels = (value.swapaxes(0, 1) for value in draw())
    # cuDNN has two biases of a gate, with equal gradients: their sum, the one bias here, moves twice as far.
    summed = (
        [] if mode == "gru" else [weight for layer in layers for weight in layer.weights if weight.ndim == 1]
    )

    @tf.function
    def step() -> Any:
        before = [tf.identity(bias.value) for bias in summed]
        with tf.GradientTape() as tape:
            loss = loss_of(model(x, training=True), labels)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [weight.value for weight in weights]), weights)
        for bias, old in zip(summed, before, strict=True):
            bias.assign(2 * bias.value - old)
        return loss

    optimizer.build(model.trainable_variables)
    return [float(step()) for _ in range(STEPS)]


@pytest.mark.parametrize(
    ("mode", "layers", "devices", "build"),
    [
        pytest.param("lstm", 1, 2, towers, id="lstm-two_towers"),
        pytest.param("lstm", 2, 2, towers, id="lstm-2-two_towers", marks=pytest.mark.every),
        pytest.param("gru", 2, 1, towers, id="gru-2-one", marks=pytest.mark.every),
        pytest.param("lstm", 2, 1, towers, id="lstm-2-one", marks=pytest.mark.every),
        pytest.param("gru", 2, 2, towers, id="gru-2-two_towers", marks=pytest.mark.every),
        pytest.param("rnn_tanh", 2, 2, towers, id="tanh-2-two_towers", marks=pytest.mark.every),
        pytest.param("gru", 2, 2, replicas, id="gru-2-two_replicas", marks=pytest.mark.every),
    ],
)
def test_losses_fall_as_those_of_plain_keras_layers(
    tmp_path: Path, mode: str, layers: int, devices: int, build: Build
) -> None:
    losses = train(mode, layers, devices, build, tmp_path / "model.ckpt")
    twin = train_keras(mode, layers, tmp_path / "model.ckpt")
    assert losses[-1] < 0.7 * losses[0]
    np.testing.assert_allclose(losses, twin, rtol=BOUND, atol=BOUND)
