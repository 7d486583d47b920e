"""Last passes of an ONNX model, and the model of a single recurrence.

`trim_unread` removes unread outputs: beside a recurrence of one step each node is expensive. tf2onnx has no
such pass, and its own passes must come first: they do not know a partial Shape (v1.17.0
tf2onnx/optimizer/transpose_optimizer.py _shape_handler).
Source: onnx v1.18 docs/Operators.md Shape-15 (`start`, `end`), Slice-13, LSTM-14 (all outputs are optional).

`canonical` makes the bytes deterministic. tf2onnx numbers names and orders nodes by sets of objects, so two
runs differ. A walk from the outputs fixes the order of nodes (unneeded ones go), and every internal name, in
all nested graphs, follows from that order. In the main graph a tensor that has a name of the source's keeps
it: the proof compares the two, and people know it. Value infos of internal tensors, doc strings and the
producer's stamp are removed.
Source: onnx v1.18 onnx/onnx.proto (a nested graph sees the names of the graphs around it).

`finish_model` makes a model canonical, checks it and returns its weights separate from the proto.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from cudnn_convert.errors import UsageError
from cudnn_convert.lower.onnx import checker, fused_nodes, walk
from cudnn_convert.model import Parts, Recurrence
from cudnn_convert.recurrences.graphless import Single, Spec
from cudnn_convert.values import Axis
from cudnn_convert.version import __version__

_OPSET_OF_PARTS: Final = 15


def trim_unread(graph: Any, opset: int) -> None:
    """Fold Slice(Shape) into Shape and drop unread outputs of fused nodes, in place.

    Covers nested graphs. `opset` is that of ONNX's own ops.
    """
    for subgraph in walk.graphs(graph):
        if opset >= _OPSET_OF_PARTS:
            for node, shape, (start, end) in _parts(subgraph):
                node.op_type, node.input[:] = "Shape", shape.input
                node.attribute.extend(
                    onnx.helper.make_attribute(*pair) for pair in (("start", start), ("end", end))
                )
        read = {name for _, reads in walk.topological_order(subgraph) for name in reads} | {
            value.name for value in subgraph.output
        }
        for node in subgraph.node:
            if node.op_type in fused_nodes.FUSED and not node.domain:
                while node.output and node.output[-1] not in read:
                    node.output.pop()


def _parts(graph: Any) -> Iterator[tuple[Any, Any, tuple[int, int]]]:
    """Yield each Slice of consecutive sizes of a whole Shape, with the Shape and bounds."""
    shapes = {node.output[0]: node for node in graph.node if node.op_type == "Shape" and not node.attribute}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Slice" or node.input[0] not in shapes:
            continue
        bounds = [constants.get(name) for name in node.input[1:]]
        if any(tensor is None for tensor in bounds):
            continue
        start, end, *others = (onnx.numpy_helper.to_array(tensor).tolist() for tensor in bounds)
        # Axis 0, step 1, and bounds counted from the start.
        if others in ([], [[0]], [[0], [1]]) and 0 <= start[0] < end[0]:
            yield node, shapes[node.input[0]], (start[0], end[0])


_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_UNKNOWN: Final = re.compile(r"unk__\d+")  # tf2onnx v1.17.0 tf2onnx/utils.py make_onnx_shape


def canonical(
    model: Any, *, names: Mapping[str, str] = _NO_NAMES, known: Collection[str] = frozenset()
) -> Any:
    """Return a copy of a ModelProto with deterministic bytes.

    `names` renames inputs and outputs; others keep their names. `known` are tensors of the source, whose
    names stay.
    """
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    trim_unread(graph, next(opset.version for opset in model.opset_import if not opset.domain))
    walk.sort_subgraph_outputs(graph, {value.name: value.name for value in graph.input})
    kept = {value.name: names.get(value.name, value.name) for value in chain(graph.input, graph.output)}
    result = onnx.ModelProto(
        ir_version=model.ir_version, producer_name="cudnn-convert", producer_version=__version__
    )
    result.graph.CopyFrom(_Names(kept.values(), known).graph(graph, "cudnn_convert", {"": ""}, kept))
    used = {node.domain for node in walk.all_nodes(result.graph)} | {""}
    opsets = {opset.domain: opset.version for opset in model.opset_import if opset.domain in used}
    result.opset_import.extend(onnx.helper.make_opsetid(*opset) for opset in sorted(opsets.items()))
    result.metadata_props.extend(sorted(model.metadata_props, key=lambda entry: str(entry.key)))
    return result


def _claims(graph: Any) -> dict[str, str]:
    """Map each produced tensor to the first equal graph output, through Identities.

    Which of two outputs of one tensor becomes the Identity of the other is random in tf2onnx.
    """
    sources = {node.output[0]: node.input[0] for node in graph.node if walk.is_identity(node)}
    produced = {name for node in graph.node for name in node.output}
    claims: dict[str, str] = {}
    for value in graph.output:
        name = value.name
        while name in sources:
            name = sources[name]
        if name in produced:
            claims.setdefault(name, value.name)
    return claims


class _Names:
    """A writer of graphs with canonical names, numbered over all graphs of a model."""

    def __init__(self, reserved: Collection[str], known: Collection[str]) -> None:
        self.known = set(known) - set(reserved)
        self.taken = set(reserved) | self.known
        self.counts: Counter[str] = Counter()
        self.dimensions: dict[str, str] = {}

    def fresh(self, stem: str) -> str:
        """Return the next `stem_<k>`."""
        self.counts[stem] += 1
        return walk.free(f"{stem}_{self.counts[stem] - 1}", self.taken)

    def graph(self, source: Any, name: str, around: Mapping[str, str], kept: Mapping[str, str]) -> Any:
        """Copy a GraphProto with canonical names.

        `around` maps the names visible from outside, with "" for omitted inputs; `kept` maps those of the
        model's inputs and outputs.
        """
        graph = onnx.GraphProto(name=name)
        constants = {tensor.name: tensor for tensor in source.initializer}
        scope = {old: new for old, new in around.items() if old not in constants}
        for value in source.input:
            scope[value.name] = kept.get(value.name) or self.fresh("input")
            graph.input.append(self.value(value, scope[value.name]))

        def find(old: str) -> str:
            if old not in scope:
                scope[old] = self.fresh("constant")
                tensor = graph.initializer.add()
                tensor.CopyFrom(constants[old])
                tensor.name = scope[old]
                tensor.ClearField("doc_string")
            return scope[old]

        claims = _claims(source)
        wanted = self.own_names(source) if kept else {}
        wanted |= {root: kept[value] for root, value in claims.items() if value in kept}
        for node, reads in walk.topological_order(source):
            for old in reads:
                find(old)
            if walk.is_identity(node):
                scope[node.output[0]] = scope[node.input[0]]
            else:
                graph.node.append(self.node(node, scope, wanted))
        own = set(claims.values())
        for value in source.output:
            subgraph = find(value.name)
            name = kept.get(value.name) or (subgraph if value.name in own else self.fresh("output"))
            if name != subgraph:
                graph.node.add(
                    op_type="Identity", name=self.fresh("Identity"), input=[subgraph], output=[name]
                )
            graph.output.append(self.value(value, name))
        return graph

    def own_names(self, source: Any) -> dict[str, str]:
        """Return the source's names for tensors of the main graph, looking behind Identities."""
        sources = {node.output[0]: node.input[0] for node in source.node if walk.is_identity(node)}
        own = {name: name for node in source.node for name in node.output if name in self.known}
        for name in sorted(own.keys() & sources.keys()):
            root = name
            while root in sources:
                root = sources[root]
            own.setdefault(root, name)
        return {tensor: name for tensor, name in own.items() if tensor not in sources}

    def node(self, source: Any, scope: dict[str, str], wanted: Mapping[str, str]) -> Any:
        """Copy a NodeProto, with `wanted` or new output names, and extend `scope`."""
        node = onnx.NodeProto(op_type=source.op_type, domain=source.domain, name=self.fresh(source.op_type))
        node.input.extend(scope[name] for name in source.input)
        for old in sorted(source.attribute, key=lambda attribute: str(attribute.name)):
            attribute = node.attribute.add()
            attribute.CopyFrom(old)
            attribute.ClearField("doc_string")
        for k, nested in enumerate(walk.subgraphs(node)):
            nested.CopyFrom(self.graph(nested, f"{node.name}/graph_{k}", scope, _NO_NAMES))
        for k, name in enumerate(source.output):
            if name:
                scope[name] = wanted.get(name) or walk.free(f"{node.name}:{k}", self.taken)
            node.output.append(scope[name])
        return node

    def value(self, source: Any, name: str) -> Any:
        """Copy a ValueInfoProto under a new name, with unknown dimensions renumbered."""
        info = onnx.ValueInfoProto()
        info.CopyFrom(source)
        info.name = name
        info.ClearField("doc_string")
        for dimension in info.type.tensor_type.shape.dim:
            old = dimension.dim_param
            # tf2onnx takes the rows that a loop collects for none.
            if dimension.HasField("dim_value") and not dimension.dim_value:
                dimension.dim_param = self.dimensions.setdefault(
                    f"{name}:{len(self.dimensions)}", f"dim_{len(self.dimensions)}"
                )
            elif _UNKNOWN.fullmatch(old):
                dimension.dim_param = self.dimensions.setdefault(old, f"dim_{len(self.dimensions)}")
        return info


