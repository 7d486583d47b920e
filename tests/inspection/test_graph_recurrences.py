"""What an inspection says of single samples, written down by hand from what made them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.command_line import copied
from support.containers import frozen
from support.graphs import PATH, drawing, lstm, placeholder, variable
from support.keras3_samples import exported
from support.keras_samples import keras_fixture
from support.samples import fixture

import cudnn_convert
from cudnn_convert.inspection import End, InspectedRecurrence, WeightTensor, graph_recurrences
from cudnn_convert.model import Convention, InMemory, Model
from cudnn_convert.read import read
from cudnn_convert.targets.bundle import write_bundle

STEM = "cudnn_lstm/stack_bidirectional_rnn/cell_{}/bidirectional_rnn/{}/cudnn_compatible_lstm_cell/{}"


def test_a_recurrence_in_full() -> None:
    found = cudnn_convert.inspect(fixture("1.15.5-v3_lengths_batch_major").prefix)
    [one] = found.recurrences
    # A bidirectional layer sees both directions of the one below: 10 values and 5 of its own.
    shapes = {"kernel": {0: (11, 20), 1: (15, 20)}, "bias": {0: (20,), 1: (20,)}}
    assert set(one.canonical) == {
        WeightTensor(STEM.format(layer, way, name), shapes[name][layer], "float32")
        for layer in (0, 1)
        for way in ("fw", "bw")
        for name in shapes
    }
    # Per direction 4 gates of 5 units: input and recurrent matrices, two biases.
    length = 2 * 4 * 5 * ((6 + 5 + 2) + (10 + 5 + 2))
    assert one == InspectedRecurrence(
        name="cudnn_lstm/CudnnRNNV3",
        op="CudnnRNNV3",
        function=None,
        needs_gpu=True,
        live=True,
        mode="lstm",
        layers=2,
        directions=2,
        units=5,
        input_size=6,
        projection=0,
        dtype="float32",
        axes=("batch", "time", "input"),
        lengths=True,
        dropout=0.0,
        raw=(WeightTensor("cudnn_lstm/opaque_kernel", (length,), "float32"),),
        canonical=one.canonical,
        copies="both, agree",
        streams=False,
    )
    [chosen] = found.signatures
    assert chosen.key == ""
    assert chosen.taken
    assert chosen.inputs["x"] == End("x:0", "float32", (None, None, 6))
    assert chosen.inputs["lengths"] == End("lengths:0", "int32", (None,))
    assert chosen.outputs["rnn_out"] == End("rnn_out:0", "float32", (None, None, 10))


def test_a_twin_that_trains_is_dead_and_shares_its_weights() -> None:
    training, inference = cudnn_convert.inspect(fixture("1.15.5-twins_training").prefix).recurrences
    assert (training.name, training.live, round(training.dropout, 6)) == ("cudnn_lstm/CudnnRNN", False, 0.3)
    assert (inference.name, inference.live, inference.dropout) == ("cudnn_lstm/CudnnRNN_1", True, 0.0)
    assert (training.raw, training.canonical) == (inference.raw, inference.canonical)
    assert training.copies == inference.copies == "both, agree"


@pytest.mark.parametrize(
    ("name", "projection", "settings"),
    [
        ("1.15.5-op_proj_lstm", 4, {}),
        ("1.15.5-op_skip_lstm", 0, {"skip_input": True}),
        ("1.15.5-op_auto_linear", 0, {}),
    ],
)
def test_projections_and_skipped_inputs(name: str, projection: int, settings: dict[str, bool]) -> None:
    [one] = cudnn_convert.inspect(fixture(name).prefix).recurrences
    assert (one.projection, one.settings, one.copies, one.canonical) == (projection, settings, "raw", ())


def test_a_block_lstm_runs_on_a_cpu() -> None:
    found = cudnn_convert.inspect(fixture("1.15.5-block_fused_lengths").prefix)
    [one] = found.recurrences
    assert (one.op, one.mode, one.needs_gpu, one.live, found.runs_on_cpu) == (
        "BlockLSTM",
        "lstm",
        False,
        True,
        True,
    )
    assert (one.layers, one.directions) == (1, 1)
    [kernel] = one.canonical
    assert kernel.shape == (one.input_size + one.units, 4 * one.units)


def test_both_copies_of_a_keras_layer_in_a_graph_are_its_own_kernels() -> None:
    _, second = cudnn_convert.inspect(fixture("1.15.5-keras_lstm").prefix).recurrences
    assert second.copies == "canonical"
    assert {(one.name.rpartition("/")[2], one.shape) for one in second.canonical} == {
        ("kernel", (5, 12)), ("recurrent_kernel", (3, 12)), ("bias", (24,)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layer", "settings"),
    [
        ("keras-2.2.4-go_backwards", "reversed_steps", {"go_backwards": True, "return_sequences": True}),
        ("keras-2.2.4-stateful_lstm", "cu_dnnlstm_1", {"return_sequences": True, "stateful": True}),
        ("keras-2.2.4-merge_modes_gru", "mul", {"return_sequences": True, "merge_mode": "mul"}),
        ("keras-2.2.4-merge_modes_gru", "none", {"merge_mode": None}),
    ],
)
def test_the_settings_of_a_keras_layer(name: str, layer: str, settings: dict[str, object]) -> None:
    found = cudnn_convert.inspect(keras_fixture(name).path)
    [one] = [one for one in found.recurrences if one.name == layer]
    assert one.settings == settings


def test_the_weights_of_a_keras_layer_are_those_under_its_own_name() -> None:
    """A layer that is not trainable comes first in the config and last in the file."""
    still, moving = cudnn_convert.inspect(keras_fixture("keras-2.2.4-frozen_layers").path).recurrences
    for one, inputs in ((still, 4), (moving, 5)):
        assert one.input_size == inputs
        assert all(f"/{one.name.rpartition('/')[2]}/" in held.name for held in one.canonical)


def test_layers_that_are_not_cudnns_are_said_to_run_on_a_cpu() -> None:
    """Keras 2.2.4's own GRU has `[inputs, 3*units]` kernels and one bias: reset_after is off."""
    found = cudnn_convert.inspect(keras_fixture("keras-2.2.4-beside_plain").path)
    plain = {one.name: one for one in found.recurrences if not one.needs_gpu}
    assert set(plain) == {"plain_lstm", "plain_pair", "plain_gru"}
    assert plain["plain_pair"].directions == 2
    gru = plain["plain_gru"]
    assert gru.copies == "canonical"
    assert [one.shape for one in gru.canonical] == [
        (gru.input_size, 3 * gru.units), (gru.units, 3 * gru.units), (3 * gru.units,),
    ]  # fmt: skip
    archive = exported("keras-3.15.1-archive").archive
    assert archive is not None
    found = cudnn_convert.inspect(archive)
    assert [(one.op, one.units, one.input_size, one.needs_gpu) for one in found.recurrences] == [
        ("LSTM", 4, 3, False), ("GRU", 5, 4, False),
    ]  # fmt: skip
    assert found.runs_on_cpu


