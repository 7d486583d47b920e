"""GPU nodes in functions of a TensorFlow 2 SavedModel, and the location of cuDNN weights.

`call_functions` makes a graph that calls every function that needs a GPU once. The objects that a function
captures become variables without values, of the shapes in the file: enough for the shapes of its cuDNN nodes
and for the variables that their parameters come from.
Source: tensorflow v2.21.0 core/protobuf/saved_object_graph.proto (SavedConcreteFunction.bound_inputs: the
last arguments of the function, by the objects they are).

`find_uncalled_functions` lists the functions with such nodes that no signature calls: a program calls them
through the loaded object. `add_calls` adds calls of them to the graph beside the functions, so that they are
verified like signatures. The last arguments of existing calls give the variables that a function captures.

`locate_packed_weights` finds a node's weights: the blob, or the matrices that the function packs into one.
The packing is run once on element numbers in place of weights; the result shows which element of which matrix
is where in the blob. The values, which a program may still change, are not used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs, ops, session
from cudnn_convert.graph.function_graphs import read_shape
from cudnn_convert.graph.graph import Graph, copy_graph, extract_nodes, graph_floats_as, open_session
from cudnn_convert.graph.index import PARAMS, Index, callees, library, reachable_functions, split, walk
from cudnn_convert.graph.passes import channels_last, inlining
from cudnn_convert.model import Array, Convention, Mode, Signature, Sizes
from cudnn_convert.recurrences import parameter_source, resolve, weight_copies
from cudnn_convert.weights import layouts, parameter_blob

#: Gradients of convolutions and pools, which have no CPU kernel where images are channels first.
_GRADIENTS: Final = frozenset(
    "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter MaxPoolGrad AvgPoolGrad "
    "MaxPool3DGrad AvgPool3DGrad".split()
)


def _is_gradient(node: Any) -> bool:
    is_first = "data_format" in node.attr and node.attr["data_format"].s.startswith(b"NC")
    return node.op in ops.CUDNN_GRADIENTS or (node.op in _GRADIENTS and is_first)


def _find_steps(functions: Mapping[str, Any]) -> set[str]:
    """Find the training steps: functions reaching a gradient computed by GPUs alone."""
    with_one = {name for name, function in functions.items() if any(map(_is_gradient, function.node_def))}
    return {name for name in functions if with_one and with_one & reachable_functions(functions, [name])}


def needs_gpu(function: Any) -> bool:
    """Return True if a function has a node lacking a kernel on some CPUs."""
    return any(node.op in ops.CUDNN or channels_last.lacks_kernel(node) for node in function.node_def)


def needing_gpu(meta: Any) -> list[str]:
    """List a MetaGraph's concrete functions in need of a GPU, except training steps."""
    functions = library(meta.graph_def)
    trained = _find_steps(functions)
    needing = {name for name, function in functions.items() if needs_gpu(function)}
    concrete = {*meta.object_graph_def.concrete_functions} & functions.keys() - trained
    return sorted(name for name in concrete if not needing.isdisjoint(reachable_functions(functions, [name])))


def training(graph: Any, signatures: Mapping[str, Signature]) -> list[str]:
    """List the signatures reaching a gradient computed by GPUs alone."""
    steps, index = _find_steps(library(graph)), Index(graph)
    keys = []
    for key, signature in signatures.items():
        needed = index.ancestors(split(name)[0] for name in signature.outputs.values())
        called = {name for op in needed for name in callees(index.nodes[op])}
        keys += [key] if called & steps else []
    return keys


def call_functions(meta: Any) -> Any:
    """Return a GraphDef with calls of a MetaGraph's concrete functions in need of a GPU.

    Each function is called once.
    """
    functions = library(meta.graph_def)
    graph = graph_pb2.GraphDef(versions=meta.graph_def.versions, library=meta.graph_def.library)
    objects: dict[int, Any] = {}
    beside = Index(meta.graph_def)
    for position, name in enumerate(needing_gpu(meta)):
        concrete = meta.object_graph_def.concrete_functions[name]
        bound = concrete.bound_inputs
        for object_id in bound:
            node, key = meta.object_graph_def.nodes[object_id], f"object_{object_id}"
            if object_id in objects:
                continue
            if node.WhichOneof("kind") == "variable":
                objects[object_id] = session.handle(key, key, node.variable)
            elif node.constant.operation in beside.nodes:
                objects[object_id] = node_defs.copy_node(beside.nodes[node.constant.operation], name=key)
        captured = [objects[object_id].name if object_id in objects else None for object_id in bound]
        graph.node.extend(call(f"call_{position}", functions[name], captured, _argument_shapes(concrete)))
    graph.node.extend(objects.values())
    return graph


