"""Writes the attacks in tests/data/broken/: small files and folders, and README.md; it says what each is.

The same bytes every time: `python scripts/make_broken.py [FOLDER]`. Nothing here runs what it writes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from broken_files import checkpoints, graphs, keras, protos

FOLDER = Path(__file__).parent.parent / "tests" / "data" / "broken"
HEAD = """# Files made to do harm

Each is small and was written by `scripts/make_broken.py`; `tests/end_to_end/test_attacks.py` gives each to
the command line and says what becomes of it. What they name, such as `/etc/passwd`, is only named.

| file | what is wrong with it |
|---|---|
"""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    for room in (graphs, protos, checkpoints, keras):
        for name, make in room.MAKERS.items():
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            make(folder / name)
            told.append(f"| `{name}` | {' '.join((make.__doc__ or '').split()).rstrip('.')} |")
    (folder / "README.md").write_text(HEAD + "\n".join(sorted(told)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