def name_axes(model: Any, axes: Mapping[str, Sequence[Axis]]) -> None:
    """Name the open dimensions of a model's inputs and outputs, in place.

    Inputs and outputs without a rank get one.
    """
    for value in (*model.graph.input, *model.graph.output):
        known, info = axes.get(value.name), value.type.tensor_type
        if known is None or (info.HasField("shape") and len(info.shape.dim) != len(known)):
            continue
        if not info.HasField("shape"):
            info.shape.SetInParent()
            info.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in known)
        for dimension, axis in zip(info.shape.dim, known, strict=True):
            if isinstance(axis, str):
                dimension.dim_param = axis
            elif axis is not None:
                dimension.dim_value = axis


OPSETS: Final = range(11, 19)  # tf2onnx v1.17.0 supports up to 18


def require(opset: int) -> None:
    """Check that `opset` is in `OPSETS`. Raises UsageError."""
    if opset not in OPSETS:
        raise UsageError(f"--opset: expected {OPSETS[0]} to {OPSETS[-1]}, found {opset}")


@dataclass(frozen=True, slots=True)
class Finished:
    """An `onnx.ModelProto`, with the values of some constants apart in `weights`.

    `pieces`: the layers that its fused nodes compute, from `fused_nodes.map_layers`.
    """

    model: Any
    weights: Mapping[str, Parts]
    pieces: tuple[dict[str, Any], ...] = ()

    def whole(self) -> Any:
        """Return the model with all values, if small enough for a proto."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in model.graph.initializer:
            if tensor.name in self.weights:
                fused_nodes.fill(tensor, self.weights[tensor.name])
        return model


def finish_model(
    model: Any,
    recurrences: Sequence[Recurrence],
    *,
    names: Mapping[str, str] = _NO_NAMES,
    known: Collection[str] = frozenset(),
) -> Finished:
    """Make a model canonical, with the lowest possible IR version and weights apart.

    `names` and `known` as in `canonical`. Raises UnsupportedModelError for ops outside standard ONNX.
    """
    final = canonical(model, names=names, known=known)
    checker.check(final)
    pieces = tuple(fused_nodes.map_layers(final.graph, recurrences))
    return Finished(final, fused_nodes.attach_weights(final.graph, recurrences), pieces)


_FLOAT: Final = onnx.TensorProto.FLOAT
_SWAP: Final = [1, 0, 2]  # batch-major to time-major and back


def lower(single: Single, *, opset: int = 17) -> Finished:
    """Return the canonical model of a recurrence, with inputs and outputs keyed as in `single`.

    Those of bfloat16 become float, as in graphs: ONNX Runtime has none in NumPy. Raises UsageError for an
    unsupported opset.
    """
    require(opset)
    recurrence, ops = single.recurrence, _ProtoBuilder(opset)
    dtype = _widen(recurrence.dtype)
    x = _into(ops, "inputs", dtype, swapped=single.batch_major)
    states = [_into(ops, key, dtype) for key in single.inputs if key.startswith("initial_")]
    lengths = "sequence_lengths" if recurrence.lengths else ""
    ends = fused_nodes.stack(ops, recurrence, x, states, lengths)
    for key, name in zip(single.outputs, ends, strict=True):
        # The axes of states are the same in each layout.
        swapped = single.batch_major and key == "outputs"
        _out_of(ops, name, key, dtype, swapped=swapped)
    graph = helper.make_graph(
        ops.nodes,
        "cudnn_convert",
        [_value(key, spec) for key, spec in single.inputs.items()],
        [_value(key, spec) for key, spec in single.outputs.items()],
        ops.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return finish_model(model, [recurrence])


def _value(key: str, spec: Spec) -> Any:
    dtype, shape = spec
    return helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(_widen(dtype)), shape)


def _widen(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.name == "bfloat16" else dtype


def _into(ops: _ProtoBuilder, key: str, dtype: np.dtype[Any], *, swapped: bool = False) -> str:
    """Convert an input for the fused nodes: float32, time-major."""
    name = key if dtype == np.float32 else ops("Cast", [key], to=_FLOAT)
    return ops("Transpose", [name], perm=_SWAP) if swapped else name


def _out_of(ops: _ProtoBuilder, name: str, key: str, dtype: np.dtype[Any], *, swapped: bool) -> None:
    """Convert a result of the fused nodes to an output."""
    if swapped:
        name = ops("Transpose", [name], perm=_SWAP)
    if dtype != np.float32:
        name = ops("Cast", [name], to=helper.np_dtype_to_tensor_dtype(dtype))
    ops.nodes.append(helper.make_node("Identity", [name], [key]))


class _ProtoBuilder(fused_nodes.NodeBuilder):
    """A builder of nodes in a list."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        names = [f"{op}/{len(self.nodes)}:{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant/{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def steps(self, x: str) -> int:
        return -1  # inputs of a single recurrence have an open number of steps
