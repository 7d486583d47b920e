"""Makes tests/data/arrays/haiku: the parameters of Haiku's recurrent cores, and what they answer.

    python scripts/array_fixtures/haiku_weights.py

run under Python 3.11 with dm-haiku==0.0.17, jax==0.7.2, numpy==2.4.6. Every run writes the same bytes.

What Haiku keeps, from dm-haiku 0.0.17 `haiku/_src/recurrent.py` and `haiku/_src/basic.py` (`Linear`). The
parameters are a dict of dicts: {"path/of/modules": {"w": array}}. Matrices are [in, out].

* `LSTM.__call__`: `NAME/linear` has `w` [I+H, 4*H], the rows of the input first, and `b` [4*H]. Gates i, g,
  f, o. The forget gate is sigmoid(f + 1): cuDNN's bias of f is `b` + 1. With it, the equations are cuDNN's.
* `VanillaRNN.__call__`: `NAME/linear` has `w` [I, H], `b` [H] for the input, `NAME/linear_1` has `w` [H, H],
  `b` [H] for the state. `double_bias=False` leaves out the second `b`. The activation is relu, always.
* `GRU.__call__`: `NAME` has `w_i` [I, 3*H], `w_h` [H, 3*H], `b` [3*H]. Gates z, r, a. The reset acts on the
  state before the product, a = tanh(W x + b + R (r * h)), which cuDNN cannot compute. And h' = (1 - z) * h +
  z * a.
* NAME is `lstm`, `vanilla_rnn` or `gru`, with `_1` and so on behind the names of further ones. Two cores in
  a row and two directions have the same kinds of names. A core in a module has the module's name before it,
  and `~` between them if `__init__` makes the core: `tagger/~/forward/linear`.
* There are no lengths: `dynamic_unroll` takes all steps. With `reverse=True` it returns outputs at the steps
  they belong to.

Haiku has no format of its own. A dict is kept as .npz with keys `path/of/modules/w`, or pickled.
"""

import pickle
import sys
from importlib.metadata import version

import golden_file
import haiku as hk
import jax
import numpy as np
from numpy_recurrence import PseudoLayer, Recurrence

INPUTS, UNITS = 4, 5
VERSIONS = {
    "python": ".".join(map(str, sys.version_info[:3])),
    "dm-haiku": version("dm-haiku"),
    "jax": jax.__version__,
    "numpy": np.__version__,
}


def read_lstm(params, name):
    w, b = params[f"{name}/linear"]["w"], params[f"{name}/linear"]["b"]

    def reorder(value):
        i, g, f, o = np.split(value, 4, axis=-1)
        return np.concatenate([i, f, g, o], axis=-1)

    w, b = reorder(w), reorder(b)
    b[UNITS : 2 * UNITS] += 1
    return PseudoLayer(w[:-UNITS].T, w[-UNITS:].T, b, np.zeros_like(b))


def read_vanilla(params, name):
    first, second = params[f"{name}/linear"], params[f"{name}/linear_1"]
    return PseudoLayer(first["w"].T, second["w"].T, first["b"], second.get("b", np.zeros(UNITS)))


def read_gru(params, name):
    """What cuDNN comes nearest with: z is the other way round there, and the reset acts after the product."""

    def reorder(value):
        z, r, a = np.split(value, 3, axis=-1)
        return np.concatenate([r, -z, a], axis=-1)

    w_i, w_h, b = (reorder(params[name][key]) for key in ("w_i", "w_h", "b"))
    return PseudoLayer(w_i.T, w_h.T, b, np.zeros_like(b))


