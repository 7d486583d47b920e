"""Symbols of MXNet: their ops RNN, the gates of cells, and texts that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Mode, PartialSizes
from cudnn_convert.read.arrays import mxnet_symbol

MXNET = ROOT / "tests/data/arrays/mxnet"


def test_an_op_has_its_sizes_and_the_arrays_that_are_its_parameters() -> None:
    (fused,) = mxnet_symbol.read(MXNET / "net/exported-symbol.json").fused
    assert (fused.name, fused.sizes) == ("net_lstm0_rnn0", PartialSizes(Mode.LSTM, 2, 4, 1))
    tails = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
    assert sorted(fused.parameters) == sorted(f"net_lstm0_l{k}_{tail}" for k in (0, 1) for tail in tails)
    (packed,) = mxnet_symbol.read(MXNET / "fused_gru/packed-symbol.json").fused
    assert (packed.sizes, packed.parameters) == (PartialSizes(Mode.GRU, 2, 4, 2), ("gru_parameters",))


def test_the_gates_of_cells_are_those_of_their_activations() -> None:
    symbol = mxnet_symbol.read(MXNET / "symbol_cells/packed-symbol.json")
    weights = {f"lstm_l{layer}_{part}_weight" for layer in (0, 1) for part in ("i2h", "h2h")}
    assert symbol.gates == dict.fromkeys(weights, ("sigmoid", "sigmoid", "tanh", "sigmoid"))
    assert (symbol.fused, symbol.has_residuals) == ((), False)


@pytest.mark.parametrize("key", ["attr", "param"])
def test_older_symbols_have_their_attributes_elsewhere(tmp_path: Path, key: str) -> None:
    """mxnet 0.11 and before."""
    path = tmp_path / "old-symbol.json"
    text = (MXNET / "fused_lstm/packed-symbol.json").read_text().replace('"attrs"', f'"{key}"')
    path.write_text(text.replace("[1, 0, 0]", "[1, 0]"))
    (fused,) = mxnet_symbol.read(path).fused
    assert (fused.sizes, fused.parameters) == (PartialSizes(Mode.LSTM, 2, 4, 2), ("lstm_parameters",))


def node(op: str, *inputs: Any, name: str = "x", **attributes: Any) -> dict[str, Any]:
    return {"op": op, "name": name, "inputs": [*inputs], "attrs": attributes}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nodes": 3}',
        "[" * 100_000,
        json.dumps({"nodes": [node("RNN", [0, 0, 0], [0, 0, 0])]}),
        json.dumps({"nodes": [node("null"), node("RNN", [-1, 0], [0, 0])]}),
        json.dumps({"nodes": [node("null"), node("RNN", [0])]}),
        json.dumps({"nodes": [node("null", name=7)]}),  # type: ignore[arg-type]
        json.dumps({"nodes": [{"op": "null", "name": "x", "inputs": [], "attrs": "none"}]}),
    ],
)
def test_what_is_no_symbol_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x-symbol.json"
    path.write_text(text)
    with pytest.raises(
        ReadError, match=r"x-symbol.json: .*: expected the JSON of a symbol, found .*; copy it"
    ):
        mxnet_symbol.read(path)


@pytest.mark.parametrize("inputs", [[[0, 0]], [[0, 0], [1, 0]]])
def test_an_op_without_parameters_is_refused(tmp_path: Path, inputs: list[list[int]]) -> None:
    path = tmp_path / "x-symbol.json"
    sizes = {"mode": "lstm", "num_layers": "1", "state_size": "4"}
    path.write_text(json.dumps({"nodes": [node("null"), node("_zeros"), node("RNN", *inputs, **sizes)]}))
    with pytest.raises(ReadError, match="x: expected an RNN with mode, sizes and parameters, found another"):
        mxnet_symbol.read(path)


def test_a_symbol_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x-symbol.json"
    with path.open("wb") as file:
        file.truncate((1 << 26) + 1)
    with pytest.raises(
        ReadError, match="expected at most 67108864 bytes, found 67108865; copy it again, or mov"
    ):
        mxnet_symbol.read(path)


def test_a_weight_whose_gates_differ_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x-symbol.json"
    nodes = [node("null", name="w"), node("FullyConnected", [0, 0], [0, 0])]
    for kinds in (("tanh", "sigmoid"), ("sigmoid", "tanh")):
        nodes.append(node("SliceChannel", [1, 0], num_outputs="4"))
        place = len(nodes) - 1
        nodes += [node("Activation", [place, k], act_type=kind) for k, kind in enumerate(kinds)]
    path.write_text(json.dumps({"nodes": nodes[:5]}))
    assert mxnet_symbol.read(path).gates == {"w": ("tanh", "sigmoid", "none", "none")}
    path.write_text(json.dumps({"nodes": nodes}))
    with pytest.raises(
        ReadError, match="w: expected gates tanh, sigmoid, none, none, found sigmoid, tanh, none"
    ):
        mxnet_symbol.read(path)
