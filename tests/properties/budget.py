"""How many examples each property takes: few, and always the same, unless more are asked for."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings


def examples(count: int, *, runs: bool = True) -> settings:
    """`count` examples, the same in every run, or as many fresh ones as CUDNN_CONVERT_EXAMPLES says.

    With --fast a profile allows few of those that each `runs` a graph or opens a file.
    """
    wanted = int(os.environ.get("CUDNN_CONVERT_EXAMPLES", "0"))
    return settings(
        max_examples=wanted or (min(count, settings.default.max_examples) if runs else count),
        derandomize=not wanted,
        deadline=None,  # the first graph of a process takes seconds
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
