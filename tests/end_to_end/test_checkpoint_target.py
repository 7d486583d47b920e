"""`--format checkpoint`: its keys and values against those that TensorFlow 1's own saver wrote, its flags,
and the record of what TensorFlow 1.15 made of it (scripts/check_tf1_restore.py).
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, placeholder, saved, variable
from support.samples import FIXTURES, ROOT, Fixture
from support.tiers import tier
from tensorflow.core.protobuf import meta_graph_pb2

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.model import InMemory, Mode
from cudnn_convert.targets.bundle import write_bundle
from cudnn_convert.weights import layouts

RECORD = json.loads((ROOT / "tests" / "data" / "tf1_restore.json").read_text())
SAMPLES = {found.name: found for found in FIXTURES}
LSTM, GRU, TRAINED = "1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi", "1.15.5-twins_training"
CELLS = ("cudnn_compatible_lstm_cell", "cudnn_compatible_gru_cell", "basic_rnn_cell")

FLAGS: dict[str, object] = {"format": "checkpoint"}


@pytest.fixture(autouse=True)
def _few_proofs(is_first_tier: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tier proves nothing of what is compared with the tensors that TensorFlow saved."""
    monkeypatch.setitem(FLAGS, "verify", not is_first_tier)


def values(prefix: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def made(name: str, out: Path, **options: object) -> dict[str, np.ndarray]:
    """Converts a fixture; the tensors of its checkpoint."""
    sample = SAMPLES[name]
    cudnn_convert.convert(sample.prefix, out, **{**FLAGS, **sample.options, **options})
    return values(out / "model.ckpt")


def stored(name: str) -> dict[str, np.ndarray]:
    """The cells' tensors that the source's own saver wrote."""
    found = values(SAMPLES[name].prefix)
    return {key: value for key, value in found.items() if key.split("/")[-2] in CELLS or "_cell/" in key}


def judged(name: str) -> tuple[Fixture, dict[str, str]]:
    sample, cell, lowering = name.split("/")
    return SAMPLES[sample], {"cell": cell, "lowering": lowering}


@pytest.mark.first("1.12.3-rnn_tanh_bi_2l", "1.15.5-two_layers", "1.15.5-lstm_float16", "1.15.5-gru_bi")
@pytest.mark.parametrize(
    "name",
    [
        "1.15.5-gru_bi_2l_float64", "1.15.5-lstm_uni_3l", "1.15.5-rnn_relu_uni_2l", "1.15.5-build_prefix",
        "1.15.5-two_layers", "1.15.5-same_sizes", "1.15.5-lstm_float16", "1.12.3-rnn_tanh_bi_2l", GRU, LSTM,
    ],
)  # fmt: skip
def test_has_the_tensors_that_tensorflow_saved_for_its_cells(out: Path, name: str) -> None:
    found, expected = made(name, out), stored(name)
    assert expected
    assert {key for key in found if "_cell/" in key} == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, strict=True, err_msg=key)
    assert not any("opaque_kernel" in key for key in found)


@pytest.mark.parametrize(("cell", "scope"), [("lstm_block", "lstm_cell"), ("basic_lstm", "basic_lstm_cell")])
@pytest.mark.parametrize("lowering", ["fast", "portable"])
def test_cells_that_add_a_forget_bias_have_it_taken_off(
    out: Path, cell: str, scope: str, lowering: str
) -> None:
    found = made(LSTM, out, cell=cell, lowering=lowering)
    expected = stored(LSTM)
    assert set(found) == {key.replace(CELLS[0], scope) for key in expected}
    for key, value in expected.items():
        one = np.zeros_like(value)
        if key.endswith("/bias"):
            one[10:15] = 1  # i, c, f, o of 5 units each
        np.testing.assert_array_equal(found[key.replace(CELLS[0], scope)], value - one)


def test_a_model_of_both_kinds_gets_the_cell_for_its_lstm(out: Path) -> None:
    found = made("1.15.5-two_layers", out, cell="basic_lstm")
    scope = "outer/inner/encoder"
    lstm = f"{scope}/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/basic_lstm_cell/kernel"
    gru = f"{scope}_1/rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/kernel"
    assert {lstm, gru} <= set(found)
    assert len(found) == 4 + 6


def test_its_graph_is_one_that_tensorflow_1_15_knows(out: Path) -> None:
    made(GRU, out)
    meta = meta_graph_pb2.MetaGraphDef()
    meta.ParseFromString((out / "model.ckpt.meta").read_bytes())
    assert meta.graph_def.versions.producer <= 134
    names = {f"{key}:0" for key in values(out / "model.ckpt")}
    with tf.Graph().as_default():
        tf.compat.v1.train.import_meta_graph(str(out / "model.ckpt.meta"))
        assert {found.name for found in tf.compat.v1.global_variables()} == names
    assert set(meta.signature_def["serving_default"].outputs) == {"rnn_out", "state_h"}
    assert (out / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt"\nall_model_checkpoint_paths: "model.ckpt"\n'
    )
    assert tf.train.latest_checkpoint(str(out)) == str(out / "model.ckpt")


