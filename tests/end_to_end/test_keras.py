"""Every genuine Keras file, in every format, against the answers of that Keras' own CPU layers.

The artifacts run where their users run them: TensorFlow 2, ONNX Runtime alone, Keras 3, tf_keras, each
without cudnn_convert.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import artifacts, user_processes
from support.keras_samples import KERAS_FIXTURES, KerasFixture, keras_fixture
from support.samples import EVERY, REAL, WITH_ALL, fixture

import cudnn_convert
from cudnn_convert.artifacts import origin
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError, VerificationError

FORMATS = ("savedmodel", "frozen", "onnx", "keras", "h5")
WHOLE = [
    found for found in KERAS_FIXTURES if found.case["architecture"] or "weights" not in found.folder.name
]
CODE = [found for found in WHOLE if any(word in found.folder.name for word in ("lambda", "pwned"))]
_CUSTOM = [found for found in WHOLE if found.folder.name == "custom_layer"]
PLAIN = [found for found in WHOLE if found not in CODE + _CUSTOM]
#: Of the oldest writer alone: what a class of the user's own meets does not hang on who wrote the file.
CUSTOM = _CUSTOM if EVERY else _CUSTOM[:1]
ONCE = {found.folder.name: found for found in reversed(PLAIN)}
#: For formats that share a graph with the one that all go to.
MAIN = (
    "sequential_lstm",
    "stacked",
    "bidirectional",
    "siamese",
    "encoder_decoder",
    "stateful_gru",
    "float64",
)


#: For Keras' own formats, which test_keras_artifacts.py judges on all, and for a graph that another format
#: shares.
LAYERS = ("stacked", "bidirectional", "stateful_gru")


def chosen(form: str) -> list[KerasFixture]:
    """The samples that go to a format."""
    found = PLAIN if EVERY else [*ONCE.values()]
    if not EVERY and form != WITH_ALL:
        found = [ONCE[name] for name in (LAYERS if form in ("keras", "h5", "frozen") else MAIN)]
    return [sample for sample in found if fits(sample, form)]


def fits(sample: KerasFixture, form: str) -> bool:
    """Keras 3 has no layer whose first axis is time; `predict` of tf_keras takes that axis for its batch."""
    return not (form in ("keras", "h5") and sample.folder.name == "time_major")


def converted(
    sample: KerasFixture, form: str, folder: Path, **options: Any
) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    """Converts a sample; gives the report and the user's job."""
    out = folder / f"{sample.name}-{form}"
    given = {} if sample.architecture is None else {"architecture": sample.architecture}
    report = cudnn_convert.convert(sample.path, out, format=form, **given, **options)
    _, path, recorded = origin.identify(out)
    assert recorded is not None
    tensors = recorded["tensors"]
    names = {
        kind: {key: {"source": key, "artifact": tensors[kind][key]} for key in tensors[kind]}
        for kind in ("inputs", "outputs")
    }
    shapes = _state_shapes(path, form, [key for key in report.inputs if f"{key}_next" in report.outputs])
    states = {
        key: {"next": f"{key}_next", "shape": shape, "dtype": "float32"} for key, shape in shapes.items()
    }
    golden, answers = str(sample.folder / "golden.npz"), str(folder / f"{sample.name}.npz")
    job = {"artifact": str(path), "format": form, "golden": golden, "answers": answers, "states": states}
    return report, {**job, **names}


def _state_shapes(path: Path, form: str, keys: list[str]) -> dict[str, list[int]]:
    """What the artifact itself says of the states that it takes."""
    if not keys:
        return {}
    if form == "onnx":
        import onnx

        given = {found.name: found for found in onnx.load(str(path)).graph.input}
        dims = {key: given[key].type.tensor_type.shape.dim for key in keys}
        return {key: [dim.dim_value for dim in found] for key, found in dims.items()}
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    nodes = {node.name.replace("/", "_"): node for node in graph.node if node.op == "Placeholder"}
    return {key: [dim.size for dim in nodes[key].attr["shape"].shape.dim] for key in keys}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory):
    """All samples in one format, converted once: `[format][name] -> (report, job)`."""
    made: dict[str, dict] = {}

    def of(form: str) -> dict:
        if form not in made:
            folder = tmp_path_factory.mktemp(form)
            made[form] = {one.name: converted(one, form, folder) for one in chosen(form)}
            artifacts.answer([job for _, job in made[form].values()])
        return made[form]

    return of


