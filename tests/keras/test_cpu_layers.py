"""cuDNN layers rewritten, wherever they stand: weights against hand-written NumPy, configs key by key."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.keras_files import cudnn, entry, model, sequential

from cudnn_convert.errors import ReadError
from cudnn_convert.keras import cpu_layers
from cudnn_convert.keras.config import classes

HERE = Path("model.h5")
RNG = np.random.default_rng(11)
DENSE = [("kernel:0", np.ones((5, 12), np.float32)), ("bias:0", np.ones(12, np.float32))]


def expected(listed: Any, gates: int) -> list[np.ndarray]:
    """FORMATS: a gate's block `[inputs, units]` holds cuDNN's `[units, inputs]` row after row."""
    kernel, recurrent, bias = (array for _, array in listed)
    units = recurrent.shape[0]
    made = []
    for packed in (kernel, recurrent):
        blocks = [packed[:, gate * units : (gate + 1) * units] for gate in range(gates)]
        made.append(np.concatenate([block.reshape(units, -1).T for block in blocks], axis=1))
    halves = bias.reshape(2, gates * units)
    return [*made, halves if gates == 3 else halves[0] + halves[1]]


def values(listed: Any) -> list[np.ndarray]:
    return [tensor.read() for _, tensor in listed]


@pytest.mark.parametrize(("kind", "gates", "inputs"), [("LSTM", 4, 5), ("GRU", 3, 7), ("LSTM", 4, 3)])
def test_weights_of_a_layer(kind: str, gates: int, inputs: int) -> None:
    stored = cudnn(RNG, gates, 3, inputs)
    source = model(sequential(entry(f"CuDNN{kind}", "fast", units=3)), {"fast": stored})
    made = cpu_layers.rewritten(HERE, source)
    assert made.layers == ("fast",)
    tensors = made.architecture.weights["fast"]
    assert [name for name, _ in tensors] == [name for name, _ in stored]
    for (_, tensor), wanted in zip(tensors, expected(stored, gates), strict=True):
        np.testing.assert_allclose(tensor.read(), wanted, rtol=1e-6)
        assert (tensor.shape, tensor.dtype) == (wanted.shape, wanted.dtype)
    assert values(source.weights["fast"])[0] is stored[0][1], "the source stays as it was"


def test_config_keeps_what_it_said_and_says_what_cudnn_is() -> None:
    kept = {
        "trainable": False,
        "dtype": "float32",
        "batch_input_shape": [2, None, 5],
        "return_sequences": True,
        "return_state": True,
        "go_backwards": True,
        "stateful": True,
        "units": 3,
        "kernel_initializer": {"class_name": "Mine", "config": {"a": 1}},
        "recurrent_regularizer": {"class_name": "L1L2", "config": {"l1": 0.5, "l2": 0.0}},
        "bias_constraint": {"class_name": "NonNeg", "config": {}},
    }
    for kind, more in (("LSTM", {}), ("GRU", {"reset_after": True})):
        config = sequential(entry(f"CuDNN{kind}", "fast", **kept))
        before = copy.deepcopy(config)
        stored = cudnn(RNG, 4 if kind == "LSTM" else 3, 3, 5)
        made = cpu_layers.rewritten(HERE, model(config, {"fast": stored})).architecture.config
        assert config == before
        (layer,) = made["config"]["layers"]
        assert layer == {
            "class_name": kind,
            "config": {
                "name": "fast",
                **kept,
                "activation": "tanh",
                "recurrent_activation": "sigmoid",
                "use_bias": True,
                "dropout": 0.0,
                "recurrent_dropout": 0.0,
                "implementation": 2,
                "unroll": False,
                **more,
            },
        }


def test_at_any_depth_and_in_both_directions() -> None:
    gru = entry("CuDNNGRU", "gru", units=4)
    inner = sequential(entry("Dense", "dense", units=12), entry("Bidirectional", "pair", layer=gru))
    inner["config"]["name"] = "inner"
    other = entry("CuDNNLSTM", "other", units=2)
    two = entry("Bidirectional", "two", layer=entry("CuDNNLSTM", "one", units=2), backward_layer=other)
    custom = entry("Mine", "mine", held=[entry("CuDNNLSTM", "below", units=6)])
    config = sequential(entry("TimeDistributed", "steps", layer=inner), two, custom)
    pair = [cudnn(RNG, 3, 4, 12, "forward/"), cudnn(RNG, 3, 4, 12, "backward/")]
    both = [cudnn(RNG, 4, 2, 8), cudnn(RNG, 4, 2, 8)]
    weights = {"steps": [*DENSE, *pair[0], *pair[1]], "two": [*both[0], *both[1]]}
    made = cpu_layers.rewritten(HERE, model(config, weights))
    assert made.layers == ("steps/inner/pair/gru", "two/one", "two/other")
    assert "CuDNN" not in str(made.architecture.config)
    found = values(made.architecture.weights["steps"])
    assert found[0] is DENSE[0][1] and found[1] is DENSE[1][1]
    wanted = [*expected(pair[0], 3), *expected(pair[1], 3)]
    for one, other_one in zip(found[2:], wanted, strict=True):
        np.testing.assert_allclose(one, other_one, rtol=1e-6)
    wanted = [*expected(both[0], 4), *expected(both[1], 4)]
    for one, other_one in zip(values(made.architecture.weights["two"]), wanted, strict=True):
        np.testing.assert_allclose(one, other_one, rtol=1e-6)


def test_plain_layers_stay_and_say_their_old_defaults() -> None:
    plain = entry("GRU", "slow", units=4, activation="relu")
    newer = entry("LSTM", "newer", units=4, recurrent_activation="sigmoid", implementation=1)
    stored = [("k", np.ones((5, 12))), ("r", np.ones((4, 12))), ("b", np.ones(12))]
    source = model(sequential(plain, newer), {"slow": stored})
    made = cpu_layers.rewritten(HERE, source).architecture
    slow, new = made.config["config"]["layers"]
    assert slow["config"]["reset_after"] is False
    assert slow["config"]["recurrent_activation"] == "hard_sigmoid"
    assert slow["config"]["activation"] == "relu"
    assert new["config"]["recurrent_activation"] == "sigmoid"
    assert new["config"]["implementation"] == 1
    assert made.weights["slow"] == source.weights["slow"]


def test_a_cpu_config_over_weights_of_a_cudnn_layer_is_converted_too() -> None:
    stored = cudnn(RNG, 4, 3, 5)
    config = sequential(entry("LSTM", "fast", units=3, activation="tanh", recurrent_activation="sigmoid"))
    made = cpu_layers.rewritten(HERE, model(config, {"fast": stored}))
    np.testing.assert_allclose(
        values(made.architecture.weights["fast"])[2], expected(stored, 4)[2], rtol=1e-6
    )
    hard = sequential(entry("LSTM", "fast", units=3, activation="tanh", recurrent_activation="hard_sigmoid"))
    with pytest.raises(
        ReadError, match=r"layer fast: expected the weights of no cuDNN layer, found the weights"
    ):
        cpu_layers.rewritten(HERE, model(hard, {"fast": stored}))
    old = sequential(entry("GRU", "fast", units=3, recurrent_activation="sigmoid", reset_after=False))
    with pytest.raises(ReadError):
        cpu_layers.rewritten(HERE, model(old, {"fast": cudnn(RNG, 3, 3, 5)}))


@pytest.mark.parametrize(
    ("kind", "gates", "units"), [("CuDNNLSTM", 3, 3), ("CuDNNLSTM", 4, 2), ("CuDNNGRU", 4, 3)]
)
def test_weights_that_are_not_the_layers(kind: str, gates: int, units: int) -> None:
    source = model(sequential(entry(kind, "fast", units=3)), {"fast": cudnn(RNG, gates, units, 5)})
    with pytest.raises(
        ReadError, match=r"^model.h5: layer fast: expected the weights of 1 x \w+ of 3 units, found"
    ):
        cpu_layers.rewritten(HERE, source)


def test_a_dtype_that_only_its_process_knew_is_said() -> None:
    stored = [(name, array.astype(np.float64)) for name, array in cudnn(RNG, 3, 4, 5)]
    config = sequential(entry("CuDNNGRU", "fast", units=4), entry("Dropout", "other", dtype="float32"))
    made = cpu_layers.rewritten(HERE, model(config, {"fast": stored})).architecture
    assert [one["config"]["dtype"] for one in made.config["config"]["layers"]] == ["float64", "float32"]
    single = cpu_layers.rewritten(HERE, model(config, {"fast": cudnn(RNG, 3, 4, 5)})).architecture
    assert "dtype" not in single.config["config"]["layers"][0]["config"]


def test_slots_take_one_half_of_the_bias() -> None:
    """The gradient of a sum is that of either of its parts: Adam keeps the same for both."""
    stored, both = cudnn(RNG, 4, 3, 5), RNG.normal(size=12).astype(np.float32)
    slots = [*stored[:2], ("m:0", np.concatenate([both, both]))]
    source = model(
        sequential(entry("CuDNNLSTM", "fast", units=3)), {"fast": stored}, optimizer=_tensors(slots)
    )
    kept = cpu_layers.rewritten(HERE, source, slots=True)
    np.testing.assert_allclose(kept.architecture.optimizer[2][1].read(), both, rtol=1e-6)
    np.testing.assert_allclose(kept.architecture.optimizer[0][1].read(), expected(stored, 4)[0], rtol=1e-6)
    assert kept.notes == ()
    dropped = cpu_layers.rewritten(HERE, source)
    assert dropped.architecture.optimizer == ()
    assert dropped.notes == ("optimizer state dropped; keep it with --slots",)


def test_slots_that_stand_side_by_side() -> None:
    m, v = cudnn(RNG, 3, 4, 5), cudnn(RNG, 3, 4, 5)
    mixed = [("iteration:0", np.array(3)), *(one for pair in zip(m, v, strict=True) for one in pair)]
    source = model(
        sequential(entry("CuDNNGRU", "fast", units=4)),
        {"fast": cudnn(RNG, 3, 4, 5)},
        optimizer=_tensors(mixed),
    )
    found = values(cpu_layers.rewritten(HERE, source, slots=True).architecture.optimizer)
    for slot, start in ((m, 1), (v, 2)):
        for one, wanted in zip(found[start::2], expected(slot, 3), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-6)
    useless = cpu_layers.rewritten(HERE, replace(source, optimizer=_tensors(DENSE)), slots=True)
    assert useless.notes == ("optimizer state dropped, for none of it has the shapes of a cuDNN layer",)


def _tensors(listed: Any) -> Any:
    return model(sequential(), {"one": listed}).weights["one"]


def test_a_class_of_the_users_with_a_cudnn_name_is_left_alone() -> None:
    theirs = {
        **entry("CuDNNLSTM", "theirs", units=3),
        "registered_name": "package>CuDNNLSTM",
        "module": "package",
    }
    source = model(sequential(theirs), {})
    assert cpu_layers.rewritten(HERE, source).architecture.config == source.config
    assert classes.cudnn_layers(source) == []
