"""How fast a repaired SavedModel is, against the one that Keras exports for a CPU.

Both run in one process, call by call in turn. A ratio of 1 is "as fast as Keras' own"; its lower bound is to
stay below 1.05 for 100 steps and below 1.15 for one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

UNITS: Final = (128, 512)
#: (time, batch, what the ratio's lower bound stays below)
FEEDS: Final = ((1, 1, 1.15), (1, 16, 1.15), (100, 1, 1.05), (100, 16, 1.05))
_WARM: Final = 5


def measured(*, threads: int, pairs: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each cell, size and input, with the milliseconds of both in each pair."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    found = []
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        for cell in ("lstm", "gru"):
            for units in (6,) if quick else UNITS:
                cpu, repaired = map(tf.saved_model.load, map(str, _exported(Path(folder), cell, units)))
                for steps, batch, bound in FEEDS:
                    own, ours = _timed(cpu, repaired, _input(steps, batch, units), pairs)
                    row = {"cell": cell, "units": units, "steps": steps, "batch": batch, "bound": bound}
                    found.append(row | {"keras": own, "repaired": ours})
                    print(f"repaired: {cell}, {units} units, {steps} steps, batch {batch}", flush=True)
    return found


def _exported(folder: Path, cell: str, units: int) -> tuple[Path, Path]:
    """The export of one layer for a CPU, and the repaired one that was made for a GPU."""
    sys.path.append(str(Path(__file__).parents[1]))
    import keras
    from keras3_exports.gpu import pretended

    import cudnn_convert

    keras.utils.set_random_seed(7)
    kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[cell]

    def built() -> Any:
        x = keras.Input((None, units), name="x")
        return keras.Model(x, kind(units, return_sequences=True)(x))

    model, twin = built(), built()
    twin.set_weights(model.get_weights())
    cpu, gpu, repaired = (folder / f"{cell}_{units}_{name}" for name in ("cpu", "gpu", "repaired"))
    model.export(cpu, verbose=False)
    with pretended():
        twin.export(gpu, verbose=False)
    cudnn_convert.convert(gpu, repaired)
    return cpu, repaired


def _input(steps: int, batch: int, units: int) -> Any:
    import numpy as np
    import tensorflow as tf

    return tf.constant(np.random.default_rng(1).standard_normal((batch, steps, units)), tf.float32)


def _timed(cpu: Any, repaired: Any, x: Any, pairs: int) -> tuple[list[float], list[float]]:
    """The milliseconds of the CPU's and of the repaired one, whose answers are found to agree."""
    both = [model.signatures["serving_default"] for model in (cpu, repaired)]
    apart = abs(both[0](x=x)["output_0"].numpy() - both[1](x=x)["output_0"].numpy()).max()
    if not apart <= 1e-5:
        raise SystemExit(f"bench: repaired: expected Keras' answer, found {apart:.1e} from it")
    found: tuple[list[float], list[float]] = ([], [])
    for pair in range(-_WARM, pairs):
        for place in (0, 1) if pair % 2 else (1, 0):
            start = time.perf_counter()
            both[place](x=x)["output_0"].numpy()
            if pair >= 0:
                found[place].append(round((time.perf_counter() - start) * 1e3, 4))
    return found
