"""The recurrent layers of a Keras file, and the arrays of a file of weights, asked by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.samples import ROOT

import cudnn_convert
from cudnn_convert.errors import VerificationError

KERAS = ROOT / "tests/data/keras/keras-2.2.4"


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
@pytest.mark.first("keras-2.2.4/nested-keras-3")
@pytest.mark.parametrize(
    ("name", "form", "layers"),
    [
        ("keras-2.2.4/nested", "keras", 3),
        ("keras-2.2.4/go_backwards", "h5", 2),
        ("keras-2.2.4/time_distributed_layer", "keras", 1),
        ("tf.keras-1.15.5/time_major", "h5", 2),
    ],
)
def test_layers_are_asked_in_models_and_wrappers_and_whichever_way_they_go(
    name: str, form: str, layers: int, tmp_path: Path
) -> None:
    source = KERAS.parent / name / "model.h5"
    proof = cudnn_convert.convert(source, tmp_path / "out", format=form).verification
    assert proof is not None
    assert {one.asked for one in proof.recurrences} == {True}
    assert len({one.piece for one in proof.recurrences}) == layers
    assert max(one.needed for one in proof.recurrences) < 0.5
    assert min(one.weakest for one in proof.recurrences) >= 5  # type: ignore[type-var]


def test_a_single_weight_of_a_layer_is_seen(tmp_path: Path) -> None:
    source, out = KERAS / "sequential_lstm" / "model.h5", tmp_path / "out.h5"
    cudnn_convert.convert(source, out, format="h5", verify=False)
    with h5py.File(out, "r+") as file:
        found: list[Any] = []

        def look(name: str, one: Any) -> None:
            if name.endswith("recurrent_kernel:0"):
                found.append(one)

        file.visititems(look)
        value = found[0][...]
        value[2, 3] += 1e-3 * np.linalg.norm(value)
        found[0][...] = value
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    (wrong,) = [one for one in caught.value.report.recurrences if not one.passed]
    assert wrong.piece.endswith("cu_dnnlstm_1")


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/verification")
def test_arrays_are_asked_as_their_file_documents_them(tmp_path: Path) -> None:
    source, out = KERAS / "bidirectional" / "model.h5", tmp_path / "out.npz"
    proof = cudnn_convert.convert(source, out, format="npz").verification
    assert proof is not None
    assert [one.asked for one in proof.recurrences] == [True] * 4
    with np.load(out) as held:
        arrays = dict(held)
    key = next(key for key in arrays if key.endswith("/bias"))
    arrays[key] = np.ascontiguousarray(arrays[key][::-1])
    np.savez(out, **arrays)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert [one.passed for one in caught.value.report.recurrences].count(False) == 1
