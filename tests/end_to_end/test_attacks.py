"""Files that were made to do harm: the command line says in one line what is wrong, and nothing else happens.

`scripts/make_broken.py` writes them, and says in their README.md what each is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from support.command_line import Ended, command, contents
from support.keras3_samples import EXPORTED
from support.samples import ROOT
from support.watched_file import Watched

import cudnn_convert
from cudnn_convert.formats import FORMATS

BROKEN = ROOT / "tests" / "data" / "broken"
CANARY = "canary.txt"
SECONDS = 300
VOUCH = "vouch for the file with --trust"
RUNS = f"expected arithmetic only while verifying, found {{}}; {VOUCH}, or convert with --no-verify"
CODE = f"which runs code that the file names; {VOUCH}"
OWN = "layer {0}: expected a layer of Keras itself, found {1}"
ONE_FILE = "save the model as one file"
BY_SHAPES = "found weights of 1 x lstm of 2 units by their shapes"
CIRCLE = "graph: expected inputs that form no circle, found a circle:"
JSON = "expected JSON, found maximum recursion depth exceeded"

#: What is said where a source is converted, and whether to look at it already fails.
REFUSED: dict[str, tuple[str, bool]] = {
    "write_file.pb": (f"write: {RUNS.format('WriteFile')}", False),
    "read_file.pb": (f"read: {RUNS.format('ReadFile')}", False),
    "py_func.pb": (f"call: {RUNS.format('PyFunc')}", False),
    "circle.pb": (f"{CIRCLE} rnn, a, b and 1 more", True),
    "itself.pb": (f"{CIRCLE} scores", True),
    "names_twice.pb": ("graph: expected nodes of different names, found blob twice", True),
    "missing_input.pb": (
        "graph: expected nodes with all their inputs, found rnn without its input blob",
        True,
    ),
    "shape_bomb.pb": (
        f"expected as many bytes as the values of its shape need, found {1 << 60} values in 22 bytes; if",
        True,
    ),
    "nested_proto.pb": ("file: expected a GraphDef, found a damaged or incomplete one", True),
    "huge_units.pb": (f"graph: zeros: expected sizes of at most {2**31 - 1}, found {1 << 40}", True),
    "functions_each_other.pb": ("functions: expected no function that calls itself, found g -> f -> g", True),
    "functions_nested.pb": ("expected at most 1048576 nodes with all functions inlined, found 3221", True),
    "endless_loop.pb": ("functions: expected no function that calls itself, found body -> body", True),
    "function_writes": (f"write: {RUNS.format('WriteFile')}", False),
    "meta_graph_writes": (f"write: {RUNS.format('WriteFile')}", False),
    "asset_outside": ("asset: expected a file in assets/, found '../../etc/passwd'", True),
    "asset_absolute": ("asset: expected a file in assets/, found '/etc/passwd'", True),
    "asset_link": ("asset_link: assets/words.txt: expected a file in ", True),
    "asset_unfed": (f"fill: {RUNS.format('InitializeTableFromTextFileV2')}", False),
    "function_fills": (f"fill: {RUNS.format('InitializeTableFromTextFileV2')}", False),
    "state_absolute": ("checkpoint: expected passwd.index, found no such file", True),
    "state_up": ("state_up/checkpoint: file: expected the latest in its own folder, found", True),
    "lambda.h5": (f"layer code: expected a layer of Keras itself, found Lambda, {CODE}", False),
    "lambda.keras": (f"layer code: expected a layer of Keras itself, found Lambda, {CODE}", False),
    "op_layer.h5": (f"found TFOpLambda of io.write_file, {CODE}", False),
    "import.h5": (OWN.format("Popen", "Popen"), False),
    "import.keras": (OWN.format("Popen", "Popen"), False),
    "activation.h5": (OWN.format("dense", "system"), False),
    "pickle_config.h5": ("model_config: expected JSON, found Expecting value", True),
    "pickle_weights.h5": ("found the weights of other layers, judged by their shapes", True),
    "objects.h5": ("found the weights of other layers, judged by their shapes", True),
    "external_link.h5": (f"found a link that leads elsewhere; {ONE_FILE}", True),
    "soft_circle.h5": (f"found a link that leads elsewhere; {ONE_FILE}", True),
    "external_storage.h5": (f"found values in another file; {ONE_FILE}", True),
    "virtual.h5": (f"found values in another file; {ONE_FILE}", True),
    "enormous.h5": (f"kernel:0: expected {1 << 62} bytes of values, found 0 bytes stored", True),
    "gzip_bomb.h5": (f"kernel:0: expected {1 << 29} bytes of values, found", True),
    "deep.h5": (f"model_config: {JSON}", True),
    "deep.keras": (f"config.json: {JSON}", True),
    "many_layers.h5": ("model_config: JSON: expected at most 100 nested levels", True),
    "units.h5": ("1000000000000", True),
    "dense_units.h5": ("config: expected a model that tf_keras can build, found one it refuses", False),
    "only_climbing.keras": ("source: expected a TensorFlow 1 checkpoint", True),
    "member_link.keras": ("model.weights.h5: expected a readable HDF5 file", True),
    "member_twice.keras": ("config.json: expected one file of this name in the archive, found several", True),
    "zip_bomb.keras": (
        "config.json: expected a file of usual compression, found 314572800 bytes packed into",
        True,
    ),
    "index_enormous": (f"opaque_kernel: a blob of {1 << 60} values without its graph", False),
    "index_outside": ("opaque_kernel: a blob of 56 values without its graph", False),
}
#: What is converted, for nothing of it is used.
HARMLESS = ("climbing.keras", "hard_circle.h5")
#: What to compute of it would take more memory than there is; what is written computes nothing.
BOMBS = ("fill_bomb.pb", "tile_bomb.pb", "range_bomb.pb", "broadcast_bomb.pb")
NO_NUMBERS = ("nan.pb", "infinity.pb")
PRINTS = "prints.pb"
BLOB = ("--mode", "lstm", "--directions", "1")


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """What takes longer than any of these files may is interrupted."""

    def interrupt(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The current folder, with a canary in it: no attack may write or read it, and nothing may be left."""
    monkeypatch.chdir(tmp_path)
    made = Watched(tmp_path / CANARY)
    before, held = contents(BROKEN), made.path.stat().st_mtime_ns
    yield made
    opened = made.opened
    made.stop()
    assert not opened
    assert made.path.stat().st_mtime_ns == held
    assert contents(BROKEN) == before


