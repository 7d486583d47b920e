"""Graphs of channels-first ops that TensorFlow 1.15 wrote, with what their channels-last twins answer there.

`scripts/make_channels_first.py` made them: each has a branch `NAME/x -> NAME/y` for each case.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf

from support.samples import ROOT

FOLDER: Final = ROOT / "tests" / "data" / "channels_first"
GROUPS: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.pb")))


def path(group: str) -> Path:
    """The frozen graph of a group."""
    return FOLDER / f"{group}.pb"


def golden(group: str) -> Path:
    """Inputs and answers of a group, `feed0/TENSOR` each."""
    return FOLDER / f"{group}.npz"


def definition(group: str) -> Any:
    """The graph of a group as a GraphDef."""
    return tf.compat.v1.GraphDef.FromString(path(group).read_bytes())


def require_kernels(group: str) -> None:
    """Skip a test of `only_onednn` where no kernel computes it.

    Without oneDNN, TensorFlow fuses a convolution of groups and its bias into an op that refuses groups.
    Which processors have oneDNN is TensorFlow's choice.
    """
    if group == "only_onednn" and not _runs_grouped_convolutions():
        pytest.skip("oneDNN is off: no kernel computes convolutions of groups with a bias")


@cache
def _runs_grouped_convolutions() -> bool:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 3, 3, 2])
        y = tf.nn.bias_add(tf.nn.conv2d(x, tf.ones([2, 2, 1, 2]), 1, "SAME"), tf.ones([2]))
    with tf.compat.v1.Session(graph=graph) as session:
        try:
            session.run(y, {x: np.ones((1, 3, 3, 2), np.float32)})
        except tf.errors.UnimplementedError:
            return False
    return True


def recorded(group: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The inputs and the answers of a group, by tensor."""
    with np.load(golden(group)) as arrays:
        values = {key.partition("/")[2]: arrays[key] for key in arrays.files}
    feeds = {name: value for name, value in values.items() if name.endswith("/x:0")}
    return feeds, {name: value for name, value in values.items() if name not in feeds}


def flags(group: str, *names: str) -> dict[str, str]:
    """The flags for some cases of a group, or all: `NAME_x` goes in, `NAME_y` comes out."""
    chosen = names or sorted({name.partition("/")[0] for name in recorded(group)[0]})
    return {
        "inputs": ",".join(f"{name}/x:0" for name in chosen),
        "outputs": ",".join(f"{name}/y:0" for name in chosen),
    }
