"""Asks each recurrence of an artifact by itself; the float64 reference judges.

Each format has a module in this room, which `FORMATS` names and `Asker` describes; files of decoded weights
are asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from cudnn_convert.artifacts import weights
from cudnn_convert.formats import FORMATS, Computes, Content
from cudnn_convert.graph import ops
from cudnn_convert.model import WAYS, Array, Mode, Recurrence
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.recurrences import named_weights
from cudnn_convert.reference import Gates, mutants
from cudnn_convert.report.values import GlueReport, PieceReport
from cudnn_convert.text import first_line
from cudnn_convert.verification import compare, effort, judges, rounding
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.verification.pieces import piece_inputs
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Piece, PieceInputs, Pieces, Stack
from cudnn_convert.verification.settings import Settings
from cudnn_convert.weights import lazy

if TYPE_CHECKING:
    from cudnn_convert.verification.pieces.glue_runs import RunGlue


_JudgePiece = Callable[[Piece, Recurrence], PieceReport]


class Asker(Protocol):
    """The functions of a format's module in the room."""

    def pieces(self, artifact: Artifact, recurrences: Sequence[Recurrence], /) -> Pieces:
        """Return the pieces of an artifact, by recurrence.

        A piece is what computes a recurrence in the artifact.
        """

    def runner(self, artifact: Artifact, /) -> RunGlue:
        """Return the function for runs of the artifact's glue.

        Not called for formats without glue.
        """


def _asker(form: str) -> Asker:
    return cast(Asker, import_module(f"cudnn_convert.verification.pieces.{FORMATS[form].pieces}"))


def reports(artifact: Artifact, *, stored: str, seed: int) -> tuple[PieceReport, ...]:
    """Test every recurrence of a plan alone, or report the obstacle.

    `stored` is the type of the artifact's matrices where that is less than they were.
    """
    lines: list[PieceReport] = []
    plan, form = artifact.plan, artifact.form
    judge = _judge(form, stored=stored, seed=seed)
    pieces = _find_pieces(artifact, plan.recurrences) if plan.recurrences else Pieces()
    for recurrence in plan.recurrences:
        lines += _of(recurrence, pieces, plan, judge)
    return (*lines, *(_blocks(plan) if FORMATS[form].has_foreign_runtime else ()))


def glue(artifact: Artifact, settings: Settings, feed: Mapping[str, Array]) -> GlueReport:
    """Test the glue around the recurrences, by itself, on a feed."""
    form = FORMATS[artifact.form]
    if (
        form.content is Content.RECURRENCES
        or not form.pieces
        or (form.has_layers and isinstance(artifact.plan, RecurrencesPlan))
    ):
        return GlueReport(asked=False, message=f"not yet done in the format {artifact.form}")
    from cudnn_convert.verification.pieces.glue import judge_glue

    plan, stored = settings.plan, settings.options.weights_dtype
    try:
        run = _asker(artifact.form).runner(artifact)
        with ExitStack() as stack:
            source = stack.enter_context(settings.judge.open(trust=settings.trust))
            rough = None
            if stored != "float32" and not isinstance(plan, RecurrencesPlan):
                from cudnn_convert.verification.graph_judge import GraphJudge
                from cudnn_convert.verification.pieces.graph_glue import round_plan

                rounded = GraphJudge(round_plan(plan, np.dtype(stored)))
                rough = stack.enter_context(rounded.open(trust=settings.trust))
            return judge_glue(plan, source, feed, run, dtype=settings.dtype, rough=rough)
    except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
        return GlueReport(asked=False, message=first_line(cause))


def _blocks(plan: Plan) -> Iterator[PieceReport]:
    """Yield a report for each block LSTM, missing from the reference's equations."""
    if isinstance(plan, RecurrencesPlan):  # no graph, and no need of TensorFlow
        return

    for node in plan.graph.node:
        if node.op in ops.BLOCK_LSTMS | ops.BLOCK_CELLS:
            reason = f"not asked by itself: a {node.op} is judged through the outputs alone"
            yield PieceReport(node=node.name, layers=(0,), asked=False, passed=True, message=reason)


