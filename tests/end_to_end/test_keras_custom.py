"""Classes and code of a user's own in Keras files: brought, left as they are, and never run unasked."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tf_keras
from support import artifacts, keras_public, user_processes
from support.keras_conversions import FORMATS, compared, converted
from support.keras_samples import KERAS_FIXTURES, KerasFixture, keras_fixture
from support.recorded import assert_close
from support.tiers import tier
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import cpu_layers, translate
from cudnn_convert.model import Architecture
from cudnn_convert.read import keras_hdf5
from cudnn_convert.targets import keras as write_keras

CODE = [found for found in KERAS_FIXTURES if any(word in found.folder.name for word in ("lambda", "pwned"))]
CUSTOM = [found for found in KERAS_FIXTURES if found.folder.name == "custom_layer"]
#: What a class of the user's own meets does not hang on who wrote the file: the oldest writer's in all cases.
OLDEST = CUSTOM[0]
Case = tuple[Any, ...]


def each(cases: Iterable[Case], first: Collection[Case]) -> list[Any]:
    """The cases as parameters, a sample by its name: those in `first` are of the first tier."""
    return [
        pytest.param(
            *case,
            marks=tier(first=case in first),
            id="-".join(part.name if isinstance(part, KerasFixture) else str(part) for part in case),
        )
        for case in cases
    ]


@pytest.mark.slow("cudnn_convert/keras/config", "cudnn_convert/verification/ops")
@pytest.mark.parametrize(("sample", "form"), each(product(CUSTOM, FORMATS), [(OLDEST, "onnx")]))
def test_a_class_that_the_user_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str
) -> None:
    monkeypatch.chdir(user_processes.FOLDER)
    items = ["scale_for_tf_keras:Scale", *(["scale_for_keras:Scale"] if form == "keras" else [])]
    _, job = converted(sample, form, tmp_path, custom_objects=items)
    if form in ("keras", "h5"):
        job["custom"] = ["scale_for_keras" if form == "keras" else "scale_for_tf_keras", "Scale"]
    artifacts.answer([job])
    compared(job, sample, sample.case["outputs"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_class_that_nobody_brings(out: Path, form: str) -> None:
    sample = keras_fixture("keras-2.2.4-custom_layer")
    told = r"layer scale_in: expected a layer of Keras itself, found Scale; .* --custom-objects MODULE:Scale"
    if form in ("keras", "h5"):
        told += ".* cannot be verified, for nothing comes before this layer: convert it with --no-verify$"
    with pytest.raises(UnsupportedModelError, match=told):
        cudnn_convert.convert(sample.path, out, format=form)
    assert not out.exists()


@pytest.mark.parametrize(("sample", "form"), each(product(CUSTOM, ["keras", "h5"]), [(OLDEST, "keras")]))
def test_unverified_it_goes_as_it_is(tmp_path: Path, sample: KerasFixture, form: str) -> None:
    report, job = converted(sample, form, tmp_path, verify=False)
    assert "loading needs custom_objects with Scale" in report.notes
    kept = (
        "scale_in, scale_out: weights are kept as variables of the class itself, in the order that the source"
    )
    assert any(note.startswith(kept) for note in report.notes) == (form == "keras")
    answered_with_scale(job, sample)


def answered_with_scale(job: dict[str, Any], sample: KerasFixture) -> None:
    """What comes out once the user's process brings the class is what its Keras gave."""
    job["custom"] = ["scale_for_keras" if job["format"] == "keras" else "scale_for_tf_keras", "Scale"]
    outputs = sample.case["outputs"]
    job["outputs"] = {key: {"source": key, "artifact": key} for key in outputs}
    artifacts.answer([job])
    compared(job, sample, outputs)


def edited(sample: KerasFixture, folder: Path, change: Callable[[list[Any]], None]) -> KerasFixture:
    """A sample in a folder of its own, with other layers in its config."""
    copied = KerasFixture(Path(shutil.copytree(sample.folder, folder / sample.folder.name)))
    with h5py.File(copied.path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        found = config["config"]
        change(found["layers"] if isinstance(found, dict) else found)
        file.attrs["model_config"] = json.dumps(config)
    return copied


def begun(layers: list[Any]) -> None:
    """A layer of Keras's own before the first that is not, which changes no number."""
    place = next(place for place, layer in enumerate(layers) if layer["class_name"] == "Scale")
    shape = layers[place]["config"]["batch_input_shape"]
    config = {"name": "start", "activation": "linear", "batch_input_shape": shape}
    layers.insert(place, {"class_name": "Activation", "config": config})


@pytest.mark.parametrize(
    ("sample", "form", "brought"),
    each(
        product(CUSTOM, ["keras", "h5"], ["nothing", "scale_for_tf_keras", "scale_for_keras"]),
        [(OLDEST, "keras", "nothing")],
    ),
)
def test_a_class_behind_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str, brought: str
) -> None:
    monkeypatch.chdir(user_processes.FOLDER)
    sample = edited(sample, tmp_path, begun)
    items = [] if brought == "nothing" else [f"{brought}:Scale"]
    report, job = converted(sample, form, tmp_path, custom_objects=items)
    assert report.verification is not None
    assert report.verification.passed
    whole = form == "h5" and brought == "scale_for_tf_keras"
    assert [*report.outputs] == (sample.case["outputs"] if whole else ["start"])
    told = "only what stands before the first of these is verified: scale_in, scale_out"
    assert (told in report.notes) != whole
    (given,) = job["inputs"]
    job["inputs"] = {given: {"source": sample.case["inputs"][0], "artifact": given}}
    answered_with_scale(job, sample)


