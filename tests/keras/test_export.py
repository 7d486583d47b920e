"""Archives of Keras 3 in formats of graphs, against what Keras itself answers on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import asking_keras
import keras
import numpy as np
import pytest
from samples import ROOT

import cudnn_convert
from cudnn_convert.artifacts import origin
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import SERVING, Part, Signature

ARCHIVES = sorted((ROOT / "tests" / "data" / "keras3_exports").glob("keras-*/archive/*.keras"))
FORMATS = ("frozen", "onnx", "tflite")


def answered(report: cudnn_convert.Report, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    assert report.out is not None
    form, path, recorded = origin.identify(Path(report.out).parent)
    assert recorded is not None
    tensors = recorded["tensors"]
    return open_artifact(form, path, [Part(SERVING, Signature(tensors["inputs"], tensors["outputs"]))])(feeds)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.parts[-3])
def test_of_every_keras_3(tmp_path: Path, path: Path, form: str) -> None:
    report = cudnn_convert.convert(path, tmp_path / "out", format=form)
    assert [found.mode for found in report.recurrences] == ["lstm", "gru"]
    with np.load(path.parent / "golden.npz") as data:
        golden = {
            key.removeprefix("serving_default/feed0/"): data[key] for key in data.files if "feed0" in key
        }
    (key,) = report.inputs
    (value,) = answered(report, {key: golden[key]}).values()
    (expected,) = (found for name, found in golden.items() if name.startswith("out/"))
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def saved(folder: Path, *layers: Any, shape: tuple[int | None, ...], **named: Any) -> tuple[Any, Path]:
    keras.utils.set_random_seed(11)
    model = keras.Sequential([keras.Input(shape, name="x", **named), *layers])
    rng = np.random.default_rng(5)
    model.set_weights([rng.normal(0, 0.4, weight.shape) for weight in model.weights])
    path = folder / "model.keras"
    model.save(path)
    return model, path


@pytest.mark.parametrize("form", FORMATS)
def test_masked_steps_are_zero(tmp_path: Path, form: str) -> None:
    layers = keras.layers
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True))
    model, path = saved(
        tmp_path,
        layers.Embedding(9, 3, mask_zero=True),
        both,
        layers.GRU(5, return_sequences=True),
        shape=(None,),
    )
    report = cudnn_convert.convert(path, tmp_path / "out", format=form)
    assert len(report.recurrences) == 3
    ids = np.array([[3, 1, 4, 1], [5, 8, 0, 0]], np.float32)
    (found,) = answered(report, {"x": ids}).values()
    expected = model(ids).numpy()
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1, :2], expected[1, :2], rtol=1e-5, atol=1e-5)
    assert not found[1, 2:].any()


def test_state_becomes_an_input(tmp_path: Path) -> None:
    layer = keras.layers.GRU(4, stateful=True, return_sequences=True)
    model, path = saved(tmp_path, layer, shape=(None, 3), batch_size=2)
    report = cudnn_convert.convert(path, tmp_path / "out", format="onnx")
    x = np.random.default_rng(6).normal(size=(2, 6, 3)).astype(np.float32)
    (state,) = (key for key in report.inputs if key != "x")
    held = np.zeros((2, 4), np.float32)
    for part in (x[:, :4], x[:, 4:]):
        found = answered(report, {"x": part, state: held})
        held = found.pop(f"{state}_next")
        (value,) = found.values()
        np.testing.assert_allclose(value, model(part).numpy(), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_nobodys_is_refused(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("own")
    class Twice(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return 2 * x

    _, path = saved(tmp_path, keras.layers.LSTM(4), Twice(name="twice"), shape=(None, 3))
    with pytest.raises(UnsupportedModelError, match="layer twice: expected a layer of Keras itself"):
        cudnn_convert.convert(path, tmp_path / "out", format="onnx")
    assert not (tmp_path / "out").exists()


def test_no_module_that_a_file_names_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought takes the place of a class by its name, whatever module and package the file names."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise SystemExit('imported')")
    Path("brought.py").write_text("import keras\n\n\nclass Start(keras.initializers.Zeros):\n    pass\n")
    named = {"module": "evil", "class_name": "Start", "config": {}, "registered_name": "pack>Start"}
    source = asking_keras.archive(tmp_path, kernel_initializer=named)
    told = "found Start of another module; bring it with --custom-objects MODULE:Start"
    with pytest.raises(UnsupportedModelError, match=told):
        cudnn_convert.convert(source, tmp_path / "refused", format="onnx")
    report = cudnn_convert.convert(source, tmp_path / "out", format="onnx", custom_objects=["brought:Start"])
    assert report.verification is not None
    assert report.verification.passed
    assert "evil" not in sys.modules
