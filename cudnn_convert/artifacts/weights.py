"""Opens decoded weights, and computes recurrences in NumPy.

As `named_weights.Weights` and docs/equations.md say, in float64, from the arrays by their names and shapes
alone: what the file says is what is tried.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import ReadError
from cudnn_convert.model import WAYS, Array, Part
from cudnn_convert.recurrences import named_weights

#: `(sums of the input, sums of the state, h, c) -> (h, c)`, the sums by gate.
_Step = Callable[[Mapping[str, Array], Mapping[str, Array], Array, Array], tuple[Array, Array]]


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in the file."""
    try:
        record = named_weights.file_metadata(path)
    except Exception as cause:  # NumPy's and safetensors' own, several of each
        expected = "weights as --format npz or safetensors writes them"
        actual = "a file that is damaged or of another program"
        raise ReadError(path, "file", expected=expected, found=actual) from cause
    return runners.parse_provenance(path, json.dumps(record)) if record else None


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Accept every file, for arrays are free of code."""


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the arrays."""
    yield from named_weights.arrays(path).items()


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open each part, a recurrence of the file. Raises KeyError for an unknown name."""
    values, metadata = named_weights.arrays(path), named_weights.file_metadata(path)
    if "weights" not in metadata:
        expected, advice = "weights that this tool wrote, with their description", "convert the source again"
        raise ReadError(path, "artifact", expected=expected, found="other arrays", advice=advice)
    described = {record["name"]: record for record in metadata["weights"]}
    return [run_recurrence(described[part.name], values) for part in parts]


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """Refuse arrays as a model. Raises ReadError."""
    advice = "convert the source to another format"
    raise ReadError(path, "artifact", expected="a model that runs", found="weights alone", advice=advice)


def run_recurrence(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> runners.Runner:
    """Return the runner of a single recurrence.

    `record` describes it; `arrays` are those of all recurrences, by names that begin with theirs.
    """
    swapped = record["layout"] == "batch"
    dtype = np.dtype("float32" if record["dtype"] == "bfloat16" else record["dtype"])  # as it is in the file

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        x = feeds["inputs"].astype(np.float64)
        x = x.swapaxes(0, 1) if swapped else x
        states = [feeds[f"initial_{key}"].astype(np.float64) for key in "hc" if f"initial_{key}" in feeds]
        lengths = feeds.get("sequence_lengths", np.full(x.shape[1], len(x)))
        y, h, c = stack(record, arrays, x, (states[0], states[-1]), lengths)
        answers = {"outputs": y.swapaxes(0, 1) if swapped else y, "state_h": h}
        answers |= {"state_c": c} if record["mode"] == "lstm" else {}
        return {key: value.astype(dtype) for key, value in answers.items()}

    return run


def stack(
    record: Mapping[str, Any],
    arrays: Mapping[str, Array],
    x: Array,
    states: tuple[Array, Array],
    lengths: Array,
) -> tuple[Array, Array, Array]:
    """Compute all layers in both directions; states `[layers*directions, batch, width]`, layer 0 first."""
    last: list[tuple[Array, Array]] = []
    for layer in range(record["layers"]):
        outputs = []
        for direction in WAYS[: record["directions"]]:
            prefix = f"{record['name']}/layer_{layer}/{direction}/"
            own = {
                key.removeprefix(prefix): v.astype(np.float64)
                for key, v in arrays.items()
                if key.startswith(prefix)
            }
            width = len(last)
            begun = states[0][width], states[1][width]
            y, ended = _direction(record, own, x, begun, lengths, backward=direction == WAYS[1])
            outputs.append(y)
            last.append(ended)
        x = np.concatenate(outputs, axis=-1)
    return x, np.stack([h for h, _ in last]), np.stack([c for _, c in last])


def _direction(
    record: Mapping[str, Any],
    own: Mapping[str, Array],
    x: Array,
    state: tuple[Array, Array],
    lengths: Array,
    *,
    backward: bool,
) -> tuple[Array, tuple[Array, Array]]:
    h, c = state
    step, y = STEPS[record["mode"]], np.zeros((*x.shape[:2], h.shape[-1]))
    for k in range(len(x)):
        # Backward starts at a row's own end.
        reverse = lengths - 1 - k if backward else np.full(x.shape[1], k)
        valid = (k < lengths)[:, None]
        rows = np.arange(x.shape[1])
        seen = x[np.maximum(reverse, 0), rows]
        inputs = _sums(record["gates"], own.get("kernel"), own["bias"], seen)
        sums = _sums(record["gates"], own["recurrent_kernel"], own["recurrent_bias"], h)
        new_h, new_c = step(inputs, sums, h, c)
        if "projection" in own:
            new_h = new_h @ own["projection"].T
        h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)
        y[np.maximum(reverse, 0), rows] = np.where(valid, h, y[np.maximum(reverse, 0), rows])
    return y, (h, c)


def _sums(gates: Sequence[str], matrices: Array | None, biases: Array, values: Array) -> dict[str, Array]:
    """Compute `matrix @ value + bias` for each gate.

    Without matrices, the value itself is added to each bias.
    """
    return {
        gate: biases[k] + (values if matrices is None else values @ matrices[k].T)
        for k, gate in enumerate(gates)
    }


def _lstm(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    i, f, o = (_sigmoid(x[gate] + h[gate]) for gate in ("input", "forget", "output"))
    c = f * c + i * np.tanh(x["cell"] + h["cell"])
    return o * np.tanh(c), c


def _gru(x: Mapping[str, Array], h: Mapping[str, Array], old: Array, c: Array) -> tuple[Array, Array]:
    r, z = (_sigmoid(x[gate] + h[gate]) for gate in ("reset", "update"))
    return z * old + (1 - z) * np.tanh(x["candidate"] + r * h["candidate"]), c


def _tanh(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(x["hidden"] + h["hidden"]), c


def _relu(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    return np.maximum(x["hidden"] + h["hidden"], 0), c


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


STEPS: Final[Mapping[str, _Step]] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}
