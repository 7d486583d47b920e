"""Options with meaning for some kinds of sources only, and the kinds for each.

Options of a single conversion that mean nothing are refused. Those that many models share are left out with a
note, for they are meant for the others. An option that asks for another artifact is none of these.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.model import TENSORFLOW_DIALECTS, Model
from cudnn_convert.options import Options
from cudnn_convert.read import saved_model
from cudnn_convert.text import flag_of


def _is_saved_model(model: Model) -> bool:
    return model.kind == saved_model.KIND


def _has_no_layers(model: Model) -> bool:
    return not model.has_layers


def _is_without_model(model: Model) -> bool:
    """Return True if a source is weights to which another file may give layers or a graph."""
    return bool(model.graphless.cure)


#: By option, whether it means something for a model that was read, and the words for such models.
_MEANT_FOR: Final[Mapping[str, tuple[Callable[[Model], bool], str]]] = MappingProxyType(
    {
        "tag": (_is_saved_model, "SavedModels"),
        "architecture": (_is_without_model, "weights of Keras and checkpoints without .meta"),
        "custom_objects": (attrgetter("has_layers"), "Keras models"),
        "recurrences_only": (_has_no_layers, "sources without Keras layers"),
        **dict.fromkeys(
            ("mode", "layers", "units", "directions", "layout", "lengths"),
            (attrgetter("is_graphless"), "sources without a graph"),
        ),
    }
)


def applies(name: str, model: Model) -> bool:
    """Return True if an option has a meaning for the kind of a model."""
    return name not in _MEANT_FOR or _MEANT_FOR[name][0](model)


def leave_out(model: Model, options: Options, shared: Collection[str]) -> tuple[Options, tuple[str, ...]]:
    """Drop `shared` options meant for different kinds of models, with a note on each.

    Such options mean nothing for the kind of `model`.
    """
    defaults: dict[str, Any] = {}
    notes = []
    for option in fields(Options):
        name, is_given = option.name, getattr(options, option.name) not in (option.default, [])
        if name in shared and is_given and not applies(name, model):
            defaults[name] = option.default
            what = f"it is for {_MEANT_FOR[name][1]}, and this is a {model.kind}"
            notes.append(f"{flag_of(name)} is ignored: {what}")
    return replace(options, **defaults) if defaults else options, tuple(notes)


def check_options(model: Model, options: Options) -> None:
    """Check options against the kind of a model.

    Raises UsageError for one that means nothing, UnsupportedModelError for layers of unknown classes.
    """
    actual = f"found {model.kind} {model.path}"
    if options.custom_objects and not applies("custom_objects", model):
        raise UsageError(f"--custom-objects: expected a Keras model, {actual}")
    if model.has_layers:
        from cudnn_convert.keras.config import validate

        reason = validate.describe_unknown_model(model.layers.config, options.custom_class_names)
        if reason:
            raise UnsupportedModelError(model.path, [reason])
    _check_convention(model, options, actual)
    if options.decode and model.is_graphless:
        expected = f"--decode {options.decode}: expected a model with its graph"
        cure = "give the source that it was trained in, or convert without --decode"
        raise UsageError(f"{expected}, {actual}; {cure}")
    if options.states and not (Keeps.STATES in options.form.keeps or model.is_graphless):
        formats = ", ".join(name for name, form in FORMATS.items() if Keeps.STATES in form.keeps)
        raise UsageError(f"--states: expected --format {formats}, found {options.format}")


def _check_convention(model: Model, options: Options, actual: str) -> None:
    """Raise UsageError for a convention of weights of another framework than TensorFlow."""
    dialects = {parameters.dialect for parameters in model.canonical}
    if not dialects or model.blobs or dialects & TENSORFLOW_DIALECTS:
        return
    given = {"--gate-order": options.gate_order != "tf", "--forget-bias": options.forget_bias != 0}
    for flag in (flag for flag, is_given in given.items() if is_given):
        expected, cure = "weights of TensorFlow or a parameter blob", "leave it out, for the names say both"
        raise UsageError(f"{flag}: expected {expected}, {actual}; {cure}")