@pytest.mark.first(
    "1.15.5-v3_gru_lengths/compatible/fast",
    "1.15.5-lstm_bi_2l_states/compatible/fast",
    "1.15.5-lstm_bi_2l_states/lstm_block/fast",
    "1.15.5-rnn_relu_uni_2l/compatible/fast",
    "1.15.5-v3_lengths_time_major/compatible/fast",
    "1.15.5-keras_go_backwards/compatible/fast",
    "1.15.5-op_skip_relu/compatible/fast",
    "1.15.5-cond/compatible/portable",
    "1.15.5-lstm_float16/basic_lstm/fast",
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=tier(first=judged(name)[0].is_first("checkpoint")), id=name)
        for name in sorted(RECORD["cases"])
    ],
)
def test_is_what_tensorflow_1_15_judged(out: Path, name: str) -> None:
    """Else: run scripts/check_tf1_restore.py again."""
    sample, options = judged(name)
    options = {**sample.options, **options, "format": "checkpoint", "verify": False}
    if "refused" in RECORD["cases"][name]:
        with pytest.raises(UnsupportedModelError):
            cudnn_convert.convert(sample.prefix, out, **options)
        return
    cudnn_convert.convert(sample.prefix, out, **options)
    digest = 0
    for key, stored_value in sorted(values(out / "model.ckpt").items()):
        value = np.ascontiguousarray(stored_value)  # as the script has it: a scalar becomes a row of one
        digest = zlib.crc32(f"{key} {value.dtype} {value.shape}".encode() + value.tobytes(), digest)
    assert f"{digest:08x}" == RECORD["cases"][name]["values"]
    meta = meta_graph_pb2.MetaGraphDef()
    meta.ParseFromString((out / "model.ckpt.meta").read_bytes())
    nodes = [*meta.graph_def.node, *(n for f in meta.graph_def.library.function for n in f.node_def)]
    unknown = {node.op for node in nodes if not set(node.attr) <= set(RECORD["ops"].get(node.op, []))}
    assert not unknown, "ops and attributes that TensorFlow 1.15 was not seen to accept"


def test_the_record_has_every_case() -> None:
    assert RECORD["tensorflow"].startswith("1.15.")
    assert {name.split("/")[0] for name in RECORD["cases"]} >= set(SAMPLES)
    refused = {name.split("/")[0] for name, found in RECORD["cases"].items() if "refused" in found}
    assert refused == {name for name, sample in SAMPLES.items() if not sample.fits("checkpoint")}
    assert all("imported" in found or "refused" in found for found in RECORD["cases"].values())
    for cell in ("compatible", "lstm_block", "basic_lstm"):
        assert RECORD["cases"][f"1.15.5-bilstm_tagger/{cell}/fast"].keys() >= {"restored", "article"}
        assert "restored" in RECORD["cases"][f"{LSTM}/{cell}/fast"]
    for name in (
        "gru_bi",
        "rnn_tanh_bi_2l",
        "rnn_relu_uni_2l",
        "gru_bi_2l_float64",
        "build_prefix",
        "while_rows",
    ):
        assert "restored" in RECORD["cases"][f"1.15.5-{name}/compatible/fast"]


