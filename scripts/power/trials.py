"""One model in one format: its artifact, the corruptions drawn, and what became of each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import answers
import graph_places
import layer_places
import onnx_places
import product
import tflite_places
from answers import Artifact
from corruptions import Corruption, draw_sample
from sources import Model, seed_of
from workers import LostError, Worker

#: What became of a corruption that does not count, and one whose proof ended its process.
BROKEN, NO_EFFECT, CRASHED = "does not run", "no effect", "crashed"
#: An intact artifact that is not equal.
INTACT = "intact"


@dataclass(frozen=True)
class Trial:
    """A corruption of an artifact: what it changes, the verdict, and why."""

    model: str
    format: str
    corruption: str
    outcome: str
    change: str = ""
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether the corruption changes an answer."""
        return self.outcome not in (BROKEN, NO_EFFECT) and self.corruption != INTACT

    @property
    def is_missed(self) -> bool:
        return self.counts and self.outcome == product.EQUAL


@dataclass(frozen=True)
class Attack:
    """How artifacts are attacked: `count` corruptions of each are drawn, or those at `places` tried.

    Artifacts run in two processes, those of ONNX without TensorFlow, and are verified in a third.
    """

    runtime: Worker
    plain_runtime: Worker
    proof: Worker
    count: int
    seed: int
    places: Sequence[str] = ()
    keep: Path | None = None


def list_places(artifact: Artifact, seed: int) -> Iterator[Corruption]:
    """All corruptions of an artifact."""
    root = _root(artifact)
    listing = {
        "onnx": onnx_places.list_corruptions,
        "tflite": tflite_places.list_corruptions,
        "keras": layer_places.list_corruptions,
        "h5": layer_places.list_corruptions,
    }.get(artifact.format, partial(graph_places.list_corruptions, outputs=artifact.outputs.values()))
    return listing(root, seed=seed)


def _root(artifact: Artifact) -> Path:
    """The file or folder that is copied; a checkpoint is named by its prefix."""
    return artifact.path.parent if artifact.format == "checkpoint" else artifact.path


def attack(model: Model, source: Path, form: str, how: Attack) -> Iterator[Trial]:
    """The verdict on the intact artifact, then on each corruption; nothing if the format refuses the model.

    Artifacts are written to a folder beside the model's source.
    """
    proof, folder = how.proof, source.parent / form
    runtime = how.plain_runtime if form == "onnx" else how.runtime
    folder.mkdir()
    artifact = proof.call(product.convert, source, folder, form)
    if isinstance(artifact, str):
        return
    calls = [call for call in model.calls() if artifact.takes(call[0])]
    expected = runtime.call(answers.list_answers, artifact, calls)
    if all(isinstance(answer, str) for answer in expected):
        yield Trial(model.name, form, INTACT, BROKEN, why=expected[0])
        return
    outcome, why = _judge(proof, source, artifact.path)
    yield Trial(model.name, form, INTACT, outcome, why=why)
    every = list_places(artifact, seed_of(f"{model.name} {how.seed}"))
    drawn = (
        [one for one in every if any(place in one.name for place in how.places)]
        if how.places
        else draw_sample(every, how.count, seed_of(f"{model.name} {form} {how.seed}"))
    )
    for number, corruption in enumerate(drawn):
        other = replace(artifact, path=_copy(artifact, folder / f"{form} {number}"))
        trial = partial(Trial, model.name, form, corruption.name)
        try:
            corruption.write(_root(other))
            change = runtime.call(answers.find_change, other, calls, expected)
        except Exception as error:  # noqa: BLE001 - a file that nobody can read is no wrong model
            found = trial(BROKEN, why=str(error)[:200])
        else:
            outcome, why = _judge(proof, source, other.path) if change else (NO_EFFECT, "")
            if outcome in (product.EQUAL, product.NOT_REACHED) and not _changes(
                runtime, artifact, other, calls
            ):
                outcome, change = NO_EFFECT, ""
            found = trial(outcome, change, why)
        if how.keep is None or not found.is_missed:
            shutil.rmtree(folder / f"{form} {number}")
        yield found


def _changes(runtime: Worker, artifact: Artifact, other: Artifact, calls: answers.Calls) -> bool:
    """Whether a corruption changes an answer in a new process.

    On what is corrupted a runtime may write where it must not, and later answers of its process are wrong.
    """
    runtime.close()
    expected = runtime.call(answers.list_answers, artifact, calls)
    try:
        return bool(runtime.call(answers.find_change, other, calls, expected))
    except (LostError, RuntimeError):  # it answers no longer
        return False


def _copy(artifact: Artifact, folder: Path) -> Path:
    """A copy of an artifact in a folder, under its own name."""
    root = _root(artifact)
    folder.mkdir()
    copied = folder / root.name
    (shutil.copytree if root.is_dir() else shutil.copy)(root, copied)
    return copied / artifact.path.name if root != artifact.path else copied


def _judge(proof: Worker, source: Path, artifact: Path) -> tuple[str, str]:
    """The outcome of a proof, and why."""
    try:
        outcome, why = proof.call(product.verify, source, artifact)
    except (LostError, RuntimeError) as error:
        return CRASHED, str(error)
    return outcome, why
