"""Decoded weights in a file, each recurrence computed as the file's documentation says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudnn_convert import weights
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.verification import by_hand
from cudnn_convert.verification.pieces.inputs import Asked
from cudnn_convert.verification.pieces.piece import Answer, Artifact, Piece, Pieces


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The arrays of each recurrence, which is a part of the artifact."""
    held = weights.arrays(artifact.path)
    described = {one["name"]: one for one in weights.said(artifact.path)["weights"]}
    names = {single.recurrence.node: single.name for single in artifact.plan.singles}
    found = []
    for one in recurrences:
        said = described[names[one.node]]
        ask = _asking(said, held, one)
        found.append(Piece(one.node, tuple(range(one.sizes.layers)), said["name"], ask))
    return Pieces(tuple(found))


def _asking(said: Any, held: Any, one: Recurrence) -> Callable[[Asked], Answer]:
    def ask(asked: Asked) -> Answer:
        y, (h, c) = _rounded(by_hand.stack(said, held, asked.x, (asked.h, asked.c), asked.lengths), one)
        return y, h, c if said["mode"] == "lstm" else None

    return ask


def _rounded(answer: tuple[Array, Array, Array], one: Recurrence) -> tuple[Array, tuple[Array, Array]]:
    """An answer in the type of the recurrence, as the file's reader would have it."""
    y, h, c = (np.asarray(value, one.dtype) for value in answer)
    return y, (h, c)
