"""Keras's files read without building anything, and files that lie."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from keras_files import cudnn, entry, put, sequential, whole
from keras_samples import KERAS_FIXTURES, keras_fixture
from samples import REAL

from cudnn_convert.errors import AccessError, ReadError, UnsupportedModelError
from cudnn_convert.model import Mode
from cudnn_convert.read import keras_archive, keras_hdf5

RNG = np.random.default_rng(3)
LSTM = cudnn(RNG, 4, 3, 5, "fast/")
CONFIG = sequential(entry("CuDNNLSTM", "fast", units=3, batch_input_shape=[None, None, 5]))


@pytest.mark.parametrize("block", [0, 512, 4096])
@pytest.mark.parametrize("name", ["model.h5", "model.keras", "weights"])
def test_knows_hdf5_by_its_signature(tmp_path: Path, block: int, name: str) -> None:
    path = tmp_path / name
    with h5py.File(path, "w", userblock_size=block) as file:
        file.attrs["model_config"] = json.dumps(CONFIG)
        put(file.create_group("model_weights"), {"fast": LSTM})
    assert keras_hdf5.recognise(path) == path
    assert keras_archive.recognise(path) is None
    found = keras_hdf5.read(path).architecture
    assert found is not None
    np.testing.assert_array_equal(found.weights["fast"][2][1].read(), LSTM[2][1])


@pytest.mark.parametrize("content", [b"", b"\x89HDF", b"x" * 4096, b"PK\x03\x04" + b"x" * 100])
def test_other_files_are_not_keras(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(content)
    assert keras_hdf5.recognise(path) is None
    assert keras_archive.recognise(path) is None
    assert keras_hdf5.recognise(tmp_path) is None


def test_reads_attributes_that_are_bytes_or_divided(tmp_path: Path) -> None:
    path = whole(tmp_path / "a", CONFIG, {"fast": LSTM}, as_bytes=True)
    with h5py.File(path, "a") as file:
        group = file["model_weights"]
        names = list(group["fast"].attrs["weight_names"])
        del group["fast"].attrs["weight_names"], group.attrs["layer_names"]
        group["fast"].attrs["weight_names0"] = np.array(names[:2])
        group["fast"].attrs["weight_names1"] = np.array(names[2:])
        group.attrs["layer_names0"] = np.array([b"fast"])
    found = keras_hdf5.read(path).architecture
    assert found is not None
    assert [name for name, _ in found.weights["fast"]] == [name for name, _ in LSTM]
    assert found.keras_version == "2.2.4"
    assert found.config == CONFIG


def test_weights_alone_are_recurrences_named_after_their_layers(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    pair = [*cudnn(RNG, 3, 4, 6, "pair/forward_gru/"), *cudnn(RNG, 3, 4, 6, "pair/backward_gru/")]
    dense = [("kernel:0", np.ones((5, 12), np.float32)), ("bias:0", np.ones(12, np.float32))]
    with h5py.File(path, "w") as file:
        put(file, {"dense": dense, "rnn": cudnn(RNG, 4, 3, 5), "pair": pair})
    model = keras_hdf5.read(path)
    assert model.graph is None and model.architecture is None
    found = [(one.scope, one.modes, one.directions, one.units, one.input_size) for one in model.canonical]
    assert found == [("rnn/", (Mode.LSTM,), 1, 3, 5), ("pair/", (Mode.GRU,), 2, 4, 6)]
    np.testing.assert_array_equal(model.canonical[1].tensors()["backward_layer/bias"], pair[5][1])


def test_weights_take_their_architecture_from_json(tmp_path: Path) -> None:
    path, told = tmp_path / "weights", tmp_path / "model.json"
    with h5py.File(path, "w") as file:
        put(file, {"fast": LSTM})
    told.write_text(json.dumps({**CONFIG, "keras_version": "2.3.1", "backend": "tensorflow"}))
    found = keras_hdf5.with_architecture(keras_hdf5.read(path), told).architecture
    assert found is not None
    assert (found.keras_version, [*found.weights]) == ("2.3.1", ["fast"])
    told.write_text("[1]")
    with pytest.raises(ReadError, match=r"model.json: model.json: expected a JSON object, found list"):
        keras_hdf5.with_architecture(keras_hdf5.read(path), told)
    with pytest.raises(AccessError):
        keras_hdf5.with_architecture(keras_hdf5.read(path), tmp_path / "none.json")


def test_an_archive_says_what_its_hdf5_twin_says() -> None:
    for name in ("nested", "siamese", "bidirectional"):
        archive = keras_archive.read(keras_fixture(f"tf_keras-2.21.0-archive_{name}").path).architecture
        assert archive is not None
        sample = keras_fixture(f"tf_keras-2.21.0-{name}")
        twin = keras_hdf5.read(sample.path).architecture
        assert twin is not None
        shapes = [
            {layer: [tensor.shape for _, tensor in listed] for layer, listed in model.weights.items()}
            for model in (archive, twin)
        ]
        assert shapes[0] == shapes[1]


def broken(tmp_path: Path, change) -> Path:
    path = whole(tmp_path / "model.h5", CONFIG, {"fast": LSTM})
    with h5py.File(path, "a") as file:
        change(file)
    return path


def _external(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]
    file["model_weights/fast/fast/bias:0"] = h5py.ExternalLink("/etc/passwd", "/")


def _soft(file: h5py.File) -> None:
    del file["model_weights/fast"]
    file["model_weights/fast"] = h5py.SoftLink("/model_weights/fast")


def _outside(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]
    group = file["model_weights/fast/fast"]
    group.create_dataset("bias:0", (24,), "f4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def _huge(file: h5py.File) -> None:
    del file["model_weights/fast/fast/kernel:0"]
    shape = (1 << 20, 1 << 20)
    file["model_weights/fast/fast"].create_dataset("kernel:0", shape, "f4", chunks=(1024, 1024))


def _missing(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]


def _group(file: h5py.File) -> None:
    _missing(file)
    file["model_weights/fast/fast"].create_group("bias:0")


def _nested(file: h5py.File) -> None:
    file.attrs["model_config"] = "[" * 60000


def _nameless(file: h5py.File) -> None:
    del file["model_weights"].attrs["layer_names"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_external, "expected an object in the file itself, found a link that leads elsewhere"),
        (_soft, "expected an object in the file itself, found a link that leads elsewhere"),
        (_outside, "expected values in the file itself, found values in another file"),
        (_huge, "bytes of values, found 0 bytes stored"),
        (_missing, "expected an object in the file itself, found nothing"),
        (_group, "expected an array, found a group"),
        (_nested, "expected JSON, found"),
        (_nameless, "expected layer_names, as Keras writes, found fast"),
    ],
)
def test_a_file_that_lies_is_refused_in_one_line(tmp_path: Path, change, told: str) -> None:
    with pytest.raises(ReadError) as caught:
        keras_hdf5.read(broken(tmp_path, change))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_in_a_circle_end(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file.create_group("around")["back"] = file["/"]
        file["around/data"] = np.arange(3)

    found = keras_hdf5.read(broken(tmp_path, change)).architecture
    assert found is not None
    assert [name for name in found.extras if "around" in name] == ["around/data"]


@pytest.mark.parametrize("size", [64, 1000, 4000])
def test_a_truncated_file_is_refused_in_one_line(tmp_path: Path, size: int) -> None:
    path = whole(tmp_path / "model.h5", CONFIG, {"fast": LSTM})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ReadError, match=r"expected a readable HDF5 file, found \S") as caught:
        keras_hdf5.read(path)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_never_meet_another_error(tmp_path: Path) -> None:
    content = whole(tmp_path / "model.h5", CONFIG, {"fast": LSTM}).read_bytes()
    path = tmp_path / "flipped.h5"
    for _ in range(150):
        changed = bytearray(content)
        for place in RNG.integers(8, len(content), 20):
            changed[place] ^= int(RNG.integers(1, 256))
        path.write_bytes(bytes(changed))
        try:
            found = keras_hdf5.read(path).architecture
            for listed in found.weights.values() if found else ():
                for _, tensor in listed:
                    tensor.read()
        except (ReadError, UnsupportedModelError) as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("member", ["config.json", "model.weights.h5"])
def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path, member: str) -> None:
    source = keras_fixture("tf_keras-2.21.0-archive_siamese").path
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            content = archive.read(name)
            made.writestr(name, content[: len(content) // 2] if name == member else content)
    with pytest.raises(ReadError) as caught:
        keras_archive.read(path)
    assert member in str(caught.value) and "\n" not in str(caught.value)


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    """Reading every sample, those with code in them too, imports no TensorFlow and no Keras."""
    listed = [
        str(sample.path) for sample in KERAS_FIXTURES if "pwned" in sample.name or "custom" in sample.name
    ]
    assert len(listed) >= 3
    script = (
        "import sys, importlib, pathlib, types\n"
        "package = types.ModuleType('cudnn_convert.read')\n"
        "import cudnn_convert\n"
        "package.__path__ = [str(pathlib.Path(cudnn_convert.__file__).parent / 'read')]\n"
        "sys.modules['cudnn_convert.read'] = package\n"
        "h5 = importlib.import_module('cudnn_convert.read.keras_hdf5')\n"
        "archive = importlib.import_module('cudnn_convert.read.keras_archive')\n"
        "from cudnn_convert.keras.config import classes, layer_tree\n"
        "for name in sys.argv[1:]:\n"
        "    path = pathlib.Path(name)\n"
        "    reader = archive if archive.recognise(path) else h5\n"
        "    held = layer_tree.below(reader.read(path).architecture.config)\n"
        "    assert not all(classes.is_keras_class(found) for _, found in held)\n"
        "assert not {'tensorflow', 'keras', 'tf_keras'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *listed], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not (REAL / "medaka").is_dir(), reason=f"no real models at {REAL}")
def test_real_files() -> None:
    path = REAL / "medaka" / "r941_min_high_g303_model.hdf5"
    found = keras_hdf5.read(path).architecture
    assert found is not None
    assert [*found.extras] == [
        "meta/feature_encoder",
        "meta/label_scheme",
        "meta/model_function",
        "samples/registry",
    ]
    # They hold pickles: bytes is all that they are here.
    assert found.extras["meta/feature_encoder"].read().dtype.kind == "S"
    (path,) = (REAL / "textgenrnn").glob("*.hdf5")
    assert [(one.scope, one.units, one.input_size) for one in keras_hdf5.read(path).canonical] == [
        ("rnn_1/", 128, 100),
        ("rnn_2/", 128, 128),
    ]
