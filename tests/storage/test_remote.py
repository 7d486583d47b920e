"""Objects of a store, in fsspec's memory: a folder's provenance comes last, and messages hide secrets."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import command
from support.samples import ROOT

from cudnn_convert.batch import sources
from cudnn_convert.errors import ReadError, UsageError, WriteError
from cudnn_convert.storage import remote, staging

OUT = Path("memory://bucket/out")
MARKS = ("conversion.json",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact to copy."""
    (tmp_path / "made" / "inner").mkdir(parents=True)
    for name in ("a", "conversion.json", "inner/b"):
        (tmp_path / "made" / name).write_text(name)
    return tmp_path / "made"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://b/k/model.ckpt", "s3://b/k/model.ckpt"),
        ("GS://b/k", "gs://b/k"),
        ("memory://b", "memory://b"),
        ("s3:", None),
        ("ftp://b/k", None),
        ("c:/models/x", None),
        ("/s3:/b/k", None),
        ("runs/s3:/b", None),
    ],
)
def test_an_address_is_a_path_with_a_scheme(text: str, address: str | None) -> None:
    assert remote.address_of(Path(text)) == address
    assert remote.name_of(Path(text)) == (address or str(Path(text)))


@pytest.mark.parametrize(
    "text",
    [
        *("s3://key:hidden@b/x", "gs://hidden@b/x", "https://user:hidden@host/x", "s3://key:hidden/b/x"),
        *("s3://b/k?X-Amz-Signature=hidden", "https://host:80/b/k?sig=hidden", "memory://b/k/?a=1&b=hidden"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="expected an address without credentials") as caught:
        remote.check(Path(text))
    assert "hidden" not in str(caught.value)


def test_another_store_is_refused_unless_the_path_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("ftp://b/x", "http://localhost:9000/b/x"):
        with pytest.raises(UsageError, match=f"^{text}: expected a path or s3://, gs://, memory://, found"):
            remote.check(Path(text))
    remote.check(Path("s3://bucket/part-?.tfrecord"))
    (tmp_path / "ftp:" / "b").mkdir(parents=True)
    (tmp_path / "ftp:" / "b" / "x").touch()
    remote.check(Path("ftp:/b/x"))


def test_objects_are_listed_by_their_names(store: Any) -> None:
    for name in ("m.ckpt.index", "m.ckpt.meta", "m/saved_model.pb", "m2/x", "other"):
        store.pipe_file(f"/bucket/runs/{name}", b"abc")
    listed = remote.list_objects(Path("memory://bucket/runs/m"))
    assert [*listed] == ["m.ckpt.index", "m.ckpt.meta", "m/saved_model.pb", "m2/x"]
    assert [*remote.list_below(Path("memory://bucket/runs/m"))] == ["saved_model.pb"]
    assert [*remote.list_below(Path("memory://bucket/runs/other"))] == [""]
    assert [*remote.list_below(Path("memory://bucket"))][-1] == "runs/other"
    assert {entry.size for entry in listed.values()} == {3}
    before = remote.digest_objects(listed)
    store.pipe_file("/bucket/runs/m.ckpt.meta", b"abd")
    assert before != remote.digest_objects(remote.list_objects(Path("memory://bucket/runs/m")))


def test_a_folder_is_written_with_its_provenance_last(store: Any, folder: Path) -> None:
    order: list[str] = []
    put = store.put_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "put_file", lambda _, file, key: order.append(key) or put(file, key))
        remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert order == ["/bucket/out/a", "/bucket/out/inner/b", "/bucket/out/conversion.json"]
    assert {key: bytes(entry.getvalue()) for key, entry in store.store.items()} == {
        f"/bucket/out/{name}": name.encode() for name in ("a", "inner/b", "conversion.json")
    }


def fail_at(store: Any, patch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    """Have the copy of one object fail, and nothing else."""
    put = store.put_file

    def put_or_fail(_: Any, file: str, key: str) -> None:
        if key.endswith(name):
            raise error
        put(file, key)

    patch.setattr(type(store), "put_file", put_or_fail)


@pytest.mark.parametrize("name", ["a", "inner/b", "conversion.json"])
def test_an_upload_that_fails_leaves_nothing(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fail_at(store, monkeypatch, name, PermissionError("Access Denied"))
    with pytest.raises(WriteError, match=f"^memory://bucket/out/{name}: cannot write: Access Denied$"):
        remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert not store.store


def test_a_store_that_loses_bytes_is_seen_before_the_provenance(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put_file
    monkeypatch.setattr(
        type(store),
        "put_file",
        lambda _, file, key: store.pipe_file(key, b"") if "/b" in key[-3:] else put(file, key),
    )
    with pytest.raises(WriteError, match="inner/b: expected 7 bytes after writing them, found 0 bytes"):
        remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert not store.store


def test_an_upload_that_is_interrupted_is_not_finished(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        fail_at(store, patch, "inner/b", KeyboardInterrupt())
        remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert [*store.store] == [f"/bucket/out/{remote.BEGUN}"]
    with staging.open_copies() as copies, pytest.raises(ReadError, match="its upload did not end"):
        copies.copy(OUT)
    staging.refuse_place(OUT, force=False)  # the next run may write there
    remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert remote.BEGUN not in remote.list_below(OUT)


def test_what_is_replaced_counts_as_not_finished_first(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    (folder / "a").rename(folder / "c")
    seen: list[list[str]] = []
    put = store.put_file
    monkeypatch.setattr(
        type(store), "put_file", lambda _, file, key: seen.append([*remote.list_below(OUT)]) or put(file, key)
    )
    remote.put_folder(folder, OUT, MARKS, tell=lambda _: None)
    assert all(remote.BEGUN in names and "conversion.json" not in names for names in seen)
    assert [*remote.list_below(OUT)] == ["c", "conversion.json", "inner/b"]


@pytest.mark.parametrize("name", ["m/../../x", "m//x", "m/./x"])
def test_a_name_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    listed = {name: remote.Object(1, "")}
    with pytest.raises(ReadError, match="expected a name that is a path, found one with an empty part, dots"):
        remote.fetch(Path("memory://bucket/m"), listed, tmp_path, tell=lambda _: None)
    assert not [*tmp_path.iterdir()]


def test_a_message_has_neither_queries_nor_values_of_secret_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hidden2")
    text = "no hidden1 at http://x/y?X-Amz-Signature=hidden3 for hidden2"
    assert remote.without_secrets(text) == "no ... at http://x/y for ..."
    text = "proxy http://me:hidden@p:1/: AWS4 Credential=hidden/s3, Signature=hidden; Bearer hidden, s3://b/k"
    told = "proxy http://...p:1/: AWS4 Credential=..., Signature=... Bearer ... s3://b/k"
    assert remote.without_secrets(text) == told


@pytest.mark.parametrize("name", ["gcsfs", "s3fs"])
def test_libraries_of_stores_log_to_a_users_handlers_alone(name: str) -> None:
    remote._open(Path("memory://bucket/m"))
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger(name).handlers)
    assert logging.getLogger(name).propagate


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_without_the_package_the_line_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    import fsspec

    monkeypatch.setitem(sys.modules, missing, None)
    # Another test may have opened it.
    monkeypatch.delitem(sys.modules[fsspec.get_filesystem_class.__module__]._registry, "s3", raising=False)
    ended = command("s3://bucket/model.ckpt", tmp_path / "out", "--quiet")
    cure = "install it: pip install 'cudnn-convert[remote]'"
    line = f"s3://bucket/model.ckpt: expected the package s3fs, found that it is not installed; {cure}"
    assert (ended.code, ended.stdout, ended.stderr) == (4, "", f"cudnn-convert: {line}\n")


def test_a_model_is_converted_from_memory_to_memory(store: Any, tmp_path: Path) -> None:
    """A Keras file's weights, without TensorFlow; the artifact as of the local file."""
    path = ROOT / "tests/data/keras/keras-2.2.4/sequential_lstm/model.h5"
    store.pipe_file(f"/bucket/{path.name}", path.read_bytes())
    address, out = f"memory://bucket/{path.name}", "memory://bucket/npz/w"
    here = command(path, tmp_path / "w", "--format", "npz", "--no-verify", "--quiet")
    there = command(address, out, "--format", "npz", "--no-verify", "--quiet")
    assert (here.code, there.code, there.stdout) == (0, 0, f"{out}/weights.npz\n"), there.stderr
    for name in ("weights.npz", "conversion.json"):
        assert store.cat_file(f"/bucket/npz/w/{name}") == (tmp_path / "w" / name).read_bytes()
    again = command(address, out, "--format", "npz", "--no-verify", "--quiet")
    assert again.code == 2 and "found what this tool wrote before" in again.stderr
    store.pipe_file("/bucket/thesis/chapter", b"years of work")
    ended = command(address, "memory://bucket/thesis", "--format", "npz", "--force", "--quiet")
    assert ended.code == 2 and "found a folder that this tool did not write" in ended.stderr
    ended = command("inspect", address)
    assert ended.code == 0 and f"cudnn-convert {address} " in ended.stdout


CALLS: dict[str, tuple[list[str], str]] = {
    "nothing there": (
        ["memory://bucket/none", "x"],
        "memory://bucket/none: source: expected a model or a file",
    ),
    "a bucket": (["memory://bucket/w.h5", "memory://bucket"], "memory://bucket: expected a name in a bucket"),
    "the source": (
        ["memory://bucket/w.h5", "memory://bucket/w.h5/x"],
        "memory://bucket/w.h5/x: expected a path apart from the source memory://bucket/w.h5, found an "
        "overlap",
    ),
    "too large": (
        ["memory://bucket/w.h5", "x", "--limit", "staged=2"],
        "memory://bucket/w.h5: source: expected at most 2 bytes, found 3; "
        "if that is meant, give --limit staged=3",
    ),
}


@pytest.mark.parametrize(("words", "line"), CALLS.values(), ids=CALLS)
def test_a_call_that_is_wrong_has_one_line(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store.pipe_file("/bucket/w.h5", b"abc")
    ended = command(*words, "--quiet")
    assert ended.code in (1, 2)
    assert ended.stderr.startswith(f"cudnn-convert: {line}") and ended.stderr.count("\n") == 1
    assert [*store.store] == ["/bucket/w.h5"] and not [*tmp_path.iterdir()]


def test_models_are_found_by_the_names_of_objects(store: Any) -> None:
    names = (
        *("a/m-1.index", "a/m-1.data-00000-of-00001", "a/m-20.index", "a/m-20.meta", "a/graph.pbtxt"),
        *("b/saved_model.pb", "b/variables/variables.index", "c/net.h5", "c/notes.txt", ".hidden/x.h5"),
        *("cpu/old/model.h5", "c/conversion.json"),
    )
    for name in names:
        store.pipe_file(f"/bucket/{name}", b"abc")
    store.pipe_file("/bucket/a/checkpoint", b'model_checkpoint_path: "m-20"\n')
    given = {"manifest": None, "rows": (), "apart": Path("memory://bucket/cpu")}
    search = sources.find(["memory://bucket"], **given)
    root = Path("memory://bucket")
    assert [(str(each.path.relative_to(root)), each.size) for each in search.sources] == [
        ("a/m-20", 6),
        ("b", 6),
        ("c/net.h5", 3),
    ]
    assert sources.name_outputs(search) == ["a/m-20", "b", "c/net"]
    assert "1 older steps of 2 checkpoints left out" in search.notes[0]
    for pattern, wanted in (
        ("memory://bucket/*/*.index", ["a/m-1", "a/m-20"]),
        ("memory://bucket/**/*.index", ["a/m-1", "a/m-20", "b"]),
        ("memory://bucket/[bc]", ["b", "c/net.h5"]),
    ):
        listed = [str(each.path.relative_to(root)) for each in sources.find([pattern], **given).sources]
        assert listed == wanted
    with pytest.raises(UsageError, match="expected addresses of models, found nothing; check the address"):
        sources.find(["memory://bucket/*.none"], **given)
