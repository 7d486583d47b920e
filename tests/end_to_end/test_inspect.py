"""Every recorded sample, inspected: what its writer says of it, and its command, run as it is printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import containers
from support.command_line import command, parsed
from support.keras3_samples import EXPORTED, Export
from support.keras_samples import KERAS_FIXTURES, KerasFixture
from support.samples import _ALL, ASKING, CHOSEN, FIXTURES, GRAPHLESS, LONG, STATEFUL, Fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.inspection import InspectedRecurrence, Inspection

SIZES = ("mode", "layers", "directions", "units", "input_size")
#: Samples whose command is run each time: of flags that no sample has whose command is run to the letter in
#: test_printed_commands.py.
RUN = frozenset({"two_heads", "object_lstm_1l"})
#: Exports that are looked at each time; of the others TensorFlow takes half a second to read one.
SEEN = frozenset(
    "archive gru lstm portable_masked raw_ops return_state signatures stateful with_vocabulary "
    "cudnn_trained".split()
)


def tiered(samples: Iterable[Any], seen: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """All samples; of a case the last writer's is looked at each time, if it is one to be seen."""
    samples = [*samples]
    last = {one.folder.name: one for one in samples}
    for one in samples:
        is_first = last[one.folder.name] is one and one.folder.name not in ASKING and seen(one)
        yield pytest.param(one, id=one.name, marks=tier(first=is_first))


def sizes(found: Iterable[InspectedRecurrence]) -> list[tuple[Any, ...]]:
    return sorted(
        ((one.mode, one.layers, one.directions, one.units, one.input_size) for one in found), key=str
    )


def commands(found: Inspection) -> list[list[str]]:
    """The words of the command, or of those to choose from: known flags, from the source to a new OUT."""
    ways = [found.command] if found.command else [way.command for way in found.candidates]
    assert ways
    calls = []
    for way in ways:
        program, *words = shlex.split(shlex.join(way or ()))
        assert program == "cudnn-convert"
        flags = parsed(*words)
        assert flags.source == found.source
        assert not Path(flags.out).exists()
        calls.append(words)
    return calls


def inspected(sample: Fixture | KerasFixture | Export) -> Inspection:
    """What is said of a sample, asked with what only its user knows."""
    if isinstance(sample, Fixture):
        flags = sample.options if "flags" in sample.case else {}
        kept = {key: value for key, value in flags.items() if key not in ("set", "weights")}
        return cudnn_convert.inspect(sample.prefix, **kept)
    if isinstance(sample, KerasFixture):
        return cudnn_convert.inspect(sample.path, architecture=sample.architecture)
    return cudnn_convert.inspect(sample.path)


def converted(found: Inspection, folder: Path) -> None:
    """Runs the commands in an empty folder, as they are printed; something must lie at each OUT."""
    for words in commands(found):
        ended = command(*words, "--quiet")
        assert ended.code == 0, (words, ended.stderr)
        assert Path(ended.stdout.strip()).is_relative_to(words[1])
        assert (folder / words[1]).exists()


def is_seen(sample: Fixture) -> bool:
    """Each plan and choice, weights alone, states, what needs flags; test_fixtures.py reads the others."""
    name = sample.folder.name
    is_named = sample.is_first("savedmodel") or name in CHOSEN | RUN
    is_asked = sample in GRAPHLESS + STATEFUL or bool(sample.case.get("flags"))
    return is_named or (is_asked and name not in LONG)


@pytest.mark.parametrize("sample", tiered(_ALL, is_seen))
def test_tensorflow_1(sample: Fixture) -> None:
    case, found = sample.case, inspected(sample)
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
    commands(found)


#: Frozen graphs and SavedModels of TensorFlow 1, of every sample that can be one; a few are seen each time.
MAKERS = {"frozen": containers.frozen, "saved_model": containers.saved_model}
WITNESSES = {("frozen", "dropout_needs_set"), ("frozen", "horovod"), ("saved_model", "cond")}


