"""How many rows a lookup in a partitioned table has.

TensorFlow divides the ids among the parts, by remainder or by range, and gathers from each part what is its
own: arithmetic on the ids, a DynamicPartition, a gather for each part (tensorflow v1.15.0
python/ops/embedding_ops.py `_embedding_lookup_and_transform`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cudnn_convert.graph.index import Index, split, tensor

_ARITHMETIC: Final = frozenset(
    "Identity Cast Reshape FloorMod FloorDiv Sub Add AddV2 Mul Maximum Minimum Select SelectV2 Unique".split()
)
_GATHERS: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})
_PARTITION: Final = "DynamicPartition"


def rows(index: Index, ids: str, count: Callable[[Any], int | None]) -> int | None:
    """The rows of all parts together that the tensor `ids` picks from, None where it picks from none.

    `count` gives the rows of the table of one gather.
    """
    partitions = {name for name in _reached(index, ids, _ARITHMETIC) if index.nodes[name].op == _PARTITION}
    tables: dict[str, Any] = {}
    for name in partitions:
        for k in range(index.nodes[name].attr["num_partitions"].i):
            for found in _reached(index, f"{name}:{k}", frozenset({"Identity", "Cast"})):
                gather = index.nodes[found]
                if gather.op in _GATHERS:
                    tables[_root(index, gather)] = gather
    counts = [count(gather) for gather in tables.values()]
    known = [found for found in counts if found is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _reached(index: Index, name: str, carriers: frozenset[str]) -> set[str]:
    """The ops that read a tensor, directly or through `carriers`."""
    found: set[str] = set()
    todo = [split(name)]
    while todo:
        op, k = todo.pop()
        for reader in index.consumers(op, k):
            if reader.name not in found:
                found.add(reader.name)
                todo += [(reader.name, 0)] if reader.op in carriers else []
    return found


def _root(index: Index, gather: Any) -> str:
    """The table of a gather, whatever reads it first."""
    op = split(tensor(gather.input[0]))[0]
    while index.nodes[op].op in ("Identity", "ReadVariableOp"):
        op = split(index.nodes[op].input[0])[0]
    return op
