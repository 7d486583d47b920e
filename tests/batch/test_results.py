"""The lines of a batch: whole at any moment, one a model, nobody else's."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.browser import measure_in_frame

from cudnn_convert.batch import results
from cudnn_convert.batch.results import RESULTS, JobResult
from cudnn_convert.errors import UsageError, WriteError

ONE = JobResult(
    "a.pb",
    "a",
    "converted",
    0,
    (),
    1.25,
    300.5,
    {"passed": True, "needed": 0.03},
    {"source": "1f", "flags": "2e", "version": "0.1.0"},
)
TWO = JobResult("b\udcff\x1b\u202e.pb", "b\n", "refused", 1, ("b: expected a model", "b: and more"))


def lines(folder: Path) -> list[bytes]:
    return (folder / RESULTS).read_bytes().splitlines(keepends=True)


def test_a_line_has_the_documented_fields_in_their_order(tmp_path: Path) -> None:
    with results.open_results(tmp_path / "out") as written:
        written.begin([])
        written.add(ONE)
        written.add(TWO)
    assert lines(tmp_path / "out") == [ONE.to_line(), TWO.to_line()]
    assert list(json.loads(ONE.to_line()).items()) == [
        ("source", "a.pb"),
        ("out", "a"),
        ("status", "converted"),
        ("exit_code", 0),
        ("reasons", []),
        ("seconds", 1.25),
        ("peak_mb", 300.5),
        ("verification", {"passed": True, "needed": 0.03}),
        ("digests", {"source": "1f", "flags": "2e", "version": "0.1.0"}),
    ]
    assert results.read(tmp_path / "out") == {"a": ONE, "b\n": TWO}


def test_each_line_is_there_as_soon_as_it_is_added(tmp_path: Path) -> None:
    with results.open_results(tmp_path) as written:
        written.begin([ONE])
        assert lines(tmp_path) == [ONE.to_line()]
        written.add(TWO)
        assert lines(tmp_path) == [ONE.to_line(), TWO.to_line()]
        assert [*written.again()] == [ONE, TWO]


@pytest.mark.parametrize("length", [1, 50, len(TWO.to_line()) - 2])
def test_a_torn_last_line_is_left_out(tmp_path: Path, length: int) -> None:
    (tmp_path / RESULTS).write_bytes(ONE.to_line() + TWO.to_line()[:length])
    assert results.read(tmp_path) == {"a": ONE}
    with results.open_results(tmp_path) as written:
        written.begin([*written.earlier.values()])
        written.add(TWO)
    assert lines(tmp_path) == [ONE.to_line(), TWO.to_line()]


@pytest.mark.parametrize(
    "content",
    [
        b"words\n",
        b'{"source": "a"}\n',
        b"[]\n",
        ONE.to_line() + b"{\n",
        ONE.to_line().replace(b"conv", b"conw"),
    ],
)
def test_a_file_of_another_program_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RESULTS).write_bytes(content)
    message = r"results\.jsonl: expected results of cudnn-convert batch, found something else"
    with pytest.raises(UsageError, match=message), results.open_results(tmp_path):
        raise AssertionError
    assert (tmp_path / RESULTS).read_bytes() == content


def test_two_batches_do_not_write_to_one_folder(tmp_path: Path) -> None:
    for exchanges in (False, True):
        with results.open_results(tmp_path / "out") as written:
            if exchanges:
                written.begin([ONE])
            message = "another batch writes here; wait for its end, or choose another --out"
            with pytest.raises(UsageError, match=message), results.open_results(tmp_path / "out"):
                raise AssertionError
    with results.open_results(tmp_path / "out") as written:
        assert written.earlier == {"a": ONE}


def test_a_file_that_was_exchanged_while_it_was_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RESULTS).write_bytes(ONE.to_line())
    lock, calls = results.storage.lock_file, []

    def exchange(handle: int) -> bool:
        if not calls:
            (tmp_path / "new").write_bytes(TWO.to_line())
            (tmp_path / "new").replace(tmp_path / RESULTS)
        calls.append(handle)
        return lock(handle)

    monkeypatch.setattr(results.storage, "lock_file", exchange)
    with results.open_results(tmp_path) as written:
        assert len(calls) == 2
        assert written.earlier == {"b\n": TWO}


def test_nothing_is_left_where_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), results.open_results(tmp_path / "new" / "out"):
        raise RuntimeError
    assert not (tmp_path / "new").exists()
    with pytest.raises(RuntimeError), results.open_results(tmp_path):
        raise RuntimeError
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("room", [0, 30])
def test_a_full_disk_tears_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    write = os.write
    left = [room]

    def fill(handle: int, content: bytes) -> int:
        if not left:
            return write(handle, content)
        if not left[0]:
            left.clear()
            raise OSError(28, "No space left on device")
        done = write(handle, content[: left[0]])
        left[0] = 0
        return done

    with results.open_results(tmp_path) as written:
        written.begin([ONE])
        monkeypatch.setattr(results.os, "write", fill)
        with pytest.raises(WriteError, match=r"results\.jsonl: cannot write: No space left on device"):
            written.add(TWO)
        assert lines(tmp_path) == [ONE.to_line()]
        written.add(TWO)
    assert lines(tmp_path) == [ONE.to_line(), TWO.to_line()]


def test_results_in_a_store_are_there_while_a_batch_runs(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("memory://bucket/out")
    assert results.read(folder) == {}
    with results.open_results(folder) as written:
        assert (written.is_resumed, written.earlier) == (False, {})
        written.begin([ONE])
        assert results.read(folder) == {"a": ONE}
        written.add(TWO)
        assert results.read(folder) == {"a": ONE}, "not after every line: a store takes its time"
        monkeypatch.setattr(results, "_PUBLISH", -1)
        written.add(TWO)
        assert results.read(folder) == {"a": ONE, "b\n": TWO}
    with results.open_results(folder) as written:
        assert (written.is_resumed, written.earlier) == (True, {"a": ONE, "b\n": TWO})
    store.pipe_file("/bucket/out/results.jsonl", b"words\n")
    message = (
        "^memory://bucket/out/results.jsonl: expected results of cudnn-convert batch, found something else"
    )
    with pytest.raises(UsageError, match=message), results.open_results(folder):
        raise AssertionError


@pytest.mark.every
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_in_a_browser(width: int, tmp_path: Path) -> None:
    name = "a_name_without_a_space_" * 8
    reason = f"{name}: expected {'something_long' * 12}, found less; give --limit expanded=5"
    refused = replace(ONE, source=f"runs/{name}", out=name, status="refused", reasons=(reason, "another"))
    file = tmp_path / "all.html"
    page = results.page_of([ONE, refused, replace(refused, out="b")], file)
    told = measure_in_frame(page, width, tmp_path)
    assert told["scroll"] <= width and told["wide"] == told["cut"] == []
