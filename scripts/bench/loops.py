"""A loop or an unrolled graph: what each form of a recurrence takes to set up and to call.

The forms are the baselines of Yu and others, "Dynamic Control Flow in Large-Scale Machine Learning" (EuroSys
2018), sections 6.2 and 6.3, of the same cells with the same weights, beside our SavedModel in a Session.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from contender import SESSION
from shapes import CELLS, QUICK, Shape

#: The arguments of `tensorflow_one.network` by form; `dynamic_rnn` takes 32 iterations at once by default.
FORMS: Final = MappingProxyType(
    {
        "unrolled": {"unrolled": True},
        **{f"parallel_{count}": {"parallel_iterations": count} for count in (1, 8, 32)},
        "swap_memory": {"swap_memory": True},
    }
)
SHAPES: Final = (Shape("one row", 100, 1, 128, 128), Shape("32 rows", 50, 32, 256, 256))
#: Graphs are built so many times; the first in a process also sets TensorFlow up, and does not count.
_SETUPS: Final = 3


def measured(*, threads: int, rounds: int, seconds: float, quick: bool) -> list[dict[str, Any]]:
    """A row for each cell and shape: `setups` in seconds and `micros` of a call, by form."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    shapes = QUICK[:1] if quick else SHAPES
    until = {"rounds": rounds, "seconds": seconds}
    return [_row(cell, shape, threads, **until) for shape in shapes for cell in CELLS]


def _row(cell: str, shape: Shape, threads: int, **until: float) -> dict[str, Any]:
    import ours
    import tensorflow_one
    from contender import TOLERANCE, Built
    from problem import error, posed
    from rounds import timed

    from cudnn_convert.context import silence

    def built(name: str) -> Built:
        form = FORMS.get(name)
        if form is None:
            return ours.savedmodel(problem, threads)
        return tensorflow_one.build(problem, threads, **form)

    calls: dict[str, Callable[[], Any]] = {}
    setups: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench.") as folder, silence():
        problem = posed(cell, shape, Path(folder), seed=7)
        ours.savedmodel(problem, threads)  # converted
        for number in range(_SETUPS + 1):
            for name in (SESSION, *FORMS):
                start = time.perf_counter()
                one = built(name)
                answer = one.answer(one.call())
                if number:
                    setups.setdefault(name, []).append(round(time.perf_counter() - start, 4))
                if not error(problem, answer) <= TOLERANCE:
                    raise SystemExit(
                        f"loops, {cell} {shape.name}: {name} does not give the reference's answer"
                    )
                calls[name] = one.call
        micros = timed(calls, **until, chance=random.Random(7))
    return {"cell": cell, "told": shape.told, "threads": threads, "setups": setups, "micros": micros}
