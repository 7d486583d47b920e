"""Outputs that leave out a node which a target does not take, and as little else as they can."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.graph.cut import PLACEHOLDERS
from cudnn_convert.graph.frames import frames
from cudnn_convert.graph.index import CUDNN_OPS, Index, split

_FLOATS: Final = frozenset(
    kind.as_datatype_enum for kind in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
)
#: Of their inputs' shapes alone.
_SHAPED: Final = frozenset({"Fill", "ZerosLike", "OnesLike"})


class Cuts:
    """Where a graph may be cut: at tensors of floats outside all loops, of ops that are `known`.

    An input is no output by itself, and where there are recurrences, one of them has to be left.
    """

    def __init__(self, index: Index, known: Collection[str], *, recurrences: Collection[str] = ()) -> None:
        """`index` may be of a graph made from the one whose ops are `known`: a user has that one.

        `recurrences` are their nodes where they are no cuDNN ops any more.
        """
        self._index, self._known, self._frames = index, known, frames(index)
        cudnn = (name for name, node in index.nodes.items() if node.op in CUDNN_OPS)
        self._recurrences = {*recurrences, *cudnn}

    def before(self, name: str, avoid: Collection[str]) -> str:
        """The advice that does without the node `name` and those to `avoid`, "" where nothing is left."""
        found: list[tuple[int, str]] = []
        seen, todo = {name}, [name] if name in self._index.nodes else []
        while todo:
            for tensor in self._index.data_inputs(self._index.nodes[todo.pop()]):
                op, k = split(tensor)
                if op in seen or op not in self._index.nodes:
                    continue
                seen.add(op)
                needed = self._index.ancestors([op])
                if not any(self._index.nodes[one].op in PLACEHOLDERS for one in needed):
                    continue
                is_part = needed & self._recurrences or not self._recurrences
                if is_part and self._is_offered(op, k) and not needed & {*avoid, name}:
                    found.append((len(needed), tensor))
                else:
                    todo.append(op)
        return f"cut before it with --outputs {max(found)[1]}" if found else ""

    def _is_offered(self, op: str, k: int) -> bool:
        node: Any = self._index.nodes[op]
        if op not in self._known or self._frames.get(op) or node.op in _SHAPED | PLACEHOLDERS:
            return False
        types = [*_types(node)]
        return k < len(types) and types[k] in _FLOATS


def _types(node: Any) -> Iterator[int]:
    """The types of a node's outputs, by their numbers in types.proto; none where its op is unknown."""
    definition = op_def_registry.get(node.op)
    for argument in () if definition is None else definition.output_arg:
        if argument.type_list_attr:
            yield from node.attr[argument.type_list_attr].list.type
            continue
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        yield from [argument.type or node.attr[argument.type_attr].type] * count
