"""Options that mean something for models of some kinds alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.keras_samples import keras_fixture
from support.samples import fixture

from cudnn_convert.options import Options
from cudnn_convert.plan import applicable
from cudnn_convert.read import read

KERAS = keras_fixture("keras-2.2.4-sequential_lstm").path
CHECKPOINT = fixture("1.15.5-gru_bi").prefix


@pytest.mark.parametrize(
    ("source", "given", "told"),
    [
        (
            KERAS,
            {"architecture": Path("model.json")},
            "--architecture is ignored: it is for weights of Keras and checkpoints without .meta, and this "
            "is a Keras HDF5 file",
        ),
        (
            CHECKPOINT,
            {"tag": "serve"},
            "--tag is ignored: it is for SavedModels, and this is a TensorFlow 1 checkpoint",
        ),
        (CHECKPOINT, {"recurrences_only": True}, None),
    ],
)
def test_a_shared_option_without_a_meaning_is_left_out(
    source: Path, given: dict[str, Any], told: str | None
) -> None:
    options, notes = applicable.leave_out(read(source), Options.of(given), given)
    assert notes == ((told,) if told else ())
    assert options == (Options.of({}) if told else Options.of(given))
