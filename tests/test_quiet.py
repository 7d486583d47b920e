"""What runs at the same time as a proof, and after it, prints where it always did."""

from __future__ import annotations

import os

import pytest

from cudnn_convert.context import mute_output


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
