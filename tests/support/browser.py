"""A browser for the tests of pages: the system's, or the one that `make test-every` installed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import threading
from html import escape, unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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


#: Sends the text of an element to the server once it has some, or what went wrong before.
_TELL = """<script>{
  const tell = text => fetch("told", {method: "POST", body: text});
  addEventListener("error", one => tell("error: " + one.message));
  addEventListener("unhandledrejection", one => tell("error: " + one.reason));
  const wait = setInterval(() => {
    const text = document.getElementById("ELEMENT")?.textContent;
    if (text) { clearInterval(wait); tell(text); } }, 50);
}</script>"""


def read_served(page: Path, element: str, profile: Path) -> str:
    """The text that an element of a page gets, its folder served by HTTP; skips without a browser."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium on this machine; make test-every installs one")
    told, texts = threading.Event(), list[str]()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(page.parent))

        def do_GET(self) -> None:
            if self.path != f"/{page.name}":
                super().do_GET()
                return
            content = _TELL.replace("ELEMENT", element).encode() + page.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            texts.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()
            told.set()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # With a port for a debugger it stays until it is ended, and need not print anything.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}/{page.name}"
        with subprocess.Popen(
            [browser, *flags, f"--user-data-dir={profile}", address], stderr=subprocess.DEVNULL
        ) as process:
            told.wait(60)
            process.terminate()
        server.shutdown()
    assert texts, f"{page.name}: nothing in #{element} after a minute"
    return texts[0]


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
