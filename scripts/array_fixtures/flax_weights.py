"""Makes tests/data/arrays/flax: the parameters of Flax's recurrent cells, and what nn.RNN answers.

    python scripts/array_fixtures/flax_weights.py

run under Python 3.11 with flax==0.12.0, jax==0.7.2, optax==0.2.8, msgpack==1.2.4, numpy==2.4.6. Every run
writes the same bytes.

What linen keeps, from flax 0.12.0 `flax/linen/recurrent.py` `LSTMCell`, `OptimizedLSTMCell`, `GRUCell`,
`SimpleCell`. Each entry is a Dense: `kernel` [in, out], `bias` [out].

* `LSTMCell`, `OptimizedLSTMCell`: `ii`, `if`, `ig`, `io` have a kernel [I, H]; `hi`, `hf`, `hg`, `ho` have a
  kernel [H, H] and a bias. Gates have cuDNN's meaning and equations. One bias, the recurrent one; nothing is
  added.
* `GRUCell`: `ir`, `iz`, `in` with kernel and bias; `hr`, `hz` with a kernel; `hn` with kernel and bias. The
  reset acts after the product, and the equations are cuDNN's: the recurrent biases of r and z are 0.
* `SimpleCell`: `i` with kernel and bias, `h` with a kernel. The activation, tanh or another, is not in the
  file. Neither is `residual=True`, which adds h before the activation.
* `MGUCell` has `if`, `in`, `hf`, `hn`: two gates, which cuDNN has no mode for.
* The carry of an LSTM is (c, h). `activation_fn` and `gate_fn` may be any function; a file does not say.

What `flax.nnx` keeps, from `flax/nnx/nn/recurrent.py`:

* `LSTMCell`: as linen, but for `if_`.
* `OptimizedLSTMCell`: `dense_i` kernel [I, 4*H], `dense_h` kernel [H, 4*H] and bias [4*H]. Gates i, f, g, o.
* `GRUCell`: `dense_i` kernel [I, 3*H] and bias [3*H], `dense_h` kernel [H, 3*H]. Gates r, z, n. So the
  recurrent bias of n, which its docstring has, is missing.
* `SimpleCell`: `dense_i` kernel and bias, `dense_h` kernel.

Names around a cell, from `RNN`, `Bidirectional` and the naming of `flax/linen/module.py`:

* `nn.RNN` alone: `cell`. `nn.Bidirectional` alone: `forward_rnn/cell`, `backward_rnn/cell`.
* In `setup`, these follow the name of the attribute: `encoder/cell`.
* In a compact method, a cell belongs to that method's module: `LSTMCell_0`, `LSTMCell_1`, whether the second
  is a layer or a direction. Neither `RNN` nor `Bidirectional` appears.
* `init` returns {"params": {...}}, and a TrainState has `params`, `opt_state` (with arrays of the same names
  and shapes below `mu`, `nu`) and `step`.

Answers: `nn.RNN` is batch-major, takes seq_lengths, and leaves what it computed past a length in the outputs
(docstring of `RNN`). This script writes zeros there. States are those at a row's end (`_select_last_carry`).
Bidirectional hands its backward RNN reverse=True and keep_order=True.

What `flax.serialization.to_bytes` writes, from `flax/serialization.py`: msgpack of nested maps with string
keys.

* Lists and tuples become maps with keys "0", "1" (`_list_state_dict`), a namedtuple a map of its fields.
* Extension 1, an array: msgpack of [shape, name of the dtype, bytes], little-endian as numpy has them,
  row-major (`_ndarray_to_bytes`). "bfloat16" is such a name.
* Extension 2, a complex number: msgpack of [real, imaginary]. Extension 3, a numpy scalar: as extension 1.
* An array above `MAX_CHUNK_SIZE`, 2**30 bytes, is a map (`_chunk`): `__msgpack_chunked_array__` true,
  `shape` a map "0".. of ints, `chunks` a map "0".. of flat arrays. The fixture has them with a smaller
  bound.
"""

import sys
from typing import Any

import flax
import golden_file
import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import optax
from flax import linen as nn
from flax import nnx, serialization, traverse_util
from flax.training import train_state
from numpy_recurrence import PseudoLayer, Recurrence

INPUTS, UNITS = 4, 5
VERSIONS = {
    "python": ".".join(map(str, sys.version_info[:3])),
    "flax": flax.__version__,
    "jax": jax.__version__,
    "msgpack": ".".join(map(str, msgpack.version)),
    "numpy": np.__version__,
}