def named_attention(layers: list[Any]) -> None:
    """The user's class by a name that Keras has today, and Keras 2.2.4 had not."""
    begun(layers)
    for layer in layers:
        layer["class_name"] = layer["class_name"].replace("Scale", "Attention")


@pytest.mark.slow("cudnn_convert/keras/config", "cudnn_convert/verification")
def test_a_class_of_a_name_that_keras_got_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_attention.py").write_text("from scale_for_tf_keras import Scale as Attention\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(user_processes.FOLDER)
    sample = edited(OLDEST, tmp_path, named_attention)
    _, job = converted(sample, "savedmodel", tmp_path, custom_objects=["own_attention:Attention"])
    (given,) = job["inputs"]
    job["inputs"] = {given: {**job["inputs"][given], "source": sample.case["inputs"][0]}}
    artifacts.answer([job])
    compared(job, sample, sample.case["outputs"])


def test_the_attention_of_the_page_converts_public_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what Keras 2.2.4 itself gave of the layers before it, in float64."""
    page = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "keras-files.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "class AttentionWithContext" in block)
    members = keras_public.cases()["keras-2.2.4"]["attention"]
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(page), "exec"), {})
    source = tmp_path / "model.h5"
    source.write_bytes(members["model.h5"])
    with np.load(io.BytesIO(members["golden.npz"])) as golden:
        words, encoded = golden["feed0/in/0"], golden["feed0/out/0"].astype(np.float64)
    out = tmp_path / "out"
    report = cudnn_convert.convert(source, out, custom_objects="attention:AttentionWithContext")
    (taken,), (given,) = report.inputs, report.outputs
    found = cudnn_convert.run(out, data={taken: words}).outputs[0][given]
    with h5py.File(source) as file:
        inner, context, kernel, bias = (
            np.float64(file["model_weights"][name])
            for layer in ("attention", "dense_1")
            for name in [
                f"{layer}/{text.decode()}" for text in file["model_weights"][layer].attrs["weight_names"]
            ]
        )
    scores = np.exp(np.tanh(encoded @ inner) @ context)
    summed = (encoded * scores / scores.sum(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-(summed @ kernel + bias))), rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["keras", "h5"])
def test_it_goes_as_it_is_where_nobody_brings_it(tmp_path: Path, form: str) -> None:
    sample = edited(OLDEST, tmp_path, named_attention)
    report, _ = converted(sample, form, tmp_path)
    assert "loading needs custom_objects with Attention" in report.notes
    assert [*report.outputs] == ["start"]


@pytest.mark.parametrize("form", ["keras", pytest.param("h5", marks=pytest.mark.every)])
def test_a_class_of_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    def packed(layers: list[Any]) -> None:
        for layer in layers:
            layer["class_name"] = layer["class_name"].replace("Scale", "Mine>Scale")

    monkeypatch.chdir(user_processes.FOLDER)
    sample = edited(keras_fixture("keras-2.2.4-custom_layer"), tmp_path, packed)
    items = ["scale_for_tf_keras:Scale", "scale_for_keras:Scale"]
    report = cudnn_convert.convert(sample.path, tmp_path / "out", format=form, custom_objects=items)
    assert [*report.outputs] == sample.case["outputs"]
    assert "loading needs custom_objects with Mine>Scale" in report.notes


@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
@pytest.mark.parametrize("sample", CODE, ids=lambda sample: sample.name)
def test_code_in_the_file_is_refused_for_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"layer code: expected a layer of Keras.*Lambda"):
        cudnn_convert.convert(sample.path, tmp_path / "out", format=form)
    assert not [*tmp_path.iterdir()]


@pytest.mark.first("tf_keras-2.21.0-archive_pwned-keras")
@pytest.mark.parametrize(
    ("sample", "form"),
    each(
        product(CODE, ["keras", "h5"]),
        [
            (keras_fixture("keras-2.2.4-lambda_pwned"), "h5"),
            (keras_fixture("tf_keras-2.21.0-archive_pwned"), "keras"),
        ],
    ),
)
def test_code_in_the_file_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    report = cudnn_convert.convert(sample.path, tmp_path / "out", format=form)
    assert "only what stands before the first of these is verified: code" in report.notes
    assert ("loading needs safe_mode=False" in report.notes) == (form == "keras")
    written = "3.7 or older" if sample.case["python"].startswith("3.6") else "3.11 or newer"
    assert any(f"its bytecode is of Python {written}, and" in note for note in report.notes)
    assert [*report.outputs] == ["before"]
    assert cudnn_convert.verify(sample.path, tmp_path / "out").passed
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize("trust", [True, pytest.param(False, marks=pytest.mark.every)])
def test_code_runs_where_its_user_says_so(tmp_path: Path, trust: bool) -> None:
    sample = keras_fixture("tf_keras-2.21.0-lambda_harmless")
    if not sys.version.startswith(sample.case["python"].rpartition(".")[0]):
        pytest.skip("its bytecode is another Python's")
    report, job = converted(sample, "keras", tmp_path, trust=trust)
    assert [*report.outputs] == (sample.case["outputs"] if trust else ["before"])
    job["outputs"] = {key: {"source": key, "artifact": key} for key in sample.case["outputs"]}
    artifacts.answer([job | {"safe_mode": False}])
    compared(job, sample, sample.case["outputs"])


def functional(layer: Any) -> Any:
    """A functional model of tf_keras with a Lambda before and behind a recurrence of class `layer`."""
    layers = tf_keras.layers
    x = tf_keras.Input((None, 3), name="x")
    y = layer(4, return_sequences=True, name="lstm")(layers.Lambda(lambda x: x * 2.0)(x))
    return tf_keras.Model(x, layers.Lambda(lambda x, k: x - k, arguments={"k": 0.5}, name="less")(y))


@pytest.mark.first("keras")
@pytest.mark.parametrize("form", [pytest.param(form, marks=tier(first=form != "onnx")) for form in FORMATS])
def test_code_of_a_functional_model_runs_where_its_user_says_so(tmp_path: Path, form: str) -> None:
    """tf_keras builds the layers of a functional model in safe mode, those of a Sequential one never."""
    rng, source = np.random.default_rng(3), tmp_path / "source.h5"
    model, twin = functional(CuDNNLSTM), functional(tf_keras.layers.LSTM)
    model.set_weights([rng.normal(size=weight.shape) for weight in model.weights])
    model.save(source)
    twin.load_weights(source)
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, trust=True)
    assert [*report.outputs] == ["less"]
    x = rng.normal(size=(2, 5, 3)).astype(np.float32)
    np.savez(tmp_path / "golden.npz", **{f"feed0/{report.inputs['x']}": x})
    job = artifacts.job(tmp_path / "out", form, tmp_path / "golden.npz", tmp_path / "answers.npz")
    artifacts.answer([job | {"safe_mode": False}])
    with np.load(tmp_path / "answers.npz") as answers:
        np.testing.assert_allclose(answers["feed0/less"], twin(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_code_in_a_file_of_keras_3_does_not_run_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    import keras

    monkeypatch.chdir(tmp_path)
    code = keras.layers.Lambda(lambda x: (Path("pwned").touch(), x)[1])
    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), code]).save(tmp_path / "source.keras")
    Path("pwned").unlink()  # Keras called it, to see what comes out
    if form == "keras":
        assert cudnn_convert.convert(tmp_path / "source.keras", tmp_path / "out", format=form).out is None
    with pytest.raises(UnsupportedModelError, match="found Lambda, which runs"):
        cudnn_convert.convert(tmp_path / "source.keras", tmp_path / "out", format=form, force_convert=True)
    assert {path.name for path in tmp_path.iterdir()} == {"source.keras"}


def architecture(path: Path) -> Architecture:
    found = keras_hdf5.read(path).architecture
    assert found is not None
    return found


def test_a_class_that_the_user_brings_is_built(tmp_path: Path) -> None:
    import keras

    class Scale(keras.layers.Layer):
        def __init__(self, factor=1.0, **options):
            super().__init__(**options)
            self.factor = factor

        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), name="scale")

        def call(self, inputs):
            return inputs * self.scale * self.factor

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    sample, path = keras_fixture("keras-2.2.4-custom_layer"), tmp_path / "out.keras"
    made = cpu_layers.rewritten(sample.path, architecture(sample.path)).architecture
    modern = translate.modern(sample.path, made, vouched={"Scale": Scale})
    write_keras.write(path, sample.path, modern, provenance="{}")
    built = keras.models.load_model(path, custom_objects={"Scale": Scale})
    feed = sample.feeds()[0]
    found = built.predict(feed[sample.case["inputs"][0]], verbose=0)
    assert_close(found, feed[sample.case["outputs"][0]])


def test_code_passes_through_an_hdf5_file_untouched(tmp_path: Path) -> None:
    for name in ("custom_layer", "lambda_harmless"):
        sample = keras_fixture(f"keras-2.2.4-{name}")
        report, _ = converted(sample, "h5", tmp_path, verify=False)
        assert report.out is not None
        kept = [
            [
                layer
                for layer in model.config["config"]["layers"]
                if layer["class_name"] in ("Scale", "Lambda")
            ]
            for model in (architecture(sample.path), architecture(Path(report.out)))
        ]
        assert kept[0] == kept[1] and kept[0]
