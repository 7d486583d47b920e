"""Runs an artifact as its user does: TensorFlow, ONNX Runtime, TFLite, Keras.

Each runtime is imported by what needs it.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import pair_names
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError, first_line
from cudnn_convert.formats import FORMATS, part_file
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.model import SERVING, Array, Part

#: The formats whose loaders do what a file says, or follow where it points.
_LOADERS: Final = frozenset({"savedmodel", "checkpoint", "frozen", "keras", "h5"})
#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


def run_saved_model(path: Path, parts: Sequence[Part]) -> list[Runner]:
    """A SavedModel folder through `tf.saved_model.load`; a Session alone would hide frame errors.

    Its parts share their variables, and so the state in them. A part that is no signature is a function.
    """
    import tensorflow as tf

    from cudnn_convert.artifacts import saved_functions

    loaded = tf.saved_model.load(str(path))
    beside = [part.name for part in parts if part.name not in loaded.signatures]
    others = saved_functions.open_functions(path, beside) if beside and len(parts) > 1 else {}

    def runner(part: Part) -> Runner:
        if part.name in others:
            return others[part.name]
        name = pair_names.signature(path, part.name, [*loaded.signatures])
        _, arguments = loaded.signatures[name].structured_input_signature
        named = pair_names.inputs(path, part.signature.inputs, arguments)

        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            # Through `loaded`, which owns the variables: a function alone does not keep them alive.
            given = {named[key]: tf.constant(value) for key, value in feeds.items()}
            outputs = loaded.signatures[name](**given)
            told = pair_names.keys(part.signature.outputs, outputs)
            return {told[key]: np.asarray(value) for key, value in outputs.items()}

        return run

    return [runner(part) for part in parts]


def checkpoint(path: Path, part: Part) -> Runner:
    """A checkpoint through `import_meta_graph` and the saver it gives, as TensorFlow 1's users do."""
    import tensorflow as tf

    from cudnn_convert.graph.session import answering

    made = tf.Graph()
    with made.as_default():
        saver = tf.compat.v1.train.import_meta_graph(f"{path}.meta")
        session = tf.compat.v1.Session()
        saver.restore(session, str(path))
    ops = {op.name for op in made.get_operations()}
    return answering(session, *pair_names.tensors(path, part.signature, ops))


def run_frozen(path: Path, part: Part) -> Runner:
    """A frozen graph in a Session, by the tensor names of the signature."""
    import tensorflow as tf

    from cudnn_convert.graph import node_defs
    from cudnn_convert.graph.session import answering

    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(path.read_bytes())
    made, ops = node_defs.import_graph(graph), {node.name for node in graph.node}
    session = tf.compat.v1.Session(graph=made)
    return answering(session, *pair_names.tensors(path, part.signature, ops))


def onnx(path: Path, part: Part) -> Runner:
    """An ONNX file in ONNX Runtime on the CPU; its names are the signature's keys."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its threads would otherwise take a processor while they wait for the next of a few calls.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        str(part_file(path, part.name)), options, providers=["CPUExecutionProvider"]
    )

    inputs = pair_names.inputs(path, part.signature.inputs, [found.name for found in session.get_inputs()])
    names = [output.name for output in session.get_outputs()]
    keys = pair_names.keys(part.signature.outputs, names)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values: list[Any] = session.run(names, {inputs[key]: value for key, value in feeds.items()})
        return {keys[name]: _bytes(value) for name, value in zip(names, values, strict=True)}

    return run


def _bytes(value: Any) -> Array:
    """An array whose strings are bytes, as TensorFlow has them; ONNX Runtime gives text."""
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return np.asarray(value)
    made = np.empty(value.shape, object)
    made[...] = np.frompyfunc(lambda one: one.encode() if isinstance(one, str) else one, 1, 1)(value)
    return made


def tflite(path: Path, part: Part) -> Runner:
    """A TensorFlow Lite file in TensorFlow's interpreter, by its signature; sizes follow the arrays.

    Raises ValueError where an op needs a kernel that the interpreter does not have: wheels since 2.20 lack
    the Flex delegate (google-ai-edge/LiteRT issue 6458).
    """
    import tensorflow as tf

    from cudnn_convert.artifacts import tflite_file

    file = part_file(path, part.name, ".tflite")
    if needed := tflite_file.flex_ops(file):
        raise ValueError(f"ops that this interpreter has no kernels for: {', '.join(needed)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        interpreter = tf.lite.Interpreter(str(file))
    signatures = interpreter.get_signature_list()
    if not signatures:
        made: Runner = pair_names.by_tensors(file, interpreter, part.signature.inputs, part.signature.outputs)
        return made
    name = part.name if part.name in signatures else SERVING
    runner = interpreter.get_signature_runner(pair_names.signature(file, name, signatures))
    dtypes = {key: told["dtype"] for key, told in runner.get_input_details().items()}

    inputs = pair_names.inputs(file, part.signature.inputs, dtypes)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: feeds[key].astype(dtypes[name]) for key, name in inputs.items()}
        found: dict[str, Array] = runner(**given)
        keys = pair_names.keys(part.signature.outputs, found)
        return {keys[name]: value for name, value in found.items()}

    return run


def keras(path: Path, part: Part, vouched: Vouched = NOTHING) -> Runner:
    """A `.keras` archive through Keras 3, up to where the source could be traced."""
    import keras as keras_3

    from cudnn_convert.keras import build_keras3
    from cudnn_convert.keras.config import classes, validate

    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    # A layer of tf_keras's own is no foreign one where what Keras 3 lacks of it is brought.
    own = {name: found for name, found in vouched.keras.items() if name in classes.BUILT_IN}
    known = replace(vouched, tf_keras={**vouched.tf_keras, **own})
    foreign, brought = validate.foreign(config, known), classes.by_all_names(vouched.keras, config)
    if foreign:
        model = build_keras3.load_until(path, foreign, brought)
    else:
        # Losses and metrics of its training are nothing that is run.
        model = keras_3.models.load_model(
            path, custom_objects=brought, safe_mode=not vouched.trust, compile=False
        )
    return _of_layers(path, model, [found.name for found in model.inputs], part)


def h5(path: Path, part: Part, vouched: Vouched = NOTHING) -> Runner:
    """An HDF5 file through tf_keras, up to the first layer that may not be built: the loader would run it."""
    import h5py
    import tf_keras

    from cudnn_convert.keras.config import classes, layer_tree, validate, values

    with h5py.File(path) as file:
        config = json.loads(file.attrs["model_config"])
    foreign, brought = validate.foreign(config, vouched), classes.by_all_names(vouched.tf_keras, config)
    if foreign or not validate.is_plain(config):
        kept = layer_tree.model_until(config, foreign) if foreign else config
        model = tf_keras.models.model_from_config(
            values.to_legacy_form(kept or config, kept=brought), brought
        )
        model.load_weights(path, by_name=True)
    else:
        model = tf_keras.models.load_model(path, brought, compile=False)
    return _of_layers(path, model, model.input_names, part)


def weights(path: Path, parts: Sequence[Part]) -> list[Runner]:
    """A file of weights, each recurrence computed as the file's documentation says."""
    from cudnn_convert.artifacts import weights

    return [*weights.open_weights(path, parts)]


