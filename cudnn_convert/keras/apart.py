"""A Keras 3 model with layers whose code nobody brings, in pieces: to save its weights, never to be called.

Nobody can know what such a layer gives, so that nothing behind it can be connected. Keras builds each of the
others alone, for its weights tell what shape it takes; one of no known class has its weights as stored.
Source: keras v3.15 src/saving/saving_lib.py `_save_state`, `_save_container_state`: weights stand under the
attributes of layers, and in a model under `layers/<class in snake case>`, numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import architecture, built, foreign, layers, modern, shapes
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.keras.keys import Told
from cudnn_convert.model import Architecture, Tensor

Listed = Sequence[tuple[str, Tensor]]
#: The attribute of a wrapper of Keras 3 that holds the one layer in it.
_HOLDS: Final = {"TimeDistributed": "layer", "RNN": "cell"}


def pieces(source: Path, model: Architecture, brought: Mapping[str, Any]) -> Any:
    """A `keras.Model` of a rewritten model's layers to save the weights of, and to do nothing else with.

    `brought` are classes and functions by name. Raises UnsupportedModelError for a layer that Keras 3 cannot
    build, and where weights of several layers stand together without their layers' names.
    """
    made = _Pieces(source, brought, shapes.first(model.config)).model(model.config, model.weights)
    built.settle_seeds(made)
    return made


@dataclass(frozen=True, slots=True)
class _Pieces:
    """`given`: the shape of the model's first input."""

    source: Path
    brought: Mapping[str, Any]
    given: Sequence[int | None]

    def model(self, entry: Entry, weights: Mapping[str, Listed]) -> Any:
        import keras

        kind = "Sequential" if entry["class_name"] == "Sequential" else "Functional"
        made = type(kind, (keras.Sequential,), {})(name=architecture.name(entry) or None)
        for below in architecture.layers(entry):
            if below["class_name"] != "InputLayer":
                piece = self.layer(below, weights.get(architecture.name(below), ()))
                made.add(piece, rebuild=False)
        made.built = True  # as far as saving its weights goes
        return made

    def layer(self, entry: Entry, listed: Listed) -> Any:
        """A layer with the weights listed for it, its own and those of the layers in it."""
        kind = str(entry["class_name"])
        if foreign.is_foreign(entry, self.brought):
            return _stand_in(entry, listed)
        if kind == "TimeDistributed" and modern.each_step(entry) is None and None in self.given[1:]:
            told = "expected a fixed number of steps for the TimeDistributed of Keras 3, found an open one"
            raise self._refused(entry, f"{told}; write --format h5")
        if not foreign.has_foreign(entry, self.brought):
            return self._own(entry, listed)
        if architecture.is_model(entry):
            return self.model(entry, self._shared(entry, listed))
        if kind == "Bidirectional":
            parts = self._ways(entry, listed)
        elif kind in _HOLDS:
            parts = {_HOLDS[kind]: self.layer(architecture.inside(entry)[0], listed)}
        else:
            told = f"expected Keras's own layers in a {kind} for Keras 3, found another"
            raise self._refused(entry, f"{told}; write --format h5, or bring it with --custom-objects")
        return _stand_in(entry, (), **parts)

    def _own(self, entry: Entry, listed: Listed) -> Any:
        """A layer of Keras, built for the first shape that gives it weights like those listed."""
        config = modern.translated(entry, architecture.name(entry), Told(self.brought))
        if architecture.is_model(entry):
            made = built.deserialized(self.source, config, self.brought)
            built.refuse_open_steps(self.source, made)
            if built.filled(made, entry, listed):
                return made
        elif (found := self._shaped(entry, config, listed)) is not None:
            return found
        stored = ", ".join(str(list(tensor.shape)) for _, tensor in listed)
        expected = f"the weights of a {entry['class_name']} of Keras 3"
        raise self._refused(entry, f"expected {expected}, found {stored or 'none'}; write --format h5")

    def _shaped(self, entry: Entry, config: Mapping[str, Any], listed: Listed) -> Any:
        """A layer that holds the weights listed for it; None where it takes others. One without any may stay
        without a shape, if it takes none of those tried."""
        unshaped = None if listed else built.deserialized(self.source, config, self.brought)
        for call in shapes.tried(listed, self.given[0]):
            made = built.deserialized(self.source, config, self.brought)
            try:
                made.build(*call)
            except Exception:  # noqa: BLE001 - whatever a layer says to a shape not its own
                continue
            if built.filled(made, entry, listed):
                return made
            unshaped = None
        return unshaped

    def _shared(self, model: Entry, listed: Listed) -> dict[str, Listed]:
        """Whose weights those of a model in a model are, by the names of its layers in theirs."""
        found: dict[str, list[tuple[str, Tensor]]] = {
            architecture.name(below): [] for below in architecture.layers(model)
        }
        for name, tensor in listed:
            owners = [part for part in name.split("/")[:-1] if part in found]
            if len(owners) != 1:
                told = f"expected weights named after its layers, found {name}; write --format h5"
                raise self._refused(model, told)
            found[owners[0]].append((name, tensor))
        return dict(found)

    def _ways(self, entry: Entry, listed: Listed) -> dict[str, Any]:
        """Both directions of a Bidirectional, whose weights say which they are of."""
        ways: tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]] = ([], [])
        for name, tensor in listed:
            ways["/backward_" in f"/{name}"].append((name, tensor))
        if bool(ways[0]) != bool(ways[1]):
            told = "expected weights of both directions by their names, found one; write --format h5"
            raise self._refused(entry, told)
        made = [self.layer(one, way) for one, way in zip(architecture.inside(entry), ways, strict=True)]
        return dict(zip(("forward_layer", "backward_layer"), made, strict=True))

    def _refused(self, entry: Entry, told: str) -> UnsupportedModelError:
        return UnsupportedModelError(self.source, [f"layer {architecture.name(entry)}: {told}"])


def _stand_in(entry: Entry, listed: Listed, **parts: Any) -> Any:
    """A layer of the name of a class that is not here: it saves what is listed as its own, and `parts`."""
    import keras

    def save_own_variables(_: Any, store: Any) -> None:
        for number, (_, tensor) in enumerate(listed):
            store[str(number)] = tensor.read()

    kind = type(layers.bare(entry), (keras.layers.Layer,), {"save_own_variables": save_own_variables})
    made = kind(name=architecture.name(entry))
    for attribute, part in parts.items():
        setattr(made, attribute, part)
    return made
