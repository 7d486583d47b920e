"""Computes in the graph itself the values sent between replicas of a model.

    before:  a = NcclAllReduce(x), b = NcclAllReduce(y)     both a sum of two devices, by the shared name "c"
    after:   a = AddN(x, y), b = AddN(x, y)

Replicas of one program stand in one graph, on devices of their own, and meet by `shared_name` or by
`group_key` and `instance_key`. A mean, a maximum and a minimum are computed of the replicas that the graph
has. Where it has fewer than meet, other programs have the others, which at inference would be fed the same.
A sum or a product of fewer stays as it is, and is refused later.
Source: tensorflow v2.21.0 core/ops/nccl_ops.cc, core/ops/collective_ops.cc, core/kernels/collective_ops.cc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, rewrite_nodes
from cudnn_convert.graph.index import NodeDef, claim, reference
from cudnn_convert.graph.passes.run import Keep

_OPS = {"prod": "Mul", "min": "Minimum", "max": "Maximum"}
_REDUCTIONS = {"Add": "sum", "Mul": "prod", "Min": "min", "Max": "max"}
_MEETING = frozenset({"NcclAllReduce", "NcclReduce", "CollectiveReduce"})
_PASSING = frozenset({"NcclBroadcast", "CollectiveBcastSend"})
_RECEIVING = "CollectiveBcastRecv"


def reduce_replicas(graph: Graph, _: Keep = ()) -> Graph:
    """Return the graph with ops of every CPU in the place of collective ops.

    Returns the graph itself if there are none.
    """
    meetings = {node.name: sources for node, sources in _list_meetings(graph)}

    def reduce(node: NodeDef, taken: set[str]) -> list[NodeDef]:
        return _reduce(node, meetings[node.name], taken) if node.name in meetings else []

    return rewrite_nodes(graph, reduce)


def describe(graph: Graph, kept: Collection[str]) -> Iterator[str]:
    """Yield notes on exchanges between replicas, and on replicas missing from the graph.

    Only the nodes `kept` count.
    """
    meetings = [(node, sources) for node, sources in _list_meetings(graph) if node.name in kept]
    if meetings:
        counts = Counter(node.op for node, _ in meetings)
        kinds = (f"{count} {op}" if count > 1 else op for op, count in sorted(counts.items()))
        yield f"computed in the graph itself, for replicas on several devices: {', '.join(kinds)}"
    for node, sources in meetings:
        if node.op in _MEETING and len(sources) < (size := _size(node)):
            yield f"{node.name} is of {size} replicas, and taken of the {len(sources)} that the graph has"


def _list_meetings(graph: Graph) -> Iterator[tuple[NodeDef, list[str]]]:
    """Yield each node computable here, and the tensors meeting in the node."""
    met: dict[tuple[object, ...], list[str]] = {}
    for node in graph.node:
        if node.op in _MEETING | _PASSING:
            met.setdefault(_key(node), []).extend(graph.index.data_inputs(node))
    for node in graph.node:
        if node.op in _PASSING:
            yield node, graph.index.data_inputs(node)
        elif node.op == _RECEIVING and _key(node) in met:
            yield node, met[_key(node)]
        elif node.op in _MEETING:
            sources = met[_key(node)]
            reduction, is_mean = _reduction(node)
            if len(sources) == _size(node) or is_mean or reduction in ("min", "max"):
                yield node, sources


def _key(node: NodeDef) -> tuple[object, ...]:
    """Return the common key of the nodes of a meeting.

    NcclReduce has all its replicas' tensors by itself.
    """
    if "shared_name" in node.attr:
        return (node.op, node.attr["shared_name"].s)
    if "instance_key" in node.attr:
        kind = "CollectiveReduce" if node.op == "CollectiveReduce" else "CollectiveBcast"
        return (kind, node.attr["group_key"].i, node.attr["instance_key"].i)
    return (node.op, node.name)


def _size(node: NodeDef) -> int:
    return int(node.attr["group_size" if node.op == "CollectiveReduce" else "num_devices"].i)


def _reduction(node: NodeDef) -> tuple[str, bool]:
    """Return the reduction, and True if followed by division by the number of replicas."""
    if node.op != "CollectiveReduce":
        return node.attr["reduction"].s.decode(), False
    return _REDUCTIONS[node.attr["merge_op"].s.decode()], node.attr["final_op"].s == b"Div"


def _reduce(node: NodeDef, sources: list[str], taken: set[str]) -> list[NodeDef]:
    """Return nodes computing the value of a node; the last has the node's name."""
    dtype = tf.as_dtype(node.attr["T"].type)
    waits = [name for name in node.input if name.startswith("^")]
    if node.op not in _MEETING:
        return [node_defs.identity(node.name, reference(sources[0]), node.attr["T"].type, control=waits)]
    reduction, is_mean = _reduction(node)
    nodes, result = list[NodeDef](), sources[0]
    if reduction == "sum" and len(sources) > 1:
        inputs = [reference(source) for source in sources]
        nodes.append(node_defs.node(claim(f"{node.name}/sum", taken), "AddN", inputs, T=dtype, N=len(inputs)))
        result = nodes[-1].name
    for source in sources[1:] if reduction != "sum" else ():
        name = claim(f"{node.name}/{reduction}", taken)
        nodes.append(node_defs.node(name, _OPS[reduction], [reference(result), reference(source)], T=dtype))
        result = name
    if is_mean:
        count = node_defs.constant(
            claim(f"{node.name}/replicas", taken), np.asarray(len(sources), dtype.as_numpy_dtype)
        )
        name = claim(f"{node.name}/mean", taken)
        nodes += [count, node_defs.node(name, "RealDiv", [reference(result), count.name], T=dtype)]
        result = name
    return [*nodes, node_defs.identity(node.name, reference(result), node.attr["T"].type, control=waits)]
