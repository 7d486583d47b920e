"""What a dialect decodes, against what the reference computes with from the same tensors."""

from __future__ import annotations

import numpy as np

from cudnn_convert import reference
from cudnn_convert.model import CanonicalParameters, Mode
from cudnn_convert.weights import lazy


def assert_decoded_as_the_reference(
    parameters: CanonicalParameters, dialect: str, mode: Mode, *, rtol: float = 0.0
) -> None:
    assert parameters.dialect == dialect
    assert {tensor.dtype for tensor in parameters.tensors.values()} == {parameters.dtype}
    stored = lazy.read(parameters.tensors)
    common = {"layers": parameters.layers, "directions": parameters.directions}
    steps = reference.DIALECTS[dialect](stored, mode.value, **common)
    cells = [cell for layer in parameters.decode(mode) for cell in layer]
    for step, cell in zip(steps, cells, strict=True):
        gates = step.gates()
        for field in ("kernel", "recurrent_kernel", "bias", "recurrent_bias"):
            np.testing.assert_allclose(
                np.stack(getattr(gates, field)), getattr(cell, field), rtol, err_msg=field
            )
        assert (cell.projection is not None) == (gates.projection is not None) == bool(parameters.projection)
        if cell.projection is not None and gates.projection is not None:
            np.testing.assert_array_equal(gates.projection, cell.projection)
