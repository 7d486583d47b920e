"""How much does the proof see? Models that hide parts, and artifacts of them with one place corrupted.

    python scripts/power [--count 9] [--seed 1] [--formats onnx,tflite] [--only NAMES] [--place TEXT]
                         [--keep DIR]

Converts each of forty models to each format that takes it, and corrupts one place of the artifact at a time:
a value, a row, a column of a constant, an op, an attribute, a wire, a step of time. A corruption counts where
it changes an answer on inputs that the model names, run by the artifact's own runtime. Of those that count
`cudnn_convert.verify` may call none equal, and may refuse no intact artifact. Prints each that is missed or
not reached with the command that repeats it, and a table. Ends with 1 where one is missed, more than one in a
hundred are not reached, or an intact artifact is refused. Takes an hour or two on one core. `--count` is the
number of corruptions drawn for each artifact; `--keep` is a folder for those that are missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "OPENBLAS_NUM_THREADS": "1"}
os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}

import product
import trials
from sources import MODELS, Model
from trials import Attack, Trial
from workers import Worker

_COLUMNS = (
    *("models", "corruptions", "do not run", "no effect", "change an answer"),
    *("seen", "not reached", "MISSED"),
)
#: The part of the corruptions that count which may be not reached.
NOT_REACHED = 0.01
#: Of outcomes; all others are seen.
_COLUMN_OF = {
    trials.BROKEN: "do not run",
    trials.NO_EFFECT: "no effect",
    product.NOT_REACHED: "not reached",
    product.EQUAL: "MISSED",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="power", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=9, help="corruptions of each artifact")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", default=",".join(product.SUFFIXES))
    parser.add_argument("--only", default="", help="names of models")
    parser.add_argument("--place", action="append", help="only corruptions with this in their names, but all")
    parser.add_argument("--keep", type=Path, help="where sources, artifacts and missed corruptions are kept")
    flags = parser.parse_args()
    models = [model for model in MODELS if not flags.only or model.name in flags.only.split(",")]
    with ExitStack() as stack:
        folder = flags.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="power.")))
        # Corrupted loops may not end.
        runtimes = (stack.enter_context(Worker(patience=60.0)) for _ in range(2))
        proof = stack.enter_context(Worker(patience=300.0))
        how = Attack(*runtimes, proof, flags.count, flags.seed, flags.place or [], flags.keep)
        found = [*_attack(models, flags.formats.split(","), folder, how)]
    print(table(found))
    return int(has_failed(found))


def _attack(models: Iterable[Model], formats: Sequence[str], folder: Path, how: Attack) -> Iterator[Trial]:
    """The trials of each model in each format, with a line for each artifact."""
    for model in models:
        own = folder / model.name
        own.mkdir(parents=True)
        source = model.write(own)
        for form in formats:
            begun = time.monotonic()
            found = []
            for trial in trials.attack(model, source, form, how):
                _tell(trial, how)
                found.append(trial)
            if found:
                counting = [trial for trial in found if trial.counts]
                seen = sum(_COLUMN_OF.get(trial.outcome) is None for trial in counting)
                seconds = time.monotonic() - begun
                what = f"{seen} of {len(counting)} seen, of {len(found) - 1} drawn"
                print(f"{model.name} {form}: {found[0].outcome}; {what}; {seconds:.0f} s", flush=True)
            yield from found


def has_failed(found: Collection[Trial]) -> bool:
    """Whether one is missed, an intact artifact is refused, or too many are not reached."""
    counting = [trial for trial in found if trial.counts]
    left = sum(trial.outcome == product.NOT_REACHED for trial in counting)
    return left > NOT_REACHED * len(counting) or any(is_failure(trial) for trial in found)


def is_failure(trial: Trial) -> bool:
    """Whether a corruption is missed, or an intact artifact is refused."""
    if trial.corruption == trials.INTACT:
        return trial.outcome not in (product.EQUAL, product.NOT_REACHED)
    return trial.is_missed


def _tell(trial: Trial, how: Attack) -> None:
    """Print a trial that is missed, refused, not reached or whose proof ended its process."""
    if is_failure(trial) or trial.outcome in (product.NOT_REACHED, trials.CRASHED):
        word = "MISSED" if trial.is_missed else trial.outcome.upper()
        print(f"{word} {trial.model} {trial.format} {trial.corruption}: {trial.change} {trial.why}")
        if trial.counts:
            options = f"--seed {how.seed} --formats {trial.format} --only {trial.model}"
            print(f"    python scripts/power {options} --place '{trial.corruption}'", flush=True)


def table(found: Iterable[Trial]) -> str:
    """How many corruptions of each format were seen, by outcome."""
    rows: dict[str, Counter[str]] = {}
    for trial in found:
        row = rows.setdefault(trial.format, Counter())
        if trial.corruption == trials.INTACT:
            row["models"] += 1
            continue
        row["corruptions"] += 1
        row[_COLUMN_OF.get(trial.outcome, "seen")] += 1
        row["change an answer"] += trial.counts
    rows["all"] = sum(rows.values(), Counter())
    lines = [f"{'format':12}" + "".join(f"{column:>18}" for column in _COLUMNS)]
    for form, row in rows.items():
        lines.append(f"{form:12}" + "".join(f"{row[column]:>18}" for column in _COLUMNS))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
