"""The plan of a graph's recurrences alone: nothing is cut, and what stands around them need not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from cudnn_convert.errors import InvalidModelError, UnsupportedModelError
from cudnn_convert.graph import build, resolve, trace
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.interface import Interface, Single
from cudnn_convert.model import Convention, Model, Recurrence
from cudnn_convert.plan import Plan, averages, request
from cudnn_convert.plan.bare import joined, repeated
from cudnn_convert.plan.make import flattened

_USUAL: Final = Convention()


def make(
    model: Model, *, signature: str | None = None, weights: str = "auto", convention: Convention = _USUAL
) -> Plan:
    """The plan of every recurrence that a signature reaches, or that stands in a graph without any.

    Those of the same weights are one. Raises UnsupportedModelError with all reasons at once.
    """
    request.require(model, signature)
    if signature is not None:
        model = replace(model, signatures={signature: model.signatures[signature]})
    model = flattened(model)
    model, copy = averages.chosen(model, weights)
    graph = _needed(model)
    found = resolve.recurrences(model, graph, copy=copy, convention=convention)
    if not found:
        reason = "recurrences: expected CudnnRNN nodes with weights, found none; choose a format of graphs"
        raise UnsupportedModelError(model.path, [reason])
    singles, twins = [], dict[str, list[str]]()
    for one in _distinct(found, twins):
        singles.append(Single(one.node, replace(one, time_major=True), not one.time_major, states=True))
    notes = (f"{', '.join(others)}: of the same weights as {name}" for name, others in twins.items())
    return joined(
        model,
        singles,
        notes=(*model.notes, *notes, *averages.left_out(model, weights, [one.shared for one in found])),
        flags=repeated(Interface(), signature, weights),
        graph=graph,
    )


def _needed(model: Model) -> Any:
    """The graph as far as the recurrences need it. Raises UnsupportedModelError where it is not sound."""
    graph: Any = model.graph
    index = Index(graph)
    kept = build.kept(graph, index.ancestors(node.name for node in trace.recurrences(index)))
    try:
        build.sound(kept)
    except InvalidModelError as cause:
        raise UnsupportedModelError(model.path, [str(cause)]) from cause
    return kept


def _distinct(found: Sequence[Recurrence], twins: dict[str, list[str]]) -> Iterator[Recurrence]:
    """The first of those that share their weights and axes; `twins` collects the others by its name."""
    seen: dict[tuple[Any, ...], str] = {}
    for one in found:
        first = seen.setdefault((one.shared or one.node, one.sizes, one.time_major), one.node)
        if first == one.node:
            yield one
        else:
            twins.setdefault(first, []).append(one.node)
