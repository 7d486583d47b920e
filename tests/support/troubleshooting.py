"""The paragraphs of docs/troubleshooting/, each with its files, its failures and what a user runs after.

Used by test_troubleshooting.py; failures.py has the failures.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from support import asking_keras, keras_public
from support.command_line import command
from support.keras3_samples import Export, exported
from support.keras_samples import keras_fixture
from support.samples import ROOT, Fixture, fixture

DOCS: Final = ROOT / "docs"
PAGES: Final = (DOCS / "troubleshooting.md", *sorted((DOCS / "troubleshooting").glob("*.md")))
TAGGER: Final = fixture("1.15.5-bilstm_tagger")
MASKED: Final = exported("keras-3.15.1-masked")
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def paragraphs() -> dict[str, list[tuple[list[str], list[str]]]]:
    """By heading, the commands in words, each with the lines that are shown of what it prints."""
    found: dict[str, list[tuple[list[str], list[str]]]] = {}
    text = "".join(page.read_text() for page in PAGES)
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, below = part.partition("\n")
        heading = heading.replace("`", "")
        for block in _BLOCK.findall(below):
            for line in block.splitlines():
                if line.startswith("$ "):
                    found.setdefault(heading, []).append((shlex.split(line[2:]), []))
                else:
                    found[heading][-1][1].append(line)
    return found


PARAGRAPHS: Final = paragraphs()


def checkpoint(sample: Fixture, under: str = ".") -> Callable[[Path], None]:
    """The files of a checkpoint as `model.ckpt`."""

    def copied(folder: Path) -> None:
        (folder / under).mkdir(exist_ok=True)
        for path in (*sample.folder.glob("model.ckpt*"), *sample.folder.glob("checkpoint")):
            shutil.copy(path, folder / under)

    return copied


def without_a_graph(folder: Path) -> None:
    checkpoint(TAGGER, "weights")(folder)
    (folder / "weights" / "model.ckpt.meta").unlink()


def copied(path: Path, name: str) -> Callable[[Path], None]:
    """A file or folder under the name that the page has for it."""
    if path.is_dir():
        return lambda folder: shutil.copytree(path, folder / name) and None
    return lambda folder: shutil.copy(path, folder / name) and None


def public(writer: str, name: str) -> list[Callable[[Path], None]]:
    """The file of a case of public models, with its architecture."""

    def write(folder: Path) -> None:
        for member, content in keras_public.cases()[writer][name].items():
            (folder / member).write_bytes(content)

    return [write]


def read_as_steps(folder: Path) -> None:
    """A frozen graph by hand that forgot to make its input time-major, and its output batch-major again."""
    import tensorflow as tf

    assert command(folder / "model.ckpt", folder / "right.pb", "--format", "frozen", "--quiet").code == 0
    graph = tf.compat.v1.GraphDef.FromString((folder / "right.pb").read_bytes())
    (folder / "right.pb").unlink()
    nodes = {node.name: node for node in graph.node}
    forgotten = 0
    for node in graph.node:
        if node.op == "Transpose" and nodes[node.input[1]].op == "Const":
            order = nodes[node.input[1]].attr["value"].tensor
            if tf.make_ndarray(order).tolist() == [1, 0, 2]:
                order.CopyFrom(tf.make_tensor_proto(np.int32([0, 1, 2])))
                forgotten += 1
    assert forgotten == 2
    (folder / "theirs.pb").write_bytes(graph.SerializeToString())


def job(
    artifact: str, form: str, sample: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """What a user runs; a name is a tensor of TensorFlow 1, whose key is the op's, or a key."""
    whole = form in ("frozen", "checkpoint")
    ends = [
        {
            name.removesuffix(":0").replace("/", "_"): {"source": name, "artifact": name if whole else None}
            for name in end
        }
        for end in (inputs, outputs)
    ]
    golden = str(sample.folder / "golden.npz")
    return {"artifact": artifact, "format": form, "golden": golden, "inputs": ends[0], "outputs": ends[1]}


def of(sample: Fixture, artifact: str, form: str) -> dict[str, Any]:
    return job(artifact, form, sample, sample.case["inputs"], sample.case["outputs"])


def of_keras(name: str, artifact: str, form: str) -> dict[str, Any]:
    sample = keras_fixture(name)
    return job(artifact, form, sample, sample.case["inputs"], sample.case["outputs"])


def of_export(sample: Export, artifact: str, form: str) -> dict[str, Any]:
    (signature,) = sample.signatures
    ends = signature.described
    return {**job(artifact, form, sample, ends["inputs"], ends["outputs"]), "golden": signature}


@dataclass(frozen=True)
class Paragraph:
    """The files that its commands need, the failures (a function of failures.py, and what it must say; ""
    where it says nothing), and what a user runs afterwards."""

    files: Sequence[Callable[[Path], None]]
    failures: Sequence[tuple[str, str]] = ()
    jobs: Sequence[dict[str, Any]] = ()
    after: Sequence[str] = field(default=())


