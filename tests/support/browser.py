"""A browser for the tests of pages: the system's, or the one that `make test-every` installed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

#: What overflows the window or its box, how many marks each plot has, and what was loaded.
_MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(one => !one.closest(".box, svg") &&
    one.getBoundingClientRect().right > innerWidth + 0.5).map(one => one.outerHTML.slice(0, 120));
  const cut = [...document.querySelectorAll(".box")].filter(one => one.scrollWidth > one.clientWidth)
    .map(one => one.innerText.slice(0, 40));
  const marks = [...document.querySelectorAll("svg")].map(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("path, circle, rect")].filter(mark => {
      const box = mark.getBoundingClientRect();
      return box.width * box.height > 0 && box.left >= frame.left && box.right <= frame.right &&
        box.top >= frame.top && box.bottom <= frame.bottom; }).length; });
  const told = {inner: innerWidth, scroll: document.documentElement.scrollWidth, wide, cut, marks,
    fetched: performance.getEntriesByType("resource").map(one => one.name)};
  parent.document.title = "measured" + JSON.stringify(told) + "measured";
});</script>"""


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


def measure_in_frame(text: str, width: int, folder: Path) -> Any:
    """What `_MEASURE` says of a page in a frame of `width` pixels, for a window has at least 500.

    The policy of a page lets no script run, ours neither: it is taken out. Folded parts are opened.
    """
    text = re.sub(r"<meta http-equiv=.*?>", "", text).replace("<details", "<details open")
    inner = escape(text.replace("</body>", f"{_MEASURE}</body>"))
    file = folder / "page.html"
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{inner}"></iframe>'
    file.write_text(f"<!doctype html><body>{frame}</body>", encoding="utf-8")
    return measure(file, folder / "profile")