class Compact(nn.Module):
    """Layers of a compact method, among other modules."""

    cell: Any
    layers: int
    directions: int

    @nn.compact
    def __call__(self, x, carries, lengths):
        x, ends = x + 0 * nn.Embed(6, INPUTS)(jnp.zeros([], int)), []
        for _ in range(self.layers):
            rnns = [nn.RNN(self.cell(UNITS)) for _ in range(self.directions)]
            rnn = nn.Bidirectional(*rnns) if self.directions == 2 else rnns[0]
            x, ended = call(rnn, x, carries[len(ends) :][: self.directions], lengths)
            ends += ended
        nn.Dense(3)(x)
        return x, ends


class Named(nn.Module):
    """Layers that setup gives their names."""

    cell: Any

    def setup(self):
        self.lower = nn.Bidirectional(nn.RNN(self.cell(UNITS)), nn.RNN(self.cell(UNITS)))
        self.upper = nn.Bidirectional(nn.RNN(self.cell(UNITS)), nn.RNN(self.cell(UNITS)))

    def __call__(self, x, carries, lengths):
        x, lower = call(self.lower, x, carries[:2], lengths)
        x, upper = call(self.upper, x, carries[2:], lengths)
        return x, lower + upper


class Alone(nn.Module):
    """One nn.RNN or nn.Bidirectional; its parameters are kept without this module's name."""

    rnn: Any

    def __call__(self, x, carries, lengths):
        return call(self.rnn, x, carries, lengths)


def call(rnn, x, carries, lengths):
    """A layer from its carries, one a direction: the outputs, and a list of carries."""
    directions = len(carries)
    initial = carries[0] if directions == 1 else tuple(carries)
    ends, y = rnn(x, initial_carry=initial, seq_lengths=lengths, return_carry=True)
    return y, [ends] if directions == 1 else list(ends)


def one(cell):
    return Alone(nn.RNN(cell))


def get_bias(cell, key, like):
    return cell[key].get("bias", np.zeros(like))


def read_lstm(cell):
    if "dense_i" in cell:
        return read_dense(cell)
    forget = "if" if "if" in cell else "if_"
    return PseudoLayer(
        np.concatenate([cell[key]["kernel"].T for key in ("ii", forget, "ig", "io")]),
        np.concatenate([cell[key]["kernel"].T for key in ("hi", "hf", "hg", "ho")]),
        np.zeros(4 * UNITS),
        np.concatenate([cell[key]["bias"] for key in ("hi", "hf", "hg", "ho")]),
    )


def read_gru(cell):
    if "dense_i" in cell:
        return read_dense(cell)
    return PseudoLayer(
        np.concatenate([cell[key]["kernel"].T for key in ("ir", "iz", "in")]),
        np.concatenate([cell[key]["kernel"].T for key in ("hr", "hz", "hn")]),
        np.concatenate([cell[key]["bias"] for key in ("ir", "iz", "in")]),
        np.concatenate([np.zeros(2 * UNITS), cell["hn"]["bias"]]),
    )


def read_simple(cell):
    return read_dense(cell if "dense_i" in cell else {"dense_i": cell["i"], "dense_h": cell["h"]})


def read_dense(cell):
    rows = cell["dense_i"]["kernel"].shape[1]
    return PseudoLayer(
        cell["dense_i"]["kernel"].T,
        cell["dense_h"]["kernel"].T,
        get_bias(cell, "dense_i", rows),
        get_bias(cell, "dense_h", rows),
    )


READERS = {"lstm": read_lstm, "gru": read_gru, "rnn_tanh": read_simple, "rnn_relu": read_simple}
BIASES = {"lstm": "recurrent", "gru": "input, and recurrent of n", "rnn_tanh": "input", "rnn_relu": "input"}
ENDS = ["forward_rnn/cell", "backward_rnn/cell"]
# name: the network, mode, directions, where the cells are, files
CASES = {
    "lstm": (one(nn.LSTMCell(UNITS)), "lstm", 1, ["cell"], "msgpack npz"),
    "optimized_lstm": (one(nn.OptimizedLSTMCell(UNITS)), "lstm", 1, ["cell"], "msgpack"),
    "gru": (one(nn.GRUCell(UNITS)), "gru", 1, ["cell"], "msgpack npz"),
    "simple_tanh": (one(nn.SimpleCell(UNITS)), "rnn_tanh", 1, ["cell"], "msgpack"),
    "simple_relu": (one(nn.SimpleCell(UNITS, activation_fn=nn.relu)), "rnn_relu", 1, ["cell"], "msgpack"),
    "lstm_bfloat16": (one(nn.LSTMCell(UNITS)), "lstm", 1, ["cell"], "msgpack"),
    "lstm_bi": (
        Alone(nn.Bidirectional(nn.RNN(nn.LSTMCell(UNITS)), nn.RNN(nn.LSTMCell(UNITS)))),
        "lstm",
        2,
        ENDS,
        "msgpack chunked kinds",
    ),
    "lstm_2l": (Compact(nn.LSTMCell, 2, 1), "lstm", 1, ["LSTMCell_0", "LSTMCell_1"], "msgpack train_state"),
    "optimized_lstm_bi_2l": (
        Compact(nn.OptimizedLSTMCell, 2, 2),
        "lstm",
        2,
        [f"OptimizedLSTMCell_{index}" for index in range(4)],
        "msgpack",
    ),
    "gru_bi_2l": (
        Named(nn.GRUCell),
        "gru",
        2,
        [f"{name}/{end}" for name in ("lower", "upper") for end in ENDS],
        "msgpack npz",
    ),
}
# where the first seed leaves a weight without effect
SEEDS = {"simple_relu": 4}


