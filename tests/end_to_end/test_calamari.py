"""A real training MetaGraph: Calamari-OCR, TensorFlow 1.8, 6,696 nodes; its weights are random numbers.

What it is converted with, recorded samples show at less cost: an iterator as the input, dropout to be set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.samples import REAL

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.cli import main
from cudnn_convert.model import SERVING, Part, Signature

MODEL = REAL / "calamari" / "model.ckpt"
IMAGES, SOFTMAX = "cnn_lstm_2/IteratorGetNext:0", "cnn_lstm_3/Softmax:0"
pytestmark = pytest.mark.skipif(not Path(f"{MODEL}.index").is_file(), reason=f"no Calamari model at {MODEL}")


def recomputed(images: np.ndarray) -> np.ndarray:
    """Two 3x3 convolutions with pooling, a bidirectional LSTM, a dense layer: from the raw tensors alone."""
    read = tf.train.load_checkpoint(str(MODEL)).get_tensor
    x = tf.constant(images[..., None])
    for number in ("", "_1"):
        name = f"cnn_lstm/conv2d{number}"
        x = tf.nn.relu(tf.nn.conv2d(x, read(f"{name}/kernel"), 1, "SAME") + read(f"{name}/bias"))
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    batch, width, height, channels = x.shape
    x = np.asarray(x, np.float64).reshape(batch, width, height * channels).transpose(1, 0, 2)
    blob = read("cnn_lstm/cudnn_lstm/opaque_kernel")
    sizes = {"layers": 1, "directions": 2, "units": 200, "input_size": x.shape[2]}
    zeros = np.zeros((2, batch, 200))
    y, _, _ = reference.run(reference.steps_from_blob(blob, "lstm", **sizes), x, zeros, zeros, directions=2)
    scores = y @ read("cnn_lstm/W") + read("cnn_lstm/B")
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


@pytest.mark.every
@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
def test_converts_with_the_cuts_of_its_readme(out: Path, form: str) -> None:
    report = cudnn_convert.convert(
        MODEL,
        out,
        format=form,
        inputs=[f"images={IMAGES}"],
        outputs=[f"softmax={SOFTMAX}"],
        set=["cnn_lstm_2/dropout_rate=0"],
    )
    assert [found.units for found in report.recurrences] == [200]
    names = Signature({"images": IMAGES}, {"softmax": SOFTMAX})
    images = np.random.default_rng(5).uniform(0, 1, (3, 37, 48)).astype(np.float32)
    answer = open_artifact(form, Path(report.out), [Part(SERVING, names)])({"images": images})["softmax"]
    expected = recomputed(images)
    # The softmax stands on the flattened steps: [time * batch, classes], time first.
    np.testing.assert_allclose(answer, expected.reshape(answer.shape), rtol=1e-5, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-4, "an answer that never changes proves nothing"


def test_without_flags_names_its_candidates_and_the_cure(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(MODEL), str(out)]) == 1
    told = capsys.readouterr().err
    assert "--set cnn_lstm_2/dropout_rate:0=0" in told
    assert "cnn_lstm_3/logits:0, cnn_lstm_3/softmax:0, cnn_lstm_3/decoded_indices:0" in told
    assert not out.exists()


@pytest.mark.every
def test_the_named_cure_is_enough(out: Path) -> None:
    assert main([str(MODEL), str(out), "--set", "cnn_lstm_2/dropout_rate:0=0", "--quiet"]) == 0
