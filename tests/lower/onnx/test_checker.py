"""What is no op of ONNX is refused, and what ONNX's own checker refuses."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import checker

HEAD = '<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 2, "mine" : 1]>'


def parsed(nodes: str) -> Any:
    model = onnx.parser.parse_model(f"{HEAD} main (float[n, 3] x) => (float[n, 3] y) {{ {nodes} }}")
    for node in model.graph.node:
        node.name = f"{node.op_type}_0"
    return model


def test_ops_of_onnxs_own_domains_are_taken() -> None:
    model = parsed("y = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x)")
    del model.opset_import[-1]
    checker.check(model)
    assert model.ir_version == 8, "the lowest that knows the opsets"


def test_an_output_of_unknown_rank_is_taken_and_keeps_it() -> None:
    model = parsed("y = Neg (x)")
    del model.opset_import[1:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    checker.check(model)
    assert not model.graph.output[0].type.tensor_type.HasField("shape")


def test_whatever_is_no_op_of_onnx_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        checker.check(parsed("a = mine.Odd (x) b = ai.onnx.ml.Strange (a) y = Digamma (b)"))
    assert refused.value.reasons == tuple(
        f"{op}_0: expected an op of ONNX, found {domain} {op}; cut the graph before it, or choose --format "
        "savedmodel"
        for domain, op in (("mine", "Odd"), ("ai.onnx.ml", "Strange"), ("ai.onnx", "Digamma"))
    )


def test_a_model_that_onnx_itself_refuses_is_not_given() -> None:
    model = parsed("y = Add (x)")
    del model.opset_import[-1]
    with pytest.raises(UnsupportedModelError, match="checker accepts, found one that it refuses: Node"):
        checker.check(model)
