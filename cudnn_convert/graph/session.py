"""Runs graphs with values, freezes variables, and finds the ops filling lookup tables.

Freezing is TensorFlow's own rewriting, which handles reads inside branches and loops. The parameters of
recurrences are removed before it, since the target takes them separately.

A table is filled from constants or from a file that is an asset; all other fills are refused.
Source: tensorflow v1.15.0 core/ops/lookup_ops.cc, python/ops/lookup_ops.py.
"""

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

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import (
    Graph,
    drop_uncalled_functions,
    extract_nodes,
    import_graph,
    open_session,
    prune,
    replace_nodes,
    share_without_devices,
)
from cudnn_convert.graph.index import INPUT, PARAMS, AnyGraph, Index, NodeDef, split, tensor, unique
from cudnn_convert.model import Array, Model, Recurrence, Tensor


def handle(name: str, key: str, value: Any) -> NodeDef:
    """Make a VarHandleOp for a value; `key` is the key in a checkpoint."""
    dtype, shape = tf.as_dtype(value.dtype), tf.TensorShape(value.shape)
    return node_defs.node(name, "VarHandleOp", dtype=dtype, shape=shape, shared_name=key, container="")


def checkpoint_key(node: NodeDef) -> str:
    """Return the key of a variable node in a checkpoint."""
    return node.attr["shared_name"].s.decode() or str(node.name)


def check_values(
    path: Path, graph: AnyGraph, values: Mapping[str, Tensor], *, decoded: Collection[str]
) -> None:
    """Raise UnsupportedModelError if a variable outside `decoded` lacks a value of fitting shape."""
    reasons = []
    for node in graph.node:
        if node.op in ops.VARIABLES and node.name not in decoded:
            name, wanted = checkpoint_key(node), tf.TensorShape(node.attr["shape"].shape)
            value = values.get(name)
            if value is None:
                near = ", ".join(difflib.get_close_matches(name, values, n=3))
                hint = f"the nearest keys are {near}" if near else "does the checkpoint belong to this graph?"
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
    """The op of a source's own saver to set a variable from a checkpoint.

    `files`: the tensors to feed with the checkpoint's `prefix`.
    """

    variable: str
    op: str
    files: tuple[str, ...]
    prefix: Path


def answering(
    running: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Wrap a session as a function from arrays by input key to arrays by output.

    `inputs` and `outputs` map keys to tensors.
    """

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values = running.run(list(outputs.values()), {inputs[key]: value for key, value in feeds.items()})
        return dict(zip(outputs, map(np.asarray, values), strict=True))

    return run


def variable_ops(graph: AnyGraph) -> list[NodeDef]:
    """Return the nodes of a graph holding a variable."""
    return [node for node in graph.node if node.op in ops.VARIABLES]


@contextmanager
def session(
    graph: AnyGraph,
    variables: Mapping[str, Tensor],
    *,
    initializers: Sequence[str] = (),
    assets: Mapping[str, Path] = MappingProxyType({}),
    restores: Sequence[Restore] = (),
    on_cpu: bool = True,
    optimize: bool = True,
    rewrite: bool = False,
) -> Iterator[Any]:
    """Open a Session over a graph: variables set, then `initializers` run.

    Variables are set through placeholders, since a Const is copied often; those of `restores` by the graph's
    own ops. `assets` maps the tensors that hold file names to the files to feed. Without `on_cpu` a GPU may
    compute too; without `optimize` each node runs as it is written. With `rewrite` TensorFlow's optimizer
    rewrites arithmetic, as it does for a user: every node then has to have a kernel.
    """
    scratch = import_graph(graph)
    # Nodes that no run reaches may have no CPU kernel; only what runs is placed.
    # A graph that is pruned first is not rewritten (v2.21.0 core/common_runtime/graph_execution_state.cc).
    options = tf.compat.v1.GraphOptions(place_pruned_graph=not rewrite)
    # A source runs as it is written: TensorFlow fuses some layer normalisations with another epsilon.
    options.rewrite_options.remapping = RewriterConfig.OFF
    options.rewrite_options.disable_meta_optimizer = not optimize
    config = tf.compat.v1.ConfigProto(graph_options=options)
    if not optimize:  # many short runs, in which threads would wait for one another
        config.inter_op_parallelism_threads, config.intra_op_parallelism_threads = 1, 1
        config.use_per_session_threads = True
    running = open_session(scratch, config, on_cpu=on_cpu)
    with scratch.as_default(), running:
        restored = {restore.variable for restore in restores}
        others = [node for node in variable_ops(graph) if node.name not in restored]
        _assign(running, others, variables)
        for restore in restores:
            running.run(
                scratch.get_operation_by_name(restore.op), dict.fromkeys(restore.files, str(restore.prefix))
            )
        names = {op.name for op in scratch.get_operations()}
        fed = {name: str(path) for name, path in assets.items() if split(name)[0] in names}
        running.run([scratch.get_operation_by_name(op) for op in initializers], fed)
        yield running


def _assign(running: Any, nodes: Iterable[NodeDef], variables: Mapping[str, Tensor]) -> None:
    """Set the values of variable ops in the session's graph.

    Small values share a run, since each run takes time to prepare; large values are not in memory together.
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
    """Return the op to assign `value` to a resource or reference variable."""
    target = graph.get_tensor_by_name(f"{node.name}:0")
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)
    # TensorFlow 1 lets a variable be declared without its shape; the value's own counts then.
    return tf.raw_ops.Assign(ref=target, value=value, validate_shape=False)


