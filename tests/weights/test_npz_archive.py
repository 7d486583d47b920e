"""An archive of arrays is read as NumPy wrote it; what claims more than it is, is refused unread."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.context import Limits, within
from cudnn_convert.weights import npz_archive

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(folder: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / "a.npz"


def member(value: Any, **changes: bytes) -> bytes:
    held = io.BytesIO()
    np.save(held, value)
    return held.getvalue()


def claiming(shape: str, dtype: str = "'<f4'", version: bytes = b"\1\0") -> bytes:
    """The bytes of VALUES under another header."""
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    width = 2 if version == b"\1\0" else 4
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode() + VALUES.tobytes()


def test_arrays_are_as_numpy_wrote_them(tmp_path: Path) -> None:
    given = {
        "a": VALUES,
        "b/c": np.asfortranarray(VALUES),
        "none": np.zeros((0, 4)),
        "words": np.array(["x", "yz"]),
    }
    np.savez_compressed(tmp_path / "a.npz", **given)
    found = npz_archive.load(tmp_path / "a.npz")
    assert list(found) == list(given)
    for key, value in given.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(found[key], value)


def test_one_key_is_read_without_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.npy": member(VALUES), "b.npy": b"nothing"})
    np.testing.assert_array_equal(npz_archive.load(path, only="a")["a"], VALUES)
    assert npz_archive.load(path, only="c") == {}
    with pytest.raises(ValueError, match="magic"):
        npz_archive.load(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_strings_keep_their_zeros(tmp_path: Path, protocol: int) -> None:
    """NumPy's own type for bytes drops those at the end; its pickles of any protocol have them."""
    value = np.empty((2, 2), object)
    value[...] = [[b"a\0\0", b""], ["\u00e9\0", b"\0\xff"]]
    for given in (value, np.asfortranarray(value)):
        header = member(given).partition(b"\n")[0] + b"\n"
        content = header + pickle.dumps(given, protocol=protocol)
        path = written(tmp_path, {"a.npy": content})
        found = npz_archive.load(path, strings=True)["a"]
        with pytest.raises(ValueError, match="elements of object"):
            npz_archive.load(path)
        assert found.tolist() == [[b"a\0\0", b""], [b"\xc3\xa9\0", b"\0\xff"]]


def test_a_wide_header_is_read(tmp_path: Path) -> None:
    found = npz_archive.load(written(tmp_path, {"a.npy": claiming("(2, 3)", version=b"\2\0")}))
    np.testing.assert_array_equal(found["a"], VALUES)


def by_reason(value: bytes | str) -> str:
    """The id of a parameter: bytes of a pickle may differ in each process."""
    return value if isinstance(value, str) else "content"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (claiming("(1099511627776,)"), r"24 bytes for float32\[1099511627776\]"),
        (claiming("(2, 2)"), r"24 bytes for float32\[2, 2\]"),
        (claiming("(-2, -3)"), r"24 bytes for float32\[-2, -3\]"),
        (claiming("(3,)", "'|O'"), "elements of object"),
        (claiming("(3,)", "[('a', '<f4'), ('b', '<f4')]"), "elements of"),
        (claiming("(99999,)", "'|V0'"), "elements of"),
        (claiming("(2, 3)", version=b"\3\0"), "no archive of plain arrays"),
        (claiming("(1.5,)"), "shape"),
        (claiming("(2, 3"), "header|array"),
        (b"no array at all", "magic"),
        (b"", "magic|EOF"),
    ],
    ids=by_reason,
)
def test_what_is_no_plain_array_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        npz_archive.load(written(tmp_path, {"a.npy": content}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (claiming("(3,)", "'|O'"), "objects that cannot be read"),
        (member(np.array([b"a", 1], object)), "objects that are neither bytes nor text"),
        (member(np.array([{b"a": b"b"}], object)), "objects that are neither bytes nor text"),
        (member(np.array([Path("a")], object)), r"objects of pathlib"),
        (member(np.array([print], object)), r"objects of builtins\.print"),
        (member(np.array([b"a", b"b"], object)).replace(b"(2,)", b"(3,)"), "another shape"),
        (claiming("(1,)", "'|O'")[: -VALUES.nbytes] + b"cos\nsystem\n(S'x'\ntR.", r"objects of os\.system"),
        (claiming("(1,)", "'|O'")[: -VALUES.nbytes] + b"cnumpy\ndtype\n}b.", "a state for what has none"),
        (claiming("(1,)", "'|O'")[: -VALUES.nbytes] + b"\x80\x04]\x94.", "another shape"),
    ],
    ids=by_reason,
)
def test_objects_that_are_no_strings_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        npz_archive.load(written(tmp_path, {"a.npy": content}), strings=True)


def test_a_member_may_grow_as_far_as_the_limits_go(tmp_path: Path) -> None:
    content = member(np.zeros(10_000, np.float32))
    path = written(tmp_path, {"a.npy": content}, zipfile.ZIP_DEFLATED)
    stored = zipfile.ZipFile(path).infolist()[0].compress_size
    times = len(content) // stored
    with within(Limits(expanded=len(content), expansion=1)):
        assert npz_archive.load(path)["a"].shape == (10_000,)
    with within(Limits(expanded=1, expansion=times + 1)):
        assert npz_archive.load(path)["a"].shape == (10_000,)
    with (
        within(Limits(expanded=len(content) - 1, expansion=times)),
        pytest.raises(ValueError, match=f"{len(content)} bytes in {stored}"),
    ):
        npz_archive.load(path)


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="no archive of plain arrays: File is not a zip file"):
        npz_archive.load(tmp_path / "a.npz")
    with pytest.raises(OSError, match="No such file"):
        npz_archive.load(tmp_path / "b.npz")


def test_what_an_archive_becomes_counts_in_sum(tmp_path: Path) -> None:
    members = {f"{number}.npy": member(np.zeros(1 << 20)) for number in range(5)}
    path = written(tmp_path, members, zipfile.ZIP_DEFLATED)
    with within(Limits(expanded=9 << 20)):
        assert npz_archive.load(path, only="1")["1"].shape == (1 << 20,)
        with pytest.raises(ValueError, match=r"^4194\d{4} bytes in \d+$"):
            npz_archive.load(path)
