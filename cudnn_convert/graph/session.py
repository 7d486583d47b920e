"""Runs a graph whose variables come from files, and freezes variables into constants.

Freezing is TensorFlow's own rewriting, which knows reads inside branches and loops. The parameters of
recurrences are left out before it, for they go to the target by the side.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.index import INPUT, PARAMS, AnyGraph, NodeDef, split, unique
from cudnn_convert.model import Array, Recurrence, Tensor


def handle(name: str, key: str, value: Any) -> NodeDef:
    """A VarHandleOp for a value; `key` is what a checkpoint calls it."""
    dtype, shape = tf.as_dtype(value.dtype), tf.TensorShape(value.shape)
    return node_defs.node(name, "VarHandleOp", dtype=dtype, shape=shape, shared_name=key, container="")


def checkpoint_key(node: NodeDef) -> str:
    """What a checkpoint calls the variable of a node."""
    return node.attr["shared_name"].s.decode() or str(node.name)


def check_values(
    path: Path, graph: AnyGraph, values: Mapping[str, Tensor], *, decoded: Collection[str]
) -> None:
    """Raises UnsupportedModelError where a variable, but for the `decoded`, has no value of its shape."""
    reasons = []
    for node in graph.node:
        if node.op in ops.VARIABLES and node.name not in decoded:
            name, wanted = checkpoint_key(node), tf.TensorShape(node.attr["shape"].shape)
            value = values.get(name)
            if value is None:
                near = difflib.get_close_matches(name, values, n=3)
                hint = (
                    f"the nearest keys are {', '.join(near)}" if near else "is the checkpoint this graph's?"
                )
                reasons.append(
                    f"variable {name}: expected a value of shape {wanted}, found no such key; {hint}"
                )
            elif "shape" in node.attr and not wanted.is_compatible_with(value.shape):
                actual = f"{list(value.shape)}; are graph and weights of one model?"
                reasons.append(f"variable {name}: expected shape {wanted}, found {actual}")
    if reasons:
        raise UnsupportedModelError(path, reasons)


#: Bytes of values that are set in one run; a larger value has a run to itself.
_TOGETHER: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Restore:
    """The op of a source's own saver that sets a variable, from the checkpoint `prefix` named in `files`."""

    variable: str
    op: str
    files: tuple[str, ...]
    prefix: Path


