"""Every SavedModel of Keras from a machine with a GPU, in every format, against Keras' answers on a CPU.

The artifacts run where their users run them: plain TensorFlow 2 or ONNX Runtime, without cudnn_convert.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts
from support.keras3_samples import EXPORTED, Call, Signature, exported
from support.samples import EVERY, WITH_ALL

import cudnn_convert
from cudnn_convert.artifacts import origin
from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError

FORMATS: Final = ("savedmodel", "frozen", "onnx", "tflite")
NEWEST: Final = "keras-3.15.1"
#: Whose SavedModel is repaired beside the newest one's: the oldest writer's. Those between differ in names.
OLDEST: Final = "keras-3.3.3-masked"
#: The newest writer's sample of each case.
ONCE: Final = [
    *{
        sample.folder.name: sample
        for sample in sorted(EXPORTED, key=lambda sample: sample.folder.parent.name == NEWEST)
    }.values()
]
#: A case of each kind: modes, directions, masks, states in variables, types, layers in layers.
KINDS: Final = (
    *("lstm", "gru", "masked", "bidirectional", "stateful", "initial_state", "float64", "nested"),
    *("mixed_float16", "bfloat16", "signatures", "cudnn_layers", "portable"),
)
#: Kinds that TensorFlow Lite's loops do not know from the others, for functions were laid flat before.
NOT_FOR_TFLITE: Final = ("nested", "signatures", "bfloat16")
#: Kinds that frozen graphs do not show as ONNX does: both are made of the same graph laid flat.
NOT_FOR_FROZEN: Final = ("gru", "masked", "bidirectional", "initial_state", "nested", "bfloat16")
#: `|a-b| <= bound + bound*|b|` by the type that the recurrences compute in. Of half and bfloat16 it is the
#: distance between neighbours near 1: Keras' own answers are rounded to it after every op, and nothing says
#: in which order. ONNX runtimes and TensorFlow Lite have no double recurrence: judged as float32.
BOUNDS: Final = {"float32": 1e-5, "float64": 1e-12, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: A step of training: it needs CudnnRNNBackpropV3, which nothing on a CPU stands for.
TRAINING: Final = "train"
_TABLE: Final = "table hash_table: expected none in the format"
#: TensorFlow Lite has no loop over a list whose elements have a shape known at run time alone: Keras' own
#: loops, and the one that `vectorized_map` makes for TimeDistributed. tf2onnx knows no slice in the latter.
_LIST: Final = (
    "TensorArrayV2(_1)?: expected a TensorListReserve that TensorFlow Lite's converter takes, found "
)
#: What a format refuses, by case, with the reason.
REFUSED: Final[dict[str, dict[str, str]]] = {
    "frozen": {"with_vocabulary": _TABLE},
    "onnx": {
        "with_vocabulary": _TABLE,
        "time_distributed": "expected an op that ONNX has, found StridedSlice",
    },
    "tflite": {
        "with_vocabulary": _TABLE,
        **dict.fromkeys(["time_distributed", "conv_beside"], _LIST),
        **dict.fromkeys(["portable", "portable_masked", "portable_saved"], _LIST),
    },
}


def chosen(form: str) -> list[Signature]:
    """The signatures that go to a format.

    What becomes of functions laid flat, ONNX shows of all cases; to the others a case of each kind goes, and
    to SavedModels what ONNX cannot hold.
    """
    return [
        signature
        for sample in EXPORTED
        if EVERY or sample in ONCE or (form == "savedmodel" and sample.name == OLDEST)
        if EVERY or form == WITH_ALL or sample.folder.name in (*KINDS, *_alone(form))
        if EVERY or form != "tflite" or sample.folder.name not in NOT_FOR_TFLITE
        if EVERY or form != "frozen" or sample.folder.name not in NOT_FOR_FROZEN
        for signature in sample.signatures
        if fits(signature, form)
    ]


def _alone(form: str) -> Collection[str]:
    return REFUSED[WITH_ALL] if form == "savedmodel" else ()


def fits(signature: Signature, form: str) -> bool:
    """Whether a format can hold a signature."""
    return signature.name != TRAINING and signature.fixture.folder.name not in REFUSED.get(form, {})


def label(signature: Signature) -> str:
    return f"{signature.fixture.name}-{signature.name}"


def flags(signature: Signature, form: str) -> dict[str, Any]:
    """The flags that a signature needs: a SavedModel keeps all that it has, the other formats one."""
    if form == "savedmodel":
        return {"force_convert": True} if signature.fixture.portable else {}
    return {"signature": signature.name} if len(signature.fixture.signatures) > 1 else {}


@dataclass(frozen=True)
class Converted:
    """What became of a signature: the report and the user's job, or what was raised."""

    report: cudnn_convert.Report | Exception
    job: dict[str, Any]


def converted(form: str, folder: Path) -> dict[str, Converted]:
    """All signatures that go to a format, by label. A SavedModel that keeps them all is converted once.

    What one conversion raises belongs to its own tests.
    """
    reports: dict[Path, cudnn_convert.Report | Exception] = {}
    found = {}
    for signature in chosen(form):
        given = flags(signature, form)
        out = folder / (label(signature) if "signature" in given else signature.fixture.name)
        if out not in reports:
            try:
                reports[out] = cudnn_convert.convert(signature.fixture.path, out, format=form, **given)
            except Exception as error:  # noqa: BLE001
                reports[out] = error
        job = the_job(signature, form, out) if out.exists() else {}
        found[label(signature)] = Converted(reports[out], job)
    try:
        artifacts.answer([one.job for one in found.values() if one.job])
    except AssertionError as error:  # once for all: the next test would convert everything anew
        return {name: Converted(error, one.job) for name, one in found.items()}
    return found


