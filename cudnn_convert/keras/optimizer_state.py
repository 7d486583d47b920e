"""Gives a Keras 3 model the optimizer that trained its source, with its state.

An optimizer keeps kinds of arrays, Adam momenta and velocities, one of each for every trained weight. Files
list them one kind after the other, or all kinds of one weight side by side, and some begin with scalars:
a counter of steps, a learning rate. Keras 3 has the same kinds in the same order.
Source: keras 2.2.4 optimizers.py `get_updates`, whose `self.weights` a file lists; tensorflow v1.15.0
python/keras/optimizer_v2, `_create_slots`; tf_keras v2.21.0 and keras v3.15 src/optimizers, `build`.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cudnn_convert.errors import first_line
from cudnn_convert.keras import build_keras3
from cudnn_convert.keras.config import values
from cudnn_convert.model import Architecture, Tensor

#: What Keras 3 calls an argument that Keras 2 had under another name.
_RENAMED: Final = {"lr": "learning_rate"}
#: Optimizers whose state has nothing beside a counter and arrays of weights.
_CLASSES: Final = {
    name.lower(): name for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Ftrl")
}


def restore(built: Any, model: Architecture) -> tuple[str, ...]:
    """Compile the Keras 3 model built of `model` as its source was, and set its optimizer's state.

    Returns notes on what is left out. Without an optimizer's state nothing is done.
    """
    if not model.optimizer:
        return ()
    training, notes = values.keep_training_config(model.training)
    if training is None:
        return (*notes, "optimizer state dropped with its training config")
    try:
        optimizer, loss = _optimizer(training), _loss(training.get("loss"))
        metrics = _metrics(training.get("metrics"))
        _set_state(optimizer, built, model)
        built.compile(optimizer, loss, loss_weights=training.get("loss_weights"), metrics=metrics)
    except Exception as cause:  # noqa: BLE001 - whatever Keras says to values that are not its own
        return (describe_dropped(training, first_line(cause)),)
    return notes


def describe_dropped(training: Mapping[str, Any] | None, why: str) -> str:
    """A note that neither the training config nor the optimizer's state is kept, and why."""
    compiled = f", {values.describe_training(training)}" if training is not None else ""
    return f"training config and optimizer state dropped{compiled}: {why}"


def _set_state(optimizer: Any, built: Any, model: Architecture) -> None:
    """Build an optimizer for a model's variables, and set its slots and its counter. Raises ValueError."""
    trained, listed = build_keras3.list_trained(built, model), model.optimizer
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
    """The optimizer of a training config, of Keras 3. Raises ValueError."""
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
    """A loss of Keras 3, or several in a list or dict. Raises ValueError where Keras 3 lacks it."""
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
    """Metrics by name, alone or in a list or dict. Raises ValueError where Keras 3 lacks them."""
    import keras

    if isinstance(value, str) or (isinstance(value, Mapping) and "class_name" in value):
        name = values.title_of(value)
        keras.metrics.get(name)
        return name
    if isinstance(value, Mapping):
        return {key: _metrics(item) for key, item in value.items()}
    return None if value is None else [_metrics(item) for item in value]


def _kinds(optimizer: Any, variables: Sequence[Any]) -> list[list[Any]]:
    """An optimizer's slots by kind, in the order in which Keras 3 makes them; each for all variables."""
    slots = {slot.name: slot for slot in optimizer.variables}
    heads = [f"{variable.path}_".replace("/", "_") for variable in variables]
    ends = [name.removeprefix(heads[0]) for name in slots if name.startswith(heads[0])] if heads else []
    return [
        [slots[head + end] for head in heads] for end in ends if all(head + end in slots for head in heads)
    ]


def _by_kind(arrays: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], kinds: int) -> list[list[Tensor]]:
    """Arrays of a file by kind, each in the order of the weights with `shapes`. Raises ValueError.

    The first `beside` kinds stand side by side, the others one after the other; what is behind them (Adam of
    Keras 2 keeps arrays of one zero) is left out. A layer's weights differ in rank: one order fits.
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
    raise ValueError(f"expected {kinds} arrays for each of {count} weights, found {len(arrays)} or others")
