"""The documentation and the README: every command and block of Python runs, every link leads somewhere.

A page runs from top to bottom in a folder of its own, which holds the samples that `FILES` names. What a page
shows below a `$ cudnn-convert ...` must be what the command says, numbers aside; `...` stands for anything.
"""

from __future__ import annotations

import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from support import micro_fixtures
from support.command_line import parsed
from support.samples import ROOT
from tensorflow.core.protobuf import meta_graph_pb2

import cudnn_convert
from cudnn_convert import cli, formats, read
from cudnn_convert.artifacts import micro

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))}
TF1, KERAS = "tests/data/tf1/1.15.5", "tests/data/keras/keras-2.2.4"
EXPORTS = "tests/data/keras3_exports"
BROKEN = "tests/data/broken"
MICRO = "tests/data/micro"
MODEL = "models/crf_tagger/model.ckpt"
TAGGER = f"{TF1}/bilstm_tagger/model.ckpt"
WEIGHTS = {name: f"{KERAS}/weights_sequential/{name}" for name in ("weights.h5", "model.json")}
TEXT = {"model.h5": f"{KERAS}/text_classifier/model.h5"}
PREFIX = {f"main/{name}": f"{TF1}/build_prefix/{name}" for name in ("model.ckpt", "golden.npz")}
TWINS = {"model.ckpt": f"{TF1}/twins_training/model.ckpt"}
TWINS_PAGES = (
    "bounds checkpoint-weights inputs inspect large-models onnx out report report-fields report-proof run "
    "tensorflow tflite verify"
).split()
SERVING = "android cpp csharp java onnx-runtime tensorflow tensorflow-lite tensorflow-serving".split()
RUNS = {
    "runs/new/model.ckpt": f"{TF1}/build_prefix/model.ckpt",
    "runs/old/net.h5": f"{KERAS}/sequential_lstm/model.h5",
    "runs/old/circle.pb": "tests/data/broken/circle.pb",
}
#: The names on a page, and the samples that they are.
FILES: dict[str, dict[str, str]] = {
    "README.md": {"model.ckpt": TAGGER},
    "docs/index.md": {"model.ckpt": TAGGER},
    "docs/first-flags.md": {"trained.ckpt": f"{TF1}/dropout_needs_set/model.ckpt"},
    "docs/tutorials/checkpoint.md": {
        "tagger/model.ckpt": TAGGER,
        "drop/model.ckpt": f"{TF1}/dropout_needs_set/model.ckpt",
    },
    "docs/tutorials/weights.md": {
        "encoder/model.ckpt": f"{TF1}/object_lstm_2l/model.ckpt",
        "blob/model.ckpt": f"{TF1}/raw_only/model.ckpt",
        "runs/model.ckpt-9000": f"{TF1}/gru_bi/model.ckpt",
        **WEIGHTS,
    },
    "docs/tutorials/other-frameworks.md": {
        "encoder.pt": "tests/data/arrays/torch/lstm_bi_2l/weights.pt",
        "jax.npy": "tests/data/arrays/jax/lstm_bi_2l/weights.npy",
        "tagger/model.ckpt": TAGGER,
    },
    "docs/tutorials/frozen-graph.md": {"frozen.pb": f"{TF1}/frozen_binary/frozen.pb"},
    "docs/tutorials/saved-model-1.md": {
        "words": f"{TF1}/saved_model_words/model",
        "tagged": f"{TF1}/saved_model_tags/model",
    },
    "docs/tutorials/saved-model-2.md": {
        "exported": f"{EXPORTS}/keras-3.15.1/lstm/saved_model",
        "many": f"{EXPORTS}/keras-3.15.1/signatures/saved_model",
        "portable": f"{EXPORTS}/tf_keras-2.21.0/portable_saved/saved_model",
    },
    "docs/tutorials/keras-files.md": {"custom.h5": f"{KERAS}/custom_layer/model.h5", **TEXT, **WEIGHTS},
    "docs/keras-versions.md": TEXT,
    "docs/tutorials/streaming.md": {"speech/model.ckpt": "models/gru_speech/model.ckpt"},
    "docs/tutorials/streaming-begin.md": {
        "learned/model.ckpt": "tests/data/streams/learned_start/model.ckpt"
    },
    "docs/tutorials/streaming-onnx.md": {"characters.h5": "models/char_lm/model.h5"},
    "docs/tutorials/streaming-variables.md": {"characters.h5": "models/char_lm/model.h5"},
    "docs/tutorials/streaming-which.md": {
        "fixed.pb": "tests/data/streams/fixed_graph/frozen.pb",
        "heads/model.ckpt": f"{TF1}/two_heads/model.ckpt",
    },
    "docs/library.md": {
        "tagger/model.ckpt": TAGGER,
        "drop/model.ckpt": f"{TF1}/dropout_needs_set/model.ckpt",
    },
    "docs/tutorials/decoding.md": {
        "models/seq2seq/model.ckpt": "models/seq2seq/model.ckpt",
        "characters.h5": "models/char_lm/model.h5",
    },
    "docs/tutorials/training-on.md": {"tagger/model.ckpt": TAGGER},
    "docs/serving.md": {"tagger/model.ckpt": TAGGER},
    **{f"docs/serving/{name}.md": {"tagger/model.ckpt": TAGGER} for name in SERVING},
    "docs/serving/keras.md": TEXT,
    "docs/serving/microcontrollers.md": {"model.h5": f"{MICRO}/motion_bidirectional/model.h5"},
    "docs/serving/javascript.md": {"tagger/model.ckpt": TAGGER, "characters.h5": "models/char_lm/model.h5"},
    "docs/choosing.md": {
        "two_heads/model.ckpt": f"{TF1}/two_heads/model.ckpt",
        "averages/model.ckpt": f"{TF1}/averages_saver/model.ckpt",
        "either/model.ckpt": f"{TF1}/cond_training/model.ckpt",
    },
    "docs/security.md": {"upload.h5": f"{BROKEN}/lambda.h5"},
    "docs/security/reading.md": {"upload": f"{BROKEN}/asset_outside"},
    "docs/security/limits.md": {"upload.pb": f"{BROKEN}/functions_nested.pb"},
    "docs/security/graphs.md": {"model.pb": f"{BROKEN}/read_file.pb"},
    "docs/security/your-files.md": {"model.ckpt": TAGGER},
    **{f"docs/{name}.md": TWINS for name in TWINS_PAGES},
    "docs/sources.md": {**TWINS, "notes.txt": "LICENSE"},
    "docs/saved-models.md": {"exported": f"{EXPORTS}/keras-3.15.1/lstm/saved_model"},
    "docs/keras-rules.md": TEXT,
    "docs/states.md": {"speech/model.ckpt": "models/gru_speech/model.ckpt"},
    "docs/decoder.md": {"characters.h5": "models/char_lm/model.h5"},
    "docs/batch.md": RUNS,
    "docs/batch-results.md": RUNS,
    "docs/map.md": {"model.ckpt": TAGGER, MODEL: MODEL},
    "docs/feeding.md": {"model.ckpt": MODEL},
    "docs/proof.md": {"model.ckpt": TAGGER},
    "docs/benchmark.md": {"model.ckpt": MODEL},
    "docs/adding-a-reader.md": PREFIX,
    "docs/adding-a-target.md": PREFIX,
}
#: A page that goes on where another ends, in its folder and with its names.
GOES_ON = {"docs/adding-a-dialect.md": "docs/adding-a-reader.md"}
#: A page whose checkpoint has lost its graph.
WITHOUT_META = "docs/tutorials/weights.md"
#: `tests/end_to_end/test_openvino.py`, `tests/stories/test_stories.py`, `tests/testing/test_documentation.py`
#: and `tests/end_to_end/test_troubleshooting.py` run these.
ELSEWHERE = ("docs/serving/openvino.md", "docs/stories.md", "docs/testing.md", "docs/troubleshooting")

