"""Checks a finished ONNX model for standard ops, and by ONNX's own checker."""

from typing import Any, Final

import onnx

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import walk
from cudnn_convert.text import first_line

DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
_ELSE: Final = "cut the graph before it, or choose --format savedmodel"


def check(model: Any) -> None:
    """Check a model, and set the lowest IR version.

    Raises UnsupportedModelError for what is not standard ONNX.
    """
    versions = {opset.domain: opset.version for opset in model.opset_import}
    reasons = [
        f"{node.name}: expected an op of ONNX, found {node.domain or 'ai.onnx'} {node.op_type}; {_ELSE}"
        for node in walk.all_nodes(model.graph)
        if node.domain not in DOMAINS or not onnx.defs.has(node.op_type, versions[node.domain], node.domain)
    ]
    if reasons:
        raise UnsupportedModelError("onnx", reasons)
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    try:
        onnx.checker.check_model(_with_shapes(model))
    except onnx.checker.ValidationError as cause:
        expected = "a graph that ONNX's checker accepts"
        reason = f"expected {expected}, found one that it refuses: {first_line(cause)}"
        raise UnsupportedModelError("onnx", [f"{reason}; {_ELSE}"]) from cause


def _with_shapes(model: Any) -> Any:
    """Return the model, or a copy with a shape for each output.

    The checker takes no output of an unknown rank.
    """
    if all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        value.type.tensor_type.shape.SetInParent()
    return copy
