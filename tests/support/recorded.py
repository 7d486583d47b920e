"""Comparison with what another machine computed: TensorFlow 1.15, a model's own Keras, cuDNN on a GPU.

Two machines add up the same floats in different orders. The bounds have room for that and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from support import margins

#: Absolute and relative bounds by the type that a recurrence computes in; ONNX runtimes and TensorFlow Lite
#: compute float64 in float32. That of float32 is 84 units in the last place of 1: samples have a few dozen
#: units and steps, and on no kernels of `scripts/try_kernels.py` that were tried do they need half of it. Of
#: half and bfloat16 both sides are rounded, each to a neighbour: twice the distance of neighbours near 1.
BOUNDS: Final = {"float32": 1e-5, "float64": 1e-12, "float16": 2.0**-9, "bfloat16": 2.0**-6}
FLOAT32: Final = BOUNDS["float32"]
#: How far another machine's rounding goes, where that of a moved input goes once. It differs in each sum of
#: a network, and a moved input in the first sums alone.
MARGIN: Final = 4.0
#: Evaluations with inputs moved by a unit in the last place.
DRAWS: Final = 4


def assert_close(found: np.ndarray, expected: np.ndarray, bound: float = FLOAT32, name: object = "") -> None:
    """Each value is finite and at most `bound + bound * |expected|` from what was recorded."""
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    assert found.size, name
    assert np.isfinite(found.astype(np.float64)).all(), name
    share = margins.measure_share(found, expected, atol=bound, rtol=bound)
    assert share <= 1, f"{name}: {share:.3g} times the bound of {bound:.2g}"
    margins.note_share(share)


def measure_bound(evaluate: Callable[..., np.ndarray], inputs: Sequence[np.ndarray]) -> float:
    """Bound of a long float32 computation: MARGIN times how far it moves with its inputs' rounding.

    Each of DRAWS evaluations of `evaluate(*inputs)` gets inputs that are moved by a unit in the last place,
    up or down at random. The bound is at least FLOAT32.
    """
    rng, exact = np.random.default_rng(8), evaluate(*inputs)
    moved = [evaluate(*(_move(rng, value) for value in inputs)) for _ in range(DRAWS)]
    return max(FLOAT32, MARGIN * max(float(np.abs(value - exact).max()) for value in moved))


def _move(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    assert value.dtype == np.float32, value.dtype
    return np.nextafter(value, rng.choice(np.array([-np.inf, np.inf], np.float32), value.shape))
