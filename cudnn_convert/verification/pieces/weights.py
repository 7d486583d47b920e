"""Asks a file of decoded weights, whose recurrences are computed as its documentation says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudnn_convert.artifacts import weights
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.recurrences import named_weights
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Asked, Piece, Pieces


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The arrays of each recurrence, which is a part of the artifact."""
    arrays = named_weights.arrays(artifact.path)
    described = {record["name"]: record for record in named_weights.file_metadata(artifact.path)["weights"]}
    names = {single.recurrence.node: single.name for single in artifact.plan.singles}
    return Pieces(tuple(_piece(described[names[own.node]], arrays, own) for own in recurrences))


def _piece(record: Any, arrays: Mapping[str, Array], recurrence: Recurrence) -> Piece:
    def ask(asked: Asked) -> Answer:
        answer = weights.stack(record, arrays, asked.x, (asked.h, asked.c), asked.lengths)
        # In the type of the recurrence, as the file's reader would have it.
        y, h, c = (np.asarray(value, recurrence.dtype) for value in answer)
        return y, h, c if record["mode"] == "lstm" else None

    return Piece(recurrence.node, tuple(range(recurrence.sizes.layers)), record["name"], ask)
