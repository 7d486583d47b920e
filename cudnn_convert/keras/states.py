"""The states of stateful layers in a built model: variables of the graph, and what a call writes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

#: What the state variables of a layer hold, in its order: one of a GRU or simple RNN, two of an LSTM.
_STATES: Final = ("state_h", "state_c")


def updates(built: Any) -> list[Any]:
    """What a call of the model writes into the states of its layers, and nothing that needs other inputs."""
    given = {found.op for found in built.inputs}
    return [found for found in dict.fromkeys(built.state_updates) if _placeholders(found) <= given]


def _placeholders(op: Any) -> set[Any]:
    todo, seen = [op], set()
    while todo:
        found = todo.pop()
        if found not in seen:
            seen.add(found)
            todo += [*(value.op for value in found.inputs), *found.control_inputs]
    return {found for found in seen if found.type == "Placeholder"}


def variables(built: Any) -> dict[str, tuple[str, tuple[int, ...], Any]]:
    """The states of stateful layers by the op of each: its name among the layer's, shape and dtype.

    Keras writes no states into its files: they begin with zeros.
    """
    found = {}
    for layer in built._flatten_layers():
        states = [one for one in tf.nest.flatten(getattr(layer, "states", None)) if hasattr(one, "handle")]
        kinds = _STATES if len(states) <= len(_STATES) else [f"state_{n}" for n in range(len(states))]
        for kind, state in zip(kinds, states, strict=False):
            old = state.handle.op.name
            name = f"{old.rpartition('/')[0]}/{kind}"
            found[old] = (name, tuple(state.shape), state.dtype.as_numpy_dtype)
    return found


def renamed(graph: Any, names: Mapping[str, str]) -> Any:
    """The graph with its state variables called what they are: tf_keras calls them all Variable."""
    for node in graph.node:
        if node.name in names:
            node.name = names[node.name]
            node.attr["shared_name"].s = node.name.encode()
        for place, source in enumerate(node.input):
            node.input[place] = names.get(source, source)
    return graph
