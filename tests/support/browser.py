"""A browser for the tests of pages: the system's, or the one that `make test-every` installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest


def find_browser() -> str | None:
    """The path of Chromium, or None where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    if importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def measure(page: Path, profile: Path, *flags: str) -> Any:
    """What scripts on a page say as JSON in its title, between two `measured`; skips without a browser."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium on this machine; make test-every installs one")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", *flags,
         f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(unescape(done.stdout.split("<title>measured")[1].split("measured</title>")[0]))
