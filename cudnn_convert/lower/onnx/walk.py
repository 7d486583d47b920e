"""Walks ONNX graphs and orders nodes and subgraph outputs.

tf2onnx takes the outputs of an If and the carried variables of a Loop from sets of objects, so their order is
random. `sort_subgraph_outputs` sorts them by digests of what they compute, which depend on no order or name.

Source: onnx v1.18 docs/Operators.md If-16, Loop-16 (a Loop's inputs are `M, cond, carried...`, its body's
`iteration, cond, carried...`, its body's outputs `cond, carried..., scanned...`), Scan-9 (inputs and the
body's inputs `carried..., scanned...`, outputs and the body's outputs likewise).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.graph.index import walk_behind


def subgraphs(node: Any) -> Iterator[Any]:
    """Yield the GraphProtos in a node's attributes, by attribute name."""
    for attribute in sorted(node.attribute, key=lambda item: str(item.name)):
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a GraphProto and of all nested graphs."""
    for node in graph.node:
        yield node
        for nested in subgraphs(node):
            yield from all_nodes(nested)


def graphs(graph: Any) -> list[Any]:
    """Return a GraphProto and all nested graphs."""
    return [graph, *(nested for node in all_nodes(graph) for nested in subgraphs(node))]


def names(graph: Any) -> set[str]:
    """Return every name used in a graph and nested graphs."""
    used_names = {name for node in all_nodes(graph) for name in (*node.input, *node.output)}
    ends = (
        end
        for subgraph in graphs(graph)
        for end in (*subgraph.input, *subgraph.output, *subgraph.initializer)
    )
    return used_names | {end.name for end in ends}


def free(name: str, taken: Collection[str]) -> str:
    """Return `name`, with underscores appended while in `taken`."""
    while name in taken:
        name += "_"
    return name


def is_identity(node: Any) -> bool:
    """Return True if the node only renames a tensor."""
    return bool(node.op_type == "Identity" and not node.domain)


def topological_order(graph: Any) -> list[tuple[Any, list[str]]]:
    """Return the nodes needed by the outputs in topological order, each with the names read."""
    nodes = [(node, _reads(node)) for node in graph.node]
    producers = {name: k for k, (node, _) in enumerate(nodes) for name in node.output if name}
    start = [producers[value.name] for value in graph.output if value.name in producers]

    def above(k: int) -> list[int]:
        return [producers[name] for name in reversed(nodes[k][1]) if name in producers]

    return [nodes[k] for k in walk_behind(start, above)]


def _reads(node: Any) -> list[str]:
    """Return the names read by a node, including nested graphs' reads from outside."""
    reads = dict.fromkeys(name for name in node.input if name)
    for nested in subgraphs(node):
        order = topological_order(nested)
        own = {value.name for value in nested.input} | {tensor.name for tensor in nested.initializer}
        own.update(name for inner, _ in order for name in inner.output)
        reads.update(dict.fromkeys(name for _, read in order for name in read if name not in own))
        reads.update(dict.fromkeys(value.name for value in nested.output if value.name not in own))
    return list(reads)


def sort_subgraph_outputs(graph: Any, around: Mapping[str, str], *, within: str = "") -> list[str]:
    """Sort every If, Loop and Scan in place; return digests of the graph's outputs.

    `around` has the digests of all names visible in the graph, its inputs included; `within` identifies the
    enclosing loops. Equal digests mean equal values, except for random ops.
    """
    known = dict(around) | {"": ""} | {tensor.name: _of_message(tensor) for tensor in graph.initializer}
    for node, _ in topological_order(graph):
        if settled := _SETTLED.get(node.op_type):
            keys = settled(node, known, within)
            _read_first(graph, node.output, keys)
        elif is_identity(node):
            keys = [known[node.input[0]]]
        else:
            plain = sorted(_of_message(attribute) for attribute in node.attribute)
            inputs = [known[name] for name in node.input]
            whole = {"op": node.op_type, "domain": node.domain, "attributes": plain, "inputs": inputs}
            keys = [_of(whole | {"output": k}) for k in range(len(node.output))]
        known |= dict(zip(node.output, keys, strict=True)) | {"": ""}
    return [known[value.name] for value in graph.output]


def _settle_if(node: Any, known: Mapping[str, str], within: str) -> list[str]:
    branches = list(subgraphs(node))
    results = zip(*(sort_subgraph_outputs(branch, known, within=within) for branch in branches), strict=True)
    keys = [_of({"if": known[node.input[0]], "results": result}) for result in results]
    order = sorted(range(len(keys)), key=lambda k: keys[k])
    _permute(node.output, order)
    for branch in branches:
        _permute(branch.output, order)
    return [keys[k] for k in order]