def answering(
    running: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A function of arrays by the keys of `inputs`, to arrays by those of `outputs`, in a session."""

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values = running.run(list(outputs.values()), {inputs[key]: value for key, value in feeds.items()})
        return dict(zip(outputs, map(np.asarray, values), strict=True))

    return run


def variable_ops(graph: AnyGraph) -> list[NodeDef]:
    """The nodes of a graph that hold a variable."""
    return [node for node in graph.node if node.op in ops.VARIABLES]


@contextmanager
def session(
    graph: AnyGraph,
    variables: Mapping[str, Tensor],
    *,
    initializers: Sequence[str] = (),
    assets: Mapping[str, Path] = MappingProxyType({}),
    restores: Sequence[Restore] = (),
) -> Iterator[Any]:
    """A Session over a graph with its variables set, through placeholders: a Const is copied often.

    Those of `restores` are set by the graph's own ops. Then the ops `initializers` run, fed with the files
    `assets` by the tensors that hold their names.
    """
    scratch = node_defs.import_graph(graph)
    # Nodes that no run reaches may have no CPU kernel; only what runs is placed.
    options = tf.compat.v1.GraphOptions(place_pruned_graph=True)
    # A source runs as it is written: TensorFlow fuses some layer normalisations with another epsilon.
    options.rewrite_options.remapping = RewriterConfig.OFF
    config = tf.compat.v1.ConfigProto(graph_options=options)
    with (
        scratch.as_default(),
        tf.compat.v1.Session(graph=scratch, config=config) as running,
    ):
        restored = {restore.variable for restore in restores}
        others = [node for node in variable_ops(graph) if node.name not in restored]
        _assign(running, others, variables)
        for restore in restores:
            running.run(
                scratch.get_operation_by_name(restore.op),
                dict.fromkeys(restore.files, str(restore.prefix)),
            )
        names = {op.name for op in scratch.get_operations()}
        fed = {name: str(path) for name, path in assets.items() if split(name)[0] in names}
        running.run([scratch.get_operation_by_name(op) for op in initializers], fed)
        yield running


def _assign(running: Any, nodes: Iterable[NodeDef], variables: Mapping[str, Tensor]) -> None:
    """Sets variable ops of the session's graph to their values.

    A run costs what it takes to prepare one: small values share it, large ones are not in memory together.
    """
    assigned: list[Any] = []
    fed: dict[Any, Array] = {}
    for node in nodes:
        value = variables[checkpoint_key(node)]
        given = tf.compat.v1.placeholder(tf.as_dtype(value.dtype), value.shape)
        assigned.append(_assignment(running.graph, node, given))
        fed[given] = value.read()
        if sum(array.nbytes for array in fed.values()) >= _TOGETHER:
            running.run(assigned, fed)
            assigned, fed = [], {}
    if assigned:
        running.run(assigned, fed)


def _assignment(graph: tf.Graph, node: NodeDef, value: Any) -> Any:
    """What gives a variable op a value, whichever of the two kinds it is."""
    target = graph.get_tensor_by_name(f"{node.name}:0")
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)
    # TensorFlow 1 lets a variable be declared without its shape; the value's own counts then.
    return tf.raw_ops.Assign(ref=target, value=value, validate_shape=False)


#: A proto may not exceed 2 GiB, and TensorFlow's message for one that does names no size.
_LIMIT: Final = 2**31 - 2**20


def freeze_variables(graph: AnyGraph, variables: Mapping[str, Tensor], outputs: Iterable[str]) -> AnyGraph:
    """`graph` with each variable op a Const of the same name; `outputs`, tensors `op:k`, are what stays.

    Raises UnsupportedModelError where the constants would not fit a GraphDef.
    """
    ops = variable_ops(graph)
    size = sum(
        variable.dtype.itemsize * math.prod(variable.shape)
        for variable in (variables[checkpoint_key(op)] for op in ops)
    )
    if size > _LIMIT:
        reason = f"expected under 2 GiB of weights, found {size} bytes; choose --format savedmodel"
        raise UnsupportedModelError("frozen graph", [reason])
    if not ops:
        return graph
    names = sorted({split(name)[0] for name in outputs})
    with session(graph, variables) as running:
        for op in ops:
            _ensure_read(running.graph, op)
        definition = node_defs.Graph.of(graph).definition
        frozen: AnyGraph = tf.compat.v1.graph_util.convert_variables_to_constants(running, definition, names)
        return frozen


def _ensure_read(graph: tf.Graph, op: NodeDef) -> None:
    """The rewriting fetches a resource's value by the name that `tf.Variable` gives its own first read."""
    name = f"{op.name}/Read/ReadVariableOp"
    if op.op == "VarHandleOp" and name not in {operation.name for operation in graph.get_operations()}:
        handle = graph.get_tensor_by_name(f"{op.name}:0")
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(op.attr["dtype"].type), name=name)


def without_parameters(
    graph: AnyGraph, recurrences: Iterable[Recurrence], outputs: Iterable[str]
) -> node_defs.Graph:
    """`graph` with an empty constant for each recurrence's blob; its weights go to the target by the side."""
    graph = node_defs.Graph.of(graph)
    index, changes, added = graph.index, {}, []
    for recurrence in recurrences:
        node = index.nodes[recurrence.node]
        name = unique(f"{node.name}/parameters", index.nodes)
        # Inside a loop's frame a node without inputs needs this edge to be in the frame.
        wait = [f"^{split(node.input[INPUT])[0]}"]
        added.append(node_defs.constant(name, np.zeros(0, recurrence.dtype), control=wait))
        inputs = [*node.input[:PARAMS], name, *node.input[PARAMS + 1 :]]
        changes[node.name] = node_defs.copy_node(node, inputs=inputs)
    return node_defs.prune(node_defs.replace_nodes(graph, changes, added), outputs)
