"""Does a corruption change an answer? Runs both artifacts in their runtimes, without the product.

Runs in a process of its own, in which `cudnn_convert` cannot be imported (`tests/support/user/user.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

USER: Final = Path(__file__).resolve().parents[2] / "tests" / "support" / "user"
#: Of a value, and of the largest value of an output where that is below 1, beyond which an answer changed.
TOLERANCE: Final = 1e-5
Array = np.ndarray
Answer = dict[str, Array]


@dataclass(frozen=True)
class Artifact:
    """A file or folder, its format, and the tensors of its inputs and outputs by key."""

    format: str
    path: Path
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def takes(self, signature: str) -> bool:
        """Whether it has a signature; keys of several begin with its name."""
        keys = [*self.inputs]
        return any(key.startswith(f"{signature}/") for key in keys) or not any("/" in key for key in keys)


Calls = Sequence[tuple[str, Mapping[str, Array]]]


def find_change(intact: Artifact, corrupted: Artifact, calls: Calls) -> str:
    """What the corruption changes, "" for nothing. Raises where the corrupted artifact answers no call."""
    usual = _answers_once(intact, _Calls(calls))
    found = _answers(corrupted, calls)
    if all(isinstance(answer, str) for answer in found):
        raise RuntimeError(next((str(answer) for answer in found), "no calls"))
    for number, (expected, answer) in enumerate(zip(usual, found, strict=True)):
        if isinstance(expected, str):
            continue
        where = f"{calls[number][0]} call {number}"
        if isinstance(answer, str):
            return f"{where}: fails, {answer[:80]}"
        for key, value in expected.items():
            if difference := _difference(value, answer.get(key)):
                return f"{where}: {key}{difference}"
    return ""


def count_answers(artifact: Artifact, calls: Calls) -> tuple[int, str]:
    """How many calls an intact artifact answers, and what it says to the first other."""
    found = _answers_once(artifact, _Calls(calls))
    said = [answer for answer in found if isinstance(answer, str)]
    return len(found) - len(said), said[0] if said else ""


def _difference(expected: Array, found: Array | None) -> str:
    if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
        return f" {expected.dtype} {expected.shape} becomes {None if found is None else found.shape}"
    if expected.size == 0:
        return ""
    if expected.dtype.kind != "f":
        is_other = expected != found
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = min(1.0, float(finite.max(initial=0.0)))
        with np.errstate(invalid="ignore"):
            near = np.abs(expected - found) <= TOLERANCE * (np.abs(expected) + scale)
        is_other = ~(near | (expected == found) | (np.isnan(expected) & np.isnan(found)))
    if not is_other.any():
        return ""
    place = tuple(int(k) for k in np.argwhere(is_other)[0])
    return f"{[*place]} {expected[place]:.9g} becomes {found[place]:.9g}"


class _Calls:
    """Calls of a model, which are always the same for one path."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def __hash__(self) -> int:
        return len(self.calls)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Calls) and len(other.calls) == len(self.calls)


@lru_cache(maxsize=2)
def _answers_of(path: Path, form: str, calls: _Calls, names: tuple[Any, ...]) -> list[Answer | str]:
    return _answers(Artifact(form, path, dict(names[0]), dict(names[1])), calls.calls)


def _answers_once(artifact: Artifact, calls: _Calls) -> list[Answer | str]:
    names = (tuple(artifact.inputs.items()), tuple(artifact.outputs.items()))
    return _answers_of(artifact.path, artifact.format, calls, names)


def _answers(artifact: Artifact, calls: Calls) -> list[Answer | str]:
    """The answer to each call, or what was raised. Raises where the artifact does not load."""
    opened: dict[str, Any] = {}
    answers: list[Answer | str] = []
    for signature, feed in calls:
        if not artifact.takes(signature):
            continue
        if signature not in opened:
            opened[signature] = _open(artifact, signature)
        try:
            found = opened[signature](dict(feed))
        except Exception as error:  # noqa: BLE001 - runtimes raise what they like
            answers.append(f"{type(error).__name__}: {error}"[:300])
        else:
            answers.append({key: np.array(value) for key, value in found.items()})
    return answers


def _open(artifact: Artifact, signature: str) -> Any:
    if str(USER) not in sys.path:
        sys.path.insert(0, str(USER))
    import user  # which bars cudnn_convert from this process

    inputs = {key: {"artifact": name} for key, name in artifact.inputs.items()}
    outputs = {key: {"artifact": name} for key, name in artifact.outputs.items()}
    options: dict[str, Any] = {
        "savedmodel": {"signature": signature},
        "keras": {"custom": None, "safe_mode": True},
        "h5": {"custom": None},
    }.get(artifact.format, {})
    opener = {"savedmodel": user.saved_model}.get(artifact.format) or getattr(user, artifact.format)
    return opener(str(artifact.path), inputs, outputs, **options)
