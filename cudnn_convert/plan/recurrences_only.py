"""Plans the recurrences of a graph alone.

Nothing is cut, and the ops around recurrences need not run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from cudnn_convert.errors import InvalidModelError, UnsupportedModelError
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import INPUT, Index, walk
from cudnn_convert.model import Model, Recurrence
from cudnn_convert.options import Options
from cudnn_convert.plan import RecurrencesPlan, from_weights, moving_averages, requests
from cudnn_convert.plan.from_graph import inline_model
from cudnn_convert.plan.source import convention_of
from cudnn_convert.recurrences import graphless, parameter_source, resolve, restored_blobs


def plan_recurrences(model: Model, options: Options) -> RecurrencesPlan:
    """Plan the recurrences reached by a signature.

    Of a graph without signatures all recurrences are planned. Those of the same weights are planned once.
    Raises UnsupportedModelError with all reasons at once.
    """
    signature, weights = options.signature, options.weights
    requests.require(model, signature)
    if signature is not None:
        model = replace(model, signatures={signature: model.signatures[signature]})
    model = restored_blobs.with_restored_blobs(model)
    model, copy = moving_averages.use_moving_averages(inline_model(model), weights)
    graph = _extract_needed(model)
    recurrences = resolve.recurrences(model, graph, copy=copy, convention=convention_of(options))
    if not recurrences:
        reason = "recurrences: expected CudnnRNN nodes with weights, found none"
        raise UnsupportedModelError(model.path, [f"{reason}; choose a format that keeps a graph"])
    singles, twins = [], dict[str, list[str]]()
    for recurrence in _distinct(recurrences, twins):
        turned = replace(recurrence, time_major=True)
        singles.append(graphless.Single(recurrence.node, turned, not recurrence.time_major, states=True))
    same = (f"{', '.join(others)}: of the same weights as {name}" for name, others in twins.items())
    taken = [recurrence.shared for recurrence in recurrences]
    notes = (*model.notes, *same, *moving_averages.describe_unused_averages(model, weights, taken))
    flags = from_weights.describe_choices(graphless.SignatureOptions(), signature, weights)
    return from_weights.join_plans(model, singles, notes=notes, flags=flags, graph=graph)


#: What stands between a recurrence and the ends of a graph that has nothing else.
_COPIES: Final = frozenset({"Identity", "IdentityN"})
_ENDS: Final = frozenset({"Placeholder", "PlaceholderWithDefault"})


def list_other_ops(model: Model) -> tuple[str, ...]:
    """Describe ops feeding or reading a graph's recurrences, beside placeholders and copies.

    At most one on each side of each recurrence, as `name (op)`.
    """
    index = Graph.of(inline_model(model).graph).index
    others = []
    for node in parameter_source.recurrences(index):
        source = index.maker(index.data_inputs(node)[INPUT], _COPIES)
        others += [] if source.op in _ENDS else [source]
        others += [reader for reader in _readers(index, node) if reader.op not in _COPIES][:1]
    return tuple(dict.fromkeys(f"{node.name} ({node.op})" for node in others))


def _readers(index: Index, node: Any) -> Iterator[Any]:
    """Return the readers of a node, through copies."""

    def below(name: str) -> Iterator[str]:
        is_passed = name == node.name or index.nodes[name].op in _COPIES
        return (reader.name for reader in index.consumers(name)) if is_passed else iter(())

    return (index.nodes[name] for name in walk([node.name], below) if name != node.name)


def _extract_needed(model: Model) -> Graph:
    """Prune the graph to the needs of the recurrences.

    Raises UnsupportedModelError where TensorFlow cannot import it.
    """
    graph = Graph.of(model.graph)
    needed = prune(graph, [node.name for node in parameter_source.recurrences(graph.index)])
    try:
        _ = needed.shapes
    except InvalidModelError as cause:
        raise UnsupportedModelError(model.path, [str(cause)]) from cause
    return needed


def _distinct(recurrences: Sequence[Recurrence], twins: dict[str, list[str]]) -> Iterator[Recurrence]:
    """Yield the first recurrence for each set of weights and axes; `twins` collects the rest."""
    seen: dict[tuple[Any, ...], str] = {}
    for recurrence in recurrences:
        first = seen.setdefault(
            (recurrence.shared or recurrence.node, recurrence.sizes, recurrence.time_major), recurrence.node
        )
        if first == recurrence.node:
            yield recurrence
        else:
            twins.setdefault(first, []).append(recurrence.node)
