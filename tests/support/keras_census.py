"""The census of Keras' layers: what each writer answered, and what the tool makes of its files."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph, copy_graph, prune
from cudnn_convert.graph.session import session
from cudnn_convert.keras import trace
from cudnn_convert.lower.tensorflow import lower
from cudnn_convert.model import SERVING, Array, Model
from cudnn_convert.read import keras_hdf5
from cudnn_convert.recurrences import resolve
from cudnn_convert.report.values import OpDifference
from cudnn_convert.verification import traced_layers
from cudnn_convert.verification.judges import Draw, RunningSource

ARCHIVE: Final = Path(__file__).resolve().parents[1] / "data" / "keras_census.tar.xz"
WRITERS: Final = (
    *("keras-2.0.9", "keras-2.1.6", "keras-2.2.4", "keras-2.3.1"),
    *(f"tf.keras-{version}" for version in ("1.4.1", "1.8.0", "1.12.3", "1.13.2", "1.14.0", "1.15.5")),
    *(f"tf.keras-{version}" for version in ("2.3.4", "2.8.4", "2.13.1", "2.15.1")),
)
#: Answers in float32 of two orders of addition, relative to the largest value.
_BOUND: Final = 2e-5
_OWN = "expected a layer of Keras itself"
_BUILD = "expected a model that tf_keras can build"
_LOST = "off, of"
#: What is refused, or not held by the file, by the beginnings of the case's and the writer's name.
KNOWN: Final = {
    ("BatchNormalization_renorm", "tf.keras-1.1"): "expected 7 weights, found 8",
    ("BatchNormalization_renorm", "tf.keras-1.4"): "expected 7 weights, found 8",
    ("BatchNormalization_renorm", "tf.keras-1.8"): "expected 7 weights, found 8",
    ("BatchNormalization_virtual", "tf.keras"): "Invalid value for `axis` argument",
    **{
        (name, "keras-2.0.9"): _BUILD
        for name in "GRUCell LSTMCell SimpleRNNCell stacked_ stateful_stacked masked_stacked_".split()
    },
    **{(f"masked_{name}Cell", "keras-2.0.9"): _BUILD for name in ("GRU", "LSTM", "SimpleRNN")},
    ("Random", "tf.keras-2"): _OWN,
    # The writer computed with what its layer held before its weights were set; a loaded model does not.
    ("Normalization_weights", "tf.keras-2"): _LOST,
    **{("UpSampling2D_bilinear", f"tf.keras-1.{minor}"): _LOST for minor in (13, 14)},
    **{
        (name, f"tf.keras-2.{minor}"): _LOST
        for name in ("Attention_causal", "AdditiveAttention_causal")
        for minor in (13, 15)
    },
    ("SeparableConv2D_dilation_same", "tf.keras-1.4"): _LOST,
    ("SeparableConv2D_dilation_valid", "tf.keras-1.4"): "shape (3, 5, 4, 2), expected (3, 4, 3, 2)",
    # Files of TensorFlow 1.13 and 1.14 may be alike; the tool computes as 1.14.
    **{
        (name, "tf.keras-1.13"): _LOST
        for name in "between_ActivityRegularization nested_model_ nested_sequential_makes_mask".split()
    },
}
#: A case of each difference of keras/config/differences.py, and who wrote it.
WITNESSES: Final = {
    "first_state_at_masked_steps": ("tf.keras-1.12.3", "masked_LSTM_begun"),
    "last_output_at_masked_steps": ("keras-2.3.1", "masked_Bidirectional_concat_steps"),
    "bidirectional_without_states": ("tf.keras-1.15.5", "masked_stateful_Bidirectional"),
    "stacked_states_reversed": ("keras-2.1.6", "masked_stacked_same_begun"),
    "bilinear_from_corners": ("keras-2.3.1", "UpSampling2D_bilinear"),
    "dot_of_leading_axes": ("tf.keras-1.15.5", "Dot_32_254_243"),
    "softmax_without_mask": ("keras-2.2.4", "between_Softmax"),
    "time_distributed_without_mask": ("keras-2.1.6", "masked_TimeDistributed_LSTM"),
    "attention_without_mask": ("tf.keras-2.8.4", "MultiHeadAttention_then_LSTM"),
    "group_normalization_without_mask": ("tf.keras-2.13.1", "between_GroupNormalization"),
    "relu_without_mask": ("tf.keras-2.3.4", "between_ReLU"),
    "regularization_without_mask": ("tf.keras-1.12.3", "between_ActivityRegularization"),
    "model_without_mask": ("tf.keras-1.12.3", "nested_model_makes_mask"),
    "transposed_without_dilation": ("tf.keras-1.12.3", "Conv2DTranspose_dilation_same"),
    "last_output_of_padding": ("tf.keras-1.13.2", "masked_Bidirectional_concat_last"),
    "transposed_as_convolution": ("tf.keras-1.4.1", "Conv3DTranspose_valid_2"),
    "epsilon_of_cudnn": ("tf.keras-2.8.4", "BatchNormalization_no_scale"),
}
_REFUSED: Final = "refused: "
_MEMBERS: Final = ("golden.npz", "model.h5")

Members = Mapping[str, bytes]


@cache
def case(writer: str, name: str) -> Members:
    """The members of one case; the first ones of the archive are found without reading the others."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for info in archive:
            if info.name.startswith(f"{writer}/{name}/"):
                found[Path(info.name).name] = _content(archive, info)
                if len(found) == len(_MEMBERS):
                    return found
    raise KeyError(f"{writer}/{name}")


