"""Which kinds of sources each option means something for, where it does not for all.

Options of a single conversion that mean nothing are refused. Those that many models share are left out with a
note, for they are meant for the others. An option that asks for another artifact is none of these.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.model import KerasFile, Model
from cudnn_convert.options import Options
from cudnn_convert.read import saved_model
from cudnn_convert.text import flag_of


def _is_saved_model(model: Model) -> bool:
    return model.kind == saved_model.KIND


def _has_layers(model: Model) -> bool:
    return model.architecture is not None


def _has_no_layers(model: Model) -> bool:
    return model.architecture is None


def _is_graphless(model: Model) -> bool:
    return model.graph is None and model.architecture is None


def _is_without_model(model: Model) -> bool:
    """Whether a source is weights whose layers or graph another file may give."""
    return _is_graphless(model) and model.keras in (None, KerasFile.HDF5)


#: By option, whether it means something for a model that was read, and the words for such models.
_MEANT_FOR: Final[Mapping[str, tuple[Callable[[Model], bool], str]]] = MappingProxyType(
    {
        "tag": (_is_saved_model, "SavedModels"),
        "architecture": (_is_without_model, "weights of Keras and checkpoints without .meta"),
        "custom_objects": (_has_layers, "Keras models"),
        "recurrences_only": (_has_no_layers, "sources without Keras layers"),
        **dict.fromkeys(
            ("mode", "layers", "units", "directions", "layout", "lengths"),
            (_is_graphless, "sources without a graph"),
        ),
    }
)


def applies(name: str, model: Model) -> bool:
    """Whether an option means something for the kind of a model."""
    return name not in _MEANT_FOR or _MEANT_FOR[name][0](model)


def leave_out(model: Model, options: Options, shared: Collection[str]) -> tuple[Options, tuple[str, ...]]:
    """Options without those `shared` ones that mean nothing for a model, and a note on each."""
    defaults: dict[str, Any] = {}
    notes = []
    for option in fields(Options):
        name, is_given = option.name, getattr(options, option.name) not in (option.default, [])
        if name in shared and is_given and not applies(name, model):
            defaults[name] = option.default
            what = f"it is of {_MEANT_FOR[name][1]}, and this is a {model.kind}"
            notes.append(f"{flag_of(name)} is passed over: {what}")
    return replace(options, **defaults) if defaults else options, tuple(notes)
