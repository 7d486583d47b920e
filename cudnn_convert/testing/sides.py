"""One side of a comparison: a model, a function or answers, and its names.

Models of Keras 3 and tf_keras, in memory and in their files.

Which names of both sides mean the same: equal ones, those that are told, or the only ones.

How a user's function is called, and what a model in memory takes.

The calls to compare on, as users give them.

One side of a comparison: something that answers, and the names that it takes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts import pair_names
from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.weights import npz_archive


def of_model(model: Any, name: str) -> Side:
    """The model in inference, by the names of its inputs and outputs if it has any."""
    known = getattr(model, "output_names", None)
    taken = tuple(tensor.name for tensor in getattr(model, "inputs", None) or ()) or None
    # Keras 3 calls several outputs of a layer alike.
    names = known if known and len(set(known)) == len(known) else None

    def run(feed: Feed) -> Any:
        given: Any = [feed[key] for key in taken] if taken else dict(feed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a list stands for a dict
            answer = model(*feed.values(), training=False) if len(feed) == 1 else model(given, training=False)
        values = answer if isinstance(answer, list | tuple) else [answer]
        if isinstance(answer, Mapping) or not names or len(values) != len(names):
            return answer
        return dict(zip(names, values, strict=True))

    return Side("Keras", name, run, taken)


def of_archive(path: Path) -> Side:
    """A `.keras` archive, by the Keras that wrote it, which runs no code of the file's."""
    with zipfile.ZipFile(path) as archive:
        version = json.loads(archive.read("metadata.json"))["keras_version"]
    return _load_keras(path, version)


def of_hdf5(path: Path, where: str) -> Side:
    """A model in HDF5. Raises UsageError where tf_keras would run code that lies in the file."""
    import h5py

    from cudnn_convert.keras.config import validate

    with h5py.File(path) as file:
        config = json.loads(file.attrs.get("model_config", "null"))
        version = str(file.attrs.get("keras_version", "2."))
    if config is None:
        cure = "load them into it, and give the model"
        raise UsageError(f"{where} {path}: expected a model, found weights alone; {cure}")
    running = [layer for layer in validate.layers_not_allowed(config) if layer.runs]
    if running or (_is_old(version) and not validate.is_plain(config)):
        code = (
            ", ".join(f"layer {layer.layer}, {layer.class_name}" for layer in running) or "modules of others"
        )
        raise UsageError(f"{where} {path}: expected layers, found code: {code}; load it, and give the model")
    return _load_keras(path, version)


def _is_old(version: str) -> bool:
    return not version.startswith("3.")


def _load_keras(path: Path, version: str) -> Side:
    library = importlib.import_module("tf_keras" if _is_old(version) else "keras")
    return of_model(library.models.load_model(path, compile=False), str(path))


def inputs(side: Side, keys: Sequence[str], own_names: Mapping[str, str]) -> dict[str, str]:
    """Key of a feed -> the side's own input. `own_names`: own name by key, where they differ.

    Raises UsageError where a key finds no input, or an input no key.
    """
    names = {key: own_names.get(key, key) for key in keys}
    wanted = {name: name for name in names.values()}
    if len(wanted) < len(names):
        raise UsageError(
            f"{side.name}: inputs: expected a name for each, found {_join_names(names.values())}"
        )
    if side.inputs is None:
        return names
    there = side.inputs
    own = {name: theirs for theirs, name in pair_names.keys(wanted, there).items() if name in wanted}
    if len(own) == len(names) == len(there):
        return {key: own[name] for key, name in names.items()}
    if len(names) == len(there) == 1 and not own_names:
        return dict(zip(names, there, strict=True))
    actual = "an array without a name" if [*names.values()] == [UNNAMED] else _join_names(names.values())
    raise UsageError(
        f"{side.name}: inputs: expected {_join_names(there)}, found {actual}; "
        "pair them with inputs={'of actual': 'of expected'}, and feed those of expected"
    )


