"""Models in files, recognised by their content."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

from cudnn_convert.context import silence
from cudnn_convert.errors import CudnnConvertError, ReadError, UsageError, first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.model import SERVING, Part, Signature
from cudnn_convert.testing import sides
from cudnn_convert.testing.sides import Side
from cudnn_convert.weights import npz_archive

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_ZIP: Final = b"PK\x03\x04"
#: TensorFlow Lite's file identifier, after the offset of its root table (tensorflow v2.21 schema.fbs).
_TFLITE: Final = b"TFL3"


@silence()
def open_file(path: Path, *, where: str, signature: str | None) -> Side:
    """The side of a file or folder. Raises UsageError for what is none, ReadError where it does not load."""
    try:
        if path.is_file() and path.name != "saved_model.pb":
            return _file(path, where, signature)
        return _folder(path, where, signature)
    except CudnnConvertError:
        raise
    except Exception as cause:  # each library has exceptions of its own
        raise ReadError(path, "file", expected="a model that loads", found=first_line(cause)) from cause


def _folder(path: Path, where: str, signature: str | None) -> Side:
    """What is more than a file, or nothing."""
    from cudnn_convert.artifacts import origin

    try:
        form, artifact, provenance = origin.identify(path)
    except ReadError as cause:
        if cause.path != str(path):
            raise
        raise _unknown(path, where, "something else" if path.exists() else "nothing") from cause
    if (artifact / "saved_model.pb").is_file():
        return _open_saved_model(artifact, signature)
    if artifact.is_dir():
        parts = {file.stem: file for file in sorted(artifact.glob(f"*{FORMATS[form].suffix}"))}
        return _file(parts[choose_signature(str(artifact), signature, parts)], where, None, signed=True)
    if not FORMATS[form].names_tensors:
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
        return sides.of_hdf5(path, where)
    if head[:4] == _ZIP:
        with zipfile.ZipFile(path) as archive:
            is_model = "config.json" in archive.namelist()
        return sides.of_archive(path) if is_model else _answers(path)
    part = _onnx(path)
    if part is None:
        ends = "a graph that does not say what its inputs and outputs are"
        raise _unknown(path, where, ends if path.suffix == ".pb" else "something else")
    return _by_runner("onnx", path, part, signed=signed)


def _unknown(path: Path, where: str, actual: str) -> UsageError:
    kinds = "a SavedModel, an ONNX, TensorFlow Lite or Keras file, an .npz of answers or an OUT folder"
    return UsageError(f"{where} {path}: expected {kinds}, found {actual}; load it, and give a function")


def choose_signature(where: str, signature: str | None, there: Collection[str]) -> str:
    """The signature asked for, the usual one, or the only one. Raises UsageError."""
    wanted = signature or (SERVING if SERVING in there or len(there) != 1 else next(iter(there)))
    if wanted in there:
        return wanted
    listed = ", ".join(sorted(there)) or "none"
    raise UsageError(f"{where}: signatures: expected {wanted}, found {listed}; choose with signature=")


def _by_runner(form: str, path: Path, part: Part, *, signed: bool = False) -> Side:
    """An artifact as the verification runs it: as its user will."""
    from cudnn_convert.artifacts import runners

    runner = runners.open_artifact(form, path, [part])
    taken = tuple(part.signature.inputs)
    return Side(form, str(path), runner, taken, signed=signed)


def _identity_signature(inputs: Collection[str], outputs: Collection[str]) -> Signature:
    return Signature({name: name for name in inputs}, {name: name for name in outputs})


def _open_saved_model(path: Path, signature: str | None) -> Side:
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    there = {
        name: definition for meta in saved.meta_graphs for name, definition in meta.signature_def.items()
    }
    there.pop("__saved_model_init_op", None)
    name = choose_signature(str(path), signature, there)
    part = Part(name, _identity_signature(there[name].inputs, there[name].outputs))
    return _by_runner("savedmodel", path, part, signed=True)


def _onnx(path: Path) -> Part | None:
    """What an ONNX file takes and gives; None for what is none: its bytes have no mark to know them by."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load_model(str(path), format="protobuf", load_external_data=False).graph
    except DecodeError:
        return None
    weights = {tensor.name for tensor in graph.initializer}
    taken = [end.name for end in graph.input if end.name not in weights]
    part = Part(SERVING, _identity_signature(taken, [end.name for end in graph.output]))
    return part if part.signature.outputs else None


def _tflite(path: Path, signature: str | None) -> Side:
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        interpreter = tf.lite.Interpreter(str(path))
    there = interpreter.get_signature_list()
    if there:
        name = choose_signature(str(path), signature, there)
        if name != choose_signature(str(path), None, there):
            cure = "give a function that calls it"
            raise UsageError(f"{path}: signatures: expected {SERVING} of several, found {name}; {cure}")
        signature_def = _identity_signature(there[name]["inputs"], there[name]["outputs"])
    else:
        ends = interpreter.get_input_details(), interpreter.get_output_details()
        signature_def = _identity_signature(*([tensor["name"] for tensor in end] for end in ends))
    return _by_runner("tflite", path, Part(SERVING, signature_def), signed=bool(there))


def _answers(path: Path) -> Side:
    """Answers in an `.npz`: those of `record`, or arrays named `feed0/KEY`."""
    arrays = npz_archive.load_user_arrays(path, flag="answers")
    if not sides.is_recording(arrays):
        side = sides.replay_answers(str(path), npz_archive.calls(arrays, where=str(path)))
        return Side("arrays", str(path), side.run, calls=side.calls)
    from cudnn_convert.verification import recordings
    from cudnn_convert.verification.recordings import Golden

    recording = recordings.read_recording(path)
    side, golden = sides.replay_answers(str(path), recording.answers), Golden(recording, (), ())
    return Side(
        "recording", str(path), side.run, calls=side.calls, recording=golden.facts, bound=golden.bound
    )
