"""Makes tests/data/arrays/jax: the weights of jax.experimental.rnn, and what its own reference answers.

    python scripts/array_fixtures/jax_weights.py

run under Python 3.11 with jax==0.7.2, numpy==2.4.6. Every run writes the same bytes.

What JAX keeps, from jax 0.7.2 `jax/experimental/rnn.py`, its module docstring, `_get_params_shapes_in_lstm`
and `unpack_lstm_weights`:

* One flat float32 vector, which it hands to cuDNN as it is: the blob of docs/cudnn-blob.md. For each
  pseudo-layer `W_ih` [4*H, I] and `W_hh` [4*H, H], and behind all of them `b_ih` [4*H] and `b_hh` [4*H] for
  each.
* The order of one line in the docstring of `unpack_lstm_weights`, biases beside their matrices, is not what
  its code does.
* Gates i, f, g, o; pseudo-layers forward 0, backward 0, forward 1. The equations (`lstm_ref`) are cuDNN's.
* LSTM is the only mode, with two biases and without a projection. `swap_lstm_gates` makes the order i, f, o,
  g, for AMD's MIOpen; its vector has the same length.
* Inputs and outputs are batch-major, states [L*D, B, H]. Past a row's length `_extract_output` writes zeros.
  `_select_last_carry` takes the state before the length, so a length of 0 gives the state of the last step.
"""

import sys

import golden_file
import jax
import numpy as np
from jax.experimental import rnn
from numpy_recurrence import PseudoLayer, Recurrence

VERSIONS = {
    "python": ".".join(map(str, sys.version_info[:3])),
    "jax": jax.__version__,
    "numpy": np.__version__,
}
INPUTS = 4
# name: units, layers, directions
CASES = {"lstm": (5, 1, 1), "lstm_bi_2l": (5, 2, 2)}


def cut(blob, units, layers, directions):
    """The weights by the formula of docs/cudnn-blob.md, without a call into JAX."""
    at = 0

    def take(*shape):
        nonlocal at
        at += int(np.prod(shape))
        return blob[at - int(np.prod(shape)) : at].reshape(shape)

    matrices = []
    for layer in range(layers):
        inputs = INPUTS if layer == 0 else directions * units
        matrices += [(take(4 * units, inputs), take(4 * units, units)) for _ in range(directions)]
    biases = [(take(4 * units), take(4 * units)) for _ in matrices]
    assert at == len(blob)
    pairs = zip(matrices, biases, strict=True)
    return Recurrence("lstm", directions, [PseudoLayer(*matrix, *bias) for matrix, bias in pairs])


def make(case, index):
    units, layers, directions = CASES[case]
    sizes = INPUTS, units, layers, directions == 2
    blob = rnn.init_lstm_weight(jax.random.key(8700 + index), *sizes)

    def run(x, h0, c0, lengths):
        unpacked = rnn.unpack_lstm_weights(blob, *sizes)
        y, h, c = rnn.lstm_ref(
            x.transpose(1, 0, 2), h0, c0, *unpacked, lengths, *sizes[:3], 0.0, directions == 2
        )
        return y.transpose(1, 0, 2), h, c

    recurrence = cut(np.asarray(blob, np.float64), units, layers, directions)
    folder = golden_file.make_folder("jax", case)
    np.save(folder / "weights.npy", np.asarray(blob))
    arrays, worst = golden_file.ask(run, recurrence, np.random.default_rng(8700 + index))
    computed_by = f"jax {jax.__version__} jax.experimental.rnn.lstm_ref on CPU"
    facts = golden_file.describe(
        recurrence, biases=2, dtype="float32", computed_by=computed_by, versions=VERSIONS
    )
    golden_file.write(folder, arrays, facts)
    print(f"{case}: {worst:.1e}")


def main():
    for index, case in enumerate(CASES):
        make(case, index)


if __name__ == "__main__":
    main()