@pytest.mark.parametrize(
    ("form", "sample"),
    [
        pytest.param(form, sample, marks=pytest.mark.xdist_group(f"keras-{form}"), id=f"{form}-{sample.name}")
        for form in FORMATS
        for sample in chosen(form)
    ],
)
def test_answers_as_keras_did(everything, form: str, sample: KerasFixture) -> None:
    report, job = everything(form)[sample.name]
    case = sample.case
    assert [key for key in report.inputs if key not in job["states"]] == case["inputs"]
    ends = {state["next"] for state in job["states"].values()}
    assert [key for key in report.outputs if key not in ends] == case["outputs"]
    assert bool(ends) == (case["stateful"] and form in ("frozen", "onnx"))
    assert report.verification is not None
    compared(job, sample, case["outputs"])


def compared(job: dict[str, Any], sample: KerasFixture, outputs: list[str]) -> None:
    with np.load(job["answers"]) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key in outputs:
                found = answers[f"feed{number}/{key}"]
                bound = 1e-12 if found.dtype == np.float64 and job["format"] != "onnx" else 1e-5
                assert artifacts.within(found, feed[key], atol=bound, rtol=bound) <= 1


@pytest.mark.parametrize("sample", chosen(WITH_ALL), ids=lambda sample: sample.name)
@pytest.mark.xdist_group(f"keras-{WITH_ALL}")
def test_says_what_the_recurrences_are(everything, sample: KerasFixture) -> None:
    report, _ = everything(WITH_ALL)[sample.name]
    keys = ("mode", "units", "input_size")
    found = {tuple(getattr(recurrence, key) for key in keys) for recurrence in report.recurrences}
    assert found == {tuple(recurrence[key] for key in keys) for recurrence in sample.case["recurrences"]}
    assert {recurrence.directions for recurrence in report.recurrences} == {1}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sample", CUSTOM, ids=lambda sample: sample.name)
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


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize("sample", CUSTOM, ids=lambda sample: sample.name)
def test_unverified_it_goes_as_it_is(tmp_path: Path, sample: KerasFixture, form: str) -> None:
    report, job = converted(sample, form, tmp_path, verify=False)
    assert "loading needs custom_objects with Scale" in report.notes
    kept = (
        "scale_in, scale_out: weights are kept as variables of the class itself, in the order that the source"
    )
    assert any(note.startswith(kept) for note in report.notes) == (form == "keras")
    answered_with_scale(job, sample, tmp_path)


def answered_with_scale(job: dict[str, Any], sample: KerasFixture, folder: Path) -> None:
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


@pytest.mark.parametrize("brought", [[], ["scale_for_tf_keras:Scale"], ["scale_for_keras:Scale"]])
@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize("sample", CUSTOM, ids=lambda sample: sample.name)
def test_a_class_behind_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str, brought: list[str]
) -> None:
    monkeypatch.chdir(user_processes.FOLDER)
    sample = edited(sample, tmp_path, begun)
    report, job = converted(sample, form, tmp_path, custom_objects=brought)
    assert report.verification is not None
    assert report.verification.passed
    whole = form == "h5" and brought == ["scale_for_tf_keras:Scale"]
    assert [*report.outputs] == (sample.case["outputs"] if whole else ["start"])
    told = "only what stands before the first of these is verified: scale_in, scale_out"
    assert (told in report.notes) != whole
    (given,) = job["inputs"]
    job["inputs"] = {given: {"source": sample.case["inputs"][0], "artifact": given}}
    answered_with_scale(job, sample, tmp_path)


@pytest.mark.parametrize("form", ["keras", "h5"])
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


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sample", CODE, ids=lambda sample: sample.name)
def test_code_in_the_file_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if form in ("keras", "h5"):
        report = cudnn_convert.convert(sample.path, tmp_path / "out", format=form)
        assert "only what stands before the first of these is verified: code" in report.notes
        assert ("loading needs safe_mode=False" in report.notes) == (form == "keras")
        written = "3.7 or older" if sample.case["python"].startswith("3.6") else "3.11 or newer"
        assert any(f"its bytecode is of Python {written}, and" in note for note in report.notes)
        assert [*report.outputs] == ["before"]
        assert cudnn_convert.verify(sample.path, tmp_path / "out").passed
        assert {path.name for path in tmp_path.iterdir()} == {"out"}
        return
    with pytest.raises(UnsupportedModelError, match=r"layer code: expected a layer of Keras.*Lambda"):
        cudnn_convert.convert(sample.path, tmp_path / "out", format=form)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("trust", [False, True])
