"""Files that Keras wrote, as `.keras` and `.h5`, in a user's process, against Keras's own CPU answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import artifacts
from support.keras_samples import KERAS_FIXTURES, KerasFixture, keras_fixture
from support.samples import EVERY

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import cpu_layers, translate
from cudnn_convert.model import Architecture
from cudnn_convert.read import keras_archive, keras_hdf5
from cudnn_convert.targets import h5 as write_h5
from cudnn_convert.targets import keras as write_keras

FORMS = ("keras", "h5")
#: What needs a class or code that no user's process here has.
CODE = ("custom", "lambda", "pwned")
#: time_major: `predict` takes its batch from the first axis. Keras 3 has no such layer either.
LEFT_OUT = {"keras": ("time_major", *CODE), "h5": ("time_major", *CODE)}

#: Nested groups, names in chunks, shared layers, weights of an optimizer, types, an architecture beside.
IN_HDF5 = (
    *("nested", "chunked_names", "siamese", "adam", "float64", "archive_nested", "archive_adam", "compiled"),
    *("bidirectional", "stateful_gru", "time_distributed_nested", "weights_functional"),
)


def architecture(sample: KerasFixture) -> Architecture:
    reader = keras_archive if keras_archive.recognise(sample.path) else keras_hdf5
    model = reader.read(sample.path)
    if sample.architecture is not None:
        model = keras_hdf5.with_architecture(model, sample.architecture)
    assert model.architecture is not None
    return model.architecture


def write(sample: KerasFixture, form: str, path: Path) -> None:
    made = cpu_layers.rewritten(sample.path, architecture(sample)).architecture
    if form == "keras":
        write_keras.write(path, sample.path, translate.modern(sample.path, made), provenance="{}")
    else:
        write_h5.write(path, made, provenance="{}")


def fitting(form: str) -> list[KerasFixture]:
    """The oldest writer's sample of each case; with `make test-every` all of them.

    Both forms hold the same layers: all go to one, and to the other what lies differently in it.
    """
    once = {sample.folder.name: sample for sample in reversed(KERAS_FIXTURES)}
    return [
        sample
        for sample in (KERAS_FIXTURES if EVERY else once.values())
        if not any(word in sample.folder.name for word in LEFT_OUT[form])
        and (sample.architecture or "weights" not in sample.folder.name)
        and (EVERY or form == "keras" or sample.folder.name in IN_HDF5)
    ]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory):
    """All samples in one form, written and run once: `[form][name] -> answers`."""
    made: dict[str, dict[str, Path]] = {}

    def of(form: str) -> dict[str, Path]:
        if form not in made:
            folder = tmp_path_factory.mktemp(form)
            jobs = []
            for sample in fitting(form):
                artifact = folder / f"{sample.name}.{form}"
                write(sample, form, artifact)
                jobs.append(
                    {
                        "artifact": str(artifact),
                        "format": form,
                        "golden": str(sample.folder / "golden.npz"),
                        "inputs": {name: {"source": name} for name in sample.case["inputs"]},
                        "outputs": {name: {"source": name} for name in sample.case["outputs"]},
                        "answers": str(folder / f"{sample.name}.npz"),
                    }
                )
            artifacts.answer(jobs)
            made[form] = {Path(job["artifact"]).stem: Path(job["answers"]) for job in jobs}
        return made[form]

    return of


@pytest.mark.parametrize(
    ("form", "sample"),
    [
        pytest.param(form, sample, marks=pytest.mark.xdist_group(f"keras-{form}"), id=f"{form}-{sample.name}")
        for form in FORMS
        for sample in fitting(form)
    ],
)
def test_answers_as_its_own_keras_did(answered, form: str, sample: KerasFixture) -> None:
    bound = 1e-12 if "float64" in sample.name else 1e-5
    with np.load(answered(form)[sample.name]) as answers:
        for number, feed in enumerate(sample.feeds()):
            for name in sample.case["outputs"]:
                found, expected = answers[f"feed{number}/{name}"], feed[name]
                assert found.shape == expected.shape
                assert np.ptp(expected) > 1e-4, "an answer that never changes proves nothing"
                np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["nested", "text_classifier", "encoder_decoder"])
def test_same_bytes_every_time(tmp_path: Path, form: str, name: str) -> None:
    sample = keras_fixture(f"keras-2.2.4-{name}")
    paths = [tmp_path / f"one.{form}", tmp_path / f"two.{form}"]
    for path in paths:
        write(sample, form, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_time_major_is_refused_for_keras_3(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"layer first: expected time_major=False, found True"):
        write(keras_fixture("tf.keras-1.15.5-time_major"), "keras", tmp_path / "out.keras")


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
    made = cpu_layers.rewritten(sample.path, architecture(sample)).architecture
    modern = translate.modern(sample.path, made, vouched={"Scale": Scale})
    write_keras.write(path, sample.path, modern, provenance="{}")
    built = keras.models.load_model(path, custom_objects={"Scale": Scale})
    feed = sample.feeds()[0]
    found = built.predict(feed[sample.case["inputs"][0]], verbose=0)
    np.testing.assert_allclose(found, feed[sample.case["outputs"][0]], rtol=1e-5, atol=1e-5)


def test_code_passes_through_an_hdf5_file_untouched(tmp_path: Path) -> None:
    for name in ("custom_layer", "lambda_harmless"):
        sample = keras_fixture(f"keras-2.2.4-{name}")
        write(sample, "h5", tmp_path / f"{name}.h5")
        before, after = architecture(sample), keras_hdf5.read(tmp_path / f"{name}.h5").architecture
        assert after is not None
        kept = [
            [
                layer
                for layer in model.config["config"]["layers"]
                if layer["class_name"] in ("Scale", "Lambda")
            ]
            for model in (before, after)
        ]
        assert kept[0] == kept[1] and kept[0]
