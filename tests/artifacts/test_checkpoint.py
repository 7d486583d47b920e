"""Checkpoints as artifacts: their cells answer as the source did."""

from __future__ import annotations

from pathlib import Path

from artifacts.test_call import SPEECH, recorded
from support.recorded import assert_close

import cudnn_convert


def test_a_checkpoint_answers_in_the_shape_of_its_cells(tmp_path: Path) -> None:
    cudnn_convert.convert(SPEECH, tmp_path / "out", format="checkpoint", verify=False)
    data, calls = recorded(SPEECH, tmp_path, "features", "lengths")
    answers = cudnn_convert.run(tmp_path / "out", data=data)
    assert_close(answers.outputs[1]["probabilities"], calls[1]["probabilities:0"])
