"""Does a corruption change an answer? Runs both artifacts in their runtimes, without the product.

Runs in a process of its own, in which `cudnn_convert` cannot be imported (`tests/support/user/user.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def list_answers(artifact: Artifact, calls: Calls) -> list[Answer | str]:
    """The answer to each call, or what was raised."""
    return [*_answers(artifact, calls)]


def find_change(artifact: Artifact, calls: Calls, expected: Sequence[Answer | str]) -> str:
    """The first answer of a corrupted artifact that is not the intact one's, "" for none.

    Calls that the intact artifact does not answer show nothing. Raises RuntimeError where the corrupted one
    answers no call, and what its runtime raises on loading.
    """
    answers, errors = 0, []
    for number, answer in enumerate(_answers(artifact, calls)):
        usual = expected[number]
        if isinstance(answer, str):
            errors += [] if isinstance(usual, str) else [f"call {number}: fails, {answer[:80]}"]
            continue
        answers += 1
        for key, value in ({} if isinstance(usual, str) else usual).items():
            if difference := _difference(value, answer.get(key)):
                return f"call {number}: {key}{difference}"
    if not answers:
        raise RuntimeError(errors[0])
    return errors[0] if errors else ""


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


def _answers(artifact: Artifact, calls: Calls) -> Iterator[Answer | str]:
    """Answers as they come. Raises where the artifact does not load."""
    opened: dict[str, Any] = {}
    for signature, feed in calls:
        if signature not in opened:
            opened[signature] = _open(artifact, signature)
        try:
            found = opened[signature](dict(feed))
        except Exception as error:  # noqa: BLE001 - runtimes raise what they like
            yield f"{type(error).__name__}: {error}"[:300]
        else:
            yield {key: np.array(value) for key, value in found.items()}


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
