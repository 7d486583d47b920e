"""Keys of JAX's trees as paths, without an optimizer's state.

A path is joined with "/" or ".", or written as `jax.tree_util.keystr` does: `['cell']['ii'].value`, with the
numbers of lists as `[0]`. Source: jax 0.7.2 jax/_src/tree_util.py keystr, DictKey, SequenceKey, GetAttrKey.
"""

import re
from collections.abc import Mapping
from typing import Final

from cudnn_convert.model import Tensor
from cudnn_convert.weights.training_state import is_of_optimizer

#: How far above a key a module is looked for.
_DEEPEST: Final = 32
_ITEM: Final = re.compile(r"\[(?:'([^']*)'|(\d+))\]")


def list_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by path, in order. Keys remain where two have the same path."""
    own = {key: tensor for key, tensor in tensors.items() if not is_of_optimizer(key)}
    paths = {_ITEM.sub(r"/\1\2", key).removeprefix("/"): tensor for key, tensor in own.items()}
    return paths if len(paths) == len(own) else own


def list_foreign(
    tensors: Mapping[str, Tensor], pattern: re.Pattern[str], *, ignored: re.Pattern[str] | None = None
) -> dict[str, str]:
    """Map each path to the first key below of a different module.

    `pattern` gives the `path` of a key of a known module, which has no other keys. Keys that begin as
    `ignored` below a path are of no module.
    """
    foreign: dict[str, str] = {}
    for key in tensors:
        match = pattern.fullmatch(key)
        own, end = match["path"].rstrip("./") if match else "", len(key)
        for _ in range(_DEEPEST):
            end = max(key.rfind("/", 0, end), key.rfind(".", 0, end))
            if end < 0:
                break
            is_own = match is not None and end >= len(own)
            if not (is_own or (ignored and ignored.match(key, end + 1))):
                foreign.setdefault(key[:end], key[end + 1 :])
    return foreign
