"""Tells the tensors of an optimizer's state by key.

A training state of Flax keeps it below `opt_state`, where moments have the names and shapes of the weights.
`jax.tree_util.keystr` puts names between quotes.
Sources: flax 0.12.0 flax/training/train_state.py TrainState, flax/nnx/training/optimizer.py Optimizer.
"""

import re
from typing import Final

_OF_OPTIMIZER: Final = re.compile(r"(?:.*[/.'])?opt_state[/.'].*", re.DOTALL)


def is_of_optimizer(key: str) -> bool:
    """Return True for a key in an optimizer's state."""
    return _OF_OPTIMIZER.fullmatch(key) is not None