def call(
    name: str, function: Any, captured: Sequence[str | None], shapes: Sequence[tf.TensorShape] = ()
) -> Iterator[Any]:
    """Yield the nodes of a library function's call: placeholders, then the call `name`.

    `captured` are the tensors for its last arguments. Other arguments, and those that are None, become
    placeholders `<name>/<argument>`; `shapes` are those of all arguments that are not captured, if known.
    """
    arguments = function.signature.input_arg
    given = [*[None] * (len(arguments) - len(captured)), *captured]
    known = shapes if len(shapes) + len(captured) == len(arguments) else ()
    inputs = []
    for position, (argument, tensor) in enumerate(zip(arguments, given, strict=True)):
        inputs.append(tensor or f"{name}/{argument.name}")
        if tensor is None:
            shape = known[position] if position < len(known) else read_shape(function, position)
            yield node_defs.placeholder(inputs[-1], tf.as_dtype(argument.type), shape)
    ends = (arguments, function.signature.output_arg)
    takes, gives = ([tf.as_dtype(argument.type) for argument in end] for end in ends)
    node = node_defs.node(name, "StatefulPartitionedCall", inputs, Tin=takes, Tout=gives)
    node.attr["f"].func.name = function.signature.name
    yield node


def _argument_shapes(concrete: Any) -> list[tf.TensorShape]:
    """Return the shapes of a SavedConcreteFunction's arguments, captured arguments excepted."""
    return [*_shapes(concrete.canonicalized_input_signature)]


def _shapes(value: Any) -> Iterator[tf.TensorShape]:
    """Yield the shapes of tensors in a StructuredValue, in the order of a function's arguments.

    Source: tensorflow v2.21.0 core/protobuf/struct.proto; python/util/nest.py sorts the keys of a dict.
    """
    kind = value.WhichOneof("kind")
    if kind == "tensor_spec_value":
        yield tf.TensorShape(value.tensor_spec_value.shape)
    elif kind == "dict_value":
        for _, field in sorted(value.dict_value.fields.items()):
            yield from _shapes(field)
    elif kind in ("list_value", "tuple_value"):
        for item in getattr(value, kind).values:
            yield from _shapes(item)


_SCOPE: Final = "functions"


def find_uncalled_functions(meta: Any, signatures: Mapping[str, Signature]) -> list[str]:
    """Find the functions with a GPU node out of reach of all `signatures`."""
    functions = library(meta.graph_def)
    index = Index(meta.graph_def)
    ends = [split(name)[0] for signature in signatures.values() for name in signature.outputs.values()]
    nodes = [index.nodes[op] for op in index.ancestors(ends)]
    reached = reachable_functions(functions, (name for node in nodes for name in callees(node)))
    return [
        name
        for name in needing_gpu(meta)
        if any(needs_gpu(functions[inner]) for inner in reachable_functions(functions, [name]) - reached)
    ]


def add_calls(meta: Any, graph: Any, names: Iterable[str]) -> tuple[Any, dict[str, Signature]]:
    """Add a call of each function to `graph`, and return the signature of each call.

    `graph` stands beside the functions. Functions that capture more than variables and constants, write
    variables or draw random numbers, as a layer does in training, are left out: their calls do not compare.
    """
    functions = library(graph)
    ops_by_id, nodes, signatures = _ops_by_id(meta), [], {}
    for number, name in enumerate(names):
        op = f"{_SCOPE}/call_{number}"  # a function's name may have letters that a node's may not
        concrete = meta.object_graph_def.concrete_functions[name]
        bound = concrete.bound_inputs
        reached = reachable_functions(functions, [name])
        inner = [node for callee in reached for node in functions[callee].node_def]
        is_pure = not any(node.op in ops.WRITES | ops.RANDOM for node in inner)
        if is_pure and all(k in ops_by_id for k in bound):
            captured = [ops_by_id[k] for k in bound]
            called = [*call(op, functions[name], captured, _argument_shapes(concrete))]
            nodes += called
            inputs = {node.name.rpartition("/")[2]: f"{node.name}:0" for node in called[:-1]}
            outputs = {
                argument.name: f"{op}:{position}"
                for position, argument in enumerate(functions[name].signature.output_arg)
            }
            signatures[name] = Signature(inputs, outputs)
    return Graph(graph, [*graph.node, *nodes]).definition, signatures


