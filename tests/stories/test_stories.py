"""The stories of five kinds of users: scripts that run as the docs have them, from the wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.samples import ROOT

STORIES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.sh"))}
#: The names in a story, and the samples that they are.
SAMPLES = {
    "checkpoint": ("tagger", "models/crf_tagger"),
    "engineer": ("tagger", "models/crf_tagger"),
    "keras3_export": ("exported", "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model"),
    "keras_file": ("model.h5", "tests/data/keras/keras-2.2.4/text_classifier/model.h5"),
    "streaming": ("speech", "models/gru_speech"),
}
#: The oldest and the newest Python that the package supports; `CUDNN_CONVERT_STORIES` names a folder with a
#: virtual environment for each, `3.10` and `3.13`, which has the wheel and pytest, so that none is made.
PYTHONS = ("3.10", "3.13")
ENVIRONMENTS = "CUDNN_CONVERT_STORIES"


def test_the_page_has_every_story_as_it_is() -> None:
    text = (ROOT / "docs" / "stories.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert sorted(blocks) == sorted(path.read_text(encoding="utf-8") for path in STORIES.values())
    assert SAMPLES.keys() == STORIES.keys()
    for _, sample in SAMPLES.values():
        assert f"`{sample}`" in text


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_a_script(name: str) -> None:
    subprocess.run(["bash", "-n", str(STORIES[name])], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(call, check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.every
def test_the_wheel_has_what_the_demo_and_the_command_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert {"cudnn_convert/cli/sample.zip", "cudnn_convert_command.py"} <= {*archive.namelist()}
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert "](docs/" not in text
    assert "/raw/main/docs/flow.svg)" in text


@pytest.fixture(scope="module", params=PYTHONS)
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder `bin` of a virtual environment that has the wheel, what it needs, and pytest."""
    version = request.param
    made = os.environ.get(ENVIRONMENTS)
    folder = Path(made, version) if made else tmp_path_factory.mktemp("environment") / version
    if not made:
        python = shutil.which(f"python{version}")
        # pyenv has a command for each Python that it knows, and ends with 127 where it is not chosen.
        if python is None or subprocess.run([python, "--version"], check=False).returncode:
            pytest.skip(f"no Python {version} that runs on this machine")
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    if made:  # what the wheel needs is there
        subprocess.run([*install, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    else:
        subprocess.run([*install, str(wheel), "pytest"], check=True)
    return folder / "bin"


@pytest.mark.every
@pytest.mark.parametrize("name", STORIES)
def test_a_story_runs_from_the_wheel(tmp_path: Path, environment: Path, name: str) -> None:
    call_it, sample = SAMPLES[name]
    copy = shutil.copytree if (ROOT / sample).is_dir() else shutil.copy
    copy(ROOT / sample, tmp_path / call_it)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    script = ["bash", "-eu", "-o", "pipefail", str(STORIES[name])]
    done = subprocess.run(
        script,
        cwd=tmp_path,
        env={**kept, "PATH": f"{environment}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