#: A proto may not exceed 2 GiB, and TensorFlow's message for one that does names no size.
_LIMIT: Final = 2**31 - 2**20


def freeze_variables(graph: Graph, outputs: Iterable[str], *, variables: Mapping[str, Tensor]) -> Graph:
    """Replace each variable op by a Const of equal name; prune to the tensors `outputs`.

    A graph without variables is returned as it is.
    Raises UnsupportedModelError where the constants would not fit a GraphDef.
    """
    holders = variable_ops(graph)
    size = sum(
        variable.dtype.itemsize * math.prod(variable.shape)
        for variable in (variables[checkpoint_key(node)] for node in holders)
    )
    if size > _LIMIT:
        reason = f"expected under 2 GiB of weights, found {size} bytes; choose --format savedmodel"
        raise UnsupportedModelError("frozen graph", [reason])
    if not holders:
        return graph
    frozen = _freeze_references(graph, variables)
    names = sorted({split(name)[0] for name in outputs})
    resources = variable_ops(frozen)
    return _freeze_resources(frozen, resources, variables, names) if resources else prune(frozen, names)


def _freeze_references(graph: Graph, variables: Mapping[str, Tensor]) -> Graph:
    """Replace reference variables by constants, and carriers of references by carriers of values.

    TensorFlow's rewriting fails where a variable is itself the predicate of a Switch.
    Source: tensorflow v2.21.0 python/framework/convert_to_constants.py `_Node.update_dtype`.
    """
    changes, paths = {}, ops.REFERENCE_PATHS
    for node in graph.node:
        if node.op in ops.REFERENCE_VARIABLES:
            changes[node.name] = node_defs.constant(node.name, variables[checkpoint_key(node)].read())
        elif node.op in paths and graph.index.maker(node.name, paths).op in ops.REFERENCE_VARIABLES:
            changes[node.name] = node_defs.copy_node(node, op=node.op.removeprefix("Ref"))
    return replace_nodes(graph, changes)


def _freeze_resources(
    graph: Graph, holders: Iterable[NodeDef], variables: Mapping[str, Tensor], names: list[str]
) -> Graph:
    with session(graph, variables) as running:
        for node in holders:
            _ensure_read(running.graph, node)
        frozen = tf.compat.v1.graph_util.convert_variables_to_constants(running, graph.definition, names)
        return Graph(frozen)


def _ensure_read(graph: tf.Graph, op: NodeDef) -> None:
    """Add the read of a resource variable, fetched by name in TensorFlow's freezing."""
    name = f"{op.name}/Read/ReadVariableOp"
    if op.op == "VarHandleOp" and name not in {operation.name for operation in graph.get_operations()}:
        handle = graph.get_tensor_by_name(f"{op.name}:0")
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(op.attr["dtype"].type), name=name)


