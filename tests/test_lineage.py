"""The map from source to artifact, read again from both sides by NumPy alone."""

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
from samples import fixture
from sources import command

from cudnn_convert.weight_map import Form, find, matrix_forms, whole

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


def taken(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """What a place says, as Python slices it."""
    parts = [
        int(part) if part.isdigit() else slice(*(int(one) if one else None for one in part.split(":")))
        for part in re.split(", ", place["part"].strip("[]"))
    ]
    return arrays[place["tensor"]][tuple(parts)]


def matrix(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """The part as `[units, inputs]`."""
    found = taken(arrays, place)
    if place["axes"] == "reshaped":
        return found.reshape(found.shape[::-1])
    return found.T if place["axes"] == "transposed" else found


TARGETS = {
    "savedmodel": lambda out: of_checkpoint(out / "variables" / "variables"),
    "checkpoint": lambda out: of_checkpoint(out / "model.ckpt"),
    "onnx": lambda out: of_onnx(out / "model.onnx"),
}


@pytest.mark.parametrize("source", [LSTM, GRU, KERAS], ids=["lstm", "gru", "keras"])
@pytest.mark.parametrize("form", TARGETS)
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
            np.testing.assert_array_equal(taken(there, row["target"]), taken(here, row["source"]))


def test_the_places_of_all_gates_are_different_ones(tmp_path: Path) -> None:
    _, weights = reported(LSTM, tmp_path, "--format=onnx")
    (rows,) = weights["gates"].values()
    places = {(row["target"]["tensor"], row["target"]["part"]) for row in rows if "kernel" in row["weights"]}
    assert len(places) == 2 * 2 * 2 * 4


@pytest.mark.parametrize(
    ("form", "source_names", "gates", "name"),
    [
        ("onnx", "contrib", ["input", "output", "forget", "cell"], "onnx"),
        ("savedmodel", "contrib", ["input", "cell", "forget", "output"], "block_lstm_v1"),
        ("checkpoint", "contrib", ["input", "cell", "forget", "output"], "contrib"),
        ("tflite", "contrib", ["input", "forget", "output", "cell"], "loop"),
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
    assert find({"t": stacked}, [Form("as it is", across)], set()) is None
    found = find({"t": stacked}, [Form("as it is", stacked[1, 1:3])], set())
    assert found is not None
    assert found.region.part == "[1, 1:3, :]"


def test_equal_halves_lie_in_two_places_and_zeros_in_none() -> None:
    half, taken_so_far = np.array([1.0, 2.0]), set[tuple[str, int]]()
    tensors = {"b": np.array([[5.0, 1.0, 2.0, 1.0, 2.0]])}
    parts = [find(tensors, [Form("as it is", half)], taken_so_far) for _ in range(3)]
    assert [part and part.region.part for part in parts] == ["[0, 1:3]", "[0, 3:5]", None]
    assert find({"z": np.zeros(9)}, [Form("as it is", np.zeros(3))], set()) is None


def test_a_whole_tensor_keeps_its_name_or_is_told_by_its_values() -> None:
    value = np.arange(6.0).reshape(2, 3)
    assert whole({"w": value, "v": value}, "v", value) == "v"
    assert whole({"v": value + 1, "constant": value.T.copy()}, "v", value) == "constant"
    assert whole({"v": value + 1}, "v", value) is None
    assert whole({"constant": np.zeros(3)}, "v", np.zeros(3)) is None