def test_renames_keys_and_variables_alike(out: Path) -> None:
    old = "cudnn_lstm/stack_bidirectional_rnn"
    renames = [f"{old}=encoder/rnn", "encoder/rnn/cell_1=top", "top/bidirectional_rnn/fw=top/forward"]
    found, expected = made(LSTM, out, rename=renames), stored(LSTM)
    fw, cell = "bidirectional_rnn/fw", CELLS[0]
    for ours, theirs in (
        (f"encoder/rnn/cell_0/{fw}/{cell}/kernel", f"{old}/cell_0/{fw}/{cell}/kernel"),
        (f"top/forward/{cell}/bias", f"{old}/cell_1/{fw}/{cell}/bias"),
    ):
        np.testing.assert_array_equal(found[ours], expected[theirs])
    assert len(found) == len(expected)
    with tf.Graph().as_default():
        tf.compat.v1.train.import_meta_graph(str(out / "model.ckpt.meta"))
        assert {variable.op.name for variable in tf.compat.v1.global_variables()} == set(found)
    assert cudnn_convert.verify(SAMPLES[LSTM].prefix, out).passed


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        (["cudnn=x"], "--rename: expected OLD to be a key or a scope, found no cudnn among cudnn_lstm/rnn/"),
        (["scale"], "--rename: expected OLD=NEW, found 'scale'"),
        (["head/kernel=head/bias"], "--rename: expected keys that differ, found head/bias for"),
        (["head=probs", "probs/kernel=probs"], "--rename: expected a free name for head/kernel, found probs"),
        (["head/bias=?"], "--rename: expected the name of a variable for head/bias, found '?'"),
    ],
)
def test_a_rename_that_fits_nothing_is_refused(out: Path, renames: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(TRAINED, out, rename=renames)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_slots_are_counted_where_they_are_dropped(out: Path) -> None:
    report = cudnn_convert.convert(SAMPLES[TRAINED].prefix, out, format="checkpoint")
    assert "6 optimizer slots dropped; keep them with --slots" in report.notes
    assert not any("Adam" in key or "power" in key for key in values(out / "model.ckpt"))
    other = cudnn_convert.convert(SAMPLES[TRAINED].prefix, out.with_name("other"), verify=False)
    assert not any("slots" in note for note in other.notes)


def pieces(blob: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Consecutive pieces of a blob, which they use up."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    assert sum(sizes) == blob.size
    return [
        part.reshape(shape) for part, shape in zip(np.split(blob, np.cumsum(sizes)[:-1]), shapes, strict=True)
    ]


@pytest.mark.parametrize("suffix", ["Adam", "Adam_1"])
@pytest.mark.parametrize("cell", ["compatible", "basic_lstm"])
def test_slots_of_an_lstm(out: Path, suffix: str, cell: str) -> None:
    """Two layers of five units on three inputs: the input half of each bias, no forget bias taken off."""
    found, source = made(TRAINED, out, slots=True, cell=cell), values(SAMPLES[TRAINED].prefix)
    blob = source[f"cudnn_lstm/opaque_kernel/{suffix}"]
    w0, r0, w1, r1, *biases = pieces(blob, [(4, 5, 3), (4, 5, 5), (4, 5, 5), (4, 5, 5)] + [(4, 5)] * 4)
    order = [0, 2, 1, 3]  # i, f, c, o -> i, c, f, o
    scope = {"compatible": CELLS[0], "basic_lstm": "basic_lstm_cell"}[cell]
    for layer, (w, r, bias) in enumerate([(w0, r0, biases[0]), (w1, r1, biases[2])]):
        stem = f"cudnn_lstm/rnn/multi_rnn_cell/cell_{layer}/{scope}"
        kernel = np.concatenate([np.concatenate([w[g], r[g]], 1).T for g in order], 1)
        np.testing.assert_array_equal(found[f"{stem}/kernel/{suffix}"], kernel)
        np.testing.assert_array_equal(found[f"{stem}/bias/{suffix}"], bias[order].reshape(-1))
    np.testing.assert_array_equal(found[f"head/kernel/{suffix}"], source[f"head/kernel/{suffix}"])
    assert {"beta1_power", "beta2_power", "global_step"} <= set(found)
    assert sum("/Adam" in key for key in found) == 2 * (4 + 2)


def test_slots_of_a_gru(out: Path) -> None:
    """One bidirectional layer of six units on five inputs: the candidate keeps both of its biases."""
    name = "1.15.5-twins_backprop"
    found, source = made(name, out, slots=True), values(SAMPLES[name].prefix)
    (key,) = (key for key in source if key.endswith("opaque_kernel/Adam"))
    parts = pieces(source[key], [(3, 6, 5), (3, 6, 6)] * 2 + [(3, 6)] * 4)
    scope = key.removesuffix("opaque_kernel/Adam")
    for way, (w, r), (bias, recurrent_bias) in (
        ("fw", parts[0:2], parts[4:6]),
        ("bw", parts[2:4], parts[6:8]),
    ):
        stem = f"{scope}stack_bidirectional_rnn/cell_0/bidirectional_rnn/{way}/{CELLS[1]}"
        for part, expected in {
            "gates/kernel": np.concatenate([np.concatenate([w[g], r[g]], 1).T for g in (0, 1)], 1),
            "gates/bias": bias[:2].reshape(-1),
            "candidate/input_projection/kernel": w[2].T,
            "candidate/input_projection/bias": bias[2],
            "candidate/hidden_projection/kernel": r[2].T,
            "candidate/hidden_projection/bias": recurrent_bias[2],
        }.items():
            np.testing.assert_array_equal(found[f"{stem}/{part}/Adam"], expected, err_msg=part)


def test_renames_move_slots_too(out: Path) -> None:
    found = made(TRAINED, out, slots=True, rename=["head=tags", "cudnn_lstm/rnn=rnn"])
    assert {"tags/kernel/Adam", f"rnn/multi_rnn_cell/cell_1/{CELLS[0]}/bias/Adam_1"} <= set(found)


def test_a_moving_average_is_no_slot(out: Path) -> None:
    name = "1.15.5-moving_average"
    assert not any("Average" in key for key in made(name, out, slots=True))


@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
@pytest.mark.parametrize(
    ("options", "flag"),
    [({"cell": "basic_lstm"}, "--cell"), ({"rename": ["a=b"]}, "--rename"), ({"slots": True}, "--slots")],
)
def test_its_flags_are_no_other_formats(out: Path, form: str, options: dict, flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        cudnn_convert.convert(SAMPLES[GRU].prefix, out, format=form, **options)
    formats = "checkpoint, keras or h5" if flag == "--slots" else "checkpoint"
    assert str(caught.value) == f"{flag}: expected --format {formats}, found {form}"


def test_a_cell_for_an_lstm_that_is_not_there(out: Path) -> None:
    with pytest.raises(UsageError) as caught:
        made(GRU, out, cell="lstm_block")
    assert str(caught.value) == "--cell lstm_block: expected a model with an LSTM, found none; leave it out"


def test_a_projection_is_refused(out: Path) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        made("1.15.5-op_proj_lstm", out)
    expected = (
        "CudnnRNNV3: --format checkpoint: expected no projection, found one, which its cell does not have"
    )
    assert caught.value.reasons == (f"{expected}; take another format",)


@pytest.mark.first("CONTRIB-compatible-fast", "LSTM_CELL-lstm_block-fast", "BASIC_LSTM_CELL-basic_lstm-fast")
@pytest.mark.mutant
@pytest.mark.parametrize("lowering", ["fast", "portable"])
@pytest.mark.parametrize(
    ("row", "cell"),
    [("CONTRIB", "compatible"), ("LSTM_CELL", "lstm_block"), ("BASIC_LSTM_CELL", "basic_lstm")],
)
def test_a_wrong_order_fails_the_proof(
    monkeypatch: pytest.MonkeyPatch, out: Path, row: str, cell: str, lowering: str
) -> None:
    right = getattr(layouts, row)
    wrong = [right.gates[Mode.LSTM][place] for place in (0, 2, 1, 3)]
    monkeypatch.setattr(
        layouts,
        row,
        dataclasses.replace(right, gates=MappingProxyType({**right.gates, Mode.LSTM: tuple(wrong)})),
    )
    with pytest.raises(VerificationError):
        made(TRAINED, out, cell=cell, lowering=lowering, weights="raw", verify=True)
    assert not out.exists()


def test_verify_sees_a_checkpoint_that_was_changed(out: Path) -> None:
    found = made(LSTM, out)
    key = next(key for key in sorted(found) if key.endswith("kernel"))
    write_bundle(
        out / "model.ckpt",
        {name: InMemory(value[::-1].copy() if name == key else value) for name, value in found.items()},
    )
    with pytest.raises(VerificationError):
        cudnn_convert.verify(SAMPLES[LSTM].prefix, out)


def test_two_blobs_of_one_scope_have_keys_of_their_own(tmp_path: Path, out: Path) -> None:
    blobs = {"first": BLOB, "second": BLOB[::-1].copy()}
    with drawing() as graph:
        x = placeholder("x")
        ends = [lstm(x, variable(name, BLOB.shape), name=f"{name}_rnn").output for name in blobs]
        tf.add(*ends, name="y")
    cudnn_convert.convert(saved(tmp_path, graph, blobs), out, format="checkpoint", outputs=["y"])
    found, stem = values(out / "model.ckpt"), f"rnn/multi_rnn_cell/cell_0/{CELLS[0]}"
    assert set(found) == {f"{name}/{stem}/{part}" for name in blobs for part in ("kernel", "bias")}
    for name, blob in blobs.items():
        w, r, bias, recurrent_bias = pieces(blob, [(4, 2, 3), (4, 2, 2), (4, 2), (4, 2)])
        order = [0, 2, 1, 3]
        kernel = np.concatenate([w, r], 2)[order].reshape(8, 5).T
        np.testing.assert_array_equal(found[f"{name}/{stem}/kernel"], kernel)
        np.testing.assert_array_equal(
            found[f"{name}/{stem}/bias"], (bias + recurrent_bias)[order].reshape(-1)
        )


def test_a_name_that_the_graph_has_already_is_refused(tmp_path: Path, out: Path) -> None:
    key = f"rnn/multi_rnn_cell/cell_0/{CELLS[0]}/kernel"
    with drawing() as graph:
        x = placeholder("x")
        tf.add(lstm(x, variable("blob", BLOB.shape)).output, tf.constant(0.5, name=key), name="y")
    with pytest.raises(UnsupportedModelError) as caught:
        cudnn_convert.convert(saved(tmp_path, graph, {"blob": BLOB}), out, format="checkpoint", outputs=["y"])
    what = "--format checkpoint: expected a free name for a cell's variable, found an op of the graph"
    assert caught.value.reasons == (f"{key}: {what}",)
