"""Opens a side of a comparison: a model, file, function or answers.

No heavy package is imported before a side needs it. Files are recognised by their content.
"""

import importlib
import inspect
import json
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.context import silence
from cudnn_convert.errors import CudnnConvertError, ReadError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.model import SERVING, Array, Part, Signature
from cudnn_convert.text import first_line
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.weights import npz_archive

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_ZIP: Final = b"PK\x03\x04"
#: TensorFlow Lite's file identifier, after the offset of its root table (tensorflow v2.21 schema.fbs).
_TFLITE: Final = b"TFL3"
Feed = Mapping[str, Array]
#: The name of an input that was given without one.
UNNAMED: Final = "input"


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison.

    `run` takes arrays by the side's own names. `kind` and `name` are what a person reads. `inputs`: these
    names, None where any are taken. `calls`: of recorded answers, how many calls they are of. `signed`:
    whether it has signatures to choose from. `recording` and `bound`: what a recording says of itself, and
    how its device widens a tolerance for a type.
    """

    kind: str
    name: str
    run: Callable[[Feed], Any]
    inputs: tuple[str, ...] | None = None
    calls: int | None = None
    signed: bool = False
    recording: dict[str, Any] | None = None
    bound: Callable[[Tolerance, np.dtype[Any], float], Tolerance] = lambda bound, *_: bound


def replay_answers(name: str, answers: Sequence[Any]) -> Side:
    """Return the side of given answers, an answer per call."""
    stored: Iterator[Any] = iter(answers)
    return Side("arrays", name, lambda _: next(stored), calls=len(answers))


def is_array(value: Any) -> bool:
    """Return True if a value is an array, or convertible to a NumPy array."""
    return hasattr(value, "__array__") and not isinstance(value, type)


def array(value: Any, where: str) -> Array:
    """Return a copy as a NumPy array.

    Runtimes reuse their buffers. Raises UsageError for None, a mapping, a list or a tuple.
    """
    if value is None or isinstance(value, Mapping | list | tuple):
        actual = "nothing" if value is None else f"a {type(value).__name__}"
        raise UsageError(f"{where}: expected an array, found {actual}")
    return np.array(value)


def by_name(answer: Any, where: str) -> dict[str, Array]:
    """Return a side's answer by name.

    A sequence without names is `output_0`, `output_1`, ... Raises UsageError where there is nothing in it.
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


_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def open_model(given: Any, *, where: str, signature: str | None) -> Side:
    """Return the side of a model in memory.

    Raises UsageError if the model cannot be called.
    """
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
    """Return True if a value is of `module.name`, while the module stays unimported.

    A module that is not imported yet has no values.
    """
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(given, kind)


def _function(function: Callable[..., Any]) -> Side:
    """Return the side of a function, called with a keyword argument per input.

    A single input goes by position where the function has no parameter of its name.
    """
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
    name = choose_signature(where, signature, loaded.signatures)
    # Whoever gave it holds `loaded`, which owns the variables: a function alone does not keep them alive.
    return _concrete(loaded.signatures[name], f"the signature {name} of a loaded SavedModel", signed=True)


@silence()
def open_file(path: Path, *, where: str, signature: str | None) -> Side:
    """Return the side of a file or folder, run on the CPU.

    Raises UsageError, or ReadError.
    """
    try:
        is_file = path.is_file() and path.name != "saved_model.pb"
        side = (_file if is_file else _folder)(path, where, signature)
        return replace(side, run=silence()(side.run))
    except CudnnConvertError:
        raise
    except Exception as cause:  # each library has exceptions of its own
        raise ReadError(path, "file", expected="a model that loads", found=first_line(cause)) from cause


def _folder(path: Path, where: str, signature: str | None) -> Side:
    """Return the side of an artifact in a folder or in several files.

    Raises UsageError where the path is missing or not recognised.
    """
    from cudnn_convert.artifacts import runners

    try:
        form, artifact, provenance = runners.identify(path)
    except ReadError as cause:
        if cause.path != str(path):
            raise
        raise _unknown(path, where, "something else" if path.exists() else "nothing") from cause
    if (artifact / "saved_model.pb").is_file():
        return _open_saved_model(artifact, signature)
    if artifact.is_dir():
        parts = {file.stem: file for file in sorted(artifact.glob(f"*{FORMATS[form].suffix}"))}
        return _file(parts[choose_signature(str(artifact), signature, parts)], where, None, signed=True)
    if Keeps.TENSOR_NAMES not in FORMATS[form].keeps:
        return _file(artifact, where, signature)
    if provenance is None:
        raise _unknown(path, where, f"a {form} that does not say what its inputs and outputs are")
    tensors = provenance["tensors"]
    return _by_runner(form, artifact, Part(SERVING, Signature(tensors["inputs"], tensors["outputs"])))


def _file(path: Path, where: str, signature: str | None, *, signed: bool = False) -> Side:
    with path.open("rb") as stream:
        head = stream.read(8)
    if head[4:] == _TFLITE:
        return _tflite(path, signature)
    if head == _HDF5:
        return of_hdf5(path, where)
    if head[:4] == _ZIP:
        with zipfile.ZipFile(path) as archive:
            is_model = "config.json" in archive.namelist()
        return of_archive(path) if is_model else _answers(path)
    part = _onnx(path)
    if part is None:
        ends = "a graph that does not say what its inputs and outputs are"
        raise _unknown(path, where, ends if path.suffix == ".pb" else "something else")
    return _by_runner("onnx", path, part, signed=signed)