def lines(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("cudnn-convert: ")]


def test_every_file_has_a_test() -> None:
    files = {path.name for path in BROKEN.iterdir()} - {"README.md", "blob", "fuzz"}
    tested = {
        *REFUSED,
        *HARMLESS,
        *BOMBS,
        *NO_NUMBERS,
        "unknown_op.pb",
        PRINTS,
        "external_up.onnx",
        "external_absolute.onnx",
    }
    assert files == tested
    told = (BROKEN / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in told for name in files)


@pytest.mark.parametrize(("name", "told"), [(name, told) for name, (told, _) in REFUSED.items()])
def test_no_attack_is_converted(name: str, told: str, canary: Watched) -> None:
    ended = command(BROKEN / name, "out", "--quiet")
    assert ended.code == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"cudnn-convert: {BROKEN / name}")
    assert told in line
    assert ended.stdout == ""
    assert [found.name for found in canary.path.parent.iterdir()] == [CANARY]


@pytest.mark.parametrize(
    ("name", "told", "fails"),
    [  # to list the sizes of 2^60 values takes seconds; so does its conversion above
        pytest.param(name, *found, marks=pytest.mark.every if name == "index_enormous" else ())
        for name, found in REFUSED.items()
    ],
)
def test_to_look_at_an_attack_does_nothing(name: str, told: str, fails: bool, canary: Watched) -> None:
    ended = command("inspect", BROKEN / name)
    assert ended.code == int(fails), ended.stderr
    if fails:
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"cudnn-convert: {BROKEN / name}")
        assert name == "units.h5" or told in line
    assert [found.name for found in canary.path.parent.iterdir()] == [CANARY]


def test_an_op_that_nobody_knows(canary: Watched) -> None:
    assert command("inspect", BROKEN / "unknown_op.pb").code == 0
    ended = command(BROKEN / "unknown_op.pb", "out", "--quiet")
    assert ended.code == 1
    (line,) = ended.stderr.splitlines()
    told = "found Op type not registered 'RunsWhatItLikes'"
    assert line.startswith(
        f"cudnn-convert: graph: expected nodes that TensorFlow {tf.__version__} can import, {told}"
    )


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_not_used_does_no_harm(name: str, canary: Watched) -> None:
    ended = command(BROKEN / name, "out", "--quiet")
    assert ended.code == 0, ended.stderr
    assert sorted(found.name for found in canary.path.parent.iterdir()) == [CANARY, "out"]
    assert not list(Path("out").rglob(CANARY))


@pytest.mark.first("tile_bomb.pb")
@pytest.mark.parametrize("name", BOMBS)
def test_what_would_fill_memory_is_not_computed_to_convert_it(name: str, canary: Watched) -> None:
    assert command("inspect", BROKEN / name).code == 0
    ended = command(BROKEN / name, "out.pb", "--format", "frozen", "--no-verify", "--quiet")
    assert ended.code == 0, ended.stderr


@pytest.mark.slow("cudnn_convert/verification/feeds.py", "cudnn_convert/cli/", "cudnn_convert/context.py")
def test_what_would_fill_memory_is_one_line_where_it_is_proven(tmp_path: Path) -> None:
    signal.alarm(2 * SECONDS)
    call = [sys.executable, "-m", "cudnn_convert", BROKEN / "range_bomb.pb", "out", "--quiet"]
    call += ["--limit", "memory=4G"]
    ended = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    told = "graph: expected one that runs in the memory that is here, found one that needs more"
    assert ended.stderr == f"cudnn-convert: {BROKEN / 'range_bomb.pb'}: {told}; convert with --no-verify\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.first("frozen")
