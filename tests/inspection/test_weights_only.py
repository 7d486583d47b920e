"""Which tensors of a file hold the weights of recurrences, listed without reading them."""

from __future__ import annotations

from typing import Any

from support.samples import fixture

from cudnn_convert.inspection import weights_only
from cudnn_convert.read import read
from cudnn_convert.read.tensorbundle import CheckpointTensor


def test_the_tensors_of_a_canonical_set_are_listed_without_reading_them(monkeypatch: Any) -> None:
    model = read(fixture("1.15.5-gru_bi").folder / "model.ckpt")

    def read_values(_: Any) -> Any:
        raise AssertionError("an inspection reads no values for a list of keys")

    monkeypatch.setattr(CheckpointTensor, "read", read_values)
    ((scope, tensors),) = weights_only.canonical_tensors(model).items()
    under = {key: tensor for key, tensor in model.variables.items() if "cudnn_compatible_gru_cell" in key}
    assert scope and len(tensors) > 1
    assert {each.name: each.shape for each in tensors} == {key: each.shape for key, each in under.items()}
