"""Which arguments of functions hold a known tensor, such as the name of an asset, at every call.

A function may be called with anything, from the graph, from another function, or by a loader: only what each
call gives counts. What is called in another way than one argument an input counts as given nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cudnn_convert.graph.index import tensor
from cudnn_convert.graph.pure import TWINS

#: Ops that give the function in their attribute `f` their inputs, in order.
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_FUNCTION: Final = "f"


@dataclass(frozen=True, slots=True)
class Call:
    """A call from outside of any graph: of a function, and whether each of its last arguments is known."""

    function: str
    captured: tuple[bool, ...] = ()


def holding(
    graph: Any, known: Callable[[Any], Collection[str]], calls: Iterable[Call] = ()
) -> Mapping[str, frozenset[str]]:
    """The arguments of each function in the library of `graph` that hold a known tensor at every call.

    `known` gives the tensors `op:k` that are known where a node of the graph itself runs.
    """
    taken = _arguments(graph)
    sure = {name: set(arguments) for name, arguments in taken.items()}
    for call in calls:
        first = len(taken.get(call.function, ())) - len(call.captured)
        _keep(sure, taken, call.function, (False,) * first + call.captured if first >= 0 else ())
    for node in graph.node:
        inside = known(node)
        given = tuple(tensor(name) in inside for name in _data(node))
        for name, values in _called(node, given):
            _keep(sure, taken, name, values)
    changed = True
    while changed:  # what a function is given it may hand on
        before = sum(map(len, sure.values()))
        for function in graph.library.function:
            inside = sure[function.signature.name]
            for node in function.node_def:
                given = tuple(name in inside for name in _data(node))
                for name, values in _called(node, given):
                    _keep(sure, taken, name, values)
        changed = sum(map(len, sure.values())) != before
    return {name: frozenset(arguments) for name, arguments in sure.items()}


def _arguments(graph: Any) -> dict[str, list[str]]:
    """The arguments of each function in order; none where a call may give them in another way.

    So it is where one argument takes several inputs, where two functions have one name, and where TensorFlow
    may call the function in another's place.
    """
    taken: dict[str, list[str]] = {}
    for function in graph.library.function:
        arguments, name = function.signature.input_arg, function.signature.name
        is_plain = not any(argument.number_attr or argument.type_list_attr for argument in arguments)
        is_plain = is_plain and name not in taken and TWINS not in function.attr
        taken[name] = [argument.name for argument in arguments] if is_plain else []
    return taken


def _data(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def _called(node: Any, given: tuple[bool, ...]) -> Iterator[tuple[str, tuple[bool, ...]]]:
    """The functions that a node calls or hands on, each with what it is known to give them."""
    yield node.op, given
    for key, attribute in node.attr.items():
        direct = node.op in _CALLS and key == _FUNCTION
        yield from _named([attribute], given if direct else ())


def _named(attributes: Iterable[Any], given: tuple[bool, ...]) -> Iterator[tuple[str, tuple[bool, ...]]]:
    for attribute in attributes:
        functions = [attribute.func] if attribute.HasField("func") else attribute.list.func
        for function in functions:
            yield function.name, given
            yield from _named(function.attr.values(), ())


def _keep(
    sure: Mapping[str, set[str]], taken: Mapping[str, list[str]], name: str, given: tuple[bool, ...]
) -> None:
    """Of the arguments of a function, those that this call gives too."""
    if name in sure:
        sure[name] &= {argument for argument, is_known in zip(taken[name], given, strict=False) if is_known}
