"""Artifacts in OpenVINO, on a CPU in float32: the answers, and what it makes of recurrences.

What OpenVINO refuses or answers otherwise is in the tables here as it was found with 2026.4.1. A test that
fails because a later version does better is a row less, here and on docs/serving/openvino.md.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts, user_processes
from support.command_line import command
from support.published_artifacts import convert_for_user, read_answers, write_frozen
from support.recorded import BOUNDS, assert_close
from support.recorded_networks import read_outputs, turn
from support.samples import FIXTURES, ROOT, Fixture, fixture

import cudnn_convert
from cudnn_convert.model import Array, Mode

pytestmark = [
    pytest.mark.every,
    pytest.mark.xdist_group("openvino"),
    pytest.mark.skipif(
        find_spec("openvino") is None, reason="OpenVINO is not installed; make test-every installs it"
    ),
]

PAGE: Final = ROOT / "docs" / "serving" / "openvino.md"
#: The layers of a compiled model: oneDNN's sequence of steps, and loops of OpenVINO's own.
FUSED, LOOP, BRANCH = b"RNNSeq", b"TensorIterator", b"If"
#: Both sides compute in float32, of sums of some 20 products and 9 steps, as in test_recorded_cudnn.py.
BOUND: Final = 1e-5


def ask(job: Mapping[str, Any], **changed: Any) -> dict[str, Array]:
    """What a user's process with OpenVINO answers, by `feed<n>/<key>`."""
    artifacts.answer([{**job, "format": "openvino", **changed}])
    with np.load(job["answers"]) as answers:
        return dict(answers)


def ask_error(job: Mapping[str, Any]) -> str:
    """What it raises there."""
    (error,) = user_processes.user(tensorflow=False).ask([{**job, "format": "openvino"}])
    return error


def layers(answers: Mapping[str, Array]) -> list[bytes]:
    return [*answers["feed0/layers"]]


#: Networks that real cuDNN ran, by a name: their fields, and the layers that they become.
NETWORKS: Final[dict[str, tuple[dict[str, Any], list[bytes]]]] = {
    "ragged": ({"layers": 2, "directions": 2}, [LOOP]),
    "ragged, batch first": ({"layers": 1, "directions": 1, "time_major": False}, [LOOP]),
    "deep": ({"layers": 3, "directions": 1, "op": "CudnnRNN"}, [FUSED]),
    "wide": ({"layers": 1, "directions": 2, "op": "CudnnRNN"}, [FUSED]),
    "skipping": ({"layers": 2, "directions": 2, "skip_input": True}, [LOOP]),
    "projected": ({"layers": 2, "directions": 2, "projection": 3}, [LOOP]),
}


@pytest.mark.parametrize(
    ("mode", "name"),
    [(mode, name) for mode in Mode for name in NETWORKS if name != "projected" or mode is Mode.LSTM],
)
def test_onnx_computes_what_cudnn_did(tmp_path: Path, mode: Mode, name: str) -> None:
    """States that are fed and given, rows that are full, short, ragged and empty, NaN past the lengths.

    Final states of a row of length 0 are the initial ones, where cuDNN wrote zeros (docs/cudnn-questions.md,
    Q8).
    """
    fields, expected_layers = NETWORKS[name]
    network, calls = read_outputs(mode, **fields)
    feeds = [turn(call.feeds, network) for call in calls.values()]
    job = convert_for_user(network, write_frozen(network, tmp_path), "onnx", tmp_path / "out", feeds)
    job["format"] = "openvino"
    assert layers(ask(job)) == expected_layers
    assert calls
    for call, answers in zip(calls.values(), read_answers(network, job), strict=True):
        rows = call.feeds.get("lengths", np.ones(call.feeds["x"].shape[1])) > 0
        for key in network.outputs:
            found = answers[key] if network.time_major else answers[key].swapaxes(0, 1)
            if key == "y":
                assert_close(found, call.outputs[key], BOUND, name=key)
                continue
            np.testing.assert_array_equal(found[:, ~rows], call.feeds[key[0]][:, ~rows])
            if rows.any():
                assert_close(found[:, rows], call.outputs[key][:, rows], BOUND, name=key)