def without_parameters(graph: AnyGraph, recurrences: Iterable[Recurrence], outputs: Iterable[str]) -> Graph:
    """Replace each recurrence's parameter blob by an empty constant, and prune to `outputs`."""
    graph = Graph.of(graph)
    index, changes, added = graph.index, {}, []
    for recurrence in recurrences:
        node = index.nodes[recurrence.node]
        name = unique(f"{node.name}/parameters", index.nodes)
        # Inside a loop's frame a node without inputs needs this edge to be in the frame.
        wait = [f"^{split(node.input[INPUT])[0]}"]
        added.append(node_defs.constant(name, np.zeros(0, recurrence.dtype), control=wait))
        inputs = [*node.input[:PARAMS], name, *node.input[PARAMS + 1 :]]
        changes[node.name] = node_defs.copy_node(node, inputs=inputs)
    return prune(replace_nodes(graph, changes, added), outputs)


#: Sources of a table's values that are refused: restored or fed values.
_ELSEWHERE: Final = ops.RESTORES | ops.PLACEHOLDERS


def fills(
    model: Model, graph: AnyGraph, inputs: Mapping[str, str], outputs: Iterable[str]
) -> tuple[str, ...]:
    """List the model's ops filling the tables of `graph`, in the tables' order.

    `graph` is cut from the model's own; `inputs` and `outputs` are its own, as for `refuse`.
    Raises UnsupportedModelError where a table has none, or one whose file is not an asset.
    """
    tables = [node for node in graph.node if node.op in ops.TABLES]
    if not tables:
        return ()
    index, filled, reasons, unfilled = Graph.of(model.graph).index, [], [], []
    for table in {_key(node): node for node in tables}.values():
        ways = _ways(model, index, table)
        reason = _obstacle(model, index, ways)
        if reason:
            reasons.append(f"table {table.name}: {reason}")
            unfilled.append(table)
        filled += ways
    if reasons:
        cure = _cure(graph, unfilled, inputs, outputs)
        raise UnsupportedModelError(
            model.path, [Reason(f"{reason}; {cure or _OTHERS}", cure) for reason in reasons]
        )
    return tuple(filled)


def with_fills(graph: Graph, model: Model, filling: Sequence[str]) -> Graph:
    """Add the model's ops `filling`, with all ancestors, to `graph`.

    Nodes of one table become one: TensorFlow 2's loader takes them for several (tensorflow v2.21.0
    python/saved_model/function_deserialization.py fix_node_def).
    """
    if not filling:
        return graph
    index = Graph.of(model.graph).index
    tables = [node for node in graph.node if node.op in ops.TABLES]
    name_by_key = {_key(node): node.name for node in reversed(tables)}
    known = (node for node in index.nodes.values() if node.op in ops.TABLES and _key(node) in name_by_key)
    twins = {node.name: name_by_key[_key(node)] for node in known}
    present = {node.name for node in graph.node}
    needed = index.ancestors(filling) - present - twins.keys()
    added = extract_nodes(model.graph, needed)
    moved = {f"{name}:0": new for name, new in twins.items()}
    moved |= {tensor(f"^{name}"): f"^{new}" for name, new in twins.items()}
    nodes = [
        node_defs.redirect(node, moved)
        for node in share_without_devices(Graph(graph, [*graph.node, *added.node])).node
        if twins.get(node.name, node.name) == node.name
    ]
    # What fills a table may call functions that the graph itself does not.
    return drop_uncalled_functions(Graph(model.graph, nodes))


def _key(node: NodeDef) -> tuple[bool, str]:
    """Identify a table by the shared name, or else by the node."""
    named = node.attr["shared_name"].s.decode()
    is_shared = bool(named or node.attr["use_node_name_sharing"].b)
    return is_shared, named or str(node.name)


