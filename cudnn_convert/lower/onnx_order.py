"""Walks through ONNX graphs, and an order for what has none: nodes, and what branches and loops hand on.

tf2onnx takes the outputs of an If and the carried variables of a Loop from sets of objects, so that their
order is chance. `settle` sorts them by digests of what they compute, which no order or name goes into.
Source: onnx v1.18 docs/Operators.md If-16, Loop-16 (a Loop's inputs are `M, cond, carried...`, its body's
`iteration, cond, carried...`, its body's outputs `cond, carried..., scanned...`), Scan-9 (inputs and the
body's inputs `carried..., scanned...`, outputs and the body's outputs likewise).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from itertools import chain
from typing import Any


def subgraphs(node: Any) -> Iterator[Any]:
    """The GraphProtos in a node's attributes, by attribute name."""
    for attribute in sorted(node.attribute, key=lambda found: str(found.name)):
        yield from chain([attribute.g] if attribute.HasField("g") else [], attribute.graphs)


def all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a GraphProto and of every graph nested in it."""
    for node in graph.node:
        yield node
        for nested in subgraphs(node):
            yield from all_nodes(nested)


def is_identity(node: Any) -> bool:
    """Whether the node only gives a tensor another name."""
    return bool(node.op_type == "Identity" and not node.domain)


def ordered(graph: Any) -> list[tuple[Any, list[str]]]:
    """The nodes that the outputs need, each after what it reads, with the names it reads."""
    nodes = [(node, _reads(node)) for node in graph.node]
    producers = {name: k for k, (node, _) in enumerate(nodes) for name in node.output if name}
    todo = [producers[value.name] for value in reversed(graph.output) if value.name in producers]
    placed: dict[int, None] = {}
    while todo:
        k = todo[-1]
        missing = [producers[name] for name in nodes[k][1] if name in producers]
        missing = [found for found in missing if found not in placed]
        if missing and k not in placed:
            todo += reversed(missing)
        else:
            placed.setdefault(todo.pop())
    return [nodes[k] for k in placed]


def _reads(node: Any) -> list[str]:
    """The names that a node reads, those that its nested graphs take from around them included."""
    found = dict.fromkeys(name for name in node.input if name)
    for nested in subgraphs(node):
        order = ordered(nested)
        own = {value.name for value in chain(nested.input, nested.initializer)}
        own.update(name for inner, _ in order for name in inner.output)
        read = chain.from_iterable([*(names for _, names in order), [value.name for value in nested.output]])
        found.update(dict.fromkeys(name for name in read if name not in own))
    return list(found)


def settle(graph: Any, around: Mapping[str, str]) -> list[str]:
    """Sort, in place, what every If, Loop and Scan hands on; gives the digests of the graph's outputs.

    `around` has the digests of the names that the graph sees, its own inputs included.
    """
    known = dict(around) | {"": ""} | {tensor.name: _of_message(tensor) for tensor in graph.initializer}
    for node, _ in ordered(graph):
        if node.op_type == "If":
            keys = _settle_if(node, known)
        elif node.op_type == "Loop":
            keys = _settle_loop(node, known)
        elif node.op_type == "Scan":
            keys = _settle_scan(node, known)
        elif is_identity(node):
            keys = [known[node.input[0]]]
        else:
            plain = [_of_message(found) for found in node.attribute if not found.HasField("g")]
            inside = chain.from_iterable(settle(nested, known) for nested in subgraphs(node))
            whole = _of([node.op_type, node.domain, *sorted(plain), *(known[n] for n in node.input), *inside])
            keys = [_of([whole, str(k)]) for k in range(len(node.output))]
        if node.op_type in ("If", "Loop", "Scan"):
            _read_first(graph, node.output, keys)
        known.update(zip(node.output, keys, strict=False))
    return [known[value.name] for value in graph.output]


def _settle_if(node: Any, known: Mapping[str, str]) -> list[str]:
    branches = list(subgraphs(node))
    results = zip(*(settle(branch, known) for branch in branches), strict=True)
    keys = [_of([node.op_type, known[node.input[0]], *result]) for result in results]
    order = sorted(range(len(keys)), key=lambda k: keys[k])
    _pad(node.output, len(keys))
    for items in (node.output, *(branch.output for branch in branches)):
        _permute(items, order)
    return [keys[k] for k in order]


def _settle_loop(node: Any, known: Mapping[str, str]) -> list[str]:
    (body,) = subgraphs(node)
    starts = [known[name] for name in node.input]
    carried = len(starts) - 2
    own = zip((value.name for value in body.input), ["iteration", "condition", *starts[2:]], strict=True)
    again, *results = settle(body, dict(known) | dict(own))
    keys = [_of([node.op_type, *starts[:2], again, *pair]) for pair in zip(starts[2:], results, strict=False)]
    keys += [_of([node.op_type, *starts[:2], again, result]) for result in results[carried:]]
    order = sorted(range(carried), key=lambda k: keys[k])
    _read_first(body, [value.name for value in body.input[2:]], keys[:carried])
    _permute(node.input, order, first=2)
    _permute(body.input, order, first=2)
    order += sorted(range(carried, len(keys)), key=lambda k: keys[k])
    _pad(node.output, len(keys))
    _permute(node.output, order)
    _permute(body.output, order, first=1)
    return [keys[k] for k in order]


def _settle_scan(node: Any, known: Mapping[str, str]) -> list[str]:
    """tf2onnx sets no axis and no direction (v1.17.0 rewriter/custom_rnn_rewriter.py), so none is sorted."""
    (body,) = subgraphs(node)
    starts = [known[name] for name in node.input]
    scanned = next(int(found.i) for found in node.attribute if found.name == "num_scan_inputs")
    carried = len(starts) - scanned
    own = [*starts[:carried], *(_of(["step of", start]) for start in starts[carried:])]
    results = settle(body, dict(known) | dict(zip((value.name for value in body.input), own, strict=True)))
    keys = [_of([node.op_type, *pair]) for pair in zip(starts[:carried], results, strict=False)]
    keys += [_of([node.op_type, *starts[carried:], result]) for result in results[carried:]]
    order = sorted(range(carried), key=lambda k: keys[k])
    read = order + sorted(range(carried, len(starts)), key=lambda k: starts[k])
    _read_first(body, [value.name for value in body.input[:carried]], keys[:carried])
    _permute(node.input, read)
    _permute(body.input, read)
    order += sorted(range(carried, len(keys)), key=lambda k: keys[k])
    _pad(node.output, len(keys))
    _permute(node.output, order)
    _permute(body.output, order)
    return [keys[k] for k in order]


def _read_first(graph: Any, names: Sequence[str], keys: Sequence[str]) -> None:
    """Of values that are computed alike, such as two counters of one loop, the graph reads one alone."""
    firsts: dict[str, str] = {}
    moved = {name: firsts.setdefault(key, name) for name, key in zip(names, keys, strict=True) if name}
    for node in all_nodes(graph):
        node.input[:] = [moved.get(name, name) for name in node.input]


def _pad(names: MutableSequence[str], count: int) -> None:
    names.extend([""] * (count - len(names)))  # outputs at the end that nobody wants may be left out


def _permute(items: MutableSequence[Any], order: Sequence[int], *, first: int = 0) -> None:
    moved = [items[first + k] for k in order]
    del items[first : first + len(order)]
    rest = list(items[first:])
    del items[first:]
    items.extend([*moved, *rest])


def _of(parts: Sequence[str]) -> str:
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()


def _of_message(message: Any) -> str:
    """The digest of a tensor without its name, or of an attribute, without doc strings."""
    made = type(message)()
    made.CopyFrom(message)
    made.ClearField("doc_string")
    if hasattr(made, "dims"):
        made.ClearField("name")
    return hashlib.sha256(made.SerializeToString(deterministic=True)).hexdigest()
