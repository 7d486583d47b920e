"""What every ONNX model goes through last: canonical bytes, a check, and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import onnx

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.lower import onnx_stack
from cudnn_convert.lower.onnx_canonical import canonical
from cudnn_convert.lower.onnx_order import all_nodes
from cudnn_convert.model import Parts, Recurrence

OPSETS: Final = range(11, 19)  # the last that tf2onnx v1.17.0 knows is 18
_DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def require(opset: int) -> None:
    """Raises UsageError for an opset outside `OPSETS`."""
    if opset not in OPSETS:
        raise UsageError(f"--opset: expected {OPSETS[0]} to {OPSETS[-1]}, found {opset}")


@dataclass(frozen=True, slots=True)
class Finished:
    """A `onnx.ModelProto` without the values of the constants that `weights` names, and these.

    `pieces`: which layer of which recurrence its fused nodes compute, as `onnx_stack.fused` says it.
    """

    model: Any
    weights: Mapping[str, Parts]
    pieces: tuple[dict[str, Any], ...] = ()

    def whole(self) -> Any:
        """The model with all its values, where a proto can hold them."""
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        for tensor in made.graph.initializer:
            if tensor.name in self.weights:
                onnx_stack.fill(tensor, self.weights[tensor.name])
        return made


def finished(
    model: Any, recurrences: Sequence[Recurrence], *, names: Mapping[str, str] = _NO_NAMES
) -> Finished:
    """The model as it is written: canonical, of the lowest IR version that will do, its weights beside it.

    `names` as in `canonical`. Raises UnsupportedModelError for what is not standard ONNX.
    """
    made = canonical(model, names=names)
    _check(made)
    pieces = tuple(onnx_stack.fused(made.graph, recurrences))
    return Finished(made, onnx_stack.redeem(made.graph, recurrences), pieces)


def _check(model: Any) -> None:
    versions = {opset.domain: opset.version for opset in model.opset_import}
    reasons = [
        f"{node.name}: expected an op of ONNX, found {node.domain or 'ai.onnx'} {node.op_type}; "
        "cut before it, or take --format savedmodel"
        for node in all_nodes(model.graph)
        if node.domain not in _DOMAINS or not onnx.defs.has(node.op_type, versions[node.domain], node.domain)
    ]
    if reasons:
        raise UnsupportedModelError("onnx", reasons)
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    onnx.checker.check_model(model)
