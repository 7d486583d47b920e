"""An ONNX model without its fused nodes: what they give is fed, what they take is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from cudnn_convert.formats import part_file
from cudnn_convert.model import Array
from cudnn_convert.verification import elsewhere
from cudnn_convert.verification.computed import Call
from cudnn_convert.verification.pieces import glue
from cudnn_convert.verification.pieces.glue import Given, Run, Seen
from cudnn_convert.verification.pieces.onnx import FUSED, recorded_layers
from cudnn_convert.verification.pieces.piece import Artifact

_PRODUCTS: Final = frozenset({"MatMul", "Gemm", "Conv"})
_X, _LENGTHS, _H, _C = 0, 4, 5, 6
_NESTED: Final = frozenset({"If", "Loop", "Scan"})


def runner(artifact: Artifact) -> Run:
    """Runs the glue of a model; recurrences of equal weights, and those in branches and loops, are left."""

    def run(feed: Mapping[str, Array], calls: Sequence[Call]) -> Seen:
        layers = glue.layers(artifact.plan, calls)
        if len(artifact.plan.parts) != 1:
            raise LookupError("the artifact is several files")
        (part,) = artifact.plan.parts
        file = part_file(artifact.path, part.name)
        model = onnx.load(str(file))
        named = {piece: (node, layer) for piece, node, layer in recorded_layers(model)}
        fused = [node for node in model.graph.node if node.op_type in FUSED]
        if any(node.op_type in _NESTED for node in model.graph.node):
            raise LookupError("the artifact has branches or loops")
        keys = [named.get(node.name) for node in fused]
        if sorted(map(str, keys)) != sorted(map(str, layers)):
            raise LookupError("the artifact does not have one node for each layer of each recurrence")
        if any(one.sizes.projection for one in artifact.plan.recurrences):
            raise LookupError("projections stand around the nodes")
        given = {node.name: layers[key] for node, key in zip(fused, keys, strict=True) if key}
        session = _session(model, fused)
        fed = _fed(fused, given)
        names = {tensor: key for key, tensor in artifact.plan.signature.inputs.items()}
        there = {found.name for found in session.get_inputs()}
        inputs = elsewhere.inputs(file, part.signature.inputs, there - {*fed})
        fed |= {inputs[names[tensor]]: value for tensor, value in feed.items()}
        wanted = [found.name for found in session.get_outputs()]
        found = dict(zip(wanted, session.run(wanted, {key: fed[key] for key in there}), strict=True))
        return _seen(model, fused, given, found | fed, part)

    return run


def _session(model: Any, fused: list[Any]) -> Any:
    """The model without the fused nodes; every tensor that is looked at is an output."""
    import onnxruntime

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, gone = made.graph, {node.name for node in fused}
    kept = [node for node in graph.node if node.name not in gone]
    read = [
        node.input[place] for node in fused for place in (_X, _LENGTHS, _H, _C) if len(node.input) > place
    ]
    read += [node.output[0] for node in kept if node.op_type in _PRODUCTS]
    del graph.node[:]
    graph.node.extend(kept)
    have = {one.name for one in (*graph.input, *graph.output)} | {one.name for one in graph.initializer}
    floats = onnx.TensorProto.FLOAT
    outputs = [name for node in fused for name in node.output if name]
    graph.input.extend(helper.make_tensor_value_info(name, floats, None) for name in outputs)
    made_by = {name for node in kept for name in node.output}
    for name in dict.fromkeys(read):
        if name and name not in have and name in made_by:
            graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _fed(fused: list[Any], given: Mapping[str, Given]) -> dict[str, Array]:
    """What the fused nodes would give."""
    found: dict[str, Array] = {}
    for node in fused:
        of = given[node.name]
        values = (of.y, of.h_end, of.c_end)
        found |= {name: value for name, value in zip(node.output, values, strict=False) if name}
    return found


def _seen(
    model: Any, fused: list[Any], given: Mapping[str, Given], values: Mapping[str, Array], part: Any
) -> Seen:
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    entered: list[tuple[str, Array, Array]] = []
    for node in fused:
        of = given[node.name]
        batch, steps = of.x.shape[1], len(of.x)
        full = np.full(batch, steps, np.int32) if of.lengths is None else of.lengths
        expected = {_X: of.x, _LENGTHS: full.astype(np.float32), _H: of.h, _C: of.c}
        starts = {_H: np.zeros_like(of.h), _C: np.zeros_like(of.c), _LENGTHS: np.full(batch, steps)}
        for place, what in ((_X, "input"), (_LENGTHS, "lengths"), (_H, "initial h"), (_C, "initial c")):
            if place == _C and node.op_type != "LSTM":
                continue
            name = node.input[place] if len(node.input) > place else ""
            found = starts[place] if not name else values.get(name, constants.get(name))
            if found is not None:
                entered.append((f"{what} of {node.name}", found.astype(np.float32), expected[place]))
    names = [one.name for one in model.graph.output]
    keys = elsewhere.keys(part.signature.outputs, names)
    outputs = {keys[name]: values[name] for name in names if name in values}
    products = {
        f"{node.op_type} {node.name}": values[node.output[0]]
        for node in model.graph.node
        if node.op_type in _PRODUCTS and node.output[0] in values
    }
    return Seen(outputs, entered, products)