#: Samples of TensorFlow 1.15 whose ONNX models OpenVINO refuses, with words of its error.
REFUSED_ONNX: Final = {
    **dict.fromkeys(
        ("block_cell_bidirectional", "block_cell_loop", "compatible_gru_loop", "project_characters"),
        "num_scan_outputs can't be negative",
    ),
    "estimator_examples": "CPU plugin does not support string",
    "partitioned": "conflicts with the reshape pattern",
}
PEEPHOLES: Final = "block_fused_peephole"


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.folder.name)
        for sample in FIXTURES
        if sample.folder.parent.name == "1.15.5" and sample.fits("onnx") and sample.folder.name != PEEPHOLES
    ],
)
def test_onnx_answers_as_tensorflow_1_did(tmp_path: Path, sample: Fixture) -> None:
    report, job = artifacts.convert(sample, "onnx", tmp_path, verify=False)
    name = sample.folder.name
    if name in REFUSED_ONNX:
        assert REFUSED_ONNX[name] in ask_error(job)
        return
    found = layers(ask(job))
    assert found or name == "gather_tree"
    dtype = report.recurrences[0].dtype if report.recurrences else "float32"
    bound = BOUNDS["float32" if dtype == "float64" else dtype]
    artifacts.agree(sample, report, Path(job["answers"]), bound=bound)


def test_peepholes_are_ignored(tmp_path: Path) -> None:
    """OpenVINO reads no input P (openvino src/frontends/onnx/frontend/src/op/lstm.cpp), and tells nobody."""
    sample = fixture(f"1.15.5-{PEEPHOLES}")
    report, job = artifacts.convert(sample, "onnx", tmp_path, verify=False)
    answers = ask(job)
    assert layers(answers) == [FUSED]
    for key, name in report.outputs.items():
        assert np.abs(answers[f"feed0/{key}"] - sample.feeds()[0][name]).max() > 0.1


#: Of SavedModels and frozen graphs, words of the error, "" for the right answers.
OF_TENSORFLOW: Final = {
    **dict.fromkeys(
        ("lstm_bi_2l_states", "v3_lengths_time_major", "keras_lstm", "bilstm_tagger", "block_fused"), ""
    ),
    **dict.fromkeys(
        ("gru_bi", "gru_uni_2l", "rnn_relu_uni_2l", "rnn_tanh_bi_2l", "v3_gru_lengths"),
        "Argument shapes are inconsistent",
    ),
    "cond": "it must contain the single branch index",
    "saved_model_words": "ReverseSequence",
    "lstm_float16": "Conversion is failed for: BlockLSTM",
    "block_cell_clip": "No conversion rule found for operations: LSTMBlockCell",
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in OF_TENSORFLOW
        for form in ("savedmodel", "frozen")
        if fixture(f"1.15.5-{name}").fits(form)
    ],
)
def test_graphs_of_tensorflow_with_lstms_alone_are_right(tmp_path: Path, name: str, form: str) -> None:
    """A GRU or an RNN has loops that may run no step; OpenVINO then keeps the shapes of another call."""
    sample = fixture(f"1.15.5-{name}")
    report, job = artifacts.convert(sample, form, tmp_path, verify=False)
    if error := OF_TENSORFLOW[name]:
        assert error in ask_error(job)
        return
    assert layers(ask(job)) == [LOOP]
    artifacts.agree(sample, report, Path(job["answers"]), bound=BOUND)


def test_tensorflow_lite_is_refused(tmp_path: Path) -> None:
    _, job = artifacts.convert(fixture("1.15.5-gru_bi"), "tflite", tmp_path, verify=False)
    assert "No translator found for DYNAMIC_UPDATE_SLICE" in ask_error(job)


