"""A run of the fuzzer can only be trusted where a crash, a hang and a greedy reader are seen and told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError

SOUND = {"model.json": b'{"name": "x", "layers": [1, 2, 3]}'}


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "fuzz"))


def planted(monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], None]) -> dict[str, list[Any]]:
    """The only origin there is, with a look of our own."""
    import looks
    from origins import Origin

    monkeypatch.setattr(looks, "LOOKS", {"planted": look})
    return {"a reader": [Origin("a reader", "model.json", SOUND, "planted")]}


def verdicts(readers: dict[str, list[Any]], count: int = 1, patience: float = 30.0) -> list[Any]:
    from functools import partial

    import trial
    from crew import Crew

    tried = partial(trial.tried, 1, readers)
    crew = Crew(tried, numbers=range(count), jobs=1, patience=lambda _: patience)
    return [*crew.verdicts(time.monotonic() + 60)]


def test_what_is_read_and_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(path: Path) -> None:
        assert path.name == "model.json"
        if len(seen) % 2:
            raise ReadError(path, "here", expected="this", found="that")
        seen.append(0)

    seen: list[int] = []
    found = verdicts(planted(monkeypatch, look), count=3)
    assert [(one.number, one.state) for one in found] == [(0, "read"), (1, "refused"), (2, "refused")]
    assert found[1].why.endswith("model.json: here: expected this, found that")


def write_beside(path: Path) -> None:
    path.with_name("new").write_text("x")


def read_elsewhere(path: Path) -> None:
    Path("/etc/passwd").read_bytes()


def remove(path: Path) -> None:
    path.unlink()


def start(path: Path) -> None:
    os.system("true")


def say_two_lines(path: Path) -> None:
    error = ReadError(path, "here", expected="this", found="that")
    error.args = ("one\ntwo",)
    raise error


def say_much(path: Path) -> None:
    raise UnsupportedModelError(path, ["no " * 400])


def fail(path: Path) -> None:
    raise ValueError("not a refusal")


def allocate(path: Path) -> None:
    bytearray(1 << 32)


def die(path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (fail, "ValueError: not a refusal"),
        (allocate, "MemoryError"),
        (die, "SIGKILL"),
        (write_beside, "ForbiddenError: open"),
        (read_elsewhere, "ForbiddenError: open ('/etc/passwd'"),
        (remove, "ForbiddenError: os.remove"),
        (start, "ForbiddenError: os.system"),
        (say_two_lines, "UnsoundError: 2 lines"),
        (say_much, "UnsoundError: 12"),
    ],
)
def test_a_crash_is_told_and_the_next_input_is_tried(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], None], why: str
) -> None:
    found = verdicts(planted(monkeypatch, look), count=2)
    assert [(one.number, one.state) for one in found] == [(0, "crashed"), (1, "crashed")]
    assert all(one.why.startswith(why) for one in found), found


def test_a_hang_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(path: Path) -> None:
        if not seen:
            time.sleep(100)

    seen: list[int] = []
    (found,) = verdicts(planted(monkeypatch, look), patience=0.5)
    assert (found.number, found.state) == (0, "hung")


def test_failures_are_kept_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import inputs
    from tally import Tally

    readers = planted(monkeypatch, fail)
    tally = Tally(1, readers, tmp_path)
    for one in verdicts(readers, count=2):
        tally.add(one)
    assert (tally.tried, tally.failed) == (2, 2)
    kept = tmp_path / "1-1" / "model.json"
    assert kept.read_bytes() == inputs.made(1, 1, readers).changed["model.json"]
    assert "--seed 1 --only 1" in (tmp_path / "1-1.txt").read_text()
    assert "crashed: 1 (a reader): ValueError: not a refusal" in capsys.readouterr().out
    rows = [line.split() for line in tally.table(2.0).splitlines()]
    assert rows[1][:7] == ["a", "reader", "2", "0", "0", "2", "0"]
    assert rows[2][:6] == ["all", "2", "0", "0", "2", "0"]


def test_an_input_is_the_same_every_time() -> None:
    """Of every reader, whatever was made before it."""
    import inputs
    from origins import origins

    readers = inputs.by_reader(origins("weights") + origins("V2") + origins("of Keras 3") + origins("data"))
    numbers = range(4 * len(readers))
    first = [inputs.made(5, number, readers) for number in numbers]
    again = [inputs.made(5, number, readers) for number in reversed(numbers)][::-1]
    assert [one.changed for one in first] == [one.changed for one in again]
    assert [one.origin.reader for one in first[: len(readers)]] == sorted(readers)
    assert len({tuple(one.changed.values()) for one in first}) > len(numbers) // 2
    other = [inputs.made(6, number, readers) for number in numbers]
    assert [one.changed for one in first] != [one.changed for one in other]


@pytest.mark.slow("scripts/fuzz/", "cudnn_convert/pipeline.py", "cudnn_convert/plan/make.py")
def test_no_reader_fails_at_once(tmp_path: Path) -> None:
    """A few inputs of each reader, as the command tries them: a child that TensorFlow did not run in."""
    words = ["--count", "70", "--seconds", "300", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "fuzz", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "all                              70 " in done.stdout


def test_a_usage_error_has_a_line_for_each_reason() -> None:
    import looks

    assert looks._checked(UsageError("one", "two")) == "one"
