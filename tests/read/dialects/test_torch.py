"""PyTorch's names: modules, cells, directions, projections, and what contradicts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.decoded import assert_decoded_as_the_reference

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, InMemory, Mode
from cudnn_convert.read.dialects import torch

PATH = Path("weights.npz")
GATES = {Mode.LSTM: 4, Mode.GRU: 3, Mode.RNN_TANH: 1}
UNITS, INPUTS = 5, 3


def module(
    mode: Mode,
    *,
    layers: int = 2,
    directions: int = 2,
    projection: int = 0,
    bias: bool = True,
    cell: bool = False,
) -> dict[str, InMemory]:
    """The tensors of a module, each of its own values."""
    rng, gates, width = np.random.default_rng(3), GATES[mode], projection or UNITS
    tensors = {}
    for layer in range(layers):
        inputs = INPUTS if layer == 0 else directions * width
        shapes = {"weight_ih": (gates * UNITS, inputs), "weight_hh": (gates * UNITS, width)}
        shapes |= dict.fromkeys(("bias_ih", "bias_hh"), (gates * UNITS,)) if bias else {}
        shapes |= {"weight_hr": (projection, UNITS)} if projection else {}
        for reverse in ("", "_reverse")[:directions]:
            for name, shape in shapes.items():
                key = name if cell else f"{name}_l{layer}{reverse}"
                tensors[key] = InMemory(rng.normal(size=shape))
    return tensors


def find(tensors: dict[str, InMemory], prefix: str = "") -> tuple[CanonicalParameters, ...]:
    return torch.find(PATH, {prefix + key: tensor for key, tensor in tensors.items()})


@pytest.mark.parametrize("prefix", ["", "encoder.rnn.", "module/encoder/"])
@pytest.mark.parametrize("projection", [0, 2])
@pytest.mark.parametrize("mode", GATES)
def test_a_module(mode: Mode, projection: int, prefix: str) -> None:
    projection = projection if mode is Mode.LSTM else 0
    tensors = module(mode, layers=3, projection=projection)
    (found,) = find(tensors, prefix)
    modes = (Mode.RNN_TANH, Mode.RNN_RELU) if mode is Mode.RNN_TANH else (mode,)
    assert (found.scope, found.modes) == (f"{prefix.rstrip('./')}/" if prefix else "", modes)
    sizes = found.sizes(modes[-1])
    assert (sizes.layers, sizes.directions, sizes.units, sizes.input_size, sizes.projection) == (
        *(3, 2, UNITS, INPUTS),
        projection,
    )
    assert {*found.tensors} == {*tensors}
    assert_decoded_as_the_reference(found, "torch", modes[0])


def test_gates_stand_in_pytorchs_order() -> None:
    """torch/nn/modules/rnn.py: W_ii|W_if|W_ig|W_io, and cuDNN's order is i, f, c, o too."""
    tensors = module(Mode.LSTM, layers=1, directions=1)
    (found,) = find(tensors)
    ((cell,),) = found.decode(Mode.LSTM)
    rows = tensors["weight_ih_l0"].array
    for gate in range(4):
        np.testing.assert_array_equal(cell.kernel[gate], rows[gate * UNITS : (gate + 1) * UNITS])


def test_a_cell_and_weights_without_biases() -> None:
    (found,) = find(module(Mode.GRU, layers=1, directions=1, bias=False, cell=True), "cell.")
    assert (found.layers, found.directions, found.scope) == (1, 1, "cell/")
    ((cell,),) = found.decode(Mode.GRU)
    assert not cell.bias.any() and not cell.recurrent_bias.any()


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("weight_hh_l1", None),
        ("bias_hh_l0", None),
        ("weight_ih_l1_reverse", None),
        ("weight_ih_l1", (20, 9)),
        ("bias_ih_l1_reverse", (19,)),
        ("weight_hr_l1", (2, 5)),
        ("weight_ih_l5", (20, 10)),
    ],
)
def test_a_set_that_is_not_whole_is_refused(key: str, shape: tuple[int, ...] | None) -> None:
    tensors = module(Mode.LSTM)
    if shape is None:
        del tensors[key]
    else:
        tensors[key] = InMemory(np.ones(shape))
    with pytest.raises(ReadError, match="does the whole file belong to one model"):
        find(tensors, "a.")


@pytest.mark.parametrize("key", ["bias_hh_l0", "weight_ih_l1_reverse"])
def test_arrays_of_two_types_are_refused(key: str) -> None:
    tensors = module(Mode.LSTM)
    tensors[key] = InMemory(tensors[key].array.astype(np.float32))
    with pytest.raises(ReadError, match=f"a.{key}: expected float64, as the cell's .* found float32"):
        find(tensors, "a.")


@pytest.mark.parametrize("shape", [(20,), (19, 5), (10, 5), (20, 0), (35, 7)])
def test_names_of_other_shapes_are_of_another_module(shape: tuple[int, ...]) -> None:
    assert find(module(Mode.LSTM) | {"weight_hh_l0": InMemory(np.ones(shape))}) == ()


@pytest.mark.parametrize(
    ("key", "weight"),
    [
        ("a.weight_hh_l0_g", "weight_hh_l0"),
        ("a.weight_hh_l0_reverse_v", "weight_hh_l0_reverse"),
        ("weight_hh_orig", "weight_hh"),
        ("b.weight_hh_l1_raw", "weight_hh_l1"),
        ("a.parametrizations.weight_ih_l0.original", "weight_ih_l0"),
        ("parametrizations.bias_hh_l1_reverse.original0", "bias_hh_l1_reverse"),
    ],
)
def test_a_weight_that_is_computed_is_refused(key: str, weight: str) -> None:
    """Also beside what was computed in an earlier step."""
    with pytest.raises(ReadError) as caught:
        torch.find(PATH, module(Mode.LSTM, layers=1) | {key: InMemory(np.ones((20, 1)))})
    told = (
        f"{PATH}: {key}: expected {weight} itself, found a part that it is computed from; before the state "
    )
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("key", ["head.weight_v", "weight_norm.weight_orig", "norm.weight"])
def test_parts_of_other_weights_are_no_matter(key: str) -> None:
    assert len(find(module(Mode.LSTM) | {key: InMemory(np.ones((20, 1)))})) == 1


CELL = module(Mode.LSTM, layers=1, directions=1, bias=False, cell=True)


@pytest.mark.parametrize(
    ("tensors", "prefix", "key"),
    [
        (module(Mode.LSTM), "a.", "weight_ci"),
        (module(Mode.LSTM), "", "weight_hh_l0_extra"),
        (CELL, "a.", "bias"),
        (CELL, "a.", "layernorm_i.weight"),
        (CELL, "", "bias"),
    ],
)
def test_a_cell_with_parameters_of_its_own_is_refused(
    tensors: dict[str, InMemory], prefix: str, key: str
) -> None:
    """Peepholes, a single bias, and the LayerNormLSTM of PyTorch's benchmarks have PyTorch's names too."""
    more = {prefix + key: InMemory(np.ones(20)), "epoch": InMemory(np.ones(()))}
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    assert len(torch.find(PATH, named)) == 1
    with pytest.raises(ReadError, match=rf"{prefix}{key}: expected the parameters of a PyTorch module alone"):
        torch.find(PATH, named | more)


def test_keys_of_weights() -> None:
    assert torch.is_weight("a.b/weight_hh_l0_reverse")
    assert not torch.is_weight("embedding.weight")
