"""From every source that a CPU cannot run to a model that it can, by following what the tool prints alone.

`inspect` prints a command; it is run as printed, its verification too; what it printed as OUT runs in a
process of plain TensorFlow, Keras or tf_keras, under the keys that `inspect` printed, without cudnn_convert.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts
from support.command_line import command
from support.keras3_samples import BROKEN, Call, Export, Signature
from support.keras_samples import KERAS_FIXTURES, KerasFixture
from support.recorded import BOUNDS, assert_close
from support.samples import _ALL, Fixture, fixture
from support.tiers import tier

#: One of each kind of command: each flag that `inspect` writes by itself, each format that it chooses;
#: weights alone, strings, states. Other tests convert each sample.
SOME: Final = frozenset("1.15.5-saved_model_words 1.15.5-state_lstm keras-2.2.4-custom_layer".split())
#: A step of training needs CudnnRNNBackpropV3, and stays for a GPU.
TRAINING: Final = "train"


@dataclass(frozen=True)
class Printed:
    """What `inspect` printed: the commands, the types that recurrences compute in, and by key the signatures
    that the commands take, `{key: tensor}`.
    """

    commands: list[list[str]]
    dtypes: set[str]
    takes: dict[str, dict[str, str]]
    gives: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Converted:
    """What the printed command made: of `form`, at `out`; `bound` is what its recurrences' type allows."""

    printed: Printed
    form: str
    out: Path
    folder: Path
    bound: float

    def job(self, golden: object, number: int, ends: Iterable[Mapping[str, str]]) -> dict[str, Any]:
        """What a user runs: `ends` are the inputs' and the outputs' names in `golden`, by key."""
        named = {
            kind: {key: {"source": name} for key, name in end.items()}
            for kind, end in zip(("inputs", "outputs"), ends, strict=True)
        }
        answers = str(self.folder / f"answers.{number}.npz")
        return {
            "artifact": str(self.out), "format": self.form, "golden": str(golden), "answers": answers, **named
        }  # fmt: skip


@dataclass(frozen=True)
class Healed:
    """An artifact's jobs, by signature; `judge` takes the key of one and its answers."""

    jobs: dict[str, dict[str, Any]]
    judge: Callable[[str, Mapping[str, np.ndarray]], None]


@dataclass(frozen=True)
class Patient:
    """A broken source, the flags of what only its user knows, and how it is healed."""

    name: str
    source: Path
    healed: Callable[[Converted], Healed]
    flags: list[str] = field(default_factory=list)


def inspected(source: Path, *flags: str) -> Printed:
    """`cudnn-convert inspect` by its text alone, that of a pipe."""
    ended = command("inspect", source, *flags)
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    (said,) = (line for line in lines if line.startswith("runs on a CPU as it is: "))
    assert said.startswith(("runs on a CPU as it is: no, because of ", "runs on a CPU as it is: not known"))
    commands = [shlex.split(line) for line in lines if line.startswith("  cudnn-convert ")]
    takes: dict[str, dict[str, str]] = {}
    gives: dict[str, dict[str, str]] = {}
    ends = {"  takes": takes, "  gives": gives}
    key: str | None = None
    for line in lines:
        begin, _, told = line.partition("s ") if line.startswith("  ") else ("", "", line)
        if line.startswith("signature "):
            key = "" if told == "signature chosen from the graph" else told.removeprefix("signature ")
            key = None if key.endswith(" (not taken)") else key
        elif f"{begin}s" in ends and key is not None:
            name, equals, tensor, *_ = told.split()
            assert equals == "="
            ends[f"{begin}s"].setdefault(key, {})[name] = tensor
    return Printed(commands, printed_dtypes(lines), takes, gives)


def printed_dtypes(lines: list[str]) -> set[str]:
    """The column `dtype` of the table of recurrences."""
    (first,) = (number for number, line in enumerate(lines) if re.match(r"recurrence +op +mode ", line))
    begin = lines[first].index(" dtype ") + 1
    cells = (line[begin:].partition(" ")[0] for line in lines[first + 1 :])
    return {*takewhile(BOUNDS.__contains__, cells)}


def followed(patient: Patient, folder: Path) -> Healed:
    """Runs the printed command in the empty `folder`; where several are printed, asks again with the flags
    of the first, as its user chose."""
    flags = patient.flags
    printed = inspected(patient.source, *flags)
    if not printed.takes:  # commands to choose from, each of which says something of the model
        _, _, _, _, _, *flags = printed.commands[0]
        printed = inspected(patient.source, *flags)
    words, *others = printed.commands
    run_others(words, others)
    ended = command(*words[1:])
    assert ended.code == 0, ended.stderr
    (path,) = (Path(line) for line in ended.stdout.splitlines())
    assert path.is_relative_to(words[2])
    run_it(words)
    form = words[words.index("--format") + 1]
    bound = max(BOUNDS[one] for one in printed.dtypes)
    return patient.healed(Converted(printed, form, path.resolve(), folder, bound))


