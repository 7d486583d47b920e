"""The script for the old training machine: its language, its flags, what it writes and what it refuses.

It runs here in TensorFlow 2's own copy of TensorFlow 1's calls; tests/data/recordings has what it wrote under
TensorFlow 1.15 and 1.4 themselves, and under Python 2.7.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.recorded import assert_close
from support.samples import ROOT, fixture

from cudnn_convert.verification import recordings

pytestmark = pytest.mark.slow("scripts/record_tf1.py", "tests/recorder/")

v1 = tf.compat.v1
SCRIPT = ROOT / "scripts" / "record_tf1.py"
BLOCK = fixture("1.15.5-block_fused_lengths")
OUTPUTS = ("--outputs", "rnn_out:0,c=state_c:0", "--outputs=state_h[?,5]")
#: What Python 3.5 or 2.7 cannot read: f-strings, annotations, keyword-only arguments, and so on.
NEWER = (
    *(ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef, ast.Await),
    *(ast.YieldFrom, ast.Starred, ast.MatMult, ast.Match),
)


def test_its_language_is_that_of_python_2_7_and_3_5() -> None:
    text = SCRIPT.read_bytes().decode("ascii")
    tree = ast.parse(text)
    found = [node for node in ast.walk(tree) if isinstance(node, NEWER)]
    assert not found
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            assert not arguments.kwonlyargs
            assert not arguments.posonlyargs
            assert node.returns is None
            assert all(one.annotation is None for one in arguments.args)
        if isinstance(node, ast.Raise):
            assert node.cause is None
        if isinstance(node, ast.ClassDef):
            assert node.bases, "a class without a base is of another kind in Python 2"
            assert not node.keywords
        if isinstance(node, ast.Call):  # no f(*a, b) and no f(**a, **b)
            assert sum(word.arg is None for word in node.keywords) <= 1
        if isinstance(node, ast.Dict):
            assert None not in node.keys


def test_it_imports_nothing_but_tensorflow_and_numpy() -> None:
    roots = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text())):
        if isinstance(node, ast.Import):
            roots |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    foreign = {name for name in roots if name not in sys.stdlib_module_names}
    assert foreign == {"numpy", "tensorflow", "google"}  # protobuf comes with TensorFlow


def test_python_2_7_compiles_it(tmp_path: Path) -> None:
    program = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'); print(sys.version_info[0])"
    python = shutil.which("python2.7")
    done = python and subprocess.run(
        [python, "-c", program, str(SCRIPT)],
        cwd=tmp_path,
        env={**os.environ, "PYENV_VERSION": "2.7"},  # whose stand-in runs nothing unless told which
        capture_output=True,
        text=True,
        check=False,
    )
    if not done or (done.returncode and "Traceback" not in done.stderr):
        pytest.skip("no Python 2.7 that runs")
    assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, over TensorFlow 1's calls."""
    import record_tf1

    monkeypatch.setattr(record_tf1, "tf", v1)
    yield record_tf1


