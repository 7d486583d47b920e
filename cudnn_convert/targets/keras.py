"""Writes a `.keras` archive for Keras 3, the same bytes every time.

Keras writes it; then the zip is written anew, with one date and without the addresses of objects. Of a model
with layers whose code nobody brings Keras writes the weights alone, beside the translated config.
Source: keras v3.15 src/saving/saving_lib.py `_save_model_to_fileobj`.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.formats import KERAS_PROVENANCE
from cudnn_convert.keras import build_keras3, cpu_layers, translate
from cudnn_convert.keras.config import classes, layer_tree
from cudnn_convert.model import Architecture
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_DATE: Final = "1980-01-01@00:00:00"
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def target_notes(plan: Plan, options: Options) -> tuple[str, ...]:
    """What Keras 3 has no place for. Raises UnsupportedModelError with every reason."""
    model, brought = rewrite_plan(plan, options).architecture, _brought(options)
    return notes(plan.model.path, model, custom_objects=brought)


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Writes a plan's Keras model, with layers for the CPU, to the file `path`."""
    brought, model = _brought(options), rewrite_plan(plan, options).architecture
    write(path, plan.model.path, model, provenance=provenance, custom_objects=brought)
    return ()


def rewrite_plan(plan: Plan, options: Options) -> cpu_layers.Rewritten:
    """A plan's Keras model with layers for the CPU."""
    assert plan.model.architecture is not None
    return cpu_layers.rewritten(plan.model.path, plan.model.architecture, slots=options.slots)


def _brought(options: Options) -> Mapping[str, Any]:
    return classes.import_user_objects(options.custom_objects).keras


def notes(source: Path, model: Architecture, *, custom_objects: Mapping[str, Any] = _NONE) -> tuple[str, ...]:
    """What of a rewritten model Keras 3 has no place for. Raises UnsupportedModelError with every reason."""
    found = list(translate.modern(source, model, vouched=custom_objects).notes)
    found += classes.notes(model.config, safe_mode=True)
    kept = [
        path
        for path, entry in layer_tree.below(model.config)
        if classes.is_foreign(entry, custom_objects) and not classes.is_lambda(entry)
    ]
    if kept:
        told = "weights are kept as variables of the class itself, in the order that the source has them in"
        found.append(f"{', '.join(dict.fromkeys(kept))}: {told}")
    if model.training is not None:
        found.append("training config dropped: compile the model to train it on")
    scaled = build_keras3.scaled_layers(model)
    if scaled:
        told = "gates' weights are 6/5 of the source's, for Keras 3's hard_sigmoid is flatter by as much"
        found.append(f"{', '.join(scaled)}: {told}")
    return tuple(found)


def write(
    path: Path,
    source: Path,
    model: Architecture,
    *,
    provenance: str,
    custom_objects: Mapping[str, Any] = _NONE,
) -> None:
    """Writes a rewritten model that was read from `source`; `provenance` is JSON.

    `custom_objects` are the user's own classes, for Keras 3, by name; layers of others stay as they are.
    Raises UnsupportedModelError for what Keras 3 has not, or cannot build.
    """
    found = translate.modern(source, model, vouched=custom_objects)
    is_whole = not found.functions and not classes.has_foreign(model.config, custom_objects)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        saved = Path(folder) / "model.keras"
        if is_whole:
            build_keras3.build_model(source, model, custom_objects=custom_objects).save(saved)
        else:
            brought = {**dict.fromkeys(found.functions, _never_called), **custom_objects}
            made = build_keras3.build_unconnected(source, model, classes.by_all_names(brought, model.config))
            _save(made, found.config, saved)
        _rewrite(saved, path, provenance)


def _never_called(value: Any) -> Any:
    raise NotImplementedError("the function of a user, who did not bring it")


def _save(made: Any, config: Mapping[str, Any], path: Path) -> None:
    """An archive of a config and the weights of a model that need not be that config's."""
    import keras

    weights = path.with_name("model.weights.h5")
    made.save_weights(weights)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": keras.__version__}))
        archive.writestr("config.json", json.dumps(config))
        archive.write(weights, weights.name)


def _rewrite(saved: Path, path: Path, provenance: str) -> None:
    """The archive with one date in it, and no addresses of objects in its config."""
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as made:
        for name in sorted(archive.namelist()):
            content = archive.read(name)
            if name == "metadata.json":
                told = {**json.loads(content), "date_saved": _DATE, KERAS_PROVENANCE: json.loads(provenance)}
                content = json.dumps(told).encode()
            elif name == "config.json":
                content = json.dumps(_numbered(json.loads(content), {})).encode()
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.external_attr = 0o644 << 16
            made.writestr(info, content)


def _numbered(value: Any, seen: dict[int, int]) -> Any:
    """A config whose shared objects are counted; Keras numbers them by their addresses."""
    if isinstance(value, list):
        return [_numbered(one, seen) for one in value]
    if isinstance(value, dict):
        return {
            key: seen.setdefault(one, len(seen)) if key == "shared_object_id" else _numbered(one, seen)
            for key, one in value.items()
        }
    return value
