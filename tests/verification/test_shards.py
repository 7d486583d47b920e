"""Shards of a user's feeds, compared apart: the figures of one process, whatever the shards' own bounds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import command
from support.ray_nodes import begin_cluster
from support.record_files import example, record
from support.samples import fixture

from cudnn_convert import pipeline
from cudnn_convert.errors import UsageError
from cudnn_convert.feeds import data
from cudnn_convert.feeds.data import Data, read_calls, read_shard, share_out
from cudnn_convert.options import Options
from cudnn_convert.verification import check, end_to_end, shards, source_runs
from cudnn_convert.verification.end_to_end import Comparison
from cudnn_convert.verification.settings import make_settings, open_runner

SAMPLE = "1.15.5-v3_batch_major"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact, and shards of feeds: of some sizes, of one size alone, with one that is large."""
    folder = tmp_path_factory.mktemp("shards")
    assert command(fixture(SAMPLE).prefix, folder / "m.onnx", "--no-verify", "--quiet").code == 0
    rng = np.random.default_rng(7)
    for number, sizes in enumerate([[(5, 3), (9, 2)], [(4, 4)], [(6, 6), (6, 6)], [(11, 2)]]):
        feeds = {}
        for k, (steps, rows) in enumerate(sizes):
            feeds[f"feed{k}/x"] = rng.normal(0, 1 + number, (rows, steps, 3)).astype(np.float32)
            feeds[f"feed{k}/h0"] = rng.normal(0, 1, (rows, 2, 6)).astype(np.float32)
        np.savez(folder / f"shard{number}.npz", **feeds)
    return folder


def options(folder: Path, **settings: Any) -> Options:
    return Options(**{"data": folder / "shard*.npz"} | settings)


#: Batches of what `records` writes: the last is of one example.
RECORDS: dict[str, Any] = {"features": ("x=float32[?,3],h0=float32[2,6]",), "batch": 3, "limit_examples": 10}


@pytest.fixture(scope="module")
def records(folder: Path) -> Path:
    """A pattern of records, one of whose files is compressed."""
    rng = np.random.default_rng(8)
    for number, (rows, ending) in enumerate([(5, ""), (2, ".gz"), (4, "")]):
        whole = b""
        for row in range(rows):
            steps = 2 + (3 * row + number) % 5
            x = rng.normal(0, 1 + number, 3 * steps).astype(np.float32)
            features = {"x": x, "h0": rng.normal(0, 1, 12).astype(np.float32)}
            whole += record(example(features))
        path = folder / f"part{number}.tfrecord{ending}"
        path.write_bytes(gzip.compress(whole) if ending else whole)
    return folder / "part*"


