"""The plugin in runs of pytest of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import numpy as np
import pytest

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

def original(x):
    return {"y": X * 2, "h": X[0]}

def other(x):
    return {"y": X * 2, "h": X[0] + 1}

@pytest.mark.parametrize("name", ["a/b", "a_b"])
def test_differ(assert_equivalent, name):
    assert_equivalent(other, original, {"x": X})

def test_same(assert_equivalent):
    assert assert_equivalent(original, original, {"x": X}).passed

def test_caught(assert_equivalent):
    for _ in range(2):
        with pytest.raises(AssertionError):
            assert_equivalent(other, original, {"x": X})
"""
LOADED = """
import json, sys

def pytest_collection_finish(session):
    names = {name.partition(".")[0] for name in sys.modules}
    ours = [name for name in sys.modules if name.startswith("cudnn_convert")]
    plugin = session.config.pluginmanager.has_plugin("cudnn_convert")
    open("loaded.json", "w").write(json.dumps([sorted(names), ours, plugin]))
"""


def run(pytester: pytest.Pytester, *words: str) -> Any:
    """In this process, which has loaded all; a run starts with plugins of its own."""
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *words)


def run_anew(pytester: pytest.Pytester, *words: str) -> Any:
    """Where nothing is left of what this run of pytest was asked for."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)


def test_it_loads_nothing_that_is_heavy(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADED)
    pytester.makepyfile("")
    run_anew(pytester, "--collect-only")
    names, ours, plugin = json.loads((pytester.path / "loaded.json").read_text())
    assert plugin
    assert "cudnn_convert.testing.plugin" in ours
    heavy = {"tensorflow", "keras", "tf_keras", "onnx", "onnxruntime", "tf2onnx", "h5py", "google", "rich"}
    assert not heavy.intersection(names)
    assert not {"cudnn_convert.pipeline", "cudnn_convert.artifacts.runners", "cudnn_convert.report.page"} & {
        *ours
    }


@pytest.mark.parametrize(
    "workers",
    [[], pytest.param(["-n", "2"], marks=pytest.mark.slow("cudnn_convert/testing/"))],
    ids=["alone", "xdist"],
)
def test_a_page_for_each_failure(workers: list[str], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = (run_anew if workers else run)(pytester, "--equivalence-report", "pages", *workers)
    result.assert_outcomes(failed=2, passed=2)
    text = result.stdout.str()
    begin = text.index("equivalence reports")
    listed = re.findall(r"^(/.*\.html)$", text[begin:], re.MULTILINE)
    # Of the two names that look alike as files, each has its own; what was caught is kept, and not listed.
    assert len({*listed}) == 2
    assert all(Path(file).parent == pytester.path / "pages" and "test_differ_a_b" in file for file in listed)
    kept = sorted((pytester.path / "pages").glob("*.html"))
    assert len(kept) == 4
    for file in kept:
        assert "<h1>Different in 1 of " in file.read_text()
        told = json.loads(file.with_suffix(".json").read_text())
        assert [one["output"] for one in told["outputs"] if not one["passed"]] == ["h"]
    for file in listed:
        assert f"report: {file}" in text[:begin]


def test_a_failure_shows_the_test_and_the_figures_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = run(pytester, "-k", "differ and not a_b")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            ">*assert_equivalent(other, original, {*",
            "E*EquivalenceError: 1 of 2 outputs differ: other against original",
            "E*output h: at [[]0[]] expected 1, found 2, allowed 2.0e-05",
            "E*output  verdict *",
        ]
    )
    assert "judged.py" not in text
    assert "plugin.py" not in text
    assert "equivalence reports" not in text
    assert not [*pytester.path.glob("**/*.html")]


def test_a_report_that_the_test_asks_for_itself_is_the_only_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.replace('{"x": X})', '{"x": X}, report="own.html")'))
    run(pytester, "--equivalence-report", "pages", "-k", "differ").assert_outcomes(failed=2)
    assert (pytester.path / "own.html").is_file()
    assert not (pytester.path / "pages").exists()
