"""Which tests killed which mutants before: a hint, so that a second hunt goes to them first."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import covered

_KEPT = covered.FOLDER / "killers.tsv"


def known(path: Path = _KEPT) -> dict[str, set[str]]:
    """Tests by the name of a mutant, which those of equal lines share; none before the first hunt."""
    found = defaultdict[str, set[str]](set)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        name, tab, killer = line.rpartition("\t")
        if tab:
            found[name].add(killer)
    return dict(found)


def keep(name: str, killer: str, path: Path = _KEPT) -> None:
    """Written at once, for a hunt may be stopped."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{name}\t{killer}\n")
