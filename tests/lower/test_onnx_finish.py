"""The end of every way to ONNX: what is refused there, and what comes out."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.lower.onnx import finish

HEAD = '<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 2, "mine" : 1]>'


def parsed(nodes: str) -> Any:
    return onnx.parser.parse_model(f"{HEAD} main (float[n, 3] x) => (float[n, 3] y) {{ {nodes} }}")


def test_the_lowest_ir_version_that_knows_the_opset() -> None:
    made = finish.finish_model(parsed("y = Neg (x)"), []).model
    assert (made.ir_version, [entry.domain for entry in made.opset_import]) == (8, [""])


def test_ops_of_onnxs_own_domains_stay() -> None:
    made = finish.finish_model(parsed("y = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x)"), [])
    assert [(node.domain, node.op_type) for node in made.model.graph.node] == [("ai.onnx.ml", "Scaler")]
    assert [(entry.domain, entry.version) for entry in made.model.opset_import] == [
        ("", 17),
        ("ai.onnx.ml", 2),
    ]


def test_whatever_is_no_op_of_onnx_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        finish.finish_model(parsed("a = mine.Odd (x) b = ai.onnx.ml.Strange (a) y = Digamma (b)"), [])
    assert refused.value.reasons == tuple(
        f"{op}_0: expected an op of ONNX, found {domain} {op}; cut before it, or take --format savedmodel"
        for domain, op in (("mine", "Odd"), ("ai.onnx.ml", "Strange"), ("ai.onnx", "Digamma"))
    )


def test_a_model_that_onnx_itself_refuses_is_not_given() -> None:
    with pytest.raises(onnx.checker.ValidationError):
        finish.finish_model(parsed("y = Add (x)"), [])


@pytest.mark.parametrize("opset", [10, 19])
def test_opsets_that_are_not_known(opset: int) -> None:
    with pytest.raises(UsageError, match=f"^--opset: expected 11 to 18, found {opset}$"):
        finish.require(opset)


@pytest.mark.parametrize("opset", [11, 18])
def test_the_first_and_the_last_opset_that_are(opset: int) -> None:
    finish.require(opset)
