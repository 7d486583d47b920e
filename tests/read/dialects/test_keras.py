"""Keras layers, of cuDNN and plain ones, among the keys of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import command, refused
from support.recorded import assert_close
from support.samples import GRAPHLESS, Fixture, fixture
from support.samples import WEIGHTS as PLAIN_WEIGHTS

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.model import Array, CanonicalParameters, InMemory, Mode
from cudnn_convert.read import read
from cudnn_convert.read.dialects import keras
from cudnn_convert.weights import lazy

# Keras's CuDNN layers among the keys of a checkpoint.

PATH = Path("model.ckpt")
OBJECT = "/.ATTRIBUTES/VARIABLE_VALUE"
WEIGHTS = [sample for sample in GRAPHLESS if "keras_weights" in sample.name]


def layer(
    scope: str, mode: Mode = Mode.LSTM, *, units: int = 3, inputs: int = 2, suffix: str = ""
) -> dict[str, Any]:
    """A CuDNN layer's three variables, distinct values in all."""
    wide, rng = len(mode.gates) * units, np.random.default_rng(len(scope))
    shapes = {"kernel": (inputs, wide), "recurrent_kernel": (units, wide), "bias": (2 * wide,)}
    return {f"{scope}{name}{suffix}": InMemory(rng.uniform(size=shape)) for name, shape in shapes.items()}


def find(tensors: dict[str, Any]) -> list[CanonicalParameters]:
    return list(keras.find(PATH, tensors))


def sizes(found: CanonicalParameters) -> tuple[Any, ...]:
    return found.scope, found.modes, found.layers, found.directions, found.units, found.input_size


@pytest.mark.parametrize("suffix", ["", OBJECT])
@pytest.mark.parametrize("scope", ["cu_dnnlstm/", "net/layer_with_weights-0/", ""])
@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_a_layer(mode: Mode, scope: str, suffix: str) -> None:
    tensors = layer(scope, mode, suffix=suffix)
    (found,) = find(tensors)
    assert sizes(found) == (scope, (mode,), 1, 1, 3, 2)
    assert (found.dialect, found.batch_major, found.dtype) == ("keras", True, np.float64)
    assert [*found.tensors] == ["kernel", "recurrent_kernel", "bias"]
    ((cell,),) = found.decode(mode)  # one layer of one direction
    assert cell.kernel.shape == (len(mode.gates), 3, 2)
    where = scope.rstrip("/") or "the root scope"
    told = "its keys do not say go_backwards; a layer that has it takes its inputs reversed in time"
    assert found.note == f"{where}: {told}"


@pytest.mark.parametrize(
    ("forward", "backward", "suffix"),
    [
        ("layer_with_weights-1/forward_layer/", "layer_with_weights-1/backward_layer/", OBJECT),
        ("bidirectional/forward_cu_dnngru_2/", "bidirectional/backward_cu_dnngru_2/", ""),
    ],
)
def test_both_directions(forward: str, backward: str, suffix: str) -> None:
    tensors = layer(backward, Mode.GRU, suffix=suffix) | layer(forward, Mode.GRU, suffix=suffix)
    (found,) = find(tensors)
    assert sizes(found) == (forward.partition("/")[0] + "/", (Mode.GRU,), 1, 2, 3, 2)
    told = "its keys do not say merge_mode; outputs are both directions side by side, as of concat"
    assert found.note == f"{forward.partition('/')[0]}: {told}"
    kept = found.tensors
    for stem, scope in (("forward_layer/", forward), ("backward_layer/", backward)):
        for name in ("kernel", "recurrent_kernel", "bias"):
            np.testing.assert_array_equal(kept[stem + name].read(), tensors[f"{scope}{name}{suffix}"].array)


FORWARD, BACKWARD = layer("a/forward_x/"), layer("a/backward_x/")


@pytest.mark.parametrize(
    "tensors",
    [
        FORWARD,
        BACKWARD,
        FORWARD | layer("a/backward_y/"),
        FORWARD | layer("a/backward_x/", units=4),
        FORWARD | layer("a/backward_x/", inputs=5),
        FORWARD | layer("a/backward_x/", Mode.GRU),
        FORWARD | layer("b/backward_x/"),
        FORWARD | BACKWARD | layer("a/"),
        FORWARD | BACKWARD | layer("a/forward_y/") | layer("a/backward_y/"),
    ],
    ids=["forward", "backward", "name", "units", "inputs", "mode", "scope", "around", "two"],
)
def test_directions_that_are_no_pair_are_layers_of_their_own(tensors: dict[str, Any]) -> None:
    scopes = {key.rpartition("/")[0] + "/" for key in tensors}
    assert [(found.scope, found.directions) for found in find(tensors)] == [
        (one, 1) for one in sorted(scopes)
    ]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("bias", (12,)),
        ("bias", (2, 12)),
        ("recurrent_kernel", (3, 9)),
        ("kernel", (2, 3, 12)),
        ("kernel", ()),
        ("recurrent_kernel", ()),
        ("bias", ()),
        ("bias", None),
    ],
    ids=["cpu-lstm", "cpu-gru", "other", "convolution", *("number",) * 3, "no-bias"],
)
def test_other_layers_are_left_out(name: str, shape: tuple[int, ...] | None) -> None:
    tensors = layer("rnn/")
    del tensors[f"rnn/{name}"]
    if shape is not None:
        tensors[f"rnn/{name}"] = InMemory(np.zeros(shape))
    assert find(tensors) == []


