"""Language models that end in probabilities, their logarithms or logits, made in many ways.

A search finds what NumPy finds on the model's own distribution, or the user is asked what the numbers are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from properties.budget import examples
from support import decoding_judges as judges
from support.begun_decoders import TOKENS, Decoder
from support.decoding_judges import Rules

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError

MODEL: Final = Decoder("state")
WIDTH, STEPS, END = 3, 4, 2


@dataclass(frozen=True)
class End:
    """What is made of logits: `graph` in TensorFlow, `distribution` in NumPy, each `[..., tokens]`."""

    name: str
    graph: Callable[[Any], Any]
    distribution: Callable[[Any], Any]


def softmax(logits: Any) -> Any:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def by_hand(logits: Any) -> Any:
    """A softmax of single ops, of which an optimizer makes none."""
    shares = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    return shares / tf.reduce_sum(shares, -1, keepdims=True)


def masked(logits: Any, mask: Any, library: Any) -> Any:
    """Probabilities of the tokens of a mask alone, which add up to 1 again."""
    shares = (tf.nn.softmax(logits) if library is tf else softmax(logits)) * mask
    total = tf.reduce_sum(shares, -1, keepdims=True) if library is tf else shares.sum(-1, keepdims=True)
    return shares / total


@st.composite
def ends(draw: st.DrawFn) -> End:
    """One of the ways, with numbers of its own."""
    number = draw(st.floats(0.3, 3.0).map(lambda value: round(value, 2)))
    small = draw(st.sampled_from([1e-9, 1e-7, 1e-4, 0.02]))
    part = draw(st.floats(0.1, 0.9).map(lambda value: round(value, 2)))
    seed = draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    mask = (rng.random(TOKENS) < 0.7).astype(np.float32)
    mask[[1, 5]] = 1
    bias = rng.normal(size=TOKENS).astype(np.float32) * 3
    mixed = rng.normal(size=TOKENS).astype(np.float32) * 4
    ways = [
        End("logits", lambda x: x + 0.0 * number, softmax),
        End("temperature", lambda x: x / number, lambda x: softmax(x / number)),
        End("biased logits", lambda x: x * number + bias, lambda x: softmax(x * number + bias)),
        End("probabilities", tf.nn.softmax, softmax),
        End("probabilities by hand", by_hand, softmax),
        End("tempered probabilities", lambda x: tf.nn.softmax(x / number), lambda x: softmax(x / number)),
        End(
            "clipped",
            lambda x: tf.clip_by_value(tf.nn.softmax(x), small, 1.0),
            lambda x: np.clip(softmax(x), small, 1),
        ),
        End(
            "a mixture of two",
            lambda x: part * tf.nn.softmax(x) + (1 - part) * tf.nn.softmax(x[..., ::-1] + mixed),
            lambda x: part * softmax(x) + (1 - part) * softmax(x[..., ::-1] + mixed),
        ),
        End("masked", lambda x: masked(x, mask, tf), lambda x: masked(x, mask, np)),
        End("log softmax", tf.nn.log_softmax, softmax),
        End(
            "log of a softmax", lambda x: tf.math.log(tf.nn.softmax(x) + small), lambda x: softmax(x) + small
        ),
        End("gated", lambda x: tf.nn.relu(x) * number, lambda x: softmax(np.maximum(x, 0) * number)),
        End("not normal", tf.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    ]
    return draw(st.sampled_from(ways))


@pytest.mark.slow("cudnn_convert/plan/scales.py", "cudnn_convert/verification/scales.py")
@given(ends(), st.integers(0, TOKENS - 1))
@examples(2)
def test_a_search_is_right_or_asks(end: End, first: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name, "out")
        source = MODEL.save(folder, lambda logits: tf.identity(end.graph(logits), "numbers"))
        flags: dict[str, Any] = {"outputs": ["numbers:0"], "decode": "beam", "logits": "numbers:0"}
        try:
            cudnn_convert.convert(source, out, format="onnx", steps=STEPS, width=WIDTH, end=END, **flags)
        except UnsupportedModelError as error:
            assert "say it with logits='numbers:0=" in str(error) or "--logits numbers:0=" in str(error)
            assert end.name in ASKED, end.name
            return
        assert end.name not in ALWAYS_ASKED, end.name
        session = onnxruntime.InferenceSession(str(out / "decode.onnx"))
        sequences, _, scores = session.run(None, {"tokens": np.array([first], np.int32)})

    def log_probs(row: int, prefix: tuple[int, ...]) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(end.distribution(MODEL.logits(np.array([[first, *prefix]]), {})[0, -1]))

    expected = judges.beam_search(log_probs, 1, Rules(WIDTH, STEPS, END, 0, dtype=np.float64))
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-4, atol=1e-4, err_msg=end.name)
    gaps = np.diff(expected["scores"][0])
    if (np.abs(gaps) > 1e-3).all():
        np.testing.assert_array_equal(sequences, expected["sequences"], err_msg=end.name)


#: Of these the numbers alone cannot tell, or tell otherwise than the ops.
ALWAYS_ASKED: Final = {"not normal", "gated"}
#: Of these some are asked about: where bounds are so wide that sums are not 1.
ASKED: Final = ALWAYS_ASKED | {"clipped", "log of a softmax"}
