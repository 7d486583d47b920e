"""A search over a model's steps: a Loop around the model's own ONNX graph.

tf2onnx converts the search around a stand-in for the step. The nodes of the converted step then take its
place, so that a search computes as the step's own file does. Weights go to the outermost graph: the body sees
them, and they are written in pieces as those of any model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import onnx
import tensorflow as tf
from onnx import helper

from cudnn_convert.graph.graph import Graph, copy_graph
from cudnn_convert.graph.index import all_nodes
from cudnn_convert.graph.passes import inlining
from cudnn_convert.lower import search
from cudnn_convert.lower.onnx import checker, convert, finish, walk
from cudnn_convert.model import UserGraph
from cudnn_convert.values import Decoder

#: What stands for a part while tf2onnx works, in TensorFlow's graph and in ONNX'.
_CALL, _DOMAIN = "PyFunc", "cudnn_convert"
#: The name of the step among the parts that a search calls; those before it have their own.
_STEP: Final = "step"


@dataclass(frozen=True, slots=True)
class _Called:
    """A finished part called by a search, with types of inputs and outputs by key."""

    name: str
    finished: finish.Finished
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]

    @classmethod
    def of(cls, name: str, finished: finish.Finished, ends: Sequence[str]) -> _Called:
        """Return the part with the outputs `ends` alone."""
        inputs, outputs = (
            {value.name: _spec(value) for value in values}
            for values in (finished.model.graph.input, finished.model.graph.output)
        )
        return cls(name, finished, inputs, {key: outputs[key] for key in ends})

    def __call__(self, fed: Mapping[str, Any], _: Sequence[Any]) -> dict[str, Any]:
        kinds = [spec.dtype for spec in self.outputs.values()]
        values = tf.raw_ops.PyFunc(input=[fed[key] for key in self.inputs], token=self.name, Tout=kinds)
        pairs = zip(self.outputs.items(), values, strict=True)
        return {key: tf.ensure_shape(value, spec.shape) for (key, spec), value in pairs}


def lower_search(
    decoder: Decoder,
    step: finish.Finished,
    before: Mapping[str, finish.Finished] = MappingProxyType({}),
    *,
    opset: int = 17,
) -> finish.Finished:
    """Return the canonical model of a search over a finished `step`.

    The inputs and outputs of `step` are keys. `before` has the parts that the search runs before the first
    step, by name. Raises UnsupportedModelError where tf2onnx cannot convert the search.
    """
    called = [_Called.of(_STEP, step, search.list_step_outputs(decoder))]
    called += [_Called.of(part.name, before[part.name], [*part.signature.outputs]) for part in decoder.before]
    specs = {key: spec for part in called for key, spec in part.inputs.items()}
    first = {part.name: part for part in called[1:]}
    traced = search.trace_search(decoder, specs, called[0], before=first)
    nodes = search.place_search(decoder, specs, traced)
    graph = copy_graph(Graph(tf.Graph().as_graph_def(), nodes, traced.library))
    for node in all_nodes(graph):  # tf2onnx converts loops that stay functions
        node.attr.pop(inlining.LOWERED, None)
    inputs, outputs = decoder.signature.inputs, decoder.signature.outputs
    converted = convert.run_tf2onnx(
        *(graph, [*inputs.values()], {name: key for key, name in outputs.items()}, {_CALL: _stand_in}),
        opset=opset,
        user=UserGraph((), {}),
    )
    names = {tensor: key for side in (inputs, outputs) for key, tensor in side.items()}
    model, weights = finish.canonical(converted, names=names), dict[str, Any]()
    for part in called:
        weights |= _insert(model, part)
    # Runtimes' own ops, of a step in int8, have no schema to check by.
    domains = {opset.domain for part in called for opset in part.finished.model.opset_import}
    is_standard = domains <= checker.DOMAINS
    model.ir_version = _check(model, weights) if is_standard else step.model.ir_version
    return finish.Finished(model, weights)


def _check(model: Any, weights: Mapping[str, Any]) -> int:
    """Check a model with `weights` apart, and return the lowest IR version."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.initializer[:]
    for tensor in model.graph.initializer:
        if tensor.name in weights:  # without its values it passes as an input
            ends = (tensor.name, tensor.data_type, tensor.dims)
            probe.graph.input.append(helper.make_tensor_value_info(*ends))
        else:
            probe.graph.initializer.append(tensor)
    checker.check(probe)
    return int(probe.ir_version)


def _spec(value: Any) -> tf.TensorSpec:
    kind = value.type.tensor_type
    sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
    shape = [*sizes] if kind.HasField("shape") else None
    return tf.TensorSpec(shape, tf.as_dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)))


def _stand_in(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Turn TensorFlow's stand-in into a stand-in of ONNX, handed on by tf2onnx."""
    inputs, outputs, name = list(node.input), list(node.output), node.name
    shapes, kinds, called = node.output_shapes, node.output_dtypes, node.get_attr_str("token")
    graph.remove_node(node.name)
    graph.make_node(called, inputs, outputs=outputs, name=name, shapes=shapes, dtypes=kinds, domain=_DOMAIN)


def _insert(model: Any, part: _Called) -> dict[str, Any]:
    """Replace a stand-in by the nodes of the part, in place; return weights by name."""
    step, inputs, outputs, prefix = part.finished, [*part.inputs], [*part.outputs], f"{part.name}/"
    opsets = {opset.domain: opset.version for opset in model.opset_import} | {
        opset.domain: opset.version for opset in step.model.opset_import
    }
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*opset) for opset in sorted(opsets.items()))
    own = onnx.GraphProto()
    own.CopyFrom(step.model.graph)
    del own.output[:]
    own.output.extend(value for value in step.model.graph.output if value.name in outputs)
    for body in walk.graphs(model.graph):
        for position, node in enumerate(body.node):
            if (node.op_type, node.domain) == (part.name, _DOMAIN):
                fed = dict(zip(inputs, node.input, strict=True))
                wanted = dict(zip(outputs, node.output, strict=True))
                before, after = body.node[:position], body.node[position + 1 :]
                nodes = [*before, *_nodes(own, fed, wanted, prefix), *after]
                del body.node[:]
                body.node.extend(nodes)
                break
    read = {name for node in walk.all_nodes(model.graph) for name in node.input}
    for tensor in own.initializer:
        if prefix + tensor.name in read:
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name = prefix + tensor.name
    return {prefix + name: parts for name, parts in step.weights.items() if prefix + name in read}


def _nodes(graph: Any, fed: Mapping[str, str], wanted: Mapping[str, str], prefix: str) -> Iterator[Any]:
    """Yield the nodes needed by a part's outputs, with inputs `fed` and outputs `wanted`."""
    produced = {name for node in graph.node for name in node.output}
    names = {name: prefix + name for name in walk.names(graph) if name} | dict(fed)
    names |= {key: name for key, name in wanted.items() if key in produced}
    for node, _ in walk.topological_order(graph):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename(copy, names, prefix)
        yield copy
    for key, name in wanted.items():
        if key not in produced:  # an input or a constant of the step
            yield helper.make_node("Identity", [names[key]], [name], name=f"{prefix}{key}")


def _rename(node: Any, names: Mapping[str, str], prefix: str) -> None:
    """Rename a node and the node's tensors, in nested graphs too, in place."""
    if node.name:  # two of one name would be refused
        node.name = prefix + node.name
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for nested in walk.subgraphs(node):
        for end in (*nested.input, *nested.output, *nested.initializer):
            end.name = names.get(end.name, end.name)
        for inner in nested.node:
            _rename(inner, names, prefix)
