"""The results as JSON, one section for each kind of measurement, so that the page needs no new one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contender import SESSION

from cudnn_convert.benchmark.rounds import Ratio, ratio, spread, summary

#: A list without names or further lists: it stands on one line.
_NUMBERS: Final = re.compile(r"\[\s+([^\[\]{}\"]*?)\s+\]")


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured of one cell and shape with so many threads.

    `errors` are the largest absolute ones, `micros` the microseconds of a call round by round; by name.
    """

    cell: str
    shape: str
    threads: int
    errors: Mapping[str, float]
    micros: Mapping[str, Sequence[float]]

    def over(self, name: str, own: str = SESSION) -> Ratio | None:
        """The time of `name` over that of `own`, None where one of them took no part."""
        if name not in self.micros or own not in self.micros:
            return None
        return ratio(self.micros[name], self.micros[own])

    def median(self, name: str) -> float | None:
        return summary(self.micros[name]).median if name in self.micros else None

    def spread(self, name: str) -> float | None:
        return spread(self.micros[name]) if name in self.micros else None


def timings(section: Mapping[str, Any]) -> list[Timing]:
    """The runs of the section `speed`."""
    return [Timing(**run) for run in section["runs"]]


def unbound(section: Mapping[str, Any]) -> list[Timing]:
    """Ours with one thread, of processes that have a second core too."""
    return [Timing(**run) for run in section.get("unbound", [])]


def across(upper: Sequence[Timing], lower: Sequence[Timing], name: str) -> dict[tuple[str, str], Ratio]:
    """The time of `name` in some processes over that in others, by cell and shape.

    They did their rounds in turn: each round has a ratio.
    """
    below = {(timing.cell, timing.shape): timing for timing in lower}
    ratios = {}
    for timing in upper:
        other = below.get((timing.cell, timing.shape))
        if other and name in other.micros and name in timing.micros:
            ratios[timing.cell, timing.shape] = ratio(timing.micros[name], other.micros[name])
    return ratios


def pooled(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Runs of the same cell, shape and threads as one: all microseconds, the largest errors."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        key = (run["cell"], run["shape"], run["threads"])
        one = found.setdefault(key, {**run, "errors": {}, "micros": {}})
        for name, micros in run["micros"].items():
            one["micros"][name] = [*one["micros"].get(name, []), *micros]
            one["errors"][name] = max(one["errors"].get(name, 0.0), run["errors"][name])
    return [*found.values()]


def read(path: Path) -> dict[str, Any]:
    """All sections by name; none where nothing was measured yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(path: Path, name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Writes one section anew beside the others, and gives all of them."""
    found = read(path) | {name: dict(section)}
    text = json.dumps(found, indent=1, sort_keys=True)
    lines = _NUMBERS.sub(lambda list_: f"[{' '.join(list_[1].split())}]", text)
    path.write_text(f"{lines}\n", encoding="utf-8")
    return found