@pytest.mark.parametrize("form", ["savedmodel", "frozen"])
def test_what_a_graph_prints_is_no_verdict(
    form: str, canary: Watched, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither on the command line nor in the library, of the source as of the artifact."""
    flags = ("--outputs", "scores", "--format", form)
    ended = command(BROKEN / PRINTS, "out", *flags, "--quiet", "--json")
    assert ended.code == 0, ended.stderr
    assert command("verify", BROKEN / PRINTS, "out", "--quiet").stdout == "equal\n"
    assert cudnn_convert.verify(BROKEN / PRINTS, "out").passed
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "equal" not in printed.err  # TensorFlow itself may say what it found on the machine
    os.write(1, b"out")
    os.write(2, b"err")
    assert capfd.readouterr() == ("out", "err")


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_weights_that_are_no_numbers_are_told_of(name: str, canary: Watched) -> None:
    ended = command(BROKEN / name, "out", "--quiet", "--json")
    assert ended.code == 0, ended.stderr
    told = "rnn: weights hold NaN or infinite values, and are converted as they are"
    assert json.loads(ended.stdout)["notes"].count(told) == 1


@pytest.mark.parametrize(
    ("name", "sizes", "told"),
    [
        ("blob", (10**12, 2), "expected sizes that fit its length, found none"),
        ("blob", (1, 10**12), "expected sizes that fit its length, found none"),
        ("index_outside", (1, 2), f"model.ckpt.data-00000-of-00001 of 224 bytes where {(1 << 40) + 224} are"),
        ("index_enormous", (1, 64), f"model.ckpt.data-00000-of-00001 of 224 bytes where {1 << 62} are"),
    ],
)
def test_sizes_that_nobody_has(name: str, sizes: tuple[int, int], told: str, canary: Watched) -> None:
    layers, units = sizes
    ended = command(BROKEN / name, "out", *BLOB, "--layers", layers, "--units", units, "--quiet")
    assert ended.code == 1
    (line,) = ended.stderr.splitlines()
    assert told in line
    assert not Path("out").exists()


@pytest.mark.parametrize("how", ["verify", "map"])
@pytest.mark.parametrize("name", ["external_up.onnx", "external_absolute.onnx"])
def test_weights_outside_of_an_artifact_are_not_read(name: str, how: str, canary: Watched) -> None:
    ended = command(how, BROKEN / "nan.pb", BROKEN / name)
    assert ended.code == 1
    (line,) = lines(ended)
    assert line.startswith(f"cudnn-convert: {BROKEN / name}: artifact: expected")
    assert "xternal" in line or "points outside" in line


@pytest.mark.first("external_link.h5")
@pytest.mark.parametrize("name", ["external_link.h5", "external_storage.h5", "virtual.h5", "gzip_bomb.h5"])
def test_an_artifact_of_keras_is_loaded_with_the_same_suspicion(name: str, canary: Watched) -> None:
    told, _ = REFUSED[name]
    ended = command("verify", BROKEN / "hard_circle.h5", BROKEN / name)
    assert ended.code == 1
    (line,) = lines(ended)
    assert line.startswith(f"cudnn-convert: {BROKEN / name}: HDF5")
    assert told in line


@pytest.mark.parametrize("name", ["member_twice.keras", "zip_bomb.keras"])
def test_an_archive_that_is_an_artifact_is_too(name: str, canary: Watched) -> None:
    told, _ = REFUSED[name]
    for how in ("verify", "map"):
        ended = command(how, BROKEN / "hard_circle.h5", BROKEN / name)
        assert ended.code == 1
        (line,) = lines(ended)
        assert told in line, how


def test_a_link_beside_a_saved_model_is_not_copied(canary: Watched) -> None:
    """A SavedModel that stays whole takes its other files with it."""
    sample = next(found for found in EXPORTED if not found.portable)
    shutil.copytree(sample.path, "source")
    Path("source/assets.extra").mkdir(exist_ok=True)
    Path("source/assets.extra/notes.txt").symlink_to("/etc/hostname")
    ended = command("source", "out", "--quiet", "--force-convert")
    assert ended.code == 1
    expected = "assets.extra/notes.txt: expected a file in source, found a link to /etc/hostname"
    cure = "put the file there, or vouch for the source with --trust"
    assert ended.stderr == f"cudnn-convert: source: {expected}; {cure}\n"
    assert not Path("out").exists()


def test_every_runner_is_known_to_what_looks_first() -> None:
    """A format that is added needs an answer to what its files may do where they are run."""
    loaded = {"savedmodel", "checkpoint", "frozen", "keras", "h5"}
    of_numbers = {"onnx", "tflite", "npz", "safetensors"}
    assert set(FORMATS) == loaded | of_numbers
