"""Fused nodes of an ONNX model, alone and with given outputs.

Alone, a node is cut out with its constants as a model of its own. Its input, its initial states and its
lengths become inputs, wherever it stands: a node in a branch or a loop reads its constants from the graphs
around it. The file says which node is which layer. For the glue the model runs without its fused nodes: what
they give is fed, what they take is read.
Source: onnx v1.18 docs/Operators.md LSTM-7, GRU-7, RNN-7: inputs X, W, R, B, sequence_lens, initial_h and an
LSTM's initial_c and P; outputs Y `[steps, directions, batch, units]`, Y_h, Y_c.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.onnx import open_session, subgraphs_of
from cudnn_convert.formats import part_file
from cudnn_convert.model import Array, Part, Recurrence
from cudnn_convert.verification.judges import nearest
from cudnn_convert.verification.pieces.glue_runs import (
    GlueResult,
    GlueRun,
    LayerValues,
    RunGlue,
    match_values,
)
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Piece, PieceInputs, Pieces

_KEY: Final = "cudnn_convert"
FUSED: Final = frozenset({"LSTM", "GRU", "RNN"})
_FLOAT: Final = onnx.TensorProto.FLOAT
#: The places of W, R, B and P among a node's inputs.
_WEIGHTS: Final = (1, 2, 3, 7)
_X, _LENGTHS, _H, _C = 0, 4, 5, 6


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """List the fused nodes recorded in the files as layers of a recurrence."""
    known = {recurrence.node: recurrence for recurrence in recurrences}
    listing: list[Piece] = []
    reason = "the file does not say which of its nodes computes it"
    for file in dict.fromkeys(part_file(artifact.path, part.name) for part in artifact.plan.all_parts):
        model = onnx.load(str(file), load_external_data=False)
        nodes = {node.name: (node, constants) for node, constants in find_fused_nodes(model.graph, {})}
        for piece, name, layer in read_recorded_layers(model):
            if name not in known:
                continue
            if piece not in nodes:
                reason = f"{piece} is no {', '.join(sorted(FUSED))} node of the file"
                continue
            cut = partial(_cut, model, *nodes[piece], file.parent)
            projected = not known[name].sizes.projection
            listing.append(Piece(name, (layer,), piece, _asking(cut), projected=projected))
    return Pieces(tuple(listing), dict.fromkeys(known, reason))


def read_recorded_layers(model: Any) -> Iterator[tuple[str, str, int]]:
    """Yield `(fused node, recurrence, layer)` from a model's provenance, if any."""
    text = next((entry.value for entry in model.metadata_props if entry.key == _KEY), "{}")
    try:
        for record in json.loads(text).get("pieces", ()):
            yield str(record["piece"]), str(record["node"]), int(record["layer"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return


def find_fused_nodes(graph: Any, around: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each fused node of a graph and subgraphs, with the constants in scope."""
    constants = {**around, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in constants:  # of weights that are stored as half
            constants[node.output[0]] = constants[node.input[0]]
    for node in graph.node:
        for nested in subgraphs_of(node):
            yield from find_fused_nodes(nested, constants)
        if node.op_type in FUSED and not node.domain:
            yield node, constants


def _cut(model: Any, node: Any, constants: Mapping[str, Any], folder: Path) -> Any:
    """Open a session of the node alone; inputs `X`, `lengths`, `h` and `c`."""
    given = [*node.input, *[""] * (8 - len(node.input))]
    cut_node, kept = onnx.NodeProto(), []
    cut_node.CopyFrom(node)
    for position in _WEIGHTS:
        if given[position]:
            kept.append(_constant(constants[given[position]], folder, f"constant_{position}"))
            given[position] = kept[-1].name
    given[0], given[_LENGTHS], given[_H] = "X", "lengths", "h"
    given[_C] = "c" if node.op_type == "LSTM" else ""
    while not given[-1]:
        given.pop()
    del cut_node.input[:], cut_node.output[:]
    cut_node.input.extend(given)
    cut_node.output.extend(["Y", "Y_h", *(["Y_c"] if node.op_type == "LSTM" else [])])
    types = {"X": _FLOAT, "lengths": onnx.TensorProto.INT32, "h": _FLOAT, "c": _FLOAT}
    ends = [helper.make_tensor_value_info(name, types[name], None) for name in given if name in types]
    outputs = [helper.make_tensor_value_info(name, _FLOAT, None) for name in cut_node.output]
    alone = helper.make_model(
        helper.make_graph([cut_node], "piece", ends, outputs, kept), opset_imports=model.opset_import
    )
    alone.ir_version = model.ir_version
    return open_session(alone.SerializeToString())


def _constant(tensor: Any, folder: Path, name: str) -> Any:
    """Copy a constant as float32, under a given name."""
    copied = onnx.TensorProto()
    copied.CopyFrom(tensor)  # what lies in another file is read into it
    value = numpy_helper.to_array(copied, str(folder)).astype(np.float32, copy=False)
    return numpy_helper.from_array(value, name)


def _asking(cut: Any) -> Any:
    session = cache(cut)

    def ask(asked: PieceInputs) -> Answer:
        running = session()
        given = {"X": asked.x, "h": asked.h, "c": asked.c}
        fed = {name: value.astype(np.float32) for name, value in given.items()} | {"lengths": asked.lengths}
        names = [value_info.name for value_info in running.get_inputs()]
        y, h, *c = running.run(None, {name: fed[name] for name in names})
        steps, directions, batch, units = y.shape
        together = y.transpose(0, 2, 1, 3).reshape(steps, batch, directions * units)
        return together, h, c[0] if c else None

    return ask


_WHAT: Final = {_X: "input", _LENGTHS: "lengths", _H: "initial h", _C: "initial c"}
_NESTED: Final = frozenset({"If", "Loop", "Scan"})

#: A fused node, what is given for it, and by place what entered it.
_Taken: TypeAlias = tuple[str, LayerValues, dict[int, Array]]


def runner(artifact: Artifact) -> RunGlue:
    """Return a function for the glue of each part's model, branches and loops included."""

    def run(passes: Sequence[GlueRun]) -> Iterator[GlueResult]:
        for call in passes:
            seen = [_run(artifact, part, call) for part in artifact.plan.parts]
            outputs = {key: value for result in seen for key, value in result.outputs.items()}
            yield GlueResult(outputs, [value for result in seen for value in result.entered])

    return run


def _run(artifact: Artifact, part: Part, given: GlueRun) -> GlueResult:
    """Run the glue in the file of a part, on the part's inputs."""
    plan, file = artifact.plan, part_file(artifact.path, part.name)
    model = onnx.load(str(file))
    records = [*read_recorded_layers(model)]
    nodes = {node for _, node, _ in records}
    calls = given.calls if len(plan.parts) == 1 else [call for call in given.calls if call.node in nodes]
    fused = {node.name for node, _ in find_fused_nodes(model.graph, {})}
    named = {piece: (node, layer) for piece, node, layer in records if piece in fused}
    values_by_node = match_values(plan, calls, named)
    keys = {tensor: key for key, tensor in part.signature.inputs.items()}
    names = runners.pair_inputs(file, part.signature.inputs, [value.name for value in model.graph.input])
    fed = {names[keys[tensor]]: value for tensor, value in given.feed.items() if tensor in keys}
    is_nested = any(node.op_type in _NESTED for node in model.graph.node)
    values, taken = (_interpret if is_nested else _run_model)(model, values_by_node, fed)
    return _see(model, values, taken, part)


def _run_model(
    model: Any, values_by_node: Mapping[str, Sequence[LayerValues]], fed: Mapping[str, Array]
) -> tuple[dict[str, Array], list[_Taken]]:
    """Run a model free of branches, with the outputs of fused nodes given.

    Returns all observed tensors by name, and what entered each fused node.
    """
    fused = [node for node in model.graph.node if node.name in values_by_node]
    session = _session(model, fused)
    there = [value.name for value in session.get_inputs()]
    wanted = [value.name for value in session.get_outputs()]
    given = {node.name: values_by_node[node.name][0] for node in fused}

    def answers() -> dict[str, Array]:
        values = {**fed, **_feed(fused, given)}
        answered = session.run(wanted, {key: values[key] for key in there})
        return values | dict(zip(wanted, answered, strict=True))

    for node in fused:  # in their order: what enters one depends on those before it
        if len(values_by_node[node.name]) > 1:
            taken = _entering(model, node, given[node.name], answers())
            given[node.name] = nearest(values_by_node[node.name], taken[_X], taken[_H], taken.get(_C))
    values = answers()
    return values, [
        (node.name, given[node.name], _entering(model, node, given[node.name], values)) for node in fused
    ]


def _interpret(
    model: Any, values_by_node: Mapping[str, Sequence[LayerValues]], fed: Mapping[str, Array]
) -> tuple[dict[str, Array], list[_Taken]]:
    """Run a model with branches or loops by ONNX's interpreter; return as `_run_model`."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    taken: list[_Taken] = []

    class Fused(OpRun):  # type: ignore[misc] # onnx has no types
        op_domain = ""

        def _run(self, *inputs: Any, **_: Any) -> tuple[Array, ...]:
            node = self.onnx_node
            fits = values_by_node.get(node.name)
            if not fits:
                raise LookupError(f"{node.name} runs where no recurrence of the source does")
            entered = _entering(model, node, fits[0], dict(zip(node.input, inputs, strict=False)))
            of = nearest(fits, entered[_X], entered[_H], entered.get(_C))
            taken.append((node.name, of, entered))
            answers = _feed([node], {node.name: of})
            return tuple(answers.get(name, of.y) for name in node.output)

    ops = [type(kind, (Fused,), {}) for kind in FUSED]
    wanted = [value.name for value in model.graph.output]
    answered = ReferenceEvaluator(model, new_ops=ops).run(wanted, dict(fed))
    return dict(zip(wanted, answered, strict=True)), taken


def _session(model: Any, fused: list[Any]) -> Any:
    """Open the model with fused nodes removed and observed tensors as outputs."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    graph, gone = small.graph, {node.name for node in fused}
    kept = [node for node in graph.node if node.name not in gone]
    read = [
        node.input[source] for node in fused for source in (_X, _LENGTHS, _H, _C) if len(node.input) > source
    ]
    del graph.node[:]
    graph.node.extend(kept)
    have = {value.name for value in graph.output}
    outputs = [name for node in fused for name in node.output if name]
    graph.input.extend(helper.make_tensor_value_info(name, _FLOAT, None) for name in outputs)
    made_by = {name for node in kept for name in node.output}
    for name in dict.fromkeys(read):
        if name and name not in have and name in made_by:
            graph.output.append(onnx.ValueInfoProto(name=name))
    return open_session(small.SerializeToString())


def _feed(fused: list[Any], given: Mapping[str, LayerValues]) -> dict[str, Array]:
    """Return the outputs given for the fused nodes."""
    feeds: dict[str, Array] = {}
    for node in fused:
        of = given[node.name]
        values = (of.y, of.h_end, of.c_end)
        feeds |= {name: value for name, value in zip(node.output, values, strict=False) if name}
    return feeds


def _entering(model: Any, node: Any, of: LayerValues, values: Mapping[str, Array]) -> dict[int, Array]:
    """Collect the inputs of a fused node by position; missing inputs are the defaults.

    An initial state is multiplied by the projection, if there is one, as in the source.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    batch, steps = of.x.shape[1], len(of.x)
    units = of.h_end.shape[-1]
    zeros = np.zeros((len(of.h), batch, units), np.float32)
    starts = {_H: zeros, _C: zeros, _LENGTHS: np.full(batch, steps)}
    values_by_name = {}
    for position in (_X, _LENGTHS, _H, *([_C] if node.op_type == "LSTM" else [])):
        name = node.input[position] if len(node.input) > position else ""
        value = starts.get(position) if not name else values.get(name)
        if value is None and name in constants:
            value = numpy_helper.to_array(constants[name])
        if value is None:
            continue
        if position == _H and of.projections:
            value = np.stack([h @ matrix.T for h, matrix in zip(value, of.projections, strict=True)])
        values_by_name[position] = value.astype(np.float32)
    return values_by_name


def _see(model: Any, values: Mapping[str, Array], taken: Sequence[_Taken], part: Part) -> GlueResult:
    entered: list[tuple[str, Array, Array]] = []
    for name, of, actual in taken:
        full = np.full(of.x.shape[1], len(of.x)) if of.lengths is None else of.lengths
        expected = {_X: of.x, _LENGTHS: full.astype(np.float32), _H: of.h, _C: of.c}
        entered += [
            (f"{_WHAT[position]} of {part.prefix}{name}", actual[position], expected[position])
            for position in actual
        ]
    names = [value_info.name for value_info in model.graph.output]
    keys = runners.pair_outputs(part.signature.outputs, names)
    outputs = {part.prefix + keys[name]: values[name] for name in names if name in values}
    return GlueResult(outputs, entered)
