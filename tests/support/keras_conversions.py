"""Conversions of the recorded Keras samples, and their answers in a user's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cudnn_convert
from cudnn_convert.artifacts import runners
from support.keras_samples import KerasFixture
from support.recorded import assert_close

FORMATS = ("savedmodel", "frozen", "onnx", "keras", "h5")


def converted(
    sample: KerasFixture, form: str, folder: Path, **options: Any
) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    """Converts a sample; gives the report and the user's job."""
    out = folder / f"{sample.name}-{form}"
    given = {} if sample.architecture is None else {"architecture": sample.architecture}
    report = cudnn_convert.convert(sample.path, out, format=form, **given, **options)
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    tensors = recorded["tensors"]
    names = {
        kind: {key: {"source": key, "artifact": tensors[kind][key]} for key in tensors[kind]}
        for kind in ("inputs", "outputs")
    }
    shapes = _state_shapes(path, form, [key for key in report.inputs if f"{key}_next" in report.outputs])
    states = {
        key: {"next": f"{key}_next", "shape": shape, "dtype": "float32"} for key, shape in shapes.items()
    }
    golden, answers = str(sample.folder / "golden.npz"), str(folder / f"{sample.name}.npz")
    job = {"artifact": str(path), "format": form, "golden": golden, "answers": answers, "states": states}
    return report, {**job, **names}


def _state_shapes(path: Path, form: str, keys: list[str]) -> dict[str, list[int]]:
    """What the artifact itself says of the states that it takes."""
    if not keys:
        return {}
    if form == "onnx":
        import onnx

        given = {found.name: found for found in onnx.load(str(path)).graph.input}
        dims = {key: given[key].type.tensor_type.shape.dim for key in keys}
        return {key: [dim.dim_value for dim in found] for key, found in dims.items()}
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    nodes = {node.name.replace("/", "_"): node for node in graph.node if node.op == "Placeholder"}
    return {key: [dim.size for dim in nodes[key].attr["shape"].shape.dim] for key in keys}


def compared(job: dict[str, Any], sample: KerasFixture, outputs: list[str]) -> None:
    """What the user's process answered is what the sample's own Keras gave."""
    with np.load(job["answers"]) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key in outputs:
                found = answers[f"feed{number}/{key}"]
                assert np.ptp(feed[key]) > 1e-4, "an answer that never changes proves nothing"
                bound = 1e-12 if found.dtype == np.float64 and job["format"] != "onnx" else 1e-5
                assert_close(found, feed[key], bound)
