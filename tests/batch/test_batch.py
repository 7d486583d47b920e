"""A batch as a whole: what is done, what is skipped, what stands; with work that costs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.batch_work import MARK, InProcess, write_sources
from support.command_line import contents

from cudnn_convert import batch
from cudnn_convert.batch import Batch, BatchPlan, Summary, jobs, results
from cudnn_convert.batch.results import JobResult
from cudnn_convert.cli.batch import _read_flags
from cudnn_convert.errors import UsageError, WriteError
from cudnn_convert.options import Options

TEXTS = {"a": "convert 1", "b": "convert 22", "c": "refuse expected less", "d": "raise it", "e": "differ y"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with sources in `in`."""
    monkeypatch.chdir(tmp_path)
    write_sources(tmp_path / "in", **TEXTS)
    return tmp_path


def call(*words: str, **settings: Any) -> Batch:
    names = words or tuple(f"in/{name}" for name in TEXTS)
    return Batch(names, Path("out"), settings.pop("options", Options()), **settings)


def run(given: Batch, engine: Any = None) -> tuple[Summary, list[str]]:
    """The summary, and which models were worked on."""
    engine = engine or InProcess()
    plan = batch.plan_batch(given, _read_flags)
    return batch.run_plan(given, plan, engine, lambda _: None), engine.done


def statuses() -> dict[str, str]:
    return {out: result.status for out, result in results.read(Path("out")).items()}


def test_every_model_has_a_line_and_large_ones_come_first(folder: Path) -> None:
    summary, done = run(call())
    assert done == ["c", "b", "a", "d", "e"]
    assert summary.counts == {"converted": 2, "refused": 1, "crashed": 1, "different": 1}
    assert not summary.passed and summary.missing == 0 and not summary.is_stopped
    lines = [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]
    assert [line["out"] for line in lines] == done
    assert [line["exit_code"] for line in lines] == [1, 0, 0, 70, 3]
    for line in lines:
        assert line["source"] == f"in/{line['out']}"
        assert {*line["digests"]} - {"artifact"} == {"source", "flags", "version"}
        assert ("artifact" in line["digests"]) == (line["status"] == "converted")
    assert {path.name for path in (folder / "out").iterdir()} == {"a", "b", "results.jsonl"}


def test_the_same_again_does_nothing(folder: Path) -> None:
    run(call())
    before = contents(folder)
    summary, done = run(call())
    assert done == []
    assert statuses() == {"a": "skipped", "b": "skipped", "c": "refused", "d": "crashed", "e": "different"}
    assert not summary.passed  # a refusal stays one
    assert {path: content for path, content in contents(folder).items() if path != "out/results.jsonl"} == {
        path: content for path, content in before.items() if path != "out/results.jsonl"
    }
    assert run(call("in/a", "in/b"))[0].passed
    assert {*statuses()} == {*TEXTS}  # lines of models that this call does not have stay


def change_source(folder: Path) -> None:
    (folder / "in" / "a").write_text("convert 3")


def remove_artifact(folder: Path) -> None:
    for file in (folder / "out" / "a").iterdir():
        file.unlink()
    (folder / "out" / "a").rmdir()


def damage_artifact(folder: Path) -> None:
    (folder / "out" / "a" / "content").write_text("other")


def tear_line(folder: Path) -> None:
    path = folder / "out" / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    (mine,) = (line for line in lines if b'"out": "a"' in line)
    path.write_bytes(b"".join(line for line in lines if line is not mine) + mine[:-2])


@pytest.mark.parametrize("change", [change_source, remove_artifact, damage_artifact, tear_line])
def test_what_is_not_as_it_was_is_converted_again(folder: Path, change: Callable[[Path], None]) -> None:
    run(call())
    change(folder)
    assert run(call())[1] == ["a"]
    assert (folder / "out" / "a" / "content").read_text() == (folder / "in" / "a").read_text()
    assert run(call())[1] == []


def test_other_flags_and_another_version_convert_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(call())
    assert len(run(call(options=Options(opset=18)))[1]) == len(TEXTS)
    assert run(call(options=Options(opset=18, limit=("memory=8G",), force=True)))[1] == []
    monkeypatch.setattr(jobs, "__version__", "0.2.0")
    assert len(run(call(options=Options(opset=18)))[1]) == len(TEXTS)


def test_a_file_of_a_flag_counts_by_its_content(folder: Path) -> None:
    (folder / "feeds.npz").write_bytes(b"1")
    (folder / "same.npz").write_bytes(b"1")
    run(call(options=Options(data=Path("feeds.npz"))))
    assert run(call(options=Options(data=Path("same.npz"))))[1] == []
    (folder / "feeds.npz").write_bytes(b"2")
    assert len(run(call(options=Options(data=Path("feeds.npz"))))[1]) == len(TEXTS)


