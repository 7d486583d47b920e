"""Recurrent layers of a Keras model, alone and with given outputs.

A layer is found by its name, which the artifact keeps: the parameters of a recurrence lie in the scope of
the layer that it was, or of the `TimeDistributed` around that, and below the scopes of what is around it. It
is called with its own weights on inputs from first to last: turning them round, for a layer that goes
backward, is not the recurrence's work.

For the glue recurrent layers give what is given, and note what they take. So is noted what each other layer
with a matrix gives, which is to be among the source's tensors. A layer `TimeDistributed` may call its own for
all steps at once or step by step, and the source's may do the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.artifacts.keras import Layers
from cudnn_convert.artifacts.runners import OpenArtifact
from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Array, Mode, Recurrence
from cudnn_convert.plan import RecurrencesPlan
from cudnn_convert.private import tf_private
from cudnn_convert.recurrences import named_weights
from cudnn_convert.verification.judges import RecurrenceCall, nearest
from cudnn_convert.verification.pieces.glue_runs import GlueResult, GlueRun, RunGlue
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Piece, PieceInputs, Pieces
from cudnn_convert.verification.trials import by_key

#: What a layer is called with, whatever it was built with.
_CALLED: Final = {
    **{"return_sequences": True, "return_state": True},
    **{"go_backwards": False, "stateful": False, "time_major": False},
}

#: The scopes of the cells of plain layers, inside those of the layers.
_CELLS: Final = {"lstm_cell", "gru_cell"}


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Return the layers for recurrences of a single layer and direction, or for recurrences alone.

    Of recurrences alone, every layer is a piece.
    """
    if isinstance(artifact.plan, RecurrencesPlan):
        return Pieces(tuple(_list_layers(artifact, recurrences)))
    layers, reasons = layers_of(artifact, recurrences)
    known = [(own, *layers[own.node]) for own in recurrences if own.node in layers]
    cuts = (  # what sets attributes decorates the function: they are set at every call of it
        Piece(own.node, (0,), name, _asking(set_attributes(layer, _CALLED)(layer.call), own), lengths=False)
        for own, name, layer in known
    )
    return Pieces(tuple(cuts), reasons)


