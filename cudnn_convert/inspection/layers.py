"""The recurrences of a Keras model, by its config and the shapes of its weights; nothing is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cudnn_convert.inspection.value import Found, Held
from cudnn_convert.keras import architecture, layers, objects
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.model import Architecture, Tensor
from cudnn_convert.read import keras_weights
from cudnn_convert.read.keras_names import Layer

Listed = Sequence[tuple[str, Tensor]]
#: What of a layer's config, or of the Bidirectional around it, matters to its outputs.
_SETTINGS: Final = ("go_backwards", "return_sequences", "return_state", "stateful", "time_major")


def recurrences(model: Architecture) -> Iterator[Found]:
    """The LSTM and GRU layers, cuDNN's or not, in the order of the config."""
    tops = architecture.layers(model.config) if architecture.is_model(model.config) else [model.config]
    for top in tops:
        listed = model.weights.get(architecture.name(top), ())
        found, left = [*_recurrent(top)], _triples(listed)
        # A CPU layer's config may have weights that a cuDNN layer saved: what cuDNN layers leave of them.
        ordered = sorted(found, key=lambda one: not layers.is_cudnn(one[1]))
        taken = {path: _taken(left, entry, around) for path, entry, around in ordered}
        for path, entry, around in found:
            held = taken[path] or _plain(path, listed)
            yield _found(path, entry, around, held)


def _recurrent(entry: Entry, path: str = "") -> Iterator[tuple[str, Entry, Entry | None]]:
    """The LSTM and GRU layers in an entry with their paths, and the Bidirectional around each."""
    here = f"{path}/{architecture.name(entry)}".strip("/")
    inside = architecture.inside(entry)
    if entry["class_name"] == "Bidirectional" and inside and _is_recurrent(inside[0]):
        yield here, inside[0], entry
        return
    if _is_recurrent(entry):
        yield here, entry, None
    for below in inside:
        yield from _recurrent(below, here)


def _is_recurrent(entry: Entry) -> bool:
    known = str(entry["class_name"]) in layers.MODES and layers.is_own(entry)
    return known and isinstance(entry["config"], Mapping)


def _triples(listed: Listed) -> list[tuple[str, Layer, tuple[Held, ...]]]:
    """The weights of each cuDNN layer in a list, with the name of its kernel, and as they are shown."""
    names = {id(tensor): name for name, tensor in listed}
    return [
        (name, found, tuple(_held(names[id(tensor)], tensor) for tensor in found.tensors.values()))
        for name, found in keras_weights.triples(listed)
    ]


def _held(name: str, tensor: Tensor) -> Held:
    """A tensor by its place in the file, which its name need not tell."""
    return Held(str(getattr(tensor, "key", name)).strip("/"), tuple(tensor.shape), tensor.dtype.name)


def _taken(
    left: list[tuple[str, Layer, tuple[Held, ...]]], entry: Entry, around: Entry | None
) -> tuple[Held, ...]:
    """The weights of a layer, out of those left: of its sizes, those named after it before others."""
    mode, units = layers.MODES[str(entry["class_name"])], entry["config"].get("units")
    own = f"/{architecture.name(entry if around is None else around)}/"
    fits = [one for one in left if (one[1].mode, one[1].units) == (mode, units)]
    fits = sorted(fits, key=lambda one: own not in f"/{one[0]}")[: 1 if around is None else 2]
    if len(fits) < (1 if around is None else 2):
        return ()
    for one in fits:
        left.remove(one)
    return tuple(held for _, _, tensors in fits for held in tensors)


def _plain(path: str, listed: Listed) -> tuple[Held, ...]:
    """The weights of a CPU layer: all of a top-level layer's, in a model those that are named after it."""
    parts = path.split("/")
    return tuple(
        _held(name, tensor) for name, tensor in listed if len(parts) == 1 or f"/{parts[-1]}/" in f"/{name}"
    )


def _found(path: str, entry: Entry, around: Entry | None, held: tuple[Held, ...]) -> Found:
    config = entry["config"]
    settings = {key: config[key] for key in _SETTINGS if config.get(key)}
    if around is not None:
        settings["merge_mode"] = around["config"].get("merge_mode", "concat")
    time_major = bool(config.get("time_major"))
    return Found(
        name=path,
        op=str(entry["class_name"]),
        function=None,
        needs_gpu=layers.is_cudnn(entry),
        live=True,
        mode=layers.MODES[str(entry["class_name"])].value,
        layers=1,
        directions=1 if around is None else 2,
        units=int(config.get("units", 0)),
        input_size=held[0].shape[0] if held and len(held[0].shape) == 2 else None,
        projection=0,
        dtype=held[0].dtype if held else objects.dtype(config.get("dtype")) or "float32",
        axes=("time", "batch", "input") if time_major else ("batch", "time", "input"),
        lengths=False,
        dropout=0.0,
        raw=(),
        canonical=held,
        copies="canonical" if held else "none",
        settings=settings,
    )
