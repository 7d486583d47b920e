"""Plain layers that hold states in variables: a user's calls in a row, beside those of the source itself.

The source runs in tf_keras, whose layers hold the states in their own variables; the artifact runs where
cudnn_convert cannot be imported, and gets the states that it gave before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import user_processes
from support.recorded import assert_close
from support.tiers import combinations

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import VerificationError
from cudnn_convert.verification import end_to_end

FORMATS = ("onnx", "tflite", "savedmodel", "frozen")
#: The steps of calls in a row where the source leaves them open.
STEPS = (3, 1, 4)


def keras() -> Any:
    import tf_keras

    return tf_keras.layers


def two_layers(x: Any) -> Any:
    y = keras().LSTM(4, return_sequences=True, stateful=True, name="first")(x)
    return keras().GRU(5, return_sequences=True, stateful=True, reset_after=False, name="second")(y)


def gru(x: Any) -> Any:
    return keras().GRU(5, return_sequences=True, stateful=True, name="gru")(x)


def one_of_two(x: Any) -> Any:
    y = keras().LSTM(4, return_sequences=True, name="stateless")(x)
    return keras().LSTM(5, stateful=True, name="stateful")(y)


def masked(x: Any) -> Any:
    return keras().SimpleRNN(5, stateful=True, return_sequences=True, name="rnn")(keras().Masking()(x))


def both_directions(x: Any) -> Any:
    layer = keras().GRU(4, stateful=True, return_sequences=True)
    return keras().Bidirectional(layer, name="both")(x)


def stacked_cells(x: Any) -> Any:
    cells = keras().StackedRNNCells([keras().LSTMCell(4), keras().GRUCell(5)])
    return keras().RNN(cells, stateful=True, return_sequences=True, name="cells")(x)


def convolved(x: Any) -> Any:
    """Its answer to a call is not that to a part of one: only the source's own calls can judge."""
    return gru(keras().Conv1D(4, 2, padding="same")(x))


def frames(x: Any) -> Any:
    """As DTLN: one frame a call, two cores one behind the other, a mask, and an output of another width."""
    y = keras().LSTM(6, return_sequences=True, unroll=True, stateful=True, name="core_1")(x)
    mask = keras().Dense(3, activation="sigmoid")(y)
    y = keras().LSTM(4, return_sequences=True, unroll=True, stateful=True, name="core_2")(x * mask)
    return keras().Dense(2)(y)


#: What the states are called, by the layers around them; a call of `frames` has one step.
MODELS: dict[Callable[[Any], Any], set[str]] = {
    two_layers: {"first_h", "first_c", "second_h"},
    gru: {"gru_h"},
    one_of_two: {"stateful_h", "stateful_c"},
    masked: {"rnn_h"},
    both_directions: {"both_forward_gru_h", "both_backward_gru_h"},
    stacked_cells: {"cells_0", "cells_1", "cells_2"},
    convolved: {"gru_h"},
    frames: {"core_1_h", "core_1_c", "core_2_h", "core_2_c"},
}


def saved(folder: Path, layers: Callable[[Any], Any], *, whole: bool) -> tuple[Path, Any]:
    """A Keras file, or a SavedModel that holds states in the midst of a sequence; and the model itself."""
    import tf_keras

    tf_keras.backend.clear_session()
    rng = np.random.default_rng(11)
    x = tf_keras.Input((1 if layers is frames else None, 3), batch_size=2, name="x")
    y = layers(x)
    model = tf_keras.Model(x, y)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    if not whole:
        path = folder / "model.h5"
        model.save(path)
        return path, model
    model(np.ones([2, x.shape[1] or 2, 3], np.float32))
    for layer in [layer for layer in model.submodules if getattr(layer, "stateful", False)]:
        for state in tf.nest.flatten(getattr(layer, "states", ())):
            if state is not None:  # a wrapper's own
                state.assign(rng.normal(size=state.shape))
    model.save(folder / "model", save_format="tf")
    return folder / "model", model


