"""The table of operators is that of the package tflite-micro."""

from __future__ import annotations

import pytest
from support import micro_models

from cudnn_convert.apart import Apart
from cudnn_convert.artifacts import micro, tflite
from cudnn_convert.artifacts.micro_operators import METHODS


@pytest.mark.skipif(
    not micro.is_available(), reason="tflite-micro is not installed; the extra `micro` has it"
)
def test_the_table_has_the_operators_of_the_package() -> None:
    """The interpreter looks up all operators of a file, in order, before it prepares the first."""
    process = Apart(lambda: lambda name: micro._open(micro_models.of_operators(name, "POW"), 1 << 16), 60)
    known = set()
    for name in vars(tflite.schema.BuiltinOperator):
        if name.isupper() and name != "CUSTOM":
            with pytest.raises(
                RuntimeError, match=f"^Didn't find op for builtin opcode '({name}|POW)'"
            ) as caught:
                process.run(name)
            if f"'{name}'" not in str(caught.value):
                known.add(name)
    assert known == METHODS.keys()