#: What tflite-micro prints when it opens a file.
PRINTED_BY_MICRO = "Number of resource variables"
#: Commands whose own tests run them whole.
TRIED_ELSEWHERE = {"demo": "tests/cli/test_demo.py"}
ABOUT_PROOF = {"--data", "--max-error", "--report", "--json", "--seed", "--atol", "--rtol", "--help"}
#: What the pages about streaming show.
STREAMING = ("cudnn_convert/plan/streaming.py", "cudnn_convert/verification/streaming.py")
#: Pages that take seconds, and what they are about: each step of theirs is one that other tests take.
SLOW = {
    "docs/tutorials/frozen-graph.md": ("cudnn_convert/read/graph_def.py",),
    "docs/tutorials/checkpoint.md": ("cudnn_convert/read/checkpoint.py",),
    "docs/tutorials/decoding.md": ("cudnn_convert/decode/", "cudnn_convert/plan/decoding.py"),
    "docs/tutorials/keras-files.md": ("cudnn_convert/keras/", "cudnn_convert/read/keras"),
    "docs/tutorials/saved-model-1.md": ("cudnn_convert/read/saved_model.py",),
    "docs/tutorials/saved-model-2.md": ("cudnn_convert/read/saved_model.py",),
    "docs/tutorials/streaming.md": STREAMING,
    "docs/tutorials/streaming-begin.md": (*STREAMING, "cudnn_convert/plan/beginnings.py"),
    "docs/tutorials/streaming-onnx.md": STREAMING,
    "docs/tutorials/streaming-variables.md": (*STREAMING, "cudnn_convert/plan/beginnings.py"),
    "docs/tutorials/streaming-which.md": (*STREAMING, "cudnn_convert/plan/fixed_steps.py"),
    "docs/tutorials/training-on.md": ("cudnn_convert/compat/", "cudnn_convert/recurrences/named_weights.py"),
    "docs/tutorials/weights.md": ("cudnn_convert/recurrences/",),
    "docs/tutorials/other-frameworks.md": ("cudnn_convert/read/arrays/", "cudnn_convert/read/dialects/"),
    "docs/library.md": ("cudnn_convert/__init__.py", "cudnn_convert/calls.py"),
    "docs/serving.md": (),
    **{f"docs/serving/{name}.md": () for name in (*SERVING, "keras")},
    "docs/serving/microcontrollers.md": ("cudnn_convert/artifacts/micro.py", "cudnn_convert/lower/tflite"),
    "docs/serving/javascript.md": (),
    "docs/states.md": ("cudnn_convert/plan/streaming.py", "cudnn_convert/verification/streaming.py"),
    "docs/decoder.md": ("cudnn_convert/decode/", "cudnn_convert/plan/decoding.py"),
    "docs/batch.md": ("cudnn_convert/batch/",),
    "docs/batch-results.md": ("cudnn_convert/batch/",),
    "docs/feeding.md": ("cudnn_convert/feeds/",),
    "docs/tflite.md": ("cudnn_convert/lower/tflite", "cudnn_convert/targets/tflite.py"),
    "docs/onnx.md": ("cudnn_convert/lower/onnx/", "cudnn_convert/targets/onnx.py"),
    "docs/verify.md": ("cudnn_convert/verification/",),
    "docs/choosing.md": ("cudnn_convert/plan/choose_outputs.py",),
    "docs/inputs.md": ("cudnn_convert/plan/requests.py",),
    "docs/keras-versions.md": ("cudnn_convert/keras/config/",),
    "docs/saved-models.md": ("cudnn_convert/read/saved_model.py",),
    "docs/checkpoint-weights.md": ("cudnn_convert/targets/checkpoint.py",),
    "docs/large-models.md": ("cudnn_convert/weights/",),
    "docs/out.md": ("cudnn_convert/storage/",),
    "docs/run.md": ("cudnn_convert/artifacts/",),
    **{f"docs/report{name}.md": ("cudnn_convert/report/",) for name in ("", "-proof", "-fields")},
    "docs/proof.md": ("cudnn_convert/verification/check.py", "cudnn_convert/cli/terminal.py"),
    "docs/benchmark.md": ("cudnn_convert/benchmark/",),
}
#: Languages of blocks that nothing here runs. tests/end_to_end/test_serving.py compiles and
#: runs programs, tests/targets/test_firmware.py compiles C++ for microcontrollers.
UNRUN = ("c", "cpp", "csharp", "html", "java", "js", "text")
#: What a block of Python has that the same test runs, in a process without TensorFlow.
LITERT = "from ai_edge_litert"
#: What a block of Python has that needs the extra `micro`.
OF_MICRO = "from tflite_micro"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^ {4}[^\n]*\n|^\n)+)", re.MULTILINE | re.DOTALL)
#: A word that stands for what the reader has, as in a usage line.
STANDS_FOR = re.compile(r"\b(?:SOURCE|ARTIFACT|OUT|FILE|PATH)\b|\[flags\]")
NUMBER = re.compile(r"(?:under )?\d+(?:\.\d+)?(?:e[-+]\d+| ?%)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")

