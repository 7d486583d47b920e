"""SavedModels as artifacts: each signature by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.command_line import refused

import cudnn_convert


class Two(tf.Module):
    """A module with two signatures, one of which takes strings."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    def double(self, x: Any) -> Any:
        return {"y": x * 2}

    @tf.function(
        input_signature=[tf.TensorSpec(None, tf.float32, "x"), tf.TensorSpec([None], tf.string, "s")]
    )
    def words(self, x: Any, s: Any) -> Any:
        return {"n": tf.cast(tf.strings.length(s), tf.float32) + tf.reduce_sum(x)}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    module = Two()
    tf.saved_model.save(module, tmp_path / "two", {"double": module.double, "words": module.words})
    return tmp_path / "two"


def test_one_of_several_signatures_is_asked_for(two: Path) -> None:
    [line] = refused(two.parent, "run", two, code=2)
    assert line == (
        f"{two}: signatures: expected serving_default, found double, words; choose with --signature"
    )
    answers = cudnn_convert.run(two, signature="double")
    np.testing.assert_array_equal(answers.outputs[0]["y"], answers.feeds[0]["x"] * 2)


def test_what_cannot_be_drawn_is_asked_for(two: Path) -> None:
    lines = refused(two.parent, "run", two, "--signature", "words", code=1)
    expected = "expected numbers of a known rank, found"
    assert lines == [
        f"{two}: input {key}: {expected} {found}; give inputs with --data"
        for key, found in (("s", "strings"), ("x", "no known shape"))
    ]
    np.savez(two.parent / "feeds.npz", x=np.float32([1, 2]), s=np.array([b"abc", b"d"], object))
    answers = cudnn_convert.run(two, signature="words", data=two.parent / "feeds.npz")
    assert answers.outputs[0]["n"].tolist() == [6, 4]