def _settle_loop(node: Any, known: Mapping[str, str], within: str) -> list[str]:
    (body,) = subgraphs(node)
    starts, names = [known[name] for name in node.input], [value.name for value in body.input]
    carried, inside = len(names) - 2, _of({"within": within})
    seen = {**known, **{names[k]: _of({"input": k, "of": inside}) for k in range(2)}}
    kinds, results = _settle_body(body, seen, dict(zip(names[2:], starts[2:], strict=True)), 1, inside)
    whole = {"loop": starts[:2], "again": results[0], "carried": sorted(kinds)}
    keys = [_of(whole | {"carries": kind}) for kind in kinds]
    keys += [_of(whole | {"stacks": result}) for result in results[1 + carried :]]
    order = sorted(range(carried), key=lambda k: keys[k])
    _read_first(body, names[2:], kinds)
    _permute(node.input, order, first=2)
    _permute(body.input, order, first=2)
    order += sorted(range(carried, len(keys)), key=lambda k: keys[k])
    _permute(node.output, order)
    _permute(body.output, order, first=1)
    return [keys[k] for k in order]


def _settle_scan(node: Any, known: Mapping[str, str], within: str) -> list[str]:
    """Sort a Scan.

    tf2onnx sets no axis and no direction (v1.17.0 rewriter/custom_rnn_rewriter.py).
    """
    (body,) = subgraphs(node)
    starts, names = [known[name] for name in node.input], [value.name for value in body.input]
    carried = len(names) - next(
        int(attribute.i) for attribute in node.attribute if attribute.name == "num_scan_inputs"
    )
    inside = _of({"within": within})
    steps = [_of({"step of": start, "in": inside}) for start in starts[carried:]]
    seen = {**known, **dict(zip(names[carried:], steps, strict=True))}
    given = dict(zip(names[:carried], starts[:carried], strict=True))
    kinds, results = _settle_body(body, seen, given, 0, inside)
    whole = {"scan": sorted(steps), "carried": sorted(kinds)}
    keys = [_of(whole | {"carries": kind}) for kind in kinds]
    keys += [_of(whole | {"stacks": result}) for result in results[carried:]]
    order = sorted(range(carried), key=lambda k: keys[k])
    read = order + sorted(range(carried, len(starts)), key=lambda k: starts[k])
    _read_first(body, names[:carried], kinds)
    _permute(node.input, read)
    _permute(body.input, read)
    order += sorted(range(carried, len(keys)), key=lambda k: keys[k])
    _permute(node.output, order)
    _permute(body.output, order)
    return [keys[k] for k in order]


def _settle_body(
    body: Any, seen: Mapping[str, str], starts: Mapping[str, str], first: int, inside: str
) -> tuple[list[str], list[str]]:
    """Return the digests of a loop's carried variables, and of the body's outputs.

    `starts` has the digests of the variables' initial values, by name; output `first` of the body is the next
    value of the first variable. Variables with equal initial values, such as zero states, are distinguished
    by their next values, in rounds until no more can be.
    """
    kinds = list(starts.values())
    while True:
        trial = type(body)()
        trial.CopyFrom(body)
        results = sort_subgraph_outputs(
            trial, {**seen, **dict(zip(starts, kinds, strict=True))}, within=inside
        )
        constants = [_of({"start": kind, "next": results[first + k]}) for k, kind in enumerate(kinds)]
        if len(set(constants)) == len(set(kinds)):
            body.CopyFrom(trial)
            return constants, results
        kinds = constants


_SETTLED: Final[Mapping[str, Callable[[Any, Mapping[str, str], str], list[str]]]] = MappingProxyType(
    {"If": _settle_if, "Loop": _settle_loop, "Scan": _settle_scan}
)


def _read_first(graph: Any, names: Sequence[str], keys: Sequence[str]) -> None:
    """Redirect reads of equal values, such as two counters, to the first value."""
    firsts: dict[str, str] = {}
    moved = {name: firsts.setdefault(key, name) for name, key in zip(names, keys, strict=True) if name}
    for node in all_nodes(graph):
        node.input[:] = [moved.get(name, name) for name in node.input]


def _permute(items: MutableSequence[Any], order: Sequence[int], *, first: int = 0) -> None:
    moved = [items[first + k] for k in order]
    del items[first:]
    items.extend(moved)


def _of(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _of_message(message: Any) -> str:
    """Return the digest of a tensor or attribute, ignoring doc strings and tensor names."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.ClearField("doc_string")
    if hasattr(copy, "dims"):
        copy.ClearField("name")
    return hashlib.sha256(copy.SerializeToString()).hexdigest()