#: A module's path in a text, or its name alone; `*` and NAME stand for any name.
MODULE = re.compile(r"(?<![\w./*-])(?:[\w.*-]+/)*[\w*-]+\.py\b")
#: Where the paths of cited projects begin, and files of theirs that are named alone.
CITED = ("contrib/", "lib/", "python/", "src/", "tensorflow/contrib/")
CITED_FILES = {"cudnn_gru.py", "cudnn_rnn_ops_test.py", "layers.py", "ops.py"}
#: What a reader of a page makes by following it.
TUTORIAL_MODULES = {
    "docs/stories.md": {"test_tagger.py"},
    "docs/tutorials/keras-files.md": {"attention.py"},
    "docs/adding-a-reader.md": {
        *("cudnn_convert/read/json_variables.py", "tests/read/test_json_variables.py", "train/save.py")
    },
    "docs/adding-a-dialect.md": {"cudnn_convert/read/dialects/stacked.py", "train/cell.py"},
    "docs/adding-a-target.md": {
        "cudnn_convert/targets/json_weights.py",
        "cudnn_convert/artifacts/json_weights.py",
    },
}


@dataclass
class Block:
    """A fenced block, or an indented one without a language."""

    language: str
    text: str


@dataclass
class Command:
    """A line that calls the tool, and what the page says that it prints; None where it says nothing."""

    words: list[str]
    shown: list[str] | None = None


