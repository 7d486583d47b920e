"""The calls of a functional model: from Keras 2's `[layer, call, tensor, kwargs]` to Keras 3's arguments.

Keras 2 counts the calls of a model inside a model from 1, for the model's own making is its call 0; Keras 3
counts them from 0 among arguments, and from 1 for a Functional among the outputs.
Source: keras 2.2.4 engine/network.py `get_config` (kept_nodes); tf_keras v2.21.0 src/engine/functional.py;
keras v3.15 src/models/functional.py `deserialize_node`, `functional_from_config` (get_tensor).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cudnn_convert.keras import architecture
from cudnn_convert.keras.architecture import Entry

#: Layers that take their initial states as further inputs, which Keras 3 takes by name.
_STATEFUL_CALLS: Final = frozenset({"RNN", "SimpleRNN", "LSTM", "GRU", "Bidirectional", "ConvLSTM2D"})


class Calls:
    """The tensors of one functional model by layer, call and place."""

    def __init__(self, model: Entry) -> None:
        entries = {
            str(layer.get("name") or architecture.name(layer)): layer for layer in architecture.layers(model)
        }
        self._entries = entries
        referenced = list(_references(model["config"], entries))
        self._first = {
            name: min((node for found, node in referenced if found == name), default=1)
            for name, layer in entries.items()
            if architecture.is_model(layer)
        }

    def node(self, node: Any, layer: Entry) -> dict[str, Any]:
        """One call of a layer as Keras 3's `args` and `kwargs`. Raises ValueError for what is no tensor."""
        if isinstance(node, Mapping):
            if "args" in node:
                return dict(node)
            return {"args": [{key: self._tensor(value) for key, value in node.items()}], "kwargs": {}}
        tensors = [self._tensor(reference) for reference in node]
        told: Mapping[str, Any] = next(
            (reference[3] for reference in node if len(reference) > 3 and reference[3]), {}
        )
        if not isinstance(told, Mapping):
            raise ValueError(f"{str(told)[:60]}")
        kwargs = {key: self._argument(value) for key, value in told.items() if value is not None}
        if len(tensors) == 1:
            return {"args": tensors, "kwargs": kwargs}
        if layer["class_name"] in _STATEFUL_CALLS:
            return {"args": tensors[:1], "kwargs": {**kwargs, "initial_state": tensors[1:]}}
        return {"args": [tensors], "kwargs": kwargs}

    def ends(self, ends: Any) -> Any:
        """`input_layers` or `output_layers`; one tensor stands alone, so that `predict` gives an array."""
        if isinstance(ends, Mapping):
            return {key: self.ends(value) for key, value in ends.items()}
        if _is_reference(ends, self._entries):
            name, node, place = ends[:3]
            functional = self._entries[name]["class_name"] in ("Model", "Functional")
            return [name, self._index(name, node) + (1 if functional else 0), place]
        return self.ends(ends[0]) if len(ends) == 1 else [self.ends(end) for end in ends]

    def _index(self, name: str, node: int) -> int:
        return node - min(self._first.get(name, 0), 1)

    def _tensor(self, reference: Any) -> dict[str, Any]:
        if not _is_reference(reference, self._entries):
            raise ValueError(f"{str(reference)[:60]}")
        name, node, place = reference[:3]
        # Keras replaces it by the real tensor of this history, whatever shape and dtype stand here.
        told = {"shape": [None], "dtype": "float32", "keras_history": [name, self._index(name, node), place]}
        return {"class_name": "__keras_tensor__", "config": told}

    def _argument(self, value: Any) -> Any:
        if _is_reference(value, self._entries):
            return self._tensor(value)
        if isinstance(value, list):
            return [self._argument(one) for one in value]
        return value


def _is_reference(value: Any, names: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and value[0] in names
        and isinstance(value[1], int)
        and isinstance(value[2], int)
    )


def _references(config: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """`(layer, call)` of every tensor that a model's config names."""
    todo: list[Any] = [config.get("input_layers"), config.get("output_layers")]
    todo += [layer.get("inbound_nodes") for layer in config.get("layers", [])]
    while todo:
        value = todo.pop()
        if _is_reference(value, names):
            yield value[0], value[1]
            todo += value[3:]
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, list):
            todo += value