@pytest.mark.parametrize("name", ["gru_uni_2l", "lstm_uni_3l", "rnn_tanh_uni", "rnn_relu_uni_2l"])
def test_streams(tmp_path: Path, name: str) -> None:
    """Chunks of one step and more, states carried by the user; the whole is what TensorFlow 1 answered."""
    sample = fixture(f"1.15.5-{name}")
    report, job = artifacts.convert(sample, "onnx", tmp_path, states=True, verify=False)
    recurrences = {one.node: one for one in report.recurrences}
    (key,) = report.inputs.keys() - {state.key for state in report.states}
    job["states"] = {
        state.key: {
            "next": state.next_key,
            "shape": [recurrences[state.recurrence].layers, None, recurrences[state.recurrence].units],
            "dtype": "float32",
            "rows": [report.inputs[key], 1],
            "source": begin if (begin := "h0:0") in sample.feeds()[0] else "",
            "batch_first": False,
        }
        for state in report.states
    }
    recorded = {key: name for key, name in report.outputs.items() if name in sample.feeds()[0]}
    joined = {key: 0 for key in recorded if not key.startswith("state_")}
    job["stream"] = {"inputs": {key: 0}, "outputs": joined, "lengths": [], "chunks": [3, 1, 2, 7]}
    answers = ask(job)
    assert layers(answers) == [FUSED]
    assert recorded
    for number, feed in enumerate(sample.feeds()):
        for key, source in recorded.items():
            assert_close(answers[f"feed{number}/{key}"], feed[source], BOUND, name=key)


def test_searches_as_onnx_runtime_does(tmp_path: Path) -> None:
    """tests/end_to_end/test_decoding.py judges that one by NumPy; scores are sums of 9 logarithms."""
    flags: dict[str, Any] = {"decode": "beam", "width": 5, "end": 1, "pad": -1, "steps": 9, "history": True}
    model = ROOT / "models" / "char_lm" / "model.h5"
    report = cudnn_convert.convert(model, tmp_path / "out", format="onnx", verify=False, **flags)
    assert report.decoder is not None
    random, rows = np.random.default_rng(11), 3
    feed = {
        key: random.normal(size=(1, rows, 40), scale=0.4).astype(np.float32)
        for key in report.decoder.inputs
        if key != "tokens"
    }
    feed["tokens"] = random.integers(0, 34, rows).astype(np.int32)
    np.savez(tmp_path / "feeds.npz", **{f"feed0/{key}": value for key, value in feed.items()})
    names, ends = (
        {key: {"source": key, "artifact": key} for key in keys}
        for keys in (report.decoder.inputs, report.decoder.outputs)
    )
    job = {"artifact": str(tmp_path / "out" / "decode.onnx"), "golden": str(tmp_path / "feeds.npz")}
    job |= {"inputs": names, "outputs": ends, "answers": str(tmp_path / "answers.npz")}
    found = ask(job)
    artifacts.answer([{**job, "format": "onnx"}])
    with np.load(job["answers"]) as answers:
        for key, value in answers.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4, err_msg=key)
            else:
                np.testing.assert_array_equal(found[key], value, key)


def test_weights_in_half(tmp_path: Path) -> None:
    """Of a model with matrices large enough to be stored so, against TensorFlow's float32."""
    sample = fixture("1.15.5-lstm_bi_2l_states")
    report, job = artifacts.convert(sample, "onnx", tmp_path, weights_dtype="float16", verify=False)
    assert layers(ask(job)) == [FUSED]
    artifacts.agree(sample, report, Path(job["answers"]), bound=BOUNDS["float16"])


