"""Artifacts of the published networks, converted unproven: the published figures are their judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

import cudnn_convert
from cudnn_convert.artifacts import origin
from cudnn_convert.model import Mode
from support import graphs
from support.published_networks import OUTPUTS, Network

#: Inputs and outputs by the names that decoded weights have them under (`numpy_user`).
BY_HAND: Final = {"x": "inputs", "h": "initial_h", "c": "initial_c", "lengths": "sequence_lengths"}
STATES: Final = dict(zip(OUTPUTS, ("outputs", "state_h", "state_c"), strict=True))


def write_frozen(network: Network, folder: Path) -> Path:
    """Writes a frozen graph of one cuDNN node."""
    graph, _ = network.graph()
    for node in graph.node:
        if node.op == network.op:
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
    by_hand = form == "npz"
    fetched = ",".join(f"{name}=rnn:{k}" for k, name in enumerate(network.outputs))
    cudnn_convert.convert(source, out, format=form, verify=False, outputs=() if by_hand else fetched)
    _, path, recorded = origin.identify(out)
    assert recorded is not None
    feeds = network.fill_ones(1 if by_hand else min(8, network.batch))
    if network.mode is not Mode.LSTM:
        feeds["c"] = np.zeros([], np.float32)  # the op takes any number there, and leaves it alone
    if by_hand:
        names = {"inputs": {BY_HAND[key]: {"source": key} for key in feeds if feeds[key].ndim}, "outputs": {}}
    else:
        names = {
            kind: {key: {"source": key, "artifact": recorded["tensors"][kind][key]} for key in recorded[kind]}
            for kind in ("inputs", "outputs")
        }
    golden, answers = (out.with_name(f"{out.name}.{end}.npz") for end in ("golden", "answers"))
    np.savez(golden, **{f"feed0/{key}": value for key, value in feeds.items()})
    return {"artifact": str(path), "format": form, "golden": str(golden), "answers": str(answers), **names}


def compare_answers(network: Network, job: dict[str, Any]) -> dict[str, float]:
    """As `Network.compare`, of what the user's process stored."""
    keys = STATES if job["format"] == "npz" else {name: name for name in OUTPUTS}
    with np.load(job["answers"]) as answers:
        return network.compare({name: answers[f"feed0/{keys[name]}"] for name in network.outputs})
