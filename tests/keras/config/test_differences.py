"""Layers of older Keras, judged by what their own Keras answered."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras
from support import keras_census, keras_public
from support.keras_census import WITNESSES
from support.keras_models import answers, model, written_by
from support.samples import ROOT

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import trace
from cudnn_convert.keras.config import differences, versions
from cudnn_convert.model import SERVING, InMemory
from cudnn_convert.private import keras_private
from cudnn_convert.read import keras_archive, keras_hdf5

BY_NAME = {difference.name: difference for difference in differences.DIFFERENCES}
#: A model of each difference of Keras 3, as keras 3.3.3 saved it and answered, and the layer that differs.
KERAS_3 = {
    "masks_of_several": ("word_and_tag_tagger", "concatenate"),
    "masked_values_in_merges": ("gated_words", "multiply"),
    "softmax_of_padding": ("attention_pooling", "weights"),
    "given_mask_ends": ("given_mask", "first"),
}


def test_each_difference_has_a_witness() -> None:
    assert {*WITNESSES, *KERAS_3, "epsilon_of_cudnn_in_films"} == set(BY_NAME)


def differs_from_keras_3(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Where the archive of a difference of Keras 3 is traced to other answers than its writer gave."""
    monkeypatch.setattr(keras_private, "trace_as_on_gpu", keras_private.trace_as_on_cpu)
    members = keras_public.cases()["keras-3.3.3"][f"{KERAS_3[name][0]}_archive"]
    (folder / "model.keras").write_bytes(members["model.keras"])
    traced = trace.trace_model(keras_archive.read(folder / "model.keras"))
    for number in range(2):
        with np.load(io.BytesIO(members["golden.npz"])) as golden:
            given = (golden[key] for key in golden.files if key.startswith(f"feed{number}/in/"))
            found = answers(traced, **dict(zip(traced.signatures[SERVING].inputs, given, strict=True)))
            if text := keras_census.difference(found[0], golden[f"feed{number}/out/0"]):
                return text
    return None


@pytest.mark.parametrize("name", KERAS_3)
def test_a_layer_of_keras_3_computes_as_in_its_writers_release(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert differs_from_keras_3(name, tmp_path, monkeypatch) is None


@pytest.mark.first("masks_of_several")
@pytest.mark.parametrize("name", KERAS_3)
def test_without_its_row_the_answers_of_keras_3_are_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        differences, "DIFFERENCES", tuple(row for row in differences.DIFFERENCES if row.name != name)
    )
    assert differs_from_keras_3(name, tmp_path, monkeypatch) is not None


