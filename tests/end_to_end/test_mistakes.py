"""Mistakes that newcomers make: each gets a line and an exit code, and what the line advises works."""

from __future__ import annotations

import re
import shlex
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support.command_line import command, contents, copied
from support.samples import ROOT, fixture

KINDS: Final = (
    "expected a TensorFlow 1 checkpoint, a TensorFlow SavedModel, a frozen graph, a Keras HDF5 file, a "
    "Keras archive or a file of arrays, "
)
NO_FLAG: Final = "expected a flag of cudnn-convert, found an unknown one; "
SUFFIXES: Final = "choose one of .pb, .onnx, .tflite, .keras, .h5, .hdf5, .npz, .safetensors, or write "
SHAPE: Final = "--inputs: expected a shape like [?,?,39], found "
NEW: Final = "expected a new path, found "


@dataclass(frozen=True)
class Mistake:
    """A call in the folder `here`, the line that must come, and where its advice leads.

    `says` is the whole line; one group of it may be what to give instead: the word number `at` of the call,
    or with None all of its words. `more` is what only the user knows, at the end.
    """

    words: str
    code: int
    says: str
    at: int | None = None
    more: str = ""
    is_slow: bool = False

    @property
    def advises(self) -> bool:
        return "(?P<" in self.says

    def cured(self, line: str) -> list[str]:
        """The words of the call that takes the line at its word."""
        match = re.fullmatch(self.says, line)
        assert match, line
        ((_, advised),) = match.groupdict().items()
        words = self.words.split()
        if self.at is None:
            words = shlex.split(advised)
        else:
            words[self.at : self.at + 1] = shlex.split(advised)
        return [*words, *self.more.split()]


def _plain(text: str) -> str:
    """A regular expression of a line in which `<...>` is what to give instead."""
    head, *tail = re.split(r"<(.+?)>", text)
    return _escape(head) if not tail else rf"{_escape(head)}(?P<advice>{tail[0]}){_escape(tail[1])}"


def _escape(text: str) -> str:
    """Choices stand without quotes from Python 3.12.8 on, and in some releases of 3.13."""
    before, between, choices = text.partition("(choose from ")
    return re.escape(before + between) + re.escape(choices).replace("'", "'?")


def _mistake(
    words: str, code: int, says: str, at: int | None = None, more: str = "", **other: Any
) -> Mistake:
    return Mistake(words, code, _plain(says), at, more, **other)


