"""The exception tree: its fields, its words, its exit codes, its way through a pickle."""

from __future__ import annotations

import inspect
import pickle

import pytest

import cudnn_convert
from cudnn_convert import errors
from cudnn_convert.errors import CudnnConvertError

#: One of each class: its message, its exit code.
SAMPLES: dict[str, tuple[CudnnConvertError, str, int]] = {
    "CudnnConvertError": (errors.CudnnConvertError("words"), "words", 1),
    "ReadError": (
        errors.ReadError("a.pb", "node[3]", expected="an op", found="nothing", advice="write it again"),
        "a.pb: node[3]: expected an op, found nothing; write it again",
        1,
    ),
    "AccessError": (errors.AccessError("a.pb", "no such disk"), "a.pb: cannot read: no such disk", 4),
    "InvalidModelError": (
        errors.InvalidModelError("cell.bias", expected="shape (4, 5)", found="(5, 4)"),
        "cell.bias: expected shape (4, 5), found (5, 4)",
        1,
    ),
    "RefusalError": (errors.RefusalError("m", ["one", "two"]), "m: one\nm: two", 1),
    "UnsupportedModelError": (errors.UnsupportedModelError("m", ["one"]), "m: one", 1),
    "AmbiguousSourceError": (errors.AmbiguousSourceError("m", ["this", "that"]), "m: this\nm: that", 1),
    "UsageError": (errors.UsageError("--set: expected more"), "--set: expected more", 2),
    "VerificationError": (errors.VerificationError({"passed": False}, "y: differs"), "y: differs", 3),
    "WriteError": (errors.WriteError("out", "disk full"), "out: disk full", 4),
    "MissingDependencyError": (errors.MissingDependencyError("pip install x"), "pip install x", 4),
}
CLASSES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, CudnnConvertError)
}


def test_every_class_has_a_sample() -> None:
    assert set(CLASSES) == set(SAMPLES)


def test_every_class_is_public() -> None:
    assert set(CLASSES) <= {*errors.__all__, "RefusalError"}
    assert set(errors.__all__) - {"RefusalError"} <= set(cudnn_convert.__all__)


@pytest.mark.parametrize("name", SAMPLES)
def test_fields_make_the_message(name: str) -> None:
    error, message, code = SAMPLES[name]
    assert type(error).__name__ == name
    assert str(error) == message
    assert error.exit_code == code


def test_fields_are_kept() -> None:
    read = errors.ReadError("a.pb", "node[3]", expected="an op", found="nothing")
    assert (read.path, read.where, read.expected, read.found, read.advice) == (
        "a.pb",
        "node[3]",
        "an op",
        "nothing",
        "",
    )
    assert str(read) == "a.pb: node[3]: expected an op, found nothing"
    assert errors.RefusalError("m", ["one", "two"]).reasons == ("one", "two")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_pickle_keeps_everything(name: str) -> None:
    error, message, _ = SAMPLES[name]
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == message
    assert back.__dict__ == error.__dict__
    assert back.args == error.args
