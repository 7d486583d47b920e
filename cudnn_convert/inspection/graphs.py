"""The recurrences of a source with a graph: live, dead, and in functions that nothing calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import CudnnConvertError, InvalidModelError
from cudnn_convert.graph import build, endpoints, flat, trace
from cudnn_convert.graph.index import CUDNN_OPS, Index, split
from cudnn_convert.inspection import copies, nodes
from cudnn_convert.inspection.seen import Seen
from cudnn_convert.inspection.value import End, Found
from cudnn_convert.model import Convention, Model


class Graph:
    """A model's graph without calls, and as TensorFlow sees what its recurrences and signatures need."""

    def __init__(self, model: Model, more: Sequence[str] = ()) -> None:
        """`more` are tensors that may be asked for beside those of the model's signatures."""
        self.model = model
        ends = [
            name
            for one in model.signatures.values()
            for of in (one.inputs, one.outputs)
            for name in of.values()
        ]
        graph: Any = model.graph
        keep = [*ends, *model.initializers] if ends else [node.name for node in graph.node]
        self.graph = _flat(graph, keep)
        self.index = Index(self.graph)
        self.nodes = [*trace.recurrences(self.index), *trace.cpu_recurrences(self.index)]
        self._keys = copies.keys(model)
        self._seen = _seen(
            self.graph, self.index, [*(node.name for node in self.nodes), *map(_op, [*ends, *more])]
        )

    def reached(self, outputs: Collection[str]) -> set[str]:
        """The ops that the tensors `outputs` need."""
        return self.index.ancestors(map(_op, outputs))

    def end(self, tensor: str) -> End:
        """A tensor by its dtype and shape."""
        try:
            assert self._seen is not None
            found = self._seen.get_tensor_by_name(tensor)
        except (AssertionError, KeyError, ValueError):
            return End(tensor, None, None)
        shape = None if found.shape.rank is None else tuple(found.shape.as_list())
        return End(tensor, found.dtype.name, shape)

    def recurrences(
        self, live: Mapping[str, bool], checked: Collection[str], convention: Convention
    ) -> Iterator[Found]:
        """Each node once, however often it is called; those of functions that nothing calls last.

        `live` by node; `checked` are those whose copies of weights are known to agree.
        """
        groups: dict[tuple[str, str], list[Any]] = {}
        for node in self.nodes:
            groups.setdefault(flat.origin(node) or ("", node.name), []).append(node)
        for (function, _), group in groups.items():
            said = [live[node.name] for node in group if node.name in live]
            node = next((node for node in group if live.get(node.name)), group[0])
            tensors = None if self._seen is None else self._seen.get_operation_by_name(node.name).inputs
            one = _described(self.model, self.index, node, tensors)
            if one is not None:
                keys = one.matrices or (self._keys.get(one.keys.scope, ()) if one.keys else ())
                agree = "" if node.name in checked else self._compared(one, convention)
                raw = (one.blob,) if one.blob else ()
                is_live = True if any(said) else False if len(said) == len(group) else None
                shown = replace(one.found(node), function=function or None, live=is_live)
                yield replace(shown, raw=raw, canonical=keys, copies=copies.told(raw, keys, agree))
        yield from _uncalled(self.model, groups)

    def _compared(self, one: Seen, convention: Convention) -> str | None:
        blob = self.model.variables.get(one.blob.name) if one.blob else None
        if one.keys is None or blob is None or one.sizes is None:
            return None
        return copies.compared(one.keys, blob, one.sizes, one.dtype, convention)


def _described(model: Model, index: Index, node: Any, tensors: Any) -> Seen | None:
    """None for a node with attributes that no cuDNN op has, as a refusal says."""
    try:
        return nodes.seen(model, index, node, tensors)
    except (CudnnConvertError, ValueError):
        return None


def _uncalled(model: Model, known: Collection[tuple[str, str]]) -> Iterator[Found]:
    """The cuDNN nodes of functions that no signature and no object calls: here each is called once."""
    graph: Any = model.graph
    found = {name for name, _ in known}
    functions = [
        function
        for function in graph.library.function
        if function.signature.name not in found and any(node.op in CUDNN_OPS for node in function.node_def)
    ]
    made = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    for number, function in enumerate(functions):
        made.node.extend(endpoints.call(f"call_{number}", function, ()))
    names = [f"call_{number}" for number in range(len(functions))]
    try:
        flattened = flat.flattened(made, names, origins=True) if names else made
        index, seen = Index(flattened), build.sound(flattened)
    except InvalidModelError:
        return
    wanted = {function.signature.name for function in functions}
    for node in trace.recurrences(index):
        function, name = flat.origin(node) or ("", "")
        one = _described(model, index, node, seen.get_operation_by_name(node.name).inputs)
        if function in wanted and one is not None:
            shown = one.found(node)
            yield replace(shown, name=f"{function}/{name}", function=function, live=False)


def _flat(graph: Any, keep: Sequence[str]) -> Any:
    """The graph without calls, or as it is where TensorFlow cannot read it."""
    try:
        return flat.flattened(graph, keep, origins=True) if flat.calls(graph, keep) else graph
    except InvalidModelError:
        return graph


def _seen(graph: Any, index: Index, ops: Sequence[str]) -> tf.Graph | None:
    """What `ops` need as TensorFlow sees it, None where it does not know an op."""
    try:
        return build.sound(build.kept(graph, index.ancestors(ops)))
    except InvalidModelError:
        return None


def _op(tensor: str) -> str:
    return split(tensor)[0]