def the_job(signature: Signature, form: str, out: Path) -> dict[str, Any]:
    """What the user is to run: by the keys of the signature, state from zeros."""
    feeds, answers = (out.with_name(f"{out.name}.{signature.name}.{end}.npz") for end in ("feeds", "answers"))
    arrays = [(n, *pair) for n, call in enumerate(signature.calls()) for pair in call.feeds.items()]
    np.savez(feeds, **{f"feed{n}/{key}": value for n, key, value in arrays})
    _, path, recorded = origin.identify(out)
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


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory):
    """All signatures in one format, converted once: `[format][label]`."""
    return functools.cache(lambda form: converted(form, tmp_path_factory.mktemp(form)))


def cases(*forms: str) -> list[Any]:
    return [
        pytest.param(
            form, found, marks=pytest.mark.xdist_group(f"keras3-{form}"), id=f"{form}-{label(found)}"
        )
        for form in forms
        for found in chosen(form)
    ]


@pytest.mark.parametrize(("form", "signature"), cases(*FORMATS))
def test_answers_as_keras_did(everything, form: str, signature: Signature) -> None:
    found = everything(form)[label(signature)]
    if isinstance(found.report, Exception):
        raise found.report
    assert found.report.verification is not None
    assert found.report.verification.passed
    kinds = {recurrence.dtype for recurrence in found.report.recurrences} or {"float32"}
    bound = max(BOUNDS[kind] for kind in kinds)
    bound = max(bound, BOUNDS["float32"]) if form in ("onnx", "tflite") else bound
    with np.load(found.job["answers"]) as answers:
        for n, call in enumerate(signature.calls()):
            given = {key.removeprefix(f"feed{n}/"): answers[key] for key in answers if f"feed{n}/" in key}
            assert {key for key in given if not key.endswith("_next")} == call.answers.keys()
            for key, expected in call.answers.items():
                assert share(signature, call, key, given[key], expected, bound=bound) <= 1


def share(
    signature: Signature, call: Call, key: str, found: np.ndarray, expected: np.ndarray, *, bound: float
) -> float:
    """How much of the tolerance the worst step that is not padding uses; cuDNN's padding is zeros."""
    assert found.shape == expected.shape
    if key not in signature.per_step:
        return artifacts.within(found, expected, atol=bound, rtol=bound)
    valid = call.valid(found)
    assert not valid.all()
    if key in signature.zero_past_length:
        assert not found[~valid].any()
    return artifacts.within(found[valid], expected[valid], atol=bound, rtol=bound)


@pytest.mark.parametrize(("form", "signature"), cases("frozen"))
def test_says_what_the_recurrences_are(everything, form: str, signature: Signature) -> None:
    report = everything(form)[label(signature)].report
    if isinstance(report, Exception):
        raise report
    keys = ("mode", "units", "input_size", "layers", "directions")
    found = [tuple(getattr(recurrence, key) for key in keys) for recurrence in report.recurrences]
    assert sorted(found) == sorted(
        tuple(recurrence[key] for key in keys) for recurrence in signature.recurrences
    )


ALONE: Final = [form for form in FORMATS if form != "savedmodel"]


@pytest.mark.parametrize(
    ("form", "case", "message"),
    [(form, case, message) for form, cases in REFUSED.items() for case, message in cases.items()],
)
def test_what_a_format_cannot_hold_is_refused(out: Path, form: str, case: str, message: str) -> None:
    writer = "tf_keras-2.21.0" if case.startswith("portable") else NEWEST
    with pytest.raises(UnsupportedModelError, match=message):
        cudnn_convert.convert(exported(f"{writer}-{case}").path, out, format=form)
    assert not out.exists()


def test_a_step_of_training_stays_for_a_gpu(out: Path) -> None:
    sample = exported("tf_keras-2.21.0-cudnn_trained")
    report = cudnn_convert.convert(sample.path, out)
    assert f"signature {TRAINING}: its steps of training need a GPU, and stay as they are" in report.notes
    assert [*report.outputs] == ["y"]


@pytest.mark.parametrize("form", ALONE)
def test_a_step_of_training_is_no_inference(out: Path, form: str) -> None:
    sample = exported("tf_keras-2.21.0-cudnn_trained")
    with pytest.raises(UnsupportedModelError, match=r"expected one that is only read, .* changes it"):
        cudnn_convert.convert(sample.path, out, format=form, signature=TRAINING)
    assert not out.exists()


@pytest.mark.parametrize("form", ALONE)
def test_one_of_several_signatures_is_asked_for(out: Path, form: str) -> None:
    sample = exported(f"{NEWEST}-raw_ops")
    told = "signatures: expected serving_default or one, found chain, ragged; choose with --signature"
    with pytest.raises(AmbiguousSourceError, match=told):
        cudnn_convert.convert(sample.path, out, format=form)
    assert not out.exists()
