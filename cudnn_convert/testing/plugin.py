"""The plugin of pytest: a fixture, and a page for each failed comparison.

Every run of pytest in an environment with this package loads this file, so it imports nothing that is heavy.
"""

import functools
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from cudnn_convert.report import Verification

_OPTION: Final = "--equivalence-report"
#: Under this name a test's properties have the pages of its failures, which xdist hands to the terminal.
_PROPERTY: Final = "equivalence_report"
_STEM: Final = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--equivalence-report DIR`."""
    about = "where assert_equivalent writes a page, and JSON, of each comparison that fails"
    group = parser.getgroup("cudnn_convert")
    # Absolute here: a worker of xdist may run in another folder.
    group.addoption(_OPTION, type=lambda text: str(Path(text).absolute()), metavar="DIR", help=about)


@pytest.fixture
def assert_equivalent(request: pytest.FixtureRequest) -> Callable[..., Verification]:
    """Return the comparing function, with pages kept in the folder of `--equivalence-report`.

    The function is that of `cudnn_convert.testing`.
    """
    from cudnn_convert import testing

    folder = request.config.getoption(_OPTION)
    pages: list[Path] = []

    @functools.wraps(testing.assert_equivalent)
    def compare(*given: Any, **terms: Any) -> Verification:
        __tracebackhide__ = True
        try:
            return testing.assert_equivalent(*given, **terms)
        except testing.EquivalenceError as error:
            if folder is None or terms.get("report") is not None:
                raise
            pages.append(_page(Path(folder), request.node.nodeid, len(pages)))
            pages[-1].parent.mkdir(parents=True, exist_ok=True)
            line = testing.write_report(error.report, pages[-1])
            request.node.user_properties.append((_PROPERTY, str(pages[-1])))
            failed = testing.EquivalenceError(error.report, f"{error}\n{line}")
        raise failed

    return compare


def _page(folder: Path, test: str, number: int) -> Path:
    """Return a file path for a comparison, unique to the test."""
    stem = re.sub(r"[^\w.-]+", "_", test)[-_STEM:]
    again = f"-{number + 1}" if number else ""
    return folder / f"{stem}-{zlib.crc32(test.encode()):08x}{again}.html"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the paths of the pages."""
    failed = terminalreporter.stats.get("failed", [])
    pages = [value for report in failed for name, value in report.user_properties if name == _PROPERTY]
    if pages:
        terminalreporter.section("equivalence reports")
        for page in pages:
            terminalreporter.line(str(page))
