"""Asks an artifact of each format for its recurrences, and judges the answers.

The recurrences of a file of decoded weights are computed here, as the file's documentation says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudnn_convert.artifacts import weights
from cudnn_convert.errors import first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.recurrences import named_weights
from cudnn_convert.report import GlueReport, PieceReport
from cudnn_convert.verification import judges
from cudnn_convert.verification.pieces.judge import Terms, judge_piece, read_gates, report_not_asked
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Asked, Piece, Pieces
from cudnn_convert.weights import lazy

if TYPE_CHECKING:
    from cudnn_convert.verification.pieces.glue import Run


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


Find = Callable[[Artifact, Sequence[Recurrence]], Pieces]
Judge = Callable[[Piece, Recurrence], PieceReport]


def _onnx(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    from cudnn_convert.verification.pieces import onnx

    return onnx.pieces(artifact, recurrences)


def _carve(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    from cudnn_convert.verification.pieces import carve

    is_repaired = artifact.plan.model.saved is not None and artifact.form == "savedmodel"
    return (
        carve.carve_repaired(artifact, recurrences)
        if is_repaired
        else carve.carve_graph(artifact, recurrences)
    )


def _tflite(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    from cudnn_convert.verification.pieces import tflite

    return tflite.pieces(artifact, recurrences)


def _keras(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    from cudnn_convert.verification.pieces import keras

    return keras.pieces(artifact, recurrences)


def _arrays(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    return pieces(artifact, recurrences)


#: The formats whose artifacts can be asked.
FINDERS: Final[Mapping[str, Find]] = MappingProxyType(
    {
        "onnx": _onnx,
        "tflite": _tflite,
        **dict.fromkeys(("savedmodel", "checkpoint", "frozen"), _carve),
        **dict.fromkeys(("keras", "h5"), _keras),
        **dict.fromkeys(("npz", "safetensors"), _arrays),
    }
)

#: The formats whose lowering replaces fused LSTMs that are no cuDNN nodes; the others keep them.
_WITHOUT_BLOCKS: Final = frozenset({"onnx", "tflite"})


def _onnx_glue(artifact: Artifact) -> Run:
    from cudnn_convert.verification.pieces.onnx import runner

    return runner(artifact)


def _tflite_glue(artifact: Artifact) -> Run:
    from cudnn_convert.verification.pieces.tflite_glue import runner

    return runner(artifact)


def _graph_glue(artifact: Artifact) -> Run:
    from cudnn_convert.verification.pieces.graph_glue import runner

    return runner(artifact)


def _keras_glue(artifact: Artifact) -> Run:
    from cudnn_convert.verification.pieces.keras import runner

    return runner(artifact)


#: The formats whose artifacts can be run without their recurrences.
RUNNERS: Final[Mapping[str, Callable[[Artifact], Run]]] = MappingProxyType(
    {
        "onnx": _onnx_glue,
        "tflite": _tflite_glue,
        **dict.fromkeys(("savedmodel", "checkpoint", "frozen"), _graph_glue),
        **dict.fromkeys(("keras", "h5"), _keras_glue),
    }
)


def reports(artifact: Artifact, *, stored: str, seed: int) -> tuple[PieceReport, ...]:
    """Every recurrence of a plan, asked by itself in an artifact where that can be, and a line if it cannot.

    `stored` is the type of the artifact's matrices where that is less than they were.
    """
    found: list[PieceReport] = []
    plan, form = artifact.plan, artifact.form
    judge = _judge(form, stored=stored, seed=seed)
    pieces = _found(artifact, plan.recurrences) if plan.recurrences else Pieces()
    for one in plan.recurrences:
        found += _of(one, pieces, plan, judge)
    return (*found, *(_blocks(plan) if form in _WITHOUT_BLOCKS else ()))


def glue(
    artifact: Artifact, feed: Mapping[str, Array], *, dtype: np.dtype[Any], stored: str, trust: bool
) -> GlueReport:
    """What stands around the recurrences, by itself, on a feed; `dtype` is the coarsest type of either side.

    `stored` is the type of the artifact's matrices where that is less than they were.
    """
    if artifact.form not in RUNNERS:
        return GlueReport(asked=False, message=f"not yet done in the format {artifact.form}")
    from cudnn_convert.verification.pieces.glue import judge_glue

    try:
        run, plan, judging = RUNNERS[artifact.form](artifact), artifact.plan, judges.judge_for(artifact.plan)
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
    from cudnn_convert.recurrences.resolve import BLOCK_OPS, CELL_OPS

    for node in plan.graph.node:
        if node.op in BLOCK_OPS | CELL_OPS:
            reason = f"not asked by itself: a {node.op} is judged through the outputs alone"
            yield PieceReport(node=node.name, layers=(0,), asked=False, passed=True, message=reason)


def _found(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The pieces of an artifact; that it has none is no fault of what it computes."""
    try:
        return FINDERS[artifact.form](artifact, recurrences)
    except Exception as cause:  # noqa: BLE001 - what reads a format has exceptions of its own
        return Pieces((), {one.node: first_line(cause) for one in recurrences})


def _of(one: Recurrence, pieces: Pieces, plan: Plan, judge: Judge) -> list[PieceReport]:
    """The lines of a recurrence: one for each piece of it."""
    own = pieces.of(one, plan.recurrences)
    missing = {*range(one.sizes.layers)} - {layer for piece in own for layer in piece.layers}
    if missing:
        reason = pieces.reasons.get(one.node, "the artifact does not say where it computes it")
        return [report_not_asked(one, f"not asked by itself: {reason}")]
    return [replace(judge(piece, one), node=one.node) for piece in own]


def _judge(form: str, *, stored: str, seed: int) -> Judge:
    """Judges each piece once, also where two recurrences hold the same weights."""
    known: dict[str, PieceReport] = {}

    def judge(piece: Piece, one: Recurrence) -> PieceReport:
        if piece.name not in known:
            try:
                terms = _terms(one, form, stored=stored, seed=seed)
                known[piece.name] = judge_piece(piece, one, read_gates(one, piece.layers), terms)
            except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
                reason = f"not asked by itself: {piece.name}: {first_line(cause)}"
                known[piece.name] = report_not_asked(one, reason)
        return known[piece.name]

    return judge


def _terms(one: Recurrence, form: str, *, stored: str, seed: int) -> Terms:
    """ONNX and TensorFlow Lite compute every float as float32.

    The former with the weights that a recurrence of half computes with, the latter with its variable's.
    """
    single = FORMATS[form].single
    takes = np.dtype(np.float32) if form == "onnx" or single else one.dtype
    coarsest = np.dtype(stored) if stored != "float32" else takes
    coarsest = one.dtype if single and one.dtype.itemsize < coarsest.itemsize else coarsest
    large = lazy.exceeds_memory_budget(one.sizes, one.dtype)
    return Terms(takes, coarsest, seed, FORMATS[form].sizes, large)
