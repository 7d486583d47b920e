"""OUT appears whole or not at all, and nothing else is ever lost."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import contents, make_foreign, make_symlink
from support.samples import ROOT

from cudnn_convert import storage
from cudnn_convert.errors import UsageError, WriteError

# OUT appears whole or not at all, and nothing else is ever lost.

#: What the tests write to files that are to be known as ours.
OURS = ("old", "new", "one", "ours", "of the other run")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint's prefix, in a folder of its own."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.ckpt.index").write_text("index")
    return tmp_path / "source" / "model.ckpt"


def is_ours(path: Path) -> bool:
    return (path / storage.RECORD).is_file() if path.is_dir() else path.read_text() in OURS


def target(out: Path, source: Path, *, force: bool = False) -> storage.Destination:
    return storage.Destination(out, is_ours, [(f"the source {source}", source)], force)


def put(out: Path, source: Path, text: str, *, folder: bool = True, force: bool = False) -> None:
    """Writes an artifact that holds `text`."""
    with storage.atomic_output(target(out, source, force=force), folder=folder) as fresh:
        (fresh / storage.RECORD if folder else fresh).write_text(text)


def held(out: Path) -> str:
    return (out / storage.RECORD if out.is_dir() else out).read_text()


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_a_new_artifact_stands_alone(tmp_path: Path, source: Path, folder: bool) -> None:
    out = tmp_path / "new" / "parents" / "out"
    put(out, source, "one", folder=folder)
    assert held(out) == "one"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_empty_folder_may_be_out(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("out", "here"):
        (tmp_path / name).mkdir()
    put(tmp_path / "out", source, "one")
    monkeypatch.chdir(tmp_path / "here")
    put(Path(), source, "two")
    assert held(tmp_path / "out") == "one"
    assert held(tmp_path / "here") == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "out", "source"]


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "in steps"])
@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_force_replaces(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, folder: bool, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(storage, "_exchange", lambda one, other: False)
    put(tmp_path / "out", source, "old", folder=folder)
    put(tmp_path / "out", source, "new", folder=folder, force=True)
    assert held(tmp_path / "out") == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize(
    "error", [RuntimeError, KeyboardInterrupt, OSError], ids=lambda error: error.__name__
)
@pytest.mark.parametrize("old", [True, False], ids=["over an old one", "new"])
@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_a_failure_leaves_all_as_it_was(
    tmp_path: Path, source: Path, error: type[BaseException], old: bool, folder: bool
) -> None:
    out = tmp_path / "new" / "out"
    if old:
        put(out, source, "old", folder=folder)
    before = contents(tmp_path)
    with (
        pytest.raises(WriteError if error is OSError else error),
        storage.atomic_output(target(out, source, force=True), folder=folder) as fresh,
    ):
        (fresh / "half" if folder else fresh).write_text("half")
        raise error
    assert contents(tmp_path) == before


def test_a_full_disk_is_named(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(WriteError) as caught, storage.atomic_output(target(out, source), folder=True):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(caught.value) == f"{out}: cannot write: No space left on device"
    assert caught.value.exit_code == 4


def make_ours(out: Path) -> None:
    out.mkdir()
    (out / storage.RECORD).write_text("{}")


BEFORE = (
    "expected a new path, found what this tool wrote before; choose another path, or replace it with --force"
)
FOREIGN = "expected a new path, found a {} that this tool did not write; choose another path"
REFUSED = {
    "ours": (make_ours, False, BEFORE),
    "file": (lambda out: out.write_text("text"), False, FOREIGN.format("file")),
    "file with force": (lambda out: out.write_text("text"), True, FOREIGN.format("file")),
    "symlink": (make_symlink, True, "expected a new path, found a symbolic link; name its target"),
    "dead symlink": (
        lambda out: out.symlink_to("nowhere"),
        True,
        "expected a new path, found a symbolic link; name its target",
    ),
    "foreign folder": (make_foreign, True, FOREIGN.format("folder")),
    "file for a folder": (
        lambda out: out.write_text("ours"),
        True,
        "expected a folder to replace, found a file; choose another path",
    ),
}


@pytest.mark.parametrize(("make", "force", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_ours_is_refused(
    tmp_path: Path, source: Path, make: object, force: bool, message: str
) -> None:
    out = tmp_path / "out"
    assert callable(make)
    make(out)
    before = contents(tmp_path)
    with pytest.raises(UsageError) as caught:
        put(out, source, "new", force=force)
    assert str(caught.value) == f"{out}: {message}"
    assert caught.value.exit_code == 2
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("out", "given"),
    [
        ("source", "source"),
        ("source", "source/model.ckpt"),
        (".", "source"),
        ("source/out", "source"),
        ("source/deep/er", "source"),
        ("elsewhere/../source", "source"),
        ("link/out", "source"),
    ],
)
def test_out_and_source_stand_apart(tmp_path: Path, source: Path, out: str, given: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(source.parent)
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"expected a path apart from the source .*; choose another path"):
        put(tmp_path / out, tmp_path / given, "new", force=True)
    assert contents(tmp_path) == before


def test_a_file_is_apart_from_itself_under_another_name(tmp_path: Path, source: Path) -> None:
    (tmp_path / "data").write_text("ours")
    os.link(tmp_path / "data", tmp_path / "out")
    apart = storage.Destination(tmp_path / "out", is_ours, [("--data data", tmp_path / "data")], force=True)
    with pytest.raises(
        UsageError, match="expected a path apart from --data data, found an overlap; choose another path"
    ):
        storage.refuse(apart)


@pytest.mark.parametrize("name", ["-", "gs:/bucket/model", "s3:/bucket/model.onnx", "file:/tmp/out"])
def test_an_address_is_no_local_folder(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(UsageError) as caught:
        put(Path(name), source, "new")
    told = "expected a local path, found an address; write here and copy it there"
    stream = "-: expected a path, found the name of a stream; name a file or folder"
    assert str(caught.value) == (stream if name == "-" else f"{name.replace(':/', '://')}: {told}")
    assert contents(tmp_path) == before
    put(tmp_path / name, source, "new")


def test_out_may_stand_beside_the_files_of_a_prefix(source: Path) -> None:
    put(source.parent / "out", source, "new")
    assert held(source.parent / "out") == "new"


def died_between_its_steps(out: Path) -> None:
    """What a run leaves that is killed after it moved the old artifact away."""
    make_ours(make_left_over(out) / ".cudnn_convert.old")


def make_left_over(out: Path) -> Path:
    """The folder that a run to `out` leaves where it is killed."""
    with storage.staging_folder(out) as folder:
        make_foreign(folder / out.name)
        left = folder.with_name("kept")
        folder.rename(left)
    left.rename(folder)
    return folder


def test_the_old_artifact_comes_back_after_a_crash(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    died_between_its_steps(out)
    with pytest.raises(UsageError, match="found what this tool wrote before"):
        put(out, source, "new")
    assert held(out) == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_force_after_a_crash_replaces_the_old_artifact(tmp_path: Path, source: Path) -> None:
    died_between_its_steps(tmp_path / "out")
    put(tmp_path / "out", source, "new", force=True)
    assert held(tmp_path / "out") == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_what_dead_runs_left_goes(tmp_path: Path, source: Path) -> None:
    for _ in range(3):
        make_left_over(tmp_path / "out")
    (tmp_path / ".out.diedyoun.tmp").mkdir()  # before it was claimed
    put(tmp_path / "out", source, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_the_lock_of_a_folder_is_removed_last(tmp_path: Path) -> None:
    """A run that is killed while it removes its folder leaves one that the next run knows."""
    program = """
