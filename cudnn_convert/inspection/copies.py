"""Which tensors of a file hold the weights of a recurrence, by their own names, and whether copies agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert import opaque
from cudnn_convert.errors import CudnnConvertError
from cudnn_convert.graph import agreement
from cudnn_convert.inspection.value import Held
from cudnn_convert.model import Array, CanonicalParameters, Convention, Model, Sizes, Tensor
from cudnn_convert.read import canonical

RAW: Final = "raw"
CANONICAL: Final = "canonical"
AGREE: Final = "both, agree"
#: Blobs of more values are compared by the plan alone, where that is made.
_MOST: Final = 1 << 27


@dataclass(frozen=True, slots=True)
class _Unread:
    """A tensor in whose place zeros without memory are read, and which keeps who asked for it."""

    key: str
    tensor: Tensor
    asked: list[str]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    def read(self) -> Array:
        self.asked.append(self.key)
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


def keys(model: Model) -> dict[str, tuple[Held, ...]]:
    """The tensors of each set of canonical keys, by the set's scope; none of them is read."""
    asked: list[str] = []
    unread = {key: _Unread(key, tensor, asked) for key, tensor in model.variables.items()}
    again = {found.scope: found for found in canonical.find(model.path, unread)}
    found: dict[str, tuple[Held, ...]] = {}
    for one in model.canonical:
        names = [key for key in model.variables if key.startswith(one.scope)]
        if one.scope in again:
            del asked[:]
            try:
                _ = [*again[one.scope].tensors().values()]  # which asks for each
            except KeyError:  # the set is not whole, as planning says
                continue
            names = asked
        found[one.scope] = held(model.variables, dict.fromkeys(names))
    return found


def held(tensors: Mapping[str, Tensor], names: Sequence[str] | Mapping[str, None]) -> tuple[Held, ...]:
    """The tensors of `names` as the inspection shows them."""
    return tuple(Held(name, tuple(tensors[name].shape), tensors[name].dtype.name) for name in names)


def told(raw: Sequence[Held], keys: Sequence[Held], compared: str | None) -> str:
    """What copies there are; `compared`: None: not known, "" where they agree, else how they differ."""
    if not (raw and keys):
        return RAW if raw else CANONICAL if keys else "none"
    if compared is None:
        return "both, not compared"
    return f"both, differ: {compared}" if compared else AGREE


def compared(
    found: CanonicalParameters, raw: Tensor, sizes: Sizes, dtype: np.dtype[Any], convention: Convention
) -> str | None:
    """Where the copies differ, "" where they agree, None where there is too much to compare."""
    if math.prod(raw.shape) > _MOST:
        return None
    try:
        blob = opaque.split(raw.read().astype(dtype, copy=False), sizes, where="parameters")
        difference = agreement.difference(found.decode(sizes.mode), blob, convention)
    except CudnnConvertError as error:
        return str(error)
    return (difference or "").partition(";")[0]  # what to do about it stands in the refusal
