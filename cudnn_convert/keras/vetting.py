"""Which layers of a Keras config may be built: those of tf_keras itself, none that brings code along.

tf_keras (2.21, src/saving) runs what a config says while it builds from it: the byte code of a Lambda
(layers/core/lambda_layer.py), any function of TensorFlow by its name (layers/core/tf_op_layer.py), any module
that a config names (saving/serialization_lib.py). So the config is walked before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cudnn_convert.keras import architecture, calls, layers, plain
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.keras.custom import NOTHING, Vouched
from cudnn_convert.model import Architecture

_OPS: Final = frozenset({"TFOpLambda", "SlicingOpLambda"})
#: Functions of TensorFlow that compute and do nothing else.
_ARITHMETIC: Final = re.compile(
    r"(math|nn|linalg|__operators__)\.\w+|(compat\.v1\.)?(shape|gather|transpose|squeeze|expand_dims)|"
    r"cast|clip_by_value|concat|identity|ones_like|one_hot|pad|repeat|reshape|reverse|slice|split|stack|"
    r"strided_slice|tile|unstack|where|zeros_like"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A layer that is not built. `runs`: building it runs what the file names. `library`: who would."""

    layer: str
    class_name: str
    runs: bool
    library: str = "tf_keras"

    def __str__(self) -> str:
        start = f"layer {self.layer}: expected a layer of Keras itself, found {self.class_name}"
        if self.runs:
            return f"{start}, which runs code that the file names; vouch for the file with --trust"
        own = self.class_name.rpartition(">")[2]
        return f"{start}; bring it for {self.library} with --custom-objects MODULE:{own}"


def refused(layer: Entry, vouched: Vouched = NOTHING) -> Iterator[Refused]:
    """The layers of a model, itself among them, that tf_keras may not build.

    Nothing that the config names is imported or run.
    """
    if layer["class_name"].rpartition(">")[2] in vouched.tf_keras:
        return
    if vouched.trust and layer["class_name"] in layers.CODE:
        return  # what its function is written as is no layer
    found = _refused(layer, vouched)
    if found is not None:
        yield found
        return
    for held in plain.inner(layer):
        yield from refused(held, vouched)


def _refused(layer: Entry, vouched: Vouched) -> Refused | None:
    class_name, label = str(layer["class_name"]), architecture.name(layer) or str(layer["class_name"])
    config = layer["config"] if isinstance(layer["config"], Mapping) else {}
    if class_name in layers.CODE:
        function = str(config.get("function"))
        if vouched.trust or (class_name in _OPS and _ARITHMETIC.fullmatch(function)):
            return None
        return Refused(label, f"{class_name} of {function}" if class_name in _OPS else class_name, runs=True)
    if not layers.is_own(layer):
        return Refused(label, layers.registered(layer), runs=False)
    named = (plain.known(value) for key, value in config.items() if str(key).endswith("activation"))
    known = layers.ACTIVATIONS.union(vouched.tf_keras)
    strange = (name for name in named if isinstance(name, str) and name not in known)
    return next((Refused(label, name, runs=False) for name in strange), None)


def unlisted(model: Entry, brought: Collection[str] = ()) -> str | None:
    """Why nothing is known of a model: its class is none of Keras', and its code alone has its layers.

    None where its layers are listed, or where its class is among those that are `brought`.
    """
    class_name = layers.registered(model)
    if architecture.is_model(model) or class_name.rpartition(">")[2] in brought:
        return None
    found = f"found {class_name}, whose layers its code alone knows"
    cure = "save it as a SavedModel where it loads, and convert that"
    return f"model: expected a Sequential or functional model, {found}; {cure}"


def foreign(model: Entry, vouched: Vouched = NOTHING) -> list[str]:
    """The top-level layers of a model that tf_keras may not build."""
    entries = architecture.layers(model) if architecture.is_model(model) else []
    return [architecture.name(entry) for entry in entries if any(True for _ in refused(entry, vouched))]


def own_part(model: Architecture, vouched: Vouched = NOTHING) -> Architecture | None:
    """A model up to the first of its foreign layers, None where nothing but inputs stands before it."""
    others = foreign(model.config, vouched)
    config = calls.before(model.config, others) if others else None
    if config is None:
        return None
    kept = {architecture.name(entry) for entry in architecture.layers(config)}
    weights = {name: listed for name, listed in model.weights.items() if name in kept}
    return replace(model, config=config, weights=weights)


def notes(model: Entry, vouched: Vouched = NOTHING) -> Iterator[str]:
    """What the loader of a model with layers of others needs, and how far the model was verified."""
    found, left = [*refused(model)], [*refused(model, vouched)]
    custom = dict.fromkeys(one.class_name for one in found if not one.runs)
    if found:
        listed = ", ".join(f"{one.layer} ({one.class_name})" for one in found)
        yield f"layers that Keras does not bring stay as they are: {listed}"
    if custom:
        yield f"loading needs custom_objects with {', '.join(custom)}"
    if left:
        first = ", ".join(one.layer for one in left)
        yield f"only what stands before the first of these is verified: {first}"


def is_plain(value: Any) -> bool:
    """Whether a config names no module but Keras' own: tf_keras imports what the newer writing names."""
    return not modules(value)


def modules(value: Any) -> list[str]:
    """The classes and functions of other modules than Keras' own that a config names."""
    if isinstance(value, Mapping):
        module = str(value.get("module") or "keras").partition(".")[0]
        own = "class_name" not in value or module in ("keras", "tf_keras", "builtins")
        named = value.get("config") if value.get("class_name") == "function" else value.get("class_name")
        inner = [name for found in value.values() for name in modules(found)]
        return [*dict.fromkeys([*([] if own else [str(named).rpartition(">")[2]]), *inner])]
    return [name for found in value for name in modules(found)] if isinstance(value, list) else []
