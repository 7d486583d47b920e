"""Lists the ops of a graph, beside recurrences, missing on some CPUs."""

from __future__ import annotations

from collections import Counter

from cudnn_convert.graph import gpu_ops, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import NodeDef
from cudnn_convert.graph.passes import channels_last


def list_ops(graph: Graph) -> list[str]:
    """Describe each kind once, with the number of ops: `2 Conv2D of NCHW`."""
    counts = Counter(text for node in graph.node if (text := _describe(node)))
    return [f"{count} {text}" if count > 1 else text for text, count in sorted(counts.items())]


def _describe(node: NodeDef) -> str:
    if node.op in ops.CUDNN | ops.CUDNN_PACKING:
        return ""
    row = gpu_ops.find_row(node)
    if row is not None:
        kind = row.type.partition("=")[2]
        return f"{node.op} of {kind}" if kind else node.op
    if not channels_last.lacks_kernel(node):
        return ""
    if channels_last.is_channels_first(node):
        return f"{node.op} of {node.attr['data_format'].s.decode()}"
    return f"{node.op} with such strides or dilations"
