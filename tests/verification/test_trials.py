"""Feeds by their size, and the progress that running them shows."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert import context
from cudnn_convert.verification import trials
from cudnn_convert.verification.trials import Trial

FEEDS = [{"x": np.zeros((2, 3)), "ids": np.zeros(2)}, {"x": np.zeros((1, 3)), "ids": np.zeros(1)}]


def test_the_smallest_feed_has_the_fewest_values() -> None:
    trial = Trial(FEEDS, [], [])
    assert [trial.count_values(number) for number in range(2)] == [8, 4]
    assert trial.find_smallest() == 1


def test_each_turn_runs_all_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(context, "report_progress", lambda _, done, of: shown.append((done, of)))
    assert [*trials.count_feeds(FEEDS, 2)] == FEEDS
    assert shown == [(4, 8), (5, 8)]
