"""CTC: TensorFlow's own decoders, and a line for each wrong argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import decoding_judges

from cudnn_convert import decode

LOGITS = np.random.default_rng(8).normal(size=(3, 12, 6)).astype(np.float32) * 2
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
LENGTHS = np.array([12, 7, 9])


def dense(found: Any, width: int) -> Any:
    return np.pad(tf.sparse.to_dense(found).numpy(), [(0, 0), (0, 12)])[:, :width]


def test_the_best_path_is_tensorflows() -> None:
    [labels], scores = tf.nn.ctc_greedy_decoder(LOG_PROBS.transpose(1, 0, 2), LENGTHS.astype(np.int32))
    found = decode.ctc_greedy(LOG_PROBS, LENGTHS)
    np.testing.assert_array_equal(found.sequences, dense(labels, 12))
    np.testing.assert_allclose(-found.scores, scores[:, 0], rtol=1e-5)  # TensorFlow has its negative


def test_the_beams_are_tensorflows() -> None:
    """Of so few steps and classes that no prefix is dropped; three more beams than there are prefixes."""
    rows, width = LOG_PROBS[:, :4, :4], 3**0 + 3**1 + 3**2 + 3**3 + 3**4
    rows = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    lengths = np.array([4, 2, 3])
    labels, scores = tf.nn.ctc_beam_search_decoder(rows.transpose(1, 0, 2), lengths, 1000, top_paths=4)
    found = decode.ctc_beam(rows, lengths, width=width + 3)
    for beam, sparse in enumerate(labels):
        np.testing.assert_array_equal(found.sequences[:, beam], dense(sparse, 4))
    np.testing.assert_allclose(found.scores[:, :4], scores, rtol=1e-5)


@pytest.mark.parametrize("seed", [2, 7, 36])
def test_a_prefix_that_was_dropped_comes_back(seed: int) -> None:
    """And is found to begin a beam that stayed: some of so many rows have such a prefix (counted)."""
    logits = np.random.default_rng(seed).normal(size=(64, 6, 4)) * 2
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    sequences, lengths, scores = (np.array(part) for part in decode.ctc_beam(log_probs, width=3))
    for example, rows in enumerate(log_probs):
        for beam, (labels, score) in enumerate(decoding_judges.ctc_beam(rows, 3, 3)):
            assert tuple(sequences[example, beam, : lengths[example, beam]]) == labels
            np.testing.assert_allclose(scores[example, beam], score, rtol=1e-9)


def test_narrow_floats_become_float32() -> None:
    half = LOG_PROBS.astype(np.float16)
    for decoder, flags in ((decode.ctc_greedy, {}), (decode.ctc_beam, {"width": 2})):
        found, expected = (decoder(rows, **flags) for rows in (half, half.astype(np.float32)))
        assert found.scores.dtype == tf.float32
        np.testing.assert_array_equal(found.scores, expected.scores)


def test_the_number_of_classes_is_known() -> None:
    function = tf.function(decode.ctc_greedy, autograph=False)
    line = r"^log_probs: expected a known number of classes, found float32 \[3, 12, \?\]$"
    with pytest.raises(ValueError, match=line):
        function.get_concrete_function(tf.TensorSpec([3, 12, None], tf.float32))
    with pytest.raises(ValueError, match=r"^log_probs: expected floats, found int32 of unknown rank$"):
        function.get_concrete_function(tf.TensorSpec(None, tf.int32))


def test_lengths_are_all_of_time_by_default() -> None:
    whole = decode.ctc_beam(LOG_PROBS, [12, 12, 12], width=3)
    for name, part in decode.ctc_beam(LOG_PROBS, width=3)._asdict().items():
        np.testing.assert_array_equal(part, getattr(whole, name))


@pytest.mark.parametrize(
    ("log_probs", "lengths", "flags", "line"),
    [
        (LOG_PROBS[0], None, {}, "log_probs: expected rank 3, [n, time, classes], found float32 [12, 6]"),
        (LOG_PROBS.astype(int), None, {}, "log_probs: expected floats, found int64 [3, 12, 6]"),
        (LOG_PROBS, [1, 2], {}, "lengths: expected one for each of 3 rows, found int32 [2]"),
        (LOG_PROBS, [1.0, 2, 3], {}, "lengths: expected int32 or int64, found float32 [3]"),
        (LOG_PROBS, None, {"blank": 6}, "blank: expected a class below 6, found 6"),
        (LOG_PROBS, None, {"blank": -7}, "blank: expected a whole number of at least -6, found -7"),
        (LOG_PROBS, None, {"pad": 0.5}, "pad: expected a whole number of at least -2147483648, found 0.5"),
        (LOG_PROBS, None, {"width": 0}, "width: expected a whole number of at least 1, found 0"),
    ],
    ids=["rank", "integers", "rows", "lengths", "blank", "negative", "pad", "width"],
)
def test_a_wrong_argument_gets_a_line(log_probs: Any, lengths: Any, flags: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        decode.ctc_beam(log_probs, lengths, **{"width": 3, **flags})
    assert str(caught.value) == line
    if "width" not in flags:
        with pytest.raises(ValueError) as caught:
            decode.ctc_greedy(log_probs, lengths, **flags)
        assert str(caught.value) == line
