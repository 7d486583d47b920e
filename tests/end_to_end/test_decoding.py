"""Searches in artifacts of models/char_lm, where a user runs them, beside NumPy's by definition."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import artifacts, asking_graphs
from support import decoding_judges as judges
from support.decoding_judges import Rules
from support.samples import ROOT
from support.tiers import tier
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.artifacts.onnx import open_session
from cudnn_convert.cli import commands

MODEL = ROOT / "models" / "char_lm" / "model.h5"
STATES = [f"memory_{number}_{kind}" for number in (1, 2) for kind in "hc"]
STEPS, VOCABULARY, ROWS = 9, 34, 3
RNG = np.random.default_rng(11)
FEED = {
    "tokens": RNG.integers(0, VOCABULARY, ROWS).astype(np.int32),
    "noise": RNG.random((ROWS, STEPS)).astype(np.float32),
    **{key: RNG.normal(size=(1, ROWS, 40), scale=0.4).astype(np.float32) for key in STATES},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"decode": "greedy"},
    "beam": {"decode": "beam", "width": 5, "end": 1, "pad": -1, "length_penalty": 0.8, "history": True},
    "sample": {"decode": "sample", "end": 1, "top_k": 12, "temperature": 1.4},
}


def converted(form: str, name: str, folder: Path, **flags: Any) -> cudnn_convert.Report:
    """The model with a search; what is judged here needs no proof beside it."""
    given: dict[str, Any] = {"steps": STEPS, "verify": False, **SEARCHES[name], **flags}
    return cudnn_convert.convert(MODEL, folder / "out", format=form, **given)


def judge(log_probs: Any, name: str) -> dict[str, np.ndarray]:
    """What a search should find, each sequence's chances computed from its whole prefix."""
    flags = SEARCHES[name]
    rules = Rules(
        *(
            flags.get("width", 1),
            STEPS,
            flags.get("end"),
            flags.get("pad", 0),
            flags.get("length_penalty", 0.0),
        ),
        dtype=np.float64,
    )
    if name != "sample":
        found = judges.beam_search(log_probs, ROWS, rules)
        return (
            found if name == "beam" else {key: found[key][:, 0] for key in ("sequences", "lengths", "scores")}
        )
    drawn = [
        judges.sample(log_probs, row, FEED["noise"][row], rules, top_k=12, temperature=1.4)
        for row in range(ROWS)
    ]
    return {"sequences": np.array([one[0] for one in drawn]), "scores": np.array([one[1] for one in drawn])}


def chances_of(step: Path) -> Any:
    """The chances after a prefix, by the step that lies beside a search in ONNX, on all of it at once."""
    session = open_session(str(step))
    place = [output.name for output in session.get_outputs()].index("next")

    @cache
    def after(row: int, prefix: tuple[int, ...]) -> np.ndarray:
        read = np.array([[FEED["tokens"][row], *prefix]], np.float32)
        states = {key: FEED[key][:, row : row + 1] for key in STATES}
        chances = session.run(None, {"characters_input": read, **states})[place]
        return np.log(chances[0, -1].astype(np.float64))

    return after


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/plan")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=tier(first=(name, form) == ("beam", "onnx")))
        for name in SEARCHES
        for form in ("savedmodel", "onnx")
    ],
)
def test_a_user_decodes(tmp_path: Path, name: str, form: str) -> None:
    report = converted(form, name, tmp_path)
    assert report.decoder is not None
    taken = report.decoder.inputs
    assert ("noise" in taken) == (name == "sample")
    np.savez(tmp_path / "feeds.npz", **{f"feed0/{key}": FEED[key] for key in taken})
    (names, ends) = (
        {key: {"source": key, "artifact": key} for key in keys} for keys in (taken, report.decoder.outputs)
    )
    place = tmp_path / "out" / ("decode.onnx" if form == "onnx" else "")
    job = {"artifact": str(place), "format": form, "golden": str(tmp_path / "feeds.npz"), "inputs": names}
    job |= {"outputs": ends, "answers": str(tmp_path / "answers.npz"), "signature": "decode"}
    artifacts.answer([job])
    with np.load(tmp_path / "answers.npz") as answers:
        found = {key.partition("/")[2]: answers[key] for key in answers.files}
    step = tmp_path / "out" / "stream.onnx"
    if form != "onnx":
        (tmp_path / "step").mkdir()
        converted("onnx", "greedy", tmp_path / "step")
        step = tmp_path / "step" / "out" / "stream.onnx"
    expected = judge(chances_of(step), name)
    places = {"tokens": "history_tokens", "parents": "history_parents", "sums": "history_scores"}
    for key, value in expected.items():
        actual = found[places.get(key, key)]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-4, err_msg=key)
        else:
            np.testing.assert_array_equal(actual, value, key)


