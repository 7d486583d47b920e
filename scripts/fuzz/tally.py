"""What became of all inputs, and the folders of those that failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import inputs
import trial
from crew import MEMORY, Verdict
from inputs import Input, Readers

_STATES = ("read", "refused", "crashed", "hung")
_BAD = ("crashed", "hung")
_MIB = 1 << 20


class Tally:
    """Counts verdicts; tells and keeps each input that failed as it is found."""

    def __init__(self, seed: int, readers: Readers, out: Path) -> None:
        self._seed, self._readers, self._out = seed, readers, out
        self._counts: dict[str, Counter[str]] = {}
        self._peak = 0
        self._slowest = 0.0
        self._seconds = Counter[str]()

    @property
    def tried(self) -> int:
        return sum(sum(count.values()) for count in self._counts.values())

    @property
    def failed(self) -> int:
        return sum(count[state] for count in self._counts.values() for state in _BAD)

    def add(self, verdict: Verdict) -> None:
        reader, made = verdict.reader, None
        if verdict.state in _BAD:
            made = inputs.made(self._seed, verdict.number, self._readers)
            reader = made.origin.reader
        self._counts.setdefault(reader, Counter())[verdict.state] += 1
        self._seconds[reader] += verdict.seconds
        self._peak = max(self._peak, verdict.memory)
        self._slowest = max(self._slowest, verdict.seconds)
        if made is not None:
            folder = keep(made, self._seed, self._out)
            print(f"{verdict.state}: {verdict.number} ({reader}): {verdict.why}\n    {folder}", flush=True)

    def table(self, seconds: float) -> str:
        rows = [("reader", "inputs", *_STATES, "ms each")]
        counts = {**dict(sorted(self._counts.items())), "all": sum(self._counts.values(), Counter())}
        self._seconds["all"] = sum(self._seconds.values())
        for reader, count in counts.items():
            inputs = sum(count.values())
            each = f"{1000 * self._seconds[reader] / max(inputs, 1):.0f}"
            rows.append((reader, str(inputs), *(str(count[state]) for state in _STATES), each))
        lines = [f"{row[0]:26}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows]
        speed = f"seed {self._seed}: {seconds:.0f} s, {self.tried / seconds:.0f} inputs a second"
        memory = f"{self._peak // _MIB} MiB of at most {MEMORY // _MIB} above those at the start"
        return "\n".join([*lines, f"{speed}; slowest {self._slowest:.1f} s; peak memory {memory}"])


def keep(made: Input, seed: int, out: Path) -> Path:
    """Writes an input to a folder, and beside it how to try it again."""
    folder = out / f"{seed}-{made.number}"
    trial.write(made, folder)
    again = (
        f"python scripts/fuzz --seed {seed} --only {made.number}\n{made.origin.look} {made.origin.entry}\n"
    )
    folder.with_suffix(".txt").write_text(again, encoding="utf-8")
    return folder
