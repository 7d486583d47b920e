"""Keys of JAX's trees as paths, without an optimizer's state.

A path is joined with "/" or ".", or written as `jax.tree_util.keystr` does: `['cell']['ii'].value`, with the
numbers of lists as `[0]`. Source: jax 0.7.2 jax/_src/tree_util.py keystr, DictKey, SequenceKey, GetAttrKey.
"""

import re
from collections.abc import Mapping
from typing import Final

from cudnn_convert.model import Tensor
from cudnn_convert.weights.training_state import is_of_optimizer

_ITEM: Final = re.compile(r"\[(?:'([^']*)'|(\d+))\]")


def list_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by path, in order. Keys remain where two have the same path."""
    own = {key: tensor for key, tensor in tensors.items() if not is_of_optimizer(key)}
    paths = {_ITEM.sub(r"/\1\2", key).removeprefix("/"): tensor for key, tensor in own.items()}
    return paths if len(paths) == len(own) else own