def blocks(text: str) -> list[Block]:
    found = [Block(m[1], m[2]) if m[3] is None else Block("", m[3]) for m in FENCE.finditer(text)]
    return [block for block in found if block.text.strip()]


def commands(block: Block) -> list[Command]:
    """Those that a reader can run as they stand."""
    found: list[Command] = []
    shows = False
    for line in block.text.replace("\\\n", " ").splitlines():
        bare = line.strip()
        called = bare.removeprefix("$ ").startswith("cudnn-convert ") and "cudnn-convert: " not in bare
        prompted = bare.startswith("$ ")
        if called and (prompted or not shows):
            shows = prompted
            if not STANDS_FOR.search(bare.partition("  #")[0]):
                words = shlex.split(bare.removeprefix("$ "), comments=True)[1:]
                found.append(Command(words, [] if prompted else None))
        elif shows and found:
            assert found[-1].shown is not None
            found[-1].shown.append(bare)
    return found


def samples(page: str, folder: Path) -> None:
    """Copies the samples of a page to the names that it calls them by."""
    for name, sample in FILES.get(page, {}).items():
        source, target = ROOT / sample, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.is_file():
            shutil.copy(source, target)
        else:
            for part in source.parent.glob(f"{source.name}.*"):
                if page != WITHOUT_META or part.suffix != ".meta":
                    shutil.copy(part, f"{target}{part.name.removeprefix(source.name)}")
    if page == WITHOUT_META:
        source = ROOT / TF1 / "gru_bi" / "model.ckpt.meta"
        meta = meta_graph_pb2.MetaGraphDef.FromString(source.read_bytes())
        (folder / "runs" / "graph.pbtxt").write_text(text_format.MessageToString(meta.graph_def))
    if page == "docs/verify.md":
        theirs(folder)
    if page == "docs/serving/microcontrollers.md":
        data = micro_fixtures.CASES["motion_bidirectional-h5"].data
        np.savez(folder / "recordings.npz", **{key: value[:40] for key, value in data.items()})
    if page == "docs/onnx.md":
        with np.load(ROOT / TF1 / "twins_training" / "golden.npz") as golden:
            np.savez(folder / "feeds.npz", x=golden["feed0/x:0"])


def theirs(folder: Path) -> None:
    """An ONNX model of `model.ckpt` as somebody else may have made it: without provenance."""
    ends = {"inputs": "feed=x:0", "outputs": "answer=probs:0"}
    cudnn_convert.convert(folder / "model.ckpt", folder / "theirs.onnx", format="onnx", **ends)
    model = onnx.load(folder / "theirs.onnx")
    del model.metadata_props[:]
    onnx.save(model, folder / "theirs.onnx")


