"""A parameter blob of which neither a graph nor canonical keys tell the sizes: the user does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cudnn_convert import opaque
from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph import graphless
from cudnn_convert.graph.graphless import FLAGS, Alone, Described
from cudnn_convert.model import Model, Sizes, Tensor

#: How many sizes an error lists.
_LISTED: Final = 12


def found(model: Model, said: Described, *, wanted: str | None = None) -> tuple[Alone, ...]:
    """Every recurrence of a model without a graph, or the one whose signature is `wanted`, named.

    Raises UnsupportedModelError where there is none, AmbiguousSourceError where flags must decide.
    """
    alone = graphless.canonical(model, said)
    known, blobs = {one.variable for one in alone}, graphless.blobs(model)
    left = [key for key in blobs if key not in known]
    if not alone and not blobs:
        left = [_of_any_name(model, said, wanted)]
    everything = [*alone, *(_described(model, key, said) for key in left if _is(key, wanted))]
    return tuple(graphless.named(everything))


def _is(key: str, wanted: str | None) -> bool:
    return wanted is None or graphless.name(key) == wanted


def _described(model: Model, key: str, said: Described) -> Alone:
    """Sizes as told, the mode also by the default name of the blob's scope."""
    tensor, note = model.variables[key], None
    mode = graphless.mode_by_name(key.removesuffix(graphless.BLOB))
    if said.mode is None and mode is not None:
        said, note = replace(said, mode=mode), f"{key}: {mode.value} by the name of its scope; --mode chooses"
    sizes = _fitting(tensor, said)
    if not _complete(said) or len(sizes) != 1:
        raise AmbiguousSourceError(model.path, [_combinations(key, tensor, sizes)])
    return Alone(key, sizes[0], tensor.dtype, note=note)


def _complete(said: Described) -> bool:
    return None not in (said.mode, said.layers, said.units, said.directions)


def _fitting(tensor: Tensor, said: Described) -> list[Sizes]:
    return opaque.fitting(math.prod(tensor.shape), said.mode, said.layers, said.directions, said.units)


def _combinations(key: str, tensor: Tensor, fitting: Sequence[Sizes]) -> str:
    where = f"{key}: a blob of {math.prod(tensor.shape)} values without its graph"
    if not fitting:
        return f"{where}: expected sizes that fit its length, found none; check {FLAGS}"
    listed = "; ".join(graphless.told(sizes) for sizes in fitting[:_LISTED])
    more = f" and {len(fitting) - _LISTED} more" if len(fitting) > _LISTED else ""
    return f"{where}: name {FLAGS}; its length fits {listed}{more}"


def _of_any_name(model: Model, said: Described, wanted: str | None) -> str:
    """The key of a blob that its user named: the only 1-D tensor of a length that the flags allow."""
    vectors = {
        key: tensor
        for key, tensor in model.variables.items()
        # A slot or an average of another tensor has that one's name before its own.
        if len(tensor.shape) == 1
        and tensor.dtype.kind == "f"
        and key.rpartition("/")[0] not in model.variables
    }
    if not _complete(said):
        raise UnsupportedModelError(model.path, [_nothing(model, vectors)])
    fits = [key for key, tensor in vectors.items() if _fitting(tensor, said) and _is(key, wanted)]
    if not fits:
        reason = f"{FLAGS}: expected a 1-D tensor of a length that they allow, found none"
        raise UnsupportedModelError(model.path, [reason])
    if len(fits) > 1:
        listed = ", ".join(f"{graphless.name(key)} ({key})" for key in fits)
        reason = f"{FLAGS}: expected one tensor that fits, found {listed}; choose with --signature"
        raise AmbiguousSourceError(model.path, [reason])
    return fits[0]


def _nothing(model: Model, vectors: dict[str, Tensor]) -> str:
    expected = f"expected a graph (.meta), canonical keys or a blob {graphless.BLOB}, found none of them"
    if model.plain.layers:
        looks = ", ".join(model.plain.layers[:_LISTED])
        more = len(model.plain.layers) - _LISTED
        expected += f": no cuDNN recurrence in it; this looks like {looks}"
        expected += f" and {more} more" if more > 0 else ""
    if model.plain.whole:
        return f"{expected}; such layers run on a CPU as they are, in the program that trained them"
    longest = sorted(vectors, key=lambda key: -vectors[key].shape[0])[:3]
    near = ", ".join(f"{key} [{vectors[key].shape[0]}]" for key in longest)
    cure = f"; for a blob of another name give {FLAGS}; the longest 1-D tensors are {near}" if near else ""
    doubtful = [found.scope.rstrip("/") for found in model.canonical if found.may_be_dense]
    if doubtful:
        cure += f"; {', '.join(doubtful)} may be a CudnnLSTM or a dense layer: say --mode lstm --units N"
    return expected + cure
