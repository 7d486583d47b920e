"""A batch on a cluster of Ray: two nodes on this machine, one of which is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.batch_work import WORK, make_jobs
from support.command_line import command
from support.ray_nodes import begin_cluster
from support.samples import ROOT

from cudnn_convert import process
from cudnn_convert.batch import ray_cluster
from cudnn_convert.batch.pool import LocalPool
from cudnn_convert.batch.results import JobResult


def test_without_ray_the_line_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "a.h5").touch()
    ended = command("batch", tmp_path / "a.h5", "--out", tmp_path / "out", "--engine", "ray")
    line = "--engine ray: expected Ray, found that it is not installed; "
    line += "install it: pip install 'cudnn-convert[ray]'"
    assert (ended.code, ended.stdout, ended.stderr) == (4, "", f"cudnn-convert: {line}\n")
    assert not (tmp_path / "out").exists()


def test_an_address_needs_its_engine(tmp_path: Path) -> None:
    ended = command("batch", tmp_path, "--out", tmp_path / "out", "--ray-address", "auto")
    line = "--ray-address: expected --engine ray with it, found none; give both, or neither"
    assert (ended.code, ended.stderr) == (2, f"cudnn-convert: {line}\n")


TEXTS = {
    "first": "convert 1",
    "crash": "abort",
    "leave": "exit 3",
    "loop": "hang 60",
    "large": f"allocate {2 << 30}",
    "bug": "raise what nobody expected",
    "refuse": "refuse expected a model, found none",
    "differ": "differ output y: too large",
    "last": "convert 2",
}


def comparable(results: Iterator[JobResult]) -> dict[str, JobResult]:
    """Results by OUT, without what was measured and which process it was."""
    return {result.out: replace(result, seconds=0.0, peak_mb=None, verification=None) for result in results}


@pytest.mark.every
def test_each_end_is_as_on_this_machine_alone(tmp_path: Path) -> None:
    limits = ("seconds=3", "memory=1G")
    jobs = make_jobs(tmp_path, *limits, **TEXTS)
    here = comparable(LocalPool(2, work=WORK).run(jobs, lambda: False))
    others = [replace(job, folder=tmp_path / "other") for job in jobs]
    (tmp_path / "other").mkdir()
    with begin_cluster() as cluster, ray_cluster.connect(cluster.address, None, work=WORK) as engine:
        there = comparable(engine.run(others, lambda: False))
    assert there == here, [(there[k], here[k]) for k in here if there.get(k) != here[k]]
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["first", "last"]


@pytest.mark.every
def test_what_a_lost_node_was_at_is_done_again(tmp_path: Path) -> None:
    """Also where it had put OUT in place, and could no longer say so."""
    texts = {f"m{k}": "wait 1" for k in range(6)}
    jobs = make_jobs(tmp_path, **texts)
    with begin_cluster() as cluster, ray_cluster.connect(cluster.address, None, work=WORK) as engine:
        ended = []
        for result in engine.run(jobs, lambda: False):
            ended.append(result)
            if len(ended) == 2:
                cluster.lose_node()
    assert sorted((result.out, result.status) for result in ended) == [(out, "converted") for out in texts]
    assert not [*tmp_path.rglob("*.tmp")]


@pytest.mark.every
def test_a_model_that_loses_each_worker_is_given_up(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, bad="lose_worker", good="convert")
    with begin_cluster() as cluster, ray_cluster.connect(cluster.address, None, work=WORK) as engine:
        ended = {result.out: result for result in engine.run(jobs, lambda: False)}
    assert (ended["bad"].status, ended["bad"].exit_code) == ("crashed", 1)
    (line,) = ended["bad"].reasons
    assert line.startswith(f"{tmp_path}/in/bad: its worker was lost 3 times, or the node with it: ")
    assert line.endswith("; give it more memory with --limit memory=NUMBER")
    assert ended["good"].status == "converted"


@pytest.mark.every
def test_the_memory_of_the_driver_does_not_grow_with_the_models() -> None:
    call = [sys.executable, ROOT / "scripts" / "bench_batch.py", "--rounds", "0", "--engine", "ray"]
    ended = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    match = re.search(r"the parent has ([+-][\d.]+)% more memory", ended.stdout)
    assert match is not None and float(match[1]) < 10, ended.stdout


@pytest.mark.every
@pytest.mark.parametrize(
    ("grace", "is_heard"),
    [(process.GRACE, True), (0, True), (1, False)],
    ids=["in_time", "too_slow", "not_heard"],
)
def test_a_stop_interrupts_the_tasks(
    grace: int, is_heard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that does not end in time is killed with its process; nothing is left of either.

    Ray kills the process before the worker, whose task may say meanwhile that it crashed.
    """
    import ray

    monkeypatch.setattr(process, "GRACE", grace)
    jobs = make_jobs(tmp_path, a="hang_known 600", b="hang_known 600", c="convert")
    began = time.monotonic()

    def are_at_work() -> bool:
        """Whether both tasks have begun: Ray's processes take their time, more where much else runs."""
        return len([*tmp_path.glob("in.*")]) == 2 or time.monotonic() > began + 500

    def cancel(task: Any, *, force: bool) -> None:
        if force:
            for known in tmp_path.glob("in.*"):
                with suppress(ProcessLookupError):
                    os.kill(int(known.suffix[1:]), signal.SIGKILL)
            ray.wait([task], timeout=30)

    if not is_heard:
        monkeypatch.setattr(ray, "cancel", cancel)
    with begin_cluster() as cluster, ray_cluster.connect(cluster.address, None, work=WORK) as engine:
        ended = [*engine.run(jobs, are_at_work)]
    assert sorted((result.out, result.status, result.exit_code) for result in ended) == [
        ("a", "interrupted", 130),
        ("b", "interrupted", 130),
    ]
    assert time.monotonic() - began < 600  # none has waited out its 600 seconds
    assert not [*(tmp_path / "out").rglob("*")]
