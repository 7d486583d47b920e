"""Files that are not converted, or compared, without a question: weights alone, and what other tools make."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.model import Mode
from support.asking_graphs import acting, drawn, of
from support.command_line import command
from support.keras_nodes import INPUTS, UNITS, Layer, recurrence
from support.samples import Fixture, fixture

Values = dict[str, np.ndarray]


def weights(folder: Path, **values: Any) -> Path:
    """A checkpoint without its graph."""
    prefix, names = str(folder / "model.ckpt"), sorted(values)
    tensors = [tf.constant(np.asarray(values[name])) for name in names]
    blanks = [""] * len(names)
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=blanks, tensors=tensors)
    return Path(prefix)


def two_blobs(folder: Path) -> Path:
    shape = (Mode.GRU, 1, 5, 1, 4)
    return weights(folder, first=of(*shape), second=2 * of(*shape))


def basic_cell(folder: Path, scope: str = "encoder") -> Path:
    """Kernel and bias of a cell that is tanh's or relu's."""
    key = f"{scope}/rnn/multi_rnn_cell/cell_0/basic_rnn_cell"
    return weights(folder, **{f"{key}/kernel": drawn(9, 5), f"{key}/bias": drawn(5)})


def basic_cell_of_relu(folder: Path) -> Path:
    return basic_cell(folder, "cudnn_rnn_relu_1")


def of_a_strange_name(folder: Path) -> Path:
    key = "ein Kodierer/rnn/multi_rnn_cell/cell_0/basic_rnn_cell"
    return weights(folder, **{f"{key}/kernel": drawn(9, 5), f"{key}/bias": drawn(5)})


def graphless(name: str) -> Callable[[Path], Path]:
    """A sample without its MetaGraph."""

    def made(folder: Path) -> Path:
        ignored = shutil.ignore_patterns("*.meta")
        shutil.copytree(fixture(name).folder, folder, ignore=ignored, dirs_exist_ok=True)
        return folder / "model.ckpt"

    return made


def called_with_any_blob(folder: Path) -> Path:
    """A SavedModel of TensorFlow 2; a function beside its signature counts, and is told its parameters."""
    module, specs = Layer("lstm"), [tf.TensorSpec([None, None, INPUTS], name="x")]
    call = tf.function(lambda x: {"y": recurrence(x, "lstm", module.blob())}, specs, autograph=False)
    specs = [*specs, tf.TensorSpec([None], name="blob")]
    module.count = tf.Variable(0.0)

    def other(x: Any, params: Any) -> Any:
        module.count.assign_add(1.0)
        return recurrence(x, "lstm", params)

    module.other = tf.function(other, specs, autograph=False)
    tf.saved_model.save(module, str(folder / "model"), signatures=call)
    return folder / "model"


def called_with_two_sizes(folder: Path) -> Path:
    """One function of a SavedModel, called by two signatures with inputs of two widths."""
    module, specs = tf.Module(), [tf.TensorSpec(None), tf.TensorSpec([None])]
    inner = tf.function(lambda x, params: recurrence(x, "gru", params), specs, autograph=False)

    def signature(width: int) -> Any:
        held = tf.Variable(of(Mode.GRU, 1, UNITS, 1, width))
        setattr(module, f"held_{width}", held)
        call = lambda x: {"y": tf.ensure_shape(inner(x, tf.identity(held)), [None, None, UNITS])}  # noqa: E731
        return tf.function(call, [tf.TensorSpec([None, None, width], name="x")], autograph=False)

    signatures = {"serving_default": signature(INPUTS), "wide": signature(INPUTS + 2)}
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    return folder / "model"


def blob_of_a_gru(folder: Path) -> Path:
    return weights(folder, **{"cudnn_rnn_tanh/opaque_kernel": of(Mode.GRU, 1, 5, 1, 4)})


def rewritten(sample: Fixture, folder: Path, change: Callable[[Values], Values]) -> Path:
    """A copy of a sample's checkpoint with other values."""
    shutil.copytree(sample.folder, folder, dirs_exist_ok=True)
    prefix = folder / "model.ckpt"
    reader = tf.train.load_checkpoint(str(prefix))
    values = change({key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()})
    return weights(folder, **values)


