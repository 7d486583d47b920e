"""Prints how many variants of the census of ops are equal, refused and different, by the format.

    python scripts/check_op_census.py [FORMAT ...] [--ops OP ...] [--write]

Each variant's graph is converted beside a recurrence, with the proof, and its artifact is fed what TensorFlow
1.15 was. A variant that is not what `tests/data/op_verdicts.tsv` says is printed, with where it differs; exit
code 1 then. `--write` writes the table of what was asked.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import op_census


def main() -> int:
    """Print a line for each format and each variant that is not as the table has it; 1 where one is not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(op_census.FORMATS))
    parser.add_argument("--ops", nargs="*", default=(), metavar="OP", help="of these ops alone")
    parser.add_argument("--write", action="store_true", help="write the table")
    given = parser.parse_args()
    verdicts, others = op_census.read_verdicts(), 0
    for form in given.formats or op_census.FORMATS:
        counts: Counter[str] = Counter()
        names = [
            name for name in op_census.names_of(form) if not given.ops or name.partition("/")[0] in given.ops
        ]
        for name, outcome in op_census.check(form, names):
            verdict = op_census.verdict(outcome)
            counts[verdict.partition(" ")[0]] += 1
            row = verdicts.setdefault(name, {})
            if row.get(form) != verdict:
                others += 1
                print(f"  {form} {name}: {row.get(form)} in the table, found {outcome[:300]}", flush=True)
                row[form] = verdict
        print(
            form,
            f"{len(names)} variants:",
            ", ".join(f"{n} {what}" for what, n in counts.items()),
            flush=True,
        )
    if given.write:
        op_census.write_verdicts(verdicts)
    return int(others > 0)


if __name__ == "__main__":
    sys.exit(main())
