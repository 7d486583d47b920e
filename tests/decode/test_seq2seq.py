"""Searches over models/seq2seq against TensorFlow 1.15's own BeamSearchDecoder, over its CPU cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.samples import ROOT

from cudnn_convert import decode, pipeline
from cudnn_convert.options import Options

MODEL = ROOT / "models" / "seq2seq"
START, END, STEPS = 11, 10, 8


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., Any]]:
    """The encoder and the step as SavedModels; other tests prove the conversion."""
    folder = tmp_path_factory.mktemp("seq2seq")
    cuts = {"encoder": ("source", "encoded_h,encoded_c"), "step": ("tokens,h,c", "log_probs,next_h,next_c")}
    found = {}
    for name, (inputs, outputs) in cuts.items():
        options = Options.of({"inputs": inputs, "outputs": outputs, "verify": False})
        pipeline.convert(MODEL / "model.ckpt", folder / name, options)
        loaded = tf.saved_model.load(str(folder / name))
        found[name] = loaded.signatures["serving_default"]
        found[name].keeps_alive = loaded
    return found


def search(parts: Any, name: str, penalty: float) -> tuple[decode.BeamSearch, dict[str, Any]]:
    """What is found, and what was recorded under a name."""

    def step(tokens: Any, states: Any) -> Any:
        h, c = states
        found = parts["step"](tokens=tokens[:, None], h=h, c=c)
        return found["log_probs"][:, 0], (found["next_h"], found["next_c"])

    with np.load(MODEL / "beams.npz") as data:
        source = data["source"]
        expected = {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"{name}/")}
    encoded = parts["encoder"](source=tf.constant(source))
    n, width, _ = expected["sequences"].shape
    start = np.full(n, START, np.int32)
    found = decode.beam_search(
        *(step, start, (encoded["encoded_h"], encoded["encoded_c"])), width=width, steps=STEPS, end=END,
        pad=END, length_penalty=penalty, keep_history=True,
    )  # fmt: skip
    return found, expected


def test_a_beam_search_finds_what_tensorflow_1_does(parts: Any) -> None:
    """BeamSearchDecoder stops where all beams have ended, and pads with the end."""
    found, expected = search(parts, "plain", 0.0)
    steps = expected["sequences"].shape[2]
    np.testing.assert_array_equal(found.sequences[:, :, :steps], expected["sequences"])
    assert (np.array(found.sequences[:, :, steps:]) == END).all()
    np.testing.assert_array_equal(found.lengths, expected["lengths"])
    np.testing.assert_allclose(found.scores, expected["scores"], rtol=1e-5, atol=1e-5)
    assert found.history is not None
    np.testing.assert_array_equal(found.history.tokens[:, :steps], expected["tokens"])
    np.testing.assert_array_equal(found.history.parents[:, :steps], expected["parents"])


def test_with_a_length_penalty_the_best_is_tensorflow_1s(parts: Any) -> None:
    """Further down its order is another: the step that ends a beam ranks it without its end, each later one
    with it (tensorflow v1.15.0 contrib/seq2seq/python/ops/beam_search_decoder.py, `_beam_search_step`)."""
    found, expected = search(parts, "penalty", 0.7)
    steps = expected["sequences"].shape[2]
    np.testing.assert_array_equal(found.sequences[:, 0, :steps], expected["sequences"][:, 0])
    np.testing.assert_array_equal(found.lengths[:, 0], expected["lengths"][:, 0])
    np.testing.assert_allclose(found.scores[:, 0], expected["scores"][:, 0], rtol=1e-5, atol=1e-5)
