"""Rewrites the layers of a Keras 2 model for a CPU."""

from dataclasses import replace
from pathlib import Path

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import cpu_layers
from cudnn_convert.keras.config import channels_first, channels_last
from cudnn_convert.model import Architecture, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.source import is_portable


def rewrite(plan: Plan, options: Options) -> tuple[Plan, cpu_layers.Rewritten]:
    """Rewrite a plan's layers, with a note in the plan on turned images.

    Raises UnsupportedModelError.
    """
    keras3, path = options.form.is_keras3, plan.model.path
    architecture, images = channels_last.rewrite(plan.model.layers, keras3=keras3)
    refuse_channels_first(path, architecture, keras3=keras3)
    if images:
        note = f"{', '.join(images)}: images are computed channels last; a Permute turns them"
        plan = replace(plan, notes=(*plan.notes, note))
    return plan, cpu_layers.rewritten(path, architecture, slots=options.slots)


def refuse_channels_first(path: Path, architecture: Architecture, *, keras3: bool) -> None:
    """Raise UnsupportedModelError for layers of channels-first images."""
    if layers := channels_first.find_layers(architecture, keras3=keras3):
        expected = "expected layers that every CPU runs, found images whose channels come first"
        raise UnsupportedModelError(path, [f"{', '.join(layers)}: {expected}; choose --format savedmodel"])


def choose_other(model: Model, form: str, options: Options) -> str:
    """Return `form` as advice, or `savedmodel` if the source already fits `form`."""
    return "savedmodel" if is_portable(model, replace(options, format=form)) else form
