"""Describes files and folders unknown to all readers, with advice.

The content tells what they are. Sources of the marks: git-lfs v3.7 docs/spec.md; PKWARE APPNOTE 6.3 section
4.3; POSIX ustar; RFC 1952; onnx v1.20 onnx/onnx.proto `ModelProto`; tensorflow v2.21.0
tensorflow/compiler/mlir/lite/schema/schema.fbs `file_identifier`; CPython 3.13 Lib/pickle.py `PROTO`.
"""

import difflib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.read import saved_model

_LFS: Final = b"version https://git-lfs.github.com/spec/"
#: A pointer is smaller, by its specification.
_LFS_BYTES: Final = 1024
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_GZIP, _USTAR, _USTAR_AT = b"\x1f\x8b", b"ustar", 257
_OTHERS: Final = (
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
)
_TFLITE: Final = b"TFL3"
#: The protocol mark of a pickle.
_PICKLES: Final = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
#: `ir_version`, a small number, and the next field of a ModelProto: a name, a version or its graph.
_ONNX_FIELDS: Final = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42})
_ONNX_VERSIONS: Final = range(1, 32)
_HEAD: Final = 1 << 10
#: How much of its letters a name shares with one that it stands for.
_NEAR: Final = 0.6
#: Files of a folder that are looked at.
_LISTED: Final = 1000
_ON_CPU: Final = (
    "it runs on a CPU as it is: see `cudnn-convert run`, or name the source first for `cudnn-convert verify`"
)


def describe(path: Path) -> tuple[str, str]:
    """Describe an existing path, with advice on a replacement. Raises OSError."""
    if path.is_dir():
        return _describe_folder(path)
    head = _read_head(path)
    if not head:
        return "an empty file", "copy it again"
    if is_pointer(head):
        return "a Git LFS pointer in the place of the file", "get the file with git lfs pull"
    return (
        _describe_archive(path, head)
        or _describe_model(head)
        or _describe_text(path, head)
        or ("a file that is none of these", "")
    )


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def is_pointer(head: bytes) -> bool:
    """Return True if a file with the first bytes `head` is a Git LFS pointer."""
    return head.startswith(_LFS)


def is_placeholder(path: Path) -> bool:
    """Return True if a file is empty or a Git LFS pointer.

    Then something stands in the place of its content.
    """
    with suppress(OSError):
        head = _read_head(path)
        return not head or is_pointer(head)
    return False


def refuse_pointers(files: Iterable[Path]) -> None:
    """Raise ReadError for files of a model unfetched by Git LFS.

    What cannot be read is left.
    """
    for path in files:
        with suppress(OSError):
            if path.is_file() and path.stat().st_size < _LFS_BYTES and is_pointer(_read_head(path)):
                actual, advice = describe(path)
                raise ReadError(path, "file", expected="a file of the model", found=actual, advice=advice)


def refuse_part(path: Path) -> None:
    """Raise ReadError for a folder inside a SavedModel.

    The SavedModel's variables look like a checkpoint.
    """
    real = Path(os.path.realpath(path))
    if real.name not in ("variables", "assets", "assets.extra") or not path.is_dir():
        return
    if saved_model.recognise(real.parent):
        whole = real.parent if path.name in ("", ".", "..") else path.parent
        actual = f"its folder {real.name} alone"
        raise ReadError(path, "source", expected="a whole SavedModel", found=actual, advice=f"give {whole}")


def find_near(path: Path) -> str:
    """Return the path most similar to a missing path in the same folder.

    It is "" where none is similar.
    """
    folder = path.parent
    if not folder.is_dir():
        return ""
    names = dict.fromkeys(name for file in _list(folder) if file.exists() for name in _names(file))
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=_NEAR)
    return str(folder / near[0]) if near else ""


def _names(file: Path) -> Iterator[str]:
    """Yield the possible names of a file, for a checkpoint the prefix too."""
    if file.suffix == ".index":
        yield file.stem
    yield file.name


def _list(folder: Path) -> list[Path]:
    """List some entries of a folder, in order."""
    return sorted(path for path, _ in zip(folder.iterdir(), range(_LISTED), strict=False))


def _describe_folder(path: Path) -> tuple[str, str]:
    entries = _list(path)
    if not entries:
        return "an empty folder", ""
    inside = [entry for entry in entries if entry.is_dir() and saved_model.recognise(entry)]
    inside += [entry for entry in entries if entry.suffix in (".pb", ".h5", ".hdf5", ".keras")]
    inside += [entry.with_suffix("") for entry in entries if entry.suffix == ".meta"]
    if inside:
        others = f", or one of {len(inside) - 1} more" if len(inside) > 1 else ""
        return "a folder that holds models", f"give {inside[0]}{others}"
    return f"a folder without a model, whose first entry is {entries[0].name}", ""


def _describe_archive(path: Path, head: bytes) -> tuple[str, str] | None:
    if head.startswith(_ZIP):
        return _describe_zip(path)
    packed = next((what for mark, what in _OTHERS if head.startswith(mark)), "")
    packed = "a gzip file" if head.startswith(_GZIP) else packed
    packed = "a tar archive" if head[_USTAR_AT:].startswith(_USTAR) else packed
    return (packed, "unpack it and give what is in it") if packed else None


def _describe_zip(path: Path) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:_LISTED]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a damaged zip archive", "copy it again"
    model = next((name for name in names if name.endswith((".pb", ".h5", ".keras", ".index", ".meta"))), "")
    return f"a zip archive{f' with {model}' if model else ''}", "unpack it and give what is in it"


def _describe_model(head: bytes) -> tuple[str, str] | None:
    if head[4:8] == _TFLITE:
        return "a TensorFlow Lite model", _ON_CPU
    if _is_onnx(head):
        return "an ONNX model", _ON_CPU
    if head.startswith(_PICKLES):
        return "a pickle, which may run anything", "save its arrays as .npz or safetensors"
    return None


def _is_onnx(head: bytes) -> bool:
    return len(head) > 2 and head[0] == 0x08 and head[1] in _ONNX_VERSIONS and head[2] in _ONNX_FIELDS


def _describe_text(path: Path, head: bytes) -> tuple[str, str] | None:
    text = head.decode("utf-8", errors="ignore")
    if b"\0" in head or not all(letter.isprintable() or letter.isspace() for letter in text):
        return None
    if text.startswith("model_checkpoint_path:"):
        return "TensorFlow's list of checkpoints", f"give its folder {path.parent}, or a prefix that it names"
    if text.lstrip().startswith("{") and _is_architecture(path):
        return "the JSON of a Keras model, without weights", "give the weights, and this with --architecture"
    return "a text file", ""


def _is_architecture(path: Path) -> bool:
    try:
        described = json.loads(path.read_bytes()[: 1 << 24])
    except (ValueError, RecursionError):
        return False
    return isinstance(described, dict) and "class_name" in described and "config" in described
