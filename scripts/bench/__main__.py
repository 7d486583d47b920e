"""How fast the artifacts are, as ratios to what a user would have instead, and what a conversion costs.

    python scripts/bench                      # speed, with one and with two threads
    python scripts/bench --cells lstm --shapes u1,u6 --threads 1 --only savedmodel,tf1
    python scripts/bench --runtimes           # our files in ONNX Runtime, OpenVINO and TensorFlow Lite
    python scripts/bench --conversions [--large --scratch FOLDER]
    python scripts/bench --repaired           # repaired SavedModels against Keras' own
    python scripts/bench --layouts            # networks of channels-first images against channels last
    python scripts/bench --decoding           # a beam search against what a user would write
    python scripts/bench --loops              # loops of TensorFlow and unrolled graphs: set-up and calls
    python scripts/bench --inputs             # orders of an input pipeline over records
    python scripts/bench --page               # the page of the stored results, nothing measured

With --write the results go to scripts/bench/results.json, a section for each kind, and docs/performance.md is
written from all that stand there. PyTorch and OpenVINO take part where they are installed. Linux; leave the
machine alone meanwhile. Ends with 1 where a goal of what was measured is not met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import children
import conversions
import decoding
import kept
import listing
import machine
import performance_page
import rounds
from roster import FORM, OURS, PEERS, RUNTIMES
from shapes import CELLS, QUICK, SHAPES, SMALL

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
RECORDING: Final = ROOT / "tests" / "data" / "cudnn" / "recording.json"
_PAIRS: Final = 200
#: Rounds of searches that take half a minute each.
_SEARCHES: Final = 3
#: Rounds of input pipelines.
_FEEDINGS: Final = 15
#: Where memory lies differs from process to process, and with it the speed of one implementation or another.
_PROCESSES: Final = 3


def speed(given: argparse.Namespace) -> dict[str, Any]:
    """The section `speed`."""
    shapes = given.shapes or [shape.name for shape in (QUICK if given.quick else SHAPES)]
    processes = 1 if given.quick else _PROCESSES
    until = {"rounds": 3, "seconds": 0} if given.quick else {"rounds": given.rounds, "seconds": given.seconds}
    asked = {"cells": given.cells, "shapes": shapes, **until}
    each = [{"threads": threads, "only": given.only} for threads in given.threads]
    cores, ours = [*given.threads], [name for name in OURS if not given.only or name in given.only]
    if 1 in cores and max(cores) > 1 and ours:
        each.append({"threads": 1, "only": ours})
        cores.append(max(cores))
    measured = [
        children.measured_in_turn("speed", cores, each, seed=given.seed + number, **asked)
        for number in range(processes)
    ]
    many = len(given.threads)
    bound, unbound = (
        kept.pooled(run for parts in measured for part in parts[chosen] for run in part["runs"])
        for chosen in (slice(many), slice(many, None))
    )
    settings = {"processes": processes, "round": rounds.TOLD, "seed": given.seed, **until}
    return {"runs": bound, "unbound": unbound, "absent": measured[0][0]["absent"], **settings}


def decoding_section(*, quick: bool) -> dict[str, Any]:
    """The section `decoding`."""

    def measured(part: str) -> Any:
        return children.measured("decoding", threads=1, part=part, rounds=_SEARCHES, quick=quick)

    memory = {name: measured(f"memory {name}") for name in decoding.SEARCHES}
    return {**measured("times"), "setups": measured("setups"), "memory": memory}


def sections(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was asked for, each as soon as it is measured."""
    if given.runtimes:
        shapes = given.shapes or ([] if given.quick else [*SMALL])
        own = {"only": [*RUNTIMES], "threads": [1], "shapes": shapes}
        yield "runtimes", speed(argparse.Namespace(**vars(given) | own))
    elif given.conversions:
        costs = conversions.costs(scratch=given.scratch, large=given.large, quick=given.quick)
        yield "conversions", {"costs": [*costs]}
    elif given.repaired:
        pairs = 3 if given.quick else _PAIRS
        yield "repaired", {"rows": children.measured("repaired", threads=1, pairs=pairs, quick=given.quick)}
    elif given.layouts:
        pairs = 3 if given.quick else _PAIRS
        yield "layouts", {"rows": children.measured("layouts", threads=1, pairs=pairs, quick=given.quick)}
    elif given.decoding:
        yield "decoding", decoding_section(quick=given.quick)
    elif given.loops:
        until = {"rounds": 2, "seconds": 0} if given.quick else {"rounds": given.rounds, "seconds": 2}
        many = [children.measured("loops", threads=n, quick=given.quick, **until) for n in given.threads]
        yield "loops", {"rows": [row for rows in many for row in rows], **until}
    elif given.inputs:
        rounds_of_inputs = 2 if given.quick else _FEEDINGS
        yield "inputs", children.measured("inputs", threads=2, rounds=rounds_of_inputs, quick=given.quick)
    elif not given.page:
        yield "speed", speed(given)


