"""Opens a `.keras` archive through Keras 3, up to the source's traceable end."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.formats import KERAS_PROVENANCE, part_file
from cudnn_convert.keras.config.classes import Vouched
from cudnn_convert.model import SERVING, Array, Part, Signature


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in the metadata."""
    from cudnn_convert.read import hdf5, keras_archive

    content = keras_archive.member(path, keras_archive.METADATA)
    record = hdf5.parse_json(path, keras_archive.METADATA, content).get(KERAS_PROVENANCE)
    return None if record is None else runners.parse_provenance(path, json.dumps(record))


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise ReadError if weights lie outside the archive."""
    from cudnn_convert.read import keras_archive

    if not trust:
        for _, file in runners.files_of(path, ".keras"):
            keras_archive.require_whole(file)


def open_parts(path: Path, parts: Sequence[Part], vouched: Vouched) -> list[runners.Runner]:
    """Open each part as a separate model."""
    record = None if path.is_dir() else provenance(path)
    if path.is_dir() or (record and record["options"].get("recurrences_only") is True):
        return [run_recurrence(_load(part_file(path, part.name, ".keras"), vouched), part) for part in parts]
    return [_open(path, part, vouched) for part in parts]


def run_recurrence(model: Any, part: Part) -> Recurrent:
    """Return the runner of a recurrence as a separate model."""
    from cudnn_convert.keras import build_keras3

    build_keras3.require_tensorflow("Keras 3")
    return Recurrent(model, _trace(model), [tensor.name for tensor in model.inputs], part)


def _open(path: Path, part: Part, vouched: Vouched) -> Layers:
    model = _load(path, vouched)
    return as_layers(path, model, [tensor.name for tensor in model.inputs], part)


def _load(path: Path, vouched: Vouched) -> Any:
    import keras as keras_3

    from cudnn_convert.keras import build_keras3
    from cudnn_convert.keras.config import classes, validate

    build_keras3.require_tensorflow("Keras 3")
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    # A layer of tf_keras's own is no foreign one where what Keras 3 lacks of it is brought.
    own = {name: value for name, value in vouched.keras.items() if name in classes.BUILT_IN}
    known = replace(vouched, tf_keras={**vouched.tf_keras, **own})
    foreign = validate.foreign(config, known, keras_3.__version__)
    brought = classes.by_all_names(vouched.keras, config)
    if foreign:
        return build_keras3.load_until(path, foreign, brought)
    # Losses and metrics of its training are nothing that is run.
    safe = not vouched.trust
    return keras_3.models.load_model(path, custom_objects=brought, safe_mode=safe, compile=False)


def interfaces(path: Path, vouched: Vouched) -> list[runners.Interface]:
    """Return the model's inputs and outputs by name."""
    check(path, (), vouched.trust)
    model = _load(path, vouched)
    return [interface(model, [tensor.name for tensor in model.inputs])]


def interface(model: Any, names: Sequence[str]) -> runners.Interface:
    """Return the interface of a Keras model by the `names` of the inputs.

    Outputs without names, as a Sequential has them, and those of one name are `output_0`, `output_1`, ...
    """
    specs = {
        name: runners.TensorSpec(np.dtype(getattr(tensor.dtype, "name", tensor.dtype)), (*tensor.shape,))
        for name, tensor in zip(names, model.inputs, strict=True)
    }
    outputs = [*getattr(model, "output_names", ())]
    if len(set(outputs)) < len(model.outputs):
        outputs = [f"output_{k}" for k in range(len(model.outputs))]
    return runners.Interface(Part(SERVING, Signature.of_names(specs, outputs)), specs)


@dataclass(frozen=True, slots=True)
class Layers:
    """A Keras model called by name on a single batch.

    `call` runs `model` on the inputs in the order of `keys`, the keys of feeds.
    """

    model: Any
    call: Any
    keys: Sequence[str]
    part: Part

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._answer(feeds, self.call)

    def call_eagerly(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Call every layer in Python, for watching the layers' calls."""
        return self._answer(feeds, lambda given: _call(self.model, given))

    def _answer(self, feeds: Mapping[str, Array], call: Callable[[Any], Any]) -> dict[str, Array]:
        import tensorflow as tf

        given, outputs = [tf.constant(feeds[key]) for key in self.keys], self.part.signature.outputs
        answers = tf.nest.flatten(call(given))
        if len(answers) != len(outputs):
            raise ValueError(f"{len(answers)} outputs where {len(outputs)} are compared")
        return {key: np.asarray(value) for key, value in zip(outputs, answers, strict=True)}


@dataclass(frozen=True, slots=True)
class Recurrent(Layers):
    """A recurrence as a model, called with cuDNN's states `[layers*directions, batch, units]`."""

    def _answer(self, feeds: Mapping[str, Array], call: Callable[[Any], Any]) -> dict[str, Array]:
        given = {key: v.swapaxes(0, 1) if key.startswith("initial_") else v for key, v in feeds.items()}
        if "sequence_lengths" in given:
            steps = np.arange(given["inputs"].shape[1])
            given["mask"] = steps < given.pop("sequence_lengths")[:, None]
        answers = Layers._answer(self, given, call)
        return {key: v.swapaxes(0, 1) if key.startswith("state_") else v for key, v in answers.items()}


def _trace(model: Any) -> Any:
    """Return the model as a graph, like the model's `predict`.

    A loop in it is many times as fast as one of Python. A Sequential that was built by its first call takes
    other numbers of steps than that had.
    """
    import tensorflow as tf

    shapes = [[None if size is None else int(size) for size in tensor.shape] for tensor in model.inputs]
    specs = [tf.TensorSpec(shape, tensor.dtype) for shape, tensor in zip(shapes, model.inputs, strict=True)]
    stated = tf.function(lambda given: _call(model, given), input_signature=[specs], autograph=False)
    other = tf.function(lambda given: _call(model, given), reduce_retracing=True, autograph=False)

    def call(given: Sequence[Any]) -> Any:
        fits = all(spec.shape.is_compatible_with(v.shape) for spec, v in zip(specs, given, strict=True))
        return (stated if fits else other)(given)

    return call


def _call(model: Any, given: Sequence[Any]) -> Any:
    """Call a model as run on a CPU, on a machine with a GPU too."""
    from cudnn_convert.private import keras_private

    with keras_private.trace_as_on_cpu():
        return model(keras_private.pack_inputs(model, given), training=False)


def as_layers(path: Path, model: Any, names: Sequence[str], part: Part) -> Layers:
    """Return a Keras model by the `names` of inputs and the order of outputs."""
    keys = {name: key for key, name in runners.pair_inputs(path, part.signature.inputs, names).items()}
    return Layers(model, _trace(model), [keys[name] for name in names], part)


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the weights by path in `model.weights.h5`."""
    from cudnn_convert.read import keras_archive

    for before, file in runners.files_of(path, ".keras"):
        keras_archive.require_whole(file)
        with zipfile.ZipFile(file) as archive:
            weights = io.BytesIO(archive.read("model.weights.h5"))
        yield from ((f"{before}{name}", value) for name, value in datasets(weights))


def datasets(file: Any) -> Iterator[tuple[str, Array]]:
    """Yield the datasets of an HDF5 file, except for an optimizer's datasets."""
    import h5py

    listed: list[tuple[str, Array]] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer_weights"):
            listed.append((name, np.asarray(item)))

    with h5py.File(file) as opened:
        opened.visititems(visit)
    yield from listed