LSTM: Final = exported("keras-3.15.1-lstm")
FROZEN: Final = fixture("1.15.5-frozen_binary")
DROPOUT: Final = fixture("1.15.5-dropout_needs_set")
HEADS: Final = fixture("1.15.5-two_heads")
LENGTHS: Final = fixture("1.15.5-v3_lengths_time_major")
PARAMS: Final = fixture("1.3.0-params_lstm_bi")
RECORDINGS: Final = ROOT / "tests" / "data" / "recordings"
_NO_KERNEL: Final = "No OpKernel was registered to support Op 'CudnnRNN"
_KEY: Final = (
    "Key stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias not found in "
    "checkpoint"
)
_SAVEABLE: Final = "The name 'cudnn_lstm/opaque_kernel_saveable' refers to an Operation not in the graph"
_FED: Final = (
    "Cannot interpret feed_dict key as Tensor: The name 'save_1/Const:0' refers to a Tensor which does "
    "not exist"
)
_PATH: Final = "The passed save_path is not a valid checkpoint: model.ckpt/"
_CONTRIB: Final = "module 'tensorflow' has no attribute 'contrib'"
_ARCHIVE: Final = "Could not deserialize 'keras.layers.CuDNNLSTM' because it is not a KerasSaveable subclass"
_DTYPE: Final = "GlorotUniform.__init__() got an unexpected keyword argument 'dtype'"
_SHAPE: Final = "Weight expects shape (20,). Received saved weight with shape (40,)"
_GRU: Final = "CuDNNGRU is not compatible with GRU(reset_after=False)"
_FLEX: Final = "'tf.CudnnRNNV3' op is neither a custom op nor a flex op"
_ONNX: Final = "No Op registered for CudnnRNNV3 with domain_version"
_TAGGER: Final = [of(TAGGER, "model_cpu", "savedmodel")]
_LOCATE: Final = "Could not locate class 'LSTM'. Make sure custom classes and functions are decorated"
_MSE: Final = "Could not deserialize 'keras.metrics.mse' because it is not a KerasSaveable subclass"
_PARENT: Final = (
    "Could not deserialize class 'Functional' because its parent module tf_keras.src.models.functional "
    "cannot be imported"
)
_H5: Final = [copied(keras_fixture("tf.keras-1.15.5-sequential_lstm").path, "model.h5")]
_IN_KERAS: Final = [of_keras("tf.keras-1.15.5-sequential_lstm", "model.keras", "keras")]
_EXPORTED: Final = [copied(LSTM.path, "saved_model")]

