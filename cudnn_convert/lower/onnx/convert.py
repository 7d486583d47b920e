"""Converts a graph with tf2onnx; a handler replaces cuDNN nodes.

tf2onnx's own CudnnRNN handler reads the blob in a wrong order (tf2onnx v1.17.0 tf2onnx/onnx_opset/rnn.py). A
handler passed to `process_tf_graph` takes precedence over it; one registered by tf2onnx's decorator would
not. The handler replaces each cuDNN node by those of `fused_nodes`, whose outputs keep the node's tensor
names. Weights never pass through tf2onnx, which copies every constant for every pass of its optimizer.
Source: tf2onnx v1.17.0 tf2onnx/graph.py, graph_builder.py.

A call changes tf2onnx's tables and loggers while it runs, and restores them: one at a time in a process.
tf2onnx has no bfloat16 (it declares float16), so such graphs are widened to float, inputs included.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import onnx
import tensorflow as tf
from tf2onnx import constants, optimizer, tf_loader, tfonnx
from tf2onnx.handler import tf_op

from cudnn_convert.errors import Reason, UnsupportedModelError
from cudnn_convert.graph import node_defs, ops, safe_ops, session
from cudnn_convert.graph.graph import Graph, graph_floats_as, strip_devices
from cudnn_convert.graph.index import (
    INPUT,
    INPUT_C,
    INPUT_H,
    LENGTHS,
    OUTPUTS,
    Index,
    NodeDef,
    split,
    tensor,
    unique,
)
from cudnn_convert.graph.passes import inference
from cudnn_convert.graph.passes.run import Keep, Pass, run_passes
from cudnn_convert.graph.passes.subgraphs import CutFinder, output_types
from cudnn_convert.lower import block_lstm, missing_ops, tensor_lists
from cudnn_convert.lower.onnx import (
    exact_numbers,
    exact_ops,
    exact_types,
    finish,
    fused_nodes,
    images,
    large_constants,
    lossy_casts,
    tf2onnx_private,
    wrong_ops,
)
from cudnn_convert.lower.onnx.tf2onnx_ops import Ops
from cudnn_convert.model import Mode, Recurrence, Signature, UserGraph
from cudnn_convert.weights import layouts, lazy

_FLOAT: Final = onnx.TensorProto.FLOAT
_SWAP: Final = [1, 0, 2]  # batch-major to time-major and back
#: Outputs of an op that keep their names in the model.
_NAMED: Final = 6


def refusals(recurrences: Sequence[Recurrence]) -> Iterator[str]:
    """Yield the reasons for recurrences lacking an ONNX form."""
    for recurrence in recurrences:
        if not recurrence.sizes.projection:
            continue  # and no weights need to be looked at
        if not all(layouts.can_invert_projection(cell) for layer in recurrence.cells for cell in layer):
            yield (
                f"{recurrence.node}: expected a projection whose rows are independent, found one whose rows "
                "are not; convert to savedmodel or frozen"
            )


def replace(graph: Any, node: Any, recurrences: Sequence[Recurrence]) -> None:
    """Replace a cuDNN `node` of a tf2onnx `graph` by ONNX ops; `seed2` numbers the recurrence.

    The node's output tensors keep their names. What nobody reads is left to `finish` to drop.
    """
    number = node.get_attr_int("seed2")
    recurrence = recurrences[number]
    inputs, outputs, dtype = list(node.input), list(node.output), graph.get_dtype(node.input[INPUT])
    shapes = [graph.get_shape(name) for name in outputs]
    graph.remove_node(node.name)
    ops = Ops(graph)
    lstm = recurrence.sizes.mode is Mode.LSTM
    floats = [inputs[k] for k in ((INPUT, INPUT_H, INPUT_C) if lstm else (INPUT, INPUT_H))]
    if all(_are_zeros(graph, name) for name in floats[1:]):
        del floats[1:]  # which a fused node starts from by itself
    if dtype != _FLOAT:
        floats = [ops("Cast", [name], to=_FLOAT) for name in floats]
    if not recurrence.time_major:
        floats = [ops("Transpose", [name], perm=_SWAP) for name in floats]
    lengths = inputs[LENGTHS] if recurrence.lengths else ""
    x, *states = floats
    owner = _owner(recurrences, recurrence)
    results = fused_nodes.stack(ops, recurrence, x, states, lengths, owner=owner)
    if not recurrence.time_major:
        results = [ops("Transpose", [name], perm=_SWAP) for name in results]
    if dtype != _FLOAT:
        results = [ops("Cast", [name], to=dtype) for name in results]
    if not lstm:  # cuDNN leaves output_c undefined; as in the TensorFlow lowering input_c passes through
        results.append(inputs[INPUT_C])
        shapes[INPUT_C] = graph.get_shape(inputs[INPUT_C])
    for name, result, shape in zip(outputs, results, shapes, strict=False):
        if results.count(result) == 1 and result not in inputs:
            _rename(graph, result, name, shape)
        else:
            graph.make_node("Identity", [result], outputs=[name], shapes=[shape], dtypes=[dtype])
    lazy.report_lowered(recurrences, number + 1)


def _rename(graph: Any, old: str, name: str, shape: Any) -> None:
    """Rename an output of a node.

    An Identity in its place would not stay.
    """
    node = graph.get_node_by_output(old)
    outputs = [name if output == old else output for output in node.output]
    shapes = [shape if output == old else graph.get_shape(output) for output in node.output]
    dtypes = [graph.get_dtype(output) for output in node.output]
    kind, inputs, attributes = node.type, [*node.input], dict(node.attr)
    graph.remove_node(node.name)
    renamed = graph.make_node(kind, inputs, outputs=outputs, shapes=shapes, dtypes=dtypes, name=node.name)
    renamed.attr.update(attributes)
    graph.replace_all_inputs(old, name)


def _are_zeros(graph: Any, name: str) -> bool:
    """Return True if a tensor is a Const of zeros, through Identity and Expand only."""
    node = graph.get_node_by_output(name)
    while node is not None and node.type in ("Identity", "Expand"):
        node = node.inputs[0]
    if node is None or not node.is_const():
        return False
    return not node.get_tensor_value(as_list=False).any()


def _owner(recurrences: Sequence[Recurrence], wanted: Recurrence) -> int:
    """Return the number of the first recurrence with the same weights, to share a constant."""
    return next(
        k
        for k, other in enumerate(recurrences)
        if (other.shared, other.sizes, other.dtype) == (wanted.shared, wanted.sizes, wanted.dtype)
    )


#: What to do where no cut is known.
_ELSE: Final = "choose --format savedmodel or frozen"
#: Handlers that take precedence over tf2onnx's own.
_EXACT: Final = {**exact_ops.HANDLERS, **exact_numbers.HANDLERS, **exact_types.HANDLERS, **images.HANDLERS}


def lower(
    graph: Any,
    signature: Signature,
    recurrences: Sequence[Recurrence],
    *,
    opset: int = 17,
    user: UserGraph | None = None,
) -> finish.Finished:
    """Convert a frozen GraphDef with cuDNN nodes to a canonical model.

    The inputs and outputs of the model are the keys of `signature`, in its order. `graph` is not changed.
    `user` is the user's graph, where a cut may be advised, by default this one.
    Raises UnsupportedModelError with a line for each node that ONNX has no words for, UsageError for an opset
    that is not known.
    """
    finish.require(opset)
    _refuse_unsayable(graph, signature, recurrences)
    known = {node.name for node in graph.node}
    user = user or UserGraph(known, signature.outputs)
    graph = run_passes(Graph.of(graph), BEFORE_BLOCKS, signature.tensors)
    graph, blocks = block_lstm.lower_block_lstm(graph, signature.outputs.values(), nests_loops=False)
    recurrences = (*recurrences, *blocks)
    graph = run_passes(graph, PASSES, signature.tensors)
    keys = {tensor: key for key, tensor in signature.inputs.items()}
    prepared, outputs = _prepare(graph, signature, recurrences)

    def handler(context: Any, node: Any, _name: str, _arguments: list[str]) -> None:
        replace(context, node, recurrences)

    handlers = dict.fromkeys(sorted(ops.CUDNN), handler)
    constants = large_constants.set_aside(prepared)
    inputs = [*keys, *constants]
    model = run_tf2onnx(prepared, inputs, outputs, handlers, opset=opset, user=user)
    large_constants.put_back(model, constants)
    tensors = {f"{name}:{k}" for name in known for k in range(_NAMED)}
    return finish.finish_model(model, recurrences, names=keys | outputs, known=tensors)


def _inline_loops_of_unknown_rank(graph: Graph, ends: Keep) -> Graph:
    """Inline loops if a list becomes a tensor of unknown rank: tf2onnx needs the rank.

    Not where a loop writes one item again and again, as layers of Keras that give their last step alone: each
    item of a TensorArray is written once.
    """
    stacks = [tensor(node.name) for node in graph.node if node.op == "TensorListStack"]
    if all(graph.shapes.get_tensor_by_name(name).shape.rank is not None for name in stacks):
        return graph
    if any(_overwrites_an_item(function.node_def) for function in graph.library.function):
        return graph
    return tensor_lists.inline_loops(graph, ends)


def _overwrites_an_item(body: Iterable[NodeDef]) -> bool:
    nodes = {node.name: node for node in body}
    indices = [node.input[1].partition(":")[0] for node in nodes.values() if node.op == "TensorListSetItem"]
    return any(name in nodes and nodes[name].op == "Const" for name in indices)


#: Before block LSTMs become recurrences, which handlers replace as those of the model.
BEFORE_BLOCKS: Final[tuple[Pass, ...]] = (
    missing_ops.replace_open_convolutions,
    missing_ops.replace_gru_cells,
)
PASSES: Final[tuple[Pass, ...]] = (
    # First, since no other pass looks into functions: lists are replaced where loops are nodes.
    _inline_loops_of_unknown_rank,
    tensor_lists.replace_lists,
    # Shapes are lost where they go round a loop.
    inference.hoist_loop_invariants,
    missing_ops.replace_sign_bits,
    missing_ops.replace_spectra,
    missing_ops.replace_buckets,
)


def _refuse_unsayable(graph: Any, signature: Signature, recurrences: Sequence[Recurrence]) -> None:
    cudnn = {node.name for node in graph.node if node.op in ops.CUDNN}
    read = [(node.name, name) for node in graph.node for name in node.input]
    read += [(f"output {key}", name) for key, name in signature.outputs.items()]
    reasons = [
        f"{reader}: expected to read outputs 0 to 2 of {split(name)[0]}, found {name}, which only gradients "
        f"need; choose other --outputs"
        for reader, name in read
        if split(name)[0] in cudnn and split(name)[1] >= OUTPUTS
    ]
    reasons += refusals(recurrences)
    reasons += [
        f"{node.name}: expected an op that ONNX has, found {node.op}; {_ELSE}"
        for node in safe_ops.ops_run_by_converter(graph)
    ]
    if reasons:
        raise UnsupportedModelError("onnx", reasons)


def _prepare(
    graph: Any, signature: Signature, recurrences: Sequence[Recurrence]
) -> tuple[Any, dict[str, str]]:
    """Return the graph stripped of blobs, with an Identity for each output, and outputs' keys.

    Each cuDNN node carries the number of its recurrence in `seed2`, which survives what tf2onnx does to its
    name. The Identity lets two keys share a tensor, and an input be an output.
    """
    ends = {*signature.inputs.values(), *signature.outputs.values()}
    without = session.without_parameters(graph, recurrences, ends)
    nodes, outputs = {node.name: node for node in without.node}, {}
    numbers = {recurrence.node: number for number, recurrence in enumerate(recurrences)}
    for key, source in signature.outputs.items():
        name = unique("output", nodes)
        op, k = split(source)
        dtype = [*output_types(nodes[op])][k]
        # TensorFlow is asked where the node does not say it.
        dtype = dtype or without.shapes.get_tensor_by_name(source).dtype.as_datatype_enum
        nodes[name] = node_defs.identity(name, source, dtype)
        outputs[f"{name}:0"] = key
    own = strip_devices(Graph(without, nodes.values()))
    for node in own.node:
        if node.name in numbers:
            node.attr["seed2"].i = numbers[node.name]
    graph_floats_as(own, tf.float32, [tf.bfloat16])
    return own, outputs


def run_tf2onnx(
    graph: Any,
    inputs: list[str],
    outputs: Mapping[str, str],
    handlers: Mapping[str, exact_ops.Handler],
    *,
    opset: int,
    user: UserGraph,
) -> Any:
    """Run tf2onnx, with `handlers` for ops; `outputs` are keys by tensors.

    Raises UnsupportedModelError that advises cuts in the graph of the `user`.
    """
    failures: dict[str, str] = {}
    with tf2onnx_private.listen(failures), _restore_tables(), tf2onnx_private.fix_order():
        with tf.Graph().as_default():
            optimized = tf_loader.tf_optimize(inputs, list(outputs), graph)
        wrong = wrong_ops.find_wrong(optimized)
        op_by_name = {node.name: node.op for node in optimized.node}
        try:
            with (
                tf.Graph().as_default() as imported,
                tf2onnx_private.rewrite_from_within(optimized),
                tf2onnx_private.keep_biases_apart(),
            ):
                tf.import_graph_def(optimized, name="")
                converted = tfonnx.process_tf_graph(
                    imported,
                    opset=opset,
                    custom_op_handlers={op: (handler, []) for op, handler in {**_EXACT, **handlers}.items()},
                    input_names=inputs,
                    output_names=list(outputs),
                )
            failures |= lossy_casts.find_lossy(converted, op_by_name)
            failures |= wrong
            result = None if failures else _optimize(converted).make_model("")
        except Exception as error:
            failures |= wrong
            if any(op_by_name.get(name) in handlers for name in failures):
                raise  # our own handler failed, which is no fault of the model
            actual = f"{type(error).__name__}: {tf2onnx_private.in_one_line(error)}"
            reasons = _reasons(optimized, failures, user, outputs)
            other = [f"expected a graph that tf2onnx converts, found {actual}; {_ELSE}"]
            raise UnsupportedModelError("onnx", reasons or other) from error
    if result is None:
        raise UnsupportedModelError("onnx", _reasons(optimized, failures, user, outputs))
    return result


def _optimize(graph: Any) -> Any:
    """Run tf2onnx's optimizers on `graph`.

    Told to survive a failure, tf2onnx copies the graph before every pass: a fifth of a conversion's time. So
    there is one copy, for the case that a pass fails.
    """
    spare = copy.deepcopy(graph)
    passes = tf2onnx_private.passes()
    with (
        tf2onnx_private.keep_transposes_outside(),
        tf2onnx_private.keep_copied_sizes(),
        tf2onnx_private.keep_casts(),
    ):
        try:
            return optimizer.optimize_graph(graph, catch_errors=False, optimizers=passes)
        except Exception:  # noqa: BLE001 - whatever a pass may raise
            return optimizer.optimize_graph(spare, optimizers=passes)


def _reasons(
    graph: Any, failures: Mapping[str, str], user: UserGraph, outputs: Mapping[str, str]
) -> list[Reason]:
    """Return a reason for each unconverted node: op, cause, and place of a cut."""
    index = Index(graph)
    cuts, reasons = CutFinder(index, user, outputs={key: name for name, key in outputs.items()}), []
    for name, why in sorted(failures.items()):
        node = index.nodes.get(name)
        reason = f"{name}: expected an op that ONNX has, found {node.op if node else 'none'}"
        reason += f" ({why})" if why else ""
        cure = cuts.before(name, failures)
        reasons.append(Reason(f"{reason}; {cure or _ELSE}", cure))
    return reasons


@contextmanager
def _restore_tables() -> Iterator[None]:
    """Restore the handler tables changed by tf2onnx."""
    tables, domain = tf_op.get_opsets(), constants.TENSORFLOW_OPSET.domain
    before = [dict(handlers) for handlers in tables.get(domain, [])]
    mapping, domains = tf_op._MAPPING, tf_op._DOMAIN_MAPPING
    try:
        yield
    finally:
        tables.pop(domain, None)
        if before:
            tables[domain] = before
        tf_op._MAPPING, tf_op._DOMAIN_MAPPING = mapping, domains
