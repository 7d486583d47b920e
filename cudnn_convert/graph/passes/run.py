"""Runs a list of passes over a graph.

A list is a tuple of functions, applied from the first to the last; a comment in it tells why one comes before
another. A pass that needs more than the graph gets it by `functools.partial` where the list is made.

    PASSES: Final[tuple[Pass, ...]] = (tensor_lists.replace_lists, missing_ops.replace_sign_bits)
    graph = run_passes(graph, PASSES, ["y:0"])
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cudnn_convert.graph.graph import Graph

_LOGGER: Final = logging.getLogger(__name__)

#: The tensors, or ops, that a graph must keep under their names.
Keep = Sequence[str]
#: Returns a graph that computes the same at what it keeps: the same object if it changes nothing.
Pass = Callable[[Graph, Keep], Graph]


def run_passes(graph: Graph, passes: Iterable[Pass], keep: Keep) -> Graph:
    """Apply passes in order, and log each name with the number of nodes left."""
    for each in passes:
        before, graph = graph, each(graph, keep)
        result = "no change" if graph is before else f"{len(graph.node)} nodes"
        _LOGGER.debug("%s: %s", name_pass(each), result)
    return graph


def name_pass(each: Pass) -> str:
    """Return the name of a pass's function, also behind a partial."""
    name: str = getattr(each, "func", each).__name__
    return name