def _find_pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Return the pieces of an artifact, or the reason for missing pieces."""
    if not FORMATS[artifact.form].pieces:
        reason = f"not yet done in the format {artifact.form}"
        return Pieces((), {recurrence.node: reason for recurrence in recurrences})
    try:
        return _asker(artifact.form).pieces(artifact, recurrences)
    except Exception as cause:  # noqa: BLE001 - what reads a format has exceptions of its own
        return Pieces((), {recurrence.node: first_line(cause) for recurrence in recurrences})


def _of(recurrence: Recurrence, pieces: Pieces, plan: Plan, judge: _JudgePiece) -> list[PieceReport]:
    """Return the reports of a recurrence, with a report for each piece."""
    own = pieces.of(recurrence, plan.recurrences)
    missing = {*range(recurrence.sizes.layers)} - {layer for piece in own for layer in piece.layers}
    if missing:
        reason = pieces.reasons.get(recurrence.node, "the artifact does not say where it computes it")
        return [report_not_asked(recurrence, f"not asked by itself: {reason}")]
    return [replace(judge(piece, recurrence), node=recurrence.node) for piece in own]


def _judge(form: str, *, stored: str, seed: int) -> _JudgePiece:
    """Return a judge with a cache: recurrences of equal weights are judged once."""
    known: dict[str, PieceReport] = {}

    def judge(piece: Piece, recurrence: Recurrence) -> PieceReport:
        if piece.name not in known:
            try:
                settings = _make_settings(recurrence, form, stored=stored, seed=seed)
                gates = read_gates(recurrence, piece.layers)
                known[piece.name] = judge_piece(piece, recurrence, gates, settings)
            except Exception as cause:  # noqa: BLE001 - what the reference cannot compute is not asked
                reason = f"not asked by itself: {piece.name}: {first_line(cause)}"
                known[piece.name] = report_not_asked(recurrence, reason)
        return known[piece.name]

    return judge


def _make_settings(recurrence: Recurrence, form: str, *, stored: str, seed: int) -> PieceSettings:
    """Return the settings of a recurrence's pieces: types, seed, sizes.

    ONNX and TensorFlow Lite compute every float as float32. The former with the weights that a recurrence of
    half computes with, the latter with its variable's.
    """
    single = FORMATS[form].computes is Computes.FLOAT32
    takes = np.dtype(np.float32) if FORMATS[form].computes is not Computes.AS_SOURCE else recurrence.dtype
    coarsest = np.dtype(stored) if stored != "float32" else takes
    coarsest = recurrence.dtype if single and recurrence.dtype.itemsize < coarsest.itemsize else coarsest
    large = lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype)
    return PieceSettings(takes, coarsest, seed, FORMATS[form].sizes, large)


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Return the recurrences in a file of decoded weights, computed as documented."""
    assert isinstance(artifact.plan, RecurrencesPlan)
    arrays = named_weights.arrays(artifact.path)
    described = {record["name"]: record for record in named_weights.file_metadata(artifact.path)["weights"]}
    names = {single.recurrence.node: single.name for single in artifact.plan.singles}
    return Pieces(tuple(_piece_of_arrays(described[names[own.node]], arrays, own) for own in recurrences))


def _piece_of_arrays(record: Any, arrays: Mapping[str, Array], recurrence: Recurrence) -> Piece:
    def ask(asked: PieceInputs) -> Answer:
        answer = weights.stack(record, arrays, asked.x, (asked.h, asked.c), asked.lengths)
        # In the type of the recurrence, as the file's reader would have it.
        y, h, c = (np.asarray(value, recurrence.dtype) for value in answer)
        return y, h, c if record["mode"] == "lstm" else None

    return Piece(recurrence.node, tuple(range(recurrence.sizes.layers)), record["name"], ask)


@dataclass(frozen=True, slots=True)
class PieceSettings:
    """The settings for judging pieces: type, seed, and (time, batch) of runs.

    The runs are beside those of `effort.PIECE_SIZES`. `takes` is the type of the inputs, `dtype` the coarsest
    that the piece computes or is stored in. `large`: the weights are too many to be multiplied more often
    than they must be.
    """

    takes: np.dtype[Any]
    dtype: np.dtype[Any]
    seed: int
    runs: Sequence[tuple[int, int]] = ()
    large: bool = False


