"""Which files stand for a source of arrays, and what becomes of arrays without known names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.command_line import refused

from cudnn_convert import inspect
from cudnn_convert.errors import ReadError
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
