"""The process that measures a model: its feeds in turn, its cores."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudnn_convert.benchmark import worker
from cudnn_convert.options import Options


def test_a_process_asks_every_feed_and_binds_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    server = worker._Server()
    server._opening, server._feeds = SimpleNamespace(run=seen.append), ["a", "b", "c"]  # type: ignore[list-item]
    assert len(server._measure(5)) == 5 and seen == ["a", "b", "c", "a", "b"]
    np.savez(tmp_path / "d.npz", x=np.arange(7))
    server._options = Options(data=tmp_path / "d.npz")
    for batch, shapes in ((3, [3]), (0, [7])):
        answer = server.read(batch=batch, seed=1, out=str(tmp_path / "out.npz"))
        assert answer["shapes"] == {"x": shapes}
    monkeypatch.setattr(worker.os, "environ", environment := {})
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: {4, 2, 7}, raising=False)
    monkeypatch.setattr(
        worker.os, "sched_setaffinity", lambda pid, cores: seen.append((pid, [*cores])), raising=False
    )
    worker.bind_to_cores(2)
    assert seen[-1] == (0, [2, 4]) and {*environment.values()} == {"2"}
