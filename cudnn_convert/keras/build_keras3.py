"""Builds a Keras 3 model from a translated config, Keras 2 weights and optimizer state.

Keras builds the layers, for its file holds what only built layers have, such as seeds and shapes. Nothing but
Keras's own classes and those that the user brings is built. Where a config leaves a shape open, the weights
give it.
Source: keras v3.15 src/saving/serialization_lib.py, src/legacy/saving/legacy_h5_format.py `_legacy_weights`.

A model with layers of unknown code is built in pieces: to save its weights, never to be called. The output of
such a layer is not known, so that nothing behind it can be connected. Keras builds each of the others alone,
in a shape that its weights give; a layer of no known class has its weights as stored.
Source: keras v3.15 src/saving/saving_lib.py `_save_state`, `_save_container_state`: weights stand under the
attributes of layers, and in a model under `layers/<class in snake case>`, numbered.

`load_until` loads the part of a Keras 3 archive before certain layers, as Keras 3 loads the whole.
Source: keras v3.15 src/saving/saving_lib.py `H5IOStore.make`, which leaves each layer's name in its group;
src/models/functional.py `functional_from_config`.

An optimizer keeps kinds of arrays, Adam momenta and velocities, one of each for every trained weight. Files
list them one kind after the other, or all kinds of one weight side by side, and some begin with scalars:
a counter of steps, a learning rate. Keras 3 has the same kinds in the same order.
Source: keras 2.2.4 optimizers.py `get_updates`, whose `self.weights` a file lists; tensorflow v1.15.0
python/keras/optimizer_v2, `_create_slots`; tf_keras v2.21.0 and keras v3.15 src/optimizers, `build`.
"""

import copy
import inspect
import io
import json
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import MissingDependencyError, UnsupportedModelError
from cudnn_convert.keras import translate
from cudnn_convert.keras.config import classes, layer_tree, values, versions
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Mode, Tensor
from cudnn_convert.private import keras_private
from cudnn_convert.text import first_line
from cudnn_convert.weights import layouts


def require_tensorflow(where: object) -> None:
    """Raise MissingDependencyError if Keras 3 runs on another backend in the process."""
    import keras

    if keras.backend.backend() != "tensorflow":
        actual = f"KERAS_BACKEND={keras.backend.backend()}"
        reason = f"expected KERAS_BACKEND=tensorflow, found {actual}; set it in the environment"
        raise MissingDependencyError(f"{where}: {reason}")


def first(model: Entry) -> Sequence[int | None]:
    """Return the shape of a model's first input, batch included.

    It is `[None]` where unknown.
    """
    for entry in layer_tree.layer_entries(model)[:1]:
        if model["class_name"] == "Sequential" and entry["class_name"] != "InputLayer":
            return values.input_of(model)[0] or [None]
        config = entry["config"]
        return values.shape(config.get("batch_input_shape", config.get("batch_shape"))) or [None]
    return [None]