def _ways(model: Model, index: Index, table: NodeDef) -> list[str]:
    """List the ops filling a table; of several, only ops run by the model's initializers."""
    candidates = [
        node.name
        for node in index.nodes.values()
        if node.op in ops.FILLS
        and _key(index.maker(node.input[0])) == _key(table)
        and not _is_restored(model, index, node)
    ]
    if len(candidates) > 1:
        run = index.ancestors(model.initializers)
        candidates = [name for name in candidates if name in run]
    return candidates


def _is_restored(model: Model, index: Index, node: NodeDef) -> bool:
    assets = {split(name)[0] for name in model.assets}
    needed = index.ancestors([node.name], stop=assets) - assets
    return any(index.nodes[name].op in _ELSEWHERE for name in needed)


def _obstacle(model: Model, index: Index, ways: list[str]) -> str | None:
    if len(ways) != 1:
        actual = ", ".join(ways) or "none"
        return f"expected one op that fills it from constants or a file, found {actual}"
    node = index.nodes[ways[0]]
    if node.op in ops.FILLS_FROM_FILE and (name := index.data_inputs(node)[1]) not in model.assets:
        return f"expected its file among the source's assets or beside the source, found none for {name}"
    return None


def _behind(index: Index, table: NodeDef) -> list[str]:
    """List the tensors to cut at, to free the graph of a table."""
    cuts = []
    for lookup in index.consumers(table.name):
        if lookup.op in ops.LOOKUPS:
            # Words that the table lacks get the numbers of hash buckets in the place of its default.
            choices = (reader.name for reader in index.consumers(lookup.name) if reader.op in ops.SELECTS)
            cuts.append(f"{next(choices, lookup.name)}:0")
    return cuts


def words(running: Any, ops: Sequence[str]) -> tuple[bytes, ...]:
    """Read the keys of the string tables filled by `ops` in a session."""
    keys: list[bytes] = []
    with running.graph.as_default():
        for op in ops:
            handle = running.graph.get_operation_by_name(op).inputs[0]
            if handle.dtype == tf.resource and handle.op.get_attr("key_dtype") == tf.string:
                types = {"Tkeys": tf.string, "Tvalues": handle.op.get_attr("value_dtype")}
                exported = tf.raw_ops.LookupTableExportV2(table_handle=handle, **types)
                keys += sorted(running.run(exported.keys).tolist())
    return tuple(keys)


def refuse(path: Path, graph: AnyGraph, inputs: Mapping[str, str], outputs: Iterable[str], form: str) -> None:
    """Raise UnsupportedModelError if `graph` has tables, unsupported by the format `form`.

    The format cannot fill them. `inputs` maps the graph's input tensors to their words in `--inputs`.
    """
    unfilled = [node for node in graph.node if node.op in ops.TABLES]
    if unfilled:
        what = f"table{'s' if len(unfilled) > 1 else ''} {', '.join(node.name for node in unfilled)}"
        actual = "several tables" if len(unfilled) > 1 else "one"
        expected = f"expected no table in the format {form}, which cannot fill it, found {actual}"
        cure = _cure(graph, unfilled, inputs, outputs)
        raise UnsupportedModelError(path, [Reason(f"{what}: {expected}; {cure or _OTHERS}", cure)])


_OTHERS: Final = "choose other --outputs"


def _cure(
    graph: AnyGraph, tables: Sequence[NodeDef], inputs: Mapping[str, str], outputs: Iterable[str]
) -> Remedy | None:
    """Return the `--inputs` to cut `tables` off the graph.

    Returns None where `tables` are needed all the same. The remedy names all inputs, since `--inputs` names
    all or none.
    """
    index, ends = Graph.of(graph).index, [split(name)[0] for name in outputs]
    needed = index.ancestors(ends)
    cuts = [name for table in tables for name in _behind(index, table) if split(name)[0] in needed]
    left = index.ancestors(ends, stop={split(name)[0] for name in cuts})
    if not cuts or any(table.name in left for table in tables):
        return None
    words = [*dict.fromkeys(cuts), *(text for name, text in inputs.items() if split(name)[0] in left)]
    which = "its lookup" if len(cuts) == 1 else "every lookup"
    return Remedy({"inputs": (",".join(words),)}, f"cut the graph behind {which} with")