def test_a_time_major_keras_layer() -> None:
    first, _ = cudnn_convert.inspect(keras_fixture("tf.keras-1.15.5-time_major").path).recurrences
    assert first.axes == ("time", "batch", "input")


def test_functions_that_nothing_calls_are_dead_and_described() -> None:
    found = cudnn_convert.inspect(exported("tf_keras-2.21.0-portable").path)
    assert {(one.mode, one.units, one.live) for one in found.recurrences} == {
        ("lstm", 4, False),
        ("gru", 5, False),
    }
    assert all(one.function and one.name.startswith(one.function) for one in found.recurrences)
    assert found.runs_on_cpu


def test_a_signature_that_trains_is_not_taken() -> None:
    found = cudnn_convert.inspect(exported("tf_keras-2.21.0-cudnn_trained").path)
    assert {one.key: one.taken for one in found.signatures} == {"serving_default": True, "train": False}
    assert [one.live for one in found.recurrences] == [True, True, False, False]
    assert any("train" in note for note in found.notes)


def test_a_function_called_by_two_signatures_has_one_recurrence() -> None:
    found = cudnn_convert.inspect(exported("keras-3.15.1-lstm").path)
    [one] = found.recurrences
    assert one.function
    assert {one.key for one in found.signatures if one.taken} == {"serve", "serving_default"}


