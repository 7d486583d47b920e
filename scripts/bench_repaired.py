"""How fast a repaired SavedModel is, against the one that Keras exports for a CPU.

    python scripts/bench_repaired.py [CORE]

Both run in one process on one pinned core with one thread, call by call in turn; 200 pairs each. Printed
are the median of the ratios repaired/CPU, its 95 % bounds (order statistics of the median) and the CPU's own
time. A ratio of 1 is "as fast as Keras' own"; the lower bound is to stay below 1.05 for 100 steps and below
1.15 for one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

CORE: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 0
os.sched_setaffinity(0, {CORE})
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras3_exports.gpu import pretended  # noqa: E402

import cudnn_convert  # noqa: E402

PAIRS: Final = 200
LAYERS: Final = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
UNITS: Final = (128, 512)
#: (time, batch, the bound of the ratio's lower bound)
FEEDS: Final = ((1, 1, 1.15), (1, 16, 1.15), (100, 1, 1.05), (100, 16, 1.05))


def exported(folder: Path, kind: str, units: int) -> tuple[Path, Path]:
    """The export of one layer for a CPU, and the repaired one that was made for a GPU."""
    keras.utils.set_random_seed(7)

    def built() -> Any:
        x = keras.Input((None, units), name="x")
        return keras.Model(x, LAYERS[kind](units, return_sequences=True)(x))

    model, twin = built(), built()
    twin.set_weights(model.get_weights())
    cpu, gpu, repaired = (folder / f"{kind}_{units}_{name}" for name in ("cpu", "gpu", "repaired"))
    model.export(cpu, verbose=False)
    with pretended():
        twin.export(gpu, verbose=False)
    cudnn_convert.convert(gpu, repaired)
    return cpu, repaired


def ratios(cpu: Any, repaired: Any, x: Any) -> tuple[np.ndarray, float]:
    """Repaired/CPU of each pair, and the median time of the CPU's in milliseconds."""
    found, own = [], []
    for pair in range(-5, PAIRS):
        times = {}
        for model in (cpu, repaired) if pair % 2 else (repaired, cpu):
            start = time.perf_counter()
            model.signatures["serving_default"](x=x)["output_0"].numpy()
            times[id(model)] = time.perf_counter() - start
        if pair >= 0:  # the first ones warm up
            found.append(times[id(repaired)] / times[id(cpu)])
            own.append(times[id(cpu)])
    return np.sort(found), float(np.median(own) * 1e3)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    reach = int(PAIRS / 2 - 1.96 * np.sqrt(PAIRS) / 2)
    with tempfile.TemporaryDirectory() as folder:
        for kind in LAYERS:
            for units in UNITS:
                cpu, repaired = map(tf.saved_model.load, map(str, exported(Path(folder), kind, units)))
                for steps, batch, bound in FEEDS:
                    drawn = np.random.default_rng(1).standard_normal((batch, steps, units))
                    sorted_ratios, own = ratios(cpu, repaired, tf.constant(drawn, tf.float32))
                    low, high = sorted_ratios[reach], sorted_ratios[-1 - reach]
                    print(
                        f"{kind:<5}{units:>4} units{steps:>5} steps  batch{batch:>3}  "
                        f"ratio {np.median(sorted_ratios):.3f} [{low:.3f}, {high:.3f}], "
                        f"to stay below {bound}; Keras' own takes {own:.3f} ms",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