@pytest.mark.parametrize(
    ("name", "found"),
    [("lstm_bi_2l_states", [FUSED]), ("v3_lengths_batch_major", [LOOP]), (PEEPHOLES, "peephole input 'P'")],
)
def test_lstms_in_int8_are_computed_in_float32(tmp_path: Path, name: str, found: list[bytes] | str) -> None:
    """Weights are rounded, inputs are exact: the answers are nearer than those that the gate accepted."""
    sample = fixture(f"1.15.5-{name}")
    feeds = {
        f"feed{k}/{key.partition(':')[0]}": feed[key]
        for k, feed in enumerate(sample.feeds())
        for key in sample.case["inputs"]
    }
    np.savez(tmp_path / "data.npz", **feeds)
    gate = {"quantize": "int8", "max_error": 0.05, "data": tmp_path / "data.npz"}
    report, job = artifacts.convert(sample, "onnx", tmp_path, **gate)
    if isinstance(found, str):
        assert found in ask_error(job)
        return
    assert layers(ask(job)) == found
    artifacts.agree(sample, report, Path(job["answers"]), bound=0.05)


def empty(job: dict[str, Any], folder: Path, **shapes: list[int]) -> dict[str, Any]:
    """The job with one feed of zeros of these shapes, by the names of inputs."""
    sources = {key: names["source"] for key, names in job["inputs"].items()}
    feeds = {
        f"feed0/{sources[key]}": np.zeros(shape, np.int32 if key == "lengths" else np.float32)
        for key, shape in shapes.items()
    }
    np.savez(folder / "empty.npz", **feeds)
    return {**job, "golden": str(folder / "empty.npz")}


def test_no_steps_and_no_rows(tmp_path: Path) -> None:
    """Sequences of oneDNN take both. A loop refuses 0 steps, and ends the process at 0 rows."""
    _, plain = artifacts.convert(fixture("1.15.5-gru_bi"), "onnx", tmp_path, verify=False)
    answers = ask(empty(plain, tmp_path, x=[0, 2, 5], h0=[2, 2, 6]))
    assert answers["feed0/rnn_out"].shape == (0, 2, 12)
    assert not answers["feed0/state_h"].any()
    assert ask(empty(plain, tmp_path, x=[4, 0, 5], h0=[2, 0, 6]))["feed0/rnn_out"].shape == (4, 0, 12)
    _, ragged = artifacts.convert(fixture("1.15.5-v3_gru_lengths"), "onnx", tmp_path, verify=False)
    none = empty(ragged, tmp_path, x=[0, 2, 3], h0=[2, 2, 7], lengths=[2])
    assert "TensorIterator" in ask_error(none)
    nobody = empty(ragged, tmp_path, x=[4, 0, 3], h0=[2, 0, 7], lengths=[0])
    process = user_processes.User()
    with pytest.raises(AssertionError, match="the user's process ended"):
        process.ask([{**nobody, "format": "openvino"}])
    process.close()


def test_its_own_precision_may_be_bfloat16(tmp_path: Path) -> None:
    """So it is on a processor with AVX512-BF16; then answers are off by more than float32 ever is."""
    sample = fixture("1.15.5-rnn_tanh_bi_2l")
    report, job = artifacts.convert(sample, "onnx", tmp_path, verify=False)
    asked = "import openvino; print(openvino.Core().get_property('CPU', 'INFERENCE_PRECISION_HINT'))"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    ask(job, precision="")
    with np.load(job["answers"]) as answers:
        gap = max(
            float(np.abs(answers[f"feed{k}/{key}"] - feed[name]).max())
            for k, feed in enumerate(sample.feeds())
            for key, name in report.outputs.items()
        )
    assert ("bfloat16" in told) == (gap > 1e-3), (told, gap)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command, and its program in a process without the package."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tagger").mkdir()
    for part in fixture("1.15.5-bilstm_tagger").folder.glob("model.ckpt.*"):
        shutil.copy(part, tmp_path / "tagger")
    text = PAGE.read_text(encoding="utf-8")
    for line in re.findall(r"^cudnn-convert (.*)$", text, re.MULTILINE):
        assert command(*shlex.split(line), "--no-verify").code == 0
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert programs
    whole = "import sys\nsys.modules['cudnn_convert'] = None\n" + "\n".join(programs)
    done = subprocess.run([sys.executable, "-I", "-c", whole], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", "".join(programs), re.MULTILINE)
