"""The way of a source with a graph: TensorFlow runs it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cudnn_convert.graph import block, fold
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.plan import Plan
from cudnn_convert.verification import feeds, source
from cudnn_convert.verification.way import Way


def _scores(plan: Plan) -> dict[str, tuple[str, int]]:
    """For each output that is an ArgMax: the tensor of the scores that decide it, and their axis."""
    index = Index(plan.whole)
    found: dict[str, tuple[str, int]] = {}
    for key, name in plan.signature.outputs.items():
        if split(name)[0] not in index.nodes:
            continue  # what a state variable holds next
        node = index.nodes[split(name)[0]]
        while node.op in ("Identity", "Cast"):
            node = index.nodes[split(node.input[0])[0]]
        if node.op == "ArgMax" and (axis := fold.scalar(index, tensor(node.input[1]))) is not None:
            found[key] = (tensor(node.input[0]), axis)
    return found


def _dtypes(plan: Plan) -> set[np.dtype[Any]]:
    return {np.dtype(kind.as_numpy_dtype) for kind in block.dtypes(plan.graph)}


WAY: Final = Way(source.opened, feeds.generated, feeds.fitting, feeds.require_accepted, _dtypes, _scores)