def read_gates(recurrence: Recurrence, numbers: Iterable[int]) -> list[Gates]:
    """Return the weights of some layers, all directions, as the reference reads weights."""
    steps, directions = judges.steps(recurrence, np.float64), recurrence.sizes.directions
    return [
        steps[layer * directions + direction].gates() for layer in numbers for direction in range(directions)
    ]


def judge_piece(
    piece: Piece, recurrence: Recurrence, weights: Sequence[Gates], settings: PieceSettings
) -> PieceReport:
    """Ask a piece for a step on inputs of proven power, then for more steps."""
    directions = recurrence.sizes.directions
    own = weights if piece.projected else [cell.compose_projection() for cell in weights]
    stack = Stack(own, directions, piece.layers[0], tied=piece.tied)
    rng = np.random.default_rng([settings.seed, len(piece.node), *piece.layers])
    base = compare.tolerance(settings.dtype, 0.0)
    # A piece of a fixed number of steps multiplies the inputs of all.
    width = max((piece.steps or 1) * cell.inputs + cell.width for cell in own)
    cost = width * len(own[0].names) * own[0].units
    chosen = piece_inputs.choose_inputs(
        rng, stack, settings.takes, base, most=effort.MOST_PIECE_PRODUCTS // cost
    )
    compared = f"{'y' * piece.outputs}h{'c' * (recurrence.sizes.mode is Mode.LSTM)}"
    worst = _WorstAnswer(compared, stack)

    def ask(asked: PieceInputs) -> None:
        expected = stack.run(asked)
        answer: Answer | str
        try:
            answer = piece.ask(asked)
        except MemoryError:
            raise
        except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
            answer = first_line(cause)
        worst.see(answer, expected, _bound(stack, asked, expected, settings), len(asked.x))

    ask(chosen.asked)
    if worst.needed > 1:
        worst.message += next(_explain(worst.answer, chosen, stack, base), "")
    for time, batch in _runs(piece, settings):
        asked = stack.draw(rng, steps=time, batch=batch, dtype=settings.takes)
        whole = np.full(batch, time, np.int32)
        ask(asked if piece.lengths else PieceInputs(asked.x, asked.h, asked.c, whole))
    first = worst.bounds[0]
    narrowed = base.atol / first.atol  # what was measured against the narrowest bound, against the one used
    return PieceReport(
        node=piece.node,
        layers=piece.layers,
        piece=piece.name,
        asked=True,
        passed=worst.needed <= 1,
        compared=worst.compared,
        worst=worst.gap,
        needed=worst.needed,
        atol=first.atol,
        rtol=first.rtol,
        smallest=chosen.smallest * narrowed if np.isfinite(chosen.smallest) else None,
        weakest=chosen.weakest * narrowed if np.isfinite(chosen.weakest) else None,
        sampled=chosen.sampled,
        unseen=tuple(chosen.unseen),
        message=worst.message,
    )


