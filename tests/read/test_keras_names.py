"""Keras's CuDNN layers among the keys of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import GRAPHLESS, Fixture, fixture

from cudnn_convert import reference
from cudnn_convert.model import Array, CanonicalParameters, InMemory, Mode
from cudnn_convert.read import read
from cudnn_convert.read.dialects import keras

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
    assert [*found.tensors()] == ["kernel", "recurrent_kernel", "bias"]
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
    kept = found.tensors()
    for stem, scope in (("forward_layer/", forward), ("backward_layer/", backward)):
        for name in ("kernel", "recurrent_kernel", "bias"):
            np.testing.assert_array_equal(kept[stem + name], tensors[f"{scope}{name}{suffix}"].array)


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
    steps = reference.steps_from_keras(found.tensors(), mode, layers=1, directions=found.directions)
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
                np.testing.assert_allclose(value, feed[prefix + key], rtol=1e-5, atol=1e-6)


def test_a_saver_names_them_by_variables() -> None:
    found = read(fixture("1.15.5-keras_gru_bi").prefix).canonical
    assert [sizes(one) for one in found] == [("bidirectional/", (Mode.GRU,), 1, 2, 6, 4)]
