"""Reports of recurrences, states and decoders of a model."""

from __future__ import annotations

import json

import numpy as np
from support.graphs import BLOB
from support.reports import made


def test_a_recurrence_in_the_report() -> None:
    (found,) = json.loads(made().to_json())["recurrences"]
    assert found == {
        "node": "rnn", "op": "CudnnRNN", "mode": "lstm", "layers": 1, "directions": 1, "units": 2,
        "input_size": 3, "dtype": "float32", "weights": "raw",
    }  # fmt: skip
    assert np.float32 == BLOB.dtype
