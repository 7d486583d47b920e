"""The reference networks of models/: the commands of their READMEs, judged by TensorFlow 1.15's own answers.

The artifacts run where their users run them: TensorFlow 2, ONNX Runtime or Keras 3, without cudnn_convert.
"""

from __future__ import annotations

import functools
import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import artifacts
from support.command_line import command, parsed
from support.recorded import assert_close
from support.samples import ROOT
from support.tiers import some

import cudnn_convert
from cudnn_convert.artifacts import runners

MODELS = {path.parent.name: path.parent for path in sorted((ROOT / "models").glob("*/case.json"))}
TRAINED = [name for name, folder in MODELS.items() if (folder / "train.py").exists()]
CHARACTERS = "char_lm"
#: The least share of new examples that a model answers rightly.
ACCURACY = {"crf_tagger": 1.0, "ocr_crnn": 0.95, "gru_speech": 0.95, CHARACTERS: 0.9, "seq2seq": 0.99}


def commands(name: str, *, verify: bool = False) -> list[list[str]]:
    """The conversions that the README of a model shows, without the program; or its verifications."""
    lines = (MODELS[name] / "README.md").read_text(encoding="utf-8").splitlines()
    calls = [shlex.split(line)[1:] for line in lines if line.startswith("    cudnn-convert ")]
    return [words for words in calls if (words[0] == "verify") is verify]


def form(words: list[str]) -> str:
    return words[words.index("--format") + 1] if "--format" in words else "savedmodel"


CALLS = [(name, form(words)) for name in MODELS for words in commands(name)]


def case(name: str) -> dict[str, Any]:
    return dict(json.loads((MODELS[name] / "case.json").read_text()))


def source(name: str) -> Path:
    return MODELS[name] / str(case(name).get("file", "model.ckpt"))


