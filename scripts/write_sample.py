"""Writes cudnn_convert/cli/sample.zip, the sample of `cudnn-convert demo`, from models/crf_tagger.

PYTHON scripts/write_sample.py; a test fails where the archive holds other files. The same bytes every time.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHIVE = ROOT / "cudnn_convert" / "cli" / "sample.zip"


def main() -> None:
    with zipfile.ZipFile(ARCHIVE, "w") as archive:
        for path in sorted((ROOT / "models" / "crf_tagger").glob("model.ckpt.*")):
            entry = zipfile.ZipInfo(path.name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)


if __name__ == "__main__":
    main()