def run_command(call: Command) -> None:
    """Of a conversion of which the page shows nothing the proof is left out, unless a flag is about it."""
    if call.words[0] in TRIED_ELSEWHERE and call.shown is None:
        assert parsed(*call.words)
        return
    converts = call.words[0] not in cli.SUBCOMMANDS and not ABOUT_PROOF & {*call.words}
    more = ["--no-verify"] if call.shown is None and converts else []
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = cli.main([*call.words, *more])
    text = said.getvalue()
    refused = any(line.startswith("cudnn-convert: ") for line in call.shown or ())
    assert bool(code) is refused, text
    if call.shown is not None:
        compare("\n".join(call.shown), text)


def compare(shown: str, said: str) -> None:
    """`shown` is `said`, but for blanks, numbers that differ by machine, and `...`."""
    wanted, found = (NUMBER.sub("#", " ".join(text.split())) for text in (shown, said))
    pattern = ".*".join(re.escape(part.strip()) for part in wanted.split("..."))
    assert re.fullmatch(rf"\s*{pattern}\s*", found, re.DOTALL), f"shown:\n{shown}\nsaid:\n{said}"


@dataclass
class Python:
    """The blocks of Python of one page, which share their names, but for those that change the package.

    A block that begins with a new module's path is it; one in `read/` becomes a reader. One that begins with
    `# added to` a module is what a reader of the page types at its end, or below the other rows.
    """

    patch: pytest.MonkeyPatch
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, page: str, text: str) -> None:
        changed = re.match(r"# (added to (?:the rows of )?)?(cudnn_convert/\S+)\.py\n", text)
        if changed:
            self.change(page, changed[1] or "", changed[2].removesuffix("/__init__").replace("/", "."), text)
            return
        told = [shown for _, shown in re.findall(r"^( *print\(.*\))  # (.*)$", text, re.MULTILINE)]
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(text, page, "exec"), self.names)
        lines = [line for line in said.getvalue().splitlines() if not line.startswith(PRINTED_BY_MICRO)]
        assert len(lines) == len(told)
        for line, comment in zip(lines, told, strict=True):
            assert comment == line or comment.startswith(f"{line}: ")

    def change(self, page: str, how: str, name: str, text: str) -> None:
        if how.endswith("rows of "):
            rows = eval(compile(f"{{{text}}}", page, "eval"), vars(formats))
            for key, row in rows.items():
                self.patch.setitem(formats._ROWS, key, row)
            return
        module = import_module(name) if how else ModuleType(name)
        names = dict(vars(module))
        exec(compile(text, page, "exec"), names if how else vars(module))
        for key, value in names.items() if how else ():
            self.patch.setattr(module, key, value, raising=False)
        self.patch.setitem(sys.modules, name, module)
        if not how and name.startswith("cudnn_convert.read.") and name.count(".") == 2:
            self.patch.setattr(read, "READERS", (*read.READERS, module))


def pages() -> Iterator[Any]:
    for page in PAGES:
        if not page.startswith(ELSEWHERE) and page not in GOES_ON.values():
            files = (page, *SLOW.get(page, ()))
            yield pytest.param(page, marks=pytest.mark.slow(*files) if page in SLOW else ())


@pytest.mark.parametrize("page", pages())
def test_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = Python(monkeypatch)
    if page in GOES_ON:
        run_page(GOES_ON[page], tmp_path, python)
    run_page(page, tmp_path, python)


def run_page(page: str, folder: Path, python: Python) -> None:
    samples(page, folder)
    for block in blocks(PAGES[page].read_text(encoding="utf-8")):
        if block.language == "python":
            if LITERT not in block.text and (OF_MICRO not in block.text or micro.is_available()):
                python.run(page, block.text)
        elif block.language in ("", "sh", "console"):
            for call in commands(block):
                run_command(call)
        else:
            assert block.language in UNRUN, f"{page}: a block of {block.language} that nothing runs"


def test_pages_name_their_samples() -> None:
    """Whoever follows a tutorial finds its files."""
    for page, files in FILES.items():
        text = PAGES[page].read_text(encoding="utf-8")
        if "/tutorials/" in page:
            for sample in files.values():
                assert str(Path(sample).parent) in text, (page, sample)


def test_links_lead_somewhere() -> None:
    """Of pages and of the README; to a heading too. GitHub and the site agree on these anchors."""
    for page, path in PAGES.items():
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in LINK.findall(text):
            target, _, anchor = link.partition("#")
            assert "://" not in link, f"{page}: {link}: no page of ours needs another site"
            found = (path.parent / target).resolve() if target else path
            assert found.exists(), f"{page}: {link}"
            if anchor:
                assert anchor in anchors(found), f"{page}: {link}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git applies nothing outside a repository")
