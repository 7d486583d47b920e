"""What the whole suite shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A path where nothing is yet."""
    return tmp_path / "out"
