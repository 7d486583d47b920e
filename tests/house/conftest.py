"""Hands the parameters that the first tier takes to the test of their names, before any are deselected."""

from __future__ import annotations

import pytest
from support import tiers


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[tiers.COLLECTED] = tuple(
        (item.nodeid.partition("[")[0], marker.args, item.callspec.id)
        for item in items
        if (marker := item.get_closest_marker("first"))
    )
