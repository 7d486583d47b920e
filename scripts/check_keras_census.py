"""Prints how many cases of the census of Keras' layers are right, refused, lost and wrong, by the writer.

    python scripts/check_keras_census.py [WRITER ...]
    python scripts/check_keras_census.py --format FORMAT [--step N] [--begin N]

Each case's file is traced, and run on what its writer's own Keras was fed. With `--format` every `N`th file
of all writers becomes an artifact, which is run where cudnn_convert cannot be imported. Lost is what the file
does not hold or its version does not tell: `KNOWN` of tests/support/keras_census.py. Exit code 1 where one is
wrong.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import keras_census, keras_census_artifacts


def check_graphs(writers: list[str]) -> int:
    """Print a line for each writer and each case that is not right; 1 where one is wrong."""
    total: Counter[str] = Counter()
    for writer in writers or sorted(keras_census.cases()):
        outcomes = keras_census.check(writer)
        kinds = Counter(keras_census.kind(writer, name, text) for name, text in outcomes.items())
        cases = len(keras_census.cases()[writer])
        counts = Counter({"cases": cases, "right": cases - len(outcomes), **kinds})
        print(writer, ", ".join(f"{count} {key}" for key, count in counts.items()), flush=True)
        for name, text in outcomes.items():
            print(f"  {name}: {text[:200]}")
        total.update(counts)
    return _print_total("all", total)


def check_artifacts(form: str, step: int, begin: int) -> int:
    """Print a line for each case that is not right in a format; 1 where one is wrong."""
    total: Counter[str] = Counter()
    for writer, name, outcome in keras_census_artifacts.check(form, step, begin):
        kind = outcome.partition(":")[0].partition(",")[0]
        total.update(["cases", kind])
        if kind != "right":
            print(f"  {writer} {name}: {outcome[:300]}", flush=True)
    return _print_total(form, total)


def _print_total(what: str, total: Counter[str]) -> int:
    print(what, ", ".join(f"{total[key]} {key}" for key in ("cases", "right", "refused", "lost", "wrong")))
    return int(total["wrong"] > 0)


def main() -> int:
    """Check graphs or artifacts, as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("writers", nargs="*", metavar="WRITER")
    parser.add_argument("--format", choices=keras_census_artifacts.FORMATS)
    parser.add_argument("--step", type=int, default=29, help="ask each Nth case (29)")
    parser.add_argument("--begin", type=int, default=0, help="begin with the Nth case (0)")
    asked = parser.parse_args()
    if asked.format:
        return check_artifacts(asked.format, asked.step, asked.begin)
    return check_graphs(asked.writers)


if __name__ == "__main__":
    sys.exit(main())
