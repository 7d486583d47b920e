"""The speed of every implementation, in a process of its own for each number of threads."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contender import Contender
from roster import absent, contenders
from rounds import Ring, timed
from shapes import QUICK, SHAPES, Shape, counted


def measured(
    *,
    threads: int,
    cells: Sequence[str],
    shapes: Sequence[str],
    only: Sequence[str],
    seed: int,
    ring: Mapping[str, Any],
    **until: float,
) -> dict[str, Any]:
    """The runs as `results.json` keeps them, and the names of those that are not installed here.

    `until`: the `rounds` and `seconds` of `rounds.timed`; `ring`: what makes its `Ring`.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    known = {shape.name: shape for shape in (*SHAPES, *QUICK)}
    wanted = [Run(cell, known[name], threads, seed=seed, **until) for name in shapes for cell in cells]
    turns = Ring(**ring)
    return {"runs": [run.taken(only, turns) for run in wanted], "absent": absent(contenders().values())}


class Run:
    """One cell and shape."""

    def __init__(self, cell: str, shape: Shape, threads: int, *, seed: int, **until: float) -> None:
        self.cell, self.shape, self.threads, self.seed, self.until = cell, shape, threads, seed, until

    def taken(self, only: Sequence[str], ring: Ring) -> dict[str, Any]:
        from problem import error, posed

        from cudnn_convert.context import silence

        calls, errors = {}, {}
        with tempfile.TemporaryDirectory(prefix="bench.") as folder, silence():
            problem = posed(self.cell, self.shape, Path(folder), seed=self.seed)
            everyone = contenders()
            missing = absent(everyone.values())
            for name, one in everyone.items():
                if name not in missing and one.fits(problem) and (not only or name in only):
                    built = one.build(problem, self.threads)
                    errors[name] = float(f"{error(problem, built.answer(built.call())):.1e}")
                    self.check(one, errors[name])
                    calls[name] = built.call
            micros = timed(calls, **self.until, chance=random.Random(self.seed), ring=ring)
        named = {"cell": self.cell, "shape": self.shape.name, "threads": self.threads}
        return named | {"errors": errors, "micros": micros}

    def check(self, one: Contender, found: float) -> None:
        """Raises SystemExit where an answer is not the reference's."""
        where = f"{self.cell} {self.shape.name}, {counted(self.threads, 'thread')}: {one.name}"
        if not found <= one.tolerance:
            raise SystemExit(f"{where}: expected the reference's answer, found an error of {found:.1e}")
        print(f"{where}: largest error {found:.1e}", flush=True)
