"""The judge's own reading of a saver: genuine checkpoints whose keys a reader may mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import v1
from samples import fixture
from tables import save

import cudnn_convert
from cudnn_convert.errors import ReadError
from cudnn_convert.graph.index import Index
from cudnn_convert.model import BlobEvidence, Checkpoint
from cudnn_convert.plan.from_graph import plan_graph
from cudnn_convert.read import read, variable_keys
from cudnn_convert.verification import graph_judge

AVERAGES, TARGET = "1.15.5-averages_saver", "1.15.5-target_saver"


@pytest.mark.parametrize(
    ("name", "form"), [(AVERAGES, "savedmodel"), (AVERAGES, "onnx"), (TARGET, "savedmodel")]
)
def test_values_of_a_wrong_key_do_not_verify(
    out: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """A reader that takes each variable by its own name."""
    monkeypatch.setattr(variable_keys, "find", lambda meta, tensors: variable_keys.Values())
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.convert(fixture(name).prefix, out, format=form, weights="raw")
    assert not out.exists()


def test_what_the_reader_took_rightly_is_left_to_it() -> None:
    plan = plan_graph(read(fixture(AVERAGES).prefix))
    judged = graph_judge.with_restored_values(plan)
    assert judged.model.variables == plan.model.variables
    key = "cudnn_lstm/opaque_kernel/ExponentialMovingAverage"
    for one in (plan, judged):
        (recurrence,) = one.recurrences
        assert isinstance(recurrence.evidence, BlobEvidence)
        np.testing.assert_array_equal(recurrence.evidence.blob, plan.model.variables[key].read())


def test_averages_that_are_asked_for_overrule_the_saver() -> None:
    plan = plan_graph(read(fixture("1.15.5-moving_average").prefix), weights="ema")
    assert graph_judge.with_restored_values(plan) is plan


def test_a_note_names_the_keys() -> None:
    (note,) = (one for one in read(fixture(TARGET).prefix).notes if "saver" in one)
    assert "target/values/kernel from online/values/kernel" in note


def entries(tmp_path: Path, meta: Any) -> dict[str, tuple[str, str]]:
    found = graph_judge._entries(Checkpoint(meta, tmp_path / "model.ckpt"))
    return {name: (entry.key, entry.slices) for name, entry in found}


def saver() -> Any:
    """The MetaGraph of a saver of `{"a": w}`; the variable is a resource."""
    with v1.Graph().as_default():
        w = v1.get_variable("w", [2], use_resource=True)
        return v1.train.Saver({"a": w}).export_meta_graph()


def test_the_names_that_the_restore_op_is_given(tmp_path: Path) -> None:
    assert entries(tmp_path, saver()) == {"w": ("a", "")}


def test_names_that_more_than_arithmetic_makes_are_not_evaluated(tmp_path: Path) -> None:
    meta = saver()
    node = next(node for node in meta.graph_def.node if node.name.endswith("RestoreV2/tensor_names"))
    node.op = "ReadFile"
    node.ClearField("attr")
    node.input.append("save/Const")
    assert entries(tmp_path, meta) == {}


def test_a_graph_without_its_saver_says_nothing(tmp_path: Path) -> None:
    meta = saver()
    meta.ClearField("saver_def")
    assert entries(tmp_path, meta) == {}
    assert Index(meta.graph_def).nodes


def test_an_entry_that_tensorflow_cannot_read(tmp_path: Path) -> None:
    prefix = save(tmp_path / "a", [("w", np.ones(2, np.float32))])
    with pytest.raises(ReadError, match="tensor lost: expected an entry that TensorFlow restores"):
        graph_judge._read(prefix, graph_judge._Entry("lost", ""))
