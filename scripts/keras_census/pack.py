"""Packs what the writers recorded into tests/data/keras_census.tar.xz, equal cases beside each other.

    python -m keras_census.pack FOLDER          (in scripts/)

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


def pack(folder):
    members = []
    for path in glob.glob(os.path.join(folder, "*.zip")):
        writer = os.path.basename(path)[: -len(".zip")]
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                case, member = name.split("/")
                members.append((case not in WITNESSES, case, member, writer, archive.read(name)))
    with tarfile.open(os.path.join(ROOT, "tests", "data", "keras_census.tar.xz"), "w:xz") as packed:
        for _, case, member, writer, content in sorted(members):
            info = tarfile.TarInfo("%s/%s/%s" % (writer, case, member))
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    pack(*sys.argv[1:])
