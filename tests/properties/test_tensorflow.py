"""Lowered recurrences in TensorFlow against the float64 reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from properties import by_hand
from properties.budget import examples
from properties.strategies import Run, runs
from support.tiers import combinations

from cudnn_convert.graph.session import session
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.lower.tensorflow.lower import WeightForm, count, lower, slice_blob
from cudnn_convert.lower.tensorflow.tf1_cells import Cells
from cudnn_convert.model import Convention, Mode
from cudnn_convert.options import LOWERINGS
from cudnn_convert.weights import layouts


def modes(*first: Mode, among: Iterable[Mode] = Mode) -> pytest.MarkDecorator:
    """Of what computes a recurrence the first tier draws some; tests/lower tries each mode with each."""
    return combinations(lambda mode: mode in first, ids=lambda mode: mode.value, mode=among)


#: By how much a value near 1 may miss: eight roundings of a narrow type, some two of which are used. An
#: inverse made for a projection may add 2e-6 in float32.
BOUNDS = {"float32": 1e-5, "float64": 1e-14, "float16": 8e-3, "bfloat16": 6e-2}


def in_a_graph(run: Run, lowering: str, form: WeightForm | None = None) -> list[Any]:
    graph, signature = run.graph()
    outputs = list(signature.outputs.values())
    made = lower(graph, [run.recurrence()], {}, outputs=outputs, lowering=lowering, form=form)
    with session(made.graph, made.variables) as running:
        return list(running.run(outputs, {f"{key}:0": value for key, value in run.given.items()}))


@pytest.mark.slow("cudnn_convert/graph/passes", "cudnn_convert/lower/tensorflow")
@pytest.mark.first("gru")
@modes(Mode.LSTM, Mode.GRU)
@given(data=st.data(), lowering=st.sampled_from(LOWERINGS))
@examples(15)
def test_a_graph(mode: Mode, data: st.DataObject, lowering: str) -> None:
    run = data.draw(runs(mode, list(BOUNDS)))
    run.judged(in_a_graph(run, lowering), BOUNDS[run.dtype])


@modes(Mode.LSTM)
@given(
    data=st.data(),
    cell=st.sampled_from(["compatible", "lstm_block", "basic_lstm"]),
    lowering=st.sampled_from(LOWERINGS),
)
@examples(6)
def test_the_variables_of_tensorflow_1(mode: Mode, data: st.DataObject, cell: str, lowering: str) -> None:
    """Computed on as they are stored, by the cells of a CPU network."""
    run = data.draw(runs(mode, list(BOUNDS), plain=True))
    form = Cells({run.recurrence().shared: "scope/"}, cell, lowering).form
    run.judged(in_a_graph(run, lowering, form), BOUNDS[run.dtype])


def in_a_function(run: Run, arrays: Any, layout: layouts.Layout, lowering: str) -> list[Any]:
    """`arrays` gives the tensors of all pseudo-layers, as a repaired SavedModel reads them in every call."""
    sizes, dtype = run.sizes, np.dtype(run.dtype)
    each = count(sizes)
    compute = layer_stack.switch_at_runtime(
        sizes, dtype, layout, time_major=run.time_major, each=each, lowering=lowering
    )
    with tf.Graph().as_default():
        specs = [tf.TensorSpec(one.shape, one.dtype) for one in run.placeholders()]

    @tf.function(input_signature=specs, autograph=False)
    def call(x: Any, h: Any, c: Any, lengths: Any = None) -> Any:
        return compute(x, h, c, lengths, *arrays())

    found = call(*(tf.constant(value) for value in run.given.values()))
    return [value.numpy() for value in found[: run.outputs]]


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/reference")
@modes(Mode.RNN_TANH)
@given(data=st.data(), lowering=st.sampled_from(LOWERINGS))
@examples(6)
def test_a_blob_taken_apart_at_run_time(mode: Mode, data: st.DataObject, lowering: str) -> None:
    """Conventions of canonical tensors do not reach it."""
    run = data.draw(runs(mode, list(BOUNDS)))
    blob, convention = tf.Variable(run.blob), Convention("lingvo", 1.0)
    found = in_a_function(
        run, lambda: list(slice_blob(blob.value(), run.sizes, convention)), layouts.LOOP, lowering
    )
    run.judged(found, BOUNDS[run.dtype])


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/reference")
@modes(Mode.LSTM, among=[Mode.LSTM, Mode.GRU])
@given(data=st.data(), lowering=st.sampled_from(LOWERINGS))
@examples(6)
def test_the_matrices_of_a_keras_layer(mode: Mode, data: st.DataObject, lowering: str) -> None:
    """As a repaired SavedModel reads them: gates in Keras's order."""
    run = data.draw(runs(mode, list(BOUNDS), plain=True))
    cells = [by_hand.on_cpu(mode, parts) for layer in run.parts for parts in layer]

    def arrays() -> list[Any]:
        found = [[cell["kernel"], cell["recurrent_kernel"], *np.atleast_2d(cell["bias"])] for cell in cells]
        return [tf.constant(array) for group in found for array in group]

    run.judged(in_a_function(run, arrays, layouts.KERAS, lowering), BOUNDS[run.dtype])