def outputs(actual: Collection[str], expected: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """The actual side's output -> the expected side's, of those that have a partner.

    `given` is the same for names that differ. Those left on one side alone are missing, or too many, which is
    for the comparison to say; where both sides have some, a UsageError refuses to guess.
    """
    if len(actual) == len(expected) == 1 and not given:
        return dict(zip(actual, expected, strict=True))
    once = len({*given.values()}) == len(given)
    strange = [
        f"{ours}: {theirs}"
        for ours, theirs in given.items()
        if not once or ours not in actual or theirs not in expected
    ]
    left = [name for name in actual if name not in given]
    wanted = {name: name for name in expected if name not in given.values()}
    paired = {ours: theirs for ours, theirs in pair_names.keys(wanted, left).items() if theirs in wanted}
    if strange or (len(paired) < len(left) and len(paired) < len(wanted)):
        cure = "pair them with outputs={'of actual': 'of expected'}"
        wrong = f", not {{{', '.join(strange)}}}" if strange else ""
        raise UsageError(
            f"outputs: expected {_join_names(expected)}, found {_join_names(actual)}; {cure}{wrong}"
        )
    return {**given, **paired}


def _join_names(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def open_model(given: Any, *, where: str, signature: str | None) -> Side:
    """The side of a model that is in memory already. Raises UsageError for what cannot be called."""
    if _is(given, "onnxruntime", "InferenceSession"):
        return _session(given)
    if _is(given, "keras", "Model") or _is(given, "tf_keras", "Model"):
        return of_model(given, f"the Keras model {given.name}")
    if hasattr(given, "structured_input_signature"):
        return _concrete(given, f"the concrete function {given.name!r}")
    if isinstance(getattr(given, "signatures", None), Mapping) and given.signatures:
        return _open_loaded(given, where, signature)
    if callable(given):
        return _function(given)
    actual = f"a {type(given).__name__}"
    what = "a function, a model of Keras, TensorFlow or ONNX Runtime, a path or arrays"
    raise UsageError(f"{where}: expected {what}, found {actual}")


def _is(given: Any, module: str, name: str) -> bool:
    """Whether it is of a class that can only be there if its module is imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(given, kind)


def _function(function: Callable[..., Any]) -> Side:
    """A keyword argument for each input; a single one that has no such name goes by its place."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # some of C's do not tell
        parameters = inspect.signature(lambda *_, **__: None)
    named = {key for key, parameter in parameters.parameters.items() if parameter.kind in _NAMED}

    def run(feed: Feed) -> Any:
        calls: list[tuple[tuple[Any, ...], Feed]] = [((), feed)]
        if len(feed) == 1:
            by_place = 0 if UNNAMED in feed or not named.issuperset(feed) else 1
            calls.insert(by_place, ((*feed.values(),), {}))
        for values, keywords in calls:
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

    taken = tuple(tensor.name for tensor in session.get_inputs())
    return Side("ONNX Runtime", "the session of ONNX Runtime", run, taken)


def _concrete(function: Any, name: str, *, signed: bool = False) -> Side:
    import tensorflow as tf

    positional, named = function.structured_input_signature
    specs = tf.nest.flatten(positional)
    taken = (*(spec.name for spec in specs if hasattr(spec, "dtype")), *named)

    def run(feed: Feed) -> Any:
        return function(**{key: tf.constant(value) for key, value in feed.items()})

    return Side("TensorFlow", name, run, taken, signed=signed)


def _open_loaded(loaded: Any, where: str, signature: str | None) -> Side:
    from cudnn_convert.testing.files import choose_signature

    name = choose_signature(where, signature, loaded.signatures)
    # Whoever gave it holds `loaded`, which owns the variables: a function alone does not keep them alive.
    return _concrete(loaded.signatures[name], f"the signature {name} of a loaded SavedModel", signed=True)


def calls(given: Any) -> list[dict[str, Array]]:
    """The arrays of each call by input. Raises UsageError.

    `given`: a mapping, an array for the only input, a sequence of either, or the path of an `.npz` with an
    array for each input, by key, or with those of several calls as `feed0/KEY`; or that of a recording.
    """
    if isinstance(given, str | os.PathLike):
        listed: Sequence[Any] = of_file(Path(given))
    else:
        listed = [*given] if isinstance(given, list | tuple) else [given]
    if not listed:
        raise UsageError("feeds: expected at least one call, found none")
    return [_call(call, f"feeds: call {k}") for k, call in enumerate(listed, 1)]


def of_recording(given: Any) -> list[dict[str, Array]]:
    """What the recording at a path was fed. Raises UsageError for anything else."""
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".npz":
        path = Path(given)
        if is_recording(npz_archive.load_user_arrays(path, flag="feeds")):
            return calls(path)
    raise UsageError(
        "feeds: expected arrays, found none; a recording alone, given as expected, brings its own"
    )


def of_file(path: Path) -> Sequence[Mapping[str, Array]]:
    """The calls in an `.npz`, what was fed alone where it is a recording."""
    arrays = npz_archive.load_user_arrays(path, flag="feeds")
    if is_recording(arrays):
        from cudnn_convert.verification import recordings

        return recordings.read_recording(path).feeds
    return npz_archive.calls(arrays, where=f"feeds {path}")


def is_recording(arrays: Mapping[str, Array]) -> bool:
    """Whether the arrays of a file are those that `record` writes."""
    return "meta" in arrays and any(key.startswith("feed0/") for key in arrays)


def _call(given: Any, where: str) -> dict[str, Array]:
    if is_array(given):
        return {UNNAMED: array(given, where)}
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}: expected a mapping of arrays or an array, found a {type(given).__name__}")
    return {str(key): array(value, f"{where}: {key}") for key, value in given.items()}


Feed = Mapping[str, Array]
#: The name of an input that was given without one.
UNNAMED: Final = "input"


@dataclass(frozen=True, slots=True)
class Side:
    """`kind` and `name` are what a person reads. `run` takes arrays by the side's own names.

    `inputs`: these names, None where any are taken. `calls`: of recorded answers, how many calls they are of.
    `signed`: whether it has signatures to choose from. `recording` and `bound`: what a recording says of
    itself, and how its device widens a tolerance for a type.
    """

    kind: str
    name: str
    run: Callable[[Feed], Any]
    inputs: tuple[str, ...] | None = None
    calls: int | None = None
    signed: bool = False
    recording: dict[str, Any] | None = None
    bound: Callable[[Tolerance, np.dtype[Any]], Tolerance] = lambda bound, _: bound


def replay_answers(where: str, answers: Sequence[Any]) -> Side:
    """Answers that were given already, one for each call."""
    stored: Iterator[Any] = iter(answers)
    return Side("arrays", f"arrays given as {where}", lambda _: next(stored), calls=len(answers))


def is_array(value: Any) -> bool:
    """An array of NumPy's or of another library's that becomes one."""
    return hasattr(value, "__array__") and not isinstance(value, type)


def array(value: Any, where: str) -> Array:
    """A copy as an array of NumPy's: runtimes reuse their buffers. Raises UsageError for what is none."""
    if value is None or isinstance(value, Mapping | list | tuple):
        actual = "nothing" if value is None else f"a {type(value).__name__}"
        raise UsageError(f"{where}: expected an array, found {actual}")
    return np.array(value)


def by_name(answer: Any, where: str) -> dict[str, Array]:
    """What a side answered, by name: a sequence without names is `output_0`, `output_1`, ...

    Raises UsageError where there is nothing in it.
    """
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        answer = dict(zip(answer._fields, answer, strict=True))
    if isinstance(answer, list | tuple):
        answer = {f"output_{k}": value for k, value in enumerate(answer)}
    elif not isinstance(answer, Mapping):
        answer = {"output_0": answer}
    if not answer:
        raise UsageError(f"{where}: expected at least one output, found none")
    return {str(key): array(value, f"{where}: output {key}") for key, value in answer.items()}