import os, sys
from pathlib import Path
from cudnn_convert import storage
with storage.staging_folder(Path(sys.argv[1])) as folder:
    for name in "abcdefghij":
        (folder / name).touch()
        (folder / f"folder_{name}").mkdir()
        (folder / f"folder_{name}" / "file").touch()
    names = [path.name for path in folder.iterdir()]
    lock = next(name for name in names if name.startswith(".cudnn_convert"))
    def look(event, given):
        if event == "os.remove" and os.path.basename(given[0]) == lock:
            print([path.name for path in folder.iterdir()] == [lock])
    sys.addaudithook(look)
"""
    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "out"], cwd=ROOT, check=True,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert ended.stdout == "True\n"
    assert not [*tmp_path.iterdir()]


def test_what_others_have_beside_out_stays(tmp_path: Path, source: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "dear").write_text("dear")
    (tmp_path / ".out.mybackup.tmp").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".out.mybackup.tmp.old").mkdir()
    (tmp_path / ".out.notes123.tmp").write_text("a file of that name")
    make_foreign(tmp_path / ".out.mymodels.tmp")
    make_left_over(tmp_path / "another")
    before = contents(tmp_path)
    put(tmp_path / "out", source, "new")
    (tmp_path / "out" / storage.RECORD).unlink()
    (tmp_path / "out").rmdir()
    assert contents(tmp_path) == before


def test_a_run_that_is_alive_keeps_its_folder(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    with storage.atomic_output(target(out, source, force=True), folder=True) as fresh:
        put(out, source, "of the other run")
        (fresh / storage.RECORD).write_text("new")
    assert held(out) == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_what_another_run_put_there_meanwhile_stays(tmp_path: Path, source: Path, folder: bool) -> None:
    out = tmp_path / "out"
    with (
        pytest.raises(
            UsageError, match="found what this tool wrote before; choose another path, or replace it"
        ),
        storage.atomic_output(target(out, source), folder=folder) as fresh,
    ):
        put(out, source, "of the other run", folder=folder)
        (fresh / storage.RECORD if folder else fresh).write_text("new")
    assert held(out) == "of the other run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_folder_that_another_run_takes_is_made_anew(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.mkdtemp

    def taken(**named: str) -> str:
        found = made(**named)
        if not list((tmp_path / "seen").iterdir()):
            (tmp_path / "seen" / "one").touch()
            Path(found).rmdir()
        return found

    (tmp_path / "seen").mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    put(tmp_path / "out", source, "new")
    assert held(tmp_path / "out") == "new"


def test_folders_that_are_gone_at_once_end_the_call(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a mount covers the folder: a folder is made in what is below, and looked for in the mount."""
    made, count = tempfile.mkdtemp, [0]

    def lost(**named: str) -> str:
        count[0] += 1
        found = made(**named)
        Path(found).rmdir()
        return found

    monkeypatch.setattr(tempfile, "mkdtemp", lost)
    with pytest.raises(WriteError) as refused:
        put(tmp_path / "out", source, "new")
    assert (
        str(refused.value)
        == f"{tmp_path / 'out'}: cannot write here: folders that are made here are gone at once"
    )
    assert 1 < count[0] < 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize("folder", [True, False])
