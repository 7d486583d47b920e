"""Models as public repositories have them, written by the Keras of their time, and its answers.

`scripts/keras_public` wrote them. A case is one file, or weights with their architecture; what is converted
of it may end before a layer of other code, as the refusal's own remedy says.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

import cudnn_convert
from cudnn_convert.errors import Reason, UnsupportedModelError
from support import artifacts, keras_census, user_processes

ARCHIVE: Final = Path(__file__).resolve().parents[1] / "data" / "keras_public.tar.xz"
FORMATS: Final = ("keras", "onnx", "savedmodel")
#: Answers in float32 of two orders of addition; none of the models gives more than some units.
_BOUND: Final = 3e-5
_MASKS = "found that Keras {} repeats at masked steps what came before"
_SHARED = "hands no mask to the layer in a TimeDistributed"
#: What is refused in `keras`, by the beginnings of the case's and the writer's name: in a line with the layer
#: and the cure.
REFUSED: Final[Mapping[tuple[str, str], str]] = {
    **{
        (f"theano_images{kind}", f"keras-3.{version}"): "found images whose channels come first"
        for kind in ("", "_archive")
        for version in ("0.5", "3.3", "8.0")
    },
    **{
        (case, writer): text
        for case in ("ner_tagger", "weights_and_yaml")
        for writer, text in {
            **dict.fromkeys(("keras-1.2.2", "keras-2.0.9", "keras-2.1.6", "tf.keras-1.8.0"), _SHARED),
            "keras-2.2.4": _MASKS.format("2.2.4"),
            "keras-2.3.1": _MASKS.format("2.3.1"),
            "tf.keras-1.12.3": _MASKS.format("2.1.6-tf"),
        }.items()
    },
    ("word_and_tag_tagger", "keras-3.3.3"): "lets no mask pass a layer of several inputs",
    ("gated_words", "keras-3.3.3"): "takes masked values in a Maximum, Minimum or Multiply as they are",
    **{
        (case, "keras-3.3.3"): "lets a mask that a call is given end in its layer"
        for case in ("attention_pooling", "given_mask")
    },
    **{
        ("time_major", writer): "found True; Keras 3 has no such layer"
        for writer in (f"tf.keras-{version}" for version in ("1.15.5", "2.3.4", "2.13.1", "2.15.1"))
    },
}
#: What Keras 3 keeps of layers of other code, and loads with `custom_objects` or `safe_mode=False`.
FOREIGN: Final = frozenset({"attention", "crf_tagger", "ocr", "siamese"})

Members = Mapping[str, bytes]


def cases() -> Mapping[str, Mapping[str, Members]]:
    """The members of each case, by the writer and the case's name."""
    return keras_census.cases(ARCHIVE)


def check_case(writer: str, name: str, form: str, folder: Path, *, verify: bool = True) -> str:
    """What became of a case: "right", "portable", a refusal's first line, or how an answer differs."""
    members = cases()[writer][name]
    for member, content in members.items():
        (folder / member).write_bytes(content)
    (source,) = (folder / member for member in members if member.endswith((".h5", ".keras")))
    beside = [folder / member for member in members if member.endswith((".json", ".yaml"))]
    flags: dict[str, Any] = {"format": form, "verify": verify}
    if beside:
        (flags["architecture"],) = beside
    out = folder / f"out.{form}"
    try:
        report = _convert(source, out, flags, cut=name.removesuffix("_archive") in FOREIGN)
    except cudnn_convert.CudnnConvertError as refusal:
        return f"refused, exit {refusal.exit_code}: {refusal}".splitlines()[0]
    if report.out is None:
        return "portable"
    return _differs(report, form, members, folder) or "right"


def _convert(source: Path, out: Path, flags: dict[str, Any], *, cut: bool) -> cudnn_convert.Report:
    """Convert, a model with a layer of other code as the refusal of a graph of it says."""
    if not cut:
        return cudnn_convert.convert(source, out, **flags)
    try:
        cudnn_convert.convert(source, source.with_name("refused.onnx"), **{**flags, "format": "onnx"})
    except UnsupportedModelError as refusal:
        first = refusal.reasons[0]
        assert isinstance(first, Reason), first
        (remedy,) = first.remedies
        return cudnn_convert.convert(source, out, **{**flags, **remedy.options})
    raise AssertionError("a layer of other code was built")


def _differs(report: Any, form: str, members: Members, folder: Path) -> str | None:
    """Where the artifact answers otherwise than the writer, run where cudnn_convert cannot be imported."""
    out = folder / f"out.{form}"
    job = artifacts.job(out, form, folder / "feeds.npz", folder / "answers.npz")
    sources = [names["source"] for names in job["inputs"].values()]
    with np.load(io.BytesIO(members["golden.npz"])) as golden:
        arrays = dict(golden)
    feeds = {
        f"feed{number}/{source}": arrays[f"feed{number}/in/{place}"]
        for number in range(2)
        for place, source in enumerate(sources)
    }
    np.savez(folder / "feeds.npz", **feeds)
    process = user_processes.user(tensorflow=form not in artifacts.WITHOUT_TENSORFLOW)
    (error,) = process.ask([job])
    if error:
        return f"does not run: {error.splitlines()[-1]}"
    with np.load(folder / "answers.npz") as answers:
        for number in range(2):
            for place, key in enumerate(report.outputs):
                found, expected = answers[f"feed{number}/{key}"], arrays[f"feed{number}/out/{place}"]
                if found.shape != expected.shape:
                    return f"{key}: shape {found.shape}, expected {expected.shape}"
                if not np.allclose(found, expected, rtol=0, atol=_BOUND):
                    return f"{key}: {np.abs(found - expected).max():.3g} off"
    return None