def run_others(words: Sequence[str], others: Iterable[Sequence[str]]) -> None:
    """What is printed beside the command: a stream, a search. Each works, to a place of its own."""
    for number, other in enumerate(others):
        assert other[1] == words[1]
        assert any(word == "--states" or word.startswith("--decode=") for word in other), other
        ended = command(*other[1:2], f"other.{number}", *other[3:])
        if ended.code:  # the scores of a network that was hardly trained lie too close for a search
            assert re.search(r"decode: not proven: .*; give others with --data$", ended.stderr), ended.stderr


def run_it(words: Sequence[str]) -> None:
    """A stranger's third command, `run OUT`: it works, or names the flag with which it does."""
    vouched = [word for word in words if word.startswith(("--trust", "--custom-objects"))]
    ran = command("run", words[2], *vouched, "--quiet")
    if chosen := re.search(r"found ([^,;]+).*choose with --signature$", ran.stderr):
        ran = command("run", words[2], *vouched, "--quiet", "--signature", chosen[1])
    if ran.code:  # words cannot be drawn at random, and classes must be brought
        assert re.search(r"give inputs with --data$|a class that is not here$", ran.stderr), ran.stderr
        return
    first, *rows = ran.stdout.splitlines()
    assert first.split()[:3] == ["output", "dtype", "shape"]
    assert rows


def tensorflow_1(sample: Fixture, made: Converted) -> Healed:
    """A SavedModel, each of its signatures against TensorFlow 1's own answers to each feed."""
    feeds, printed = sample.feeds(), made.printed
    several = len(printed.takes) > 1
    jobs, gives = {}, {}
    for key in printed.takes:
        ends = [printed.takes[key], printed.gives[key]]
        if sample.case.get("graphless"):  # recorded by key; after the name of the recurrence, of several
            ends = [{name: f"{key}/{name}" if several else name for name in end} for end in ends]
        gives[key] = ends[1]
        jobs[key] = made.job(sample.folder / "golden.npz", len(jobs), ends)
        jobs[key]["signature"] = key if several else "serving_default"

    def judge(key: str, answers: Mapping[str, np.ndarray]) -> None:
        compared = 0
        for number, feed in enumerate(feeds):
            for name, tensor in gives[key].items():
                if tensor in feed:
                    close(answers[f"feed{number}/{name}"], feed[tensor], made.bound)
                    compared += 1
        assert compared >= len(feeds)
        expected = sample.case.get("outputs", [])
        assert set(expected) <= {tensor for end in gives.values() for tensor in end.values()}

    return Healed(jobs, judge)


def keras_file(sample: KerasFixture, made: Converted) -> Healed:
    """A model of Keras, in the order of its inputs and outputs, against that Keras' own answers."""
    (takes,) = made.printed.takes.values()
    (gives,) = made.printed.gives.values()
    assert [[*takes], [*gives]] == [sample.case["inputs"], sample.case["outputs"]]
    ends = [dict(zip(end, end, strict=True)) for end in (takes, gives)]
    job = made.job(sample.folder / "golden.npz", 0, ends)
    if sample.folder.name == "custom_layer":
        job["custom"] = ["scale_for_keras", "Scale"]  # as a note asks of whoever loads it
    if sample.folder.name == "lambda_harmless":
        job["safe_mode"] = False

    def judge(_: str, answers: Mapping[str, np.ndarray]) -> None:
        for number, feed in enumerate(sample.feeds()):
            for key in gives:
                close(answers[f"feed{number}/{key}"], feed[key], made.bound)

    return Healed({"": job}, judge)


def export(sample: Export, made: Converted) -> Healed:
    """Every signature of a repaired SavedModel against Keras' answers on a CPU."""
    printed = made.printed
    signatures = {one.name: one for one in sample.signatures if one.name != TRAINING}
    assert printed.takes.keys() - {TRAINING} == signatures.keys() | sample.aliases.keys()
    jobs = {}
    for key, signature in signatures.items():
        feeds = made.folder / f"feeds.{len(jobs)}.npz"
        arrays = [(n, *pair) for n, call in enumerate(signature.calls()) for pair in call.feeds.items()]
        np.savez(feeds, **{f"feed{n}/{name}": value for n, name, value in arrays})
        ends = [dict(zip(end, end, strict=True)) for end in (printed.takes[key], printed.gives[key])]
        jobs[key] = {**made.job(feeds, len(jobs), ends), "signature": key}

    def judge(key: str, answers: Mapping[str, np.ndarray]) -> None:
        for number, call in enumerate(signatures[key].calls()):
            assert call.answers.keys() == printed.gives[key].keys()
            for name, expected in call.answers.items():
                found = answers[f"feed{number}/{name}"]
                close(*valid(signatures[key], call, name, found, expected), made.bound)

    return Healed(jobs, judge)


