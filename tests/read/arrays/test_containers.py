"""Which files stand for a source of arrays, and what becomes of arrays without known names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.command_line import refused

import cudnn_convert
from cudnn_convert import inspect
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError
from cudnn_convert.model import InMemory
from cudnn_convert.read import digest_files, files, is_model, read
from cudnn_convert.read.arrays import containers


def test_a_vector_alone_is_a_blob_whose_sizes_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "weights.npy"
    np.save(path, np.random.default_rng(1).normal(size=312).astype(np.float32))
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line.startswith(
        f"{path}: weights: a blob of 312 values without its graph: name --mode, --layers, "
    )
    assert "--mode gru --layers 1 --units 8 --directions 1 (input size 3)" in line
    assert [each.raw[0].name for each in inspect(path).recurrences] == ["weights"]
    model = read(path)
    assert [*model.blobs] == ["weights"]
    assert not is_model(path), "a vector may be anything, so that a batch leaves it"


@pytest.mark.parametrize(("size", "names"), [(3, []), (4, ["weights"])])
def test_the_smallest_blob(tmp_path: Path, size: int, names: list[str]) -> None:
    """An RNN of one unit and one input has two weights and two biases."""
    np.save(tmp_path / "weights.npy", np.ones(size, np.float32))
    assert [*read(tmp_path / "weights.npy").blobs] == names


def test_weights_alone_may_run_on_a_cpu_and_plain_layers_are_named(tmp_path: Path) -> None:
    drawn = np.ones([3, 20], np.float32), np.ones([5, 20], np.float32), np.ones(20, np.float32)
    names = ("kernel", "recurrent_kernel", "bias")
    path = tmp_path / "weights.npz"
    np.savez(path, **{f"net/{name}": array for name, array in zip(names, drawn, strict=True)})
    model = read(path)
    assert not model.graphless.needs_gpu
    assert len(model.plain.layers) == 1
    assert containers.list_folder(tmp_path / "missing", ".npz", alone=False) is None


def test_a_vector_beside_other_arrays_is_a_bias_unless_flags_fit_it(tmp_path: Path) -> None:
    path = tmp_path / "dense.npz"
    np.savez(path, kernel=np.ones([3, 312], np.float32), bias=np.ones(312, np.float32))
    assert not read(path).blobs
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    expected = (
        "expected weights under names that a framework gives them, or a parameter blob, found none of them"
    )
    assert line.startswith(f"{path}: {expected}")


def test_a_name_in_two_files_is_refused() -> None:
    one = {"x": InMemory(np.ones(2))}
    with pytest.raises(ReadError, match="x: expected one array of this name, found two, in two files"):
        containers.join(Path("folder"), [one, {"y": InMemory(np.ones(3))}, one])


def test_a_folder_of_arrays_is_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in ("weight_ih_l0", "weight_hh_l0"):
        np.save(folder / f"{name}.npy", np.ones([4 * 3, 3], np.float32))
    assert files(folder)[1:] == [folder / "weight_hh_l0.npy", folder / "weight_ih_l0.npy"]
    assert sorted(digest_files(folder)) == ["weight_hh_l0.npy", "weight_ih_l0.npy"]
    ((module),) = read(folder).canonical
    assert (module.units, module.dialect) == (3, "torch")
    assert is_model(folder)
    (folder / "notes.txt").write_text("beside")
    assert not is_model(folder), "a folder of .npy holds nothing else"


def test_a_model_beside_arrays_is_the_model(tmp_path: Path) -> None:
    """A folder may hold a checkpoint and what was made of it."""
    from support.samples import fixture

    sample = fixture("1.15.5-gru_bi")
    for file in sample.folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    from safetensors.numpy import save_file

    save_file({"x": np.ones(3, np.float32)}, tmp_path / "beside.safetensors")
    assert read(tmp_path).kind == "TensorFlow 1 checkpoint"


def test_an_array_in_pieces_has_the_type_of_the_model() -> None:
    """CNTK stores float16 as float32."""
    stored = np.arange(6, dtype="<f4")
    pieces = (stored[:2].tobytes(), stored[2:].tobytes())
    array = containers.PackedTensor(pieces, stored.dtype, (2, 3), np.dtype("<f2")).read()
    assert array.dtype == np.dtype("<f2")
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])


def test_an_array_lies_behind_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"abc" + np.arange(7, dtype="<f4").tobytes())
    array = containers.StoredTensor(path, 3, (2, 3), np.dtype("<f4")).read()
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_MOST", 3)
    for number in range(4):
        np.save(tmp_path / f"a{number}.npy", np.ones(3, np.float32))
    with pytest.raises(ReadError, match="folder: expected at most 3 files, found more"):
        read(tmp_path)


def test_hidden_files_and_folders_are_no_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "weight_ih_l0.npy", np.ones([12, 3], np.float32))
    np.save(tmp_path / "weight_hh_l0.npy", np.ones([12, 3], np.float32))
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert len(read(tmp_path).canonical) == 1
    (tmp_path / "more.npy").mkdir()
    assert not is_model(tmp_path)


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for name, save in (("a.npz", np.savez), ("a.safetensors", None)):
        path = tmp_path / name
        values = {"weight_ih_l0": np.ones([12, 3], np.float32), "weight_hh_l0": np.ones([12, 3], np.float32)}
        save(path, **values) if save else save_file(values, path)
        model = read(path)
        values = {key: np.zeros([28, 7], np.float32) for key in values}
        save(path, **values) if save else save_file(values, path)
        with pytest.raises(ReadError, match="file: expected the file as it was opened, found a changed one"):
            model.variables["weight_ih_l0"].read()


def test_flags_describe_what_names_leave_open(tmp_path: Path) -> None:
    """A plain RNN beside an LSTM: --mode is the RNN's, and --signature takes one without the other."""
    path, rng = tmp_path / "w.npz", np.random.default_rng(2)
    values = {}
    for name, rows in (("lstm", 12), ("rnn", 3)):
        for key in ("weight_ih_l0", "weight_hh_l0"):
            values[f"{name}.{key}"] = rng.normal(size=(rows, 3)).astype(np.float32)
    np.savez(path, **values)
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert "rnn: keys and shapes fit" in line
    assert inspect(path).candidates, "a command for tanh and one for relu"
    both = cudnn_convert.convert(path, tmp_path / "both", format="onnx", mode="rnn_relu", verify=False)
    assert [each.mode for each in both.recurrences] == ["lstm", "rnn_relu"]
    alone = cudnn_convert.convert(path, tmp_path / "alone", format="onnx", signature="lstm", verify=False)
    assert [each.mode for each in alone.recurrences] == ["lstm"]
    with pytest.raises(UnsupportedModelError, match="expected the sizes that the flags say"):
        cudnn_convert.convert(path, tmp_path / "gru", format="onnx", mode="gru", signature="lstm")


def test_what_is_left_out_is_told_of_weights_too(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    values = {
        "a.weight_ih_l0": np.ones([12, 3]),
        "a.weight_hh_l0": np.ones([12, 3]),
        "fc.weight": np.ones([2, 3]),
    }
    np.savez(path, **values)
    report = cudnn_convert.convert(path, tmp_path / "b.npz", verify=False)
    assert [warning.partition("left out: ")[2] for warning in report.warnings] == ["fc.weight"]


@pytest.mark.parametrize("flag", [{"gate_order": "miopen"}, {"forget_bias": 1.0}])
def test_a_convention_of_tensorflow_is_refused(tmp_path: Path, flag: dict[str, object]) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, weight_ih_l0=np.ones([12, 3]), weight_hh_l0=np.ones([12, 3]))
    with pytest.raises(
        UsageError, match="expected weights of TensorFlow or a parameter blob, found file of NumPy"
    ):
        cudnn_convert.convert(path, tmp_path / "out", format="onnx", **flag)
