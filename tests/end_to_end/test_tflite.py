"""TensorFlow Lite files: every size from one file, float32 alone, built-in ops alone unless told otherwise.

`test_fixtures.py`, `test_graphless.py` and `test_state.py` judge the target on all recorded samples.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import artifacts, cases, user_processes
from support.graphs import drawing, placeholder, saved, variable
from support.keras_samples import KerasFixture, keras_fixture
from support.recorded import assert_close
from support.samples import fixture
from support.starts import Case
from support.tiers import tier
from support.versions import needs
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.artifacts import runners, tflite
from cudnn_convert.errors import ReadError, UnsupportedModelError, VerificationError
from cudnn_convert.lower import inexact_kernels
from cudnn_convert.model import Mode, Sizes
from cudnn_convert.weights import parameter_blob

LAYERS, DIRECTIONS, UNITS, INPUTS = 2, 2, 5, 3
DEPTH = LAYERS * DIRECTIONS
#: Steps and rows: one, none, and around the block of steps that the loop writes.
SHAPES = [(1, 1), (31, 2), (32, 1), (33, 3), (65, 2), (0, 2), (7, 4)]
MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def interpreter(path: Path) -> Any:
    """What runs the one signature of a file, by its keys."""
    return tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")


def ops(path: Path) -> set[str]:
    """The built-in ops of a file, by name."""
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    return {names[code.builtinCode] for code in model.operatorCodes}


def recurrent(folder: Path, mode: str, *, time_major: bool, lengths: bool) -> tuple[Path, np.ndarray]:
    """A model of one node with states, two layers and directions; gives its prefix and its parameters."""
    blob = np.random.default_rng(7).normal(
        0, 0.4, parameter_blob.length(Sizes(Mode(mode), LAYERS, DIRECTIONS, UNITS, INPUTS))
    )
    blob = blob.astype(np.float32)
    with drawing() as graph:
        x, state = placeholder("x"), (DEPTH, None, UNITS) if time_major else (None, DEPTH, UNITS)
        h = placeholder("h", state)
        c = placeholder("c", state) if mode == "lstm" else tf.zeros([])
        steps = tf.fill([tf.shape(x)[1 if time_major else 0]], tf.shape(x)[0 if time_major else 1])
        found = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=h,
            input_c=c,
            params=variable("blob", blob.shape),
            sequence_lengths=placeholder("rows", (None,), tf.int32) if lengths else steps,
            rnn_mode=mode,
            direction="bidirectional",
            time_major=time_major,
            is_training=False,
        )
        for name in ("output", "output_h", "output_c")[: 3 if mode == "lstm" else 2]:
            tf.identity(getattr(found, name), name)
    return saved(folder, graph, {"blob": blob}), blob


#: Other modes and layouts are those of test_fixtures.py.
SIZED = frozenset({"gru-batch-lengths"})


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/lower")
@pytest.mark.parametrize(
    ("mode", "time_major", "lengths"),
    [
        pytest.param(mode, layout == "time", rows == "lengths", marks=tier(first=name in SIZED), id=name)
        for mode in MODES
        for layout in ("time", "batch")
        for rows in ("whole", "lengths")
        for name in [f"{mode}-{layout}-{rows}"]
    ],
)
def test_one_file_takes_every_size(
    tmp_path: Path, is_first_tier: bool, mode: str, time_major: bool, lengths: bool
) -> None:
    source, blob = recurrent(tmp_path, mode, time_major=time_major, lengths=lengths)
    outputs = ["output", "output_h", "output_c"][: 3 if mode == "lstm" else 2]
    report = cudnn_convert.convert(
        source, tmp_path / "m.tflite", format="tflite", outputs=outputs, verify=not is_first_tier
    )
    run = interpreter(Path(report.out))
    steps = reference.steps_from_blob(
        blob, mode, layers=LAYERS, directions=DIRECTIONS, units=UNITS, input_size=INPUTS
    )
    rng = np.random.default_rng(11)
    for time, batch in SHAPES:
        x, h, c = (
            rng.normal(size=(n, batch, m)) for n, m in ((time, INPUTS), (DEPTH, UNITS), (DEPTH, UNITS))
        )
        rows = rng.integers(0, time + 1, batch).astype(np.int32)
        rows[0], rows[-1] = time, 0 if lengths and batch > 1 else time
        feeds = {"x": x, "h": h} | ({"c": c} if mode == "lstm" else {})
        feeds = {key: value if time_major else value.swapaxes(0, 1) for key, value in feeds.items()}
        given = {key: value.astype(np.float32) for key, value in feeds.items()}
        found = run(**given, **({"rows": rows} if lengths else {}))
        expected = reference.run(steps, x, h, c, directions=DIRECTIONS, lengths=rows if lengths else None)
        for key, value in zip(outputs, expected, strict=False):
            turned = value if time_major else value.swapaxes(0, 1)
            assert found[key].shape == turned.shape
            np.testing.assert_allclose(found[key], turned, rtol=1e-5, atol=1e-5)


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/lower")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=tier(first=name == "cond"))
        for name in ("lstm_bi_2l_states", "gru_bi", "v3_lengths_batch_major", "cond", "while_rows")
    ],
)
def test_loops_of_built_in_ops_with_the_weights_in_them(
    tmp_path: Path, is_first_tier: bool, name: str
) -> None:
    sample = fixture(f"1.15.5-{name}")
    out, verify = tmp_path / "m.tflite", not is_first_tier
    report = cudnn_convert.convert(sample.prefix, out, format="tflite", verify=verify)
    found = ops(Path(report.out))
    assert {"WHILE", "DYNAMIC_UPDATE_SLICE", "FULLY_CONNECTED"} <= found
    assert not found & {"CUSTOM", "SCATTER_ND"}
    # A product with weights that a loop carries would turn them at every step; a branch is given its own.
    assert name == "cond" or "BATCH_MATMUL" not in found
    assert tflite.flex_ops(Path(report.out)) == ()


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize(
    ("name", "kind"),
    [("lstm_float16", "float16"), pytest.param("gru_bi_2l_float64", "float64", marks=pytest.mark.every)],
)
def test_other_floats_become_float32_and_it_is_said(tmp_path: Path, name: str, kind: str) -> None:
    sample, out = fixture(f"1.15.5-{name}"), tmp_path / "m.tflite"
    report = cudnn_convert.convert(sample.prefix, out, format="tflite")
    assert report.notes[-1] == (
        f"{kind} becomes float32, inputs and outputs too: TensorFlow Lite has no kernels for it"
    )
    run = interpreter(out)
    told = [*run.get_input_details().values(), *run.get_output_details().values()]
    assert {detail["dtype"] for detail in told} == {np.float32}
    assert cudnn_convert.verify(sample.prefix, out).passed


@pytest.mark.slow("cudnn_convert/artifacts/tflite.py")
def test_a_file_alone_says_where_it_came_from(tmp_path: Path) -> None:
    sample, out = fixture("1.15.5-gru_bi"), tmp_path / "m.tflite"
    cudnn_convert.convert(sample.prefix, out, format="tflite", verify=False)
    assert [*tmp_path.iterdir()] == [out]
    assert cudnn_convert.verify(sample.prefix, out).passed
    model = flatbuffer_utils.convert_bytearray_to_object(out.read_bytes())
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    kernel = next(found for found in tensors if [*found.shape] == [12, 5])
    values = np.frombuffer(bytes(model.buffers[kernel.buffer].data), np.float32).copy()
    values[3] += 0.125
    model.buffers[kernel.buffer].data = np.frombuffer(values.tobytes(), np.uint8)
    out.write_bytes(flatbuffer_utils.convert_object_to_bytearray(model))
    with pytest.raises(VerificationError, match="allowed"):
        cudnn_convert.verify(sample.prefix, out)
    for damage in (b"", b"TFL3", b"\x00" * 64, b"\xff" * 64):
        out.write_bytes(damage)
        with pytest.raises(ReadError, match="expected a TensorFlow Lite model"):
            cudnn_convert.verify(sample.prefix, out)


@pytest.mark.slow("cudnn_convert/artifacts/tflite.py", "cudnn_convert/targets/tflite.py")
def test_kernels_of_tensorflow_are_written_only_unproven(tmp_path: Path) -> None:
    source, out = fixture("1.15.5-partitioned").prefix, tmp_path / "m.tflite"
    with pytest.raises(UnsupportedModelError) as refused:
        cudnn_convert.convert(source, out, format="tflite")
    assert [reason.rpartition("; ")[0] for reason in refused.value.reasons] == [
        "embedding_lookup/DynamicPartition_1 and 1 more: expected an op that TensorFlow Lite has, found "
        "DynamicPartition",
        "embedding_lookup: expected an op that TensorFlow Lite has, found ParallelDynamicStitch",
    ]
    assert not list(tmp_path.iterdir())
    report = cudnn_convert.convert(source, out, format="tflite", verify=False)
    needed = "DynamicPartition, ParallelDynamicStitch"
    assert report.notes[-1] == f"m.tflite needs TensorFlow's own kernels (Flex) for {needed}"
    with pytest.raises(ReadError, match=f"ops that this interpreter has no kernels for: {needed}"):
        cudnn_convert.verify(source, out)


@pytest.mark.slow("cudnn_convert/lower", "cudnn_convert/targets")
def test_an_op_that_tensorflow_lite_lacks_is_refused_with_a_cut(tmp_path: Path) -> None:
    sample = fixture("1.15.5-project_reader")
    with pytest.raises(UnsupportedModelError) as refused:
        cudnn_convert.convert(sample.prefix, tmp_path / "out", format="tflite", **sample.options)
    cure = (
        "found CTCBeamSearchDecoder; cut the graph before it, which drops letters, chances, "
        "with --outputs logits/BiasAdd:0"
    )
    assert any(cure in reason for reason in refused.value.reasons)
    assert all("\n" not in reason and len(reason) < 300 for reason in refused.value.reasons)
    assert not list(tmp_path.iterdir())


#: Keras files that differ in what TensorFlow Lite's loop does: the first one is of the first tier.
KERAS = (
    *("keras-2.2.4-stateful_gru", "tf_keras-2.21.0-time_major"),
    *("keras-2.1.6-encoder_decoder", "keras-2.2.4-float64", "tf.keras-1.15.5-bidirectional"),
    *("keras-2.2.4-sequential_lstm", "keras-2.3.1-siamese", "tf.keras-1.12.3-text_classifier"),
    "tf_keras-2.21.0-nested",
)


def converted(sample: KerasFixture, folder: Path) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    report = cudnn_convert.convert(sample.path, folder / sample.name, format="tflite")
    _, path, recorded = runners.identify(folder / sample.name)
    assert recorded is not None
    names = {
        kind: {key: {"source": key, "artifact": key} for key in recorded["tensors"][kind]}
        for kind in ("inputs", "outputs")
    }
    details = interpreter(path).get_input_details()
    states = {
        key: {"next": f"{key}_next", "shape": details[key]["shape"].tolist(), "dtype": "float32"}
        for key in report.inputs
        if f"{key}_next" in report.outputs
    }
    golden, answers = str(sample.folder / "golden.npz"), str(folder / f"{sample.name}.npz")
    job = {"artifact": str(path), "format": "tflite", "golden": golden, "answers": answers, "states": states}
    return report, job | names


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(first=name == KERAS[0])) for name in KERAS])
def test_answers_as_keras_did(tmp_path: Path, name: str) -> None:
    sample = keras_fixture(name)
    report, job = converted(sample, tmp_path)
    artifacts.answer([job])
    assert [key for key in report.inputs if key not in job["states"]] == sample.case["inputs"]
    assert bool(job["states"]) == sample.case["stateful"]
    with np.load(job["answers"]) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key in sample.case["outputs"]:
                found = answers[f"feed{number}/{key}"]
                assert found.dtype == np.float32
                assert_close(found, feed[key])


def test_an_older_artifact_is_replaced(tmp_path: Path) -> None:
    source, out = fixture("1.15.5-rnn_tanh_uni").prefix, tmp_path / "out"
    cudnn_convert.convert(source, out, format="frozen", verify=False)
    cudnn_convert.convert(source, out, format="tflite", verify=False, force=True)
    assert sorted(path.name for path in out.iterdir()) == ["conversion.json", "model.tflite"]
    shutil.copy(out / "model.tflite", tmp_path / "copy.tflite")
    alone = runners.identify(tmp_path / "copy.tflite")[2]
    assert alone is not None
    assert [one["layer"] for one in alone.pop("pieces")] == [0]  # which the file alone says
    assert alone == runners.identify(out)[2]


@pytest.mark.every
@pytest.mark.parametrize("seed", [3, 5, 7])
def test_no_interpreter_answers_with_an_earlier_call(tmp_path: Path, seed: int) -> None:
    """Stacked GRUs with a RESHAPE before their products do, for most seeds."""
    out = tmp_path / "out.tflite"
    cudnn_convert.convert(Case("zeros", "stacked").save(tmp_path), out, outputs=["scores:0"], verify=False)
    # Blocks that are freed go back at once, so that the next interpreter may lie in them.
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    program = str(user_processes.FOLDER / "many_interpreters.py")
    done = subprocess.run(
        [sys.executable, "-I", program, str(out), str(seed), "400"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) <= 1e-5


def activation_in_a_branch(folder: Path) -> Path:
    """A graph whose branch has a product with an activation behind it."""
    case = cases.Case(Mode.GRU)
    kernel = np.random.default_rng(2).uniform(-1, 1, (case.units, 7)).astype(np.float32)
    with drawing() as graph:
        x = placeholder("x", [None, None, 4])
        y = case.op_call(x, tf.zeros([1, tf.shape(x)[1], case.units]), tf.constant(0.0)).output[-1]
        weights = tf.constant(kernel)  # outside of the branch, which gets it as an argument
        rare = lambda: tf.nn.relu(tf.matmul(y, weights))  # noqa: E731
        usual = lambda: tf.tile(y[:, :1], [1, 7])  # noqa: E731
        tf.identity(tf.compat.v1.cond(tf.reduce_max(x) > 20.0, rare, usual), "answer")
    source = folder / "source.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    return source


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
def test_a_branch_keeps_the_activation_behind_its_product(tmp_path: Path) -> None:
    """The converter makes a fully connected layer of both, and a product without an activation of that."""
    source, out = activation_in_a_branch(tmp_path), tmp_path / "out.tflite"
    proof = cudnn_convert.convert(source, out, format="tflite", outputs="answer").verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.not_looked_at) == ("equal op by op", ())
    given = np.random.default_rng(3).normal(size=(3, 2, 4)).astype(np.float32)
    given[1, 1, 2] = 30.0
    (answer,) = interpreter(out)(x=given).values()
    assert answer.min() == 0
    assert answer.max() > 0


@needs("tensorflow", 2, 18, why="the converter keeps the activation")
def test_an_activation_that_a_branch_lost_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of many ops too: what is fed at one tensor shows that it is wrong."""
    source = activation_in_a_branch(tmp_path)
    monkeypatch.setattr(inexact_kernels, "_ACTIVATIONS", frozenset())
    with pytest.raises(VerificationError, match="op by op: differs at "):
        cudnn_convert.convert(source, tmp_path / "other.tflite", format="tflite", outputs="answer")
