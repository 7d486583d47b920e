"""What a user of decoded weights writes: cuDNN's equations in NumPy, from the arrays' names alone.

Row by row and step by step, as a textbook has them (NVIDIA's documentation of cudnnRNNForward).
"""

import json
from pathlib import Path

import numpy as np


def contents(path):
    """The description of each recurrence, and the arrays."""
    if Path(path).suffix == ".npz":
        arrays = dict(np.load(path))
        return json.loads(bytes(arrays.pop("cudnn_convert")))["weights"], arrays
    from safetensors import safe_open
    from safetensors.numpy import load_file

    with safe_open(path, "np") as file:
        return json.loads(file.metadata()["cudnn_convert"])["weights"], load_file(path)


def opened(path, inputs, outputs, signature):
    described, arrays = contents(path)
    (said,) = [one for one in described if signature in ("", one["name"])]
    return lambda feeds: recurrence(said, arrays, feeds)


def recurrence(said, arrays, feeds):
    x = feeds["inputs"].astype(np.float64)
    x = x if said["layout"] == "batch" else x.swapaxes(0, 1)
    lengths = feeds.get("sequence_lengths", [x.shape[1]] * len(x))
    width, depth = said["projection"] or said["units"], said["layers"] * said["directions"]
    h = np.array(feeds.get("initial_h", np.zeros((depth, len(x), width))), np.float64)
    c = np.array(feeds.get("initial_c", np.zeros((depth, len(x), said["units"]))), np.float64)
    rows = []
    for row, length in enumerate(lengths):
        y = x[row, :length]
        for layer in range(said["layers"]):
            ways = []
            for way in ["forward", "backward"][: said["directions"]]:
                place = layer * said["directions"] + len(ways)
                prefix = f"{said['name']}/layer_{layer}/{way}/"
                own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
                seen = y[::-1] if way == "backward" else y
                out = np.zeros((length, width))
                for k, value in enumerate(seen):
                    h[place, row], c[place, row] = cell(said, own, value, h[place, row], c[place, row])
                    out[k] = h[place, row]
                ways.append(out[::-1] if way == "backward" else out)
            y = np.concatenate(ways, axis=1)
        rows.append(np.concatenate([y, np.zeros((x.shape[1] - length, y.shape[1]))]))
    found = np.stack(rows)
    found = found if said["layout"] == "batch" else found.swapaxes(0, 1)
    return {"outputs": found, "state_h": h, "state_c": c}


def cell(said, own, x, h, c):
    # A skipped input has no kernels: x goes into every gate as it is.
    w = dict(zip(said["gates"], own.get("kernel", [np.eye(len(x))] * len(said["gates"])), strict=True))
    r = dict(zip(said["gates"], own["recurrent_kernel"], strict=True))
    b_w = dict(zip(said["gates"], own["bias"], strict=True))
    b_r = dict(zip(said["gates"], own["recurrent_bias"], strict=True))

    def of_input(gate):
        return w[gate].astype(np.float64) @ x + b_w[gate]

    def of_state(gate):
        return r[gate].astype(np.float64) @ h + b_r[gate]

    def sigmoid(gate):
        return 1 / (1 + np.exp(-(of_input(gate) + of_state(gate))))

    if said["mode"] == "lstm":
        c = sigmoid("forget") * c + sigmoid("input") * np.tanh(of_input("cell") + of_state("cell"))
        h = sigmoid("output") * np.tanh(c)
        return (own["projection"].astype(np.float64) @ h if "projection" in own else h), c
    if said["mode"] == "gru":
        new = np.tanh(of_input("candidate") + sigmoid("reset") * of_state("candidate"))
        return (1 - sigmoid("update")) * new + sigmoid("update") * h, c
    total = of_input("hidden") + of_state("hidden")
    return (np.tanh(total) if said["mode"] == "rnn_tanh" else np.maximum(total, 0)), c