def _ops_by_id(meta: Any) -> dict[int, str]:
    """Return the ops of variables and constants captured by functions, by object id."""
    index, concrete = Index(meta.graph_def), meta.object_graph_def.concrete_functions
    objects = enumerate(meta.object_graph_def.nodes)
    constants = ((number, node.constant.operation) for number, node in objects)
    ops_by_id = {number: op for number, op in constants if op in index.nodes}
    for node in meta.graph_def.node:
        name = node.attr["f"].func.name if node.op in ops.CALLS else ""
        bound = concrete[name].bound_inputs if name in concrete else ()
        for object_id, source in zip(bound, index.data_inputs(node)[-len(bound) :], strict=False):
            op, _ = split(source)
            if index.nodes[op].op == "VarHandleOp":
                ops_by_id[object_id] = op
    return ops_by_id


#: What the output of a source is called in a function.
_SOURCES: Final = MappingProxyType({"ReadVariableOp": "value", "Cast": "y"})


@dataclass(frozen=True, slots=True)
class FunctionRecurrence:
    """A cuDNN node of a function, and the place of the weights.

    `matrices` has the names, in the function, of the tensors of Keras' kernel `[inputs, gates*units]`,
    recurrent kernel `[units, gates*units]` and bias (`layouts.pack_keras`), or is None where there is only
    the blob. `lengths`: whether sequences may be shorter than the input.
    """

    function: str
    node: str
    sizes: Sizes
    dtype: np.dtype[Any]
    time_major: bool
    lengths: bool
    matrices: tuple[str, str, str] | None


def locate_packed_weights(path: Path, graph: Any, convention: Convention) -> tuple[FunctionRecurrence, ...]:
    """Return each cuDNN node of the functions inlined in a flat graph once.

    Raises UnsupportedModelError where a node's sizes are unknown, or differ between calls.
    """
    graph = Graph.of(graph)
    _ = graph.shapes  # refuses a graph that TensorFlow cannot import, once for all nodes
    stored: dict[tuple[str, str], FunctionRecurrence] = {}
    reasons: list[str] = []
    for node in graph.node:
        origin = inlining.origin(node) if node.op in ops.CUDNN else None
        if origin is None:
            continue
        try:
            recurrence = _describe_packed(graph, node, origin, convention, path=path)
        except UnsupportedModelError as error:
            reasons += error.reasons
            continue
        known = stored.setdefault(origin, recurrence)
        if known != recurrence and known != replace(recurrence, matrices=known.matrices):
            found_sizes = f"{recurrence.sizes}; convert one call of it with --signature"
            reasons.append(f"{node.name}: expected {known.sizes} in every call, found {found_sizes}")
        if known != recurrence:
            stored[origin] = replace(known, matrices=None)
    if reasons:
        raise UnsupportedModelError(path, reasons)
    return tuple(stored.values())


def _describe_packed(
    graph: Graph, node: Any, origin: tuple[str, str], convention: Convention, *, path: Path
) -> FunctionRecurrence:
    tensors = resolve.read_inputs(graph, node)
    facts = resolve.describe_node(node, tensors)
    elements = tensors[PARAMS].shape.num_elements()
    known = facts.sizes
    if known is None or elements is None:
        expected = "static shapes of its states and parameters"
        cure = "convert it alone with --signature"
        raise UnsupportedModelError(path, [f"{node.name}: expected {expected}, found none; {cure}"])
    sizes = weight_copies.solve_sizes(elements, known, facts.input_mode)
    if sizes is None:
        actual = f"{elements}; are its states and parameters of one model?"
        reason = f"{node.name}: params: expected {weight_copies.describe_lengths(known)}, found {actual}"
        raise UnsupportedModelError(path, [reason])
    lengths = node.op == "CudnnRNNV3" and not resolve.lengths_are_trivial(graph.index, node)
    return FunctionRecurrence(
        *origin,
        sizes,
        facts.dtype,
        resolve.is_time_major(node),
        lengths,
        _matrices(graph.index, graph.shapes, node, sizes, convention),
    )