CASES: Final = {
    "Troubleshooting": Paragraph([checkpoint(TAGGER)]),
    f"{_NO_KERNEL}'": Paragraph(
        [copied(FROZEN.prefix, "model.pb")],
        [("frozen_graph", f"{_NO_KERNEL}'")],
        [of(FROZEN, "model_cpu", "savedmodel"), of(FROZEN, "model_cpu.pb", "frozen")],
    ),
    f"{_NO_KERNEL}CanonicalToParams'": Paragraph(
        [checkpoint(TAGGER)], [("initialization", f"{_NO_KERNEL}CanonicalToParams'")], _TAGGER
    ),
    # On a GPU: tests/recorder/test_tensorflow.py has what one said.
    "Failed to call DoRnnForward with model config, or: No algorithm worked!": Paragraph(
        [checkpoint(TAGGER)], (), _TAGGER
    ),
    _KEY: Paragraph(
        [checkpoint(TAGGER), checkpoint(fixture("1.15.5-raw_only"), "blob")],
        [("missing_keys", _KEY), ("missing_keys_of_a_blob_alone", _KEY)],
        _TAGGER,
        ["found_keys"],
    ),
    _SAVEABLE: Paragraph(
        [checkpoint(TAGGER)],
        [("import_meta_graph", _SAVEABLE)],
        [of(TAGGER, "model_cpu/model.ckpt", "checkpoint")],
    ),
    _FED: Paragraph([checkpoint(TAGGER)], [("another_graphs_saver", _FED)], _TAGGER),
    _PATH: Paragraph(
        [checkpoint(TAGGER)],
        [("trailing_slash", _PATH), ("the_folder_alone", "Unable to open table file .")],
        [*_TAGGER, of(TAGGER, "../model_cpu", "savedmodel")],
    ),
    _CONTRIB: Paragraph([checkpoint(TAGGER)], [("contrib", _CONTRIB)], _TAGGER),
    "Wrong outputs on the CPU, and no error": Paragraph([checkpoint(TAGGER), read_as_steps], (), _TAGGER),
    "The GPU and the CPU differ in the padded part": Paragraph(
        [copied(MASKED.path, "saved_model"), without_a_graph],
        (),
        [of_export(MASKED, "saved_model_cpu", "savedmodel")],
    ),
    "The GPU and the CPU differ in the third digit": Paragraph(
        [checkpoint(PARAMS), copied(RECORDINGS / "params_lstm_bi-1.4.1.npz", "golden.npz")],
        (),
        [of(PARAMS, "model_cpu", "savedmodel")],
    ),
    "CUDNN_STATUS_BAD_PARAM": Paragraph([checkpoint(LENGTHS)], (), [of(LENGTHS, "model_cpu", "savedmodel")]),
    "CudnnCompatibleLSTMCell is not faster than LSTMBlockCell": Paragraph(
        [checkpoint(TAGGER)], (), [of(TAGGER, "model.onnx", "onnx")]
    ),
    "expected no dropout at inference, found dropout that is on": Paragraph(
        [checkpoint(DROPOUT)], (), [of(DROPOUT, "model_cpu", "savedmodel")]
    ),
    "expected tensors of numbers at the end of the graph, and: outputs leave out": Paragraph(
        [checkpoint(HEADS)], (), [of(HEADS, "model_cpu", "savedmodel")]
    ),
    "Unknown layer: 'CuDNNLSTM'": Paragraph(
        _H5,
        [("load_in_keras_3", "Unknown layer: 'CuDNNLSTM'"), ("predict_in_tf_keras", _NO_KERNEL)],
        _IN_KERAS,
    ),
    _ARCHIVE: Paragraph(
        [copied(keras_fixture("tf_keras-2.21.0-archive_bidirectional").path, "model.keras")],
        [("load_in_keras_3", _ARCHIVE)],
        [of_keras("tf_keras-2.21.0-archive_bidirectional", "model_cpu.keras", "keras")],
    ),
    _DTYPE: Paragraph(_H5, [("another_class_in_keras_3", _DTYPE)], _IN_KERAS),
    _SHAPE: Paragraph(_H5, [("weights_in_keras_3", _SHAPE)], _IN_KERAS),
    _GRU: Paragraph(
        [copied(keras_fixture("keras-2.2.4-stateful_gru").path, "model.h5")],
        [("another_gru", _GRU)],
        [
            of_keras("keras-2.2.4-stateful_gru", "model.keras", "keras"),
            of_keras("keras-2.2.4-stateful_gru", "model_cpu.h5", "h5"),
        ],
    ),
    "Unrecognized keyword arguments passed to LSTM: 'time_major'": Paragraph(
        public("tf.keras-2.15.1", "char_rnn"),
        [("load_in_keras_3", "Unrecognized keyword arguments passed to LSTM: {'time_major': False}")],
        after=["load_archive_in_keras_3"],
    ),
    _LOCATE: Paragraph(
        public("keras-2.2.4", "imdb_bidirectional"),
        [("load_in_keras_3", _LOCATE)],
        after=["load_archive_in_keras_3"],
    ),
    "expected ndim=3, found ndim=4": Paragraph(
        public("keras-2.2.4", "char_rnn"),
        [("load_in_keras_3", "expected ndim=3, found ndim=4")],
        after=["load_archive_in_keras_3"],
    ),
    "Unrecognized keyword arguments: ['input_dtype']": Paragraph(
        public("keras-1.2.2", "babi"),
        [("load_in_tf_keras", "Unrecognized keyword arguments: ['input_dtype']")],
        after=["load_archive_in_keras_3"],
    ),
    "Unknown layer: 'NotEqual'": Paragraph(
        [lambda folder: asking_keras.keras_3(folder) and None],
        [("load_in_keras_3", "Unknown layer: 'NotEqual'")],
        after=["load_archive_in_keras_3"],
    ),
    _MSE: Paragraph(
        public("keras-3.3.3", "char_rnn"), [("load_in_keras_3", _MSE)], after=["load_archive_in_keras_3"]
    ),
    _PARENT: Paragraph(public("keras-3.3.3", "babi_archive"), [("load_in_tf_keras", _PARENT)]),
    "Requested the deserialization of a Lambda layer whose function is a Python lambda": Paragraph(
        public("keras-2.2.4", "siamese"),
        [
            (
                "load_in_keras_3",
                "Requested the deserialization of a `Lambda` layer whose `function` is a Python",
            )
        ],
    ),
    "Unknown layer: 'AttentionWithContext'": Paragraph(
        public("keras-3.3.3", "attention"), [("load_in_keras_3", "Unknown layer: 'AttentionWithContext'")]
    ),
    "No model config found in the file": Paragraph(
        public("keras-2.2.4", "weights_alone"),
        [("load_in_keras_3", "No model config found in the file")],
        after=["load_archive_in_keras_3"],
    ),
    f"{_NO_KERNEL}V3'": Paragraph(
        _EXPORTED,
        [("export_of_keras_3", f"{_NO_KERNEL}V3'")],
        [of_export(LSTM, "saved_model_cpu", "savedmodel")],
    ),
    _FLEX: Paragraph(_EXPORTED, [("tflite", _FLEX)], [of_export(LSTM, "model.tflite", "tflite")]),
    _ONNX: Paragraph(
        [*_EXPORTED, copied(FROZEN.prefix, "model.pb")],
        [("onnx", _ONNX), ("onnx_of_a_frozen_graph", "No Op registered for CudnnRNN with domain_version")],
        [of_export(LSTM, "model.onnx", "onnx")],
    ),
    "My SavedModel is full of CudnnRNNV3, but it runs": Paragraph(
        [copied(exported("tf_keras-2.21.0-portable").path, "saved_model")], [("portable", "")]
    ),
}
