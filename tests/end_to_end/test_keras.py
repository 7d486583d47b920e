"""Every genuine Keras file, in every format, against the answers of that Keras' own CPU layers.

The artifacts run where their users run them: TensorFlow 2, ONNX Runtime alone, Keras 3, tf_keras, each
without cudnn_convert. Classes and code of a user's own are in test_keras_custom.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import pytest
from support import artifacts
from support.keras_conversions import compared, converted
from support.keras_samples import KERAS_FIXTURES, KerasFixture, keras_fixture
from support.samples import REAL, WITH_ALL, fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError, VerificationError

#: What needs a class or code that no user's process here has.
CUSTOM: Final = ("custom", "lambda", "pwned")
WHOLE: Final = [
    found
    for found in KERAS_FIXTURES
    if found.case["architecture"] or "weights" not in found.folder.name
    if not any(word in found.folder.name for word in CUSTOM)
]
#: The oldest writer's sample of each case.
ONCE: Final = [*{found.folder.name: found for found in reversed(WHOLE)}.values()]
#: Which others show too: more layers, directions and models in models, what Keras itself adds to a graph,
#: and archives, which test_keras_hdf5.py compares with the same models in HDF5.
AS_OTHERS: Final = {
    *("stacked", "bidirectional", "nested", "merge_modes_gru", "merge_modes_lstm", "beside_plain", "adam"),
    *(
        "frozen_layers",
        "text_classifier",
        "archive_adam",
        "archive_bidirectional",
        "archive_nested",
        "weights_sequential",
        "stateful_lstm",
    ),
}
#: Each case goes to one format, and to the others what they do of their own: in Keras 3 states of a call,
#: shapes that the file lacks, another order of weights, double precision. Files of HDF5 are verified below.
KINDS: Final[dict[str, Collection[str]]] = {
    "savedmodel": ("sequential_lstm",),
    "frozen": (),
    WITH_ALL: {found.folder.name for found in ONCE} - AS_OTHERS,
    "keras": ("encoder_decoder", "deferred", "float64"),
    "h5": (),
}
LAYERS: Final = ("keras", "h5")
SAME_BYTES: Final = {("h5", "text_classifier")}


def fits(sample: KerasFixture, form: str) -> bool:
    """Keras 3 has no layer whose first axis is time; `predict` of tf_keras takes that axis for its batch.

    Keras 3 has no layers of TensorFlow's ops either.
    """
    refused = {"keras": ("time_major", "op_layers"), "h5": ("time_major",)}
    return sample.folder.name not in refused.get(form, ())


def cases(first: Mapping[str, Collection[str]], *forms: str) -> Iterator[Any]:
    """Every sample in formats; of the first tier are those cases of `first`, from one writer."""
    for form in forms:
        for sample in WHOLE:
            if fits(sample, form):
                is_first = sample in ONCE and sample.folder.name in first.get(form, ())
                marks = tier(first=is_first)
                yield pytest.param(form, sample, marks=marks, id=f"{form}-{sample.name}")


@pytest.mark.first(
    "onnx-tf_keras-2.21.0-archive_siamese",
    "onnx-keras-2.2.4-stateful_gru",
    "onnx-tf.keras-1.15.5-time_major",
    "savedmodel-keras-2.1.6-sequential_lstm",
    "keras-tf.keras-1.15.5-deferred",
)
@pytest.mark.parametrize(("form", "sample"), cases(KINDS, *KINDS))
def test_answers_as_keras_did(tmp_path: Path, form: str, sample: KerasFixture) -> None:
    """Proof of a file of layers takes most of its conversion, and is another test."""
    report, job = converted(sample, form, tmp_path, verify=form not in LAYERS)
    case = sample.case
    assert [key for key in report.inputs if key not in job["states"]] == case["inputs"]
    ends = {state["next"] for state in job["states"].values()}
    assert [key for key in report.outputs if key not in ends] == case["outputs"]
    assert bool(ends) == (case["stateful"] and form in ("frozen", "onnx"))
    assert (report.verification is None) == (form in LAYERS)
    keys = ("mode", "units", "input_size")
    found = {tuple(getattr(recurrence, key) for key in keys) for recurrence in report.recurrences}
    assert found == {tuple(recurrence[key] for key in keys) for recurrence in case["recurrences"]}
    assert {recurrence.directions for recurrence in report.recurrences} == {1}
    artifacts.answer([job])
    compared(job, sample, case["outputs"])


@pytest.mark.parametrize(("form", "sample"), cases({}, *LAYERS))
def test_is_proven_as_layers(tmp_path: Path, form: str, sample: KerasFixture) -> None:
    """All modes are in mutants/test_keras_layers.py, and two files that are right below."""
    report, _ = converted(sample, form, tmp_path)
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.parametrize(
    ("form", "name"),
    [
        pytest.param(form, name, marks=tier(first=(form, name) in SAME_BYTES))
        for form in LAYERS
        for name in ("nested", "text_classifier", "encoder_decoder")
    ],
)
def test_same_bytes_every_time(tmp_path: Path, form: str, name: str) -> None:
    sample = keras_fixture(f"keras-2.2.4-{name}")
    one, two = (converted(sample, form, tmp_path / place, verify=False)[1] for place in ("one", "two"))
    assert Path(one["artifact"]).read_bytes() == Path(two["artifact"]).read_bytes()


@pytest.mark.first(
    "tf_keras-2.21.0-op_layers-tf.math.subtract: expected a layer of Keras 3, found TFOpLambda"
)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tf.keras-1.15.5-time_major", "first: expected time_major=False, found True"),
        ("tf.keras-1.15.5-op_layers", "tf_op_layer_sub: expected a layer of Keras 3, found TensorFlowOp"),
        ("tf_keras-2.21.0-op_layers", "tf.math.subtract: expected a layer of Keras 3, found TFOpLambda"),
    ],
)
def test_layers_that_keras_3_lacks_are_refused(out: Path, name: str, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(f"layer {message}")) as caught:
        cudnn_convert.convert(keras_fixture(name).path, out, format="keras", verify=False)
    refused = [line.partition(": expected")[0] for line in str(caught.value).splitlines()]
    assert len(refused) == len({*refused}), "a line for each layer"


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("keras", "stateful_lstm"),
        pytest.param("h5", "time_distributed_nested", marks=pytest.mark.every),
        *(pytest.param(form, "siamese", marks=pytest.mark.every) for form in LAYERS),
        pytest.param("h5", "stateful_lstm", marks=pytest.mark.every),
    ],
)
def test_a_file_of_its_own_is_verified_again(tmp_path: Path, form: str, name: str) -> None:
    sample = keras_fixture(f"keras-2.2.4-{name}")
    artifact = tmp_path / f"model.{form}"
    cudnn_convert.convert(sample.path, artifact, format=form, verify=False)
    assert artifact.is_file()
    assert cudnn_convert.verify(sample.path, artifact).passed


@pytest.mark.slow("cudnn_convert/keras/", "cudnn_convert/verification/pieces/keras.py")
def test_a_swapped_gate_is_seen(tmp_path: Path) -> None:
    sample, artifact = keras_fixture("keras-2.2.4-siamese"), tmp_path / "model.h5"
    proof = cudnn_convert.convert(sample.path, artifact, format="h5").verification
    assert proof is not None
    assert proof.passed
    with h5py.File(artifact, "r+") as file:
        (kernel,) = (one for one in _datasets(file["model_weights/encoder"]) if "recurrent" in one.name)
        i, f, c, o = np.split(kernel[()], 4, axis=1)
        kernel[...] = np.concatenate([f, i, c, o], axis=1)
    with pytest.raises(VerificationError):
        cudnn_convert.verify(sample.path, artifact)


def _datasets(group: Any) -> list[Any]:
    found: list[Any] = []
    group.visititems(lambda _, one: found.append(one) if isinstance(one, h5py.Dataset) else None)
    return found


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    sample, artifact = keras_fixture("keras-2.2.4-siamese"), tmp_path / "model.keras"
    artifact.write_bytes(b"PK")
    with pytest.raises(
        ReadError, match=r"model\.keras: metadata\.json: expected a readable file in the archive"
    ):
        cudnn_convert.verify(sample.path, artifact)


@pytest.mark.parametrize("form", LAYERS)
def test_layers_are_asked_for(out: Path, form: str) -> None:
    sample = keras_fixture("keras-2.2.4-weights_sequential")
    message = f'format="{form}": expected the layers of a Keras model, found Keras HDF5 file '
    others = {"h5": "choose savedmodel,", "keras": "recurrences_only=True to take its recurrences alone"}[
        form
    ]
    with pytest.raises(UsageError, match=f"{message}.*; give architecture, or {others}"):
        cudnn_convert.convert(sample.path, out, format=form)


@pytest.mark.parametrize("flag", ["inputs", "outputs", "set"])
def test_layers_have_no_tensors(out: Path, flag: str) -> None:
    sample = keras_fixture("keras-2.2.4-siamese")
    with pytest.raises(UsageError, match=f"{flag}: expected a format that keeps a graph, found keras"):
        cudnn_convert.convert(sample.path, out, format="keras", **{flag: ["a:0"]})


@pytest.mark.slow("cudnn_convert/reference", "cudnn_convert/verification/ops")
def test_a_model_without_cudnn_layers_goes_to_every_format_but_its_own(tmp_path: Path) -> None:
    sample = keras_fixture("keras-2.2.4-siamese")
    plain = tmp_path / "cpu.h5"
    cudnn_convert.convert(sample.path, plain, format="h5", verify=False)
    assert cudnn_convert.convert(plain, tmp_path / "out.h5", format="h5").out is None
    for form in ("onnx", "keras"):
        report = cudnn_convert.convert(plain, tmp_path / f"out.{form}", format=form)
        assert [recurrence.mode for recurrence in report.recurrences] == ["lstm"] * 2
        assert report.verification is not None
        assert report.verification.passed


def test_custom_objects_need_keras(out: Path) -> None:
    with pytest.raises(UsageError, match="custom_objects: expected a Keras model, found"):
        cudnn_convert.convert(fixture("1.15.5-final_state_only").prefix, out, custom_objects=["os:getcwd"])


@pytest.mark.skipif(not REAL.is_dir(), reason="the real models are not at hand")
@pytest.mark.slow("cudnn_convert/keras/")
@pytest.mark.parametrize(
    ("file", "loss", "accuracy"),
    [("dot_res_lstm-08-0.78", "1.5269", "0.7762"), ("dot_res_lstm-21-0.80", "0.7206", "0.7952")],
)
def test_what_the_authors_saw(tmp_path: Path, file: str, loss: str, accuracy: str) -> None:
    """Loss and accuracy on their validation split, as their run on a GPU printed them."""
    import tf_keras

    folder = REAL / "dot-res-lstm"
    cudnn_convert.convert(folder / f"{file}.hdf5", tmp_path / "out.h5", format="h5")
    model = tf_keras.models.load_model(tmp_path / "out.h5")
    with np.load(folder / "validation_210.npz") as data:
        given, wanted = [data["xs"], data["xf"]], tf_keras.utils.to_categorical(data["y"], 2)
        found = model.evaluate(given, wanted, verbose=0)
    assert [f"{value:.4f}" for value in found] == [loss, accuracy]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real models are not at hand")
@pytest.mark.slow("cudnn_convert/keras/")
@pytest.mark.parametrize("form", ["savedmodel", "onnx"])
@pytest.mark.parametrize(
    "file", ["medaka/r941_min_high_g303_model.hdf5", "textgenrnn/textgenrnn_weights.hdf5"]
)
def test_real_models(out: Path, file: str, form: str) -> None:
    report = cudnn_convert.convert(REAL / file, out, format=form)
    assert report.verification is not None
    assert {recurrence.units for recurrence in report.recurrences} == {128}
