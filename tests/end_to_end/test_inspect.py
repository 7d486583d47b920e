"""Every recorded sample, inspected: what its writer says of it, and its command, run as it is printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import containers
from support.command_line import command
from support.keras3_samples import EXPORTED, Export
from support.keras_samples import KERAS_FIXTURES, KerasFixture
from support.samples import _ALL, EVERY, FIXTURES, STATEFUL, Fixture

import cudnn_convert
from cudnn_convert.inspection.result import Found, Inspection

SIZES = ("mode", "layers", "directions", "units", "input_size")
#: Samples whose commands run with their verification; the others' conversions are verified elsewhere.
VERIFIED = frozenset(
    "twins_training dropout_needs_set saved_model_words object_lstm_1l keras_weights_functional stacked "
    "time_major custom_layer signatures cudnn_trained".split()
)


#: Exports and Keras files whose command is run; those of the others say the same but for the names.
COMMANDS = ("lstm", "masked", "signatures", "stateful", "with_vocabulary", "cudnn_trained")
KERAS_COMMANDS = (
    *("archive_siamese", "custom_layer", "lambda_harmless", "merge_modes_gru", "stacked", "stateful_lstm"),
    *("time_major", "weights_format_3", "weights_functional", "encoder_decoder"),
)


def once(samples: Iterable[Any]) -> list[Any]:
    """The newest writer's sample of each case."""
    return [*samples] if EVERY else [*{one.folder.name: one for one in samples}.values()]


def sizes(found: Iterable[Found]) -> list[tuple[Any, ...]]:
    return sorted(
        ((one.mode, one.layers, one.directions, one.units, one.input_size) for one in found), key=str
    )


def converted(found: Inspection, folder: Path, name: str) -> None:
    """Runs the command, as a shell would split it, in an empty folder; something must lie at its OUT."""
    ways = [found.command] if found.command else [way.command for way in found.candidates]
    assert ways
    for way in ways:
        program, *words = shlex.split(shlex.join(way))
        assert program == "cudnn-convert"
        more = [] if EVERY or name in VERIFIED or "--no-verify" in words else ["--no-verify"]
        ended = command(*words, *more, "--quiet")
        assert ended.code == 0, (words, ended.stderr)
        assert Path(ended.stdout.strip()).is_relative_to(words[1])
        assert (folder / words[1]).exists()


@pytest.mark.parametrize("sample", once(_ALL), ids=lambda sample: sample.name)
@pytest.mark.xdist_group("inspect")
def test_tensorflow_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Fixture) -> None:
    monkeypatch.chdir(tmp_path)
    case = sample.case
    flags = sample.options if "flags" in case else {}
    kept = {key: value for key, value in flags.items() if key not in ("set", "weights")}
    found = cudnn_convert.inspect(sample.prefix, **kept)
    assert found.source == str(sample.prefix)
    needing = [one for one in found.recurrences if one.needs_gpu]
    live = [one for one in needing if one.live]
    assert sizes(live) == sorted((tuple(one[key] for key in SIZES) for one in case["recurrences"]), key=str)
    assert found.runs_on_cpu is (not live)
    if not case.get("graphless"):
        assert sorted((one.name, one.op) for one in live) == sorted(
            (one["node"], one["op"]) for one in case["recurrences"]
        )
        assert found.versions.get("tensorflow", case["tensorflow"]) == case["tensorflow"]
        [taken] = [one for one in found.signatures if one.taken]
        states = case.get("states", {})
        assert (
            sorted(end.tensor for end in taken.inputs.values() if end.tensor not in states) == case["inputs"]
        )
        assert {end.tensor for end in taken.outputs.values()} == set(case["outputs"])
    converted(found, tmp_path, sample.folder.name)


#: Frozen graphs and SavedModels of TensorFlow 1, of every sample that can be one; a few are seen each time.
MAKERS = {"frozen": containers.frozen, "saved_model": containers.saved_model}
WITNESSES = {("frozen", "dropout_needs_set"), ("frozen", "horovod"), ("saved_model", "cond")}


