"""What TensorFlow computed on a GPU judges the drop-in's training, and conversions of published models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import record_tensorflow as rec
from support.recorded import assert_close, measure_bound
from support.samples import REAL, ROOT

import cudnn_convert
from cudnn_convert.artifacts import runners

RECORDED = ROOT / "tests" / "data" / "cudnn"
DROP_INS = tuple(rec.list_drop_ins())
#: A mode each, and among them directions, layers, lengths and layouts.
FIRST = ("drop_in/lstm-bid-2l-batch_major-lengths", "drop_in/rnn_relu-uni-2l")
#: Published models whose outputs were recorded.
MODELS = tuple(
    f"real/{name}"
    for name in (
        "dot-res-lstm/dot_res_lstm-08-0.78.hdf5",
        "dot-res-lstm/dot_res_lstm-21-0.80.hdf5",
        "medaka/r103_min_high_g345_model.hdf5",
        "medaka/r941_min_high_g303_model.hdf5",
        "medaka/r941_min_high_g340_rle_model.hdf5",
        "medaka/r941_min_high_g351_model.hdf5",
        "textgenrnn/textgenrnn_weights.hdf5",
    )
)

needs_models = pytest.mark.skipif(not (REAL / "medaka").is_dir(), reason=f"no real models at {REAL}")


@pytest.mark.first("drop_in/rnn_relu-uni-2l")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.every) for name in DROP_INS]
)
def test_the_drop_in_trains_as_on_a_gpu(name: str) -> None:
    """Losses of twenty steps, the last outputs and states of the CPU's graph are those of the GPU's."""
    with np.load(RECORDED / "tensorflow_drop_in.npz") as data:
        prefix = f"{name}/GPU/"
        recorded = {key.removeprefix(prefix): data[key] for key in data.files if key.startswith(prefix)}
    trained = rec.train_drop_in(name, "CPU")
    assert recorded.keys() == trained.keys()
    assert recorded["losses"][-2] < 0.9 * recorded["losses"][0]
    for key, value in recorded.items():
        # Adam divides by the gradients' size: what rounding makes of a small one grows over the steps.
        np.testing.assert_allclose(trained[key], value, atol=5e-5, err_msg=key)


def test_each_graph_for_a_gpu_ran_there() -> None:
    jobs = json.loads((RECORDED / "tensorflow.json").read_text())["jobs"]
    ran = {job: result["status"] for job, result in jobs.items() if job.startswith("drop_in/")}
    assert ran == dict.fromkeys(DROP_INS, "ok")


@needs_models
@pytest.mark.slow("cudnn_convert/keras/", "cudnn_convert/lower/")
@pytest.mark.parametrize("form", ["savedmodel", pytest.param("onnx", marks=pytest.mark.every)])
@pytest.mark.parametrize("job", MODELS[:-1])
def test_a_published_model_answers_as_on_a_gpu(tmp_path: Path, job: str, form: str) -> None:
    """The file as it is, in tf_keras with cuDNN's layers on a GPU, against its conversion on this CPU."""
    source, out = REAL / job.removeprefix("real/"), tmp_path / "out"
    cudnn_convert.convert(source, out, format=form)
    form, artifact, _ = runners.identify(out)
    (interface,) = runners.find_interfaces(form, artifact)
    if source.parent.name == "dot-res-lstm":
        with np.load(source.parent / "validation_210.npz") as data:
            given = [data["xs"].astype(np.float32), data["xf"].astype(np.float32)]
    else:
        given = [rec.make_real_inputs(job, (1, *spec.shape[1:])) for spec in interface.inputs.values()]
    by_width = {value.shape[-1]: value for value in given}
    fed = {key: by_width[spec.shape[-1]] for key, spec in interface.inputs.items()}
    (answer,) = runners.open_artifact(form, artifact, [interface.part])(fed).values()
    # Scores in [0, 1] after 1000 steps of a float32 state; the largest difference seen is 2.1e-5.
    np.testing.assert_allclose(answer, read_recorded(job), atol=1e-4)


@needs_models
def test_published_weights_answer_as_on_a_gpu() -> None:
    """Weights without a model: their two layers, one after the other."""
    job = MODELS[-1]
    loaded = cudnn_convert.load(REAL / job.removeprefix("real/"))
    layers = [loaded.to_keras(weights.name) for weights in loaded.recurrences]

    def evaluate(y: np.ndarray) -> np.ndarray:
        for layer in layers:
            y, *_ = layer(y)
        return np.asarray(y)

    x = rec.make_real_inputs(job, (2, 40, 100))
    assert_close(evaluate(x), read_recorded(job), measure_bound(evaluate, [x]))


def read_recorded(job: str) -> np.ndarray:
    with np.load(RECORDED / "tensorflow_real.npz") as data:
        return data[f"{job}/y"]