@dataclass(frozen=True, slots=True)
class Layers:
    """A Keras model as it answers a batch; `keys` are those of its inputs, in their order."""

    model: Any
    keys: Sequence[str]
    part: Part

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        import tensorflow as tf

        given, outputs = [tf.constant(feeds[key]) for key in self.keys], self.part.signature.outputs
        found = tf.nest.flatten(self.model(given if len(given) > 1 else given[0], training=False))
        if len(found) != len(outputs):
            raise ValueError(f"{len(found)} outputs where {len(outputs)} are compared")
        return {key: np.asarray(value) for key, value in zip(outputs, found, strict=True)}


def _of_layers(path: Path, model: Any, names: Sequence[str], part: Part) -> Layers:
    """A Keras model, by the names of its inputs and the order of its outputs."""
    keys = {name: key for key, name in pair_names.inputs(path, part.signature.inputs, names).items()}
    return Layers(model, [keys[name] for name in names], part)


@dataclass(frozen=True, slots=True)
class Opened:
    """An artifact that answers by the keys of all its parts; `runners` has each part's own.

    Raises ReadError where a runtime refuses a call.
    """

    form: str
    path: Path
    runners: Sequence[tuple[Part, Runner]]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for part, runner in self.runners:
            fed = {key: feeds[part.prefix + key] for key in part.signature.inputs}
            try:
                with context.on(self.path):
                    answered = runner(fed)
            except Exception as cause:
                raise _refused(self.path, f"one that {self.form}'s runtime can run", cause) from cause
            found |= {part.prefix + key: value for key, value in answered.items()}
        return found


def examine(form: str, path: Path, parts: Sequence[Part], *, trust: bool = False) -> None:
    """Looks at an artifact as far as no runtime is needed for it, and raises what `open_artifact` does."""
    with _loading(form, path):
        if form == "tflite":
            from cudnn_convert.artifacts import tflite_file

            for part in parts:
                tflite_file.check_model(part_file(path, part.name, ".tflite"))
        if form in _LOADERS and not trust:
            from cudnn_convert.artifacts import safety

            safety.refuse(form, path, parts)


def open_artifact(form: str, path: Path, parts: Sequence[Part], vouched: Vouched = NOTHING) -> Opened:
    """The runner of an artifact. Raises ReadError where it does not load.

    Raises UnsupportedModelError where that or calling it would run more than arithmetic, unless trusted.
    """
    brought = (vouched,) if FORMATS[form].layers else ()
    examine(form, path, parts, trust=vouched.trust)
    with _loading(form, path), context.on(path):
        runners = [*zip(parts, RUNNERS[form](path, parts, *brought), strict=True)]
    return Opened(form, path, runners)


@contextmanager
def _loading(form: str, path: Path) -> Iterator[None]:
    """In this context what a runtime raises becomes a ReadError."""
    try:
        yield
    except (UsageError, UnsupportedModelError, ReadError):  # ours, which say more
        raise
    except Exception as cause:  # each runtime has exceptions of its own
        raise _refused(path, f"one that loads as {form}", cause) from cause


def _refused(path: Path, expected: str, cause: Exception) -> ReadError:
    return ReadError(path, "artifact", expected=expected, found=first_line(cause))


def _each(opener: Callable[..., Runner]) -> Callable[..., list[Runner]]:
    """The runners of formats whose parts have nothing in common."""
    return lambda path, parts, *brought: [opener(path, part, *brought) for part in parts]


RUNNERS: Final[Mapping[str, Callable[..., list[Runner]]]] = MappingProxyType(
    {
        "savedmodel": run_saved_model,
        "checkpoint": _each(checkpoint),
        "frozen": _each(run_frozen),
        "onnx": _each(onnx),
        "tflite": _each(tflite),
        "keras": _each(keras),
        "h5": _each(h5),
        "npz": weights,
        "safetensors": weights,
    }
)
