"""Models of ONNX region by region: what outputs hide, whatever random inputs draw."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper
from support import gated_models
from support.graphs import drawing

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.formats import CUTS_KEY
from cudnn_convert.lower.onnx import convert, exact_ops
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report import OpsReport
from cudnn_convert.verification.ops import ask, values
from cudnn_convert.verification.ops.differences import are_close, find_difference, is_amplified, take_poles
from cudnn_convert.verification.ops.values import Leaf
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import prepare_judging

Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and the model made of it, which says what it shares with it."""
    folder = tmp_path_factory.mktemp("gated")
    source, out = gated_models.source(folder), folder / "out.onnx"
    proof = cudnn_convert.convert(source, out, format="onnx", outputs=gated_models.OUTPUT).verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.odd) == ("equal op by op", ())
    assert (proof.ops.regions, proof.ops.gates) >= (10, 3)
    return source, out


def asked(source: Path, file: Path, seed: int | None = None) -> OpsReport:
    """What statement 4 says of a model, with its outputs compared by nothing else."""
    flags = Options.of({"format": "onnx", "outputs": gated_models.OUTPUT, "seed": seed})
    plan = make_plan(read_source(source, flags, tag=flags.tag), flags)
    judging = prepare_judging(plan, flags)
    with judging.judge.open() as running:
        feeds = judging.judge.make_feeds(running, seed=judging.seed)
    given = Artifact("onnx", file, judging.plan, lambda *_: None)
    report = ask.report(given, judging, feeds, is_copy=True, is_fresh=False)
    assert report is not None
    return report


def of_constants(
    change: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], which: int = 0
) -> Change:
    """Change one of the constants of a shape."""

    def apply(model: Any) -> None:
        own = {name for node in model.graph.node if node.op_type == "GRU" for name in node.input}
        fitting = [
            tensor
            for tensor in model.graph.initializer
            if tuple(tensor.dims) == shape and tensor.name not in own and tensor.data_type == 1
        ]
        value = numpy_helper.to_array(fitting[which]).copy()
        other = np.ascontiguousarray(change(value), np.float32)
        assert not np.array_equal(other, numpy_helper.to_array(fitting[which]))
        fitting[which].CopyFrom(numpy_helper.from_array(other, fitting[which].name))

    return apply


def of_op(old: str, new: str, which: int = 0) -> Change:
    """Give a node another op."""

    def apply(model: Any) -> None:
        [node for node in model.graph.node if node.op_type == old][which].op_type = new

    return apply


def exchange_kernels(model: Any) -> None:
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    products[0].input[1], products[1].input[1] = products[1].input[1], products[0].input[1]


def move_row(value: np.ndarray) -> np.ndarray:
    value[gated_models.ROWS - 1, 2] += 1e-3
    return value