def test_flags_of_a_row_are_of_its_model_alone(folder: Path) -> None:
    rows = ["source,flags", "in/a,--custom-objects own:Own", "in/b,"]
    (folder / "rows.csv").write_text("\n".join(rows))
    options = Options(custom_objects=("other:Other",), opset=18)
    plan = batch.plan_batch(Batch([], Path("out"), options, Path("rows.csv")), _read_flags)
    assert {job.out: job.to_request(None)["shared"] for job in plan.jobs} == {
        "in/a": ["opset"],
        "in/b": ["custom_objects", "opset"],
    }


@pytest.mark.parametrize(
    ("retry", "again"), [(None, ""), ("failed", "de"), ("refused", "cu"), ("all", "cdeu")]
)
def test_what_is_tried_again(folder: Path, retry: str | None, again: str) -> None:
    write_sources(folder / "in", u="unproven nothing was shown")
    words = [f"in/{name}" for name in (*TEXTS, "u")]
    run(call(*words))
    assert sorted(run(call(*words, retry=retry))[1]) == [*again]


def test_what_the_machine_is_to_blame_for_is_always_tried_again(folder: Path) -> None:
    """A full disk, an OUT that is somebody else's: the same bytes may end otherwise."""
    (folder / "out" / "a").mkdir(parents=True)
    (folder / "out" / "a" / "thesis").write_text("years")
    run(call("in/a", "in/b"))
    lines = results.read(Path("out"))
    assert (lines["a"].status, lines["a"].exit_code) == ("refused", 2)
    assert lines["a"].reasons == (
        "out/a: expected a new path, found a folder that this tool did not write; choose another path",
    )
    assert (folder / "out" / "a" / "thesis").read_text() == "years"
    (folder / "out" / "a").rename(folder / "thesis")
    assert run(call("in/a", "in/b"))[1] == ["a"]
    assert statuses() == {"a": "converted", "b": "skipped"}


def test_the_out_of_another_source_is_not_replaced(folder: Path) -> None:
    write_sources(folder / "other", a="convert 9")
    run(call("in/a"))
    before = contents(folder)
    cure = "choose another --out, give both models in one call, or replace it with --force"
    with pytest.raises(
        UsageError, match=f"out/a: expected the converted other/a, found the converted in/a; {cure}"
    ):
        run(call("other/a"))
    assert contents(folder) == before
    assert run(call("other/a", options=Options(force=True)))[1] == ["a"]
    with pytest.raises(UsageError):
        run(call("in/a"))
    (folder / "other" / "a").rename(folder / "in" / "a")
    run(call("in/a"))
    write_sources(folder / "other", a="convert 8")
    (folder / "in" / "a").unlink()  # it is gone: there is one source for that OUT
    assert run(call("other/a"))[1] == ["a"]


def test_a_source_that_has_moved_is_known_by_its_bytes(folder: Path) -> None:
    run(call("in/a", "in/b"))
    (folder / "in").rename(folder / "moved")
    assert run(call("moved/a", "moved/b"))[1] == []
    assert results.read(Path("out"))["a"].source == "in/a"


class Stopping(InProcess):
    """Stops after two models, in the middle of the third."""

    def run(self, todo: Any, is_stopped: Any) -> Any:
        for number, job in enumerate(todo):
            if number == 2:
                yield job.end(results.INTERRUPTED, 130, ["it was told to stop"])
                return
            self.done.append(job.out)
            yield self._result(job)


def test_an_interrupted_batch_goes_on_where_it_was(folder: Path) -> None:
    summary, done = run(call(), Stopping())
    assert (done, summary.missing, summary.passed) == (["c", "b"], 2, False)
    assert statuses() == {"c": "refused", "b": "converted", "a": "interrupted"}
    assert run(call())[1] == ["a", "d", "e"]


def test_a_run_that_ends_while_it_works_leaves_whole_lines(folder: Path) -> None:
    class Failing(InProcess):
        def run(self, todo: Any, is_stopped: Any) -> Any:
            yield from [*super().run([*todo][:2], is_stopped)]
            raise WriteError("out", "cannot write: No space left on device")

    with pytest.raises(WriteError):
        run(call(), Failing())
    assert statuses() == {"c": "refused", "b": "converted"}
    assert run(call())[1] == ["a", "d", "e"]


def test_a_preview_says_what_would_be_done_and_writes_nothing(folder: Path) -> None:
    def preview(retry: str | None = None) -> dict[str, str]:
        given = call(retry=retry)
        return {job.out: what for job, what in batch.preview(given, batch.plan_batch(given, _read_flags))}

    before = contents(folder)
    assert preview() == dict.fromkeys(TEXTS, "convert")
    assert contents(folder) == before
    run(call())
    change_source(folder)
    before = contents(folder)
    assert preview() == {"a": "convert", "b": "skip", "c": "keep", "d": "keep", "e": "keep"}
    assert preview("all") == {"a": "convert", "b": "skip", "c": "convert", "d": "convert", "e": "convert"}
    assert contents(folder) == before