def columns(value: np.ndarray, order: list[int]) -> np.ndarray:
    """The blocks of the last axis, one a gate, in another order."""
    blocks = np.split(value, len(order), axis=-1)
    return np.concatenate([blocks[k] for k in order], axis=-1)


def without_forget_bias(values: Values) -> Values:
    """As Magenta's saveable writes them: 1 less in the forget gate, for a cell that adds 1."""
    shift = np.repeat(np.float32([0, 0, 1, 0]), 5)
    return {key: value - shift if key.endswith("cell/bias") else value for key, value in values.items()}


def lingvo(values: Values) -> Values:
    """Canonical kernels as c, i, f, o."""
    return {
        key: columns(value, [1, 0, 2, 3]) if key.endswith(("cell/kernel", "cell/bias")) else value
        for key, value in values.items()
    }


def doubled(values: Values) -> Values:
    """One copy of the weights is another model's."""
    return {key: value * 2 if key.endswith("opaque_kernel") else value for key, value in values.items()}


def in_two_scopes(values: Values) -> Values:
    """The canonical keys under two scopes, neither of them that of the blob."""
    found = {key: value for key, value in values.items() if "cudnn_compatible" not in key}
    canonical = {key.partition("/")[2]: value for key, value in values.items() if key not in found}
    return found | {f"{scope}/{key}": value for scope in ("one", "two") for key, value in canonical.items()}


def of_sample(name: str, change: Callable[[Values], Values]) -> Callable[[Path], Path]:
    return lambda folder: rewritten(fixture(name), folder, change)


def examples(path: Path) -> None:
    """Serialized tf.Examples of the Estimator's sample."""
    (feed, *_) = fixture("1.15.5-estimator_examples").feeds()
    stored = feed["input_example_tensor:0"]
    made = np.empty(len(stored), object)
    made[:] = [bytes(one) for one in stored]
    np.savez(path, inputs=made)


def acting_artifact(out: Path) -> None:
    """What `acting` becomes: it writes a file too."""
    source = out.with_name("acting_source")
    source.mkdir()
    assert command(acting(source), out, "--outputs", "scores", "--no-verify").code == 0


def named_otherwise(source: Path, path: Path) -> None:
    """A file of ONNX as another tool may make it, whose input is called `features`."""
    assert command(source, path, "--format", "onnx", "--no-verify").code == 0
    made = onnx.load(str(path))
    del made.metadata_props[:]
    made.graph.input[0].name = "features"
    for node in made.graph.node:
        node.input[:] = ["features" if name == "x" else name for name in node.input]
    onnx.save(made, str(path))


def frozen_otherwise(source: Path, path: Path) -> None:
    """The same as a frozen graph."""
    assert command(source, path, "--format", "frozen", "--no-verify").code == 0
    made = graph_pb2.GraphDef.FromString(path.read_bytes())
    nodes = [node for node in made.node if node.name != "cudnn_convert"]
    for node in nodes:
        node.name = "features" if node.name == "x" else node.name
        node.input[:] = [re.sub(r"^(\^?)x(:0)?$", r"\1features", name) for name in node.input]
    path.write_bytes(
        graph_pb2.GraphDef(node=nodes, library=made.library, versions=made.versions).SerializeToString()
    )


def two_signatures(source: Path, folder: Path) -> None:
    """A SavedModel as another tool may make it, with the signatures a and b."""
    assert command(source, folder, "--no-verify").code == 0
    path = folder / "saved_model.pb"
    made = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (meta,) = made.meta_graphs
    for key in "ab":
        meta.signature_def[key].CopyFrom(meta.signature_def["serving_default"])
    del meta.signature_def["serving_default"]
    path.write_bytes(made.SerializeToString())
    (folder / "conversion.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "assets.extra", ignore_errors=True)


def stored(_: Path) -> Path:
    """The address of a checkpoint in fsspec's memory."""
    import fsspec

    store = fsspec.filesystem("memory")
    for path in fixture("1.15.5-v3_batch_major").folder.glob("model.ckpt*"):
        store.pipe_file(f"/asked/{path.name}", path.read_bytes())
    return Path("memory://asked/model.ckpt")
