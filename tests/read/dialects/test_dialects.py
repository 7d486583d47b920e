"""All dialects of canonical keys in one checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory
from cudnn_convert.read import dialects

RNG = np.random.default_rng(17)
REGIONS = {f"old/CudnnRNNParamsToCanonical:{k}": (12 if k < 1 else 9 if k < 2 else 3,) for k in range(4)}
SHAPES = {
    "keras": {"rnn/kernel": (2, 12), "rnn/recurrent_kernel": (3, 12), "rnn/bias": (24,)},
    "regions": REGIONS,
    "contrib": {
        "new/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel": (5, 12),
        "new/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias": (12,),
    },
}


@pytest.mark.parametrize("turned", [False, True])
def test_the_sets_come_in_the_order_of_the_dialects(turned: bool) -> None:
    """Whatever the order of the keys: recurrences of an artifact stand in the order of the sets."""
    keys = {key: shape for shapes in SHAPES.values() for key, shape in shapes.items()}
    tensors = {key: InMemory(RNG.normal(size=shape)) for key, shape in keys.items()}
    if turned:
        tensors = dict(reversed(tensors.items()))
    found = dialects.find(Path("model.ckpt"), tensors)
    assert [*dict.fromkeys((one.scope, one.dialect) for one in found)] == [
        ("new/", "contrib"),
        ("old/", "regions"),
        ("rnn/", "keras"),
    ]
    assert dialects.find(Path("model.ckpt"), {}) == ()


@pytest.mark.parametrize("dialect", ["contrib", "regions"])
def test_weights_that_are_no_floats_are_refused(dialect: str) -> None:
    tensors = {key: InMemory(np.ones(shape, np.int32)) for key, shape in SHAPES[dialect].items()}
    with pytest.raises(ReadError, match="expected weights of a float type, found int32"):
        dialects.find(Path("model.ckpt"), tensors)


@pytest.mark.parametrize("empty", range(4))
def test_regions_without_values_are_refused(empty: int) -> None:
    keys = {key: (0,) if k == empty else shape for k, (key, shape) in enumerate(REGIONS.items())}
    tensors = {key: InMemory(np.ones(shape)) for key, shape in keys.items()}
    with pytest.raises(
        ReadError, match=rf"expected weights and biases, found output {empty} of shape \(0,\)"
    ):
        dialects.find(Path("model.ckpt"), tensors)


def test_a_bias_that_is_no_float_is_refused() -> None:
    """Also where the kernel is one."""
    rng = np.random.default_rng(5)
    shapes = {"kernel": (4, 2, 3), "recurrent_kernel": (4, 2, 2), "bias": (4, 2), "recurrent_bias": (4, 2)}
    tensors = {f"a/layer_0/forward/{key}": InMemory(rng.normal(size=own)) for key, own in shapes.items()}
    assert len(dialects.find(Path("w.npz"), tensors)) == 1
    tensors["a/layer_0/forward/recurrent_bias"] = InMemory(np.zeros((4, 2), "V4"))
    where = "a/layer_0/forward/recurrent_bias"
    with pytest.raises(
        ReadError, match=rf"{where}: expected float64, as the cell's other weights, found \|V4"
    ):
        dialects.find(Path("w.npz"), tensors)


def test_two_frameworks_in_one_scope_are_refused() -> None:
    """They are two recurrences, and not two readings of one."""
    rng = np.random.default_rng(6)
    shapes = {"kernel": (4, 2, 3), "recurrent_kernel": (4, 2, 2), "bias": (4, 2), "recurrent_bias": (4, 2)}
    tensors = {f"a/layer_0/forward/{key}": InMemory(rng.normal(size=own)) for key, own in shapes.items()}
    tensors |= {f"a.{key}": InMemory(rng.normal(size=(8, 2))) for key in ("weight_ih_l0", "weight_hh_l0")}
    with pytest.raises(
        ReadError, match="a: expected the names of one recurrence, found those of named and torch"
    ):
        dialects.find(Path("w.npz"), tensors)
