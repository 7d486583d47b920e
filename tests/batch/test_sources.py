"""Which paths are models, and what their OUTs are called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.samples import ROOT, fixture

from cudnn_convert.batch import sources
from cudnn_convert.batch.sources import ModelEntry
from cudnn_convert.errors import UsageError

TF1 = ROOT / "tests" / "data" / "tf1" / "1.15.5"
KERAS = ROOT / "tests" / "data" / "keras"


def copy(sample: str, prefix: Path) -> None:
    """The checkpoint of a sample under another prefix."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for file in (TF1 / sample).glob("model.ckpt.*"):
        shutil.copy(file, f"{prefix}{file.name.removeprefix('model.ckpt')}")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models of every kind among other files; the current folder is the one around it."""
    folder = tmp_path / "runs"
    copy("gru_bi", folder / "a" / "model.ckpt")
    (folder / "a" / "graph.pbtxt").write_text('node { name: "x" op: "Placeholder" }')
    (folder / "a" / "notes.txt").write_text("seen")
    for step in (100, 200, 1000):
        copy("v3_batch_major", folder / "b" / f"model.ckpt-{step}")
    copy("v3_batch_major", folder / "b" / "embedding")
    text = 'model_checkpoint_path: "/gone/model.ckpt-1000"\nall_model_checkpoint_paths: "model.ckpt-100"\n'
    (folder / "b" / "checkpoint").write_text(text)
    shutil.copytree(TF1 / "saved_model_words" / "model", folder / "c" / "exported")
    (folder / "c" / "exported" / "fingerprint.pb").write_bytes(b"\x0a\x05\x0a\x01x\x12\x00")
    copy("gru_bi", folder / "c" / "exported" / "older" / "model.ckpt")
    shutil.copy(TF1 / "frozen_text" / "frozen.pbtxt", folder / "net.pbtxt")
    shutil.copy(KERAS / "keras-2.2.4" / "sequential_lstm" / "model.h5", folder / "net.h5")
    shutil.copy(KERAS / "keras-2.2.4" / "weights_without_suffix" / "weights", folder / "weights")
    (folder / ".hidden").mkdir()
    shutil.copy(folder / "net.h5", folder / ".hidden" / "net.h5")
    (folder / "events.out.tfevents.1").write_bytes(bytes(20))
    monkeypatch.chdir(tmp_path)
    return folder


#: The models of the archive.
ALL = (
    *("a/model.ckpt", "b/embedding", "b/model.ckpt-1000", "c/exported", "c/exported/older/model.ckpt"),
    *("net.h5", "net.pbtxt", "weights"),
)


def find(*words: str, rows: Sequence[ModelEntry] = (), apart: str = "out") -> sources.FoundModels:
    return sources.find(words, Path("models.csv") if rows else None, rows, apart=Path(apart))


def paths(search: sources.FoundModels) -> list[str]:
    return [str(source.path) for source in search.sources]


def test_a_folder_is_searched_by_content(archive: Path) -> None:
    search = find("runs")
    assert paths(search) == [f"runs/{name}" for name in ALL]
    assert search.root == archive
    left = "runs/b: 2 older steps of 4 checkpoints left out; name them, or give a pattern such as"
    assert search.notes == (f"{left} 'runs/b/*.index'",)


def test_a_damaged_file_with_the_name_of_a_model_is_not_passed_over(tmp_path: Path) -> None:
    """Nobody may count it among those that are converted: its conversion says what is wrong."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    damaged = {"empty.h5": "", "error.hdf5": "<html>404", "a.keras": "x", "lfs.pb": pointer, "nothing.PB": ""}
    others = {
        "labels.pbtxt": 'item { name: "cat" id: 1 }',
        "notes.txt": "",
        "vocabulary.pb": "a b",
        "lfs": pointer,
    }
    for name, text in (damaged | others).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "gone.h5").symlink_to("nowhere")
    wanted = sorted(str(tmp_path / name) for name in (*damaged, "gone.h5"))
    assert paths(find(str(tmp_path))) == wanted
    assert paths(find(f"{tmp_path}/*")) == wanted


def test_names_are_paths_from_the_root_without_a_suffix_that_is_no_other_model_s(archive: Path) -> None:
    assert sources.name_outputs(find("runs")) == [
        *("a/model.ckpt", "b/embedding", "b/model.ckpt-1000", "c/exported-2", "c/exported/older/model.ckpt"),
        *("net.h5", "net.pbtxt", "weights"),
    ]
    assert sources.name_outputs(find("runs/net.h5")) == ["net"]
    assert sources.name_outputs(find("runs/net.h5", "runs/a")) == ["a/model.ckpt", "net"]


def test_the_root_is_that_of_the_words(archive: Path) -> None:
    """A model that comes to a folder later changes no name."""
    assert sources.name_outputs(find("runs/a")) == ["model.ckpt"]
    assert sources.name_outputs(find("runs/*/model.ckpt.index")) == ["a/model.ckpt"]
    assert sources.name_outputs(find("runs/c/exported/")) == ["exported-2", "exported/older/model.ckpt"]
    assert sources.name_outputs(find("runs/a", "runs/b/embedding")) == ["a/model.ckpt", "b/embedding"]


