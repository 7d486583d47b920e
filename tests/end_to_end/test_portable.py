"""Sources that run on a CPU as they are: said, left alone, and copied or exported where that is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import asking_keras
from support.command_line import command
from support.keras_files import entry
from support.samples import ROOT
from support.tiers import tier

import cudnn_convert

EXPORTS = ROOT / "tests" / "data" / "keras3_exports"
PORTABLE = sorted(EXPORTS.glob("tf_keras-*/portable*/saved_model"))
ARCHIVES = sorted(EXPORTS.glob("keras-*/archive/*.keras"))


def sources(first: str) -> list[Any]:
    """The SavedModels as parameters; one is of the first tier."""
    return [
        pytest.param(path, marks=tier(first=path.parent.name == first), id=path.parent.name)
        for path in PORTABLE
    ]


SOURCES = [*((path, "savedmodel") for path in PORTABLE), *((path, "keras") for path in ARCHIVES)]


@pytest.mark.parametrize(
    ("source", "form"), SOURCES, ids=lambda value: getattr(value, "parts", [value])[-3:][0]
)
def test_it_is_said_and_left_alone(tmp_path: Path, source: Path, form: str) -> None:
    out = tmp_path / "out"
    ended = command(source, out, "--format", form)
    assert (ended.code, ended.stdout) == (0, "portable already\n")
    note = "note: portable already: nothing reaches a cuDNN op, so nothing was written"
    assert note in ended.stderr
    assert not out.exists()


@pytest.mark.slow("cudnn_convert/graph/passes", "cudnn_convert/verification")
def test_states_of_an_archive_are_written(tmp_path: Path) -> None:
    report = cudnn_convert.convert(ARCHIVES[0], tmp_path / "out", states=True)
    assert report.verification is not None
    assert report.verification.streaming is not None
    assert {"stream", "serving_default"} <= {*tf.saved_model.load(tmp_path / "out").signatures}


def test_the_report_says_so_too(tmp_path: Path) -> None:
    ended = command(PORTABLE[0], tmp_path / "out", "--json", "--quiet")
    assert ended.code == 0
    report = json.loads(ended.stdout)
    assert report["out"] is None
    assert report["verification"] is None


@pytest.mark.slow("cudnn_convert/pipeline.py")
@pytest.mark.parametrize("source", sources("portable_masked"))
def test_a_copy_is_made_where_one_is_wanted(tmp_path: Path, source: Path) -> None:
    report = cudnn_convert.convert(source, tmp_path / "out", force_convert=True)
    assert report.verification is not None
    assert report.verification.passed
    for name in ("variables/variables.index", "variables/variables.data-00000-of-00001"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert cudnn_convert.verify(source, tmp_path / "out").passed


@pytest.mark.first("portable-frozen")
@pytest.mark.parametrize("form", ["frozen", "onnx"])
@pytest.mark.parametrize("source", sources("portable"))
def test_other_formats_are_made_of_it(tmp_path: Path, source: Path, form: str) -> None:
    report = cudnn_convert.convert(source, tmp_path / "out", format=form)
    assert report.verification is not None
    assert report.verification.passed


def test_a_model_of_tensorflow_2_without_recurrences(tmp_path: Path) -> None:
    module = tf.Module()
    module.scale = tf.Variable(2.0)
    module.call = tf.function(lambda x: x * module.scale, [tf.TensorSpec([None])])
    source = tmp_path / "source"
    tf.saved_model.save(module, str(source), signatures=module.call.get_concrete_function())
    assert cudnn_convert.convert(source, tmp_path / "out").out is None
    report = cudnn_convert.convert(source, tmp_path / "out", force_convert=True)
    assert report.out is not None
    loaded = tf.saved_model.load(report.out)
    np.testing.assert_array_equal(loaded.call(tf.constant([3.0])), [6.0])


def test_what_it_has_already_is_not_advised(tmp_path: Path) -> None:
    """An HDF5 file without cuDNN layers is told of another format than its own, an archive too."""
    of_cudnn = asking_keras.behind(entry("ThresholdedReLU", "last", theta=0.1))
    for source, form, advised in (
        (of_cudnn, "keras", "h5"),
        (asking_keras.plain(of_cudnn), "keras", "savedmodel"),
        (asking_keras.keras_3, "h5", "keras"),
        (asking_keras.archive, "h5", "savedmodel"),
    ):
        ended = command(source(tmp_path), tmp_path / "out", "--format", form)
        assert ended.code == 1
        assert re.findall(r"--format (\w+)", ended.stderr) == [advised]