def test_a_row_has_options_of_its_own_in_place_of_the_call_s(folder: Path) -> None:
    rows = [
        {"source": "in/a", "flags": ["--format", "onnx"], "out": "nets/a"},
        {"source": "in/b", "flags": "--set x=1 --no-verify"},
    ]
    (folder / "models.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = Options(format="frozen", set=("y=2", "z=3"), seed=7)
    given = Batch((), Path("out"), options, manifest=Path("models.jsonl"))
    plan = batch.plan_batch(given, _read_flags)
    assert {job.out: job.options for job in plan.jobs} == {
        "nets/a": replace(options, format="onnx"),
        "in/b": replace(options, set=["x=1"], verify=False),
    }
    assert len({job.flags for job in plan.jobs}) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"words": ()}, "expected models, found none; name files, folders, patterns or a manifest"),
        ({"report": Path("r.json")}, r"--report: expected a name that ends in .html, found r.json"),
        ({"folder": Path("in/a")}, "--out: expected a folder, found the file in/a"),
        ({"folder": Path("ftp://b/out")}, "ftp://b/out: expected a path or s3://, gs://, memory://, found"),
    ],
)
def test_a_call_that_is_wrong_is_refused(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        batch.plan_batch(replace(call(), **settings), _read_flags)
    assert str(caught.value).startswith(message)
    assert {*folder.iterdir()} == {folder / "in"}


def test_a_page_has_a_row_a_model(folder: Path) -> None:
    given = call(report=Path("pages/all.html"))
    plan = batch.plan_batch(given, _read_flags)
    assert {job.out: job.page for job in plan.jobs}["a"] == Path("pages/all/a.html")
    (folder / "pages" / "all").mkdir(parents=True)
    (folder / "pages" / "all" / "a.html").write_text("a model's own")
    batch.run_plan(given, plan, InProcess(), lambda _: None)
    text = (folder / "pages" / "all.html").read_text()
    assert "2 of 5 models converted, or portable already" in text
    assert text.count("<tr>") == 1 + len(TEXTS)
    assert '<a href="all/a.html">report</a>' in text and text.count("<a ") == 1
    row = re.search(r"<code>in/<wbr>c</code>.*?</tr>", text)
    assert row is not None
    assert row[0].index("in/c: expected less") < row[0].index('data-head="OUT"'), (
        "the reason beside its model"
    )
    run(replace(given, words=("in/a",)))  # a page of ours is replaced, of the models of this call
    assert (folder / "pages" / "all.html").read_text().count("<tr>") == 2


def test_a_page_of_somebody_else_is_not_replaced(folder: Path) -> None:
    (folder / "all.html").write_text("a thesis")
    with pytest.raises(
        UsageError, match=r"all\.html: expected a new path, found a file that this tool did not"
    ):
        run(call(report=Path("all.html")))
    assert {path.name for path in folder.iterdir()} == {"in", "all.html"}


def test_a_plan_is_the_same_each_time(folder: Path) -> None:
    one, other = (batch.plan_batch(call(), _read_flags) for _ in range(2))
    assert one == other and isinstance(one, BatchPlan)
    assert (folder / "in" / "a").is_file() and not (folder / "out").exists()


def test_a_result_that_stands_keeps_what_was_measured(folder: Path) -> None:
    run(call("in/a"))
    first = results.read(Path("out"))["a"]
    run(call("in/a"))
    assert results.read(Path("out"))["a"] == replace(first, status="skipped")
    assert isinstance(first, JobResult) and (folder / "out" / "a" / MARK).exists()


def test_folders_in_which_nothing_is_are_removed(folder: Path) -> None:
    """Their conversions left them: one that removes a folder would remove it under the next."""
    write_sources(folder / "in" / "x" / "y", a="refuse it", b="refuse it too")
    write_sources(folder / "in" / "z", a="refuse it", b="convert 1")
    write_sources(folder / "in" / "kept", a="refuse it")
    (folder / "out" / "kept").mkdir(parents=True)
    names = ("x/y/a", "x/y/b", "z/a", "z/b", "kept/a")
    summary, _ = run(call(*(f"in/{name}" for name in names), report=Path("pages/all.html")))
    assert summary.counts == {"refused": 4, "converted": 1}
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["kept", "results.jsonl", "z"]
    assert [path.name for path in (folder / "pages").iterdir()] == ["all.html"]


def test_what_another_command_wrote_is_replaced_with_force_alone(folder: Path) -> None:
    """Where a batch has written before, it is what a run left that was killed before its line was written."""
    for name in ("out", "killed"):
        (folder / name / "a").mkdir(parents=True)
        (folder / name / "a" / MARK).touch()
    run(call("in/a", "in/b"))
    reason = (
        "out/a: expected a new path, found what this tool wrote before; choose another path, or replace it"
    )
    assert results.read(Path("out"))["a"].reasons[0].startswith(reason)
    assert results.read(Path("out"))["a"].exit_code == 2
    (folder / "out" / "results.jsonl").unlink()
    assert run(call("in/a", options=Options(force=True)))[0].passed
    (folder / "killed" / "results.jsonl").touch()
    assert run(replace(call("in/a"), folder=Path("killed")))[0].passed