# name: the core, its names, directions, mode, reader, number of biases
CASES = {
    "lstm": (hk.LSTM, ["lstm"], 1, "lstm", read_lstm, 1),
    "lstm_2l": (hk.LSTM, ["lstm", "lstm_1"], 1, "lstm", read_lstm, 1),
    "lstm_bi": (hk.LSTM, ["tagger/~/forward", "tagger/~/backward"], 2, "lstm", read_lstm, 1),
    "vanilla_2l": (hk.VanillaRNN, ["vanilla_rnn", "vanilla_rnn_1"], 1, "rnn_relu", read_vanilla, 2),
    "vanilla_one_bias": (
        lambda size, name=None: hk.VanillaRNN(size, double_bias=False, name=name),
        ["vanilla_rnn"],
        1,
        "rnn_relu",
        read_vanilla,
        1,
    ),
    "gru": (hk.GRU, ["gru"], 1, "gru", read_gru, 1),
}
# where the first seed leaves a weight without effect
SEEDS = {"vanilla_2l": 47}


class Tagger(hk.Module):
    """Two directions, which Haiku leaves to a program."""

    def __init__(self, core):
        super().__init__(name="tagger")
        self.cores = [core(UNITS, name=name) for name in ("forward", "backward")]

    def __call__(self, x, states):
        return unroll(self.cores, x, states, directions=2)


def unroll(cores, x, states, directions):
    ends = []
    for at in range(0, len(cores), directions):
        sides = []
        for side in range(directions):
            y, end = hk.dynamic_unroll(cores[at + side], x, states[at + side], reverse=side == 1)
            sides.append(y)
            ends.append(end)
        x = jax.numpy.concatenate(sides, axis=-1)
    return x, ends


def fill(params, rng):
    def draw(value):
        return rng.uniform(-0.6, 0.6, value.shape).astype(np.float32)

    return {
        name: {key: draw(value) for key, value in sorted(entry.items())} for name, entry in params.items()
    }


def make(case, index):
    core, names, directions, mode, reader, biases = CASES[case]
    rng = np.random.default_rng(SEEDS.get(case, 8800 + index))

    def network(x, states):
        if directions == 2:
            return Tagger(core)(x, states)
        return unroll([core(UNITS) for _ in names], x, states, directions)

    transformed = hk.without_apply_rng(hk.transform(network))

    def pack(h0, c0):
        return list(h0) if c0 is None else [hk.LSTMState(*pair) for pair in zip(h0, c0, strict=True)]

    def run(x, h0, c0, lengths):
        y, ends = transformed.apply(params, x, pack(h0, c0))
        if c0 is None:
            return y, np.stack(ends), None
        return y, np.stack([end.hidden for end in ends]), np.stack([end.cell for end in ends])

    zeros = np.zeros([len(names), golden_file.BATCH, UNITS], np.float32)
    x = np.zeros([golden_file.TIME, golden_file.BATCH, INPUTS], np.float32)
    params = fill(transformed.init(jax.random.key(0), x, pack(zeros, zeros if mode == "lstm" else None)), rng)
    recurrence = Recurrence(mode, directions, [reader(params, name) for name in names])
    folder = golden_file.make_folder("haiku", case)
    flat = {f"{name}/{key}": value for name, entry in params.items() for key, value in entry.items()}
    np.savez(folder / "weights.npz", **flat)
    if case == "lstm_2l":
        (folder / "weights.pkl").write_bytes(pickle.dumps(params, protocol=4))
    arrays, worst = golden_file.ask(run, recurrence, rng, lengths=False, differs=mode == "gru")
    facts = golden_file.describe(
        recurrence,
        biases=biases,
        dtype="float32",
        cells=names,
        equations="not cuDNN's: to be refused" if mode == "gru" else "cuDNN's",
        computed_by=f"dm-haiku {VERSIONS['dm-haiku']} hk.dynamic_unroll on CPU",
        versions=VERSIONS,
    )
    golden_file.write(folder, arrays, facts)
    print(f"{case}: {worst:.1e}" + (", far from cuDNN's equations on purpose" if mode == "gru" else ""))


def main():
    for index, case in enumerate(CASES):
        make(case, index)


if __name__ == "__main__":
    main()