@pytest.mark.every
@pytest.mark.parametrize("form", ["savedmodel", "onnx"])
def test_a_search_is_proven_and_verified_again(tmp_path: Path, form: str) -> None:
    weights = {"weights_dtype": "float16"} if form == "onnx" else {}
    report = converted(form, "beam", tmp_path, verify=True, steps=6, **weights)
    proof = report.verification
    assert proof is not None
    assert proof.decoding is not None
    assert proof.decoding.passed
    assert proof.decoding.judged
    assert report.decoder is not None
    assert (report.decoder.kind, report.decoder.width, report.decoder.scale) == ("beam", 5, "probabilities")
    again = cudnn_convert.verify(MODEL, tmp_path / "out").decoding
    assert again == proof.decoding


@pytest.mark.every
@pytest.mark.parametrize("form", ["savedmodel", "onnx"])
def test_a_search_is_the_same_bytes_twice(tmp_path: Path, form: str) -> None:
    kept = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        converted(form, "beam", folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        kept.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert kept[0] == kept[1]


SMALL: dict[str, tuple[Any, dict[str, Any]]] = {
    "lengths and other inputs": (asking_graphs.conditioned, {}),
    "a batch that was fixed": (lambda folder: asking_graphs.language_model(folder, batch=4), {}),
    "compiled": (asking_graphs.language_model, {"jit": True}),
    "portable": (asking_graphs.language_model, {"lowering": "portable"}),
    "opset 13": (asking_graphs.language_model, {"format": "onnx", "opset": 13}),
    "weights in int8": (
        lambda _: MODEL,
        {
            "format": "onnx", "quantize": "int8", "max_error": 1.5, "outputs": [],
            "data": {"characters_input": RNG.integers(0, VOCABULARY, (3, 17)).astype(np.float32)},
        },
    ),
    "lengths in ONNX": (asking_graphs.conditioned, {"format": "onnx"}),
}  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize("name", SMALL)
def test_a_search_is_proven_with_other_flags(tmp_path: Path, name: str) -> None:
    source, flags = SMALL[name]
    flags = {
        "decode": "beam",
        "steps": 6,
        "width": 3,
        "end": 2,
        "history": True,
        "outputs": ["logits"],
    } | flags
    proof = cudnn_convert.convert(source(tmp_path), tmp_path / "out", **flags).verification
    assert proof is not None
    assert proof.decoding is not None
    assert proof.decoding.passed
    assert proof.decoding.judged


def test_outputs_of_a_search_keep_their_own_axes(tmp_path: Path) -> None:
    """`lengths` of a model are named by its axes, those of a search are not."""
    flags = {"decode": "sample", "steps": 6, "end": 2, "outputs": ["logits"]}
    proof = cudnn_convert.convert(asking_graphs.conditioned(tmp_path), tmp_path / "out", **flags).verification
    assert proof is not None
    assert proof.decoding is not None
    assert proof.decoding.judged
    assert cudnn_convert.verify(tmp_path / "model.ckpt", tmp_path / "out").decoding == proof.decoding
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "out" / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    assert [dim.name for dim in signatures["stream"].inputs["lengths"].tensor_shape.dim] == ["batch"]
    searched = signatures["decode"]
    assert [dim.name for dim in searched.outputs["lengths"].tensor_shape.dim] == [""]
    assert [dim.name for dim in searched.inputs["speaker"].tensor_shape.dim] == ["batch", ""]


def test_two_files_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(cudnn_convert.UsageError) as caught:
        commands.convert([str(MODEL), str(tmp_path / "lm.onnx"), "--decode", "greedy", "--steps", "3"])
    expected = "OUT: expected a folder for the parts stream, decode, found lm.onnx"
    assert str(caught.value) == f"{expected}; name one without suffix and give --format onnx"
    assert not [*tmp_path.iterdir()]