def candidate_shapes(weights: Sequence[tuple[str, Tensor]], batch: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield arguments for `build` of a layer with the given weights, likely arguments first.

    One shape for most layers, a list of two or two shapes for those of attention. The last size of a shape is
    one of the weights' own; so are the others where a layer wants to know them.
    """
    kept = [tensor.shape for _, tensor in weights]
    sizes = dict.fromkeys(size for shape in kept for size in (*shape[-2:-1], *shape))
    shapes = [
        (batch, *[fill] * (rank - 2), size)
        for rank in (3, 2, 4, 5)
        for size in sizes or (1,)
        for fill in (None, size)
    ]
    shapes += [(batch, *shape) for shape in kept[:1]]
    yield from ((shape,) for shape in shapes)
    yield from (([shape, shape],) for shape in shapes)
    yield from ((shape, shape) for shape in shapes)


Listed = Sequence[tuple[str, Tensor]]
#: The attribute of a wrapper of Keras 3 that holds the one layer in it.
_HOLDS: Final = {"TimeDistributed": "layer", "RNN": "cell"}


def build_unconnected(source: Path, modern: translate.Modern, brought: Mapping[str, Any]) -> Any:
    """Build a `keras.Model` of a translated model's layers, for saving weights only.

    `brought` are classes and functions by name. Raises UnsupportedModelError for a layer that Keras 3 cannot
    build, and where weights of several layers stand together without their layers' names.
    """
    model = modern.model
    newer = versions.newer_names(model.keras_version)
    pieces = _ModelBuilder(source, brought, newer, first(model.config), modern.fallback)
    unconnected = pieces.model(model.config, model.weights)
    settle_seeds(unconnected)
    return unconnected


@dataclass(frozen=True, slots=True)
class _ModelBuilder:
    """The builder of unconnected layers with weights for a translated model.

    `given`: the shape of the model's first input; `fallback`: the format to advise.
    """

    source: Path
    brought: Mapping[str, Any]
    newer: Collection[str]
    given: Sequence[int | None]
    fallback: str

    def model(self, entry: Entry, weights: Mapping[str, Listed]) -> Any:
        import keras

        kind = "Sequential" if entry["class_name"] == "Sequential" else "Functional"
        built = type(kind, (keras.Sequential,), {})(name=layer_tree.layer_name(entry) or None)
        for below in layer_tree.layer_entries(entry):
            if below["class_name"] != "InputLayer":
                piece = self.layer(below, weights.get(layer_tree.layer_name(below), ()))
                built.add(piece, rebuild=False)
        built.built = True  # as far as saving its weights goes
        return built

    def layer(self, entry: Entry, listed: Listed) -> Any:
        """Build a layer with the listed weights, including the weights of inner layers."""
        kind = str(entry["class_name"])
        if classes.is_foreign(entry, self.brought, self.newer):
            return _stand_in(entry, listed)
        if kind == "TimeDistributed" and translate.each_step(entry) is None and None in self.given[1:]:
            message = "expected a fixed number of steps for the TimeDistributed of Keras 3, found an open one"
            raise self._refuse(entry, message)
        if not classes.has_foreign(entry, self.brought, self.newer):
            return self._own(entry, listed)
        if layer_tree.is_model(entry):
            return self.model(entry, self._share(entry, listed))
        if kind == "Bidirectional":
            parts = self._ways(entry, listed)
        elif kind in _HOLDS:
            parts = {_HOLDS[kind]: self.layer(layer_tree.inside(entry)[0], listed)}
        else:
            message = (
                f"expected only layers of Keras itself in a {kind} for Keras 3, found one of another class"
            )
            raise self._refuse(entry, message, ", or bring it with --custom-objects")
        return _stand_in(entry, (), **parts)

    def _own(self, entry: Entry, listed: Listed) -> Any:
        """Build a layer of Keras for the first shape fitting the listed weights."""
        log = translate.Log(self.brought, self.newer, self.fallback)
        config = translate.translate_entry(entry, layer_tree.layer_name(entry), log)
        if layer_tree.is_model(entry):
            layer = deserialize(self.source, config, self.brought, self.fallback)
            _raise_for(self.source, _list_open_steps(layer), self.fallback)
            if fill_variables(layer, entry, listed):
                return layer
        elif (shaped := self._build_layer(entry, config, listed)) is not None:
            return shaped
        stored = ", ".join(str(list(tensor.shape)) for _, tensor in listed)
        actual = f"the weights of a {entry['class_name']} of Keras 3, found {stored or 'none'}"
        raise self._refuse(entry, f"expected {actual}")

    def _build_layer(self, entry: Entry, config: Mapping[str, Any], listed: Listed) -> Any:
        """Build a layer with the listed weights if a shape fits.

        Returns None where no shape fits. Without weights it may stay without a shape.
        """
        unshaped = None if listed else deserialize(self.source, config, self.brought, self.fallback)
        for call in candidate_shapes(listed, self.given[0]):
            layer = deserialize(self.source, config, self.brought, self.fallback)
            try:
                layer.build(*call)
            except Exception:  # noqa: BLE001 - whatever a layer says to a shape not its own
                continue
            if fill_variables(layer, entry, listed):
                return layer
            unshaped = None
        return unshaped

    def _share(self, model: Entry, listed: Listed) -> dict[str, Listed]:
        """Group an inner model's weights by the layer names inside the weights' names."""
        weights: dict[str, list[tuple[str, Tensor]]] = {
            layer_tree.layer_name(below): [] for below in layer_tree.layer_entries(model)
        }
        for name, tensor in listed:
            owners = [part for part in name.split("/")[:-1] if part in weights]
            if len(owners) != 1:
                raise self._refuse(model, f"expected weights named after its layers, found {name}")
            weights[owners[0]].append((name, tensor))
        return dict(weights)

    def _ways(self, entry: Entry, listed: Listed) -> dict[str, Any]:
        """Build both directions of a Bidirectional; the weights' names tell the direction."""
        ways: tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]] = ([], [])
        for name, tensor in listed:
            ways["/backward_" in f"/{name}"].append((name, tensor))
        if bool(ways[0]) != bool(ways[1]):
            raise self._refuse(
                entry, "expected weights with the names of both directions, found one direction alone"
            )
        layers = map(self.layer, layer_tree.inside(entry), ways)
        return dict(zip(("forward_layer", "backward_layer"), layers, strict=True))

    def _refuse(self, entry: Entry, reason: str, more: str = "") -> UnsupportedModelError:
        """Return the error for a reason, with advice to write the fallback format.

        `more` is further advice.
        """
        line = f"layer {layer_tree.layer_name(entry)}: {reason}; write --format {self.fallback}{more}"
        return UnsupportedModelError(self.source, [line])


