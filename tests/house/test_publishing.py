"""What a release needs: versions that agree, workflows of the README's commands, addresses in one place."""

from __future__ import annotations

import re
import sys

from support.samples import ROOT

from cudnn_convert.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GITHUB = ROOT / ".github"


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == __version__  # type: ignore[index]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    assert newest
    assert re.fullmatch(rf"Unreleased|{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", newest[1])


def test_every_supported_python_is_tested_and_classified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (GITHUB / "workflows" / "test.yml").read_text()
    tested = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.+)\]", workflow)[1])  # type: ignore[index]
    assert tested == classified
    assert project["requires-python"] == ">=3.10,<3.14"
    assert (tested[0], tested[-1]) == ("3.10", "3.13")


def test_workflows_run_the_commands_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    called = {
        name
        for path in (GITHUB / "workflows").glob("*.yml")
        for name in re.findall(r"make ([a-z-]+)", path.read_text().partition("on:")[2])
    }
    assert called == {"demo", "test", "docs"}
    assert called <= targets


def test_what_the_owner_fills_in_stands_in_one_place() -> None:
    placeholder = "example" + ".invalid"
    files = [*ROOT.glob("*.*"), *GITHUB.rglob("*.yml"), *ROOT.glob("docs/**/*.md")]
    assert [
        file.name for file in files if file.is_file() and placeholder in file.read_text(errors="ignore")
    ] == ["pyproject.toml"]
