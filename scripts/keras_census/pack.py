"""Packs what the writers recorded into tests/data/NAME.tar.xz, equal cases beside each other.

    python -m keras_census.pack FOLDER [NAME]          (in scripts/; NAME is keras_census or keras_public)

Weights, and mostly answers, are the same bytes from writer to writer: xz stores them once.
"""

import glob
import io
import os
import sys
import tarfile
import zipfile

from keras_census.cases import WITNESSES

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def pack(folder, name="keras_census"):
    members = []
    for path in glob.glob(os.path.join(folder, "*.zip")):
        writer = os.path.basename(path)[: -len(".zip")]
        with zipfile.ZipFile(path) as archive:
            for inner in archive.namelist():
                case, member = inner.split("/")
                members.append((case not in WITNESSES, case, member, writer, archive.read(inner)))
    with tarfile.open(os.path.join(ROOT, "tests", "data", name + ".tar.xz"), "w:xz") as packed:
        for _, case, member, writer, content in sorted(members):
            info = tarfile.TarInfo("%s/%s/%s" % (writer, case, member))
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    pack(*sys.argv[1:])
