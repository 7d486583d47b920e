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
from onnx import numpy_helper
from support import gated_models

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.formats import CUTS_KEY
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report.values import OpsReport
from cudnn_convert.verification.ops import ask
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import make_settings

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
    settings = make_settings(plan, flags)
    with settings.judge.open() as running:
        feeds = settings.judge.make_feeds(running, seed=settings.seed)
    given = Artifact("onnx", file, settings.plan, lambda *_: None)
    report = ask.report(given, settings, feeds, is_copy=True, is_fresh=False)
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


@pytest.mark.first("greater_or_equal")
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


@pytest.mark.slow("cudnn_convert/verification")
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