def test_dots_in_paths_are_taken_apart(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (archive.parent / "else").mkdir()
    monkeypatch.chdir(archive.parent / "else")
    search = find("../runs/a/../b/embedding.meta", "../runs/net.h5", "../else/./../runs/net.h5")
    assert paths(search) == ["../runs/a/../b/embedding", "../runs/net.h5"]
    assert sources.name_outputs(search) == ["b/embedding", "net"]


def test_a_pattern_takes_what_a_reader_recognises(archive: Path) -> None:
    assert paths(find("runs/b/*")) == [f"runs/b/{name}" for name in ("embedding", *STEPS)]
    assert paths(find("runs/**/*.h5")) == ["runs/net.h5"]
    assert paths(find("runs/*")) == [f"runs/{name}" for name in ALL]
    inner = paths(find("runs/**/*.index"))
    assert "runs/c/exported" in inner and not [path for path in inner if "variables" in path]


STEPS = ("model.ckpt-100", "model.ckpt-1000", "model.ckpt-200")


def test_a_file_of_a_model_is_the_model(archive: Path) -> None:
    words = ("exported/saved_model.pb", "exported/variables/variables.index", "exported")
    assert {path for word in words for path in paths(find(f"runs/c/{word}")) if "older" not in path} == {
        "runs/c/exported"
    }
    for suffix in ("", ".index", ".meta", ".data-00000-of-00001"):
        assert paths(find(f"runs/a/model.ckpt{suffix}")) == ["runs/a/model.ckpt"]


def test_what_is_named_is_a_model_whatever_it_is(archive: Path) -> None:
    assert paths(find("runs/a/notes.txt", "runs/nowhere.pb")) == ["runs/a/notes.txt", "runs/nowhere.pb"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "runs/*.tflite",
            "runs/*.tflite: expected a pattern that matches models, found nothing; check the pattern",
        ),
        (
            "runs/a/*.txt",
            "runs/a/*.txt: expected a pattern that matches models, found 1 files and folders without a",
        ),
        ("empty", "empty: expected a model or a folder with models, found a folder without any"),
        ("out", "out: expected a model or a folder with models, found a folder without any"),
    ],
)
def test_a_word_without_a_model_is_refused(archive: Path, word: str, message: str) -> None:
    (archive.parent / "empty").mkdir()
    copy("gru_bi", archive.parent / "out" / "model.ckpt")
    with pytest.raises(UsageError) as caught:
        find(word)
    assert str(caught.value).startswith(message)


def test_the_folder_of_results_is_not_searched(archive: Path) -> None:
    copy("gru_bi", archive / "out" / "model.ckpt")
    assert paths(find("runs", apart="runs/out")) == [f"runs/{name}" for name in ALL]
    assert "runs/out/model.ckpt" in paths(find("runs"))


def test_a_file_whose_name_is_a_pattern_is_that_file(archive: Path) -> None:
    shutil.copy(archive / "net.h5", archive / "net[1].h5")
    assert paths(find("runs/net[1].h5")) == ["runs/net[1].h5"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_for_its_conversion_to_refuse(archive: Path) -> None:
    (archive / "a").chmod(0)
    try:
        assert "runs/a" in paths(find("runs"))
    finally:
        (archive / "a").chmod(0o755)


def test_links_to_folders_are_not_followed(archive: Path) -> None:
    (archive / "again").symlink_to(archive)
    (archive / "same.h5").symlink_to(archive / "net.h5")
    assert paths(find("runs")) == sorted([*(f"runs/{name}" for name in ALL), "runs/same.h5"])


def test_all_files_of_a_model_are_listed(archive: Path) -> None:
    def names(path: str) -> list[str]:
        return [file.relative_to(archive).as_posix() for file in sources.list_files(archive / path)]

    assert names("a/model.ckpt") == [
        f"a/model.ckpt{end}" for end in (".data-00000-of-00001", ".index", ".meta")
    ]
    assert names("net.h5") == ["net.h5"]
    assert {"c/exported/saved_model.pb", "c/exported/variables/variables.index"} <= {*names("c/exported")}
    assert names("nowhere") == []


def test_rows_have_names_of_their_own(archive: Path) -> None:
    rows = [
        ModelEntry(Path("runs/net.h5"), "x/first"),
        ModelEntry(Path("runs/net.h5"), "x/second", {"opset": 13}),
    ]
    search = find("runs/a", rows=rows)
    assert sources.name_outputs(search) == ["runs/a/model.ckpt", "x/first", "x/second"]
    search = find(rows=[ModelEntry(Path("runs/net.h5")), ModelEntry(Path("runs/net.pbtxt"))])
    assert sources.name_outputs(search) == ["runs/net.h5", "runs/net.pbtxt"]
    search = find(rows=[ModelEntry(Path("../above/net.h5"))])
    assert sources.name_outputs(search) == ["above/net"]


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        (("x", "X"), "expected an out of its own for each row, found x twice"),
        (("results.jsonl",), "expected an out of its own for each row, found results.jsonl twice"),
        (("x", "x/y"), "x: expected an out of its own, found the folder of another row's out"),
    ],
)
def test_rows_that_would_replace_each_other_are_refused(
    archive: Path, outs: tuple[str, ...], message: str
) -> None:
    search = find(rows=[ModelEntry(Path("runs/net.h5"), out) for out in outs])
    with pytest.raises(UsageError, match=message):
        sources.name_outputs(search)


def test_names_that_are_taken_get_a_number(tmp_path: Path) -> None:
    """Not all file systems tell cases apart."""
    models = ("Net.h5", "net.h5", "net", "net/b.pb", "results.jsonl")
    search = sources.FoundModels(tuple(ModelEntry(tmp_path / name) for name in models), tmp_path)
    assert sources.name_outputs(search) == ["Net.h5", "net.h5-2", "net-2", "net/b", "results.jsonl-2"]


def test_a_sample_of_each_reader_is_recognised() -> None:
    assert fixture("1.15.5-checkpoint_v1").prefix.parent.is_dir()
    for name in ("checkpoint_v1", "checkpoint_v1_sharded", "object_lstm_1l", "frozen_binary"):
        assert sources.find([str(TF1 / name)], None, [], apart=Path("out")).sources, name