def fill(params, rng, dtype=np.float32):
    """Random weights in the order of their names."""

    def draw(value):
        return rng.uniform(-0.6, 0.6, value.shape).astype(dtype)

    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict({key: draw(flat[key]) for key in sorted(flat)})


def pack(h0, c0):
    return list(h0) if c0 is None else [(c, h) for c, h in zip(c0, h0, strict=True)]


def unpack(y, ends, lengths, c0):
    """Time-major answers, zeros past the lengths."""
    y = np.array(y).transpose(1, 0, 2)
    y[np.arange(len(y))[:, None] >= np.asarray(lengths)] = 0
    if c0 is None:
        return y, np.stack(ends), None
    return y, np.stack([h for _, h in ends]), np.stack([c for c, _ in ends])


def zero_states(mode, count):
    h0 = np.zeros([count, golden_file.BATCH, UNITS], np.float32)
    return h0, h0 if mode == "lstm" else None


# what may lie beside arrays: each kind of value that flax writes
OTHERS = {
    "step": np.int32(700),
    "loss": np.float32(0.25),
    "phase": 0.5 + 2j,
    "history": [1, 2.5, None],
    "note": "of a run",
    "done": True,
    "rows": {
        "of_bytes": b"\x00\xff",
        "mask": np.array([[True, False]]),
        "none": np.zeros([0, 3], np.float16),
    },
}


def save(variables, folder, endings):
    """The files of a case, and where each has its parameters."""
    files = {}
    for ending in endings.split():
        name, root = f"weights.{ending}", "params"
        if ending == "npz":
            np.savez(folder / name, **traverse_util.flatten_dict(variables, sep="/"))
        elif ending == "chunked":
            name = "chunked.msgpack"
            whole, serialization.MAX_CHUNK_SIZE = serialization.MAX_CHUNK_SIZE, 64
            (folder / name).write_bytes(serialization.to_bytes(variables))
            serialization.MAX_CHUNK_SIZE = whole
        elif ending == "kinds":
            name = "kinds.msgpack"
            (folder / name).write_bytes(serialization.to_bytes({**variables, **OTHERS}))
        elif ending == "train_state":
            name = "train_state.msgpack"
            # a rate of 0 leaves the weights as they are, and gives the moments values
            state = train_state.TrainState.create(
                apply_fn=None, params=variables["params"], tx=optax.adam(0.0)
            )
            state = state.apply_gradients(grads=jax.tree.map(lambda value: 3 * value, state.params))
            jax.tree.map(np.testing.assert_array_equal, state.params, variables["params"])
            (folder / name).write_bytes(serialization.to_bytes(state))
        else:
            (folder / name).write_bytes(serialization.to_bytes(variables))
        files[name] = {"root": root}
    return files


def finish(folder, run, recurrence, rng, facts):
    """Ask, and write what came."""
    arrays, worst = golden_file.ask(run, recurrence, rng)
    biases = BIASES[recurrence.mode]
    if folder.name == "nnx_gru_bi":
        biases = "input"
    described = golden_file.describe(recurrence, biases=biases, **facts, versions=VERSIONS)
    golden_file.write(folder, arrays, described)
    print(f"{folder.name}: {worst:.1e}")


