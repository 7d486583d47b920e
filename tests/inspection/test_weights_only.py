"""Which tensors of a file hold the weights of recurrences, listed without reading them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.samples import fixture

from cudnn_convert.inspection import weights_only
from cudnn_convert.read import read


@dataclass(frozen=True)
class Damaged:
    """A stored tensor whose shape is too large for any array."""

    shape: tuple[int, ...]
    dtype: type[np.float32] = np.float32

    def read(self) -> Any:
        raise AssertionError("an inspection reads no values for a list of keys")


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1,) * 100], ids=["elements", "axes"])
def test_a_canonical_set_with_an_impossible_shape_is_left_out(shape: tuple[int, ...]) -> None:
    model = read(fixture("1.15.5-gru_bi").folder / "model.ckpt")
    ((scope, tensors),) = weights_only.canonical_tensors(model).items()
    assert scope and len(tensors) > 1
    damaged = replace(model, variables={**model.variables, tensors[0].name: Damaged(shape)})
    assert weights_only.canonical_tensors(damaged) == {}
