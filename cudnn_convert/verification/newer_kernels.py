"""Remarks on ops with finite values changed after TensorFlow 1.15.

The installed TensorFlow runs the source, so a comparison misses these changes. The census of ops found them
in answers of TensorFlow 1.15.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cudnn_convert.plan import Plan

#: The version of graphs of TensorFlow 1.15, tensorflow v1.15.0 core/public/version.h TF_GRAPH_DEF_VERSION.
_LAST_OF_TF1: Final = 134
_TIES: Final = "boxes of equal scores come in another order than in TensorFlow 1.15"
_HALVES: Final = "a value half-way between two levels may go to the other one than in TensorFlow 1.15"
#: What changed, by op.
CHANGES: Final = {
    "CumulativeLogsumexp": "sums begin at -infinity; in TensorFlow 1.15 they began at the lowest float",
    "Digamma": "a pole gives NaN; in TensorFlow 1.15 it gave infinity",
    "EuclideanNorm": "the norm of a single value is its size; in TensorFlow 1.15 it kept the sign",
    "FakeQuantWithMinMaxArgs": _HALVES,
    "FakeQuantWithMinMaxVars": _HALVES,
    "FakeQuantWithMinMaxVarsPerChannel": _HALVES,
    "NonMaxSuppression": _TIES,
    "NonMaxSuppressionV2": _TIES,
    "NonMaxSuppressionV3": _TIES,
    "NonMaxSuppressionV4": _TIES,
    "NonMaxSuppressionV5": _TIES,
    "NonMaxSuppressionWithOverlaps": "TensorFlow 1.15 also compared the overlap of a box with itself",
}
#: What changed for integers only.
CHANGES_OF_INTEGERS: Final = {
    "FloorDiv": "the quotient of the lowest integer is right; in TensorFlow 1.15 it overflowed",
    "Mean": "sums do not wrap around; in TensorFlow 1.15 they wrapped around in the type of the values",
}


def describe(plan: Plan) -> Iterator[str]:
    """Yield a remark for each changed op of a TensorFlow 1 graph."""
    graph = plan.whole
    if graph is None or not 0 < plan.model.graph.versions.producer <= _LAST_OF_TF1:
        return
    import tensorflow as tf  # a source with a graph has loaded it

    for node in graph.node:
        what = CHANGES.get(node.op)
        if node.op in CHANGES_OF_INTEGERS and tf.as_dtype(node.attr["T"].type).is_integer:
            what = CHANGES_OF_INTEGERS[node.op]
        if what:
            yield f"{node.op} {node.name}: {what}"