def written(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def fed(folder: Path) -> Path:
    feeds = [{name: feed[name] for name in BLOCK.case["inputs"]} for feed in BLOCK.feeds()]
    arrays = {f"feed{k}/{name}": value for k, feed in enumerate(feeds) for name, value in feed.items()}
    return written(folder / "feeds.npz", arrays)


def ended(script: ModuleType, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = script.main([str(word) for word in words])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture
def refused(tmp_path: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the one line of a call that must fail and leave nothing new in `tmp_path`."""

    def line(*words: object) -> str:
        before = sorted(tmp_path.iterdir())
        code, stdout, stderr = ended(script, capsys, *words, "--out", tmp_path / "golden.npz")
        assert (code, stdout) == (1, "")
        assert sorted(tmp_path.iterdir()) == before
        [found] = stderr.splitlines()
        assert found.startswith("record_tf1: ")
        return found.removeprefix("record_tf1: ")

    return line


def test_it_writes_what_the_package_reads(
    tmp_path: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "golden.npz"
    words = (BLOCK.prefix, "--data", fed(tmp_path), "--out", out, *OUTPUTS)
    assert ended(script, capsys, *words) == (0, f"{out}\n", "")
    found = recordings.read_recording(out)
    assert found.inputs == {"x": "x:0", "h0": "h0:0", "c0": "c0:0", "lengths": "lengths:0"}
    assert found.outputs == {"rnn_out": "rnn_out:0", "c": "state_c:0", "state_h": "state_h:0"}
    for feed, given, answers in zip(BLOCK.feeds(), found.feeds, found.answers, strict=True):
        for key, name in found.inputs.items():
            np.testing.assert_array_equal(given[key], feed[name])
        for key, name in found.outputs.items():
            assert_close(answers[key], feed[name])
    assert (found.facts["recorder"], found.facts["source"]) == ("record_tf1.py", "model.ckpt")
    assert found.facts["tensorflow"] == tf.__version__
    line = f"--out {out}: expected a new path, found a recording; choose another path, or replace it with"
    assert ended(script, capsys, *words) == (1, "", f"record_tf1: {line} --force\n")
    assert ended(script, capsys, *words, "--force")[0] == 0
    out.write_text("years of work")
    line = (
        f"--out {out}: expected a new path, found a file or folder that is no recording; choose another path"
    )
    assert ended(script, capsys, *words, "--force") == (1, "", f"record_tf1: {line}\n")


def counting(folder: Path) -> Path:
    """A SavedModel whose `total` grows by the sum of each `x`, times a placeholder's value.

    The checkpoint does not hold `total`; `gain` it does.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        x, scale = v1.placeholder(tf.int64, [None], "x"), v1.placeholder(tf.int64, [], "part/scale")
        total = v1.get_variable("total", initializer=np.int64(100), use_resource=False)
        gain = v1.get_variable("gain", initializer=np.int64(0), use_resource=False)
        y = v1.assign_add(total, tf.reduce_sum(x) * gain * scale, name="grown")
        told = tf.strings.as_string([y, y + 1], name="told")
        session.run(v1.global_variables_initializer())
        session.run(gain.assign(3))
        infos = {
            key: v1.saved_model.build_tensor_info(value)
            for key, value in {"x": x, "y": y, "told": told}.items()
        }
        signature = v1.saved_model.build_signature_def(
            {"x": infos["x"]}, {"y": infos["y"], "told": infos["told"]}
        )
        builder = v1.saved_model.Builder(str(folder / "saved"))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, saver=v1.train.Saver([gain])
        )
        builder.save()
    return folder / "saved"


def test_calls_run_in_order_from_what_the_file_holds(
    tmp_path: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "in.npz", {f"feed{k}/x": np.arange(k + 2, dtype=np.int32) for k in range(2)})
    out = tmp_path / "golden.npz"
    words = (counting(tmp_path), "--data", data, "--out", out, "--set", "part/*=2")
    code, _, stderr = ended(script, capsys, *words)
    assert (code, stderr) == (0, "record_tf1: not in the checkpoint, initialized: total\n")
    found = recordings.read_recording(out)
    # 100 + (0+1) * 3 * 2, and from there (0+1+2) * 3 * 2
    assert [answer["y"].item() for answer in found.answers] == [106, 124]
    assert found.answers[1]["told"].tolist() == [b"124", b"125"]
    assert [feed["x"].dtype for feed in found.feeds] == [np.int64, np.int64]
    with np.load(out) as stored:
        meta = json.loads(stored["meta"].tobytes())
    assert (meta["initialized"], meta["set"]) == (["total"], ["part/*=2"])


def test_a_gpu_that_is_missing_is_one_line(tmp_path: Path, refused: Callable[..., str]) -> None:
    sample = fixture("1.15.5-gru_bi")
    data = written(tmp_path / "in.npz", {name: sample.feeds()[0][name] for name in sample.case["inputs"]})
    line = refused(sample.prefix, "--data", data, "--outputs", "rnn_out:0")
    op = "CudnnRNNCanonicalToParams"
    cure = "run this on a machine with a GPU that this TensorFlow can use"
    assert line == f"{sample.prefix}: expected a kernel for {op}, found none for the devices here; {cure}"


X = np.ones((4, 3, 3), np.float32)
REFUSED: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "outputs": (
        (),
        {"x": X},
        "--outputs: expected [KEY=]TENSOR for a source without a signature, found none; ",
    ),
    "tensor": (
        ("--outputs=nowhere",),
        {"x": X},
        "--outputs: expected a tensor of the graph, found no nowhere:0",
    ),
    "input": (
        ("--outputs=rnn_out", "--inputs=a=nowhere"),
        {"a": X},
        "--data {data}: feed 0: expected a tensor of the graph, found no nowhere:0",
    ),
    "keys": (
        ("--outputs=rnn_out", "--inputs=x=x:0,h0"),
        {"x": X},
        "--data {data}: feed 0: expected the keys h0, x, found x",
    ),
    "shape": (
        ("--outputs=rnn_out",),
        {"x": X[0]},
        "--data {data}: feed 0: x: expected float32(?, ?, 3), found float32[3, 3]",
    ),
    "type": (
        ("--outputs=rnn_out",),
        {"lengths": np.ones(3)},
        "--data {data}: feed 0: lengths: expected int32(?,), found float64[3]",
    ),
    "twice": (
        ("--outputs=y=rnn_out,y=state_c",),
        {"x": X},
        "--outputs: expected keys that differ, found y twice",
    ),
    "numbers": (("--outputs=rnn_out",), {"feed1/x": X}, "--data {data}: expected feed0 to feed0, found [1]"),
    "signature": (
        ("--signature=other",),
        {"x": X},
        "{source}: --signature: expected one of none, found other",
    ),
    "constant": (
        ("--outputs=rnn_out", "--set=nowhere=1"),
        {"x": X},
        "--set: expected TENSOR=VALUE with a tensor of the graph, found 'nowhere=1'",
    ),
}


@pytest.mark.parametrize(("words", "arrays", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, refused: Callable[..., str], words: tuple[str, ...], arrays: dict[str, Any], message: str
) -> None:
    data = written(tmp_path / "in.npz", arrays)
    line = refused(BLOCK.prefix, "--data", data, *words)
    expected = message.format(data=data, source=BLOCK.prefix)
    assert line.replace("None", "?").startswith(expected)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", None, "expected a checkpoint with its .meta, a .pb or a SavedModel folder, found none"),
        ("frozen.pb", b"\xff\xff", "expected a GraphDef, found "),
        ("model.meta", b"\xff\xff", "expected a MetaGraphDef, found "),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, refused: Callable[..., str], name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    data = written(tmp_path / "in.npz", {"x": X})
    line = refused(tmp_path / name, "--data", data, "--outputs", "y")
    assert line.startswith(f"{tmp_path / name}: {message}")


def test_feeds_that_are_no_archive(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "in.npz").write_bytes(b"no archive")
    line = refused(BLOCK.prefix, "--data", tmp_path / "in.npz", *OUTPUTS)
    assert line.startswith(f"--data {tmp_path / 'in.npz'}: expected an .npz of plain arrays, found ")


CPU = {"name": "/device:CPU:0", "type": "CPU", "description": ""}
A100 = {"name": "/device:GPU:0", "type": "GPU", "description": "name: A100, compute capability: 8.0"}
V100 = {"name": "/device:GPU:0", "type": "GPU", "description": "name: V100, compute capability: 7.0"}
P100 = {"name": "/device:GPU:0", "type": "GPU", "description": "name: P100, compute capability: 6.0"}
TENSOR_OPS = {"TF_ENABLE_CUDNN_RNN_TENSOR_OP_MATH_FP32": "1"}


@pytest.mark.parametrize(
    ("machine", "environment", "on"),
    [
        (([CPU], "11.0"), {}, False),
        (([CPU, A100], "11.0"), {}, True),
        (([CPU, A100], None), {}, True),
        (([CPU, A100], "10.0"), {}, False),
        (([CPU, A100], "11.0"), {"NVIDIA_TF32_OVERRIDE": "0"}, False),
        (([CPU, V100], "11.0"), {}, False),
        (([CPU, V100], "10.0"), TENSOR_OPS, True),
        (([CPU, P100], "10.0"), TENSOR_OPS, False),
    ],
)
def test_the_state_of_tf32(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    machine: tuple[list[dict[str, str]], str | None],
    environment: dict[str, str],
    on: bool,
) -> None:
    monkeypatch.setattr(script, "tf", ModuleType("tensorflow 1.15"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = script.tf32(*machine)
    assert (found["on"], found["environment"], found["execution_enabled"]) == (on, environment, None)
    assert found["reason"]
