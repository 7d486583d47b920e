"""Hands the mutants that a run collects to the register's test, before any are deselected."""

from __future__ import annotations

import pytest
from mutants import register


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[register.COLLECTED] = register.Collected(
        frozenset(item.nodeid.partition("::")[0] for item in items), tuple(register.tried(items))
    )
