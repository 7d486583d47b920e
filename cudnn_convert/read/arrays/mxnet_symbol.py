"""Reads the recurrences of an MXNet checkpoint's symbol.

A symbol is JSON: `nodes`, each with its `op`, `name`, attributes, and `inputs` as numbers of nodes and of
their outputs. An op `null` is a variable. Two things matter here:

* The op RNN, cuDNN's own, has its sizes as attributes. Its second input is one vector of parameters, or what
  is reshaped and joined from the arrays of a gluon layer.
* A cell of the symbol API is a FullyConnected of its weight, sums, a SliceChannel, and an activation for each
  gate. Their order is that of the gates. MXNet's example/rnn/lstm.py has i, g, f, o under the usual names.

Source: mxnet 1.9.1 src/operator/rnn-inl.h RNNParam; python/mxnet/gluon/rnn/rnn_layer.py _forward_kernel;
python/mxnet/rnn/rnn_cell.py LSTMCell.__call__, ResidualCell.__call__; mxnet 0.9 example/rnn/lstm.py lstm.
Attributes are `attrs`, before 0.12 `attr` and `param`: 3rdparty/tvm/nnvm/src/pass/saveload_json.cc.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Mode, PartialSizes

#: Bytes of a symbol that is read; an unrolled one of a thousand steps has a tenth.
_MOST: Final = 1 << 26
_ADVICE: Final = f"{AGAIN}, or move it away to take the arrays alone"
_FUSED: Final = ("RNN", "_npx_rnn")
_SLICES: Final = ("SliceChannel", "split")
_MATRIX: Final = "FullyConnected"
#: Nodes between a SliceChannel and the matrices of its cell.
_NEAR: Final = 8
_CLIPS: Final = ("lstm_state_clip_min", "lstm_state_clip_max")
_LSTM: Final = len(Mode.LSTM.gates)
#: The activations of MXNet's own LSTM cells, for gates i, f, c, o.
USUAL_GATES: Final = ("sigmoid", "sigmoid", "tanh", "sigmoid")
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FusedOp:
    """An op RNN: the sizes, and the names of parameters."""

    name: str
    sizes: PartialSizes
    projection: int
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """The facts of a symbol.

    `gates` has the activations of an LSTM cell's gates, in order, by the names of its weights.
    `has_residuals`: a cell's output is added to its input.
    """

    path: Path
    fused: tuple[FusedOp, ...]
    gates: Mapping[str, tuple[str, ...]]
    has_residuals: bool

    def refuse(self, where: str, expected: str, actual: str, advice: str = _ADVICE) -> ReadError:
        """Return the error of a contradictory symbol."""
        return ReadError(self.path, where, expected=expected, found=actual, advice=advice)


def read(path: Path) -> Symbol:
    """Read a symbol. Raises ReadError, OSError."""
    if path.stat().st_size > _MOST:
        expected, actual = f"at most {_MOST} bytes", f"{path.stat().st_size}"
        raise ReadError(path, "file", expected=expected, found=actual, advice=_ADVICE)
    try:
        nodes = _parse_nodes(json.loads(path.read_bytes()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as cause:
        expected, actual = "the JSON of a symbol", "another or a damaged text"
        raise ReadError(path, "file", expected=expected, found=actual, advice=_ADVICE) from cause
    fused = tuple(_parse_fused(path, nodes, node) for node in nodes if node.op in _FUSED)
    has_residuals = any(node.name.endswith("_plus_residual") for node in nodes)
    return Symbol(path, fused, _find_gates(path, nodes), has_residuals)


@dataclass(frozen=True, slots=True)
class _Node:
    op: str
    name: str
    attributes: Mapping[str, str]
    #: The number of a node and of its output, for each input.
    inputs: tuple[tuple[int, int], ...]


def _parse_nodes(tree: Any) -> list[_Node]:
    nodes = []
    for number, entry in enumerate(tree["nodes"]):
        attributes = {**entry.get("param", {}), **entry.get("attr", {}), **entry.get("attrs", {})}
        inputs = tuple((each[0], each[1]) for each in entry["inputs"])
        # A node stands behind its inputs, so that no walk goes in circles.
        if not all(type(source) is type(output) is int and 0 <= source < number for source, output in inputs):
            raise ValueError(number)
        if not (isinstance(entry["op"], str) and isinstance(entry["name"], str)):
            raise TypeError(number)
        texts = {key: value for key, value in attributes.items() if isinstance(value, str)}
        nodes.append(_Node(entry["op"], entry["name"], texts, inputs))
    return nodes


def _parse_fused(path: Path, nodes: Sequence[_Node], node: _Node) -> FusedOp:
    attributes = node.attributes
    projection = attributes.get("projection_size", "None")
    numbers = {key: attributes.get(key, "") for key in ("num_layers", "state_size")}
    numbers["projection_size"] = "0" if projection == "None" else projection
    modes = [mode for mode in Mode if mode.value == attributes.get("mode")]
    parameters = tuple(_variables(nodes, node.inputs[1][0])) if len(node.inputs) > 1 else ()
    if not (modes and parameters and all(map(_NUMBER.fullmatch, numbers.values()))):
        expected, actual = "an RNN with mode, sizes and parameters", "another"
        raise ReadError(path, node.name, expected=expected, found=actual, advice=_ADVICE)
    for clip in _CLIPS:
        if attributes.get(clip, "None") != "None":
            expected, actual = "cell states that are not clipped", f"{clip} {attributes[clip]}"
            advice = "such a layer is not converted; without clipping it is another"
            raise ReadError(path, node.name, expected=expected, found=actual, advice=advice)
    directions = 2 if attributes.get("bidirectional", "False") in ("True", "1") else 1
    layers, units, width = (int(numbers[key]) for key in ("num_layers", "state_size", "projection_size"))
    sizes = PartialSizes(modes[0], layers, units, directions)
    return FusedOp(node.name, sizes, width, parameters)


def _variables(nodes: Sequence[_Node], start: int) -> Iterator[str]:
    """Yield the names of all variables behind a node."""
    waiting, seen = [start], {start}
    while waiting:
        node = nodes[waiting.pop()]
        if node.op == "null":
            yield node.name
        for source, _ in node.inputs:
            if source not in seen:
                seen.add(source)
                waiting.append(source)


def _find_gates(path: Path, nodes: Sequence[_Node]) -> dict[str, tuple[str, ...]]:
    """Return the activations of LSTM cells' gates by the names of weights."""
    activations: dict[int, dict[int, str]] = {
        number: {}
        for number, node in enumerate(nodes)
        if node.op in _SLICES and node.attributes.get("num_outputs") == str(_LSTM)
    }
    for node in nodes:
        for source, output in node.inputs:
            if source in activations:
                activations[source][output] = node.attributes.get("act_type", node.op)
    gates: dict[str, tuple[str, ...]] = {}
    for number, own in activations.items():
        listed = tuple(own.get(gate, "none") for gate in range(_LSTM))
        for name in _weights(nodes, number):
            if gates.setdefault(name, listed) != listed:
                expected, actual = f"gates {', '.join(gates[name])}", ", ".join(listed)
                raise ReadError(path, name, expected=expected, found=actual, advice=_ADVICE)
    return gates


def _weights(nodes: Sequence[_Node], number: int) -> Iterator[str]:
    """Yield the names of the matrices behind a SliceChannel."""
    waiting = [source for source, _ in nodes[number].inputs]
    for _ in range(_NEAR):
        if not waiting:
            return
        node = nodes[waiting.pop(0)]
        if node.op != _MATRIX:
            waiting += [source for source, _ in node.inputs]
        elif len(node.inputs) > 1 and nodes[node.inputs[1][0]].op == "null":
            yield nodes[node.inputs[1][0]].name