def _runs(piece: Piece, settings: PieceSettings) -> list[tuple[int, int]]:
    """Return the (time, batch) of the runs beside the first step."""
    runs = (*(effort.PIECE_SIZES_OF_LARGE if settings.large else effort.PIECE_SIZES), *settings.runs)
    if piece.steps is not None:
        runs = ((piece.steps, max(2, effort.PIECE_STEPS_OF_ALL_ROWS // piece.steps)),)
    return [*dict.fromkeys((time, piece.rows or batch) for time, batch in runs)]


def report_not_asked(recurrence: Recurrence, reason: str) -> PieceReport:
    """Return the report of a recurrence left unasked."""
    layers = tuple(range(recurrence.sizes.layers))
    return PieceReport(node=recurrence.node, layers=layers, asked=False, passed=True, message=reason)


def _bound(stack: Stack, asked: PieceInputs, exact: Sequence[Array], settings: PieceSettings) -> Tolerance:
    """Return the type's bound, or the recurrence's noise in the type if larger."""
    base = compare.tolerance(settings.dtype, 0.0)
    if settings.dtype.name == "float64":
        return base
    kind, largest = settings.dtype.type, 0.0
    narrow = Stack([cell.as_type(kind) for cell in stack.cells], stack.directions)
    given = {"x": asked.x.astype(kind), "h": asked.h.astype(kind), "c": asked.c.astype(kind)}
    for draw in range(1 if settings.large else effort.PIECE_DRAWS):
        order = np.random.default_rng(draw) if draw else None
        fed = PieceInputs(
            **rounding.perturb_feed(given, seed=settings.seed, draw=draw), lengths=asked.lengths
        )
        for value, other in zip(exact, narrow.run(fed, order), strict=True):
            # Of a large value the relative bound allows the same share.
            gap = np.abs(value - other.astype(np.float64)) / np.maximum(1, np.abs(value))
            largest = max(largest, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    wide = max(base.atol, effort.NOISE_MARGIN * largest)
    return base if wide == base.atol else Tolerance(wide, wide, settings.dtype.name)


class _WorstAnswer:
    """The worst element of several answers."""

    def __init__(self, compared: str, stack: Stack) -> None:
        self._compared, self._stack = compared, stack
        self.compared, self.gap, self.needed, self.message = 0, 0.0, 0.0, ""
        self.bounds: list[Tolerance] = []
        self.answer: Answer | None = None

    def see(self, answer: Answer | str, expected: Sequence[Array], bound: Tolerance, time: int) -> None:
        """Compare the answer to `time` steps with the reference.

        A text is the error that stopped a piece.
        """
        self.bounds.append(bound)
        if isinstance(answer, str):
            self.needed = np.inf
            self.message = (
                self.message or f"it stops on {time} steps of {expected[0].shape[1]} rows: {answer}"
            )
            return
        if self.answer is None:
            self.answer = answer
        for name, actual, wanted in zip("yhc", answer, expected, strict=True):
            if name in self._compared:
                self._compare(name, actual, wanted, bound, time)

    def _compare(self, name: str, actual: Array | None, wanted: Array, bound: Tolerance, time: int) -> None:
        self.compared += wanted.size
        if actual is None or actual.shape != wanted.shape:
            shape = None if actual is None else [*actual.shape]
            self.needed = np.inf
            self.message = self.message or f"{name}: expected {[*wanted.shape]}, found {shape}"
            return
        wide = actual.astype(np.float64)
        both = np.isnan(wide) & np.isnan(wanted) | (wide == wanted)
        with np.errstate(invalid="ignore"):
            gap = np.where(both, 0.0, np.abs(wide - wanted))
        gap = np.where(np.isnan(gap), np.inf, gap)
        limit = bound.atol + bound.rtol * np.abs(np.where(np.isfinite(wanted), wanted, 0.0))
        share = gap / limit
        self.gap = max(self.gap, float(np.max(gap, initial=0.0)))
        worst = float(np.max(share, initial=0.0))
        if worst > max(1.0, self.needed):
            index = np.unravel_index(int(np.argmax(share)), share.shape)
            self.message = (
                f"{self._where(name, index)} of {time} steps: expected {wanted[index]:.9g}, "
                f"found {wide[index]:.9g}, allowed {limit[index]:.1e}"
            )
        self.needed = max(self.needed, worst)

    def _where(self, name: str, indices: Sequence[Any]) -> str:
        index = [int(k) for k in indices]
        stack = self._stack
        if name == "y":
            direction, unit = divmod(index[2], stack.cells[-1].width)
            last = stack.first + len(stack.cells) // stack.directions - 1
            return f"layer {last} {WAYS[direction]}: y of step {index[0]}, row {index[1]}, unit {unit}"
        layer, direction = divmod(index[0], stack.directions)
        return (
            f"layer {stack.first + layer} {WAYS[direction]}: final {name} of row {index[1]}, unit {index[2]}"
        )


def _explain(
    answer: Answer | None, chosen: piece_inputs.Power, stack: Stack, bound: Tolerance
) -> Iterator[str]:
    """Yield which wrong recurrences answer as a piece did at one step."""
    if answer is None or answer[1].shape[0] != len(stack.cells):
        return
    for number, (layer, ways) in enumerate(stack.firsts(chosen.asked)):
        for direction, name, (h, c) in mutants.structural(ways):
            position = number * stack.directions + direction
            state_pair = (answer[1][position], c if answer[2] is None else answer[2][position])
            is_lstm = ways[direction].gates.mode == "lstm"
            if (
                state_pair[0].shape == h.shape
                and piece_inputs.shares(state_pair, (h, c), bound, is_lstm=is_lstm) <= 1
            ):
                yield f"; as with {name} in layer {layer} {WAYS[direction]}"
