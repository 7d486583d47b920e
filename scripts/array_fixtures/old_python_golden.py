"""cuDNN's equations and the writer of a golden.npz, for makers that need Python 3.6 to 3.8.

The equations are those of docs/equations.md in float64. They are written apart from cudnn_convert/reference,
so that a mistake there does not enter the fixtures.

A golden.npz holds `x`, answers from zero states (`y`, `h`, `c`), answers (`ys`, `hs`, `cs`) from the states
`h0`, `c0`, and in some cases `lengths` with answers from zero states (`yl`, `hl`, `cl`). All is time-major.
"""

import json
import os

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
TIME, BATCH = 7, 3
#: Of answers in a dtype from the equations in float64.
BOUND = {"float32": 2e-6, "float64": 1e-14}


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


class Stack:
    """A recurrence with random weights.

    `pseudo_layers` holds a dict of each layer and direction, directions run faster: W [G*H, I], R [G*H, P],
    b_W and b_R [G*H], and Q [P, H] with a projection; P is H without one. Gates are in cuDNN's order.
    """

    def __init__(self, mode, inputs, units, layers=2, directions=1, projection=0, dtype="float32"):
        self.mode, self.inputs, self.units, self.layers = mode, inputs, units, layers
        self.directions, self.projection, self.dtype = directions, projection, dtype
        self.pseudo_layers = []

    @property
    def width(self):
        """Of the state h and of a direction's output."""
        return self.projection or self.units

    def draw(self, rng):
        rows, inputs = GATES[self.mode] * self.units, self.inputs
        for _ in range(self.layers):
            for _ in range(self.directions):
                shapes = [
                    ("W", (rows, inputs)),
                    ("R", (rows, self.width)),
                    ("b_W", (rows,)),
                    ("b_R", (rows,)),
                ]
                if self.projection:
                    shapes.append(("Q", (self.projection, self.units)))
                drawn = {}
                for name, shape in shapes:
                    drawn[name] = rng.uniform(-0.6, 0.6, shape).astype(self.dtype)
                self.pseudo_layers.append(drawn)
            inputs = self.width * self.directions
        return self

    def pack(self):
        """cuDNN's parameter blob: the matrices of each pseudo-layer, and the biases behind all of them."""
        arrays = [one[name] for one in self.pseudo_layers for name in ("W", "R", "Q") if name in one]
        arrays += [one[name] for one in self.pseudo_layers for name in ("b_W", "b_R")]
        return np.concatenate([array.ravel() for array in arrays])

    def run(self, x, h0, c0):
        """Outputs and final states in float64; c0 and the last state are None without cell states."""
        hs, cs = [], []
        for layer in range(self.layers):
            sides = []
            for direction in range(self.directions):
                at = layer * self.directions + direction
                c = None if c0 is None else c0[at]
                y, h, c = self.run_direction(self.pseudo_layers[at], x, h0[at], c, direction == 1)
                sides.append(y)
                hs.append(h)
                cs.append(c)
            x = np.concatenate(sides, axis=2)
        return x, np.stack(hs), None if c0 is None else np.stack(cs)

    def run_rows(self, x, h0, c0, lengths):
        """As run, each row to its own length; outputs past it are 0."""
        y = np.zeros(x.shape[:2] + (self.width * self.directions,))
        h, c = np.zeros(h0.shape), None if c0 is None else np.zeros(c0.shape)
        for at, length in enumerate(lengths):
            row = slice(at, at + 1)
            answers = self.run(x[:length, row], h0[:, row], None if c0 is None else c0[:, row])
            y[:length, row], h[:, row] = answers[:2]
            if c is not None:
                c[:, row] = answers[2]
        return y, h, c

    def run_direction(self, layer, x, h, c, backward):
        y = np.zeros(x.shape[:2] + (self.width,))
        for step in reversed(range(len(x))) if backward else range(len(x)):
            h, c = self.step(layer, np.float64(x[step]), np.float64(h), c)
            y[step] = h
        return y, h, c

    def step(self, layer, x, h, c):
        layer = {name: np.float64(array) for name, array in layer.items()}
        from_x = np.split(x.dot(layer["W"].T) + layer["b_W"], GATES[self.mode], axis=1)
        from_h = np.split(h.dot(layer["R"].T) + layer["b_R"], GATES[self.mode], axis=1)
        if self.mode == "gru":
            reset, update = (sigmoid(from_x[gate] + from_h[gate]) for gate in (0, 1))
            candidate = np.tanh(from_x[2] + reset * from_h[2])
            return (1 - update) * candidate + update * h, None
        sums = [from_x[gate] + from_h[gate] for gate in range(GATES[self.mode])]
        if self.mode == "lstm":
            c = sigmoid(sums[1]) * c + sigmoid(sums[0]) * np.tanh(sums[2])
            h = sigmoid(sums[3]) * np.tanh(c)
            return (h.dot(layer["Q"].T) if self.projection else h), c
        return (np.tanh(sums[0]) if self.mode == "rnn_tanh" else np.maximum(sums[0], 0)), None


def ask(stack, rng, run, x=None):
    """The arrays of a golden.npz from run(x, h0, c0), and their largest distance from the equations."""
    rows = (stack.layers * stack.directions, BATCH)
    if x is None:
        x = rng.uniform(-1, 1, (TIME, BATCH, stack.inputs)).astype(stack.dtype)
    h0, c0 = rng.uniform(-0.9, 0.9, rows + (stack.width,)).astype(stack.dtype), None
    kept = {"x": x, "h0": h0}
    if stack.mode == "lstm":
        c0 = kept["c0"] = rng.uniform(-0.9, 0.9, rows + (stack.units,)).astype(stack.dtype)
    zeros = [None if state is None else np.zeros_like(state) for state in (h0, c0)]
    worst = 0.0
    for suffix, states in (("", zeros), ("s", (h0, c0))):
        for name, ours, theirs in zip("yhc", stack.run(x, *states), run(x, *states)):
            if ours is not None:
                worst = max(worst, measure(ours, theirs))
                kept[name + suffix] = np.asarray(theirs, stack.dtype)
    assert worst < BOUND[stack.dtype], worst
    return kept, worst


def measure(ours, theirs):
    assert ours.shape == np.shape(theirs), (ours.shape, np.shape(theirs))
    return float(np.abs(ours - theirs).max())


def make_folder(framework, case):
    folder = os.path.join(ROOT, "tests", "data", "arrays", framework, case)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    return folder


def write(folder, stack, arrays, **more):
    """Write golden.npz and golden.json; `more` stands behind the sizes in the latter."""
    np.savez_compressed(os.path.join(folder, "golden.npz"), **arrays)
    description = [("mode", stack.mode), ("layers", stack.layers), ("directions", stack.directions)]
    description += [("units", stack.units), ("input_size", stack.inputs), ("projection", stack.projection)]
    described = dict(description + [("dtype", stack.dtype)])
    described.update(more)
    with open(os.path.join(folder, "golden.json"), "w") as file:
        file.write(json.dumps(described, indent=1) + "\n")
