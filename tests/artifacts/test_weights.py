"""Decoded weights as artifacts: no model that runs."""

from __future__ import annotations

from pathlib import Path

from artifacts.test_call import SPEECH
from support.command_line import refused

import cudnn_convert
from cudnn_convert import text


def test_weights_and_graphs_without_a_signature_are_refused(tmp_path: Path) -> None:
    cudnn_convert.convert(SPEECH, tmp_path / "w.npz", verify=False)
    [line] = refused(tmp_path, "run", tmp_path / "w.npz", code=1)
    assert line == (
        f"{tmp_path / 'w.npz'}: artifact: expected a model that runs on a CPU, found a file of NumPy arrays "
        f"that has weights alone; convert it first: cudnn-convert {tmp_path / 'w.npz'} model_cpu"
    )
    [line] = refused(tmp_path, "run", SPEECH / "model.ckpt", code=1)
    cure = text.command(["cudnn-convert", str(SPEECH / "model.ckpt"), "model_cpu"])
    assert line == (
        f"{SPEECH / 'model.ckpt'}: artifact: expected a model that runs on a CPU, found a TensorFlow 1 "
        f"checkpoint that needs a GPU; convert it first: {cure}"
    )
