"""Weights that stay in their file until they are written: limits lowered, TensorFlow 1's answers as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end.test_graphless import ALONE, keyed, without_graph
from support import artifacts
from support.recorded import BOUNDS, assert_close
from support.samples import fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.targets import bundle
from cudnn_convert.weights import lazy

WITH_GRAPH = (
    "1.15.5-lstm_bi_2l_states",
    "1.15.5-gru_uni_2l",
    "1.8.0-rnn_tanh_bi_2l",
    "1.15.5-raw_only",
    "1.15.5-lstm_float16",
)
WITHOUT = ("1.15.5-lstm_bi_2l_states", "1.15.5-gru_uni_2l", "1.15.5-raw_only", "1.3.0-params_lstm_2l")


@pytest.fixture(autouse=True)
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recurrence is large, every tensor has a data file of its own."""
    monkeypatch.setattr(lazy, "LARGE", 0)
    monkeypatch.setattr(bundle, "_SHARD", 1)


def answer(job: dict[str, Any], feeds: list[dict[str, np.ndarray]], bound: float) -> None:
    """Runs the user's job and compares what the feeds know of its outputs, by the source's names."""
    artifacts.answer([job])
    with np.load(job["answers"]) as found:
        for number, feed in enumerate(feeds):
            known = {one["source"]: key for key, one in job["outputs"].items() if one["source"] in feed}
            assert known
            for source, key in known.items():
                assert_close(found[f"feed{number}/{key}"], feed[source], bound, name=key)


def cases(names: tuple[str, ...], first: str) -> list[Any]:
    """Samples in both formats; as SavedModels, whose variables lie in data files, one in the first tier."""
    return [
        pytest.param(form, name, marks=tier(first=form == "onnx" or name == first), id=f"{form}-{name}")
        for form in ("savedmodel", "onnx")
        for name in names
    ]


@pytest.mark.first("onnx-1.15.5-lstm_float16")
@pytest.mark.parametrize(("form", "name"), cases(WITH_GRAPH, "1.15.5-lstm_bi_2l_states"))
def test_large_weights_answer_as_tensorflow_1_did(form: str, name: str, tmp_path: Path) -> None:
    sample = fixture(name)
    report, job = artifacts.convert(sample, form, tmp_path)
    assert report.verification is not None and report.verification.passed
    assert all(one.asked for one in report.verification.recurrences)
    answer(job, sample.feeds(), BOUNDS["float16" if name.endswith("float16") else "float32"])


@pytest.mark.parametrize(("form", "name"), cases(WITHOUT, "1.3.0-params_lstm_2l"))
def test_large_weights_without_a_graph_do_too(form: str, name: str, tmp_path: Path) -> None:
    source, out = without_graph(fixture(name), tmp_path / "source"), tmp_path / "out"
    report = cudnn_convert.convert(source, out, format=form, **ALONE[name])
    assert report.verification is not None and report.verification.passed
    golden, feeds = tmp_path / "golden.npz", keyed(fixture(name))
    np.savez(golden, **{f"feed{n}/{key}": v for n, feed in enumerate(feeds) for key, v in feed.items()})
    if form == "savedmodel":
        assert len([*(out / "variables").glob("*.data-*")]) > 1
        assert sorted(path.name for path in (out / "variables").iterdir())[-1] == "variables.index"
    (job,) = artifacts.jobs_of_parts(out, form, golden, tmp_path / "answers")
    answer(job, feeds, 1e-5)


@pytest.mark.parametrize("form", ["savedmodel", "onnx"])
def test_what_is_no_number_is_told_once_it_was_read(form: str, tmp_path: Path) -> None:
    source, out = holding_nan(tmp_path), tmp_path / "out"
    report = cudnn_convert.convert(source, out, format=form, verify=False)
    (told,) = [note for note in report.notes if "NaN" in note]
    assert told == "cudnn_gru/CudnnRNN: weights hold NaN or infinite values, and are converted as they are"


def holding_nan(folder: Path) -> Path:
    """The prefix of a checkpoint whose last layer has one value that is no number."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(fixture("1.15.5-gru_uni_2l").prefix))
    names = [name for name in reader.get_variable_to_shape_map() if "/cell_" in name]
    arrays = {name: reader.get_tensor(name) for name in names}
    (last,) = [name for name in names if name.endswith("cell_1/cudnn_compatible_gru_cell/gates/kernel")]
    arrays[last][1, 2] = np.nan
    prefix = str(folder / "model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(arrays[name]) for name in names],
    )
    return Path(prefix)