@pytest.mark.parametrize("name", ["kernel", "recurrent_kernel", "bias"])
def test_other_numbers_are_left_out(name: str) -> None:
    tensors = layer("rnn/")
    assert len(find(tensors)) == 1
    shape = tensors[f"rnn/{name}"].shape
    assert find(tensors | {f"rnn/{name}": InMemory(np.ones(shape, np.int32))}) == []


def test_slots_of_an_optimizer_are_left_out() -> None:
    slots = {
        f"rnn/{name}/Adam{OBJECT}": InMemory(np.zeros(1)) for name in ("kernel", "recurrent_kernel", "bias")
    }
    assert len(find(layer("rnn/") | slots)) == 1


def by_reference(found: CanonicalParameters, feed: dict[str, Array], prefix: str) -> dict[str, Array]:
    mode = found.modes[0].value
    steps = reference.steps_from_keras(lazy.read(found.tensors), mode, layers=1, directions=found.directions)
    h = feed[f"{prefix}initial_h"].astype(np.float64)
    c = feed[f"{prefix}initial_c"].astype(np.float64) if mode == "lstm" else np.zeros_like(h)
    x = feed[f"{prefix}inputs"].astype(np.float64).swapaxes(0, 1)
    y, h, c = reference.run(steps, x, h, c, directions=found.directions)
    return {"outputs": y.swapaxes(0, 1), "state_h": h} | ({"state_c": c} if mode == "lstm" else {})


@pytest.mark.parametrize("sample", WEIGHTS, ids=lambda sample: sample.name)
def test_weights_that_keras_saved(sample: Fixture) -> None:
    """Genuine keys and shapes; and the judge itself gives what Keras's own CPU layers gave."""
    found = {one.scope.rstrip("/").replace("-", "_"): one for one in read(sample.prefix).canonical}
    told = {one["name"]: one for one in sample.case["recurrences"]}
    assert set(found) == set(told)
    for name, one in found.items():
        assert [one.modes[0].value, one.directions, one.units, one.input_size] == [
            told[name][key] for key in ("mode", "directions", "units", "input_size")
        ]
        prefix = f"{name}/" if len(told) > 1 else ""
        for feed in sample.feeds():
            for key, value in by_reference(one, feed, prefix).items():
                assert_close(value, feed[prefix + key])


def test_a_saver_names_them_by_variables() -> None:
    found = read(fixture("1.15.5-keras_gru_bi").prefix).canonical
    assert [sizes(one) for one in found] == [("bidirectional/", (Mode.GRU,), 1, 2, 6, 4)]


# Weights of CPU layers: told as what they look like, never offered as a recurrence of cuDNN's.

#: What Keras wrote of each layer with weights (the fixture's own list), in words; "" for cuDNN's.
WORDS = {
    "LSTM": "LSTM of",
    "GRU": "GRU of",
    "Dense": "Dense,",
    "Conv1D": "convolution of 3, 2 to 4",
    "BatchNormalization": "normalisation",
    "CuDNNLSTM": "",
}


