"""Rewrites layers of channels-first images to channels last, a layout for every CPU.

A layer that not every CPU runs gets its images channels last, and gives them so. Layers behind it that can
go on channels last do, such as pools and normalisations; all others get what they had, from a `Permute`.
Kernels have one form for both layouts, so that weights stay as they are.
Source: tf_keras v2.21.0 src/layers/convolutional/base_conv.py `build`, normalization/batch_normalization.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cudnn_convert.keras.config import channels_first, classes, layer_tree, values
from cudnn_convert.keras.config.layer_tree import Entry, Reference
from cudnn_convert.model import Architecture

#: Layers that compute each number by itself.
_ELEMENTWISE: Final = frozenset({"Activation", "ReLU", "LeakyReLU", "ELU", "ThresholdedReLU", "Dropout"})
#: Functions of an Activation that do.
_FUNCTIONS: Final = frozenset(
    "linear relu relu6 elu selu tanh sigmoid hard_sigmoid softplus softsign swish gelu exponential".split()
)
#: How layers begin whose `data_format` says where their channels are, and that give images again.
_OF_IMAGES: Final = tuple(
    "Conv SeparableConv DepthwiseConv MaxPool AveragePool AvgPool ZeroPadding Cropping UpSampling "
    "SpatialDropout".split()
)
#: Axes before the channels where a time stands behind the batch.
_IN_TIME: Final = 2


def rewrite(model: Architecture, *, keras3: bool) -> tuple[Architecture, list[str]]:
    """Rewrite a model's channels-first layers to run on every CPU.

    They are the layers that Keras 3 with `keras3`, else tf_keras, does not run on every CPU. Returns the
    model and the paths of the layers that compute channels last. A layer stays as it is where its model gives
    its images out, or where it is in a wrapper other than TimeDistributed.
    """
    rewritten: list[str] = []

    def change(entry: Entry) -> Entry:
        if not layer_tree.is_model(entry):
            return entry
        if entry["class_name"] == "Sequential":
            result, names = _rewrite_sequential(entry, keras3=keras3)
        else:
            result, names = _Functional(entry, keras3).rewrite()
        rewritten.extend(names)
        return result

    config = layer_tree.map_entries(model.config, change)
    return replace(model, config=config), rewritten


@dataclass(frozen=True, slots=True)
class _Images:
    """The axes of images, and the number of axes before the channels.

    Before the channels stand the batch, and perhaps a time.
    """

    rank: int
    lead: int

    def dims(self, *, to_last: bool) -> list[int]:
        """Return the axes of a Permute for moving the channels, batch excluded."""
        before, places = [*range(1, self.lead)], [*range(self.lead, self.rank)]
        return [*before, *(places[1:] + places[:1] if to_last else places[-1:] + places[:-1])]


@dataclass(frozen=True, slots=True)
class _ChannelsLast:
    """A layer able to compute channels last: the changed entry, and the images.

    `images` are None for a layer that takes any. `lead` alone is known of a normalisation.
    """

    entry: Entry
    images: _Images | None = None
    lead: int | None = None

    def goes_on(self, images: _Images) -> bool:
        """Return True if the layer can take `images` from the layer before."""
        return self.lead in (None, images.lead) and self.images in (None, images)


def _form(entry: Entry) -> _ChannelsLast | None:
    """Return the form of a layer channels last, where possible.

    Returns None for a layer that cannot compute so.
    """
    config = entry["config"]
    if not isinstance(config, Mapping) or not classes.is_keras_class(entry):
        return None
    kind = str(entry["class_name"])
    if kind == "TimeDistributed":
        return _form_in_time(entry, config)
    if kind in _ELEMENTWISE:
        is_plain = kind != "Activation" or config.get("activation") in _FUNCTIONS
        return _ChannelsLast(entry) if is_plain and not config.get("noise_shape") else None
    if kind.startswith("BatchNormalization"):
        return _form_of_normalization(entry, config)
    return _form_of_images(entry, config, kind)


def _form_in_time(entry: Entry, config: Mapping[str, Any]) -> _ChannelsLast | None:
    inner = _form(config["layer"])
    if inner is None or inner.lead == _IN_TIME:
        return None
    changed = _change(entry, layer=inner.entry)
    images = None if inner.images is None else _Images(inner.images.rank + 1, _IN_TIME)
    return _ChannelsLast(changed, images, inner.lead and _IN_TIME)


def _form_of_normalization(entry: Entry, config: Mapping[str, Any]) -> _ChannelsLast | None:
    axis = config.get("axis")
    last: Any = [-1] if isinstance(axis, Sequence) else -1
    return _ChannelsLast(_change(entry, axis=last), lead=1) if axis in (1, [1]) else None


def _form_of_images(entry: Entry, config: Mapping[str, Any], kind: str) -> _ChannelsLast | None:
    digits = [int(letter) for letter in kind if letter.isdigit()]
    if config.get("data_format") != "channels_first" or not kind.startswith(_OF_IMAGES) or not digits:
        return None
    lead = _IN_TIME if kind.startswith("ConvLSTM") else 1
    if lead == _IN_TIME and not config.get("return_sequences"):
        return None
    changed = _change(entry, data_format="channels_last")
    return _ChannelsLast(changed, _Images(lead + digits[0] + 1, lead), lead)


def _change(entry: Entry, **settings: Any) -> Entry:
    """Return a layer with new settings, and drop Keras 3's outdated build shape."""
    kept = {key: value for key, value in entry.items() if key != "build_config"}
    return {**kept, "config": {**entry["config"], **settings}}


