"""Strings that a graph makes of what its recurrences give, such as the name of the best class.

They are no outputs where nobody names outputs: no other program computes them alike. They are told instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index

#: What makes strings for files and logs, and all that has no value.
_BESIDE: Final = re.compile(
    r".*Summary.*|Save.*|MergeV2.*|Sharded.*|Print.*|Assert|StringFormat|.*Enqueue.*|NoOp"
)


def left_out(graph: Any, recurrences: Iterable[str], outputs: Collection[str]) -> list[str]:
    """The tensors of strings behind `recurrences` that nothing reads and that are not among `outputs`."""
    index, seen, todo = Index(graph), set[str](), list(recurrences)
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [node.name for node in index.consumers(op) if not _BESIDE.fullmatch(node.op)]
    leaves = [
        node.name
        for node in graph.node
        if node.name in seen and all(_BESIDE.fullmatch(one.op) for one in index.consumers(node.name))
    ]
    try:
        known = build.sound(build.kept(graph, index.ancestors(leaves)))
    except InvalidModelError:
        return []
    found = (one for name in leaves for one in known.get_operation_by_name(name).outputs)
    return [one.name for one in found if one.dtype == tf.string and one.name not in outputs]
