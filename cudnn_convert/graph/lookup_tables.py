"""Lookup tables: which ops fill those that a graph reads.

A filled table comes from constants or from a file that is an asset; every other way to fill one is refused.
Source: tensorflow v1.15.0 core/ops/lookup_ops.cc, python/ops/lookup_ops.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, split, tensor
from cudnn_convert.model import Model

#: What the values of a table may come from but a constant: a saver's own restoring, a program's feed.
_ELSEWHERE: Final = ops.RESTORES | ops.PLACEHOLDERS


def fills(
    model: Model,
    graph: AnyGraph,
    inputs: Mapping[str, str] = MappingProxyType({}),
    outputs: Iterable[str] = (),
) -> tuple[str, ...]:
    """The ops of the model that fill the tables of `graph`, a cut of the model's own, in order of the tables.

    `inputs` and `outputs` are the graph's own, as for `refuse`.
    Raises UnsupportedModelError where a table has none, or one whose file is not an asset.
    """
    tables = [node for node in graph.node if node.op in ops.TABLES]
    if not tables:
        return ()
    index, filled, reasons, unfilled = node_defs.Graph.of(model.graph).index, [], [], []
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


def with_fills(graph: node_defs.Graph, model: Model, filling: Sequence[str]) -> node_defs.Graph:
    """`graph` with the ops `filling` of the model, and what they need, added where it lacks them.

    Nodes of one table become one: TensorFlow 2's loader takes them for several (tensorflow v2.21.0
    python/saved_model/function_deserialization.py fix_node_def).
    """
    if not filling:
        return graph
    index = node_defs.Graph.of(model.graph).index
    tables = [node for node in graph.node if node.op in ops.TABLES]
    name_by_key = {_key(node): node.name for node in reversed(tables)}
    known = (node for node in index.nodes.values() if node.op in ops.TABLES and _key(node) in name_by_key)
    twins = {node.name: name_by_key[_key(node)] for node in known}
    present = {node.name for node in graph.node}
    needed = index.ancestors(filling) - present - twins.keys()
    added = node_defs.extract_nodes(model.graph, needed)
    moved = {f"{name}:0": new for name, new in twins.items()}
    moved |= {tensor(f"^{name}"): f"^{new}" for name, new in twins.items()}
    nodes = [
        node_defs.redirect(node, moved)
        for node in node_defs.share_without_devices(node_defs.Graph(graph, [*graph.node, *added.node])).node
        if twins.get(node.name, node.name) == node.name
    ]
    return node_defs.Graph(graph, nodes)


def _key(node: NodeDef) -> tuple[bool, str]:
    """Tables of one shared name are one table; without one a table is its node's alone."""
    named = node.attr["shared_name"].s.decode()
    is_shared = bool(named or node.attr["use_node_name_sharing"].b)
    return is_shared, named or str(node.name)


def _ways(model: Model, index: Index, table: NodeDef) -> list[str]:
    """The ops that fill a table: those that the model itself calls initializers where there are several."""
    candidates = [
        node.name
        for node in index.nodes.values()
        if node.op in ops.FILLS
        and _table(index, node) == _key(table)
        and not _is_restored(model, index, node)
    ]
    if len(candidates) > 1:
        run = index.ancestors(model.initializers)
        candidates = [name for name in candidates if name in run]
    return candidates


def _table(index: Index, node: NodeDef) -> tuple[bool, str]:
    return _key(index.nodes[split(node.input[0])[0]])


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
    """The tensors behind which a graph needs a table no more."""
    cuts = []
    for lookup in index.consumers(table.name):
        if lookup.op in ops.LOOKUPS:
            # Words that the table lacks get the numbers of hash buckets in the place of its default.
            choices = (reader.name for reader in index.consumers(lookup.name) if reader.op in ops.SELECTS)
            cuts.append(f"{next(choices, lookup.name)}:0")
    return cuts


def words(running: Any, ops: Sequence[str]) -> tuple[bytes, ...]:
    """The keys of the tables of strings that `ops` filled in a session."""
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
    """Raises UnsupportedModelError where `graph` has tables, which the format `form` cannot fill.

    `inputs` are the words in which `--inputs` takes the graph's own, by tensor.
    """
    unfilled = [node for node in graph.node if node.op in ops.TABLES]
    if unfilled:
        what = f"table{'s' if len(unfilled) > 1 else ''} {', '.join(node.name for node in unfilled)}"
        expected = (
            f"expected none in the format {form}, which cannot fill {'them' if len(unfilled) > 1 else 'it'}"
        )
        cure = _cure(graph, unfilled, inputs, outputs)
        raise UnsupportedModelError(path, [Reason(f"{what}: {expected}; {cure or _OTHERS}", cure)])


_OTHERS: Final = "choose other --outputs"


def _cure(
    graph: AnyGraph, tables: Sequence[NodeDef], inputs: Mapping[str, str], outputs: Iterable[str]
) -> Remedy | None:
    """Where to cut so that `tables` are not needed: all inputs, for --inputs names all or none."""
    index, ends = node_defs.Graph.of(graph).index, [split(name)[0] for name in outputs]
    needed = index.ancestors(ends)
    cuts = [name for table in tables for name in _behind(index, table) if split(name)[0] in needed]
    left = index.ancestors(ends, stop={split(name)[0] for name in cuts})
    if not cuts or any(table.name in left for table in tables):
        return None
    words = [*dict.fromkeys(cuts), *(text for name, text in inputs.items() if split(name)[0] in left)]
    which = "its lookup" if len(cuts) == 1 else "every lookup"
    return Remedy({"inputs": (",".join(words),)}, f"cut behind {which} with")
