"""Which test killed which mutant last time: a hint, so that a second hunt goes to it first."""

from __future__ import annotations

from pathlib import Path

import covered

_KEPT = covered.FOLDER / "killers.tsv"


def known(path: Path = _KEPT) -> dict[str, str]:
    """Tests by the name of a mutant, the latest of each; none before the first hunt."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.rsplit("\t", 1) for line in lines if "\t" in line)


def keep(name: str, killer: str, path: Path = _KEPT) -> None:
    """Written at once, for a hunt may be stopped."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{name}\t{killer}\n")
