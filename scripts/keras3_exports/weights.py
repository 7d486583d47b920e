"""Random numbers for a Keras model's variables, seeded by the case, the variable's place and its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import seeded

#: Small enough that no gate saturates, large enough that each weight shows.
SPREAD = 0.6


def set_weights(case: str, model: Any) -> None:
    """Every weight that is not a state; both rows of a GRU's bias are distinct and not zero."""
    for number, variable in enumerate(model.weights):
        name = variable.name.split(":")[0].rsplit("/", 1)[-1]
        if name in ("rnn_state", "seed_generator_state"):
            continue
        shape = tuple(int(size) for size in variable.shape)
        numbers = seeded(f"{case}/{number}/{name}").uniform(-SPREAD, SPREAD, shape)
        if name == "moving_variance":
            numbers = np.abs(numbers) + SPREAD
        variable.assign(numbers.astype(np.float64 if "64" in str(variable.dtype) else np.float32))
