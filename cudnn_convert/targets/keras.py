"""Writes a `.keras` archive for Keras 3, the same bytes every time.

Keras writes the archive; then the zip is rewritten with a fixed date and without addresses of objects. For a
model with layers of unknown classes Keras writes only the weights, and the translated config is added.

Source: keras v3.15 src/saving/saving_lib.py `_save_model_to_fileobj`.
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.formats import KERAS_PROVENANCE, part_file
from cudnn_convert.keras import build_keras3, restore_keras3, translate
from cudnn_convert.keras.config import classes, layer_tree, values, versions
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.recurrences import named_weights
from cudnn_convert.targets import layers

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_DATE: Final = "1980-01-01@00:00:00"


def prepare(plan: Plan, options: Options) -> Plan:
    """Rewrite the layers for Keras 3, with notes on unrepresentable parts.

    Raises UnsupportedModelError.
    """
    if isinstance(plan, RecurrencesPlan):
        return plan
    path, architecture = plan.model.path, plan.model.layers
    brought = classes.import_user_objects(options.custom_objects).keras
    if architecture.is_keras3:
        layers.refuse_channels_first(path, architecture, keras3=True)
        modern = translate.modern(path, architecture, vouched=brought)
    else:
        plan, rewritten = layers.rewrite(plan, options)
        fallback = layers.choose_other(plan.model, "h5", options)
        modern = translate.modern(path, rewritten.architecture, vouched=brought, fallback=fallback)
        modern = replace(modern, notes=(*rewritten.notes, *modern.notes))
    return replace(plan, target_model=modern, notes=(*plan.notes, *notes(modern)))


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a plan's Keras model, with CPU layers, to the file `path`.

    Of recurrences there is one file each.
    """
    if isinstance(plan, RecurrencesPlan):
        for single in plan.singles:
            recurrence = single.recurrence
            model = named_weights.build_keras_model(
                *(single.name, recurrence.sizes, recurrence.cells, recurrence.dtype),
                states=single.states,
                masked=recurrence.lengths,
            )
            _save_model(model, part_file(path, single.name, ".keras"), provenance)
        return ()
    return write(path, plan.model.path, plan.target_model, provenance=provenance)


def notes(modern: translate.Modern) -> tuple[str, ...]:
    """Return notes on the parts of a rewritten model unrepresentable in Keras 3."""
    lines, model = list(modern.notes), modern.model
    lines += classes.notes(model.config, safe_mode=True)
    newer = versions.newer_names(model.keras_version)
    kept = [
        path
        for path, entry in layer_tree.below(model.config)
        if classes.is_foreign(entry, modern.vouched, newer) and not classes.is_lambda(entry)
    ]
    if kept:
        message = (
            "weights are kept as variables of the class itself, in the order that the source has them in"
        )
        lines.append(f"{', '.join(dict.fromkeys(kept))}: {message}")
    if model.training is not None and not model.optimizer:
        compiled = values.describe_training(model.training)
        lines.append(f"training config dropped, {compiled}: compile the model to train it on")
    scaled = build_keras3.find_scaled(model)
    if scaled:
        message = "gates' weights are 6/5 of the source's, for Keras 3's hard_sigmoid is flatter by as much"
        lines.append(f"{', '.join(scaled)}: {message}")
    return tuple(lines)


def write(path: Path, source: Path, modern: translate.Modern, *, provenance: str) -> tuple[str, ...]:
    """Write a model read from `source`, and return notes on the training state.

    `provenance` is JSON. Layers of unknown classes keep their config. Raises UnsupportedModelError for what
    Keras 3 cannot build.
    """
    model, brought = modern.model, modern.vouched
    if model.is_keras3:
        _save_model(
            restore_keras3.restore_model(source, model, classes.Vouched(keras=brought)), path, provenance
        )
        return ()
    is_whole = not modern.functions and not classes.has_foreign(
        model.config, brought, versions.newer_names(model.keras_version)
    )
    if is_whole:
        built = build_keras3.build_model(source, modern)
        lost = build_keras3.restore_optimizer(built, model)
        _save_model(built, path, provenance)
        return lost
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        saved = Path(folder) / "model.keras"
        brought = {**dict.fromkeys(modern.functions, _never_called), **brought}
        unconnected = build_keras3.build_unconnected(
            source, modern, classes.by_all_names(brought, model.config)
        )
        _save(unconnected, modern.config, saved)
        _rewrite(saved, path, provenance)
    if not model.optimizer:
        return ()
    return (build_keras3.describe_dropped(model.training, "layers of unknown classes are not built"),)


def _save_model(model: Any, path: Path, provenance: str) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        saved = Path(folder) / "model.keras"
        model.save(saved)
        _rewrite(saved, path, provenance)


def _never_called(value: Any) -> Any:
    raise NotImplementedError("the function of a user, who did not bring it")


def _save(built: Any, config: Mapping[str, Any], path: Path) -> None:
    """Write an archive of `config` and the weights of `built`, possibly another model."""
    import keras

    weights = path.with_name("model.weights.h5")
    built.save_weights(weights)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": keras.__version__}))
        archive.writestr("config.json", json.dumps(config))
        archive.write(weights, weights.name)


def _rewrite(saved: Path, path: Path, provenance: str) -> None:
    """Rewrite the archive with a fixed date and an address-free config."""
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as written:
        for name in sorted(archive.namelist()):
            content = archive.read(name)
            if name == "metadata.json":
                metadata = {
                    **json.loads(content),
                    "date_saved": _DATE,
                    KERAS_PROVENANCE: json.loads(provenance),
                }
                content = json.dumps(metadata).encode()
            elif name == "config.json":
                config = layer_tree.map_objects(
                    _number(json.loads(content), {}), values.without_new_arguments
                )
                content = json.dumps(config).encode()
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.external_attr = 0o644 << 16
            written.writestr(info, content)


def _number(value: Any, seen: dict[int, int]) -> Any:
    """Number shared objects in order, in the place of Keras' addresses."""
    if isinstance(value, list):
        return [_number(item, seen) for item in value]
    if isinstance(value, dict):
        return {
            key: seen.setdefault(item, len(seen)) if key == "shared_object_id" else _number(item, seen)
            for key, item in value.items()
        }
    return value