def contained() -> Iterator[Any]:
    for kind in MAKERS:
        fit = [one for one in FIXTURES + STATEFUL if containers.unfit(one, kind) is None]
        last = {one.folder.name: one for one in fit}
        for sample in fit:
            slow = pytest.mark.slow("cudnn_convert/inspection/", "tests/support/containers.py")
            marks = [] if (kind, sample.folder.name) in WITNESSES else [slow]
            marks += [] if last[sample.folder.name] is sample else [pytest.mark.every]
            yield pytest.param(kind, sample, id=f"{kind}-{sample.name}", marks=marks)


def inspected_in(kind: str, sample: Fixture, folder: Path) -> Inspection:
    """What is said of a sample in another container."""
    made = MAKERS[kind](sample, folder / ("source.pb" if kind == "frozen" else "source"), verify=True)
    flags = {key: value for key, value in made.options.items() if key in ("outputs", "signature", "tag")}
    return cudnn_convert.inspect(made.prefix, **flags)


@pytest.mark.parametrize(("kind", "sample"), contained())
def test_containers(tmp_path: Path, kind: str, sample: Fixture) -> None:
    found = inspected_in(kind, sample, tmp_path)
    live = {(one.name, one.op) for one in found.recurrences if one.needs_gpu and one.live}
    # A signature that leads through a branch for training needs that recurrence too, until a flag says no.
    assert live >= {(one["node"], one["op"]) for one in sample.case["recurrences"]}
    commands(found)


@pytest.mark.every
@pytest.mark.parametrize(("kind", "sample"), contained())
def test_the_command_of_a_container_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sample: Fixture
) -> None:
    monkeypatch.chdir(tmp_path)
    converted(inspected_in(kind, sample, tmp_path), tmp_path)


@pytest.mark.parametrize("sample", tiered(KERAS_FIXTURES))
def test_keras(sample: KerasFixture) -> None:
    case, found = sample.case, inspected(sample)
    needing = [one for one in found.recurrences if one.needs_gpu]
    assert [(one.name, one.mode, one.layers, one.directions, one.units) for one in needing] == [
        ("/".join([*one["inside"], one["layer"]]), one["mode"], 1, one["directions"], one["units"])
        for one in case["recurrences"]
    ]
    [taken] = found.signatures
    assert [*taken.inputs] == case["inputs"]
    assert [*taken.outputs] == case["outputs"]
    assert not found.runs_on_cpu
    assert found.command is not None
    commands(found)


@pytest.mark.first("keras-3.15.1-with_vocabulary")
@pytest.mark.parametrize("sample", tiered(EXPORTED, lambda sample: sample.folder.name in SEEN))
def test_exports(sample: Export) -> None:
    found = inspected(sample)
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
    else:
        assert found.command is not None
        commands(found)
    if sample.archive is not None:
        assert cudnn_convert.inspect(sample.archive).command is None


def of_commands() -> Iterator[Any]:
    """All samples of which a command is printed."""
    for samples in (_ALL, KERAS_FIXTURES, [one for one in EXPORTED if not one.portable]):
        yield from tiered(samples, lambda sample: sample.folder.name in RUN)


@pytest.mark.first("1.15.5-object_lstm_1l")
@pytest.mark.parametrize("sample", of_commands())
def test_the_printed_command_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Fixture | KerasFixture | Export
) -> None:
    monkeypatch.chdir(tmp_path)
    converted(inspected(sample), tmp_path)


@pytest.mark.parametrize(
    "sample", tiered([one for one in EXPORTED if one.portable], lambda sample: sample.folder.name in SEEN)
)
def test_what_is_portable_is_not_converted(tmp_path: Path, sample: Export) -> None:
    assert command(sample.path, tmp_path / "out", "--quiet").stdout == "portable already\n"


def test_the_json_is_the_value() -> None:
    sample = KERAS_FIXTURES[0]
    ended = command("inspect", sample.path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == json.loads(cudnn_convert.inspect(sample.path).to_json())
