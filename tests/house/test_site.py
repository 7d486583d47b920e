"""The site of docs/, where mkdocs is installed (`make docs` does so): strict, complete, whole on a phone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.browser import measure
from support.samples import ROOT

PAGES = [*(ROOT / "docs").rglob("*.md")]
MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll(".md-content *")].filter(one =>
    !one.closest("pre, .md-typeset__scrollwrap, p:has(> img[src*=speed-])") &&
    one.getBoundingClientRect().right > innerWidth + 0.5).map(one => one.outerHTML.slice(0, 120));
  const cut = [...document.querySelectorAll(".md-typeset__scrollwrap")]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 40));
  const fetched = performance.getEntriesByType("resource").map(one => one.name)
    .filter(one => !one.startsWith("file:"));
  parent.postMessage({page: location.pathname, inner: innerWidth, wide, cut, fetched,
    scroll: document.documentElement.scrollWidth}, "*");
});</script>"""
COLLECT = """<script>const told = []; addEventListener("message", one => {
  told.push(one.data);
  document.title = "measured" + JSON.stringify(told) + "measured"; });</script>"""
#: Of what `make test` does not install.
pytestmark = [
    pytest.mark.every,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="no mkdocs; make docs installs it"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--site-dir", folder / "site"]  # --quiet would hide what --strict counts
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_the_site_builds_strictly_and_fetches_nothing(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(PAGES)
    for page in pages:
        for tag in re.findall(r"<(?:script|img|iframe|link)[^>]*>", page.read_text(encoding="utf-8")):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag), (page, tag)


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_of_the_site_overflows_in_a_browser(site: Path, width: int, tmp_path: Path) -> None:
    """All pages at once, each in a frame of that width, for a window has at least 500 pixels."""
    shutil.copytree(site, tmp_path / "site")
    pages = sorted((tmp_path / "site").rglob("*.html"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px" frameborder=0 src="{p.as_uri()}"></iframe>'
        for p in pages
    )
    (tmp_path / "all.html").write_text(f"<!doctype html>{COLLECT}<body>{frames}</body>", encoding="utf-8")
    told = measure(tmp_path / "all.html", tmp_path / "profile", "--virtual-time-budget=20000")
    assert len(told) == len(pages)
    for one in told:
        assert one["inner"] == width
        assert one["scroll"] <= width, one
        assert one["wide"] == [], one
        assert width < 1280 or one["cut"] == [], one  # on a phone a wide table scrolls
        assert one["fetched"] == [], one