def _stand_in(entry: Entry, listed: Listed, **parts: Any) -> Any:
    """Return a stand-in for a layer of a missing class.

    Saving it writes `listed` and `parts`.
    """
    import keras

    def save_own_variables(_: Any, store: Any) -> None:
        for number, (_, tensor) in enumerate(listed):
            store[str(number)] = tensor.read()

    kind = type(classes.class_name(entry), (keras.layers.Layer,), {"save_own_variables": save_own_variables})
    layer = kind(name=layer_tree.layer_name(entry))
    for attribute, part in parts.items():
        setattr(layer, attribute, part)
    return layer


def load_until(path: Path, layers: Collection[str], custom_objects: Mapping[str, Any]) -> Any:
    """Load the `keras.Model` of an archive up to the top-level `layers`.

    Its outputs are `layer_tree.ends`. Raises ValueError where no layer comes before them, and what Keras
    raises where loading fails.
    """
    import keras

    with zipfile.ZipFile(path) as archive:
        config, weights = json.loads(archive.read("config.json")), archive.read("model.weights.h5")
    part = layer_tree.model_until(layer_tree.count_outputs(config, -1), layers)
    if part is None:
        raise ValueError("nothing stands before the first layer of a class that is not here")
    counts = layer_tree.count_outputs(part, 1)
    model = keras.saving.deserialize_keras_object(counts, custom_objects=dict(custom_objects), safe_mode=True)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "part.weights.h5"
        model.save_weights(saved)
        _copy(weights, saved)
        model.load_weights(saved)
    return model


def _copy(weights: bytes, path: Path) -> None:
    """Copy an archive's weights by name into a file with some of the layers."""
    import h5py

    with h5py.File(io.BytesIO(weights)) as whole, h5py.File(path, "r+") as part:
        groups = {group["vars"].attrs["name"]: group for group in whole["layers"].values()}
        for layer_name, group in list(part["layers"].items()):
            name = group["vars"].attrs["name"]
            if name in groups:  # an input need not have a group
                del part["layers"][layer_name]
                whole.copy(groups[name], part["layers"], layer_name)


#: Keras 2's hard_sigmoid is clip(x / 5 + 0.5), Keras 3's clip(x / 6 + 0.5): the same of 6/5 of x.
_SHARPER: Final = 1.2

Pairs = list[tuple[Any, Mode | None]]


def build_model(source: Path, modern: translate.Modern) -> Any:
    """Build the `keras.Model` of a translated model.

    Raises UnsupportedModelError where Keras 3 cannot build it.
    """
    model = modern.model
    layer = deserialize(
        source, modern.config, classes.by_all_names(modern.vouched, model.config), modern.fallback
    )
    _assign(source, layer, modern)
    for list_reasons in (_list_open_steps, _list_masks, _list_dilations):
        _raise_for(source, list_reasons(layer), modern.fallback)
    settle_seeds(layer)
    return layer


def find_scaled(model: Architecture) -> tuple[str, ...]:
    """Return the paths of layers with gate weights scaled for the same numbers."""
    return tuple(dict.fromkeys(path for path, entry in layer_tree.below(model.config) if _scale(entry)))


def deserialize(
    source: Path, config: Mapping[str, Any], custom_objects: Mapping[str, Any], fallback: str
) -> Any:
    """Deserialize a config by Keras 3 in safe mode. Raises UnsupportedModelError."""
    import keras

    try:
        return keras.saving.deserialize_keras_object(
            copy.deepcopy(config), custom_objects=dict(custom_objects), safe_mode=True
        )
    except Exception as cause:
        # Layers raise what they like, and Keras wraps it into the config of every model around.
        first = keras_private.innermost_line(cause)
        message = (
            f"model: expected a model that Keras 3 can build, found an error: {first}; "
            f"write --format {fallback}"
        )
        raise UnsupportedModelError(source, [message]) from cause