def make_linen(case, index):
    network, mode, directions, cells, endings = CASES[case]
    rng = np.random.default_rng(SEEDS.get(case, 8900 + index))
    x = np.zeros([golden_file.BATCH, golden_file.TIME, INPUTS], np.float32)
    drawn = network.init(jax.random.key(0), x, pack(*zero_states(mode, len(cells))), golden_file.LENGTHS)
    params = fill(drawn["params"], rng, jnp.bfloat16 if case.endswith("bfloat16") else np.float32)
    # what is kept is the network's own: an nn.RNN by itself has no module around it
    kept = {"params": params["rnn"] if isinstance(network, Alone) else params}
    folder = golden_file.make_folder("flax", case)
    files = save(kept, folder, endings)
    stored = str(jax.tree.leaves(params)[0].dtype)
    # halves are numbers of float32 too: the answers are those of a float32 network with the stored weights
    params, kept = jax.tree.map(lambda value: np.asarray(value, np.float32), (params, kept))
    flat = traverse_util.flatten_dict(kept["params"], sep="/")

    def read(cell):
        inside = {key.removeprefix(cell + "/"): flat[key] for key in flat if key.startswith(cell + "/")}
        return READERS[mode](traverse_util.unflatten_dict(inside, sep="/"))

    def run(x, h0, c0, lengths):
        y, ends = network.apply({"params": params}, x.transpose(1, 0, 2), pack(h0, c0), lengths)
        return unpack(y, ends, lengths, c0)

    recurrence = Recurrence(mode, directions, [read(cell) for cell in cells])
    facts = {"dtype": stored, "cells": cells, "files": files}
    facts["computed_by"] = f"flax {flax.__version__} linen.RNN on CPU"
    finish(folder, run, recurrence, rng, facts)


def fill_nnx(module, rng):
    for path, variable in sorted(nnx.to_flat_state(nnx.state(module, nnx.Param))):
        assert path[-1] in ("kernel", "bias")
        variable.value = jnp.asarray(rng.uniform(-0.6, 0.6, variable.shape), jnp.float32)
        nnx.update(module, nnx.from_flat_state([(path, variable)]))
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def make_nnx(case, index):
    kinds = {
        "nnx_lstm": (nnx.LSTMCell, "lstm", 1, {}),
        "nnx_optimized_lstm": (nnx.OptimizedLSTMCell, "lstm", 1, {}),
        "nnx_gru_bi": (nnx.GRUCell, "gru", 2, {}),
        "nnx_simple_relu": (nnx.SimpleCell, "rnn_relu", 1, {"activation_fn": jax.nn.relu}),
    }
    kind, mode, directions, arguments = kinds[case]
    rng = np.random.default_rng(8950 + index)

    def make_rnn():
        return nnx.RNN(kind(INPUTS, UNITS, **arguments, rngs=nnx.Rngs(0)))

    network = make_rnn() if directions == 1 else nnx.Bidirectional(make_rnn(), make_rnn())
    params = jax.tree.map(np.asarray, fill_nnx(network, rng))
    flat = traverse_util.flatten_dict(params, sep="/")
    folder = golden_file.make_folder("flax", case)
    np.savez(folder / "weights.npz", **flat)

    def run(x, h0, c0, lengths):
        # a length in a compiled scan has to be an array of JAX
        y, ends = call(network, x.transpose(1, 0, 2), pack(h0, c0), jnp.asarray(lengths))
        return unpack(y, ends, lengths, c0)

    sides = [params] if directions == 1 else [params["forward_rnn"], params["backward_rnn"]]
    recurrence = Recurrence(mode, directions, [READERS[mode](side["cell"]) for side in sides])
    facts = {"dtype": "float32", "cells": ["cell"] if directions == 1 else ENDS}
    facts["files"] = {"weights.npz": {"root": ""}}
    facts["computed_by"] = f"flax {flax.__version__} nnx.RNN on CPU"
    finish(folder, run, recurrence, rng, facts)


def make_mgu():
    """A cell that cuDNN has no mode for; its names are among those of the other cells."""
    rnn = nn.RNN(nn.MGUCell(UNITS))
    drawn = rnn.init(jax.random.key(0), np.zeros([golden_file.BATCH, golden_file.TIME, INPUTS], np.float32))
    variables = {"params": fill(drawn["params"], np.random.default_rng(8990))}
    folder = golden_file.make_folder("flax", "mgu")
    (folder / "weights.msgpack").write_bytes(serialization.to_bytes(variables))


def main():
    for index, case in enumerate(CASES):
        make_linen(case, index)
    for index, case in enumerate(("nnx_lstm", "nnx_optimized_lstm", "nnx_gru_bi", "nnx_simple_relu")):
        make_nnx(case, index)
    make_mgu()


if __name__ == "__main__":
    main()