@cache
def cases(path: Path = ARCHIVE) -> Mapping[str, Mapping[str, Members]]:
    """The members of each case of an archive, by the writer and the case's name."""
    found: dict[str, dict[str, dict[str, bytes]]] = defaultdict(lambda: defaultdict(dict))
    with tarfile.open(path) as archive:
        for info in archive:
            writer, case, member = info.name.split("/")
            found[writer][case][member] = _content(archive, info)
    return {writer: dict(listed) for writer, listed in found.items()}


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(info)
    assert content is not None
    return content.read()


def read(members: Members, folder: Path) -> Model:
    """The model of a case, as its file in `folder` has it."""
    path = folder / "model.h5"
    path.write_bytes(members["model.h5"])
    return keras_hdf5.read(path)


def feeds(members: Members) -> Iterator[tuple[list[Array], list[Array]]]:
    """Inputs and answers of each feed, in order."""
    with np.load(io.BytesIO(members["golden.npz"])) as golden:
        for number in range(4):
            given, answered = (
                [golden[name] for name in sorted(golden.files) if name.startswith(f"feed{number}/{kind}/")]
                for kind in ("in", "out")
            )
            yield given, answered


def on_a_cpu(traced: Model) -> Model:
    """A traced model with ops of a CPU in the place of cuDNN's."""
    graph = Graph(traced.graph)
    kept = traced.signatures[SERVING].tensors
    lowered = lower.lower(graph, resolve.recurrences(traced, graph), traced.variables, outputs=kept)
    return replace(traced, graph=copy_graph(lowered.graph), variables=lowered.variables)


def differs(traced: Model, members: Members) -> str | None:
    """Where a traced model answers otherwise than its writer; the calls are in a row, with states."""
    traced = on_a_cpu(traced)
    signature = traced.signatures[SERVING]
    with session(traced.graph, traced.variables) as opened:
        given = [opened.graph.get_tensor_by_name(name) for name in signature.inputs.values()]
        asked = [*signature.outputs.values()]
        for number, (inputs, expected) in enumerate(feeds(members)):
            fed = {
                tensor: value.astype(tensor.dtype.as_numpy_dtype)
                for tensor, value in zip(given, inputs, strict=True)
            }
            for answer, value in zip(opened.run(asked, fed), expected, strict=True):
                if text := difference(answer, value):
                    return f"feed {number}: {text}"
    return None


def find_other_layer(traced: Model, members: Members) -> OpDifference | None:
    """The first layer that does not answer as its equation in float64."""
    traced = on_a_cpu(traced)
    signature = traced.signatures[SERVING]
    ends = [name.partition(":")[0] for name in signature.tensors]
    ops = {node.name for node in prune(Graph(traced.graph), ends).node}
    inputs, _ = next(feeds(members))
    with session(traced.graph, traced.variables) as opened:
        given = {name: opened.graph.get_tensor_by_name(name) for name in signature.inputs.values()}
        feed = {
            name: value.astype(tensor.dtype.as_numpy_dtype)
            for (name, tensor), value in zip(given.items(), inputs, strict=True)
        }
        source = RunningSource(
            lambda values, names: opened.run([*names], dict(values)), [], lambda: None, Draw()
        )
        return traced_layers.find_difference(traced, ops, source, feed, seed=3)


def difference(found: Array, expected: Array) -> str | None:
    """By how much an answer differs from the writer's, or its shape; None where it agrees."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    found, expected = (np.asarray(value, np.float64) for value in (found, expected))
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    if np.allclose(found, expected, rtol=0, atol=_BOUND * scale, equal_nan=True):
        return None
    return f"{np.nanmax(np.abs(found - expected)):.3g} off, of {scale:.3g}"


def check(writer: str) -> dict[str, str]:
    """What is wrong or refused, by the case."""
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, members in cases()[writer].items():
            try:
                traced = trace.trace_model(read(members, Path(folder)))
                outcome = differs(traced, members)
                other = None if outcome else find_other_layer(traced, members)
                outcome = f"{other.tensor}: {other.message}" if other else outcome
            except UnsupportedModelError as refusal:
                outcome = f"{_REFUSED}{refusal}"
            except tf.errors.OpError as failure:
                outcome = f"does not run: {failure.message}"
            if outcome is not None:
                outcomes[name] = outcome
    return outcomes


def kind(writer: str, name: str, outcome: str) -> str:
    """Whether a case that is not right was refused, is lost in its file (`KNOWN`), or is wrong."""
    if outcome.startswith(_REFUSED):
        return "refused"
    return "lost" if is_known(writer, name, outcome) else "wrong"


def is_known(writer: str, name: str, outcome: str) -> bool:
    """Whether a case is among those of `KNOWN`."""
    return any(
        name.startswith(case) and writer.startswith(start) and text in outcome
        for (case, start), text in KNOWN.items()
    )