def _raise_for(source: Path, reasons: Iterable[str], fallback: str) -> None:
    """Raise UnsupportedModelError if there are reasons, with advice to write the fallback format."""
    if lines := [f"{reason}; write --format {fallback}" for reason in reasons]:
        raise UnsupportedModelError(source, lines)


def _list_open_steps(built: Any) -> Iterator[str]:
    """Yield a reason for each TimeDistributed with an open number of steps."""
    import keras

    for layer in keras_private.flatten_layers(built):
        is_one = isinstance(layer, keras.layers.TimeDistributed)
        # Its first input alone has steps; the others are masks.
        if is_one and keras.tree.flatten(layer.input)[0].shape[1] is None:
            yield (
                f"layer {layer.name}: expected a fixed number of steps for the TimeDistributed of Keras "
                f"{keras.__version__}, found an open one, for which it takes the batch's size"
            )


#: Layers of Keras 3 that leave masked values out (keras v3.15.0 src/layers/merging/base_merge.py
#: `_apply_merge_op_and_or_mask`, multiply.py); those of Keras 2 take them as they are.
_MERGES: Final = frozenset({"Average", "Maximum", "Minimum", "Multiply"})
#: Layers that get no mask where they are called with states (keras v3.15.0 src/layers/layer.py `__call__`:
#: of several tensors each has a mask of its own name, which these do not take).
_BEGUN: Final = frozenset({"RNN", "SimpleRNN", "LSTM", "GRU", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D"})


def _list_masks(built: Any) -> Iterator[str]:
    """Yield a reason for each layer with different treatment of masks in Keras 2."""
    import keras

    for layer in keras_private.flatten_layers(built):
        kind = type(layer).__name__
        calls = keras_private.list_calls(layer) if kind in _MERGES | _BEGUN else []
        if not any(len(given) > 1 and any(map(keras_private.has_mask, given)) for given in calls):
            continue
        does = "leaves masked values out" if kind in _MERGES else "loses the mask where it is given states"
        yield (
            f"layer {layer.name}: expected inputs without masks, for the {kind} of Keras "
            f"{keras.__version__} {does}, found a mask"
        )


def _list_dilations(built: Any) -> Iterator[str]:
    """Yield a reason for each transposed convolution with dilations.

    A CPU computes it with oneDNN alone.
    """
    import keras

    for layer in keras_private.flatten_layers(built):
        kind = type(layer).__name__
        if kind.endswith("Transpose") and any(rate > 1 for rate in layer.dilation_rate):
            yield (
                f"layer {layer.name}: expected layers of Keras {keras.__version__} that every CPU runs, "
                f"found a {kind} with dilations"
            )


def _assign(source: Path, built: Any, modern: translate.Modern) -> None:
    model = modern.model
    for entry in layer_tree.layer_entries(model.config):
        name = layer_tree.layer_name(entry)
        if entry["class_name"] == "InputLayer":
            continue
        layer, listed = built.get_layer(name), model.weights.get(name, ())
        if not fill_variables(layer, entry, listed):
            shapes = [tuple(variable.shape) for variable, _ in _pairs(layer, entry)]
            actual = ", ".join(str(tensor.shape) for _, tensor in listed) or "none"
            message = f"layer {name}: expected weights of shapes {shapes} for Keras 3, found {actual}"
            _raise_for(source, [message], modern.fallback)


def fill_variables(layer: Any, entry: Entry, listed: Sequence[tuple[str, Tensor]]) -> bool:
    """Assign the listed weights to a built layer, and return True.

    Returns False, without assigning, if shapes differ.
    """
    pairs = _pairs(layer, entry)
    if [tuple(variable.shape) for variable, _ in pairs] != [tensor.shape for _, tensor in listed]:
        return False
    for (variable, mode), (_, tensor) in zip(pairs, listed, strict=True):
        value = tensor.read()
        variable.assign(value if mode is None else layouts.scale_keras(mode, value, _SHARPER))
    return True


def _pairs(layer: Any, entry: Entry) -> Pairs:
    trained, rest = _order_variables(layer, entry)
    return [*trained, *rest]


def _scale(entry: Entry) -> Mode | None:
    """Return the mode of a CPU layer with a flatter gate activation in Keras 3.

    Returns None for any other layer.
    """
    kind = str(entry["class_name"])
    hard = layer_tree.settings(entry).get("recurrent_activation") == "hard_sigmoid"
    is_scaled = hard and kind in translate.SCALABLE and classes.is_keras_class(entry)
    return classes.MODES[kind] if is_scaled else None


def _order_variables(layer: Any, entry: Entry) -> tuple[Pairs, Pairs]:
    """List the trained and the untrained variables of a layer, in Keras 2's order.

    Inside a model that is the order of the config, which Keras 3 may have changed. A frozen layer trains
    none of the layers in it, whatever their configs say.
    """
    inner = [_order_variables(part, below) for part, below in _parts(layer, entry)]
    if inner:
        trained, rest = ([pair for pairs in each for pair in pairs] for each in zip(*inner, strict=True))
        frozen = layer_tree.settings(entry).get("trainable") is False
        return ([], [*trained, *rest]) if frozen else (trained, rest)
    mode, kinds = _scale(entry), (layer.trainable_weights, layer.non_trainable_weights)
    trained, rest = ([(weight, mode) for weight in weights] for weights in kinds)
    return trained, rest


def _parts(layer: Any, entry: Entry) -> Iterator[tuple[Any, Entry]]:
    config = entry["config"]
    if layer_tree.is_model(entry):
        for below in layer_tree.layer_entries(entry):
            if below["class_name"] != "InputLayer":
                yield layer.get_layer(layer_tree.layer_name(below)), below
    elif entry["class_name"] == "Bidirectional":
        yield layer.forward_layer, config["layer"]
        yield layer.backward_layer, config.get("backward_layer") or config["layer"]
    elif entry["class_name"] == "TimeDistributed" and translate.each_step(entry) is None:
        yield layer.layer, config["layer"]


def settle_seeds(built: Any) -> None:
    """Replace Keras's random seeds by numbers, the same in every run."""
    from keras.random import SeedGenerator

    count = 0
    for layer in keras_private.flatten_layers(built):
        for value in vars(layer).values():
            if isinstance(value, SeedGenerator) and getattr(layer, "seed", None) is None:
                value.state.assign([count, 0])
                count += 1


#: What Keras 3 calls an argument that Keras 2 had under another name.
_RENAMED: Final = {"lr": "learning_rate"}
#: Optimizers whose state has nothing beside a counter and arrays of weights.
_CLASSES: Final = {
    name.lower(): name for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Ftrl")
}


def restore_optimizer(built: Any, model: Architecture) -> tuple[str, ...]:
    """Compile the Keras 3 model built of `model`, and set the optimizer's state.

    It is compiled as its source was. Returns notes on what is left out. Without an optimizer's state nothing
    is done.
    """
    if not model.optimizer:
        return ()
    training, notes = values.keep_training_config(model.training)
    if training is None:
        return (*notes, "optimizer state dropped with its training config")
    try:
        optimizer, loss = _optimizer(training), _loss(training.get("loss"))
        metrics = _metrics(training.get("metrics"))
        match metrics:
            case [[*of_output]] if len(built.outputs) == 1:
                metrics = of_output  # Keras 3.12 takes no list in a list for the one output
        _set_state(optimizer, built, model)
        built.compile(optimizer, loss, loss_weights=training.get("loss_weights"), metrics=metrics)
    except Exception as cause:  # noqa: BLE001 - whatever Keras says to values that are not its own
        return (describe_dropped(training, first_line(cause)),)
    return notes


def describe_dropped(training: Mapping[str, Any] | None, why: str) -> str:
    """Return a note on the dropped training config and optimizer state, with the reason."""
    compiled = f", {values.describe_training(training)}" if training is not None else ""
    return f"training config and optimizer state dropped{compiled}: {why}"


def _set_state(optimizer: Any, built: Any, model: Architecture) -> None:
    """Build an optimizer for a model's variables; set slots and counter. Raises ValueError."""
    (trained, _), listed = _order_variables(built, model.config), model.optimizer
    variables = [variable for variable, _ in trained]
    if any(mode is not None for _, mode in trained):
        raise ValueError("gates' weights are 6/5 of the source's, and their state is not")
    if len(variables) != len(built.trainable_variables):
        raise ValueError("Keras 3 trains other weights than the source")
    optimizer.build(built.trainable_variables)
    kinds, shapes = _kinds(optimizer, variables), [tuple(variable.shape) for variable in variables]
    if len(kinds) * len(variables) != sum(len(variable.shape) > 0 for variable in optimizer.variables):
        raise ValueError("Keras 3 has one name for several weights")
    stored = _by_kind([tensor for _, tensor in listed if tensor.shape], shapes, len(kinds))
    for slots, tensors in zip(kinds, stored, strict=True):
        for slot, tensor in zip(slots, tensors, strict=True):
            slot.assign(tensor.read())
    for _, tensor in listed[:1]:
        if not tensor.shape and tensor.dtype.kind in "iu":
            optimizer.iterations.assign(int(tensor.read()))


def _optimizer(training: Mapping[str, Any]) -> Any:
    """Return the Keras 3 optimizer of a training config. Raises ValueError."""
    import keras

    entry = training["optimizer_config"]
    kind = str(entry["class_name"])
    if kind.lower() not in _CLASSES:
        raise ValueError(f"expected one of {', '.join(_CLASSES.values())}, found {kind}")
    kind = _CLASSES[kind.lower()]
    given = {_RENAMED.get(key, key): value for key, value in entry["config"].items()}
    decay = given.pop("decay", None)
    if isinstance(given.get("learning_rate"), Mapping):
        given["learning_rate"] = keras.optimizers.schedules.deserialize(dict(given["learning_rate"]))
    elif decay:  # keras 2.2.4 optimizers.py: lr / (1 + decay * iterations)
        given["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(
            given["learning_rate"], decay_steps=1, decay_rate=decay
        )
    optimizer = getattr(keras.optimizers, kind)
    known = inspect.signature(optimizer.__init__).parameters
    # Without a name Keras numbers the optimizers of a process: other bytes for the same input.
    return optimizer(**{**{key: value for key, value in given.items() if key in known}, "name": kind.lower()})


def _loss(value: Any) -> Any:
    """Return a loss of Keras 3, or several in a list or dict.

    Raises ValueError where Keras 3 lacks it.
    """
    import keras

    if isinstance(value, str):
        keras.losses.get(value)
        return value
    if isinstance(value, Mapping) and "class_name" in value:
        loss = getattr(keras.losses, str(value["class_name"]), None)
        if loss is None:
            raise ValueError(f"expected a loss of Keras 3, found {value['class_name']}")
        known = inspect.signature(loss.__init__).parameters
        return loss(**{key: item for key, item in value["config"].items() if key in known and item != "auto"})
    if isinstance(value, Mapping):
        return {key: _loss(item) for key, item in value.items()}
    return None if value is None else [_loss(item) for item in value]


def _metrics(value: Any) -> Any:
    """Return metrics by name, alone or in a list or dict.

    Raises ValueError where Keras 3 lacks them.
    """
    import keras

    if isinstance(value, str) or (isinstance(value, Mapping) and "class_name" in value):
        name = values.title_of(value)
        keras.metrics.get(name)
        return name
    if isinstance(value, Mapping):
        return {key: _metrics(item) for key, item in value.items()}
    return None if value is None else [_metrics(item) for item in value]


def _kinds(optimizer: Any, variables: Sequence[Any]) -> list[list[Any]]:
    """List an optimizer's slots by kind, in the order of creation in Keras 3.

    Each kind has a slot for every variable.
    """
    slots = {slot.name: slot for slot in optimizer.variables}
    heads = [f"{variable.path}_".replace("/", "_") for variable in variables]
    ends = [name.removeprefix(heads[0]) for name in slots if name.startswith(heads[0])] if heads else []
    return [
        [slots[head + end] for head in heads] for end in ends if all(head + end in slots for head in heads)
    ]


def _by_kind(arrays: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], kinds: int) -> list[list[Tensor]]:
    """Group a file's arrays by kind, in the order of the weights with `shapes`.

    Raises ValueError where the arrays do not fit. The first `beside` kinds stand side by side, the others one
    after the other; what is behind them (Adam of Keras 2 keeps arrays of one zero) is left out. A layer's
    weights differ in rank: one order fits.
    """
    count = len(shapes)
    for beside in range(max(kinds, 1), 0, -1):
        order = [
            weight * beside + kind if kind < beside else kind * count + weight
            for kind in range(kinds)
            for weight in range(count)
        ]
        chosen = [arrays[position] for position in order if position < len(arrays)]
        if [array.shape for array in chosen] == [*shapes] * kinds:
            return [chosen[kind * count : (kind + 1) * count] for kind in range(kinds)]
    raise ValueError(
        f"expected {kinds} arrays for each of {count} weights, found {len(arrays)} that do not fit"
    )