def _permute(entry: Entry, name: str, images: _Images, *, to_last: bool) -> Entry:
    """Return a Permute layer to move channels last, or back, in the form of `entry`."""
    config: dict[str, Any] = {"name": name, "trainable": False, "dims": images.dims(to_last=to_last)}
    dtype = entry["config"].get("dtype")
    config |= {"dtype": dtype} if dtype else {}
    return {"class_name": "Permute", **_list_registration(entry), "config": config}


def _list_registration(entry: Entry) -> dict[str, Any]:
    """Return the keys beside a class in the form of newer files."""
    return {"module": "keras.layers", "registered_name": None} if "module" in entry else {}


def _rewrite_sequential(model: Entry, *, keras3: bool) -> tuple[Entry, list[str]]:
    """Return a row of layers, and the names of the layers with channels-last images."""
    entries = layer_tree.layer_entries(model)
    needed = [channels_first.needs_rewriting(each, keras3=keras3) for each in entries]
    forms = [_form(entry) for entry in entries]
    lost = any(must and form is None for must, form in zip(needed, forms, strict=True))
    if lost or not any(needed):
        return model, []
    changed, names = _list_inputs(model, entries[0]), list[str]()
    images: _Images | None = None

    def turn_back() -> None:
        if images is not None:
            changed.append(_permute(entries[-1], f"{names[-1]}_channels_first", images, to_last=False))

    for entry, form, must in zip(entries, forms, needed, strict=True):
        if images is not None and (form is None or not form.goes_on(images)):
            turn_back()
            images = None
        if form is None or not (must or images is not None):
            changed.append(entry)
            continue
        name = layer_tree.layer_name(entry)
        if images is None:
            assert form.images is not None
            images = form.images
            changed.append(_permute(entry, f"{name}_channels_last", images, to_last=True))
        changed.append(_without_shape(form.entry))
        names.append(name)
    turn_back()
    return layer_tree.with_layers(model, changed), names


def _list_inputs(model: Entry, first: Entry) -> list[Entry]:
    """Return a named InputLayer where the first layer has the input's shape instead."""
    shape, dtype = values.input_of(model)
    if first["class_name"] == "InputLayer" or shape is None:
        return []
    key = "batch_shape" if "module" in first else "batch_input_shape"
    name = f"{layer_tree.layer_name(first)}_input"
    config = {key: shape, "dtype": dtype, "sparse": False, "name": name}
    return [{"class_name": "InputLayer", **_list_registration(first), "config": config}]


def _without_shape(entry: Entry) -> Entry:
    """Return a layer stripped of the model's input shape."""
    given = ("batch_input_shape", "batch_shape", "input_shape")
    return {**entry, "config": {key: value for key, value in entry["config"].items() if key not in given}}