def feeds(name: str) -> list[dict[str, np.ndarray]]:
    """The recorded tensors of each call."""
    with np.load(MODELS[name] / "golden.npz") as data:
        calls = sorted({key.partition("/")[0] for key in data.files})
        return [
            {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"{call}/")}
            for call in calls
        ]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, Any]]:
    """Gives the answered job of a model and a format; its command runs when it is first asked for."""

    @functools.cache
    def of(name: str, wanted: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(wanted)
        (words,) = (words for words in commands(name) if form(words) == wanted)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            job = converted(name, words, folder)
        artifacts.answer([job])
        return job

    return of


def converted(name: str, words: list[str], folder: Path) -> dict[str, Any]:
    """Runs a command of a README; gives the user's job."""
    shutil.copytree(MODELS[name], folder / "models" / name)
    ended = command(*words, "--quiet")
    assert (ended.code, ended.stderr) == (0, "")
    written, path, recorded = runners.identify(folder / words[1])
    assert written == form(words)
    assert recorded is not None
    names = {
        kind: {
            key: {"source": key if key in feeds(name)[0] else recorded[kind][key], "artifact": artifact}
            for key, artifact in recorded["tensors"][kind].items()
        }
        for kind in ("inputs", "outputs")
    }
    states = states_of(path) if written == "onnx" else {}
    golden, answers = str(MODELS[name] / "golden.npz"), str(folder / f"{name}.npz")
    job = {"artifact": str(path), "format": written, "golden": golden, "answers": answers, "states": states}
    return {**job, **names}


def states_of(path: Path) -> dict[str, dict[str, Any]]:
    """The inputs of an ONNX model that have an output which they are next; they begin with zeros."""
    graph = onnx.load(str(path)).graph
    outputs = {found.name for found in graph.output}
    return {
        found.name: {
            "next": f"{found.name}_next",
            "shape": [dim.dim_value for dim in found.type.tensor_type.shape.dim],
            "dtype": "float32",
        }
        for found in graph.input
        if f"{found.name}_next" in outputs
    }


def compared(job: dict[str, Any], name: str) -> None:
    outputs = {names["source"]: key for key, names in job["outputs"].items()}
    assert set(outputs) >= set(case(name)["outputs"])
    with np.load(job["answers"]) as answers:
        for number, feed in enumerate(feeds(name)):
            for output in case(name)["outputs"]:
                found, expected = answers[f"feed{number}/{outputs[output]}"], feed[output]
                if expected.dtype.kind in "iu":
                    np.testing.assert_array_equal(found, expected)
                else:
                    assert_close(found, expected)


def tiered(calls: Iterable[tuple[str, str]]) -> Iterator[Any]:
    """All of a model in one process; to ONNX each time."""
    for name, wanted in calls:
        marks = [pytest.mark.xdist_group(f"models-{name}")]
        marks += [] if wanted == "onnx" else [pytest.mark.every]
        yield pytest.param(name, wanted, marks=marks, id=f"{wanted}-{name}")


@pytest.mark.first("onnx-gru_speech")
@pytest.mark.parametrize(("name", "wanted"), tiered(CALLS))
def test_the_command_of_the_readme(answered: Any, name: str, wanted: str) -> None:
    compared(answered(name, wanted), name)


@pytest.mark.every
@pytest.mark.parametrize("name", [name for name in MODELS if commands(name, verify=True)])
def test_the_readme_verifies_the_recording(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact that the README made gives what TensorFlow 1.15 gave."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODELS[name], tmp_path / "models" / name)
    for words in (commands(name)[0], *commands(name, verify=True)):
        ended = command(*words, "--quiet")
        assert (ended.code, ended.stderr) == (0, "")


def test_every_readme_has_a_command_for_each_format() -> None:
    for name in TRAINED:
        formats = {wanted for model, wanted in CALLS if model == name}
        assert formats == {"savedmodel", "onnx"} | ({"keras"} if name == CHARACTERS else set())


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("wanted", some(["onnx"], "savedmodel", "keras"))
@pytest.mark.xdist_group(f"models-{CHARACTERS}")
def test_what_was_read_before_changes_what_comes_next(answered: Any, tmp_path: Path, wanted: str) -> None:
    """The second recorded call goes on from the first; asked by itself it gets other answers."""
    first, second = feeds(CHARACTERS)
    np.savez(tmp_path / "golden.npz", **{f"feed0/{key}": value for key, value in second.items()})
    alone = {"golden": str(tmp_path / "golden.npz"), "answers": str(tmp_path / "answers.npz")}
    artifacts.answer([{**answered(CHARACTERS, wanted), **alone}])
    with np.load(tmp_path / "answers.npz") as answers:
        found = answers["feed0/next"]
    assert found.shape == second["next"].shape != first["next"].shape
    assert np.abs(found - second["next"]).max() > 0.1


@pytest.mark.first("char_lm", "seq2seq")
@pytest.mark.parametrize("name", MODELS)
def test_inspect_prints_a_command(name: str) -> None:
    found = cudnn_convert.inspect(source(name))
    assert found.runs_on_cpu is False
    live = [one for one in found.recurrences if one.live]
    sizes = ("mode", "directions", "units", "input_size")
    assert [tuple(getattr(one, size) for size in sizes) for one in live] == [
        tuple(one[size] for size in sizes) for one in case(name)["recurrences"]
    ]
    [taken] = [one for one in found.signatures if one.taken]
    assert sorted(end.tensor for end in taken.inputs.values()) == case(name)["inputs"]
    assert [end.tensor for end in taken.outputs.values()] == case(name)["outputs"]
    assert found.command is not None
    program, *words = found.command
    flags = parsed(*words)
    assert (program, flags.source, Path(flags.out).exists()) == ("cudnn-convert", str(source(name)), False)


@pytest.mark.every
@pytest.mark.parametrize("name", MODELS)
def test_the_command_that_inspect_prints_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *words = cudnn_convert.inspect(source(name)).command or ()
    ended = command(*words, "--quiet")
    assert (ended.code, ended.stderr) == (0, "")
    assert (tmp_path / words[1]).exists()


@pytest.mark.parametrize("name", TRAINED)
def test_it_was_trained(name: str) -> None:
    """TensorFlow's recorded answers are the right ones, as often as its README says of new examples."""
    accuracy = case(name)["accuracy"]
    assert accuracy >= ACCURACY[name]
    assert f"{100 * accuracy:.1f} %" in (MODELS[name] / "README.md").read_text(encoding="utf-8")
    assert np.mean(np.concatenate([right(feed, case(name)["outputs"]) for feed in feeds(name)])) > 0.9


def right(feed: dict[str, np.ndarray], outputs: list[str]) -> np.ndarray:
    """Where the recorded tags or digits are right, or of probabilities the greatest."""
    decoded = [feed[output] for output in outputs if feed[output].dtype.kind == "i"]
    found = decoded[0] if decoded else feed[outputs[0]].argmax(axis=-1)
    truth = feed["truth"]
    assert (truth[:, found.shape[1] :] == -1).all()  # decoded lines end where the longest of them does
    same = found == truth[:, : found.shape[1]]
    lengths = feed.get("lengths:0", np.full(len(same), same.shape[1]))
    return same[np.arange(same.shape[1]) < lengths[:, None]]


def test_only_the_decoding_gets_long_entities_right() -> None:
    """So that tags without the transitions between them would not pass."""
    feed = feeds("crf_tagger")[-1]
    np.testing.assert_array_equal(feed["tags:0"], feed["truth"])
    assert (feed["logits:0"].argmax(axis=-1) != feed["truth"]).any()