class Here:
    """Shares calls out in this process, and notes how many; later shards are done first."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, function: Callable[..., Any], *columns: Sequence[Any]) -> Iterator[Any]:
        rows = [*zip(*columns, strict=True)]
        self.calls += len(rows)
        return iter([*reversed([function(*row) for row in reversed(rows)])])


def verify(folder: Path, share: Any = None, **settings: Any) -> dict[str, Any]:
    """The verification as JSON."""
    result = pipeline.verify(fixture(SAMPLE).prefix, folder / "m.onnx", options(folder, **settings), share)
    return dict(json.loads(result.to_json()))


def test_shards_have_the_figures_of_one_process(folder: Path) -> None:
    whole, share = verify(folder), Here()
    assert len(whole["feeds"]) == 6
    assert verify(folder, share) == whole
    # Of feeds of one size alone no axis is known to be time: these are compared again, by the bounds of all.
    assert 4 < share.calls < 8


def test_what_bounds_are_held_against_is_of_all_shards(folder: Path) -> None:
    """Spread and types of each output, and the first evaluation of the noise."""
    pair = pipeline.plan_for_artifact(fixture(SAMPLE).prefix, folder / "m.onnx", options(folder))
    settings = make_settings(pair.plan, pair.options)
    runner = open_runner(settings, pair.path)
    trial = source_runs.run_source(settings)
    whole = Comparison(settings, trial, end_to_end.run_artifact(settings.plan, runner, trial.feeds))
    joined = shards.compare_shards(
        settings,
        lambda files, bounds: (shards.measure_shard(settings, runner, file, bounds) for file in files),
    )
    for output in settings.plan.signature.outputs:
        assert joined.spread(output) == whole.spread(output) > 0
    assert joined.kinds == whole.kinds
    gaps = [[max(column) for column in zip(*joined.first_gaps, strict=True)], check.measure_noise(whole)]
    assert gaps[0] == gaps[1] and min(gaps[0]) > 0


def test_terms_of_the_user_are_those_of_each_shard(folder: Path) -> None:
    whole, share = verify(folder, atol=1e-3, rtol=0.0), Here()
    assert verify(folder, share, atol=1e-3, rtol=0.0) == whole


def test_a_difference_is_told_as_by_one_process(folder: Path) -> None:
    """The worst element lies in one feed of one shard, which has its number among all."""
    lines = []
    for share in (None, Here()):
        with pytest.raises(pipeline.VerificationError) as caught:
            verify(folder, share, atol=1e-9, rtol=0.0)
        lines.append((caught.value.reasons, json.loads(caught.value.report.to_json())))
    assert lines[0] == lines[1]
    assert lines[0][1]["outputs"][0]["worst_element"]["feed"] > 1


def test_shards_need_data(folder: Path) -> None:
    with pytest.raises(UsageError, match="--jobs: expected shards of feeds, found none; give --data with a"):
        pipeline.verify(fixture(SAMPLE).prefix, folder / "m.onnx", Options(), Here())
    line = r"shards\*\.npz: expected a pattern that matches .npz files or records, found nothing$"
    with pytest.raises(UsageError, match=line):
        pipeline.verify(
            fixture(SAMPLE).prefix, folder / "m.onnx", Options(data=folder / "shards*.npz"), Here()
        )


@pytest.mark.slow("cudnn_convert/verification/shards.py", "cudnn_convert/feeds/")
def test_records_are_shared_out_as_one_process_draws_them(folder: Path, records: Path) -> None:
    whole, share = verify(folder, data=records, **RECORDS), Here()
    assert whole["data"].endswith(": 10 of 11 examples, in 4 calls of at most 3 (--limit-examples, --batch)")
    assert [feed["x"][0] for feed in whole["feeds"]] == [3, 3, 3, 1]
    assert verify(folder, share, data=records, **RECORDS) == whole
    assert share.calls >= 4


@pytest.mark.slow("cudnn_convert/feeds", "cudnn_convert/storage")
def test_a_shard_has_some_calls_and_bounded_bytes(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Data(records, RECORDS["features"], batch=2, limit=11, seed=3)
    calls = read_calls(given)
    expected = [feed["x"] for feed in calls.feeds]
    assert calls.summary == share_out(given)[1].summary == str(records)
    for shards_of_all, size, counts in ((3, 1 << 20, [2, 2, 2]), (1, 1, [1] * 6), (1, 1 << 20, [6])):
        with monkeypatch.context() as patch:
            patch.setattr(data, "_SHARDS", shards_of_all)
            patch.setattr(data, "_SHARD", size)
            parts, _ = share_out(given)
            assert [len(part) for part in parts if isinstance(part, tuple)] == counts
            found = [feed["x"] for part in parts for feed in read_shard(given, part).feeds]
            for value, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(value, other)


def test_records_that_changed_meanwhile_are_told(records: Path, tmp_path: Path) -> None:
    path = tmp_path / "part.tfrecord"
    whole = records.with_name("part0.tfrecord").read_bytes()
    path.write_bytes(whole)
    given = Data(path, RECORDS["features"])
    (part,), _ = share_out(given)
    assert isinstance(part, tuple)
    second = part[0][1].offset
    for content, said in (
        (whole[: second + 40], f"found {40 - 12} to the end of the file; write it again"),
        (whole[:second] + b"\1" + whole[second + 1 :], "bytes as before, found that the file changed"),
        (whole[: second + 30] + b"\1" + whole[second + 31 :], "found damaged ones; write it again"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=f"part.tfrecord: record at byte {second}: expected .*{said}"):
            read_shard(given, part)


def test_state_that_goes_from_call_to_call_is_not_shared_out(folder: Path, tmp_path: Path) -> None:
    source = fixture("1.15.5-state_lstm").prefix
    assert command(source, tmp_path / "m.onnx", "--no-verify", "--quiet").code == 0
    with pytest.raises(UsageError, match="found state that goes from one to the next; leave it out"):
        pipeline.verify(source, tmp_path / "m.onnx", options(folder), Here())


@pytest.mark.every
def test_processes_and_a_cluster_print_the_same(folder: Path, records: Path) -> None:
    call = ("verify", fixture(SAMPLE).prefix, folder / "m.onnx", "--json", "--quiet", "--data")
    of_examples = ("--features", *RECORDS["features"], "--batch", 3, "--limit-examples", 10)
    for given in ((folder / "shard*.npz",), (records, *of_examples)):
        whole = command(*call, *given)
        assert whole.code == 0
        assert command(*call, *given, "--jobs", 2) == whole
        with begin_cluster() as cluster:
            ray = ("--engine", "ray", "--ray-address", cluster.address)
            assert command(*call, *given, *ray) == whole
