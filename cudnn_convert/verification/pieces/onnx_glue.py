"""An ONNX model without its fused nodes: what they give is fed, what they take is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from cudnn_convert.formats import part_file
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import elsewhere
from cudnn_convert.verification.computed import Call, nearest
from cudnn_convert.verification.pieces import glue
from cudnn_convert.verification.pieces.glue import Given, Run, Seen
from cudnn_convert.verification.pieces.onnx import FUSED, recorded_layers
from cudnn_convert.verification.pieces.piece import Artifact

_PRODUCTS: Final = frozenset({"MatMul", "Gemm", "Conv"})
_X, _LENGTHS, _H, _C = 0, 4, 5, 6
_WHAT: Final = {_X: "input", _LENGTHS: "lengths", _H: "initial h", _C: "initial c"}
_NESTED: Final = frozenset({"If", "Loop", "Scan"})


def runner(artifact: Artifact) -> Run:
    """Runs the glue of a model; recurrences in branches and loops are left."""

    def run(feed: Mapping[str, Array], calls: Sequence[Call]) -> Seen:
        if len(artifact.plan.parts) != 1:
            raise LookupError("the artifact is several files")
        (part,) = artifact.plan.parts
        file = part_file(artifact.path, part.name)
        model = onnx.load(str(file))
        fused = [node for node in model.graph.node if node.op_type in FUSED]
        if any(node.op_type in _NESTED for node in model.graph.node):
            raise LookupError("the artifact has branches or loops")
        fitting = _fitting(artifact.plan, model, fused, calls)
        session = _session(model, fused)
        names = {tensor: key for key, tensor in artifact.plan.signature.inputs.items()}
        there = {found.name for found in session.get_inputs()}
        own = {name for node in fused for name in node.output}
        inputs = elsewhere.inputs(file, part.signature.inputs, there - own)
        fed = {inputs[names[tensor]]: value for tensor, value in feed.items()}
        wanted = [found.name for found in session.get_outputs()]

        def answers(given: Mapping[str, Given]) -> dict[str, Array]:
            values = fed | _fed(fused, given)
            answered = session.run(wanted, {key: values[key] for key in there})
            return values | dict(zip(wanted, answered, strict=True))

        given = {node.name: fitting[node.name][0] for node in fused}
        for node in fused:  # in their order: what enters one depends on those before it
            if len(fitting[node.name]) > 1:
                taken = _entering(model, node, given[node.name], answers(given))
                x, h = taken[_X], taken[_H]
                given[node.name] = nearest(fitting[node.name], x, h, taken.get(_C))
        return _seen(model, fused, given, answers(given), part)

    return run


def _fitting(plan: Plan, model: Any, fused: Sequence[Any], calls: Sequence[Call]) -> dict[str, list[Given]]:
    """By fused node what it may stand for: a layer of a recurrence, or of another with the same weights."""
    layers = glue.layers(plan, calls)
    named = {piece: (node, layer) for piece, node, layer in recorded_layers(model)}
    weights = {one.node: (one.shared, one.sizes, one.dtype) for one in plan.recurrences}
    found: dict[str, list[Given]] = {}
    lost = {(weights[node], layer) for node, layer in layers}
    for node in fused:
        owner, own = named.get(node.name, ("", 0))
        wanted = (weights.get(owner), own)
        found[node.name] = [
            given for (name, layer), given in layers.items() if (weights[name], layer) == wanted
        ]
        lost.discard(wanted)
    if lost or not all(found.values()):
        raise LookupError("the artifact does not have one node for each layer of each recurrence")
    return found


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


def _entering(model: Any, node: Any, of: Given, values: Mapping[str, Array]) -> dict[int, Array]:
    """By place what enters a fused node, states behind a projection as the source has them."""
    constants = {one.name: one for one in model.graph.initializer}
    batch, steps = of.x.shape[1], len(of.x)
    units = of.h_end.shape[-1]
    zeros = np.zeros((len(of.h), batch, units), np.float32)
    starts = {_H: zeros, _C: zeros, _LENGTHS: np.full(batch, steps)}
    found = {}
    for place in (_X, _LENGTHS, _H, *([_C] if node.op_type == "LSTM" else [])):
        name = node.input[place] if len(node.input) > place else ""
        value = starts.get(place) if not name else values.get(name)
        if value is None and name in constants:
            value = onnx.numpy_helper.to_array(constants[name])
        if value is None:
            continue
        if place == _H and of.projections:
            value = np.stack([one @ matrix.T for one, matrix in zip(value, of.projections, strict=True)])
        found[place] = value.astype(np.float32)
    return found


def _seen(
    model: Any, fused: list[Any], given: Mapping[str, Given], values: Mapping[str, Array], part: Any
) -> Seen:
    entered: list[tuple[str, Array, Array]] = []
    for node in fused:
        of = given[node.name]
        full = np.full(of.x.shape[1], len(of.x)) if of.lengths is None else of.lengths
        expected = {_X: of.x, _LENGTHS: full.astype(np.float32), _H: of.h, _C: of.c}
        taken = _entering(model, node, of, values)
        entered += [(f"{_WHAT[place]} of {node.name}", taken[place], expected[place]) for place in taken]
    names = [one.name for one in model.graph.output]
    keys = elsewhere.keys(part.signature.outputs, names)
    outputs = {keys[name]: values[name] for name in names if name in values}
    products = {
        f"{node.op_type} {node.name}": values[node.output[0]]
        for node in model.graph.node
        if node.op_type in _PRODUCTS and node.output[0] in values
    }
    return Seen(outputs, entered, products, [value for of in given.values() for value in of.beside])
