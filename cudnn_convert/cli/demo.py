"""The sample model of `demo`: files, and calls for converting and running.

`sample.zip` has the checkpoint of models/crf_tagger: a sequence tagger of TensorFlow 1.15, of a bidirectional
LSTM and a CRF. scripts/write_sample.py writes it.
"""

import os
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError, name_access, name_write
from cudnn_convert.storage import remote

FOLDER: Final = "cudnn-convert-demo"
SAMPLE: Final = "model.ckpt"
_ARCHIVE: Final = "sample.zip"


def unpack(folder: Path) -> None:
    """Write the files of the sample to `folder`, made if missing.

    The sample alone may be there already: a demo that could not go on leaves it. Raises UsageError for
    anything but a new or an empty local folder, and WriteError.
    """
    if remote.address_of(folder) is not None:
        raise UsageError(f"DIR {remote.name_of(folder)}: expected a local folder, found an address")
    what = f"DIR {folder}: expected a new or an empty folder, found"
    cure = "name another: cudnn-convert demo DIR"
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{what} a file; {cure}")
    sample = resources.files("cudnn_convert.cli").joinpath(_ARCHIVE)
    with sample.open("rb") as file, zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with name_access(folder):
        if folder.is_dir() and any(contents.get(path.name) != _read(path) for path in folder.iterdir()):
            raise UsageError(f"{what} one with files; {cure}")
    with name_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def calls(folder: Path) -> Iterator[list[str]]:
    """Yield the words of each call: inspect, convert to two formats, run both results."""
    sample, saved_model, onnx = (str(folder / name) for name in (SAMPLE, "model_cpu", "model.onnx"))
    yield ["inspect", sample]
    yield [sample, saved_model]
    yield [sample, onnx]
    yield ["run", saved_model]
    yield ["run", onnx]
