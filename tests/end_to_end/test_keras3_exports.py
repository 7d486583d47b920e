"""Every SavedModel of Keras from a machine with a GPU, in every format, against Keras' answers on a CPU.

The artifacts run where their users run them: plain TensorFlow 2 or ONNX Runtime, without cudnn_convert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts
from support.keras3_samples import EXPORTED, Call, Export, Signature, exported
from support.recorded import BOUNDS, FLOAT32, assert_close
from support.samples import WITH_ALL
from support.tiers import tier

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError

FORMATS: Final = ("savedmodel", "frozen", "onnx", "tflite")
NEWEST: Final = "keras-3.15.1"
#: The newest writer's sample of each case.
ONCE: Final = [
    *{
        sample.folder.name: sample
        for sample in sorted(EXPORTED, key=lambda sample: sample.folder.parent.name == NEWEST)
    }.values()
]
#: Cases of the first tier by format: a SavedModel keeps state, and TensorFlow Lite's loop has the lengths.
#: test_repaired_saved_model.py has tables and several signatures.
KINDS: Final = {
    "savedmodel": ("stateful",),
    "frozen": (),
    WITH_ALL: ("bfloat16", "nested"),
    "tflite": ("masked_last",),
}
#: What the proof of many functions that no signature calls is about.
OF_FUNCTIONS: Final = (
    "cudnn_convert/recurrences/saved_functions.py",
    "cudnn_convert/lower/tensorflow/lower.py",
)
#: A step of training: it needs CudnnRNNBackpropV3, which nothing on a CPU stands for.
TRAINING: Final = "train"
_TABLE: Final = "table hash_table: expected no table in the format"
#: What a format refuses, by case, with the reason.
REFUSED: Final[dict[str, dict[str, str]]] = {
    "frozen": {"with_vocabulary": _TABLE},
    "onnx": {"with_vocabulary": _TABLE},
    "tflite": {"with_vocabulary": _TABLE},
}


def cases() -> Iterator[Any]:
    for form in FORMATS:
        for sample in EXPORTED:
            if sample.folder.name not in REFUSED.get(form, {}):
                is_first = sample in ONCE and sample.folder.name in KINDS[form]
                is_slow = (form, sample.folder.name) == ("savedmodel", "exported")
                marks = pytest.mark.slow(*OF_FUNCTIONS) if is_slow else tier(first=is_first)
                yield pytest.param(form, sample, marks=marks, id=f"{form}-{sample.name}")


def flags(signature: Signature, form: str) -> dict[str, Any]:
    """The flags that a signature needs: a SavedModel keeps all that it has, the other formats one."""
    if form == "savedmodel":
        return {"force_convert": True} if signature.fixture.portable else {}
    return {"signature": signature.name} if len(signature.fixture.signatures) > 1 else {}


def converted(
    sample: Export, form: str, folder: Path
) -> Iterator[tuple[Signature, cudnn_convert.Report, Path]]:
    """Its signatures but for training; a SavedModel that keeps them all is converted once."""
    report, out = None, folder / "out"
    for signature in sample.signatures:
        if signature.name == TRAINING:
            continue
        if report is None or form != "savedmodel":
            out = folder / signature.name
            report = cudnn_convert.convert(sample.path, out, format=form, **flags(signature, form))
        yield signature, report, out


def the_job(signature: Signature, form: str, out: Path) -> dict[str, Any]:
    """What the user is to run: by the keys of the signature, state from zeros."""
    feeds, answers = (out.with_name(f"{out.name}.{signature.name}.{end}.npz") for end in ("feeds", "answers"))
    arrays = [(n, *pair) for n, call in enumerate(signature.calls()) for pair in call.feeds.items()]
    np.savez(feeds, **{f"feed{n}/{key}": value for n, key, value in arrays})
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    tensors = recorded["tensors"]
    if form == "savedmodel":  # called by its keys alone
        tensors = {kind: dict.fromkeys(signature.described[kind]) for kind in ("inputs", "outputs")}
    names = {
        kind: {key: {"source": key, "artifact": name} for key, name in tensors[kind].items()}
        for kind in ("inputs", "outputs")
    }
    states = zero_states(signature, names["inputs"].keys() - set(signature.described["inputs"]))
    job = {"artifact": str(path), "format": form, "signature": signature.name, "states": states, **names}
    return {**job, "golden": str(feeds), "answers": str(answers)}


def zero_states(signature: Signature, inputs: set[str]) -> dict[str, Any]:
    """What stayed in variables and now goes in and out: `[batch, units]`, of the only recurrence."""
    if not inputs:
        return {}
    (recurrence,) = signature.recurrences
    shape = [len(next(signature.calls()).feeds["x"]), recurrence["units"]]
    return {key: {"next": f"{key}_next", "shape": shape, "dtype": "float32"} for key in inputs}


@pytest.mark.parametrize(("form", "sample"), cases())
def test_answers_as_keras_did(tmp_path: Path, form: str, sample: Export) -> None:
    for signature, report, out in converted(sample, form, tmp_path):
        assert report.verification is not None
        assert report.verification.passed
        if form != "savedmodel":
            says_what_the_recurrences_are(report, signature)
        job = the_job(signature, form, out)
        artifacts.answer([job])
        kinds = {recurrence.dtype for recurrence in report.recurrences} or {"float32"}
        bound = max(BOUNDS[kind] for kind in kinds)
        bound = max(bound, BOUNDS["float32"]) if form in ("onnx", "tflite") else bound
        with np.load(job["answers"]) as answers:
            compared(signature, answers, bound)


def says_what_the_recurrences_are(report: cudnn_convert.Report, signature: Signature) -> None:
    keys = ("mode", "units", "input_size", "layers", "directions")
    found = [tuple(getattr(recurrence, key) for key in keys) for recurrence in report.recurrences]
    assert sorted(found) == sorted(
        tuple(recurrence[key] for key in keys) for recurrence in signature.recurrences
    )


def compared(signature: Signature, answers: Mapping[str, np.ndarray], bound: float) -> None:
    for n, call in enumerate(signature.calls()):
        given = {key.removeprefix(f"feed{n}/"): answers[key] for key in answers if f"feed{n}/" in key}
        assert {key for key in given if not key.endswith("_next")} == call.answers.keys()
        for key in call.answers:
            assert_close_where_valid(signature, call, key, given[key], bound=bound)


def assert_close_where_valid(
    signature: Signature, call: Call, key: str, found: np.ndarray, *, bound: float = FLOAT32
) -> None:
    """Steps that are no padding are as recorded; padding is zeros where cuDNN leaves zeros."""
    expected = call.answers[key]
    valid: Any = ...
    assert found.shape == expected.shape
    if key in signature.per_step:
        valid = call.valid(found)
        assert not valid.all()
        if key in signature.zero_past_length:
            assert not found[~valid].any()
    assert_close(found[valid], expected[valid], bound, name=key)


ALONE: Final = [form for form in FORMATS if form != "savedmodel"]


@pytest.mark.first("frozen-with_vocabulary-table hash_table: expected no table in the format")
@pytest.mark.parametrize(
    ("form", "case", "message"),
    [(form, case, message) for form, cases in REFUSED.items() for case, message in cases.items()],
)
def test_what_a_format_cannot_hold_is_refused(out: Path, form: str, case: str, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        cudnn_convert.convert(exported(f"{NEWEST}-{case}").path, out, format=form)
    assert not out.exists()


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/recurrences")
def test_a_step_of_training_stays_for_a_gpu(out: Path) -> None:
    sample = exported("tf_keras-2.21.0-cudnn_trained")
    report = cudnn_convert.convert(sample.path, out, verify=False)
    assert f"signature {TRAINING}: its steps of training need a GPU, and stay as they are" in report.notes
    assert [*report.outputs] == ["y"]


@pytest.mark.first("tflite")
@pytest.mark.parametrize("form", ALONE)
def test_a_step_of_training_is_no_inference(out: Path, form: str) -> None:
    sample = exported("tf_keras-2.21.0-cudnn_trained")
    with pytest.raises(UnsupportedModelError, match=r"expected one that is only read, .* changes it"):
        cudnn_convert.convert(sample.path, out, format=form, signature=TRAINING)
    assert not out.exists()


@pytest.mark.parametrize("form", ALONE)
def test_one_of_several_signatures_is_asked_for(out: Path, form: str) -> None:
    sample = exported(f"{NEWEST}-raw_ops")
    told = "signatures: expected serving_default or only one, found chain, ragged; choose with --signature"
    with pytest.raises(AmbiguousSourceError, match=told):
        cudnn_convert.convert(sample.path, out, format=form)
    assert not out.exists()
