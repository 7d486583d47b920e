"""A Keras model with readable layer outputs, where any layer output can be replaced.

Every layer runs; what it gives is noted, and what is fed goes on in its place, with the layer's own mask.
A layer gives one of the tensors that the source computes in the scope of its name: which, its values tell.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import h5py
import numpy as np
import tensorflow as tf

from cudnn_convert.artifacts.keras import Layers
from cudnn_convert.artifacts.runners import OpenArtifact
from cudnn_convert.formats import CUTS_KEY, FORMATS
from cudnn_convert.model import Array, Part
from cudnn_convert.private import tf_private
from cudnn_convert.verification.ops.models import StoredCuts
from cudnn_convert.verification.pieces.keras import reset_states, set_attributes
from cudnn_convert.verification.pieces.piece_inputs import Artifact

#: What the name of an output begins with that no layer gives.
_OUTPUT: Final = "output:"
_METADATA: Final = "metadata.json"


def open_model(artifact: Artifact, part: Part, feed: Mapping[str, Array]) -> KerasTensorFile:
    """Return the model of a part."""
    nodes = [str(node.name) for node in artifact.plan.whole.node]
    return KerasTensorFile(artifact, nodes, {key: feed[name] for key, name in part.signature.inputs.items()})


class KerasTensorFile:
    """The layer outputs of a Keras model, by layer, call and place.

    The model runs as it is: no file is made to feed other tensors. `nodes` are the names of the source's
    nodes, each behind those that it reads; `feed` is any by key.
    """

    names_are_kept: ClassVar = True

    def __init__(self, artifact: Artifact, nodes: Sequence[str], feed: Mapping[str, Array]) -> None:
        assert isinstance(artifact.answer, OpenArtifact)
        ((_, runner),) = artifact.answer.runners
        assert isinstance(runner, Layers)
        self._runner = runner
        self._path, self._is_keras3 = artifact.path, FORMATS[artifact.form].is_keras3
        self._layers = [(name, layer, _compile(layer)) for name, layer in _list_layers(runner.model)]
        self._nodes = nodes
        noted, answers = _Notes(self._runner, self._layers).note(feed, {})
        self.tensors = [*noted]
        self.outputs = {key: _find_last(noted, value) or _OUTPUT + key for key, value in answers.items()}
        self.tensors += [name for name in self.outputs.values() if name not in noted]

    def list_namesakes(self, name: str) -> list[str]:
        """Return the source's tensors in the scope of a layer, the last first."""
        layer = name.partition(":")[0].split("/")[-1]
        scope = re.compile(rf"(^|/){re.escape(layer)}(_\d+)?(/|$)")
        return [f"{node}:0" for node in reversed(self._nodes) if scope.search(node)]

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[None, bool]:
        """Return a pair of unknown leaves and False.

        Which layers a layer reads is not known, and the source tells of recurrences.
        """
        del sink, cuts
        return None, False

    def open(self, names: Sequence[str], cuts: Collection[str]) -> _Notes:
        """Return the model with all noted layer outputs."""
        del names, cuts
        return _Notes(self._runner, self._layers)

    def read_cuts(self) -> StoredCuts | None:
        """Read the statement about shared tensors stored in the file, if any."""
        return StoredCuts.parse((_read_metadata if self._is_keras3 else _read_dataset)(self._path))

    def write_cuts(self, cuts: StoredCuts) -> None:
        """Store the map from layer outputs to the source's tensors in the file."""
        (_write_metadata if self._is_keras3 else _write_dataset)(self._path, cuts.format())


def _read_metadata(path: Path) -> str | None:
    """Return a text in the metadata of a `.keras` file, if present."""
    with zipfile.ZipFile(path) as archive:
        return cast("str | None", json.loads(archive.read(_METADATA)).get(CUTS_KEY))


