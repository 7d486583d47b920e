"""Conversions to a disk that is too small: a small tmpfs where this user may mount one, else a file limit."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs import Pair, digest

#: How much room there is beside the old artifact, in parts of what the new one needs.
PARTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5)
_PAGE = 4096


def filled(pair: Pair, folder: Path) -> Counter[str]:
    """What stood at OUT after each `--force` conversion to a disk with too little room, and what was said."""
    found: Counter[str] = Counter()
    need = _size(folder / f"{pair.format} 1")
    for part in PARTS:
        with small(folder, _size(folder / f"{pair.format} 0") + int(part * need)) as (where, stand_in):
            out = where / "out"
            pair.jobs[0].run(out)
            stood = digest(out)
            flags = [f"--limit=file={max(1, int(part * need))}"] if stand_in else []
            code, said = pair.jobs[1].run(out, "--force", *flags)
            found[pair.stands(out)] += 1
            found["refused for lack of room"] += code == 4
            one_line = len(said) == 1 and "cannot write" in said[0]
            sound = (code == 4 and one_line and digest(out) == stood) or (code == 0 and digest(out) != stood)
            found["failed afterwards"] += not sound
            found["left for good"] += len(list(where.iterdir())) - 1
    return found


@contextmanager
def small(folder: Path, room: int) -> Iterator[tuple[Path, bool]]:
    """A disk with so much room, and whether none could be mounted, so that a limit has to stand in for it."""
    where = folder / "small"
    where.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={-(-room // _PAGE) * _PAGE}", "tmpfs", str(where)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield where, not mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(where)], check=True)


def _size(path: Path) -> int:
    """Of all the files below a path, each to the end of its last page."""
    return sum(-(-one.stat().st_size // _PAGE) * _PAGE for one in path.rglob("*") if one.is_file())
