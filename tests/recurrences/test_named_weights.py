"""Decoded weights by name: what each recurrence says of itself."""

from __future__ import annotations

from support.samples import fixture

import cudnn_convert


def test_what_a_recurrence_says_of_itself() -> None:
    loaded = cudnn_convert.load(fixture("1.15.5-gru_bi").prefix)
    (one,) = loaded.recurrences
    assert (loaded.kind, loaded.notes) == ("TensorFlow 1 checkpoint", ())
    assert (one.name, one.mode, one.layers, one.directions) == ("cudnn_gru/CudnnRNN", "gru", 1, 2)
    assert (one.units, one.input_size, one.projection, one.dtype) == (6, 5, 0, "float32")
    assert (one.gates, one.layout) == (("reset", "update", "candidate"), "time")
    shapes = {"kernel": (3, 6, 5), "recurrent_kernel": (3, 6, 6), "bias": (3, 6), "recurrent_bias": (3, 6)}
    assert {key: value.shape for key, value in one.weights.items()} == {
        f"layer_0/{way}/{field}": shape for way in ("forward", "backward") for field, shape in shapes.items()
    }


def test_two_calls_of_one_layer_are_one_recurrence() -> None:
    """Training with dropout beside inference, which a conversion of the graph has to choose from."""
    loaded = cudnn_convert.load(fixture("1.15.5-twins_training").prefix)
    assert len(loaded.recurrences) == 1
    (note,) = loaded.notes
    assert note.endswith(f"of the same weights as {loaded.recurrences[0].name}")