def _list_layers(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Iterator[Piece]:
    """Yield each layer of each model with a lone recurrence."""
    assert isinstance(artifact.answer, OpenArtifact)
    for recurrence, (part, runner) in zip(recurrences, artifact.answer.runners, strict=True):
        assert isinstance(runner, Layers)
        for number in range(recurrence.sizes.layers):
            layer = runner.model.get_layer(named_weights.name_keras_layer(number))
            name = f"{part.name}/{layer.name}"
            yield Piece(recurrence.node, (number,), name, _asking(layer, recurrence), lengths=False)


def _asking(call: Callable[..., Any], recurrence: Recurrence) -> Callable[[PieceInputs], Answer]:
    """Return a function for the answer of a layer's `call`, of all directions.

    The states are from and to cuDNN's order.
    """
    count = 2 if recurrence.sizes.mode is Mode.LSTM else 1

    def ask(asked: PieceInputs) -> Answer:
        states = [kind[k] for k in range(len(asked.h)) for kind in (asked.h, asked.c)[:count]]
        x, *begin = (tf.constant(v, recurrence.dtype) for v in (asked.x.swapaxes(0, 1), *states))
        y, *ends = map(np.asarray, tf.nest.flatten(call(x, initial_state=begin, training=False)))
        h, *c = (np.stack(ends[kind::count]) for kind in range(count))
        return y.swapaxes(0, 1), h, c[0] if c else None

    return ask


def layers_of(
    artifact: Artifact, recurrences: Sequence[Recurrence]
) -> tuple[dict[str, tuple[str, Any]], dict[str, str]]:
    """Find the layer behind each recurrence; return layers and reasons, by node.

    A layer comes with its path of names, joined with `/`. A reason says why no single layer was found.
    """
    assert isinstance(artifact.answer, OpenArtifact)
    models = [runner.model for _, runner in artifact.answer.runners if isinstance(runner, Layers)]
    layers = [named for model in models for named in _recurrent(model, ())]
    by_node, reasons = {}, {}
    for recurrence in recurrences:
        *around, scope = recurrence.shared.split("/")[:-1] or [""]
        if around and scope in _CELLS:
            *around, scope = around
        named = [(path, layer) for path, layer in layers if path[-1] == scope]
        named = named or [(path, layer) for path, layer in layers if path[-2:-1] == (scope,)]
        if len(named) > 1:  # in several wrappers or models, whose names are scopes too
            named = [(path, layer) for path, layer in named if {*path[:-1]} <= {*around}]
        if len(named) != 1:
            reasons[recurrence.node] = f"expected one layer {scope} in the artifact, found {len(named)}"
            continue
        ((path, layer),) = named
        by_node[recurrence.node] = ("/".join(path), layer)
    return by_node, reasons


def _inner_layers(layer: Any) -> list[Any]:
    """Return the layers in a wrapper or a model."""
    wrapped = [getattr(layer, name, None) for name in ("forward_layer", "backward_layer", "layer")]
    return [inner for inner in wrapped if inner is not None] or [*getattr(layer, "layers", ())]


def _recurrent(layer: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the recurrent layers inside a layer, each by a path of names."""
    if hasattr(layer, "cell") and hasattr(layer, "return_sequences"):
        yield (*path, layer.name), layer
        return
    for inner in _inner_layers(layer):
        yield from _recurrent(inner, (*path, layer.name))


def runner(artifact: Artifact) -> RunGlue:
    """Return a function for runs of a model with recurrences as layers."""
    plan = artifact.plan

    def run(passes: Sequence[GlueRun]) -> Iterator[GlueResult]:
        assert isinstance(artifact.answer, OpenArtifact)
        ((_, model),) = artifact.answer.runners
        assert isinstance(model, Layers)
        layers, reasons = layers_of(artifact, plan.recurrences)
        if reasons:
            raise LookupError(next(iter(reasons.values())))
        given = _Given(
            {layers[recurrence.node][0]: recurrence for recurrence in plan.recurrences},
            is_old=not FORMATS[artifact.form].is_keras3,
        )
        with ExitStack() as stack:
            stack.enter_context(tf_private.eager_mode())  # the judge's own graph stands open
            for name, layer in dict(layers.values()).items():
                reset_states(layer)
                stack.enter_context(set_attributes(layer, {"call": given.of(name, layer)}))
            for run in passes:
                given.begin([(layers[call.node][0], call) for call in run.calls])
                try:
                    outputs = model.call_eagerly(by_key(plan, run.feed))
                except Exception as cause:
                    if given.reasons:  # Keras makes another exception of one in a layer
                        raise LookupError(*given.reasons) from cause
                    raise
                yield GlueResult(outputs, given.entered)

    return run


class _Given:
    """The inputs of layer calls (`entered`), against the inputs of the source's recurrences.

    `recurrences` are those by the name of the layer; `reasons` say why a call fits none of the source's.
    `is_old`: the layers are tf_keras's.
    """

    def __init__(self, recurrences: Mapping[str, Recurrence], *, is_old: bool) -> None:
        self.recurrences, self.is_old = recurrences, is_old
        self.entered: list[tuple[str, Array, Array]] = []
        self.reasons: list[str] = []
        self._calls: dict[str, list[RecurrenceCall]] = {}
        self._rows: dict[str, list[RecurrenceCall]] = {}

    def begin(self, calls: Sequence[tuple[str, RecurrenceCall]]) -> None:
        """Set the calls with the outputs to give from now on, each by layer name."""
        self._calls = {name: [call for own, call in calls if own == name] for name, _ in calls}
        self._rows, self.entered = {}, []

    def of(self, name: str, layer: Any) -> Callable[..., Any]:
        """Return a replacement `call` for a layer, with the answers of the source's recurrence."""

        def call(x: Any, *_: Any, initial_state: Any = None, mask: Any = None, **__: Any) -> Any:
            try:
                if mask is not None:
                    raise LookupError("a layer has a mask")
                answer = self._see(name, layer, x, initial_state)
            except LookupError as reason:
                self.reasons.append(str(reason.args[0]))
                raise
            y, *states = (tf.constant(value, tf.as_dtype(layer.compute_dtype)) for value in answer)
            if layer.stateful:
                for state, value in zip(layer.states, states, strict=True):
                    state.assign(value)
            own = tf.transpose(y, [1, 0, 2]) if _is_time_major(layer) else y
            last = own if layer.return_sequences else y[:, -1]
            answers = [last, *states]
            # Keras 3 makes tuples, and adds them to tuples.
            return (answers if self.is_old else tuple(answers)) if layer.return_state else last

        return call

    def _see(self, name: str, layer: Any, x: Any, start: Any) -> list[Array]:
        """Note the inputs; return `y [batch, time, units]` and the states `[batch, units]`."""
        recurrence = self.recurrences[name]
        taken = np.asarray(x) if _is_time_major(layer) else np.asarray(x).swapaxes(0, 1)
        taken = taken[::-1] if layer.go_backwards else taken
        count = 2 if recurrence.sizes.mode is Mode.LSTM else 1
        zeros = np.zeros((taken.shape[1], recurrence.sizes.units), taken.dtype)
        start = layer.states if start is None and layer.stateful else start
        starts = [zeros] * count if start is None else [*map(np.asarray, tf.nest.flatten(start))]
        h, *c = (value[None] for value in starts)
        call = self._nearest(name, taken, h, c[0] if c else None)
        self.entered.append((f"input of {name}", taken, call.x))
        expected = [call.h[0], call.c[0]][:count]
        for what, actual, wanted in zip("hc", starts, expected, strict=False):
            self.entered.append((f"initial {what} of {name}", actual, wanted))
        gave = call.gave[: 1 + count]
        y, *ends = (value if recurrence.time_major else value.swapaxes(0, 1) for value in gave)
        return [y.swapaxes(0, 1), *(value[0] for value in ends)]

    def _nearest(self, name: str, x: Array, h: Array, c: Array | None) -> RecurrenceCall:
        """Return the recorded call with the nearest inputs, or join a call from rows.

        Rows of several calls are joined where the artifact's batch has another size. Each recorded row is
        used once before any is used again, since equal rows cannot be told apart.
        """
        calls = self._calls.get(name, [])
        try:
            return nearest(calls, x, h, c)
        except LookupError:
            if not any(call.x.shape[::2] == x.shape[::2] for call in calls):
                raise
        recurrence, distances = self.recurrences[name], []
        for k in range(x.shape[1]):
            row = slice(k, k + 1)
            rows = self._rows.get(name) or [row for call in calls for row in _rows_of(call, recurrence)]
            distances.append(nearest(rows, x[:, row], h[:, row], None if c is None else c[:, row]))
            self._rows[name] = [other for other in rows if other is not distances[-1]]
        return _join(distances, recurrence)


def _rows_of(call: RecurrenceCall, recurrence: Recurrence) -> Iterator[RecurrenceCall]:
    """Yield each row of a call as a call, with `c` for LSTMs only."""
    gave = call.gave[: 3 if recurrence.sizes.mode is Mode.LSTM else 2]
    for k in range(call.x.shape[1]):
        row = slice(k, k + 1)
        own = [value[:, row] if recurrence.time_major else value[row] for value in gave]
        yield replace(call, x=call.x[:, row], h=call.h[:, row], c=call.c[:, row], gave=own)


def _join(rows: Sequence[RecurrenceCall], recurrence: Recurrence) -> RecurrenceCall:
    """Join rows to a call."""
    x, h, c = (np.concatenate([getattr(row, key) for row in rows], 1) for key in "xhc")
    columns = zip(*(row.gave for row in rows), strict=True)
    gave = [np.concatenate(column, 1 if recurrence.time_major else 0) for column in columns]
    return replace(rows[0], x=x, h=h, c=c, gave=gave)


def _is_time_major(layer: Any) -> bool:
    """Return True if a layer takes and gives steps before rows, like some tf_keras layers."""
    return bool(getattr(layer, "time_major", False))


def reset_states(layer: Any) -> None:
    """Set the state of a stateful layer to zero, because Keras files leave states out."""
    if layer.stateful:
        for state in layer.states:
            state.assign(tf.zeros_like(state))


@contextmanager
def set_attributes(layer: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Set the present attributes of a layer, and restore the layer afterwards."""
    before = {name: getattr(layer, name) for name in values if hasattr(layer, name)}
    try:
        for name in before:
            setattr(layer, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(layer, name, value)