def contained() -> Iterator[Any]:
    for kind in MAKERS:
        for sample in once(FIXTURES + STATEFUL):
            if containers.unfit(sample, kind) is None:
                slow = pytest.mark.slow("cudnn_convert/inspection/", "tests/support/containers.py")
                is_seen = (kind, sample.folder.name) in WITNESSES
                yield pytest.param(kind, sample, id=f"{kind}-{sample.name}", marks=() if is_seen else slow)


@pytest.mark.parametrize(("kind", "sample"), contained())
@pytest.mark.xdist_group("inspect")
def test_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sample: Fixture) -> None:
    monkeypatch.chdir(tmp_path)
    made = MAKERS[kind](sample, tmp_path / ("source.pb" if kind == "frozen" else "source"), verify=True)
    flags = {key: value for key, value in made.options.items() if key in ("outputs", "signature", "tag")}
    found = cudnn_convert.inspect(made.prefix, **flags)
    live = {(one.name, one.op) for one in found.recurrences if one.needs_gpu and one.live}
    # A signature that leads through a branch for training needs that recurrence too, until a flag says no.
    assert live >= {(one["node"], one["op"]) for one in sample.case["recurrences"]}
    converted(found, tmp_path, sample.folder.name)


@pytest.mark.parametrize("sample", once(KERAS_FIXTURES), ids=lambda sample: sample.name)
@pytest.mark.xdist_group("inspect-keras")
def test_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: KerasFixture) -> None:
    monkeypatch.chdir(tmp_path)
    case = sample.case
    found = cudnn_convert.inspect(sample.path, architecture=sample.architecture)
    needing = [one for one in found.recurrences if one.needs_gpu]
    assert [(one.name, one.mode, one.layers, one.directions, one.units) for one in needing] == [
        ("/".join([*one["inside"], one["layer"]]), one["mode"], 1, one["directions"], one["units"])
        for one in case["recurrences"]
    ]
    [taken] = found.signatures
    assert [*taken.inputs] == case["inputs"]
    assert [*taken.outputs] == case["outputs"]
    assert not found.runs_on_cpu
    if EVERY or sample.folder.name in KERAS_COMMANDS:
        converted(found, tmp_path, sample.folder.name)
    else:
        assert found.command is not None


@pytest.mark.parametrize("sample", once(EXPORTED), ids=lambda sample: sample.name)
@pytest.mark.xdist_group("inspect-exports")
def test_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Export) -> None:
    monkeypatch.chdir(tmp_path)
    found = cudnn_convert.inspect(sample.path)
    assert found.versions["tensorflow"] == sample.case["tensorflow"]
    trains = {"train"} & {one.name for one in sample.signatures}
    wanted = [node for one in sample.signatures if one.name not in trains for node in one.recurrences]
    live = sizes(one for one in found.recurrences if one.live)
    assert set(live) == {tuple(node[key] for key in SIZES) for node in wanted}
    assert found.runs_on_cpu is sample.portable
    assert {one.key for one in found.signatures} == {one.name for one in sample.signatures} | {
        *sample.aliases
    }
    assert {one.key for one in found.signatures if one.taken} == (
        set() if sample.portable else {one.key for one in found.signatures} - trains
    )
    if sample.portable:
        assert found.command is None
        assert "portable already" in found.reasons[0]
        assert command(sample.path, "out", "--quiet").stdout == "portable already\n"
    elif EVERY or sample.folder.name in COMMANDS:
        converted(found, tmp_path, sample.folder.name)
    else:
        assert found.command is not None
    if sample.archive is not None:
        assert cudnn_convert.inspect(sample.archive).command is None


def test_the_json_is_the_value() -> None:
    sample = EXPORTED[0]
    ended = command("inspect", sample.path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == json.loads(cudnn_convert.inspect(sample.path).to_json())
