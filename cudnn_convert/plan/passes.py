"""The passes of a graph during planning, in order.

1. `OF_SOURCE`: the graph of a file, which `source.ensure_graph` gives.
2. Functions are inlined, and the outputs are chosen (`from_graph.plan_graph`).
3. `BEFORE_CUT`.
4. The graph is cut at its inputs (`from_graph.cut_section`).
5. `inference.SIMPLIFYING`: defaults, dead branches, dropout.
6. State is placed (`state_io.place_state`).
7. `list_cpu_passes`.
"""

from functools import partial
from typing import Final

from cudnn_convert.graph.passes import channels_last, half_precision, inference, replicas, tf1_ops
from cudnn_convert.graph.passes.run import Pass
from cudnn_convert.recurrences import drop_in

OF_SOURCE: Final[tuple[Pass, ...]] = (*tf1_ops.PASSES, drop_in.restore_nodes)
BEFORE_CUT: Final[tuple[Pass, ...]] = (replicas.reduce_replicas, inference.drop_reserve_space)


def list_cpu_passes(*, carries_layouts: bool) -> tuple[Pass, ...]:
    """Return the passes for giving each op a kernel on CPUs.

    With `carries_layouts` what follows an op that is computed channels last is computed so too.
    """
    return (
        partial(channels_last.compute_channels_last, carry=carries_layouts),
        half_precision.compute_in_float32,
    )
