"""Opens a TensorFlow Lite file in TensorFlow's interpreter, by its signature."""

import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import origin, runners, tflite_file
from cudnn_convert.errors import ReadError
from cudnn_convert.formats import part_file
from cudnn_convert.model import SERVING, Array, Part, Signature


def provenance(path: Path) -> dict[str, Any] | None:
    """What its metadata say of its origin."""
    try:
        text = tflite_file.tflite_provenance(path)
    except (struct.error, IndexError, TypeError, ValueError, AssertionError, AttributeError) as cause:
        raise ReadError(path, "file", expected="a TensorFlow Lite model", found="none") from cause
    return None if text is None else origin.parse(path, text)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Check the file of each part before the interpreter maps it.

    Raises ReadError where the interpreter would follow an offset out of the file.
    """
    for part in parts:
        tflite_file.check_model(part_file(path, part.name, ".tflite"))


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open the file of each part.

    Raises ValueError where an op needs a kernel that the interpreter does not have: wheels since 2.20 lack
    the Flex delegate (google-ai-edge/LiteRT issue 6458).
    """
    return [_open(part_file(path, part.name, ".tflite"), part) for part in parts]


def open_interpreter(**model: Any) -> Any:
    """TensorFlow's interpreter of a file, `model_path`, or of its bytes, `model_content`."""
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        return tf.lite.Interpreter(num_threads=context.threads(), **model)


def _open(file: Path, part: Part) -> runners.Runner:
    if needed := tflite_file.flex_ops(file):
        raise ValueError(f"ops that this interpreter has no kernels for: {', '.join(needed)}")
    interpreter = open_interpreter(model_path=str(file))
    signatures = interpreter.get_signature_list()
    if not signatures:
        return _by_tensors(file, interpreter, part)
    name = part.name if part.name in signatures else SERVING
    runner = interpreter.get_signature_runner(runners.choose_signature(file, name, signatures))
    dtypes = {key: detail["dtype"] for key, detail in runner.get_input_details().items()}
    inputs = runners.pair_inputs(file, part.signature.inputs, dtypes)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        answers: dict[str, Array] = runner(
            **{name: feeds[key].astype(dtypes[name]) for key, name in inputs.items()}
        )
        keys = runners.pair_outputs(part.signature.outputs, answers)
        return {keys[name]: value for name, value in answers.items()}

    return run


def _by_tensors(path: Path, interpreter: Any, part: Part) -> runners.Runner:
    """A runner of a file without signatures, by the names of its tensors."""
    takes = {detail["name"]: detail for detail in interpreter.get_input_details()}
    gives = {detail["name"]: detail for detail in interpreter.get_output_details()}
    inputs = runners.pair_inputs(path, part.signature.inputs, takes)
    keys = runners.pair_outputs(part.signature.outputs, gives)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        for key, name in inputs.items():
            interpreter.resize_tensor_input(takes[name]["index"], feeds[key].shape)
        interpreter.allocate_tensors()
        for key, name in inputs.items():
            interpreter.set_tensor(takes[name]["index"], feeds[key].astype(takes[name]["dtype"]))
        interpreter.invoke()
        return {
            keys[name]: np.array(interpreter.get_tensor(detail["index"])) for name, detail in gives.items()
        }

    return run


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """One for each file, by its signature, or by its tensors' names without one."""
    files = [path] if path.is_file() else [file for _, file in runners.files_of(path, ".tflite")]
    return [_interface(file, file.stem if path.is_dir() else SERVING) for file in files]


def _interface(file: Path, name: str) -> runners.Interface:
    tflite_file.check_model(file)
    interpreter = open_interpreter(model_path=str(file))
    if interpreter.get_signature_list():
        signature = runners.choose_signature(file, SERVING, interpreter.get_signature_list())
        runner = interpreter.get_signature_runner(signature)
        takes, gives = runner.get_input_details(), [*runner.get_output_details()]
    else:
        takes = {detail["name"]: detail for detail in interpreter.get_input_details()}
        gives = [detail["name"] for detail in interpreter.get_output_details()]
    specs = {
        key: runners.TensorSpec(
            np.dtype(detail["dtype"]), tuple(None if k < 0 else int(k) for k in detail["shape_signature"])
        )
        for key, detail in takes.items()
    }
    return runners.Interface(Part(name, Signature.of_names(specs, gives)), specs)


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """The constants of float32 in its graphs."""
    for prefix, file in runners.files_of(path, ".tflite"):
        model = tflite_file.unpack_model(file.read_bytes())
        for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
            data = model.buffers[tensor.buffer].data
            if data is not None and len(data) and tensor.type == 0:  # FLOAT32 of schema.fbs TensorType
                value = np.frombuffer(bytes(bytearray(data)), "<f4").reshape(tensor.shape)
                yield f"{prefix}{tensor.name.decode()}", value