def test_code_runs_where_its_user_says_so(tmp_path: Path, trust: bool) -> None:
    sample = keras_fixture("tf_keras-2.21.0-lambda_harmless")
    if not sys.version.startswith(sample.case["python"].rpartition(".")[0]):
        pytest.skip("its bytecode is another Python's")
    report, job = converted(sample, "keras", tmp_path, trust=trust)
    assert [*report.outputs] == (sample.case["outputs"] if trust else ["before"])
    job["outputs"] = {key: {"source": key, "artifact": key} for key in sample.case["outputs"]}
    artifacts.answer([job | {"safe_mode": False}])
    compared(job, sample, sample.case["outputs"])


@pytest.mark.parametrize("form", FORMATS)
def test_code_in_a_file_of_keras_3_does_not_run_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    import keras

    monkeypatch.chdir(tmp_path)
    code = keras.layers.Lambda(lambda x: (Path("pwned").touch(), x)[1])
    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), code]).save(tmp_path / "source.keras")
    Path("pwned").unlink()  # Keras called it, to see what comes out
    if form in ("keras", "h5"):
        assert cudnn_convert.convert(tmp_path / "source.keras", tmp_path / "out", format=form).out is None
    told = (
        r"expected one of Keras 2, found Keras 3\." if form in ("keras", "h5") else "found Lambda, which runs"
    )
    with pytest.raises(UnsupportedModelError, match=told):
        cudnn_convert.convert(tmp_path / "source.keras", tmp_path / "out", format=form, force_convert=True)
    assert {path.name for path in tmp_path.iterdir()} == {"source.keras"}


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize("name", ["siamese", "stateful_lstm"])
def test_a_file_of_its_own_is_verified_again(tmp_path: Path, form: str, name: str) -> None:
    sample = keras_fixture(f"keras-2.2.4-{name}")
    artifact = tmp_path / f"model.{form}"
    cudnn_convert.convert(sample.path, artifact, format=form)
    assert artifact.is_file()
    assert cudnn_convert.verify(sample.path, artifact).passed


def test_a_swapped_gate_is_seen(tmp_path: Path) -> None:
    sample, artifact = keras_fixture("keras-2.2.4-siamese"), tmp_path / "model.h5"
    cudnn_convert.convert(sample.path, artifact, format="h5")
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
    with pytest.raises(ReadError, match=r"model\.keras: metadata\.json: expected a readable zip member"):
        cudnn_convert.verify(sample.path, artifact)


@pytest.mark.parametrize("form", ["keras", "h5"])
def test_layers_are_asked_for(out: Path, form: str) -> None:
    sample = keras_fixture("keras-2.2.4-weights_sequential")
    message = f"--format {form}: expected the layers of a Keras model, found Keras HDF5 file "
    with pytest.raises(UsageError, match=message + ".*; give --architecture, or choose savedmodel,"):
        cudnn_convert.convert(sample.path, out, format=form)


@pytest.mark.parametrize("flag", ["inputs", "outputs", "set"])
def test_layers_have_no_tensors(out: Path, flag: str) -> None:
    sample = keras_fixture("keras-2.2.4-siamese")
    with pytest.raises(UsageError, match=f"--{flag}: expected a format of graphs, found keras"):
        cudnn_convert.convert(sample.path, out, format="keras", **{flag: ["a:0"]})


def test_a_model_without_cudnn_layers_is_asked_about(tmp_path: Path) -> None:
    sample = keras_fixture("keras-2.2.4-siamese")
    cudnn_convert.convert(sample.path, tmp_path / "cpu.h5", format="h5")
    with pytest.raises(UnsupportedModelError, match=r"found no cuDNN layer; .*--allow-plain"):
        cudnn_convert.convert(tmp_path / "cpu.h5", tmp_path / "out")
    report = cudnn_convert.convert(tmp_path / "cpu.h5", tmp_path / "out", format="onnx", allow_plain=True)
    assert report.recurrences == ()


@pytest.mark.parametrize(("flag", "value"), [("custom_objects", ["os:getcwd"]), ("allow_plain", True)])
def test_flags_of_keras_need_keras(out: Path, flag: str, value: Any) -> None:
    with pytest.raises(UsageError, match="expected a Keras model, found"):
        cudnn_convert.convert(fixture("1.15.5-final_state_only").prefix, out, **{flag: value})


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