def changed(folder: Path, key: str, by: float) -> Path:
    """A copy of a sample with one tensor of it changed."""
    prefix = copied(folder, "1.15.5-lstm_uni_3l")
    values = {name: InMemory(tensor.read()) for name, tensor in read(prefix).variables.items()}
    names = [name for name in values if name.endswith(key)]
    assert names
    for name in names:
        added = np.zeros_like(values[name].array)
        added[added.shape[0] // 4 * 2 : added.shape[0] // 4 * 3] = by  # the forget gate: i, c, f, o
        values[name] = InMemory(values[name].array + added)
    for suffix in (".index", ".data-00000-of-00001"):
        Path(f"{prefix}{suffix}").unlink()
    write_bundle(prefix, values)
    return prefix


def test_copies_that_differ_are_two_ways(tmp_path: Path) -> None:
    prefix = changed(tmp_path, "opaque_kernel", 0.5)
    found = cudnn_convert.inspect(prefix)
    [one] = found.recurrences
    assert one.copies.startswith("both, differ: layers[1].forward.recurrent_kernel: ")
    assert "expected canonical keys and raw blob to agree" in found.reasons[0]
    assert found.command is None
    assert [way.flags for way in found.candidates] == [("--weights=canonical",), ("--weights=raw",)]
    assert cudnn_convert.inspect(prefix, weights="raw").command is not None


def test_copies_that_agree_with_a_forget_bias_are_one(tmp_path: Path) -> None:
    """Some savers leave the 1 out that their cell adds."""
    found = cudnn_convert.inspect(changed(tmp_path, "cudnn_compatible_lstm_cell/bias", -1.0))
    assert found.command is not None
    assert found.command[-1] == "--forget-bias=1"
    [one] = found.recurrences
    assert one.copies == "both, agree"


@pytest.mark.first("1.15.5-two_layers")
@pytest.mark.parametrize(
    "name", ["1.15.5-two_layers", "1.15.5-keras_lstm", "1.15.5-while_rows", "1.15.5-cond"]
)
def test_large_constants_are_not_looked_at_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = frozen(fixture(name), tmp_path / "frozen.pb", verify=False).prefix
    whole = cudnn_convert.inspect(source)
    monkeypatch.setattr(graph_recurrences, "_LARGE", 10)
    model = read(source)
    made = graph_recurrences.hollow(model)
    assert made.variables
    for key, tensor in made.variables.items():
        assert tensor.read().shape == tensor.shape
        assert key in {node.name for node in made.graph.node if node.op == "VariableV2"}
    assert made.graph.ByteSize() < model.graph.ByteSize()
    assert cudnn_convert.inspect(source) == whole


def test_an_op_that_tensorflow_does_not_know_hides_shapes_alone() -> None:
    with drawing() as graph:
        lstm(placeholder("x"), variable("params", [64]))
    definition = graph.as_graph_def()
    seen = graph_recurrences.InspectedGraph(Model(PATH, "checkpoint", definition, {}))
    assert seen.end("x:0").shape == (None, None, 3)
    definition.node.add(name="strange", op="NoSuchOp")
    [node] = [node for node in definition.node if node.op == "CudnnRNN"]
    node.input[0] = "strange"
    seen = graph_recurrences.InspectedGraph(Model(PATH, "checkpoint", definition, {}))
    assert seen.end("x:0") == End("x:0", None, None)
    [one] = seen.recurrences({}, (), Convention())
    assert (one.mode, one.units, one.layers, one.live) == ("lstm", None, None, None)
    assert graph_recurrences.describe_node(seen.model, seen.index, node, None).describe(node).directions == 1
