"""The inputs of a model that is measured, in the sizes that are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudnn_convert.benchmark import models
from cudnn_convert.benchmark.models import FeedSizes


def test_the_sizes_of_inputs() -> None:
    from cudnn_convert.artifacts.runners import Interface, TensorSpec
    from cudnn_convert.model import SERVING, Part, Signature

    specs = {
        "x": TensorSpec(np.dtype(np.float32), (None, None, 3)),
        "n": TensorSpec(np.dtype(np.int32), (None,)),
        "fixed": TensorSpec(np.dtype(np.float32), (2, None)),
        "mask": TensorSpec(np.dtype(bool), (None, None)),
    }
    interface = Interface(Part(SERVING, Signature.of_names(specs, ["y"])), specs)
    opening = models.Opening("onnx", Path("m"), interface, None)  # type: ignore[arg-type]
    for time_first, x in ((False, (4, 9, 3)), (True, (9, 4, 3))):
        feed, ones = models._draw_feeds(opening, FeedSizes(4, 9, time_first), 1)
        assert {key: value.shape for key, value in feed.items()} == {
            "x": x, "n": (4,), "fixed": (2, 9), "mask": x[:2],
        }  # fmt: skip
        assert (feed["n"] == 9).all() and feed["mask"].all() and (ones["n"] == 1).all()
    assert models.has_steps(interface)
