"""Modules of PyTorch: their weights by PyTorch's names, and, where it is installed, what they compute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from support.cases import Case
from support.recorded import assert_close
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.model import Mode
from cudnn_convert.recurrences import named_weights
from cudnn_convert.weights import layouts

CASES = {
    "lstm": Case(Mode.LSTM, layers=2, directions=2),
    "gru": Case(Mode.GRU, layers=2, directions=2),
    "tanh": Case(Mode.RNN_TANH, layers=2, directions=2),
    "relu": Case(Mode.RNN_RELU, directions=2),
    "projection": Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3),
    "skip_input": Case(Mode.GRU, layers=2, input_mode="skip_input"),
    "double": Case(Mode.LSTM, dtype="float64"),
}


def frozen(case: Case, folder: Path) -> Path:
    path = folder / "model.pb"
    path.write_bytes(case.graph()[0].SerializeToString())
    return path


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_documentation(case: Case, state: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Outputs from zero states, by the equations and the shapes in PyTorch's documentation of nn.LSTM, nn.GRU
    and nn.RNN (2.8), x `[steps, batch, inputs]`."""
    for layer in range(case.layers):
        ways = []
        for ending in ("", "_reverse")[: case.directions]:
            w, r, b_w, b_r = (
                state[f"{name}_l{layer}{ending}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            project = state.get(f"weight_hr_l{layer}{ending}", np.eye(case.units))
            h, c = np.zeros((x.shape[1], len(project))), np.zeros((x.shape[1], case.units))
            out = []
            for value in x[::-1] if ending else x:
                ours = [value @ part.T + bias for part, bias in zip(*cut(case, w, b_w), strict=True)]
                theirs = [h @ part.T + bias for part, bias in zip(*cut(case, r, b_r), strict=True)]
                if case.mode is Mode.LSTM:
                    i, f, g, o = (a + b for a, b in zip(ours, theirs, strict=True))
                    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                    h = (sigmoid(o) * np.tanh(c)) @ project.T
                elif case.mode is Mode.GRU:
                    r_t, z_t = (sigmoid(ours[k] + theirs[k]) for k in range(2))
                    h = (1 - z_t) * np.tanh(ours[2] + r_t * theirs[2]) + z_t * h
                else:
                    total = ours[0] + theirs[0]
                    h = np.tanh(total) if case.mode is Mode.RNN_TANH else np.maximum(total, 0)
                out.append(h)
            ways.append(np.stack(out[::-1] if ending else out))
        x = np.concatenate(ways, axis=-1)
    return x


def cut(case: Case, weights: np.ndarray, biases: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    gates = len(case.mode.gates)
    return np.split(weights, gates), np.split(biases, gates)


def difference(case: Case) -> float:
    """Of the documentation's equations on the state, from the reference on the blob."""
    x = np.random.default_rng(8).standard_normal((6, 2, case.inputs))
    sizes = case.sizes
    steps = reference.steps_from_blob(
        case.blob, case.mode.value, units=sizes.units, input_size=sizes.input_size, layers=sizes.layers,
        directions=sizes.directions, skip_input=sizes.skip_input, projection=sizes.projection,
        dtype=np.float64, gate_order="tf",
    )  # fmt: skip
    h = np.zeros((case.depth, 2, sizes.width))
    expected, _, _ = reference.run(
        steps, x, h, np.zeros((case.depth, 2, sizes.units)), directions=sizes.directions
    )
    return float(
        np.abs(by_documentation(case, named_weights.to_state_dict(case.recurrence()), x) - expected).max()
    )


@pytest.mark.parametrize("name", CASES)
def test_the_state_computes_what_cudnn_does(name: str) -> None:
    assert difference(CASES[name]) < 1e-12


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("mode", "pair"),
    [(mode, (k, j)) for mode in (Mode.LSTM, Mode.GRU) for k in range(len(mode.gates)) for j in range(k)],
)
def test_two_gates_swapped_show(monkeypatch: pytest.MonkeyPatch, mode: Mode, pair: tuple[int, int]) -> None:
    gates = [*layouts.TORCH.gates[mode]]
    gates[pair[0]], gates[pair[1]] = gates[pair[1]], gates[pair[0]]
    swapped = MappingProxyType({**layouts.TORCH.gates, mode: tuple(gates)})
    monkeypatch.setattr(layouts, "TORCH", layouts.Layout("torch", swapped, "a mistake"))
    assert difference(Case(mode, layers=2, directions=2)) > 1e-3


def test_without_pytorch_the_extra_is_named() -> None:
    program = "import sys; sys.modules['torch'] = None\nimport cudnn_convert.torch"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        "cudnn_convert.errors.MissingDependencyError: cudnn_convert.torch: expected PyTorch, found that it "
        "is not installed; install it: pip install 'cudnn-convert[torch]'"
    )


@pytest.mark.every  # PyTorch, which `make test` does not install
class TestModules:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("torch", reason="PyTorch is not installed")

    @pytest.mark.parametrize("batch_first", [None, False, True])
    @pytest.mark.parametrize("name", CASES)
    def test_every_kind_is_proven(self, tmp_path: Path, name: str, batch_first: bool | None) -> None:
        from cudnn_convert.torch import load_rnn

        module = load_rnn(frozen(CASES[name], tmp_path), batch_first=batch_first)
        assert not module.training
        assert module.batch_first is bool(batch_first)
        assert type(module).__name__ == {"lstm": "LSTM", "gru": "GRU"}.get(CASES[name].mode.value, "RNN")

    def test_a_genuine_checkpoint_answers_as_tensorflow_1_did(self) -> None:
        import torch

        from cudnn_convert.torch import load_rnn

        sample = fixture("1.15.5-lstm_bi_2l_states")
        module = load_rnn(sample.prefix)
        for feed in sample.feeds():
            x, h, c = (torch.from_numpy(feed[key]) for key in ("x:0", "h0:0", "c0:0"))
            with torch.no_grad():
                y, (last, _) = module(x, (h, c))
            assert_close(y.numpy(), feed["rnn_out:0"])
            assert_close(last.numpy(), feed["state_h:0"])

    def test_lengths_of_the_source_are_proven_by_packing(self) -> None:
        from cudnn_convert.torch import load_rnn

        assert load_rnn(fixture("1.15.5-v3_lengths_time_major").prefix).bidirectional

    def test_several_recurrences_have_names(self) -> None:
        from cudnn_convert.torch import load_rnn

        source = fixture("1.15.5-two_layers").prefix
        first, second = (one.name for one in cudnn_convert.load(source).recurrences)
        with pytest.raises(
            cudnn_convert.UsageError, match=f"name: expected one of {first}, {second}, found none"
        ):
            load_rnn(source)
        assert load_rnn(source, name=second).num_layers

    def test_wrong_weights_fail_the_proof(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cudnn_convert.torch import load_rnn

        right = named_weights.to_state_dict

        def wrong(recurrence):
            found = right(recurrence)
            found["bias_hh_l0"] = found["bias_hh_l0"] + np.float32(0.25)
            return found

        monkeypatch.setattr(named_weights, "to_state_dict", wrong)
        with pytest.raises(cudnn_convert.VerificationError):
            load_rnn(fixture("1.15.5-gru_bi").prefix)
        assert load_rnn(fixture("1.15.5-gru_bi").prefix, verify=False).bidirectional
