"""Weights of CPU layers: told as what they look like, never offered as a recurrence of cuDNN's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import GRAPHLESS, WEIGHTS, Fixture
from sources import command, refused

import cudnn_convert
from cudnn_convert.read import read, variable_keys
from cudnn_convert.read.dialects import keras
from cudnn_convert.read.tensorbundle import entries

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


@pytest.mark.parametrize("sample", WEIGHTS, ids=lambda sample: sample.name)
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


@pytest.mark.parametrize("sample", WEIGHTS, ids=lambda sample: sample.name)
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


class Held:
    """The tensor of an object graph, of any bytes."""

    shape, dtype = (), entries.of(entries.STRING)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self) -> np.ndarray:
        return np.array(self.content, object)


@given(st.binary(max_size=64))
def test_a_damaged_graph_of_objects_says_nothing(content: bytes) -> None:
    assert isinstance(variable_keys.variable_names({"_CHECKPOINTABLE_OBJECT_GRAPH": Held(content)}), dict)


NAMES = (
    "kernel recurrent_kernel bias weights biases gamma embeddings gates/kernel gru_cell/gates/kernel".split()
)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(st.dictionaries(st.sampled_from([f"{scope}{name}" for scope in ("", "a/") for name in NAMES]), SHAPES))
def test_no_shapes_are_too_odd(shapes: dict[str, tuple[int, ...]]) -> None:
    found = keras.describe_layers({name: tensor(*shape) for name, shape in shapes.items()}, ())
    assert found.layers or not found.whole
