"""The map from source to artifact, and what it holds against an artifact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper
from support.cases import Case
from support.command_line import command
from support.keras3_samples import EXPORTS
from support.samples import GRAPHLESS, fixture
from support.tiers import combinations, some

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.weight_map import RegionForm, find, matrix_forms, whole

# `cudnn-convert map`: read again from both sides by NumPy alone.

SOURCE = fixture("1.15.5-lstm_bi_2l_states").prefix
FIELDS = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")


def taken(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """What a place says, as Python slices it."""
    parts = [part.split(":") for part in place["part"].strip("[]").split(", ")]
    ends = [[int(end) if end else None for end in part] for part in parts]
    return arrays[place["tensor"]][tuple(part[0] if len(part) == 1 else slice(*part) for part in ends)]


def mapped(*words: object) -> dict:
    done = command("map", *words, "--json")
    assert done.code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_every_gate_is_where_the_map_says(tmp_path: Path) -> None:
    """The gates of `load`, found in the checkpoint's tensors and in those of the file by the map's slices."""
    cudnn_convert.convert(SOURCE, tmp_path / "w.npz", format="npz")
    (one,) = cudnn_convert.load(SOURCE).recurrences
    found = mapped(SOURCE, tmp_path / "w.npz")
    assert (found["artifact"], found["format"]) == (str(tmp_path / "w.npz"), "npz")
    (rows,) = found["weights"]["gates"].values()
    assert len(rows) == 2 * 2 * 4 * len(FIELDS)
    reader, arrays = tf.train.load_checkpoint(str(SOURCE)), np.load(tmp_path / "w.npz")
    for row in rows:
        name = f"layer_{row['layer']}/{row['direction']}/{row['weights']}"
        gate = one.weights[name][one.gates.index(row["gate"])]
        source, target = row["source"], row["target"]
        np.testing.assert_array_equal(taken(arrays, target), gate)
        here = taken({source["tensor"]: reader.get_tensor(source["tensor"])}, source)
        if row["weights"].endswith("kernel"):
            np.testing.assert_array_equal(here.T, gate)
        else:
            both = (one.weights[f"layer_{row['layer']}/{row['direction']}/{field}"] for field in FIELDS[2:])
            total = sum(bias[one.gates.index(row["gate"])] for bias in both)
            np.testing.assert_allclose(here, total, rtol=1e-6)


@pytest.mark.first("npz")
@pytest.mark.parametrize("form", ["savedmodel", "onnx", "npz"])
def test_without_an_artifact_it_is_what_a_conversion_writes(tmp_path: Path, form: str) -> None:
    cudnn_convert.convert(SOURCE, tmp_path / "out", format=form, verify=False)
    kept, made = mapped(SOURCE, tmp_path / "out"), mapped(SOURCE, "--format", form)
    assert (kept["weights"], made["artifact"]) == (made["weights"], None)
    assert kept["recurrences"] == made["recurrences"]


def test_lines_for_a_person() -> None:
    done = command("map", SOURCE, "--format", "npz")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{SOURCE}: TensorFlow 1 checkpoint, to what --format npz writes"
    assert lines[2] == (
        "gates in the source: input, cell, forget, output; gates in the target: input, forget, cell, output"
    )
    assert lines[3].split() == ["layer", "direction", "gate", "weights", "source", "target"]
    cell = "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell"
    source, target = f"{cell}/kernel[0:7, 0:5]", "cudnn_lstm/CudnnRNN/layer_0/forward/kernel[0, :, :]"
    assert " ".join(lines[4].split()) == f"0 forward input kernel {source} transposed {target} as it is"


def test_weights_without_a_graph(tmp_path: Path) -> None:
    source = next(found for found in GRAPHLESS if "weights_lstm" in found.name).prefix
    found = mapped(source, "--format", "safetensors")
    (rows,) = found["weights"]["gates"].values()
    assert all(row["source"] and row["target"] for row in rows)


def test_an_artifact_has_its_own_format(tmp_path: Path) -> None:
    ended = command("map", SOURCE, tmp_path, "--format", "onnx")
    assert ended.code == 2
    assert ended.stderr == (
        f"cudnn-convert: --format cannot be combined with ARTIFACT {tmp_path}; leave one out\n"
    )


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    mapped(SOURCE, "--format", "npz")
    assert not [*tmp_path.iterdir()]


# The map from source to artifact, read again from both sides by NumPy alone.

LSTM, GRU = fixture("1.15.5-lstm_bi_2l_states").prefix, fixture("1.15.5-gru_bi").prefix
RAW, KERAS = fixture("1.15.5-raw_only").prefix, fixture("1.15.5-keras_gru_bi").prefix


def reported(source: Path, folder: Path, *flags: str) -> tuple[Path, dict[str, Any]]:
    """The artifact and the `weights` of the report."""
    out = folder / "out"
    done = command(source, out, "--report", folder / "report.json", "--no-verify", "--quiet", *flags)
    assert done.code == 0, done.stderr
    return out, json.loads((folder / "report.json").read_text())["weights"]


def of_checkpoint(prefix: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def of_onnx(file: Path) -> dict[str, np.ndarray]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(str(file)).graph.initializer}


def taken_lineage(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """What a place says, as Python slices it."""
    parts = [
        int(part) if part.isdigit() else slice(*(int(one) if one else None for one in part.split(":")))
        for part in re.split(", ", place["part"].strip("[]"))
    ]
    return arrays[place["tensor"]][tuple(parts)]


def matrix(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """The part as `[units, inputs]`."""
    found = taken_lineage(arrays, place)
    if place["axes"] == "reshaped":
        return found.reshape(found.shape[::-1])
    return found.T if place["axes"] == "transposed" else found


TARGETS = {
    "savedmodel": lambda out: of_checkpoint(out / "variables" / "variables"),
    "checkpoint": lambda out: of_checkpoint(out / "model.ckpt"),
    "onnx": lambda out: of_onnx(out / "model.onnx"),
}


#: Each format with an LSTM or a GRU, each source to the format that costs least.
ENDS = {("savedmodel", GRU), ("onnx", LSTM)}


@combinations(
    lambda *case: case in ENDS,
    ids=lambda value: {LSTM: "lstm", GRU: "gru", KERAS: "keras"}.get(value, value),
    form=TARGETS,
    source=[LSTM, GRU, KERAS],
)
def test_both_ends_of_the_map_hold_the_same_numbers(source: Path, form: str, tmp_path: Path) -> None:
    out, weights = reported(source, tmp_path, f"--format={form}")
    here, there = of_checkpoint(source), TARGETS[form](out)
    rows = [row for group in weights["gates"].values() for row in group]
    assert len(rows) >= 24
    for row in rows:
        assert row["source"], row
        assert row["target"], row
        assert not row["doubt"], row
        if "kernel" in row["weights"]:
            np.testing.assert_array_equal(matrix(there, row["target"]), matrix(here, row["source"]), str(row))
        elif row["source"]["axes"] == row["target"]["axes"]:
            np.testing.assert_array_equal(
                taken_lineage(there, row["target"]), taken_lineage(here, row["source"])
            )


def test_the_places_of_all_gates_are_different_ones(tmp_path: Path) -> None:
    _, weights = reported(LSTM, tmp_path, "--format=onnx")
    (rows,) = weights["gates"].values()
    places = {(row["target"]["tensor"], row["target"]["part"]) for row in rows if "kernel" in row["weights"]}
    assert len(places) == 2 * 2 * 2 * 4


@pytest.mark.first("onnx-contrib-gates0-onnx")
@pytest.mark.parametrize(
    ("form", "source_names", "gates", "name"),
    [
        ("onnx", "contrib", ["input", "output", "forget", "cell"], "onnx"),
        ("savedmodel", "contrib", ["input", "cell", "forget", "output"], "block_lstm_v1"),
        ("checkpoint", "contrib", ["input", "cell", "forget", "output"], "contrib"),
        pytest.param(
            *("tflite", "contrib", ["input", "forget", "output", "cell"], "loop"), marks=pytest.mark.every
        ),
    ],
)
def test_the_order_of_gates_is_told_by_where_they_lie(
    form: str, source_names: str, gates: list[str], name: str, tmp_path: Path
) -> None:
    _, weights = reported(LSTM, tmp_path, f"--format={form}")
    (source,), (target,) = weights["source_layouts"].values(), weights["target_layouts"].values()
    assert source["gates"] == ["input", "cell", "forget", "output"]
    assert source_names in source["names"]
    assert target["gates"] == gates
    assert name in target["names"]


def test_regions_of_a_blob_are_told_by_their_offsets(tmp_path: Path) -> None:
    """A bidirectional GRU of 4 units on 7 inputs: 3*4*(7+4) weights and 2*3*4 biases for each direction."""
    _, weights = reported(RAW, tmp_path, "--format=frozen")
    (rows,) = weights["gates"].values()
    of = {(row["direction"], row["gate"], row["weights"]): row["source"]["part"] for row in rows}
    assert of["forward", "reset", "kernel"] == "[0:28]"
    assert of["forward", "candidate", "kernel"] == "[56:84]"
    assert of["forward", "reset", "recurrent_kernel"] == "[84:100]"
    assert of["backward", "reset", "kernel"] == "[132:160]"
    assert of["forward", "reset", "bias"] == "[264:268]"
    assert of["backward", "candidate", "recurrent_bias"] == "[308:312]"
    assert {row["source"]["tensor"] for row in rows} == {"cudnn_gru/opaque_kernel"}


def test_every_other_variable_is_accounted_for(tmp_path: Path) -> None:
    _, weights = reported(KERAS, tmp_path, "--format=onnx")
    told = {row["source"]: row for row in weights["variables"]}
    decoded = {row["source"]["tensor"] for rows in weights["gates"].values() for row in rows}
    assert told.keys() | decoded == of_checkpoint(KERAS).keys()
    assert not told.keys() & decoded
    there = of_onnx(tmp_path / "out" / "model.onnx")
    kernel = told["dense/kernel"]
    assert (kernel["role"], kernel["shape"]) == ("needed", [12, 3])
    np.testing.assert_array_equal(
        there[kernel["target"]].ravel(), of_checkpoint(KERAS)["dense/kernel"].ravel()
    )


def test_the_copy_that_was_not_taken_is_called_so(tmp_path: Path) -> None:
    _, weights = reported(LSTM, tmp_path)
    assert [(row["source"], row["role"]) for row in weights["variables"]] == [
        ("cudnn_lstm/opaque_kernel", "other copy")
    ]
    (tmp_path / "raw").mkdir()
    _, weights = reported(LSTM, tmp_path / "raw", "--weights=raw")
    assert {row["role"] for row in weights["variables"]} == {"other copy"}
    assert len(weights["variables"]) == 8


def test_gates_in_another_order_than_their_neighbours_are_doubted(tmp_path: Path) -> None:
    """In one direction alone, update and reset change places: right shapes, wrong model."""
    out, _ = reported(GRU, tmp_path, "--format=onnx")
    file = out / "model.onnx"
    model = onnx.load(str(file))
    node = next(node for node in model.graph.node if node.op_type == "GRU")
    for tensor in model.graph.initializer:
        if tensor.name == node.input[1]:
            value = numpy_helper.to_array(tensor).copy()
            units = value.shape[1] // 3
            value[1, : 2 * units] = np.roll(value[1, : 2 * units], units, axis=0)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(model, str(file))
    assert command("verify", GRU, file, "--report", tmp_path / "report.json", "--force", "--quiet").code == 3
    weights = json.loads((tmp_path / "report.json").read_text())["subject"]["weights"]
    (rows,) = weights["gates"].values()
    odd = {(row["direction"], row["weights"], row["doubt"]) for row in rows if row["doubt"]}
    assert odd == {("backward", "kernel", "gates in the order reset, update, candidate")}


# The search itself.


def test_a_matrix_is_found_in_each_of_its_forms() -> None:
    rng = np.random.default_rng(1)
    sought, around = rng.standard_normal((2, 3)), rng.standard_normal((4, 9))
    for form in matrix_forms(sought):
        tensor = around.copy()
        rows, columns = form.values.shape
        tensor[1 : 1 + rows, 4 : 4 + columns] = form.values
        found = find({"other": around, "t": tensor}, matrix_forms(sought), set())
        assert found is not None
        assert (found.region.tensor, found.region.axes) == ("t", form.axes)
        assert found.region.part == f"[1:{1 + rows}, 4:{4 + columns}]"


def test_a_matrix_that_differs_in_one_number_is_not_found() -> None:
    rng = np.random.default_rng(2)
    sought = rng.standard_normal((3, 4))
    tensor = np.vstack([sought, sought])
    tensor[1, 2] = np.nextafter(tensor[1, 2], 9)
    tensor[5, 0] = 0
    assert find({"t": tensor}, matrix_forms(sought), set()) is None


def test_a_block_does_not_reach_from_one_matrix_into_the_next() -> None:
    stacked = np.arange(24.0).reshape(2, 4, 3)
    across = stacked.reshape(8, 3)[3:5]
    assert find({"t": stacked}, [RegionForm("as it is", across)], set()) is None
    found = find({"t": stacked}, [RegionForm("as it is", stacked[1, 1:3])], set())
    assert found is not None
    assert found.region.part == "[1, 1:3, :]"


def test_equal_halves_lie_in_two_places_and_zeros_in_none() -> None:
    half, taken_so_far = np.array([1.0, 2.0]), set[tuple[str, int]]()
    tensors = {"b": np.array([[5.0, 1.0, 2.0, 1.0, 2.0]])}
    parts = [find(tensors, [RegionForm("as it is", half)], taken_so_far) for _ in range(3)]
    assert [part and part.region.part for part in parts] == ["[0, 1:3]", "[0, 3:5]", None]
    assert find({"z": np.zeros(9)}, [RegionForm("as it is", np.zeros(3))], set()) is None


def test_a_whole_tensor_keeps_its_name_or_is_told_by_its_values() -> None:
    value = np.arange(6.0).reshape(2, 3)
    assert whole({"w": value, "v": value}, "v", value) == "v"
    assert whole({"v": value + 1, "constant": value.T.copy()}, "v", value) == "constant"
    assert whole({"v": value + 1}, "v", value) is None
    assert whole({"constant": np.zeros(3)}, "v", np.zeros(3)) is None


# The map of weights as a check of a proof: what it holds against an artifact.

GRU_SOURCE = fixture("1.15.5-gru_bi").prefix
v1 = tf.compat.v1


def changed(file: Path, place: int, change, *, stripped: bool = False) -> None:
    """Changes what the fused node reads in a place; `stripped` of where it came from."""
    model = onnx.load(str(file))
    node = next(node for node in model.graph.node if node.op_type == "GRU")
    tensor = next(one for one in model.graph.initializer if one.name == node.input[place])
    value = numpy_helper.to_array(tensor).copy()
    change(value)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    if stripped:
        del model.metadata_props[:]
    onnx.save(model, str(file))


def by_one_bit(value: np.ndarray) -> None:
    value[1, 2, 1] = np.nextafter(value[1, 2, 1], np.float32(9))


def gates_exchanged(value: np.ndarray) -> None:
    """In one direction alone."""
    units = value.shape[1] // 3
    value[1, : 2 * units] = np.roll(value[1, : 2 * units], units, axis=0)


@pytest.mark.slow("cudnn_convert/verification")
def test_one_bit_of_a_weight_is_missed_in_an_artifact_of_this_tool(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    proof = cudnn_convert.convert(GRU_SOURCE, out, format="onnx").verification
    assert proof is not None
    assert proof.misplaced == ()
    right = out.read_bytes()
    changed(out, 2, by_one_bit)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(GRU_SOURCE, out)
    (line,) = caught.value.report.misplaced
    assert ": layer 0 backward, update, recurrent_kernel: expected the source's values in a tensor" in line
    assert f"weights of recurrence {line}" in str(caught.value)
    assert all(one.passed for one in caught.value.report.recurrences)  # no answer shows it
    out.write_bytes(right)
    # Of others it is not known whether they copy bits.
    changed(out, 2, by_one_bit, stripped=True)
    assert cudnn_convert.verify(GRU_SOURCE, out).misplaced == ()


def test_an_odd_order_is_seen_in_any_artifact(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    cudnn_convert.convert(GRU_SOURCE, out, format="onnx", verify=False)
    changed(out, 1, gates_exchanged, stripped=True)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(GRU_SOURCE, out)
    lines = caught.value.report.misplaced
    assert len(lines) == 3
    assert {line.partition(": ")[2].partition(", ")[0] for line in lines} == {"layer 0 backward"}
    assert all(
        "kernel: gates in the order reset, update, candidate, where the first layer has " in line
        for line in lines
    )


def tied(case: Case) -> np.ndarray:
    """Parameters of which several parts are alike, symmetric, zero, or of one kind of value."""
    blob, units, inputs = case.blob.copy(), case.units, case.inputs
    at, square = 4 * units * inputs, units * units
    blob[units * inputs : 2 * units * inputs] = blob[: units * inputs]  # two kernels
    for gate in range(2):
        blob[at + gate * square : at + (gate + 1) * square] = np.eye(units).ravel()
    symmetric = blob[at + 2 * square : at + 3 * square].reshape(units, units)
    symmetric += symmetric.T.copy()
    blob[at + 3 * square : at + 4 * square] = 0
    biases = blob[-8 * units * case.depth :]
    biases[: 2 * units] = 1
    biases[2 * units : 3 * units] = biases[3 * units : 4 * units]
    return blob


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification/ops")
@pytest.mark.first("onnx-flags0", "onnx-flags1")
@pytest.mark.parametrize(
    ("form", "flags"),
    [
        ("onnx", {}),
        ("onnx", {"weights_dtype": "float16"}),
        ("savedmodel", {}),
        pytest.param("frozen", {"lowering": "portable"}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
        pytest.param("tflite", {}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
        pytest.param("npz", {}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
    ],
)
def test_nothing_is_held_against_weights_that_are_alike(form: str, flags: dict, tmp_path: Path) -> None:
    case = Case(Mode.LSTM, layers=2, directions=2)
    with tf.Graph().as_default() as graph:
        ends = case.placeholders()
        blob = tied(case)
        once = case.op_call(*ends, params=tf.constant(blob, name="one"), name="one").output
        again = case.op_call(*ends, params=tf.constant(blob, name="other"), name="other").output
        tf.identity(once + 2 * again, "answer")
    source = tmp_path / "tied.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    given = {} if form == "npz" else {"outputs": "answer"}
    proof = cudnn_convert.convert(source, tmp_path / "out", format=form, **given, **flags).verification
    assert proof is not None
    assert (proof.passed, proof.misplaced) == (True, ())


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/verification")
def test_biases_may_lie_in_another_order_than_matrices(tmp_path: Path) -> None:
    """A frozen graph rearranges Keras' biases when it runs."""
    source = EXPORTS / "keras-3.15.1" / "float16" / "saved_model"
    proof = cudnn_convert.convert(source, tmp_path / "out.pb", format="frozen").verification
    assert proof is not None
    assert (proof.passed, proof.misplaced) == (True, ())


@pytest.mark.parametrize("form", some(["onnx"], "savedmodel"))
def test_nothing_is_held_against_a_projection_or_doubles(form: str, tmp_path: Path) -> None:
    projected = Case(Mode.LSTM, directions=2, op="CudnnRNNV3", projection=3)
    for number, case in enumerate((projected, Case(Mode.GRU, layers=2, dtype="float64"))):
        graph, _ = case.graph()
        source = tmp_path / f"{number}.pb"
        source.write_bytes(graph.SerializeToString())
        proof = cudnn_convert.convert(source, tmp_path / f"out{number}", format=form).verification
        assert proof is not None
        assert (proof.passed, proof.misplaced) == (True, ())
