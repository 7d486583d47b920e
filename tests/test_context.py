"""Limits and silence of a call, as the command line and the library say them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.samples import fixture

import cudnn_convert
from cudnn_convert import context
from cudnn_convert.context import Limits, mute_output
from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options, with_limits

# What a file may ask of the machine, as the command line and the library say it.


def test_numbers_may_have_units() -> None:
    told = Limits.of(["memory=2G", "seconds=7", "file=3T", "expanded=5K", "expansion=9", "nodes=1M"])
    assert told == Limits(2 * 2**30, 7, 3 * 2**40, 5 * 1024, 9, 2**20)
    assert Limits.of([]) == Limits()


WRONG = ["memory", "memory=", "memory=G", "memory=-1", "memory=0", "memory=1.5G", "memory=9" + "9" * 30]
WRONG += ["memory=9999999T", "memory=٣", "colour=1", "=1", ""]


@pytest.mark.parametrize("given", WRONG)
def test_anything_else_is_a_usage_error(given: str) -> None:
    with pytest.raises(UsageError, match=r"^--limit( memory)?: expected .*, found '"):
        Limits.of([given])


def test_limits_hold_where_they_are_set() -> None:
    usual = context.current()
    with context.within(Limits(nodes=1)):
        assert context.current() == Limits(nodes=1)
    assert context.current() == usual == Limits()


def test_a_call_works_under_the_limits_of_its_options() -> None:
    @with_limits
    def call(_: str, options: Options) -> int:
        return context.current().expansion

    assert call("x", Options(limit=["expansion=7"])) == 7
    assert context.current() == Limits()


def test_the_library_takes_limits_of_reading() -> None:
    source = fixture("1.15.5-gru_uni_2l").folder
    assert cudnn_convert.inspect(source, limit="nodes=100K").kind
    with pytest.raises(UsageError, match=r"^limit: expected a limit of reading, .* found 'seconds=5'"):
        cudnn_convert.inspect(source, limit=["seconds=5"])


def test_the_machine_has_memory() -> None:
    found = context.machine_memory()
    assert found is None or found > 1 << 28


def test_a_container_has_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("123456\n", 123456), ("max\n", context.machine_memory())):
        (tmp_path / "memory.max").write_text(text)
        with monkeypatch.context() as patched:
            patched.setattr(context, "Path", lambda _: tmp_path / "memory.max")
            assert context.machine_memory() == expected


@pytest.mark.parametrize(
    ("size", "stored", "found"), [(100, 1, False), (101, 1, True), (120, 40, False), (121, 40, True)]
)
def test_a_bomb_is_large_and_made_of_little(size: int, stored: int, found: bool) -> None:
    with context.within(Limits(expanded=100, expansion=3)):
        assert context.is_bomb(size, stored) is found


# What runs at the same time as a proof, and after it, prints where it always did.


def test_the_outer_one_brings_the_descriptors_back(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(1, b"before ")
    with mute_output():
        with mute_output():
            os.write(1, b"within both")
        os.write(2, b"within the outer one")
    os.write(2, b"after")
    assert capfd.readouterr() == ("before ", "after")


def test_a_failure_brings_them_back_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), mute_output():
        os.write(1, b"within")
        raise RuntimeError
    os.write(1, b"after")
    assert capfd.readouterr() == ("after", "")


def test_a_stream_that_is_closed_stays_so() -> None:
    kept = os.dup(2)
    os.close(2)
    try:
        with mute_output():
            pass
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(2)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
