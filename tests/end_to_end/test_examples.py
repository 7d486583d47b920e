"""An Estimator's SavedModel that takes tf.Examples: kept where data has them, else cut behind the parser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import artifacts
from support.command_line import command, refused
from support.samples import Fixture, fixture

SAMPLE = fixture("1.15.5-estimator_examples")
SERIALIZED = "input_example_tensor:0"


def data(path: Path, sample: Fixture, *, zeros: bool) -> Path:
    """The recorded tf.Examples as an array of objects; `zeros` puts a float of value 0 at the end of each.

    Fields of a message may come in any order and more than once; NumPy's own type for bytes drops the zeros.
    """
    feeds = {}
    for number, feed in enumerate(sample.feeds()):
        # Another feature of two floats, which the model does not ask for, behind all others.
        last = b"\n\x12\n\x10\n\x04last\x12\x08\x12\x06\n\x04\0\0\0\0" if zeros else b""
        values = [bytes(one) + last for one in feed[SERIALIZED]]
        feeds[f"feed{number}/inputs"] = np.empty(len(values), object)
        feeds[f"feed{number}/inputs"][:] = values
    np.savez(path, **feeds)
    return path


@pytest.mark.parametrize(
    ("form", "zeros"),
    [
        ("savedmodel", True),
        *(pytest.param(*one, marks=pytest.mark.slow()) for one in (("frozen", False), ("checkpoint", True))),
    ],
)
def test_the_parser_stays_where_examples_are_given(tmp_path: Path, form: str, zeros: bool) -> None:
    """The user's process feeds the recorded bytes, and gets TensorFlow 1's answers, strings among them."""
    feeds = data(tmp_path / "feeds.npz", SAMPLE, zeros=zeros)
    report, job = artifacts.convert(SAMPLE, form, tmp_path, data=feeds)
    assert report.inputs == {"inputs": SERIALIZED}
    assert report.verification is not None
    assert report.verification.passed
    assert not any("parser of tf.Examples" in note for note in report.notes)
    artifacts.answer([job])
    artifacts.agree(SAMPLE, report, Path(job["answers"]), bound=1e-5)


def test_an_example_that_was_cut_off_is_no_input(tmp_path: Path) -> None:
    """Its last bytes are gone where they were zeros and an array of NumPy's own type held them."""
    feeds = data(tmp_path / "feeds.npz", SAMPLE, zeros=True)
    with np.load(feeds, allow_pickle=True) as kept:
        np.savez(tmp_path / "cut.npz", **{key: value.astype("S") for key, value in kept.items()})
    [line] = refused(tmp_path, SAMPLE.prefix, tmp_path / "out", "--data", tmp_path / "cut.npz", code=2)
    assert "Could not parse example input" in line
    assert line.endswith(
        "arrays of type object keep the zero bytes at the end of strings, those of type S do not"
    )


@pytest.mark.slow("cudnn_convert/graph/passes/subgraphs.py")
@pytest.mark.parametrize("form", ["tflite", "onnx"])
def test_a_format_without_strings_takes_the_features(tmp_path: Path, form: str) -> None:
    ended = command(SAMPLE.prefix, tmp_path / "out", "--format", form, "--verbose")
    assert ended.code == 0, ended.stderr
    assert "cut behind the parser of tf.Examples ParseExample/ParseExample: " in ended.stderr
    assert "repeat with: --inputs=tokens=tokens:0,age=ParseExample/ParseExample:3 " in ended.stderr
