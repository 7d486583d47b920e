"""Asks a file of decoded weights, whose recurrences are computed as its documentation says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudnn_convert.artifacts import weights
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.recurrences import named_weights
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Asked, Piece, Pieces


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The arrays of each recurrence, which is a part of the artifact."""
    held = named_weights.arrays(artifact.path)
    described = {one["name"]: one for one in named_weights.file_metadata(artifact.path)["weights"]}
    names = {single.recurrence.node: single.name for single in artifact.plan.singles}
    found = []
    for one in recurrences:
        said = described[names[one.node]]
        ask = _asking(said, held, one)
        found.append(Piece(one.node, tuple(range(one.sizes.layers)), said["name"], ask))
    return Pieces(tuple(found))


def _asking(said: Any, held: Any, one: Recurrence) -> Callable[[Asked], Answer]:
    def ask(asked: Asked) -> Answer:
        y, (h, c) = _rounded(weights.stack(said, held, asked.x, (asked.h, asked.c), asked.lengths), one)
        return y, h, c if said["mode"] == "lstm" else None

    return ask


def _rounded(answer: tuple[Array, Array, Array], one: Recurrence) -> tuple[Array, tuple[Array, Array]]:
    """An answer in the type of the recurrence, as the file's reader would have it."""
    y, h, c = (np.asarray(value, one.dtype) for value in answer)
    return y, (h, c)
