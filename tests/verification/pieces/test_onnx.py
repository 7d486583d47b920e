"""The fused nodes of an ONNX file, wherever they stand: asked by themselves, by what the file says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.samples import fixture

import cudnn_convert
from cudnn_convert.errors import VerificationError

#: A root, two layers, two nodes for one layer of which one is in a loop, a branch, a projection.
NESTED = ("lstm_bi_2l_states", "while_refine", "cond", "op_proj_lstm", "v3_gru_lengths")
Changed = Callable[[np.ndarray], np.ndarray]


def converted(name: str, folder: Path, **flags: Any) -> tuple[Path, Path, Any]:
    sample = fixture(f"1.15.5-{name}")
    out = folder / "model.onnx"
    report = cudnn_convert.convert(sample.prefix, out, format="onnx", **sample.options | flags)
    return sample.prefix, out, report.verification


def changed(file: Path, change: Changed, place: int) -> None:
    """Changes one kind of weights of the last fused node, in whatever graph it stands."""
    model = onnx.load(str(file))
    graphs = [model.graph]
    for graph in graphs:
        graphs += [one.g for node in graph.node for one in node.attribute if one.HasField("g")]
    node = [node for graph in graphs for node in graph.node if node.op_type in ("LSTM", "GRU", "RNN")][-1]
    (tensor,) = [one for graph in graphs for one in graph.initializer if one.name == node.input[place]]
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    onnx.save(model, str(file))


def nudged(value: np.ndarray) -> np.ndarray:
    """One weight is off by a thousandth of its gate's norm."""
    made = value.copy()
    rows = value.shape[2]
    made[0, 1, 1] += 1e-3 * np.linalg.norm(value[0, :rows])
    return made


@pytest.mark.first("op_proj_lstm")
@pytest.mark.parametrize("name", NESTED)
def test_every_layer_is_asked_and_a_single_weight_is_seen(name: str, tmp_path: Path) -> None:
    source, out, proof = converted(name, tmp_path)
    assert all(one.asked for one in proof.recurrences)
    assert max(one.needed for one in proof.recurrences) < 0.5
    assert min(one.weakest for one in proof.recurrences) >= 5
    changed(out, nudged, 2)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    wrong = [one for one in caught.value.report.recurrences if not one.passed]
    assert wrong
    assert f"recurrence {wrong[0].node}, by itself: layer " in str(caught.value)


def test_a_file_that_does_not_say_where_is_not_asked(tmp_path: Path) -> None:
    source, out, _ = converted("gru_bi", tmp_path)
    model = onnx.load(str(out))
    entry = next(each for each in model.metadata_props if each.key == "cudnn_convert")
    said = json.loads(entry.value)
    assert [(one["node"], one["layer"]) for one in said["pieces"]] == [("cudnn_gru/CudnnRNN", 0)]
    for pieces, reason in (
        ([], "the file does not say which of its nodes computes it"),
        (
            [{"piece": "nowhere", "node": "cudnn_gru/CudnnRNN", "layer": 0}],
            "nowhere is no GRU, LSTM, RNN node",
        ),
        ("nonsense", "the file does not say which of its nodes computes it"),
    ):
        entry.value = json.dumps(said | {"pieces": pieces})
        onnx.save(model, str(out))
        (found,) = cudnn_convert.verify(source, out).recurrences
        assert not found.asked
        assert found.message.startswith(f"not asked by itself: {reason}")


def test_weights_that_are_stored_as_half_are_asked_as_they_are_read(tmp_path: Path) -> None:
    _, _, proof = converted("lstm_bi_2l_states", tmp_path, weights_dtype="float16")
    assert [one.asked for one in proof.recurrences] == [True, True]
    assert all(1e-3 < one.needed <= 1 for one in proof.recurrences)
