"""Networks that real cuDNN ran on a device, with what it computed of them (tests/data/cudnn).

`scripts/record_cudnn.py` made the files; they are read here without it. All calls are of float32, whose
products were not rounded to TF32.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from cudnn_convert.model import Array, Mode
from support.cases import Case, swapped
from support.published_networks import OUTPUTS
from support.samples import ROOT

FOLDER: Final = ROOT / "tests" / "data" / "cudnn"
#: What all calls that are read here have: calls of another size or math are left out.
PLAIN: Final = {"steps": 9, "batch": 8, "math": "fma"}


class Call(NamedTuple):
    """What one call was given, by the inputs of the op, and what cuDNN wrote, by y, hy and cy.

    x `[steps, batch, inputs]`, h and c `[layers*directions, batch, units]`, lengths int32 `[batch]`;
    y `[steps, batch, directions*units]`, hy and cy as h and c. A projection narrows h, hy and y.
    """

    feeds: dict[str, Array]
    outputs: dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Recorded(Case):
    """A recorded network as one node of a graph; its parameters are the recorded ones."""

    inputs_width: int = 0
    parameters: Array = dataclasses.field(default_factory=lambda: np.zeros(0), compare=False, repr=False)

    @property
    def inputs(self) -> int:
        return self.inputs_width

    @property
    def blob(self) -> Array:
        return self.parameters

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives; only an LSTM has a cell state."""
        return OUTPUTS[: 3 if self.mode is Mode.LSTM else 2]


@functools.cache
def read_file(name: str) -> tuple[list[dict[str, Any]], Mapping[str, Array]]:
    """The cases of a file that ran, and its arrays."""
    with np.load(FOLDER / name) as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    assert meta["about"]["source"] == "device"
    return [entry for entry in meta["cases"] if entry["status"] == "ok"], arrays


def read_network(network: Mapping[str, Any], blob: Array, *, op: str, time_major: bool) -> Recorded:
    """The graph's node for a recorded network."""
    return Recorded(
        Mode(network["mode"]),
        layers=network["layers"],
        directions=network["directions"],
        op=op,
        time_major=time_major,
        units=network["units"],
        input_mode="skip_input" if network["skip_input"] else "linear_input",
        projection=network["projection"],
        inputs_width=network["input_size"],
        parameters=blob,
    )


def count_steps(case: Mapping[str, Any]) -> Array:
    """The length of each row, int32 `[batch]`, by the rule of the recorder's cases."""
    steps, batch = case["steps"], case["batch"]
    uniform = {"none": steps, "full": steps, "short": steps - 2, "empty": 0}
    if case["lengths"] in uniform:
        return np.full(batch, uniform[case["lengths"]], np.int32)
    lengths = 1 + (5 * np.arange(batch, dtype=np.int32) + 2) % steps
    if case["lengths"] == "zero":
        lengths[2] = 0
    return lengths


def gather_inputs(case: Mapping[str, Any], arrays: Mapping[str, Array], stem: str) -> dict[str, Array]:
    """x, h and c of a call, and lengths where it had them; NaN stands past them where it did."""
    states = {key: arrays[f"{stem}/{key}0"] for key in ("h", "c")}
    feeds = {"x": arrays[f"{stem}/x"]}
    feeds |= states if case["random_initial"] else {key: 0 * value for key, value in states.items()}
    if case["lengths"] != "none":
        feeds["lengths"] = count_steps(case)
    if case["dirty"]:
        past = np.arange(case["steps"])[:, None] >= feeds["lengths"]
        feeds["x"] = np.where(past[..., None], np.float32(np.nan), feeds["x"])
    return feeds


def read_outputs(
    mode: Mode, layers: int, directions: int, *, op: str = "CudnnRNNV3", time_major: bool = True, **other: Any
) -> tuple[Recorded, dict[str, Call]]:
    """A network and its recorded calls, by their names; V3 has those with lengths, others the rest.

    `other` are further fields of the recorder's networks, such as `projection`. Feeds and outputs are
    time-major.
    """
    entries, arrays = read_file(f"outputs_{mode.value}.npz")
    plain = {"dtype": "float", "projection": 0, "skip_input": False}
    wanted = plain | {"layers": layers, "directions": directions} | other
    recorded, calls = None, {}
    for entry in entries:
        case, network = entry["case"], entry["case"]["network"]
        if (
            any(network[key] != value for key, value in wanted.items())
            or any(case[key] != value for key, value in PLAIN.items())
            or (case["lengths"] != "none") != (op == "CudnnRNNV3")
            or case["batch_major"] == time_major
            or case["training"]
        ):
            continue
        stem = re.split("-(?:time|batch)-major-", entry["job"])[0]
        outputs = {key: arrays[f"{entry['job']}/{name}"] for key, name in zip(OUTPUTS, "yhc", strict=True)}
        recorded = read_network(network, arrays[f"{stem}/blob"], op=op, time_major=time_major)
        calls[entry["job"]] = Call(gather_inputs(case, arrays, stem), outputs)
    assert recorded is not None
    return recorded, calls


class GradientCall(NamedTuple):
    """What a training call was given, factors of its outputs, and gradients of the outputs' weighted sum.

    Factors are by y, hy and cy, gradients by the inputs x, h and c and the parameters w.
    """

    feeds: dict[str, Array]
    factors: dict[str, Array]
    gradients: dict[str, Array]


def read_gradients(mode: Mode, layers: int, directions: int) -> tuple[Recorded, list[GradientCall]]:
    """A network of CudnnRNNV3 and its recorded training calls with lengths, time-major."""
    entries, arrays = read_file("gradients.npz")
    recorded, calls = None, []
    for entry in entries:
        case, network, stem = entry["case"], entry["case"]["network"], entry["job"]
        wanted = {"mode": mode.value, "layers": layers, "directions": directions}
        if (
            any(network[key] != value for key, value in wanted.items())
            or network["projection"]
            or network["skip_input"]
            or case["lengths"] != "ragged"
            or case["batch_major"]
        ):
            continue
        given = {key: arrays[f"{stem}/{name}_gradient"] for key, name in zip(OUTPUTS, "yhc", strict=True)}
        names = {"x": "dx", "h": "dh0", "c": "dc0", "w": "dblob"}
        gradients = {key: arrays[f"{stem}/{name}"] for key, name in names.items()}
        recorded = read_network(network, arrays[f"{stem}/blob"], op="CudnnRNNV3", time_major=True)
        calls.append(GradientCall(gather_inputs(case, arrays, stem), given, gradients))
    assert recorded is not None
    return recorded, calls


def turn(feeds: Mapping[str, Array], network: Recorded) -> dict[str, Array]:
    """The feeds in the network's own layout."""
    return {key: value if network.time_major else swapped(value) for key, value in feeds.items()}