#: The hidden layer's kernel is the second of its shape.
CHANGES: dict[str, Change] = {
    "zero_kernel": of_constants(np.zeros_like, (5, 5), 1),
    "kernel_a_little": of_constants(lambda value: value + 1e-3 * np.eye(5), (5, 5), 1),
    "columns": of_constants(lambda value: value[:, ::-1], (5, 5), 1),
    "rows": of_constants(lambda value: value[::-1], (5, 5), 1),
    "kernels_exchanged": exchange_kernels,
    "bias": of_constants(np.zeros_like, (5,), 1),
    "threshold": of_constants(lambda value: np.float32(75) if value == 50 else value + 1, (), 0),
    "greater_or_equal": of_op("Greater", "GreaterOrEqual"),
    "sum": of_op("Sub", "Add"),
    "row_of_a_table": of_constants(move_row, (gated_models.ROWS, 4)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_region_is_seen_without_outputs(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    model = onnx.load(str(out))
    CHANGES[name](model)
    other = tmp_path / "other.onnx"
    onnx.save(model, str(other))
    report = asked(source, other)
    assert report.asked
    assert not report.passed, report


def test_a_model_without_a_list_of_names_is_asked_by_regions(pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    model = onnx.load(str(out))
    listed = [entry for entry in model.metadata_props if entry.key == CUTS_KEY]
    assert [json.loads(entry.value)["names"]["rows:0"] for entry in listed] == ["rows:0"]
    model.metadata_props.remove(listed[0])
    other = tmp_path / "other.onnx"
    onnx.save(model, str(other))
    assert asked(source, other).verdict == "equal op by op"
    CHANGES["zero_kernel"](model)
    onnx.save(model, str(other))
    assert "MatMul" in asked(source, other).verdict


def test_a_model_without_names_says_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    model = onnx.load(str(out))
    named = {name: f"t{k}" for k, node in enumerate(model.graph.node) for name in node.output if ":" in name}
    for node in model.graph.node:
        node.input[:] = [named.get(name, name) for name in node.input]
        node.output[:] = [named.get(name, name) for name in node.output]
    del model.metadata_props[:]
    other = tmp_path / "other.onnx"
    onnx.save(model, str(other))
    report = asked(source, other)
    assert (report.asked, report.passed) == (False, True)
    assert report.verdict == "not looked at op by op: the file has no names of the source's tensors"


def test_a_wrong_region_fails_the_proof(pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    model = copy.deepcopy(onnx.load(str(out)))
    CHANGES["greater_or_equal"](model)
    other = tmp_path / "other.onnx"
    onnx.save(model, str(other))
    shown = r"op by op: differs at gate/pick:0 \(.*Greater.*\), on a constant "
    with pytest.raises(VerificationError, match=shown):
        cudnn_convert.verify(source, other)


def test_values_stand_at_constants() -> None:
    rng, value = np.random.default_rng(1), np.zeros((40, 5), np.float32)
    leaf = Leaf(near=(50.0,))
    at = values.vary(rng, values.AT, value, leaf)
    over = values.vary(rng, values.OVER, value, leaf)
    assert set(np.unique(at)) == {0.0, 50.0}
    assert set(np.unique(over)) == {0.0, np.nextafter(np.float32(50), np.float32(51))}
    rows = values.list_rows(np.zeros((3, 2), np.int32), 10, 1)
    assert rows.ravel().tolist() == [6, 7, 8, 9, 0, 1]
    counts = values.vary(rng, values.WIDE, np.ones(4, np.int32), Leaf(counts=True))
    assert counts.tolist() == [1] * 4
    for style in values.FINITE:
        assert values.vary(rng, style, np.float32([0.5, 2.0, 3.0] * 9), Leaf(is_positive=True)).min() >= 0
    assert values.vary(rng, values.NEGATED, np.float32([0.5]), Leaf()).tolist() == [-0.5]
    masked = np.float32([0.5, -np.inf])
    assert values.vary(rng, values.NEGATED, masked, Leaf()).tolist() == [-0.5, -np.inf]


def test_what_amplifies_a_unit_is_known() -> None:
    value = np.float32([1.0, -20.0, 0.5])
    assert not is_amplified(value, value + np.float32([1e-6, 0, 3e-4]))
    assert is_amplified(value, value + np.float32([0, 0, 4e-4]))
    assert not is_amplified(value, None)


def test_what_decides_is_given_in_each_way() -> None:
    switch, whole = np.array(True), np.array(0, np.int32)
    assert values.list_choices(switch, Leaf(counts=True)) == [False, True]
    assert values.list_choices(whole, Leaf(near=(0.0, 1.0, 0.5))) == [0, 1, 2]
    assert values.list_choices(np.float32([3.0]), Leaf(near=(8.0, 40.0))) == pytest.approx(
        [7.55, 8.45, 42.05]
    )
    assert values.list_choices(whole, Leaf(near=(1.0,), counts=True)) == []
    assert values.list_choices(np.zeros((3, 4), np.float32), Leaf(near=(1.0,))) == []


def test_what_is_finite_stays_so() -> None:
    """Scores are masked by the smallest number, which is no measure of the others."""
    masked = np.float32([1.0, -2.0, 3.0, np.finfo(np.float32).min])
    rng = np.random.default_rng(1)
    for style in values.FINITE:
        assert np.isfinite(values.vary(rng, style, masked, Leaf(near=(1.0,)))).all(), style
    assert np.abs(values.vary(rng, values.NOISE, masked, Leaf())[:3]).max() < 50


def test_what_rounding_allows() -> None:
    value = np.float32([1.0, 2.0, 3.0])
    assert find_difference(value, value, []) == ""
    assert find_difference(np.nextafter(value, np.float32(9)), value, []) == ""
    assert find_difference(value * np.float32(1.001), value, []).startswith("at [0] expected 1.0, found 1.00")
    assert find_difference(value[:2], value, []) == "expected [3], found [2]"
    flag = np.array([True, False])
    assert find_difference(~flag, flag, []) == "at [0] expected True, found False"
    assert find_difference(~flag, flag, [~flag]) == ""
    halves = np.float32([0, 0, 0, 8e-4, 1.0, 2.0])  # a Relu: what is small is a sum that cancelled by chance
    assert find_difference(halves + np.float32([0, 0, 0, 3e-7, 0, 0]), halves, []) == ""
    assert find_difference(halves + np.float32([0, 0, 0, 9e-6, 0, 0]), halves, []).startswith("at [3]")
    assert find_difference(np.float32([np.inf]), np.float32([2.5e38]), []) == ""
    assert find_difference(np.float32([-np.inf]), np.float32([2.5e38]), []) != ""
    poles = np.float32([np.inf, np.nan, 1, np.nan])
    found = take_poles(np.float32([np.nan, -np.inf, np.nan, 2]), poles)
    np.testing.assert_array_equal(found, np.float32([np.inf, np.nan, np.nan, np.nan]))
    assert not are_close(value.astype(np.float64), value)
    assert are_close(value, value + np.float32(1e-5))


def turned_behind_an_activation(folder: Path) -> Path:
    """A graph of which tf2onnx moves the Transpose behind Relu, whose value gets the Transpose's name.

    A square has nothing that Relu would change, so that on a run the two names have one value.
    """
    with drawing() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, 4, 6, 5], "x")
        turned = tf.transpose(images * images, [0, 2, 3, 1], name="turned")
        tf.cumsum(tf.nn.relu(turned), 1, name="y")
    source = folder / "turned.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    return source


def test_a_name_that_means_another_tensor_is_given_up(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    report = cudnn_convert.convert(
        turned_behind_an_activation(tmp_path), out, format="onnx", outputs="y:0", force_convert=True
    )
    assert report.verification is not None
    assert report.verification.ops is not None
    assert (report.verification.ops.verdict, report.verification.ops.regions) == ("equal op by op", 2)
    (cuts,) = (entry.value for entry in onnx.load(str(out)).metadata_props if entry.key == CUTS_KEY)
    assert "turned:0" not in cuts


def test_what_is_wrong_stays_so_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer bounds what it rounds: no run has such values, and no part without the name is right."""
    with drawing() as graph:
        rounded = tf.floor(tf.compat.v1.placeholder(tf.float32, [None, 5], "x"), name="rounded")
        tf.add(tf.identity(rounded * 2.0, name="twice"), 0.5, name="y")
    source, out = tmp_path / "model.pb", tmp_path / "out.onnx"
    source.write_bytes(graph.as_graph_def().SerializeToString())

    def round_bounded(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
        ops = exact_ops.Replacement(graph, node)
        ops.finish(ops("Floor", [ops("Min", [ops.inputs[0], ops.constant(30, np.float32)])]))

    monkeypatch.setattr(convert, "_EXACT", {**convert._EXACT, "Floor": round_bounded})
    with pytest.raises(VerificationError, match=r"op by op: differs at \S+ \(Floor"):
        cudnn_convert.convert(source, out, format="onnx", outputs="y:0", force_convert=True)
    assert not out.exists()
