"""How many examples each property takes: few, and always the same, unless more are asked for."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from support.samples import EVERY

#: Examples of a property that runs TensorFlow or ONNX Runtime on each, but for `make test-every`.
FAST = 3


def examples(count: int, *, runs: bool = True) -> settings:
    """`count` examples, the same in every run, or as many fresh ones as CUDNN_CONVERT_EXAMPLES says.

    At most FAST of them where each example `runs` a graph or opens a file, unless `make test-every` asks.
    """
    wanted = int(os.environ.get("CUDNN_CONVERT_EXAMPLES", "0"))
    return settings(
        max_examples=wanted or (min(count, FAST) if runs and not EVERY else count),
        derandomize=not wanted,
        deadline=None,  # the first graph of a process takes seconds
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