def test_out_is_where_the_call_began(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with storage.atomic_output(target(Path("out"), source), folder=folder) as fresh:
        assert fresh.is_absolute()
        monkeypatch.chdir(tmp_path / "there")
        (fresh / storage.RECORD if folder else fresh).write_text("new")
    assert held(tmp_path / "here" / "out") == "new"
    assert not [*(tmp_path / "there").iterdir()]


def test_without_locks_a_run_works_and_nothing_is_swept(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = make_left_over(tmp_path / "out")

    def refused(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    put(tmp_path / "out", source, "new")
    assert held(tmp_path / "out") == "new"
    assert left.exists()


def test_a_disk_that_takes_folders_but_no_files_is_left_clean(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: object, flags: int, mode: int = 0) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = contents(tmp_path)
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(WriteError, match="cannot write here: No space left on device"):
        put(tmp_path / "out", source, "new")
    monkeypatch.undo()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("undone", [True, False], ids=["undone", "not even that"])
def test_without_exchange_a_failed_second_step_loses_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, undone: bool
) -> None:
    monkeypatch.setattr(storage, "_exchange", lambda one, other: False)
    out = tmp_path / "out"
    put(out, source, "old")
    before, rename = contents(tmp_path), Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.parent.suffix == ".tmp" and (path.name == "out" or not undone):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing)
        with pytest.raises(WriteError, match="cannot write: Input/output error"):
            put(out, source, "new", force=True)
    if not undone:
        with pytest.raises(UsageError, match="found what this tool wrote before"):
            put(out, source, "new")
    assert contents(tmp_path) == before


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder in which nobody may write but root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere. Around what is tested alone: what measures the tests writes as root."""
    root = os.geteuid() == 0
    if root:
        try:
            os.seteuid(65534)
        except OSError:
            pytest.skip("root of this container may not become somebody else")
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no such permissions")
@pytest.mark.parametrize("name", ["out", "new/out"])
def test_a_folder_without_permission_is_named(locked: Path, name: str) -> None:
    out = locked / name
    with pytest.raises(WriteError) as caught, as_nobody():
        put(out, Path("source"), "new")
    assert str(caught.value) == f"{out}: cannot write here: Permission denied"
    assert not list(locked.iterdir())


def test_a_file_in_the_way_of_the_parents_is_named(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("text")
    before = contents(tmp_path)
    with pytest.raises(WriteError, match="file/out: cannot write here: "):
        put(tmp_path / "file" / "out", source, "new")
    assert contents(tmp_path) == before


# A run that is killed before any one of its calls of the system: OUT holds the old artifact or the new.

PROGRAM = ROOT / "tests" / "support" / "programs" / "killed_runs.py"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the calls of one system")
@pytest.mark.slow("cudnn_convert/storage", "tests/support/programs/killed_runs.py")
@pytest.mark.parametrize("way", ["exchange", "steps"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_run_that_is_killed_tears_nothing(tmp_path: Path, kind: str, way: str) -> None:
    call = [sys.executable, str(PROGRAM), str(tmp_path), kind, way]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) > 15
    old, new = (["old"] * 2, ["new"] * 2) if kind == "folder" else (["old"], ["new"])
    outcomes = []
    for died, everywhere, after, beside in runs:
        # In steps there is a moment when only the temporary folder holds it: the next run puts it back.
        assert died in (old, new) or (way == "steps" and not died and everywhere.count("old") == len(old))
        assert (after, beside) == (new, ["out"])
        outcomes.append(died)
    assert outcomes[0] == old
    assert outcomes[-1] == new
    assert (way == "steps") == ([] in outcomes)
