"""A search over a model's steps: a Loop whose body is the model's own ONNX graph.

tf2onnx converts the search around a stand-in for the step. The nodes of the converted step then take its
place, so that a search computes as the step's own file does. Weights go to the outermost graph: the body sees
them, and they are written in pieces as those of any model.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import onnx
import tensorflow as tf
from onnx import helper

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import all_nodes
from cudnn_convert.graph.passes import inlining
from cudnn_convert.lower import search
from cudnn_convert.lower.onnx import convert, finish, walk
from cudnn_convert.model import Decoder

#: What stands for the step while tf2onnx works, in TensorFlow's graph and in ONNX'.
_CALL, _STEP, _DOMAIN = "PyFunc", "Step", "cudnn_convert"
#: Comes before the step's own names.
_PREFIX: Final = Decoder.STEP


def lower_search(decoder: Decoder, step: finish.Finished, *, opset: int = 17) -> finish.Finished:
    """The canonical model of a search over a finished `step`, whose inputs and outputs are keys.

    Raises UnsupportedModelError where tf2onnx cannot convert the search.
    """
    step_inputs, step_outputs = (
        {value.name: _spec(value) for value in values}
        for values in (step.model.graph.input, step.model.graph.output)
    )
    ends = [decoder.logits, *(state.next_key for state in decoder.states)]

    def call(fed: Mapping[str, Any], _: Sequence[Any]) -> dict[str, Any]:
        kinds = [step_outputs[key].dtype for key in ends]
        values = tf.raw_ops.PyFunc(input=[fed[key] for key in step_inputs], token=_STEP, Tout=kinds)
        pairs = zip(ends, values, strict=True)
        return {key: tf.ensure_shape(value, step_outputs[key].shape) for key, value in pairs}

    traced = search.trace_search(decoder, step_inputs, call)
    nodes = search.place_search(decoder, step_inputs, traced)
    graph = node_defs.copy_graph(node_defs.Graph(tf.Graph().as_graph_def(), nodes, traced.library))
    for node in all_nodes(graph):  # tf2onnx converts loops that stay functions
        node.attr.pop(inlining.LOWERED, None)
    inputs, outputs = decoder.signature.inputs, decoder.signature.outputs
    converted = convert.run_tf2onnx(
        *(graph, [*inputs.values()], [*outputs.values()], {_CALL: _stand_in}), opset=opset, known=()
    )
    names = {tensor: key for side in (inputs, outputs) for key, tensor in side.items()}
    model = finish.canonical(converted, names=names)
    weights = _insert_step(model, step, [*step_inputs], ends)
    # Runtimes' own ops, of a step in int8, have no schema to check by.
    is_standard = {opset.domain for opset in step.model.opset_import} <= finish.DOMAINS
    model.ir_version = _check(model, weights) if is_standard else step.model.ir_version
    return finish.Finished(model, weights)


def _check(model: Any, weights: Mapping[str, Any]) -> int:
    """Check a model whose `weights` are apart, and return its lowest IR version."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.initializer[:]
    for tensor in model.graph.initializer:
        if tensor.name in weights:  # without its values it passes as an input
            ends = (tensor.name, tensor.data_type, tensor.dims)
            probe.graph.input.append(helper.make_tensor_value_info(*ends))
        else:
            probe.graph.initializer.append(tensor)
    finish.check(probe)
    return int(probe.ir_version)


def _spec(value: Any) -> tf.TensorSpec:
    kind = value.type.tensor_type
    sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
    shape = [*sizes] if kind.HasField("shape") else None
    return tf.TensorSpec(shape, tf.as_dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)))


def _stand_in(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Make a stand-in of TensorFlow's one of ONNX', which tf2onnx hands on."""
    inputs, outputs, name = list(node.input), list(node.output), node.name
    shapes, kinds = node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    graph.make_node(_STEP, inputs, outputs=outputs, name=name, shapes=shapes, dtypes=kinds, domain=_DOMAIN)


def _insert_step(
    model: Any, step: finish.Finished, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """Put the nodes of a step in the place of its stand-in, in place; returns the weights by name."""
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
            if (node.op_type, node.domain) == (_STEP, _DOMAIN):
                fed = dict(zip(inputs, node.input, strict=True))
                wanted = dict(zip(outputs, node.output, strict=True))
                before, after = body.node[:position], body.node[position + 1 :]
                nodes = [*before, *_nodes(own, fed, wanted), *after]
                del body.node[:]
                body.node.extend(nodes)
                break
    read = {name for node in walk.all_nodes(model.graph) for name in node.input}
    for tensor in own.initializer:
        if _PREFIX + tensor.name in read:
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name = _PREFIX + tensor.name
    return {_PREFIX + name: parts for name, parts in step.weights.items() if _PREFIX + name in read}


def _nodes(graph: Any, fed: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Any]:
    """The nodes of a step that its outputs need, with `fed` for its inputs and `wanted` for its outputs."""
    produced = {name for node in graph.node for name in node.output}
    names = {name: _PREFIX + name for name in walk.names(graph) if name} | dict(fed)
    names |= {key: name for key, name in wanted.items() if key in produced}
    for node, _ in walk.topological_order(graph):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename(copy, names)
        yield copy
    for key, name in wanted.items():
        if key not in produced:  # an input or a constant of the step
            yield helper.make_node("Identity", [names[key]], [name], name=f"{_PREFIX}{key}")


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Give a node and all tensors in it and in its nested graphs other names, in place."""
    if node.name:  # two of one name would be refused
        node.name = _PREFIX + node.name
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for nested in walk.subgraphs(node):
        for end in (*nested.input, *nested.output, *nested.initializer):
            end.name = names.get(end.name, end.name)
        for inner in nested.node:
            _rename(inner, names)