def _unknown(path: Path, where: str, actual: str) -> UsageError:
    kinds = "a SavedModel, an ONNX, TensorFlow Lite or Keras file, an .npz of answers or an OUT folder"
    return UsageError(f"{where} {path}: expected {kinds}, found {actual}; load it, and give a function")


def _by_runner(form: str, path: Path, part: Part, *, signed: bool = False) -> Side:
    """Return the side of an artifact, run as by the verification and the user."""
    from cudnn_convert.artifacts import runners

    runner = runners.open_artifact(form, path, [part])
    taken = tuple(part.signature.inputs)
    return Side(form, str(path), runner, taken, signed=signed)


def _open_saved_model(path: Path, signature: str | None) -> Side:
    from cudnn_convert.artifacts import runners

    parts = {each.part.name: each.part for each in runners.find_interfaces("savedmodel", path)}
    return _by_runner("savedmodel", path, parts[choose_signature(str(path), signature, parts)], signed=True)


def _onnx(path: Path) -> Part | None:
    """Return the inputs and outputs of an ONNX file, or None for another kind."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load_model(str(path), format="protobuf", load_external_data=False).graph
    except DecodeError:
        return None
    weights = {tensor.name for tensor in graph.initializer}
    taken = [end.name for end in graph.input if end.name not in weights]
    part = Part(SERVING, Signature.of_names(taken, [end.name for end in graph.output]))
    return part if part.signature.outputs else None


def _tflite(path: Path, signature: str | None) -> Side:
    from cudnn_convert.artifacts.tflite import open_interpreter

    interpreter = open_interpreter(model_path=str(path))
    there = interpreter.get_signature_list()
    if there:
        name = choose_signature(str(path), signature, there)
        if name != choose_signature(str(path), None, there):
            cure = "give a function that calls it"
            raise UsageError(f"{path}: signatures: expected {SERVING} of several, found {name}; {cure}")
        signature_def = Signature.of_names(there[name]["inputs"], there[name]["outputs"])
    else:
        ends = interpreter.get_input_details(), interpreter.get_output_details()
        signature_def = Signature.of_names(*([tensor["name"] for tensor in end] for end in ends))
    return _by_runner("tflite", path, Part(SERVING, signature_def), signed=bool(there))


def _answers(path: Path) -> Side:
    """Return the answers in an `.npz`, recorded or in arrays named `feed0/KEY`.

    Those of `record` make a recording.
    """
    arrays = npz_archive.load_user_arrays(path, flag="answers")
    if not is_recording(arrays):
        return replay_answers(str(path), npz_archive.calls(arrays, where=str(path)))
    from cudnn_convert.verification import recordings
    from cudnn_convert.verification.recordings import Golden

    recording = recordings.read_recording(path)
    side, golden = replay_answers(str(path), recording.answers), Golden(recording, (), ())
    return replace(side, kind="recording", recording=golden.facts, bound=golden.bound)


def choose_signature(where: str, signature: str | None, there: Collection[str]) -> str:
    """Return the wanted signature, the usual, or the only signature. Raises UsageError."""
    wanted = signature or (SERVING if SERVING in there or len(there) != 1 else next(iter(there)))
    if wanted in there:
        return wanted
    listed = ", ".join(sorted(there)) or "none"
    raise UsageError(f"{where}: signatures: expected {wanted}, found {listed}; choose with signature=")


def is_recording(arrays: Mapping[str, Array]) -> bool:
    """Return True if the arrays of a file are written by `record`."""
    return "meta" in arrays and any(key.startswith("feed0/") for key in arrays)


def of_model(model: Any, name: str) -> Side:
    """Return the side of a Keras model in inference, with named inputs and outputs.

    Models without names go by position.
    """
    from cudnn_convert.private import keras_private

    known = getattr(model, "output_names", None)
    taken = tuple(tensor.name for tensor in getattr(model, "inputs", None) or ()) or None
    # Keras 3 calls several outputs of a layer alike.
    names = known if known and len(set(known)) == len(known) else None

    def run(feed: Feed) -> Any:
        if taken:
            given = keras_private.pack_inputs(model, [feed[key] for key in taken])
        else:
            given = dict(feed) if len(feed) > 1 else next(iter(feed.values()))
        answer = model(given, training=False)
        values = answer if isinstance(answer, list | tuple) else [answer]
        if isinstance(answer, Mapping) or not names or len(values) != len(names):
            return answer
        return dict(zip(names, values, strict=True))

    return Side("Keras", name, run, taken)


def of_archive(path: Path) -> Side:
    """Return the side of a `.keras` archive, loaded by the writer's version of Keras.

    No code in the file is run.
    """
    with zipfile.ZipFile(path) as archive:
        version = json.loads(archive.read("metadata.json"))["keras_version"]
    return _load_keras(path, version)


def of_hdf5(path: Path, where: str) -> Side:
    """Return the side of an HDF5 model.

    Raises UsageError where tf_keras would run code from the file, or the file has weights alone.
    """
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