def test_a_keras_as_old_as_the_file_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no change; here a newer one passes for it, whose answers are others."""
    monkeypatch.setattr(keras, "__version__", "3.3.3")
    assert differs_from_keras_3("masks_of_several", tmp_path, monkeypatch) is not None


@pytest.mark.first("softmax_of_padding")
@pytest.mark.parametrize("name", KERAS_3)
def test_archives_get_no_layer_that_later_releases_of_keras_3_compute_otherwise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "DIFFERENCES", (BY_NAME[name],))
    case, layer = KERAS_3[name]
    (tmp_path / "model.h5").write_bytes(keras_public.cases()["keras-3.3.3"][case]["model.h5"])
    source = keras_hdf5.read(tmp_path / "model.h5")
    told = f"Keras 3.3.3 {BY_NAME[name].older}, and later ones {BY_NAME[name].newer}"
    if BY_NAME[name].is_proven:
        assert trace.trace_part(source).notes == (f"{layer}: {told}",)
        return
    expected = (
        f"layer {layer}: expected a layer that later versions of Keras compute alike, found that {told}"
    )
    with pytest.raises(UnsupportedModelError) as refusal:
        trace.trace_part(source)
    assert f"{expected}; write --format savedmodel" in str(refusal.value)


@pytest.mark.parametrize(
    ("version", "least"),
    [("2.2.4", 0), ("2.5.0", 0), ("2.6.0", 1.001e-5), ("2.11.0", 1.001e-5), ("2.12.0", 0)],
)
def test_films_are_normalized_with_the_epsilon_of_their_version(version: str, least: float) -> None:
    def build() -> Any:
        film = tf_keras.Input((2, 3, 4, 2), name="x")
        return tf_keras.Model(film, tf_keras.layers.BatchNormalization(epsilon=1e-6, name="norm")(film))

    source = written_by(version, model(build))
    assert source.architecture is not None
    small = [(name, InMemory(value.read() * 1e-5)) for name, value in source.architecture.weights["norm"]]
    source.architecture.weights["norm"] = tuple(small)
    gamma, beta, mean, variance = (value.read() for _, value in small)
    x = np.random.default_rng(3).standard_normal((2, 2, 3, 4, 2)).astype(np.float32)
    expected = (x - mean) / np.sqrt(variance + max(1e-6, least)) * gamma + beta
    (found,) = answers(trace.trace_model(source), x=x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("name", WITNESSES)
def test_a_layer_computes_as_in_its_writers_keras(name: str, tmp_path: Path) -> None:
    members = keras_census.case(*WITNESSES[name])
    traced = trace.trace_model(keras_census.read(members, tmp_path))
    assert keras_census.differs(traced, members) is None


@pytest.mark.slow("cudnn_convert/keras/", "cudnn_convert/private/older_layers.py")
@pytest.mark.parametrize("name", WITNESSES)
def test_without_its_row_the_answers_are_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tuple(row for row in differences.DIFFERENCES if row.name != name)
    monkeypatch.setattr(differences, "DIFFERENCES", rows)
    members = keras_census.case(*WITNESSES[name])
    try:
        found = keras_census.differs(trace.trace_model(keras_census.read(members, tmp_path)), members)
    except Exception as failure:  # noqa: BLE001 - a mask of another shape ends in a failure of the graph
        found = str(failure)
    assert found


@pytest.mark.first(
    *("first_state_at_masked_steps", "model_without_mask", "relu_without_mask", "transposed_as_convolution"),
    *("softmax_without_mask", "transposed_without_dilation", "last_output_at_masked_steps"),
)
@pytest.mark.parametrize("name", WITNESSES)
def test_formats_of_layers_get_no_layer_that_later_versions_compute_otherwise(
    name: str, tmp_path: Path
) -> None:
    writer, case = WITNESSES[name]
    source = keras_census.read(keras_census.case(writer, case), tmp_path)
    assert source.architecture is not None
    told = f"Keras {source.architecture.keras_version} {BY_NAME[name].older}, and later ones"
    if BY_NAME[name].is_proven:
        (note,) = trace.trace_part(source).notes
        assert told in note
        return
    with pytest.raises(UnsupportedModelError, match=r"layer \S+: expected a layer that later") as refusal:
        trace.trace_part(source)
    assert told in str(refusal.value) and "write --format savedmodel" in str(refusal.value)


@pytest.mark.first("tf.keras-2.15.1-masked_SimpleRNN_unrolled-h5")
@pytest.mark.parametrize(
    ("writer", "case", "form"),
    [
        # Masking gives its mask together with what it gives.
        ("tf.keras-2.15.1", "masked_SimpleRNN_unrolled", "h5"),
        # TimeDistributed of Keras 3 takes the mask as another input.
        ("keras-2.3.1", "masked_TimeDistributed_LSTM", "keras"),
        ("tf.keras-2.13.1", "masked_LSTM_backwards_last", "keras"),
        # An Attention of TensorFlow 2.8 loses the input that it takes its mask from, and layers keep it.
        ("tf.keras-2.8.4", "Attention_mm", "h5"),
        # ONNX has one tensor for a mask that a merge takes twice.
        ("tf.keras-2.8.4", "mask_through_dense_and_merge", "onnx"),
    ],
)
def test_masks_go_into_formats(writer: str, case: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(keras_census.case(writer, case)["model.h5"])
    report = cudnn_convert.convert(
        tmp_path / "model.h5", tmp_path / f"out.{form}", format=form, force_convert=form == "h5"
    )
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.first("tf.keras-1.13.2-masked_LSTM_begun-lstm")
@pytest.mark.parametrize(
    ("writer", "case", "layer"),
    [("keras-2.1.6", "Minimum_om", "minimum_1"), ("tf.keras-1.13.2", "masked_LSTM_begun", "lstm")],
)
def test_masks_that_keras_3_takes_otherwise_are_refused(
    writer: str, case: str, layer: str, tmp_path: Path
) -> None:
    (tmp_path / "model.h5").write_bytes(keras_census.case(writer, case)["model.h5"])
    with pytest.raises(UnsupportedModelError, match=rf"layer {layer}: expected inputs without masks"):
        cudnn_convert.convert(tmp_path / "model.h5", tmp_path / "out.keras", format="keras")


def test_a_layer_that_keras_3_cannot_run_on_a_cpu_is_refused(tmp_path: Path) -> None:
    members = keras_census.case("tf.keras-1.15.5", "Conv2DTranspose_dilation_valid")
    (tmp_path / "model.h5").write_bytes(members["model.h5"])
    with pytest.raises(UnsupportedModelError, match="found a Conv2DTranspose with dilations; write"):
        cudnn_convert.convert(tmp_path / "model.h5", tmp_path / "out.keras", format="keras")
    assert not (tmp_path / "out.keras").exists()


def test_the_page_has_each_difference() -> None:
    page = (ROOT / "docs" / "keras-versions.md").read_text(encoding="utf-8")
    assert [row.name for row in differences.DIFFERENCES if f"| {row.older} |" not in page] == []


def test_states_of_stacked_cells_are_taken_one_after_the_other(tmp_path: Path) -> None:
    members = keras_census.case("keras-2.3.1", "stacked_cells_begun")
    assert keras_census.differs(trace.trace_model(keras_census.read(members, tmp_path)), members) is None


_STEPS = "first_state_at_masked_steps last_output_at_masked_steps"
_2_0_9 = (
    f"stacked_states_reversed {_STEPS} bilinear_from_corners dot_of_leading_axes softmax_without_mask "
    "time_distributed_without_mask"
)
_GROUPS = "group_normalization_without_mask"
_2_4_0 = f"softmax_without_mask relu_without_mask attention_without_mask epsilon_of_cudnn {_GROUPS}"
_2_2_4 = f"{_2_4_0} dot_of_leading_axes bidirectional_without_states"


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.0.9", _2_0_9),
        ("2.1.6", f"{_2_0_9} bidirectional_without_states"),
        (
            "2.3.1",
            "last_output_at_masked_steps bilinear_from_corners softmax_without_mask epsilon_of_cudnn "
            "bidirectional_without_states",
        ),
        (
            "2.1.6-tf",
            f"{_2_2_4} {_STEPS} regularization_without_mask model_without_mask transposed_without_dilation",
        ),
        (
            "2.0.8-tf",
            f"{_2_4_0} {_STEPS} dot_of_leading_axes stacked_states_reversed regularization_without_mask "
            "time_distributed_without_mask transposed_without_dilation transposed_as_convolution",
        ),
        ("2.2.4.13-tf", f"{_2_2_4} regularization_without_mask model_without_mask last_output_of_padding"),
        ("2.2.4.15-tf", _2_2_4),
        ("2.4.0", _2_4_0),
        ("2.9.0", f"epsilon_of_cudnn epsilon_of_cudnn_in_films attention_without_mask {_GROUPS}"),
        ("2.12.0", _GROUPS),
        ("2.14.0", ""),
        ("3.0.5", " ".join(KERAS_3)),
        ("3.4.0", "softmax_of_padding given_mask_ends"),
        ("3.10.0", "given_mask_ends"),
        ("3.11.0", ""),
        ("", ""),
    ],
)
def test_differences_are_those_of_a_version(version: str, names: str) -> None:
    writer = versions.Writer(version, versions.numbers(version), None)
    found = [difference.name for difference in differences.of_writer(writer)]
    assert sorted(found) == sorted(names.split())


_LATER = "the file may be of a later one, and is computed so; compare with verify --golden"
_ELSE = "compare with verify --golden where it was another"


@pytest.mark.parametrize(
    ("writer", "case", "note"),
    [
        (
            *("tf.keras-1.13.2", "between_ActivityRegularization"),
            f"activity_regularization: TensorFlow 1.13 lets no mask pass an ActivityRegularization; {_LATER}",
        ),
        (
            *("tf.keras-1.14.0", "nested_model_makes_mask"),
            f"inner: TensorFlow 1.13 lets no mask come out of a model inside a model; {_LATER}",
        ),
        (
            *("tf.keras-1.14.0", "UpSampling2D_bilinear"),
            "up_sampling2d: Keras 2.2.4-tf does not save the interpolation of a UpSampling2D, "
            f"which is read as nearest; {_ELSE}",
        ),
        (
            *("tf.keras-1.4.1", "SeparableConv2D_dilation_same"),
            "separable_conv2d_1: Keras 2.0.8-tf does not save the dilation_rate of a SeparableConv2D, "
            f"which is read as 1; {_ELSE}",
        ),
        ("tf.keras-1.15.5", "UpSampling2D_bilinear", None),
        pytest.param("tf.keras-1.15.5", "between_ActivityRegularization", None, marks=pytest.mark.every),
        pytest.param("tf.keras-1.8.0", "SeparableConv2D_dilation_same", None, marks=pytest.mark.every),
    ],
)
def test_what_a_file_does_not_tell_is_noted(writer: str, case: str, note: str | None, tmp_path: Path) -> None:
    source = keras_census.read(keras_census.case(writer, case), tmp_path)
    for traced in (trace.trace_part(source), trace.trace_model(source)):  # for formats of layers, of graphs
        assert traced.notes == ((note,) if note else ())


@pytest.mark.slow("cudnn_convert/keras/", "cudnn_convert/private/")
@pytest.mark.parametrize("writer", sorted(keras_census.WRITERS))
def test_each_case_of_the_census_answers_as_its_writer(writer: str) -> None:
    outcomes = keras_census.check(writer)
    others = {name: text for name, text in outcomes.items() if not keras_census.is_known(writer, name, text)}
    assert not others
