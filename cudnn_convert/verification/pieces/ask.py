"""Asks an artifact of each format for its recurrences, and judges the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from cudnn_convert.errors import first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.graph import ops
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.report import GlueReport, PieceReport
from cudnn_convert.verification import judges
from cudnn_convert.verification.pieces.judge import Terms, judge_piece, read_gates, report_not_asked
from cudnn_convert.verification.pieces.piece_inputs import Artifact, Piece, Pieces
from cudnn_convert.weights import lazy

if TYPE_CHECKING:
    from cudnn_convert.verification.pieces.glue import Run


Judge = Callable[[Piece, Recurrence], PieceReport]


class Asker(Protocol):
    """What the module of a format in this room has."""

    def pieces(self, artifact: Artifact, recurrences: Sequence[Recurrence], /) -> Pieces:
        """What computes each recurrence in an artifact."""

    def runner(self, artifact: Artifact, /) -> Run:
        """Runs what stands around the recurrences; not asked of formats that keep nothing around them."""


def _asker(form: str) -> Asker:
    return cast(Asker, import_module(f"cudnn_convert.verification.pieces.{FORMATS[form].pieces}"))


def reports(artifact: Artifact, *, stored: str, seed: int) -> tuple[PieceReport, ...]:
    """Every recurrence of a plan, asked by itself in an artifact where that can be, and a line if it cannot.

    `stored` is the type of the artifact's matrices where that is less than they were.
    """
    reports_of_all: list[PieceReport] = []
    plan, form = artifact.plan, artifact.form
    judge = _judge(form, stored=stored, seed=seed)
    pieces = _find_pieces(artifact, plan.recurrences) if plan.recurrences else Pieces()
    for recurrence in plan.recurrences:
        reports_of_all += _of(recurrence, pieces, plan, judge)
    return (*reports_of_all, *(_blocks(plan) if FORMATS[form].replaces_blocks else ()))


def glue(
    artifact: Artifact, feed: Mapping[str, Array], *, dtype: np.dtype[Any], stored: str, trust: bool
) -> GlueReport:
    """What stands around the recurrences, by itself, on a feed; `dtype` is the coarsest type of either side.

    `stored` is the type of the artifact's matrices where that is less than they were.
    """
    if FORMATS[artifact.form].alone or not FORMATS[artifact.form].pieces:
        return GlueReport(asked=False, message=f"not yet done in the format {artifact.form}")
    from cudnn_convert.verification.pieces.glue import judge_glue

    try:
        run, plan = _asker(artifact.form).runner(artifact), artifact.plan
        judging = judges.judge_for(plan)
        with ExitStack() as stack:
            judge = stack.enter_context(judging.opened(plan, trust=trust))
            rough = None
            if stored != "float32" and not plan.singles:
                from cudnn_convert.verification.pieces.graph_glue import round_plan

                rough = stack.enter_context(judging.opened(round_plan(plan, np.dtype(stored)), trust=trust))
            return judge_glue(plan, judge, feed, run, dtype=dtype, rough=rough)
    except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
        return GlueReport(asked=False, message=first_line(cause))


def _blocks(plan: Plan) -> Iterator[PieceReport]:
    """A line for each fused LSTM that is no cuDNN node, of which the reference has no equations."""
    if plan.singles:  # no graph, and no need of TensorFlow
        return

    for node in plan.graph.node:
        if node.op in ops.BLOCK_LSTMS | ops.BLOCK_CELLS:
            reason = f"not asked by itself: a {node.op} is judged through the outputs alone"
            yield PieceReport(node=node.name, layers=(0,), asked=False, passed=True, message=reason)


def _find_pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The pieces of an artifact; that it has none is no fault of what it computes."""
    if not FORMATS[artifact.form].pieces:
        reason = f"not yet done in the format {artifact.form}"
        return Pieces((), {recurrence.node: reason for recurrence in recurrences})
    try:
        return _asker(artifact.form).pieces(artifact, recurrences)
    except Exception as cause:  # noqa: BLE001 - what reads a format has exceptions of its own
        return Pieces((), {recurrence.node: first_line(cause) for recurrence in recurrences})


def _of(recurrence: Recurrence, pieces: Pieces, plan: Plan, judge: Judge) -> list[PieceReport]:
    """The lines of a recurrence: one for each piece of it."""
    own = pieces.of(recurrence, plan.recurrences)
    missing = {*range(recurrence.sizes.layers)} - {layer for piece in own for layer in piece.layers}
    if missing:
        reason = pieces.reasons.get(recurrence.node, "the artifact does not say where it computes it")
        return [report_not_asked(recurrence, f"not asked by itself: {reason}")]
    return [replace(judge(piece, recurrence), node=recurrence.node) for piece in own]


def _judge(form: str, *, stored: str, seed: int) -> Judge:
    """Judges each piece once, also where two recurrences hold the same weights."""
    known: dict[str, PieceReport] = {}

    def judge(piece: Piece, recurrence: Recurrence) -> PieceReport:
        if piece.name not in known:
            try:
                terms = _terms(recurrence, form, stored=stored, seed=seed)
                known[piece.name] = judge_piece(
                    piece, recurrence, read_gates(recurrence, piece.layers), terms
                )
            except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
                reason = f"not asked by itself: {piece.name}: {first_line(cause)}"
                known[piece.name] = report_not_asked(recurrence, reason)
        return known[piece.name]

    return judge


def _terms(recurrence: Recurrence, form: str, *, stored: str, seed: int) -> Terms:
    """ONNX and TensorFlow Lite compute every float as float32.

    The former with the weights that a recurrence of half computes with, the latter with its variable's.
    """
    single = FORMATS[form].single
    takes = np.dtype(np.float32) if FORMATS[form].computes_single else recurrence.dtype
    coarsest = np.dtype(stored) if stored != "float32" else takes
    coarsest = recurrence.dtype if single and recurrence.dtype.itemsize < coarsest.itemsize else coarsest
    large = lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype)
    return Terms(takes, coarsest, seed, FORMATS[form].sizes, large)