def _matrices(
    index: Index, seen: tf.Graph, node: Any, sizes: Sizes, convention: Convention
) -> tuple[str, str, str] | None:
    if sizes.layers * sizes.directions > 1 or sizes.projection or sizes.mode not in (Mode.LSTM, Mode.GRU):
        return None
    origin = parameter_source.find_parameters(index, node)
    if not origin.computed or origin.passage:
        return None
    sources = {name: seen.get_tensor_by_name(f"{name}:0") for name in _sources(index, origin.op)}
    computed = tf.as_dtype(node.attr["T"].type)  # the blob may be cast behind its packing
    if not all(source.dtype == computed and source.shape.is_fully_defined() for source in sources.values()):
        return None
    numbers = _number_elements({name: source.shape.as_list() for name, source in sources.items()})
    packed = _pack(index, origin.tensor, numbers)
    if packed is None or packed.size != parameter_blob.length(sizes):
        return None
    ((cell,),) = parameter_blob.split(packed, sizes, where=node.name)
    wanted = layouts.pack_keras(layouts.conventional(cell, convention, canonical=False))
    here = {name: beside[1] for name in numbers if (beside := _beside(index.nodes[name], node))}
    names = [name for part in wanted.values() for name in here if np.array_equal(numbers[name], part)]
    if len(names) < len(wanted):
        return None
    kernel, recurrent, bias = (f"{here[name]}:{_SOURCES[index.nodes[name].op]}:0" for name in names)
    return kernel, recurrent, bias


def _beside(source: Any, node: Any) -> tuple[str, str] | None:
    """Return the origin of `source` if in the same function as `node`, else None."""
    source_origin, node_origin = inlining.origin(source), inlining.origin(node)
    return source_origin if source_origin and node_origin and source_origin[0] == node_origin[0] else None


def _sources(index: Index, op: str) -> list[str]:
    """List the variable reads packed into a tensor, after a Cast if any."""

    def is_read(name: str) -> bool:
        node = index.nodes[name]
        node = index.maker(node.input[0]) if node.op == "Cast" else node
        return node.op == "ReadVariableOp"

    def inputs(name: str) -> list[str]:
        sources = [] if is_read(name) else index.data_inputs(index.nodes[name])
        return [split(source)[0] for source in sources]

    return sorted(filter(is_read, walk([op], inputs)))


def _number_elements(shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Return arrays of the given shapes with consecutive numbers from 1, all distinct."""
    numbers, first = {}, 1
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        numbers[name] = np.arange(first, first + size, dtype=np.float64).reshape(shape)
        first += size
    return numbers


def _pack(index: Index, tensor: str, numbers: Mapping[str, Array]) -> Array | None:
    """Run the packing on `numbers`.

    None where an op does more than move elements.
    """
    needed = index.ancestors([split(tensor)[0]], control=False, stop=numbers)
    if any(index.nodes[op].op not in ops.MOVES for op in needed - numbers.keys()):
        return None
    nodes = [index.nodes[op] for op in sorted(needed - numbers.keys())]
    packing = copy_graph(extract_nodes(Graph(tf.compat.v1.GraphDef(), nodes), needed))
    graph_floats_as(packing, tf.float64)  # exact for element numbers
    with tf.Graph().as_default() as graph:
        fed = {name: tf.compat.v1.placeholder(tf.float64, ids.shape, name) for name, ids in numbers.items()}
        inputs = {f"{name}:0": placeholder for name, placeholder in fed.items()}
        tf.import_graph_def(packing, inputs, name="packing")
        with open_session(graph) as session:
            feeds = {fed[name]: ids for name, ids in numbers.items()}
            return np.asarray(session.run(f"packing/{tensor}", feeds)).reshape(-1)
