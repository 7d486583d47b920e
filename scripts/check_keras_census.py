"""Prints how many cases of the census of Keras' layers are right, refused, lost and wrong, by the writer.

    python scripts/check_keras_census.py [WRITER ...]

Each case's file is traced, and run on what its writer's own Keras was fed. Lost is what the file does not
hold or its version does not tell: `KNOWN` of tests/support/keras_census.py. Exit code 1 where one is wrong.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import keras_census


def main(*writers: str) -> int:
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
    print("all", ", ".join(f"{total[key]} {key}" for key in ("cases", "right", "refused", "lost", "wrong")))
    return int(total["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