def show(found: Mapping[str, Any]) -> bool:
    """Prints tables and goals; whether all goals that were measured are met."""
    for section in (found[name] for name in ("speed", "runtimes") if name in found):
        tables = [*listing.speed(kept.timings(section))]
        if table := listing.threads(kept.timings(section), kept.unbound(section)):
            tables.append(table)
        for each in tables:
            print(f"\n{each.plain()}")
        for name in section["absent"]:
            print(f"\nnot installed, left out: {name}")
    if section := found.get("conversions"):
        print(f"\n{listing.costs(section['costs']).plain()}")
    if section := found.get("repaired"):
        print(f"\n{listing.repaired(section['rows']).plain()}")
    if section := found.get("layouts"):
        print(f"\n{listing.layouts(section['rows']).plain()}")
    if section := found.get("decoding"):
        print(f"\n{listing.decoding(section).plain()}")
        print(f"\n{listing.setups(section['setups']).plain()}")
    if section := found.get("loops"):
        for table in listing.loops(section["rows"]):
            print(f"\n{table.plain()}")
    if section := found.get("inputs"):
        for table in listing.inputs(section):
            print(f"\n{table.plain()}")
    judged = performance_page.verdicts(found)
    print(f"\n{performance_page.goals_table(judged).plain()}")
    return all(one.met is not False for one in judged)


def main() -> int:
    parser = _flags()
    given = parser.parse_args()
    parts = ("cells", "shapes", "only", "threads", "quick")
    whole = all(getattr(given, name) == parser.get_default(name) for name in parts)
    if given.write and given.results == RESULTS and not whole:
        parser.error("--write keeps whole sections: not with --cells, --shapes, --only or --threads")
    if given.page and not given.results.exists():
        parser.error(f"{given.results}: expected results of a run with --write, found none")
    measured = {name: {**section, "taken": machine.taken()} for name, section in sections(given)}
    if given.write:
        for name, section in measured.items():
            kept.keep(given.results, name, section)
    if given.write or given.page:
        for name, text in performance_page.written(kept.read(given.results), kept.read(RECORDING)).items():
            (given.docs / name).write_text(text, encoding="utf-8")
    return 0 if show(measured or kept.read(given.results)) else 1


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--runtimes", action="store_true", help="our files in other runtimes than TensorFlow")
    kind.add_argument("--conversions", action="store_true", help="what a conversion costs")
    kind.add_argument("--repaired", action="store_true", help="repaired SavedModels against Keras' own")
    kind.add_argument("--layouts", action="store_true", help="images channels first against channels last")
    kind.add_argument("--decoding", action="store_true", help="a beam search against what a user would write")
    kind.add_argument("--loops", action="store_true", help="loops of TensorFlow and unrolled graphs")
    kind.add_argument("--inputs", action="store_true", help="orders of an input pipeline over records")
    kind.add_argument("--page", action="store_true", help="write the page of the stored results")
    parser.add_argument("--cells", type=_of(CELLS), default=CELLS, help="lstm,gru")
    parser.add_argument("--shapes", type=_of([one.name for one in (*SHAPES, *QUICK)]), default=[])
    parser.add_argument("--only", type=_of([*PEERS]), default=[], help="implementations, by name")
    parser.add_argument("--threads", type=lambda text: [*map(int, text.split(","))], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="of each of three processes, at least")
    parser.add_argument("--seconds", type=int, default=10, help="of rounds, at least")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="with --conversions: a checkpoint of 4 GB too")
    parser.add_argument("--scratch", type=Path, help="with --conversions: where the checkpoints go")
    parser.add_argument("--write", action="store_true", help="keep the results and write the page")
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)  # tiny: does all of it run?
    return parser


def _of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Names apart by commas, each of which must be known; a form of ours by any name."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known and not name.startswith(FORM)]:
            said = f"expected some of {', '.join(known)}, found {', '.join(unknown)}"
            raise argparse.ArgumentTypeError(said)
        return found

    return names


if __name__ == "__main__":
    sys.exit(main())
