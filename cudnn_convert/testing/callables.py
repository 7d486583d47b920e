"""How a user's function is called, and what a model in memory takes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from cudnn_convert.errors import UsageError
from cudnn_convert.testing import keras_models
from cudnn_convert.testing.sides import UNNAMED, Feed, Side

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def opened(given: Any, *, where: str, signature: str | None) -> Side:
    """The side of a model that is in memory already. Raises UsageError for what cannot be called."""
    if _is(given, "onnxruntime", "InferenceSession"):
        return _session(given)
    if _is(given, "keras", "Model") or _is(given, "tf_keras", "Model"):
        return keras_models.of_model(given, f"the Keras model {given.name}")
    if hasattr(given, "structured_input_signature"):
        return _concrete(given, f"the concrete function {given.name!r}")
    if isinstance(getattr(given, "signatures", None), Mapping) and given.signatures:
        return _loaded(given, where, signature)
    if callable(given):
        return _function(given)
    found = f"a {type(given).__name__}"
    what = "a function, a model of Keras, TensorFlow or ONNX Runtime, a path or arrays"
    raise UsageError(f"{where}: expected {what}, found {found}")


def _is(given: Any, module: str, name: str) -> bool:
    """Whether it is of a class that can only be there if its module is imported."""
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(given, found)


def _function(function: Callable[..., Any]) -> Side:
    """A keyword argument for each input; a single one that has no such name goes by its place."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # some of C's do not tell
        parameters = inspect.signature(lambda *_, **__: None)
    named = {key for key, found in parameters.parameters.items() if found.kind in _NAMED}

    def run(feed: Feed) -> Any:
        ways: list[tuple[tuple[Any, ...], Feed]] = [((), feed)]
        if len(feed) == 1:
            by_place = 0 if UNNAMED in feed or not named.issuperset(feed) else 1
            ways.insert(by_place, ((*feed.values(),), {}))
        for values, keywords in ways:
            if _takes(parameters, values, keywords):
                return function(*values, **keywords)
        raise UsageError(f"{name}: expected the parameters {parameters}, found the inputs {', '.join(feed)}")

    return Side("function", name, run)


def _takes(parameters: inspect.Signature, values: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        parameters.bind(*values, **named)
    except TypeError:
        return False
    return True


def _session(session: Any) -> Side:
    names = [output.name for output in session.get_outputs()]

    def run(feed: Feed) -> dict[str, Any]:
        return dict(zip(names, session.run(names, dict(feed)), strict=True))

    taken = tuple(found.name for found in session.get_inputs())
    return Side("ONNX Runtime", "the session of ONNX Runtime", run, taken)


def _concrete(function: Any, name: str, *, signed: bool = False) -> Side:
    import tensorflow as tf

    places, named = function.structured_input_signature
    specs = tf.nest.flatten(places)
    taken = (*(spec.name for spec in specs if hasattr(spec, "dtype")), *named)

    def run(feed: Feed) -> Any:
        return function(**{key: tf.constant(value) for key, value in feed.items()})

    return Side("TensorFlow", name, run, taken, signed=signed)


def _loaded(loaded: Any, where: str, signature: str | None) -> Side:
    from cudnn_convert.testing.files import chosen

    name = chosen(where, signature, loaded.signatures)
    # Whoever gave it holds `loaded`, which owns the variables: a function alone does not keep them alive.
    return _concrete(loaded.signatures[name], f"the signature {name} of a loaded SavedModel", signed=True)
