"""Serialized tf.Examples as inputs: the features that a graph parses out of them, where a cut may be.

A sparse feature that becomes dense at once is cut where it is dense; else its indices, values and shape are.
Source: tensorflow v2.21.0 core/ops/parsing_ops.cc (the order of a parser's inputs and outputs).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph.index import Index, split

PARSERS: Final = frozenset(
    "ParseExample ParseExampleV2 ParseSingleExample ParseSequenceExample ParseSequenceExampleV2 "
    "ParseSingleSequenceExample".split()
)
_SPARSE: Final = ("indices", "values", "shape")


@dataclass(frozen=True, slots=True)
class Feature:
    """A tensor behind a parser, and the feature's own name where the parser tells it."""

    key: str | None
    tensor: str
    parser: str


def features(index: Index, outputs: Iterable[str], *, stop: Collection[str]) -> list[Feature]:
    """The parsed features that `outputs` need beside `stop`, both tensors `op:k`, in the parser's order."""
    dense = {node.name: node for node in index.nodes.values() if _is_made_dense(index, node)}
    closed = {split(name)[0] for name in stop}
    needed = index.ancestors((split(name)[0] for name in outputs), stop=closed | dense.keys()) - closed
    read = {name for op in needed - dense.keys() for name in index.data_inputs(index.nodes[op])}
    parsed = [split(name) for name in read - set(stop) if index.nodes[split(name)[0]].op in PARSERS]
    found = [(op, k, f"{op}:{k}", False) for op, k in parsed]
    found += [(*split(node.input[0]), f"{name}:0", True) for name, node in dense.items() if name in needed]
    return [
        Feature(_key(index, index.nodes[op], k, whole=whole), name, op)
        for op, k, name, whole in sorted(found)
    ]


def _is_made_dense(index: Index, node: Any) -> bool:
    """Whether a node takes a parser's sparse feature and gives the dense one."""
    if node.op != "SparseToDense":
        return False
    indices, shape, values = map(split, index.data_inputs(node)[:3])
    parser = index.nodes[indices[0]]
    if parser.op not in PARSERS or {values[0], shape[0]} != {parser.name}:
        return False
    count = _sparse(parser)
    return 0 <= indices[1] < count and (values[1], shape[1]) == (indices[1] + count, indices[1] + 2 * count)


def _sparse(parser: Any) -> int:
    """How many sparse features a parser gives, 0 for one of sequences, whose order is another."""
    attribute = "Nsparse" if parser.op == "ParseExample" else "num_sparse"
    return int(parser.attr[attribute].i) if attribute in parser.attr else 0


def _key(index: Index, parser: Any, k: int, *, whole: bool) -> str | None:
    """The name of output `k` by the feature's; None where it is no word, or the parser is of sequences."""
    count = _sparse(parser)
    names = [*_names(index, parser)]
    place = k % count if k < 3 * count else k - 2 * count
    if place >= len(names) or not re.fullmatch(r"[\w/.-]+", names[place]):
        return None
    key = re.sub(r"\W", "_", names[place])
    return key if whole or k >= 3 * count else f"{key}_{_SPARSE[k // count]}"


def _names(index: Index, parser: Any) -> Iterator[str]:
    """The features' names, the sparse ones first."""
    if parser.op == "ParseSingleExample":
        keys = (parser.attr[name].list.s for name in ("sparse_keys", "dense_keys"))
        yield from (key.decode(errors="replace") for of in keys for key in of)
    elif parser.op in ("ParseExample", "ParseExampleV2"):
        last = 2 + (_sparse(parser) + parser.attr["Ndense"].i if parser.op == "ParseExample" else 2)
        for name in index.data_inputs(parser)[2:last]:
            node = index.nodes[split(name)[0]]
            if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                keys = tf.make_ndarray(node.attr["value"].tensor).reshape(-1)
                yield from (bytes(key).decode(errors="replace") for key in keys)
