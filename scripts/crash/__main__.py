"""Is anything ever lost? Conversions and batches that are killed, that race, and whose disk is full.

    python scripts/crash [--kills 200] [--batches 50] [--seed 1]

After each, OUT has to hold the whole old artifact or the whole new one, byte for byte, and the sources what
they held. Prints what was found; ends with 1 where anything was torn, missing, changed or left for good.
Takes some minutes. Linux; as root the full disk is a small tmpfs, else a limit of file size stands in.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import batches
import disk
import kills
from jobs import pair

#: What may not be.
LOSSES = ("torn", "missing", "failed afterwards", "left for good", "sources changed")


def runs(
    folder: Path, flags: argparse.Namespace, chance: random.Random
) -> Iterator[tuple[str, Counter[str]]]:
    """Each kind of mishap with what stood at OUT after it; conversions to ONNX are quick and have most."""
    if flags.batches:
        yield "batches: killed with SIGKILL", batches.killed(folder, flags.batches, chance)
    for form, share in (("onnx", 0.8), ("savedmodel", 0.2)) if flags.kills else ():
        both = pair(folder, form)
        yield f"{form}: killed with SIGKILL", kills.killed(both, folder, round(flags.kills * share), chance)
        yield f"{form}: two at a time", kills.raced(both, folder, 10, force=False)
        yield f"{form}: two at a time, --force", kills.raced(both, folder, 10, force=True)
        with disk.small(folder, 1 << 20) as (_, stand_in):
            how = "a limit of file size" if stand_in else "a small tmpfs"
        yield f"{form}: disk full ({how})", disk.filled(both, folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--batches", type=int, default=50, help="kills of batches; 0 for none")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    flags = parser.parse_args()
    print(f"seed {flags.seed}", flush=True)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="crash.") as folder:
        for name, found in runs(Path(folder), flags, random.Random(flags.seed)):
            total += found
            said = [f"{count} {what}" for what, count in found.items() if count and what != "whole"]
            tried = found["whole"] + found["torn"] + found["missing"]
            print(f"{name}: OUT whole after {found['whole']} of {tried}; {', '.join(said)}", flush=True)
    print(*(f"{what}: {total[what]}" for what in LOSSES), sep=", ")
    return int(any(total[what] for what in LOSSES))


if __name__ == "__main__":
    sys.exit(main())
