"""Reads NumPy's `.npy` and `.npz`, and folders of `.npy`.

An array of an archive has the name of its member, an array of its own file the name of the file. Objects are
never unpickled. Source: NumPy 2.3 lib/_format_impl.py, lib/_npyio_impl.py `_savez`.
"""

from pathlib import Path
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Model, Tensor
from cudnn_convert.read.arrays import containers
from cudnn_convert.read.arrays.containers import ArrayFiles
from cudnn_convert.weights import npz_archive

KIND: Final = "file of NumPy arrays"
TAGS: Final = False
_MAGIC: Final = b"\x93NUMPY"


def recognise(path: Path) -> ArrayFiles | None:
    """Return the file of arrays at `path`, or the files of a folder with `.npy` alone."""
    if not path.is_file():
        return containers.list_folder(path, ".npy", alone=True)
    head = containers.read_head(path, len(_MAGIC))
    return ArrayFiles(path, (path,)) if head == _MAGIC or _is_archive(path) else None


def _is_archive(path: Path) -> bool:
    names = containers.list_members(path)
    return bool(names) and all(name.endswith(npz_archive.SUFFIX) for name in names)


def read(source: ArrayFiles) -> Model:
    """Read the arrays; values stay in the files. Raises ReadError, OSError."""
    tensors = containers.join(source.path, map(_tensors, source.files))
    return containers.make_model(source.path, KIND, tensors)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return {**npz_archive.open_arrays(path)}
    except ValueError as cause:
        expected, advice = "plain arrays", "save arrays of numbers, without pickled objects"
        raise ReadError(path, "file", expected=expected, found=str(cause), advice=advice) from cause