#: `<` and `>` stand around the advice in a line, a regular expression.
MISTAKES: Final = (
    # Words.
    _mistake("conver model.ckpt o1", 2, "conver: expected a model or a command, found neither; "
             "did you mean cudnn-convert <convert>?", 0),
    _mistake("inspct model.ckpt", 2, "inspct: expected a model or a command, found neither; "
             "did you mean cudnn-convert <inspect>?", 0),
    _mistake("help verfy", 2, "verfy: expected a command of cudnn-convert, found a word that is not one; "
             "did you mean <verify>?", 1),
    _mistake("--versoin", 2, f"--versoin: {NO_FLAG}did you mean <--version>?", 0),
    _mistake("model.ckpt o2 --fromat onnx", 2, f"--fromat: {NO_FLAG}did you mean <--format>?", 2),
    _mistake("model.ckpt o3 --ouputs rnn_out", 2, f"--ouputs: {NO_FLAG}did you mean <--outputs>?", 2),
    _mistake("model.ckpt o4 o5", 2, "o5: expected the end of the call of cudnn-convert, found one more "
             "word; see cudnn-convert <--help-all>", None),
    _mistake("model.ckpt", 2, "OUT: expected a path to write to, found none; give one, as in cudnn-convert "
             "model.ckpt model.onnx, or see what the file is with cudnn-convert <inspect model.ckpt>", None),
    _mistake("verify model.ckpt", 2, "the following arguments are required: ARTIFACT; "
             "see cudnn-convert <verify --help>", None),
    _mistake("model.ckpt o6 --decode beem", 2, "argument --decode: invalid choice: 'beem' (choose from "
             "'greedy', "
             "'beam', 'sample'); see cudnn-convert <--help-all>", None),
    _mistake("completion tcsh", 2, "argument SHELL: invalid choice: 'tcsh' (choose from 'bash', 'zsh', "
             "'fish', "
             "'powershell'); see cudnn-convert <completion --help>", None),
    _mistake("model.ckpt o7 --opset x", 2, "argument --opset: invalid int value: 'x'; "
             "see cudnn-convert <--help-all>", None),
    # OUT.
    _mistake("model.ckpt o.onxx", 2, "OUT o.onxx: expected the suffix of a format or none, found .onxx; "
             "name it <o.onnx>, or write o.onxx/ for a folder", 1),
    _mistake("model.ckpt p.onxx", 2, "OUT p.onxx: expected the suffix of a format or none, found .onxx; "
             "name it p.onnx, or write <p.onxx/> for a folder", 1, is_slow=True),
    _mistake("model.ckpt o.pt", 2, "OUT o.pt: expected the suffix of a format or none, found .pt; "
             f"{SUFFIXES}<o.pt/> for a folder", 1, is_slow=True),
    _mistake("model.ckpt o.Keras", 2, "OUT o.Keras: expected .keras, the only suffix that Keras 3 loads, "
             "found .Keras; name it <o.keras>", 1, is_slow=True),
    _mistake("model.ckpt q.onnx --format tflite", 2, "OUT q.onnx: expected no suffix of another format with "
             "--format tflite, found .onnx, the suffix of onnx; leave out --format, or rename OUT"),
    _mistake("model.ckpt -", 2, "-: expected a path, found the name of a stream; name a file or folder"),
    _mistake("model.ckpt old.onnx", 2, f"old.onnx: {NEW}what this tool wrote before; choose another path, "
             f"or replace "
             "it with <--force>", 2, is_slow=True),
    _mistake("model.ckpt thesis --force", 2, f"thesis: {NEW}a folder that this tool did not write; "
             "choose another path"),
    _mistake("model.ckpt thesis/notes.txt/o.onnx", 4, "thesis/notes.txt/o.onnx: cannot write here: File "
             "exists"),
    _mistake("saved saved/new", 2, "saved/new: expected a path apart from the source saved, found an "
             "overlap; choose another path"),
    _mistake("model.ckpt http://here/model", 2, "http://here/model: expected a path or s3://, gs://, "
             "memory://, "
             "found the address of another store; work on a local copy"),
    _mistake("model.ckpt o8 --report thesis", 2, f"thesis: {NEW}a folder that this tool did not write; "
             "choose another path"),
    _mistake("demo thesis", 2, "DIR thesis: expected a new or an empty folder, found one with files; "
             "name another: cudnn-convert <demo> DIR", None, "shown", is_slow=True),
    # SOURCE.
    _mistake("inspect modle.ckpt", 1, f"modle.ckpt: source: {KINDS}found no such file or folder; "
             "did you mean <model.ckpt>?", 1),
    _mistake("inspect model.ckpt.met", 1, f"model.ckpt.met: source: {KINDS}found no such file or folder; "
             "did you mean <model.ckpt.meta>?", 1),
    _mistake("inspect checkpoint", 1, f"checkpoint: source: {KINDS}found TensorFlow's list of checkpoints; "
             r"give its folder <\.>, or a prefix that it names", 1),
    _mistake("inspect saved/variables", 1, "saved/variables: source: expected a whole SavedModel, "
             "found its folder variables alone; give <saved>", 1),
    _mistake("inspect saved/assets", 1, "saved/assets: source: expected a whole SavedModel, "
             "found its folder assets alone; give <saved>", 1),
    _mistake("inspect kept", 1, f"kept: source: {KINDS}found a folder that holds models; give "
             f"<kept/saved>", 1),
    _mistake("inspect empty", 1, f"empty: source: {KINDS}found an empty folder"),
    _mistake("inspect pointer.h5", 1, "pointer.h5: file: expected a file of the model, found a Git LFS "
             "pointer in "
             "the place of the file; get the file with git lfs pull"),
    _mistake("inspect zero.h5", 1, f"zero.h5: source: {KINDS}found an empty file; copy it again"),
    _mistake("inspect model.zip", 1, f"model.zip: source: {KINDS}found a zip archive with model.ckpt.index; "
             "unpack it and give what is in it"),
    _mistake("inspect model.tar.gz", 1, f"model.tar.gz: source: {KINDS}found a gzip file; "
             "unpack it and give what is in it"),
    _mistake("inspect net.pt", 1, "net.pt: file: expected a state dict, tensors by name, found an object of "
             "nets.Tagger, which is not built; save its weights alone: torch.save(model.state_dict(), "
             "'weights.pt')"),
    _mistake("inspect old.pt", 1, f"old.pt: source: {KINDS}found a pickle, which may run anything; "
             "save its arrays as .npz or safetensors"),
    _mistake("inspect w.safetensors", 1, "w.safetensors: header: expected a whole safetensors file, found "
             "a damaged one; copy it again"),
    _mistake("convert feeds.npz out", 1, "feeds.npz: expected weights under names that a framework gives "
             "them, or a parameter blob, found none of them; for a blob of another name give --mode, "
             "--layers, --units and --directions; the longest 1-D tensors are x [3]"),
    _mistake("inspect model.json", 1, f"model.json: source: {KINDS}found the JSON of a Keras model, "
             f"without weights; "
             "give the weights, and this with --architecture"),
    _mistake("inspect notes.txt", 1, f"notes.txt: source: {KINDS}found a text file"),
    _mistake("inspect old.onnx", 1, f"old.onnx: source: {KINDS}found an ONNX model; it runs on a CPU as "
             f"it is: "
             "see `cudnn-convert <run>`, or name the source first for `cudnn-convert verify`", 0,
             is_slow=True),
    _mistake("verify old.onnx model.ckpt", 1, f"old.onnx: source: {KINDS}found an ONNX model; it runs on "
             f"a CPU as it "
             "is: see `cudnn-convert run`, or name the source first for `cudnn-convert verify`"),
    _mistake("run model.ckpt", 1, "model.ckpt: artifact: expected a model that runs on a CPU, found a "
             "TensorFlow 1 "
             "checkpoint that needs a GPU; convert it first: cudnn-convert <model.ckpt model_cpu>", None,
             is_slow=True),
    _mistake("benchmark model.ckpt --rounds 1", 1, "model.ckpt: artifact: expected a model that runs on a "
             "CPU, found a "
             "TensorFlow 1 checkpoint that needs a GPU; convert it first: cudnn-convert model.ckpt model_cpu",
             is_slow=True),
    # Flags and their files.
    _mistake("model.ckpt o9 --data feds.npz", 2, "--data feds.npz: expected a file, or a pattern that "
             "matches files, found nothing"),
    _mistake("model.ckpt o9 --architecture graph.pb", 2, "--architecture graph.pb: expected a file, found "
             "none"),
    _mistake("verify model.ckpt old.onnx --golden old.onnx", 2, "--golden old.onnx: expected an .npz file "
             "of plain arrays, found a file that is not one"),
    _mistake("verify model.ckpt old.onnx --golden feeds.npz --data feeds.npz", 2, "--golden cannot be "
             "combined with "
             "--data: it has its own inputs; leave one out"),
    _mistake("verify model.ckpt old.onnx --jobs 0", 2, "--jobs: expected at least 1, found 0"),
    _mistake("model.ckpt o9 --limit memory=lots", 2, "--limit memory: expected a number such as 100 or "
             "8G, found "
             "'lots'"),
    _mistake("model.ckpt o9 --set keep_prob", 2, "--set: expected TENSOR=VALUE, found 'keep_prob'"),
    _mistake("model.ckpt o9 --inputs x=x:0[0,0,3]", 2, f"{SHAPE}'x=x:0[0,0,3]'"),
    _mistake("model.ckpt o9 --inputs x=x:0[99999999999999999999,1,3]", 2,
             f"{SHAPE}'x=x:0[99999999999999999999,1,3]'"),
    _mistake("model.ckpt o10 --outputs rnn_ot", 2, "model.ckpt: tensor rnn_ot:0: expected one of the "
             "graph, found no "
             "node rnn_ot; similar names are <rnn_out:0>", 3, is_slow=True),
    _mistake("model.ckpt o11.h5", 2, "--format h5: expected the layers of a Keras model, found TensorFlow "
             "1 checkpoint "
             "model.ckpt; choose savedmodel, frozen, checkpoint, onnx, tflite, npz, safetensors",
             is_slow=True),
)  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, what is none, and what stands in the way."""
    folder = tmp_path_factory.mktemp("mistakes")
    for path in copied(folder).parent.glob("model.ckpt.*"):
        path.rename(folder / path.name)
    shutil.rmtree(folder / "source")
    saved = fixture("1.15.5-saved_model_words").folder / "model"
    shutil.copytree(saved, folder / "saved")
    shutil.copytree(saved, folder / "kept" / "saved")
    (folder / "saved" / "assets").mkdir(exist_ok=True)
    assert command(folder / "model.ckpt", folder / "old.onnx", "--no-verify", "--quiet").code == 0
    (folder / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt"\nall_model_checkpoint_paths: "model.ckpt"\n'
    )
    (folder / "empty").mkdir()
    (folder / "thesis").mkdir()
    for name in ("notes.txt", "thesis/notes.txt"):
        (folder / name).write_text("years of work")
    (folder / "pointer.h5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (folder / "zero.h5").touch()
    _make_archives(folder)
    (folder / "old.pt").write_bytes(b"\x80\x02}q\x00.")
    (folder / "w.safetensors").write_bytes((8).to_bytes(8, "little") + b'{"a":1}  ')
    np.savez(folder / "feeds.npz", x=np.zeros(3))
    shutil.copy(
        ROOT / "tests" / "data" / "keras" / "keras-2.2.4" / "weights_sequential" / "model.json", folder
    )
    return folder


def _make_archives(folder: Path) -> None:
    index = folder / "model.ckpt.index"
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.write(index, index.name)
    with tarfile.open(folder / "model.tar.gz", "w:gz") as packed:
        packed.add(index, index.name)
    with zipfile.ZipFile(folder / "net.pt", "w") as archive:
        archive.writestr("net/data.pkl", b"\x80\x02cnets\nTagger\n)R.")


def _rows() -> Iterator[Any]:
    for mistake in MISTAKES:
        slow = pytest.mark.slow("cudnn_convert/cli/", "cudnn_convert/read/unknown.py")
        marks = [pytest.mark.xdist_group("mistakes"), *([slow] if mistake.is_slow else [])]
        yield pytest.param(mistake, id=mistake.words, marks=marks)


def _ends_well(words: Sequence[str]) -> None:
    converts = words[0] in ("convert", "model.ckpt")
    ended = command(*words, *(["--no-verify", "--quiet"] if converts else []))
    assert ended.code == 0, ended.stderr


@pytest.mark.parametrize("mistake", _rows())
def test_a_mistake_has_its_line_whose_advice_works(
    here: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.chdir(here)
    before = contents(here)
    ended = command(*mistake.words.split())
    assert (ended.code, ended.stdout) == (mistake.code, "")
    assert contents(here) == before
    [line] = ended.stderr.splitlines()
    line = line.removeprefix("cudnn-convert: ")
    assert re.fullmatch(mistake.says, line), line
    if mistake.advises:
        _ends_well(mistake.cured(line))


def test_there_are_mistakes_enough_and_advice_in_them() -> None:
    assert len(MISTAKES) >= 40
    assert len({mistake.words for mistake in MISTAKES}) == len(MISTAKES)
    assert sum(mistake.advises for mistake in MISTAKES) >= 20
