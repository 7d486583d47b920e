"""Artifacts of networks that real cuDNN ran, converted unproven: what cuDNN gave is their judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.model import Array, Mode
from support import graphs
from support.published_networks import OUTPUTS, Network
from support.recorded_networks import Recorded

#: Inputs and outputs by the names that decoded weights have them under (`numpy_user`).
BY_HAND: Final = {"x": "inputs", "h": "initial_h", "c": "initial_c", "lengths": "sequence_lengths"}
STATES: Final = dict(zip(OUTPUTS, ("outputs", "state_h", "state_c"), strict=True))


def write_frozen(network: Network | Recorded, folder: Path) -> Path:
    """Writes a frozen graph of one cuDNN node."""
    graph, _ = network.graph()
    for node in graph.node:
        if node.op == network.op and isinstance(network, Network):
            node.attr["dropout"].f = network.dropout  # at inference there is none
    (folder / "model.pb").write_bytes(graph.SerializeToString())
    return folder / "model.pb"


def write_checkpoint(network: Network, folder: Path) -> Path:
    """Writes a TensorFlow 1 checkpoint with its MetaGraph: the node's parameters are a variable."""
    blob = network.blob
    with graphs.drawing() as graph:
        network.op_call(*network.placeholders(), params=graphs.variable("opaque_kernel", blob.shape))
    return graphs.saved(folder, graph, {"opaque_kernel": blob})


def prepare_job(network: Network, source: Path, form: str, out: Path) -> dict[str, Any]:
    """Converts `source` to `out`; gives what a user's process is to run on inputs of 1.

    The user who computes by hand does so for one row of the batch, the others for up to eight.
    """
    feeds = network.fill_ones(1 if form == "npz" else min(8, network.batch))
    return convert_for_user(network, source, form, out, [feeds])


def convert_for_user(
    network: Network | Recorded, source: Path, form: str, out: Path, feeds: Sequence[Mapping[str, Array]]
) -> dict[str, Any]:
    """Converts `source`, which has the network's node, to `out`; gives what a user's process is to run.

    `feeds` are by x, h, c and, for V3, lengths.
    """
    by_hand = form == "npz"
    fetched = ",".join(f"{name}=rnn:{k}" for k, name in enumerate(network.outputs))
    cudnn_convert.convert(source, out, format=form, verify=False, outputs=() if by_hand else fetched)
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    given = [dict(feed) for feed in feeds]
    if network.mode is not Mode.LSTM:
        for feed in given:
            feed["c"] = np.zeros([], np.float32)  # the op takes any number there, and leaves it alone
    if by_hand:
        names = {
            "inputs": {BY_HAND[key]: {"source": key} for key in given[0] if given[0][key].ndim},
            "outputs": {},
        }
    else:
        names = {
            kind: {key: {"source": key, "artifact": recorded["tensors"][kind][key]} for key in recorded[kind]}
            for kind in ("inputs", "outputs")
        }
    golden, answers = (out.with_name(f"{out.name}.{end}.npz") for end in ("golden", "answers"))
    np.savez(
        golden, **{f"feed{k}/{key}": value for k, feed in enumerate(given) for key, value in feed.items()}
    )
    return {"artifact": str(path), "format": form, "golden": str(golden), "answers": str(answers), **names}


def read_answers(network: Network | Recorded, job: Mapping[str, Any]) -> list[dict[str, Array]]:
    """What the user's process stored: y, hy and cy of each feed."""
    keys = STATES if job["format"] == "npz" else {name: name for name in OUTPUTS}
    with np.load(job["golden"]) as golden, np.load(job["answers"]) as answers:
        count = len({key.split("/")[0] for key in golden})
        return [{name: answers[f"feed{k}/{keys[name]}"] for name in network.outputs} for k in range(count)]


def compare_answers(network: Network, job: dict[str, Any]) -> dict[str, float]:
    """As `Network.compare`, of what the user's process stored."""
    (answers,) = read_answers(network, job)
    return network.compare(answers)


class Repaired:
    """A SavedModel of TensorFlow 2 with one cuDNN node whose parameters are a variable, repaired."""

    def __init__(self, network: Network | Recorded, lowering: str, folder: Path) -> None:
        module = tf.Module()
        module.blob = tf.Variable(network.blob)

        @tf.function
        def call(x: Any, h: Any, c: Any, lengths: Any = None) -> dict[str, Any]:
            outputs = network.op_call(x, h, c, lengths, params=module.blob)
            return {name: outputs[k] for k, name in enumerate(network.outputs)}

        widths = {"x": network.inputs, "h": network.sizes.width, "c": network.units}
        specs = {
            key: tf.TensorSpec([None if key == "x" else network.depth, None, width])
            for key, width in widths.items()
        }
        if network.op == "CudnnRNNV3":
            specs["lengths"] = tf.TensorSpec([None], tf.int32)
        tf.saved_model.save(module, str(folder / "in"), signatures=call.get_concrete_function(**specs))
        cudnn_convert.convert(folder / "in", folder / "out", verify=False, lowering=lowering)
        self._loaded = tf.saved_model.load(str(folder / "out"))
        self._function = self._loaded.signatures["serving_default"]
        (self._blob,) = self._function.trainable_variables

    def measure_gradients(
        self, given: Mapping[str, Array], factors: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Gradients of the sum of all outputs times `factors` (1), by input, each of its shape."""
        self._blob.assign(given["w"])
        inputs = {key: tf.constant(value) for key, value in given.items() if key != "w"}
        watched = {key: value for key, value in inputs.items() if value.dtype.is_floating}
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = self._function(**inputs)
            weighted = [value if factors is None else value * factors[key] for key, value in outputs.items()]
            total = tf.add_n([tf.reduce_sum(value) for value in weighted])
        gradients = tape.gradient(
            total, watched | {"w": self._blob}, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return {key: value.numpy().astype(np.float64) for key, value in gradients.items()}
