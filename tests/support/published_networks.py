"""Networks of which sums of real cuDNN's outputs were published (tests/data/cudnn/published.json).

Their inputs and initial states are 1, so that all rows of a batch are alike: the sum over a few rows, times
the batch over their number, is the whole batch's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cudnn_convert import reference
from cudnn_convert.model import Array, Mode
from cudnn_convert.weights import parameter_blob
from support.cases import Case
from support.samples import ROOT

#: The file's rows as they stand in it.
ROWS: Final[list[dict[str, Any]]] = json.loads(
    (ROOT / "tests" / "data" / "cudnn" / "published.json").read_text()
)["networks"]
#: What a network gives, in the order of the op's outputs, by the names in cuDNN's documentation.
OUTPUTS: Final = ("y", "hy", "cy")
#: The inputs that published sums are gradients of; w are the parameters.
INPUTS: Final = {"dx": "x", "dhx": "h", "dcx": "c", "dw": "w"}
Arrays = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Network(Case):
    """A published network: its sizes, the rule of its weights, and its sums."""

    name: str = ""
    input_size: int = 0
    steps: int = 0
    batch: int = 0
    weights: str = "1"
    dropout: float = 0.0
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)
    gradients: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def inputs(self) -> int:
        return self.input_size

    @property
    def blob(self) -> Array:
        """The parameters, float32 `[parameters]`."""
        values = np.ones(parameter_blob.length(self.sizes), np.float32)
        if self.weights == "1/(number of parameters)":
            values /= values.size
        elif self.weights == "matrices 1/(rows*columns), biases 1":
            for layer in parameter_blob.split(values, self.sizes, where=self.name):  # views of the values
                for cell in layer:
                    cell.kernel[:] /= cell.kernel[0].size
                    cell.recurrent_kernel[:] /= cell.recurrent_kernel[0].size
        else:
            assert self.weights == "1"
        return values

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives; only an LSTM has a cell state."""
        return OUTPUTS[: 3 if self.mode is Mode.LSTM else 2]

    def fill_ones(self, rows: int) -> dict[str, Array]:
        """Inputs of 1, float32, for a batch of `rows`.

        x `[steps, rows, inputs]`, h and c `[layers*directions, rows, units]`; for V3 lengths, int32 `[rows]`.
        """
        state = np.ones((self.depth, rows, self.units), np.float32)
        feeds = {"x": np.ones((self.steps, rows, self.inputs), np.float32), "h": state, "c": state}
        if self.op == "CudnnRNNV3":
            feeds["lengths"] = np.full(rows, self.steps, np.int32)
        return feeds

    def compare(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """How far each published sum is from that of `outputs`, relative to the published one.

        `outputs` are time-major and of any number of rows: y `[steps, rows, directions*units]`, hy and cy
        `[layers*directions, rows, units]`.
        """
        share = self.batch / outputs["y"].shape[1]
        totals = {name: share * float(value.sum(dtype=np.float64)) for name, value in outputs.items()}
        return {
            key: measure_distance(sum(totals[name] for name in key.split("+")), published)
            for key, published in self.sums.items()
        }

    def compare_reference(self) -> dict[str, float]:
        """As `compare`, of what the float64 reference gives for one row."""
        outputs = self.expected(self.fill_ones(1))
        return self.compare(dict(zip(self.outputs, outputs, strict=True)))


def measure_distance(computed: float, published: float) -> float:
    """The difference relative to the published number."""
    return abs(computed / published - 1)


def read_network(row: Mapping[str, Any]) -> Network:
    """The network of a row of the file."""
    return Network(
        Mode(row["mode"]),
        layers=row["layers"],
        directions=row["directions"],
        units=row["units"],
        name=row["name"],
        input_size=row["inputs"],
        steps=row["steps"],
        batch=row["batch"],
        weights=row["weights"],
        dropout=max(row.get("dropout", [0.0])),
        sums=row["sums"],
        gradients=row.get("gradients", {}),
    )


NETWORKS: Final = {row["name"]: read_network(row) for row in ROWS}


def get_bound(network: Network, form: str = "") -> float:
    """How far a sum may be from the published one, relative to it.

    One direction: seven digits are printed, so rounding takes up to 5e-7, and the GPU's float32 sum its part.
    Two directions: no weight is a power of two; the GPU's sums are up to 7e-6 off the float64 reference.
    tflite: XNNPACK begins a sum with its bias, here 2, and rounds each of the 512 equal terms that it adds to
    2^-22, all in one direction: up to 6e-5 in a gate, a part of which is in the sums of outputs.
    onnx: ONNX Runtime's tanh is off by 8e-4 of itself near 1e-5, where the tanh network of two directions is.
    """
    if form == "onnx" and network.mode is Mode.RNN_TANH and network.directions == 2:
        return 2e-3
    return 2e-6 if network.directions == 1 and form != "tflite" else 2e-5


def sum_outputs(network: Network, given: Arrays) -> float:
    """The sum of all that the reference gives for `given`, in float64."""
    steps = reference.steps_from_blob(
        given["w"],
        network.mode.value,
        layers=network.layers,
        directions=network.directions,
        units=network.units,
        input_size=network.inputs,
    )
    outputs = reference.run(steps, given["x"], given["h"], given["c"], directions=network.directions)
    return float(sum(value.sum() for value in outputs[: len(network.outputs)]))


def measure_slopes(network: Network, given: Arrays, lines: Arrays, step: float) -> dict[str, float]:
    """How fast the outputs' sum grows from `given` along each line, by input: central differences.

    `given` and `lines` are x `[steps, 1, inputs]`, h and c `[layers*directions, 1, units]`, w `[parameters]`.
    w moves by a thousandth of `step`, as it is smaller. Products of one row take one thread.
    """
    wide = {key: value.astype(np.float64) for key, value in given.items()}

    def measure_slope(key: str) -> float:
        length = step / 1000 if key == "w" else step
        above, below = (
            sum_outputs(network, wide | {key: wide[key] + sign * length * lines[key]}) for sign in (1, -1)
        )
        return (above - below) / (2 * length)

    return {key: measure_slope(key) for key in lines}
