"""A process of its own, whose end is an exception."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.apart import Apart, EndedError


def make() -> Any:
    def answer(value: int) -> int:
        if value == 0:
            os._exit(7)
        return 6 // (value - 1)

    return answer


def test_a_process_answers_refuses_and_ends() -> None:
    apart = Apart(make, 60)
    assert apart.run(3) == 3
    with pytest.raises(RuntimeError, match="division"):
        apart.run(1)
    assert apart.run(4) == 2
    with pytest.raises(EndedError, match="native code ends the process"):
        apart.run(0)
    assert apart.run(7) == 1  # another process


def test_a_copy_leaves_the_garbage_of_its_original_alone(tmp_path: Path) -> None:
    """The destructor of a session in ONNX Runtime waits for its threads, which a copy lacks."""

    class Session:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    Session()
    assert Apart(lambda: gc.collect, 60).run() >= 0
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]


def test_what_cannot_begin_says_why() -> None:
    def refuse() -> Any:
        raise ValueError("no such file")

    with pytest.raises(RuntimeError, match="no such file"):
        Apart(refuse, 60).run(1)