def _write_metadata(path: Path, text: str) -> None:
    """Put a text in the metadata of a `.keras` file.

    Keras ignores the keys that it does not know.
    """
    with zipfile.ZipFile(path) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in members.items():
            more = {CUTS_KEY: text} if info.filename == _METADATA else None
            archive.writestr(info, content if more is None else json.dumps(json.loads(content) | more))


def _read_dataset(path: Path) -> bytes | None:
    """Return a text in a dataset of an HDF5 file, if present."""
    with h5py.File(path) as file:
        return bytes(file[CUTS_KEY][()]) if CUTS_KEY in file else None


def _write_dataset(path: Path, text: str) -> None:
    """Put a text in a dataset of an HDF5 file.

    An attribute would hold 64 KiB at most.
    """
    with h5py.File(path, "a") as file:
        file[CUTS_KEY] = np.frombuffer(text.encode(), np.uint8)


def _find_last(noted: Mapping[str, Array], value: Array) -> str:
    """Return the last tensor with the value of an output, or ""."""
    same = [name for name, other in noted.items() if np.array_equal(other, value, equal_nan=True)]
    return same[-1] if same else ""


def _compile(layer: Any) -> Any:
    """Return the `call` of a layer, compiled to a graph for a loop over steps.

    A compiled loop is many times as fast.
    """
    loops = any(hasattr(layer, name) for name in ("cell", "layer", "forward_layer"))
    return tf.function(layer.call, autograph=False) if loops else layer.call


def _list_layers(layer: Any, around: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the layers of a model and of nested models, by path."""
    for inner in getattr(layer, "operations", None) or layer.layers:
        name = f"{around}{inner.name}"
        if hasattr(inner, "layers") and not hasattr(inner, "forward_layer") and not hasattr(inner, "layer"):
            yield from _list_layers(inner, f"{name}/")
        elif type(inner).__name__ != "InputLayer":
            yield name, inner


class _Notes:
    """A model with noted layer outputs, where fed values replace layer outputs.

    `layers` are each layer's name, the layer, and its `call`, perhaps compiled.
    """

    def __init__(self, runner: Layers, layers: Sequence[tuple[str, Any, Any]]) -> None:
        self._runner, self._layers = runner, layers
        self._noted: dict[str, Array] = {}
        self._fed: Mapping[str, Array] = {}

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """Compute tensors from given values of inputs by key and of cuts."""
        noted, answers = self.note(feed, cuts)
        values = noted | {_OUTPUT + key: value for key, value in answers.items()}
        return [values[name] for name in names]

    def note(
        self, feed: Mapping[str, Array], cuts: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return all layer outputs by name, and the outputs by key."""
        self._noted, self._fed = {}, cuts
        with ExitStack() as stack:
            stack.enter_context(tf_private.eager_mode())  # the judge's own graph stands open
            for name, layer, call in self._layers:
                if getattr(layer, "stateful", False) and hasattr(layer, "states"):
                    reset_states(layer)
                stack.enter_context(set_attributes(layer, {"call": partial(self._call, name, call, [0])}))
            answers = self._runner.call_eagerly(feed)
        return self._noted, answers

    def _call(
        self, name: str, before: Callable[..., Any], calls: list[int], *given: Any, **named: Any
    ) -> Any:
        answer = before(*given, **named)
        values = []
        for position, value in enumerate(tf.nest.flatten(answer)):
            own = f"{name}:{calls[0]}:{position}"
            self._noted[own] = np.asarray(value)
            fed = self._fed.get(own)
            values.append(value if fed is None else _in_place_of(value, fed))
        calls[0] += 1
        return tf.nest.pack_sequence_as(answer, values)


def _in_place_of(value: Any, fed: Array) -> Any:
    """Return the fed value with the mask of the replaced layer output.

    Masking of tf_keras stores a mask like this.
    """
    result = tf.constant(fed, value.dtype)
    mask = getattr(value, "_keras_mask", None)
    if mask is not None:
        result._keras_mask = mask
    return result
