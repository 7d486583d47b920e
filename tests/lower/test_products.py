"""A step's product and its bias are one op where an artifact runs, with oneDNN and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = Path(__file__).with_name("count_products.py")
#: A step of a GRU has one product with a bias and one without. The products with the input, two of them,
#: are taken once for all steps.
OF_INPUT: Final = 2
#: The loop's graph has ten steps of an iteration, one of the odd steps and a single step.
IN_LOOP: Final = 10 + 1 + 1
#: The SavedModel ran as many.
STEPS: Final = 21


@pytest.mark.parametrize("onednn", ["0", "1"], ids=["without_oneDNN", "with_oneDNN"])
def test_a_product_and_its_bias_are_one_op(onednn: str) -> None:
    """Counted are `_FusedMatMul` and `MatMul`, which oneDNN calls `_MklNativeFusedMatMul` and `_MklMatMul`.

    In the function of a branch, where the steps of the SavedModel stand, they keep their first names.
    """
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn, "TF_CPP_MIN_LOG_LEVEL": "3"}
    call = [sys.executable, str(PROGRAM), str(STEPS)]
    ended = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for counts, steps in zip(json.loads(ended.stdout), (IN_LOOP, STEPS), strict=True):
        products = {name: count for name, count in counts.items() if name.endswith("MatMul")}
        fused = sum(count for name, count in products.items() if name.endswith("FusedMatMul"))
        assert (fused, sum(products.values()) - fused) == (steps + OF_INPUT, steps)
        assert any(name.startswith("_Mkl") for name in products) == (onednn == "1")
        assert "BiasAdd" not in counts
