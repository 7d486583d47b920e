"""Decoders that tf2onnx makes ONNX of: ONNX Runtime gives the same answers, of any number of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import tf2onnx
from support.tiers import some

from cudnn_convert import decode

RNG = np.random.default_rng(0)
LOG_PROBS = np.log(RNG.dirichlet(np.ones(5), size=(5, 5))).astype(np.float32)
TOKENS = np.array([0, 3, 2], np.int32)
ROWS = np.log(RNG.dirichlet(np.ones(4), size=(3, 6))).astype(np.float32)
#: Some classes have no chance, in the second row all but one.
HARD = np.where(RNG.random(ROWS.shape) < 0.3, -np.inf, ROWS).astype(np.float32)
HARD[1, :, 1:] = -np.inf
HARD[1, :, 0] = -0.5
LENGTHS = np.array([6, 4, 0], np.int32)
NOISE = RNG.random((3, 7)).astype(np.float32)


def step(tokens: Any, before: Any) -> Any:
    """Trigrams."""
    return tf.gather_nd(tf.constant(LOG_PROBS), tf.stack([before, tokens], 1)), tokens


def beam_search(tokens: Any) -> Any:
    return decode.beam_search(step, tokens, tokens, width=4, steps=9, end=1, pad=9, length_penalty=0.7)[:3]


def masked(tokens: Any) -> Any:
    """Rows that end at different steps, after which a token has no chance."""
    mask = tf.constant([True, False, True, True, False])
    return decode.greedy(step, tokens, tokens, steps=9, end=1, pad_mask=mask)


def with_stops(rows: Any) -> Any:
    """Tags that may not follow each other, rows of different lengths."""
    forbidden = np.where(np.eye(4, k=1, dtype=bool), -np.inf, LOG_PROBS[0, :4, :4]).astype(np.float32)
    return decode.viterbi(rows, forbidden, LENGTHS)


DECODERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "beam_search": (beam_search, TOKENS),
    "greedy": (lambda tokens: decode.greedy(step, tokens, tokens, steps=9, end=1), TOKENS),
    "sample": (lambda noise: decode.sample(step, TOKENS, TOKENS, noise, top_k=3), NOISE),
    "masked": (masked, TOKENS),
    "ctc_greedy": (decode.ctc_greedy, ROWS),
    "ctc_greedy, minus infinity": (lambda rows: decode.ctc_greedy(rows, LENGTHS), HARD),
    "ctc_beam": (lambda rows: decode.ctc_beam(rows, LENGTHS, width=5, pad=-1), ROWS),
    "ctc_beam, minus infinity": (lambda rows: decode.ctc_beam(rows, LENGTHS, width=5, blank=0), HARD),
    "viterbi": (lambda rows: decode.viterbi(rows, LOG_PROBS[0, :4, :4]), ROWS),
    "viterbi, minus infinity": (with_stops, HARD),
}
FIRST = ("viterbi, minus infinity",)


@pytest.mark.slow("cudnn_convert/decode")
@pytest.mark.parametrize("name", some(FIRST, *(name for name in DECODERS if name not in FIRST)))
def test_onnx_runtime_gives_the_same(name: str) -> None:
    decoder, given = DECODERS[name]
    shape = given.shape if name == "sample" else [None, *given.shape[1:]]
    spec = [tf.TensorSpec(shape, given.dtype, name="given")]
    call = tf.function(lambda given: tuple(decoder(given)), input_signature=spec, autograph=False)
    model, _ = tf2onnx.convert.from_function(call, input_signature=spec, opset=17)
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"given": given})
    for actual, expected in zip(found, call(tf.constant(given)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
