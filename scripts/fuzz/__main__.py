"""Fuzzing: mutated files of every kind that the tool reads must be read or refused in one line.

    python scripts/fuzz [--seed 1] [--seconds 600] [--jobs 2] [--count N]
    python scripts/fuzz --seed 1 --only 4711    # one input again, with the traceback of its crash
    python scripts/fuzz --reader SavedModel     # readers with this in their names alone

Input k of a seed is the same every time: a file of tests/data whose bytes or whose structure (`messages`,
`blocks`, `stores`, `trees`, `members`, `pickles`, `ndarrays`) is changed, or a checkpoint of `drawn_shapes`,
which is converted too.
It is read as `looks.py` says. What ends in anything but success or one of the tool's own errors, dies, takes
more than 2 GB, writes or starts something is a crash, and more than 10 seconds (100 with a conversion) are a
hang; such an input is kept in OUT (out/fuzz). Ends with 1 where there was any, or where fewer than `--count`
were tried in the time. Needs a system with fork, and the extra `dev`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import traceback
from functools import partial
from pathlib import Path

import inputs
import looks
import tally
import trial
from crew import Crew
from origins import origins

#: Seconds after which an input hangs, and one that a command converts.
PATIENCE, LONG = 10.0, 100.0
OUT = Path(__file__).resolve().parents[2] / "out" / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--count", type=int, help="stop after as many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="the number to begin with")
    parser.add_argument("--only", type=int, metavar="K", help="one input, in this process")
    parser.add_argument("--reader", default="", help="part of a reader's name")
    parser.add_argument("--out", type=Path, default=OUT, help="where inputs that fail are kept")
    given = parser.parse_args()
    begun = time.monotonic()
    readers = inputs.by_reader(origins())
    chosen = [name for name in readers if given.reader in name]
    if given.only is not None:
        return once(given.seed, given.only, readers, given.out)
    tried = partial(trial.tried, given.seed, readers)
    numbers = (n for n in itertools.count(given.first) if inputs.reader_of(n, readers) in chosen)

    def patience(number: int) -> float:
        looks_at = readers[inputs.reader_of(number, readers)][0].look
        return LONG if looks_at in looks.WRITING else PATIENCE

    crew = Crew(tried, numbers=itertools.islice(numbers, given.count), jobs=given.jobs, patience=patience)
    found = tally.Tally(given.seed, readers, given.out)
    for verdict in crew.verdicts(begun + given.seconds):
        found.add(verdict)
    print(found.table(time.monotonic() - begun))
    return 1 if found.failed or found.tried < (given.count or 1) else 0


def once(seed: int, number: int, readers: inputs.Readers, out: Path) -> int:
    """One input again, kept in a folder, with everything that is told of it."""
    made = inputs.made(seed, number, readers)
    folder = tally.keep(made, seed, out)
    print(f"{made.origin.reader}: {folder}; changed: {', '.join(made.changed)}")
    try:
        print(trial.judged(made, folder) or "read")
    except Exception:  # noqa: BLE001 - whatever it is, it is what was asked for
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