def test_the_first_change_fits_the_files() -> None:
    """CONTRIBUTING.md shows it as a diff; whoever follows the page has made it already."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (change,) = re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ended = []
    for more in ([], ["--reverse"]):
        call = ["git", "apply", "-p0", "--check", *more, "-"]
        ended.append(subprocess.run(call, input=change, text=True, cwd=ROOT, check=False).returncode)
    assert 0 in ended


def test_modules_that_pages_name_exist() -> None:
    """A path begins at the root or in the package; a name alone is that of a file in any folder."""
    folders = (ROOT / name for name in ("cudnn_convert", "models", "scripts", "tests"))
    names = {path.name for folder in folders for path in folder.rglob("*.py")}
    wrong = []
    for pattern in ("*.md", "docs/**/*.md", "models/*/*.md", "tests/data/*/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            page = str(path.relative_to(ROOT))
            known = names | CITED_FILES | TUTORIAL_MODULES.get(page, set())
            for name in set(MODULE.findall(path.read_text(encoding="utf-8"))) - known:
                roots = () if name.startswith(CITED) else (ROOT, ROOT / "cudnn_convert")
                if roots and not any(any(root.glob(name.replace("NAME", "*"))) for root in roots):
                    wrong.append(f"{page}: {name}")
    assert not wrong, wrong


def test_tests_that_the_pages_on_security_name_exist() -> None:
    """They name a test's file by its path, or by its name alone."""
    names = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "security").glob("*.md"))
    named = {*re.findall(r"\btest_\w+", text)}
    assert named
    assert named <= names, named - names


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation() -> None:
    """`make docs` says so too, where mkdocs is."""
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_an_overview_links_each_page_of_its_folder() -> None:
    """A page is the overview of the folder of its name."""
    overviews = [path for path in DOCS.glob("*.md") if path.with_suffix("").is_dir()]
    assert overviews
    for overview in overviews:
        folder = overview.with_suffix("")
        wanted = {f"{folder.name}/{page.name}" for page in folder.glob("*.md")}
        links = LINK.findall(overview.read_text(encoding="utf-8"))
        assert wanted <= {link.partition("#")[0] for link in links}, overview.name


def test_the_flags_are_those_of_the_parsers() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "write_flags.py"))["page"]()
    found = (DOCS / "flags.md").read_text(encoding="utf-8")
    assert found == written, "docs/flags.md is old: run scripts/write_flags.py"


def test_the_errors_are_those_of_troubleshooting() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "write_errors.py"))["page"]()
    assert (DOCS / "errors.md").read_text(encoding="utf-8") == written, "run scripts/write_errors.py"
    assert written.count("(troubleshooting/") >= 25


def test_the_page_of_ops_has_each_op_that_may_run() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "write_ops.py"))["page"]()
    assert (DOCS / "ops.md").read_text(encoding="utf-8") == written, "run scripts/write_ops.py"
    lines = (ROOT / "cudnn_convert" / "graph" / "pure_ops.txt").read_text(encoding="utf-8").splitlines()
    listed = sorted(op for line in lines if not line.startswith("#") for op in line.split())
    assert sorted(re.findall(r"^\| `(\w+)` \|", written, re.MULTILINE)) == listed


def test_the_number_of_ops_that_may_run_is_that_of_the_list() -> None:
    lines = (ROOT / "cudnn_convert" / "graph" / "pure_ops.txt").read_text(encoding="utf-8").splitlines()
    listed = {op for line in lines if not line.startswith("#") for op in line.split()}
    text = (DOCS / "security" / "graphs.md").read_text(encoding="utf-8")
    assert re.findall(r"pure_ops\.txt`, (\d+) ops", text) == [str(len(listed))]


def test_every_script_is_in_the_index() -> None:
    index = (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in (ROOT / "scripts").iterdir() if not path.name.startswith(("_", "."))}
    assert {*re.findall(r"`([\w]+(?:\.py)?)`", index)} >= names - {"README.md"}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    made = {
        name
        for row in re.findall(r"^\|[^|]+\|([^|]+)\|[^|]+\|$", index, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert made and made <= {*targets}