@dataclass(slots=True)
class _Functional:
    """The layers of a functional model, connected by calls.

    `last` maps a tensor to that of the same images channels last, `first` the other way round: to itself
    until a layer asks for it.
    """

    model: Entry
    keras3: bool
    last: dict[Reference, tuple[Reference, _Images]] = field(default_factory=dict)
    first: dict[Reference, Reference] = field(default_factory=dict)
    added: list[Entry] = field(default_factory=list)

    def rewrite(self) -> tuple[Entry, list[str]]:
        """Return the model, and the names of the layers with channels-last images."""
        entries = layer_tree.layer_entries(self.model)
        outputs = {end[0] for end in layer_tree.references(self.model["config"].get("output_layers"))}
        needed = {
            layer_tree.layer_name(each)
            for each in entries
            if channels_first.needs_rewriting(each, keras3=self.keras3)
        }
        forms = {
            name: form
            for each in entries
            if (name := layer_tree.layer_name(each)) not in outputs
            and (form := _form(each)) is not None
            and all(len([*layer_tree.references(node)]) == 1 for node in each.get("inbound_nodes") or [])
        }
        if not needed or not needed <= forms.keys():
            return self.model, []
        changed: list[Entry] = []
        names: list[str] = []
        for entry in entries:
            name = layer_tree.layer_name(entry)
            form = forms.get(name)
            if form is not None and name in needed and not self._can_turn(entry, form):
                return self.model, []
            if form is not None and (name in needed or self._goes_on(entry, form)):
                result = self._as_last(entry, form)
                names.append(name)
            else:
                nodes = [self._as_first(node, entry) for node in entry.get("inbound_nodes") or []]
                result = {**entry, "inbound_nodes": nodes}
            changed += [*self.added, result]
            self.added.clear()
        return layer_tree.with_layers(self.model, changed), names

    def _goes_on(self, entry: Entry, form: _ChannelsLast) -> bool:
        """Return True if all images in a layer's calls exist channels last."""
        given = [*layer_tree.references(entry.get("inbound_nodes"))]
        return bool(given) and all(each in self.last and form.goes_on(self.last[each][1]) for each in given)

    def _can_turn(self, entry: Entry, form: _ChannelsLast) -> bool:
        """Return True if existing channels-last forms of a layer's images fit the layer."""
        given = layer_tree.references(entry["inbound_nodes"])
        return all(each not in self.last or form.goes_on(self.last[each][1]) for each in given)

    def _as_last(self, entry: Entry, form: _ChannelsLast) -> Entry:
        """Return a layer with inputs and outputs channels last."""
        nodes = []
        for number, node in enumerate(entry["inbound_nodes"]):
            (given,) = layer_tree.references(node)
            if given not in self.last:
                assert form.images is not None
                permute = _permute(entry, f"{given[0]}_channels_last", form.images, to_last=True)
                self.last[given] = self._add(permute, given, node), form.images
            nodes.append(layer_tree.change_references(node, lambda reference: self.last[reference][0]))
            answer = (layer_tree.layer_name(entry), number, 0)
            self.last[answer] = answer, self.last[given][1]
            self.first[answer] = answer
        return {**form.entry, "inbound_nodes": nodes}

    def _as_first(self, node: Any, entry: Entry) -> Any:
        """Return a call with images channels first, as in the original model."""

        def turn_back(reference: Reference) -> Reference:
            if self.first.get(reference) == reference:
                images = self.last[reference][1]
                permute = _permute(entry, f"{reference[0]}_channels_first", images, to_last=False)
                self.first[reference] = self._add(permute, reference, node)
            return self.first.get(reference, reference)

        return layer_tree.change_references(node, turn_back)

    def _add(self, permute: Entry, given: Reference, node: Any) -> Reference:
        """Add a Permute of a tensor, called in the form of `node`; return the result."""
        name = layer_tree.layer_name(permute)
        name = name if given[1:] == (0, 0) else f"{name}_{given[1]}_{given[2]}"
        call = layer_tree.call_with(node, given)
        named = {**permute, "config": {**permute["config"], "name": name}}
        self.added.append({**named, "name": name, "inbound_nodes": [call]})
        return name, 0, 0