def call_as_user(report: Any, out: Path, form: str, calls: list[dict[str, Any]], folder: Path) -> list[Any]:
    """The answers of a user's process to calls in a row."""
    folder.mkdir()
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    tensors = {"model": [recorded["tensors"]["inputs"], recorded["tensors"]["outputs"]]}
    kinds = {state.key: tf.nest.flatten(state.begin_value or [0.0]) for state in report.states}
    shapes = {key: list(shape) for key, shape in report.verification.feeds[0].items()}
    states = [each | {"shape": shapes[each["key"]]} for each in recorded["states"]]
    assert {each["key"] for each in states} == {*kinds}
    job = {"format": form, "artifact": str(path.parent if path.is_file() else path), "states": states}
    (folder / "job.json").write_text(json.dumps(job | {"tensors": tensors}))
    np.savez(
        folder / "calls.npz",
        **{f"{k}/{key}": value for k, call in enumerate(calls) for key, value in call.items()},
    )
    process = user_processes.user(tensorflow=form != "onnx")
    [error] = process.ask([{"module": "call_user", "call": "run", "folder": str(folder)}])
    assert not error, f"{error}\n{process.printed()}"
    with np.load(folder / "answers.npz") as answers:
        return [
            {key.partition("/")[2]: answers[key] for key in answers.files if key.startswith(f"{k}/")}
            for k in range(len(calls))
        ]


@pytest.mark.slow("cudnn_convert/plan", "cudnn_convert/verification")
@combinations(
    lambda layers, whole, form: (layers, whole, form) == (gru, False, "onnx"),
    ids=lambda value: getattr(value, "__name__", None),
    layers=MODELS,
    whole=(False, True),
    form=FORMATS,
)
def test_calls_in_a_row_answer_as_the_source_does(
    tmp_path: Path, layers: Callable[[Any], Any], whole: bool, form: str
) -> None:
    source, model = saved(tmp_path, layers, whole=whole)
    out = tmp_path / "out"
    report = cudnn_convert.convert(source, out, format=form, states=True)
    assert {state.key for state in report.states} == MODELS[layers]
    assert {state.begin_key for state in report.states} == (
        {f"{key}_begin" for key in MODELS[layers]} if whole else {None}
    )
    assert report.verification is not None
    assert report.verification.streaming is not None
    assert report.verification.streaming.beside == "the source's own calls"
    rng = np.random.default_rng(12)
    sizes = [1, 1, 1] if layers is frames else STEPS
    calls = [{"x": rng.normal(size=[2, steps, 3]).astype(np.float32)} for steps in sizes]
    expected = [np.asarray(model(call["x"])) for call in calls]
    found = call_as_user(report, out, form, calls, tmp_path / "user")
    (key,) = {*report.outputs} - {
        name for state in report.states for name in (state.next_key, state.begin_key)
    }
    for number, (answer, value) in enumerate(zip(found, expected, strict=True)):
        assert_close(answer[key], value, 1e-5, name=(layers, form, number))
    for layer in model.layers if layers in (two_layers, frames, one_of_two) else ():
        for kind, value in zip("hc", layer.states if getattr(layer, "stateful", False) else (), strict=False):
            name = f"{layer.name}_{kind}_next"
            assert_close(found[-1][name], np.asarray(value), 1e-5, name=(name, form))


def test_a_state_that_is_not_carried_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the calls in a row alone: each call by itself is right."""
    source, _ = saved(tmp_path, gru, whole=False)
    answer = end_to_end.run_artifact

    def forget(plan: Any, runner: Any, feeds: Any) -> Any:
        if all(len(feed) == len(feeds[0]) for feed in feeds):
            return answer(plan, runner, feeds)
        return [answer(plan, runner, [feed])[0] for feed in feeds]

    monkeypatch.setattr(end_to_end, "run_artifact", forget)
    with pytest.raises(
        VerificationError, match=r"streaming: output \S+ of a sequence of calls in a row, in chunks"
    ):
        cudnn_convert.convert(source, tmp_path / "out", format="savedmodel", states=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.every
@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_states_that_a_user_passes_stay_inputs(tmp_path: Path, form: str) -> None:
    """As DTLN's own export: the states of its cores are inputs and outputs of the model."""
    import tf_keras

    x = tf_keras.Input((1, 3), batch_size=1, name="x")
    h, c = (tf_keras.Input((4,), batch_size=1, name=name) for name in "hc")
    y, h_next, c_next = keras().LSTM(4, return_sequences=True, return_state=True, unroll=True)(
        x, initial_state=[h, c]
    )
    tf_keras.Model([x, h, c], [y, h_next, c_next]).save(tmp_path / "model.h5")
    report = cudnn_convert.convert(tmp_path / "model.h5", tmp_path / "out", format=form)
    assert {*report.inputs} == {"x", "h", "c"}
    assert not report.states
