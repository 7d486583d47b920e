"""Asks whether every op around the recurrences of an artifact is the source's.

Graphs of TensorFlow have the source's nodes, which are compared as they are written. Other formats are asked
with values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudnn_convert.errors import first_line
from cudnn_convert.report import OpDifference, OpsReport
from cudnn_convert.verification.pieces.piece_inputs import Artifact

if TYPE_CHECKING:
    from cudnn_convert.verification.ops.graphs import TensorGraph
    from cudnn_convert.verification.ops.structure import Alike

#: The formats whose artifact is a graph of TensorFlow.
_GRAPHS: Final = frozenset({"savedmodel", "frozen", "checkpoint"})
#: Ops that choose between values, or decide what is computed.
GATES: Final = frozenset(
    "Greater GreaterEqual Less LessEqual Equal NotEqual ApproximateEqual LogicalAnd LogicalOr LogicalNot "
    "All Any Select SelectV2 Where Switch RefSwitch Merge If StatelessIf Case StatelessCase LoopCond".split()
)


def report(artifact: Artifact, *, is_copy: bool) -> OpsReport | None:
    """Compare all ops around the recurrences; None where a source has nothing but recurrences.

    `is_copy`: this tool wrote the artifact, and what differs is wrong.
    """
    if artifact.plan.singles or artifact.plan.whole is None or artifact.form not in _GRAPHS:
        return None
    from cudnn_convert.verification.ops import tensorflow

    try:
        source, other = tensorflow.of_source(artifact.plan), tensorflow.of_artifact(artifact)
        alike = tensorflow.compare_structure(source, other, artifact.plan)
    except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
        return OpsReport(asked=False, message=first_line(cause))
    return _of_structure(source, alike, is_copy=is_copy)


def _of_structure(source: TensorGraph, alike: Alike, *, is_copy: bool) -> OpsReport:
    """The report of a comparison of nodes."""
    ops = {name: source.index.nodes[name].op for name in alike.nodes}
    difference, odd = None, [f"{each.source}: {each.what}" for each in alike.mismatches]
    if odd and is_copy:
        first = alike.mismatches[0]
        op = source.index.nodes.get(first.source.partition(":")[0])
        difference = OpDifference(first.source, () if op is None else (str(op.op),), first.what)
    return OpsReport(
        asked=True,
        ops=len(ops),
        constants=len(alike.constants),
        gates=sum(op in GATES for op in ops.values()),
        not_looked_at=() if is_copy else tuple(odd),
        difference=difference,
    )
