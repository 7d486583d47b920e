"""The passes that a graph takes while it is planned, in order.

1. `OF_SOURCE`, when the file has been read.
2. `BEFORE_CUT`, when its functions are inlined and the outputs are known.
3. `inference.SIMPLIFYING`, when it is cut at its inputs.
4. `list_cpu_passes`, when its state is placed.
"""

from functools import partial
from typing import Final

from cudnn_convert.graph.passes import channels_last, half_precision, inference, replicas, tf1_ops
from cudnn_convert.graph.passes.run import Pass
from cudnn_convert.recurrences import drop_in

OF_SOURCE: Final[tuple[Pass, ...]] = (*tf1_ops.PASSES, drop_in.restore_nodes)
BEFORE_CUT: Final[tuple[Pass, ...]] = (replicas.reduce_replicas, inference.drop_reserve_space)


def list_cpu_passes(*, carries_layouts: bool) -> tuple[Pass, ...]:
    """The passes that give each op a kernel on CPUs; `carries_layouts` as in `plan_graph`."""
    return (
        partial(channels_last.compute_channels_last, carry=carries_layouts),
        half_precision.compute_in_float32,
    )
