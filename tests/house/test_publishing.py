"""What a release needs: versions that agree, workflows of the README's commands, addresses in one place."""

from __future__ import annotations

import json
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
    released = re.search(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.MULTILINE)
    assert released
    assert newest[1] in ("Unreleased", f"{__version__} - {released[1]}")


def test_what_the_tests_need_has_a_newest_release() -> None:
    """In constraints.txt, or in pyproject.toml: a release of another project turns no test red."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [
        *project["dependencies"],
        *(line for extra in ("dev", "flax", "micro", "yaml") for line in extras[extra]),
    ]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(lines) and all("<=" in line for line in lines)
    bounded = {line.partition("<=")[0] for line in lines}
    names = {
        re.split(r"[^\w-]", line, maxsplit=1)[0] for line in required if "<" not in line.partition(";")[0]
    }
    assert names - bounded == {"cudnn-convert"}


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


def test_workflows_name_files_that_are_there() -> None:
    named = {
        name
        for path in (GITHUB / "workflows").glob("*.yml")
        for name in re.findall(r"\b(?:models|scripts|tests|docs)/[\w./-]+", path.read_text())
    }
    assert "models/crf_tagger" in named
    for name in named:
        assert [*ROOT.glob(f"{name}*")], name


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "cudnn_convert" / "py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Typing :: Typed" in project["classifiers"]


def test_what_the_owner_fills_in_stands_in_one_place() -> None:
    placeholder = "example" + ".invalid"
    files = [*ROOT.glob("*.*"), *GITHUB.rglob("*.yml"), *ROOT.glob("docs/**/*.md")]
    named = [file.name for file in files if file.is_file() and placeholder in file.read_text(errors="ignore")]
    assert named in ([], ["pyproject.toml"])


def test_links_of_the_long_description_are_addresses() -> None:
    """PyPI shows the README without the repository, so the build completes each link to a file."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "fancy-pypi-readme" in str(settings["build-system"]["requires"])
    assert "readme" in settings["project"]["dynamic"]
    repository = settings["project"]["urls"]["Repository"]
    assert all(url.startswith(repository) for url in settings["project"]["urls"].values())
    hook = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    (fragment,) = hook["fragments"]
    text = (ROOT / fragment["path"]).read_text(encoding="utf-8")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    assert ("!", "docs/flow.svg") in links
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text) == [
        (image, f"{repository}/{'raw' if image else 'blob'}/main/{link}") for image, link in links
    ]


#: Instructions of a Dockerfile: docs.docker.com, Dockerfile reference, overview.
_INSTRUCTIONS = frozenset("FROM WORKDIR COPY RUN ENV USER ENTRYPOINT CMD".split())


def test_the_image_is_slim_has_no_root_and_takes_the_arguments() -> None:
    """Where a Docker daemon is, `.github/workflows/test.yml` builds and runs it."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    steps = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]
    assert {name for name, _ in steps} <= _INSTRUCTIONS
    bases = [value.split()[0] for name, value in steps if name == "FROM"]
    assert bases == ["python:3.12-slim"] * 2
    last = steps[[number for number, (name, _) in enumerate(steps) if name == "FROM"][-1] :]
    assert [value for name, value in last if name == "USER"] == ["converter"]
    (entry,) = (json.loads(value) for name, value in last if name == "ENTRYPOINT")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry == [*scripts]
    assert all("--no-cache-dir" in value for name, value in steps if name == "RUN" and "pip" in value)
    copied = {word for name, value in steps if name == "COPY" for word in value.split()[:-1]}
    assert all((ROOT / word).exists() for word in copied)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert kept == copied