def valid(signature: Signature, call: Call, name: str, *pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps that are not padding, where Keras on a CPU repeats one and cuDNN has zeros."""
    found, expected = pair
    kept = call.valid(found) if name in signature.per_step else ...
    return found[kept], expected[kept]


def close(found: np.ndarray, expected: np.ndarray, bound: float) -> None:
    if expected.dtype.kind in "iuSUO":
        np.testing.assert_array_equal(found, expected)
    else:
        assert_close(found, expected, bound)


def broken() -> Iterator[Patient]:
    """Every sample that a CPU cannot run, but for those with code that is not to be run."""
    for sample in _ALL:
        if sample.folder.name.startswith(("block_", "compatible_")):
            continue  # BlockLSTM and its cells run on a CPU
        given = [] if sample.case.get("graphless") else sample.case["flags"]
        # The command binds a dropout and refines a shape by itself; an average in the place of the weights is
        # its user's choice.
        flags = [
            f"{flag}={value}"
            for flag, value in zip(given[::2], given[1::2], strict=True)
            if flag not in ("--set", "--inputs")
        ]
        flags += ["--states"] if sample.case.get("graphless") else []
        name = sample.folder.name if sample.folder.parent.name == "models" else sample.name
        yield Patient(name, sample.prefix, partial(tensorflow_1, sample), flags)
    for one in KERAS_FIXTURES:
        here = one.case["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
        if "pwned" in one.name or ("lambda" in one.name and not here):
            continue
        flags = [] if one.architecture is None else [f"--architecture={one.architecture}"]
        yield Patient(one.name, one.path, partial(keras_file, one), flags)
    for saved in BROKEN:
        yield Patient(saved.name, saved.path, partial(export, saved))


PATIENTS: Final = {one.name: one for one in broken()}


def test_those_chosen_are_there() -> None:
    assert PATIENTS.keys() >= SOME


@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(first=name in SOME)) for name in PATIENTS])
def test_the_printed_command_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    healed = followed(PATIENTS[name], tmp_path)
    assert healed.jobs
    artifacts.answer([*healed.jobs.values()])
    for key, job in healed.jobs.items():
        with np.load(job["answers"]) as answers:
            healed.judge(key, answers)


#: What a note names a flag for: the flags asked with, and the flags that it names.
NOTED: Final = {
    "strings left out": ("1.15.5-string_outputs", [], r"include them with (--outputs \S+)"),
    "moving averages": ("1.15.5-moving_average", [], r"; (--weights ema) takes them"),
    "features of tf.Examples": ("1.15.5-estimator_examples", [], r"repeat with: (.+)"),
    "features of tf.Examples, onnx": (
        "1.15.5-estimator_examples",
        ["--format", "onnx"],
        r"repeat with: (.+)",
    ),
    "a refined shape": ("1.15.5-unknown_rank", ["--inputs", "x:0[?,?,6]"], r"repeat with: (.+)"),
    "a stream": ("1.15.5-iterator_input", ["--format", "frozen"], r"repeat with: (.+)"),
    "a graph by its signature": ("1.15.5-two_lookups", [], r"repeat with: (.+)"),
    "weights alone": ("1.15.5-object_lstm_2l", [], r"repeat with: (.+)"),
}


def source_of(name: str) -> Path:
    known = {one.name: one.source for one in broken()}
    return known[name] if name in known else fixture(name).prefix


@pytest.mark.slow(
    "cudnn_convert/plan/notes.py", "cudnn_convert/plan/make.py", "cudnn_convert/graph/training.py"
)
@pytest.mark.parametrize("case", NOTED)
def test_what_a_note_names_is_done(tmp_path: Path, case: str) -> None:
    name, flags, told = NOTED[case]
    source = source_of(name)
    first = command(source, tmp_path / "first", *flags, "--verbose")
    assert first.code == 0, first.stderr
    match = next(match for line in first.stderr.splitlines() if (match := re.search(told, line)))
    kept = flags[:2] if flags[:1] == ["--format"] else []
    again = command(source, tmp_path / "again", *kept, *shlex.split(match[1]), "--verbose")
    assert again.code == 0, again.stderr
    said = [re.search(r"repeat with: (.+)", ended.stderr) for ended in (first, again)]
    assert all(said)
    # What repeats a conversion says so again; what asks for more does not.
    repeats = [shlex.split(one[1]) for one in said if one]
    assert (repeats[0] == repeats[1]) is ("repeat" in told)


def test_sizes_of_a_blob_are_taken_from_the_refusal(tmp_path: Path, out: Path) -> None:
    """A blob alone may be of many sizes: all are listed, each in the words of the command line."""
    sample = fixture("1.15.5-raw_only")
    shutil.copytree(sample.folder, tmp_path / "source", ignore=shutil.ignore_patterns("*.meta"))
    source = tmp_path / "source" / "model.ckpt"
    refused = command(source, out, "--format", "onnx")
    assert refused.code == 1
    ways = re.findall(r"(--mode \S+ --layers \d+ --units \d+ --directions \d+) \(input size", refused.stderr)
    assert len(ways) > 1
    (one,) = sample.case["recurrences"]
    meant = [f"--{flag} {one[flag]}" for flag in ("mode", "layers", "units", "directions")]
    assert " ".join(meant) in ways
    ended = command(source, out, "--format", "onnx", *" ".join(meant).split())
    assert ended.code == 0, ended.stderr