def tensor(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("sample", PLAIN_WEIGHTS, ids=lambda sample: sample.name)
def test_keras_layers_are_what_keras_wrote(sample: Fixture) -> None:
    layers = sample.case["layers"]
    found = read(sample.prefix).plain
    expected = [
        (number, WORDS[layer]) for number, layer in enumerate(layers) if not layer.startswith("CuDNN")
    ]
    assert len(found.layers) == len(expected)
    for line, (number, words) in zip(found.layers, expected, strict=True):
        assert line.startswith(f"layer_with_weights-{number}")
        assert words in line
    assert found.whole is ("CuDNNLSTM" not in layers)


@pytest.mark.parametrize("sample", PLAIN_WEIGHTS, ids=lambda sample: sample.name)
def test_no_dense_layer_is_offered_as_an_lstm(tmp_path: Path, sample: Fixture) -> None:
    found = cudnn_convert.inspect(sample.prefix)
    if "CuDNNLSTM" in sample.case["layers"]:
        assert [(one.name, one.units) for one in found.recurrences] == [("layer_with_weights_0", 6)]
        assert found.runs_on_cpu is False
        assert found.command is not None
        return
    assert (found.recurrences, found.candidates, found.command) == ((), (), None)
    assert found.runs_on_cpu is True
    [line] = refused(tmp_path, sample.prefix, tmp_path / "out", code=1)
    assert "no cuDNN recurrence in it; this looks like layer_with_weights-0" in line
    assert line.endswith("such layers run on a CPU as they are, in the program that trained them")
    assert "--" not in line  # there is nothing to try
    assert line.removeprefix(f"{sample.prefix}: ") == "".join(found.reasons)
    assert "no command converts it as it is" not in command("inspect", sample.prefix).stdout


@pytest.mark.parametrize("sample", GRAPHLESS, ids=lambda sample: sample.name)
def test_a_cudnn_recurrence_is_no_plain_layer(sample: Fixture) -> None:
    model = read(sample.prefix)
    scopes = {found.scope.rstrip("/") for found in model.canonical}
    assert scopes
    assert not scopes & {line.partition(":")[0] for line in model.plain.layers}
    assert not model.plain.whole


def recurrent(scope: str, *shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    names = ("kernel", "recurrent_kernel", "bias")
    return {f"{scope}/{name}": tensor(*shape) for name, shape in zip(names, shapes, strict=True)}


@pytest.mark.parametrize(
    ("weights", "layers", "whole"),
    [
        pytest.param(
            {"rnn/basic_lstm_cell/kernel": tensor(7, 16), "rnn/basic_lstm_cell/bias": tensor(16)},
            ["rnn/basic_lstm_cell: LSTM cell of 4 units, a CPU layer"],
            True,
            id="cell",
        ),
        pytest.param(
            {
                "rnn/gru_cell/gates/kernel": tensor(7, 8),
                "rnn/gru_cell/gates/bias": tensor(8),
                "rnn/gru_cell/candidate/kernel": tensor(7, 4),
                "rnn/gru_cell/candidate/bias": tensor(4),
            },
            [
                "rnn/gru_cell/candidate: candidate of a GRU cell, a CPU layer",
                "rnn/gru_cell/gates: gates of a GRU cell, a CPU layer",
            ],
            True,
            id="gru-cell",
        ),
        pytest.param(
            {
                **{"lstm/cell/0": tensor(3, 20), "lstm/cell/1": tensor(5, 20), "lstm/cell/2": tensor(20)},
                **{"head/0": tensor(5, 4), "head/1": tensor(4)},
                **{f"normal/{place}": tensor(4) for place in range(4)},
            },
            ["head: Dense, 5 to 4", "lstm/cell: LSTM of 5 units, a CPU layer", "normal: normalisation"],
            True,
            id="by-place",
        ),
        pytest.param(
            recurrent("gru", (4, 9), (3, 9), (2, 9)) | recurrent("rnn", (4, 3), (3, 3), (3,)),
            ["gru: GRU of 3 units, a CPU layer", "rnn: SimpleRNN of 3 units, a CPU layer"],
            True,
            id="recurrences",
        ),
        pytest.param(
            recurrent("gru", (4, 9), (3, 9), (3, 9))
            | recurrent("lstm", (4, 1, 8), (2, 8), (8,))
            | {"table/embeddings": tensor(9)},
            [],
            False,
            id="other-shapes",
        ),
        pytest.param(
            {"conv/weights": tensor(3, 5, 2, 4), "conv/biases": tensor(4), "global_step": tensor()},
            ["conv: convolution of 3x5, 2 to 4"],
            True,
            id="slim",
        ),
        pytest.param(
            {
                "head/kernel": tensor(4, 3),
                "head/kernel/Adam": tensor(4, 3),
                "head/bias": tensor(3),
                "x": tensor(5),
            },
            ["head: Dense, 4 to 3"],
            False,
            id="something-else",
        ),
        pytest.param(
            {"lstm/kernel": tensor(3, 20), "lstm/recurrent_kernel": tensor(5, 20), "lstm/bias": tensor(40)},
            [],
            False,
            id="cudnn",
        ),
        pytest.param(
            {
                "embedding/embeddings": tensor(9, 3),
                "rnn/recurrent_kernel": tensor(0, 0),
                "rnn/kernel": tensor(0, 0),
            },
            ["embedding: embedding of 9 rows"],
            False,
            id="nothing",
        ),
    ],
)
def test_by_names_and_shapes(weights: dict[str, np.ndarray], layers: list[str], whole: bool) -> None:
    found = keras.describe_layers(weights, ())
    assert [*found.layers] == layers
    assert found.whole is whole


NAMES = (
    "kernel recurrent_kernel bias weights biases gamma embeddings gates/kernel gru_cell/gates/kernel".split()
)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(st.dictionaries(st.sampled_from([f"{scope}{name}" for scope in ("", "a/") for name in NAMES]), SHAPES))
def test_no_shapes_are_too_odd(shapes: dict[str, tuple[int, ...]]) -> None:
    found = keras.describe_layers({name: tensor(*shape) for name, shape in shapes.items()}, ())
    assert found.layers or not found.whole
