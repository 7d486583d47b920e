"""The fused nodes of an ONNX file, each cut out with its constants as a model of its own.

Its input, its initial states and its lengths become inputs, wherever the node stands: a node in a branch or
a loop reads its constants from the graphs around it. The file says which node is which layer.
Source: onnx v1.18 docs/Operators.md LSTM-7, GRU-7, RNN-7: inputs X, W, R, B, sequence_lens, initial_h and an
LSTM's initial_c and P; outputs Y `[steps, directions, batch, units]`, Y_h, Y_c.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from cudnn_convert.formats import part_file
from cudnn_convert.model import Recurrence
from cudnn_convert.verification.pieces.inputs import Asked
from cudnn_convert.verification.pieces.piece import Answer, Artifact, Piece, Pieces

_KEY: Final = "cudnn_convert"
FUSED: Final = frozenset({"LSTM", "GRU", "RNN"})
_FLOAT: Final = onnx.TensorProto.FLOAT
#: The places of W, R, B and P among a node's inputs.
_WEIGHTS: Final = (1, 2, 3, 7)
_LENGTHS, _H, _C = 4, 5, 6


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Every fused node that the files of an artifact say to be a layer of a recurrence."""
    known = {one.node: one for one in recurrences}
    found: list[Piece] = []
    reason = "the file does not say which of its nodes computes it"
    for file in dict.fromkeys(part_file(artifact.path, part.name) for part in artifact.plan.parts):
        model = onnx.load(str(file), load_external_data=False)
        nodes = {node.name: (node, constants) for node, constants in fused_nodes(model.graph, {})}
        for piece, name, layer in recorded_layers(model):
            if name not in known:
                continue
            if piece not in nodes:
                reason = f"{piece} is no {', '.join(sorted(FUSED))} node of the file"
                continue
            cut = partial(_cut, model, *nodes[piece], file.parent)
            projected = not known[name].sizes.projection
            found.append(Piece(name, (layer,), piece, _asking(cut), projected=projected))
    return Pieces(tuple(found), dict.fromkeys(known, reason))


def recorded_layers(model: Any) -> Iterator[tuple[str, str, int]]:
    """`(fused node, recurrence, layer)` as the file's provenance has them; nothing where it has none."""
    text = next((entry.value for entry in model.metadata_props if entry.key == _KEY), "{}")
    try:
        for one in json.loads(text).get("pieces", ()):
            yield str(one["piece"]), str(one["node"]), int(one["layer"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return


def fused_nodes(graph: Any, around: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each fused node of a graph and of those nested in it, and the constants that it sees."""
    constants = {**around, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in constants:  # of weights that are stored as half
            constants[node.output[0]] = constants[node.input[0]]
    for node in graph.node:
        for attribute in node.attribute:
            for nested in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from fused_nodes(nested, constants)
        if node.op_type in FUSED and not node.domain:
            yield node, constants


def _cut(model: Any, node: Any, constants: Mapping[str, Any], folder: Path) -> Any:
    """A session of the node alone; inputs `X`, `lengths`, `h` and `c`."""
    import onnxruntime

    given = [*node.input, *[""] * (8 - len(node.input))]
    made, kept = onnx.NodeProto(), []
    made.CopyFrom(node)
    for place in _WEIGHTS:
        if given[place]:
            kept.append(_constant(constants[given[place]], folder, f"constant_{place}"))
            given[place] = kept[-1].name
    given[0], given[_LENGTHS], given[_H] = "X", "lengths", "h"
    given[_C] = "c" if node.op_type == "LSTM" else ""
    while not given[-1]:
        given.pop()
    del made.input[:], made.output[:]
    made.input.extend(given)
    made.output.extend(["Y", "Y_h", *(["Y_c"] if node.op_type == "LSTM" else [])])
    types = {"X": _FLOAT, "lengths": onnx.TensorProto.INT32, "h": _FLOAT, "c": _FLOAT}
    ends = [helper.make_tensor_value_info(name, types[name], None) for name in given if name in types]
    outputs = [helper.make_tensor_value_info(name, _FLOAT, None) for name in made.output]
    alone = helper.make_model(
        helper.make_graph([made], "piece", ends, outputs, kept), opset_imports=model.opset_import
    )
    alone.ir_version = model.ir_version
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        alone.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _constant(tensor: Any, folder: Path, name: str) -> Any:
    """A constant of float32 with its values, under another name."""
    held = onnx.TensorProto()
    held.CopyFrom(tensor)
    if external_data_helper.uses_external_data(held):
        external_data_helper.load_external_data_for_tensor(held, str(folder))
        held.ClearField("external_data")
        held.data_location = onnx.TensorProto.DEFAULT
    if held.data_type != _FLOAT:
        return numpy_helper.from_array(numpy_helper.to_array(held).astype(np.float32), name)
    held.name = name
    return held


def _asking(cut: Any) -> Any:
    session = cache(cut)

    def ask(asked: Asked) -> Answer:
        running = session()
        given = {"X": asked.x, "h": asked.h, "c": asked.c}
        fed = {name: value.astype(np.float32) for name, value in given.items()} | {"lengths": asked.lengths}
        names = [one.name for one in running.get_inputs()]
        y, h, *c = running.run(None, {name: fed[name] for name in names})
        steps, directions, batch, units = y.shape
        together = y.transpose(0, 2, 1, 3).reshape(steps, batch, directions * units)
        return together, h, c[0] if c else None

    return ask
