"""The recorder's float64 equations, against the package's reference and against PyTorch's CPU networks.

PyTorch is a stand-in for cuDNN here: it documents the same equations, and takes weights in cuDNN's order.
It is not a dependency of the project; without it those tests are skipped and the package's reference, which
shares no code with the recorder, remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import record_cudnn as rec

from cudnn_convert import reference

pytestmark = pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")

# Two float64 evaluations of the same sums in another order: far below any real difference (> 1e-4).
SAME = 1e-12

NETWORKS = [
    rec.Network(mode, way, layers, dtype="double")
    for mode in rec.MODES
    for way in (1, 2)
    for layers in (1, 2, 3)
]
CASES = [rec.Case(net, lengths) for net in NETWORKS for lengths in ("none", "short", "ragged", "zero")]
PROJECTED = [
    rec.Case(rec.Network("lstm", way, layers, projection=3, dtype="double"), lengths)
    for way in (1, 2)
    for layers in (1, 2)
    for lengths in ("none", "ragged")
]


def by_reference(case: rec.Case, values: rec.Values) -> rec.Outputs:
    net = case.network
    steps = reference.steps_from_blob(
        values.blob,
        net.mode,
        layers=net.layers,
        directions=net.directions,
        units=net.units,
        input_size=net.input_size,
    )
    h0, c0 = rec.initial_states(case, values)
    lengths = np.asarray(case.row_lengths)
    y, h, c = reference.run(steps, values.x, h0, c0, directions=net.directions, lengths=lengths)
    h[:, lengths == 0] = c[:, lengths == 0] = 0  # as cuDNN was recorded; the reference hands the states on
    return rec.Outputs(y, h, c if net.mode == "lstm" else c[:0])


def by_torch(case: rec.Case, values: rec.Values) -> rec.Outputs:
    """torch.nn's CPU network on the recorder's own weight views, row order and packing."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; nothing computes the witness")
    arranged = rec.witness_order(case)
    assert arranged is not None
    net, (order, batch_sizes) = case.network, arranged
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(net.mode, torch.nn.RNN)
    options: dict[str, Any] = {"proj_size": net.projection} if net.projection else {}
    if kind is torch.nn.RNN:
        options["nonlinearity"] = net.mode.removeprefix("rnn_")
    model = kind(
        net.input_size,
        net.units,
        net.layers,
        bidirectional=net.directions == 2,
        dtype=torch.float64,
        **options,
    )
    blob = torch.from_numpy(values.blob)
    flat = [weight for pseudo in rec.witness_weights(net, blob) for weight in pseudo]
    h0, c0 = (torch.from_numpy(a[:, order].copy()) for a in rec.initial_states(case, values))
    x = values.x[:, order]
    with torch.no_grad():
        for name, weight in zip(model._flat_weights_names, flat, strict=True):
            getattr(model, name).copy_(weight)
        state = (h0, c0) if net.mode == "lstm" else h0
        if batch_sizes:
            data = np.concatenate([x[t, :n] for t, n in enumerate(batch_sizes)])
            packed = torch.nn.utils.rnn.PackedSequence(torch.from_numpy(data), torch.tensor(batch_sizes))
            y, state = model(packed, state)
            y = y.data
        else:
            y, state = model(torch.from_numpy(np.ascontiguousarray(x)), state)
    h, c = state if net.mode == "lstm" else (state, state[:0])
    return rec.unsorted(case, order, batch_sizes, rec.Outputs(y.numpy(), h.numpy(), c.numpy()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equations_are_the_reference_s(case: rec.Case) -> None:
    values = rec.values_of(case)
    wanted = by_reference(case, values)
    assert np.ptp(wanted.y, axis=0).max() > 0.01, "constant over time, shows nothing"
    assert rec.error_of(rec.expected(case, values), wanted) < SAME


@pytest.mark.every
@pytest.mark.parametrize("group", [*rec.MODES, "projected"])
def test_equations_are_pytorch_s(group: str) -> None:
    """One test per mode, so that a machine without PyTorch shows five skips and not two hundred."""
    pytest.importorskip("torch", reason="PyTorch is not installed; the package's reference is compared above")
    plain = [c for c in CASES if c.lengths != "zero" and c.network.mode == group]
    cases = PROJECTED if group == "projected" else plain
    assert cases
    errors = {}
    for case in cases:
        values = rec.values_of(case)
        errors[case.name] = rec.error_of(rec.expected(case, values), by_torch(case, values))
    assert {name: error for name, error in errors.items() if not error < SAME} == {}


def swap_gates(w: rec.Weights) -> rec.Weights:
    return replace(w, kernel=np.concatenate([w.kernel[1::-1], w.kernel[2:]]))


def swap_recurrent_gates(w: rec.Weights) -> rec.Weights:
    return replace(w, recurrent=np.concatenate([w.recurrent[1::-1], w.recurrent[2:]]))


def drop_bias(w: rec.Weights) -> rec.Weights:
    return replace(w, bias=np.zeros_like(w.bias))


def drop_recurrent_bias(w: rec.Weights) -> rec.Weights:
    return replace(w, recurrent_bias=np.zeros_like(w.recurrent_bias))


def transpose_recurrent(w: rec.Weights) -> rec.Weights:
    return replace(w, recurrent=w.recurrent.transpose(0, 2, 1))


def reread_kernel(w: rec.Weights) -> rec.Weights:
    """Read column-major what was written row-major, as a transposed `[inputs, units]` kernel would be."""
    gates, units, inputs = w.kernel.shape
    return replace(w, kernel=w.kernel.reshape(gates, inputs, units).transpose(0, 2, 1))


def exchange_biases(w: rec.Weights) -> rec.Weights:
    return replace(w, bias=w.recurrent_bias, recurrent_bias=w.bias)


MUTANTS = (
    swap_gates,
    swap_recurrent_gates,
    drop_bias,
    drop_recurrent_bias,
    transpose_recurrent,
    reread_kernel,
    exchange_biases,
)
Mutant = Callable[[rec.Weights], rec.Weights]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.parametrize("mode", rec.MODES)
def test_a_mutant_is_seen_even_in_half_precision(mode: str, mutant: Mutant) -> None:
    """One changed pseudo-layer, the last of four, is far outside the noise floor of float and of half."""
    case = rec.Case(rec.Network(mode, 2, 2, dtype="double"), "ragged")
    values = rec.values_of(case)
    weights = rec.unpack(case.network, values.blob)
    found = rec.expected(case, values, [*weights[:-1], mutant(weights[-1])])
    far = rec.error_of(found, by_reference(case, values))
    if len(weights[0].kernel) == 1 and mutant in (swap_gates, swap_recurrent_gates):
        assert far < SAME, "one gate: nothing to swap"
    elif mode != "gru" and mutant is exchange_biases:
        assert far < SAME, "only the sum of the two biases counts"
    else:
        for dtype, math in (("float", "fma"), ("half", "tensor")):
            rounded = replace(case, network=replace(case.network, dtype=dtype), math=math)
            assert far > rec.noise_floor(rounded)


def test_rounding_alone_stays_within_the_noise_floor() -> None:
    """The same equations in float32 arithmetic: the noise floor is neither too narrow nor idle."""
    worst = 0.0
    for net in NETWORKS:
        case = rec.Case(replace(net, dtype="float"), "ragged")
        values = rec.values_of(case)
        h0, c0 = rec.initial_states(case, values)
        y, h, c = rec.forward(net, rec.unpack(net, values.blob), values.x, (h0, c0), case.row_lengths)
        assert y.dtype == np.float32
        found = rec.Outputs(y, h, c if net.mode == "lstm" else c[:0])
        worst = max(worst, rec.error_of(found, rec.expected(case, values)) / rec.noise_floor(case))
    assert 0.005 < worst < 1


def test_skip_input_adds_x_to_every_gate() -> None:
    net = rec.Network("gru", 1, 1, 5, 5, skip_input=True, dtype="double")
    (w,) = rec.unpack(net, rec.values_of(rec.Case(net)).blob)
    np.testing.assert_array_equal(w.kernel, np.stack([np.eye(5)] * 3))
    assert np.unique(w.bias).size == 15
