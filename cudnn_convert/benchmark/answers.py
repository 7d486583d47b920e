"""Feeds and answers of calls: in files between processes, paired by name, and compared."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.weights import npz_archive

_NAMES = "names"


def write_calls(path: Path, calls: Sequence[Mapping[str, Array]]) -> None:
    """Write the arrays of several calls to a file.

    The names are kept apart, for they may have any characters.
    """
    names = np.frombuffer(json.dumps([[*call] for call in calls]).encode(), np.uint8)
    arrays = {f"{k}_{j}": value for k, call in enumerate(calls) for j, value in enumerate(call.values())}
    with path.open("wb") as stream:
        np.savez(stream, **{_NAMES: names, **arrays})  # type: ignore[arg-type]


def read_calls(path: Path) -> list[dict[str, Array]]:
    """Read the calls written by `write_calls`."""
    arrays = npz_archive.load(path, strings=True)
    names = json.loads(arrays[_NAMES].tobytes())
    return [{key: arrays[f"{k}_{j}"] for j, key in enumerate(keys)} for k, keys in enumerate(names)]


def bare(name: str) -> str:
    """Return a tensor's name or key, stripped of a runtime's additions."""
    return name.removesuffix(":0").replace("/", "_")


def pair_outputs(
    expected: Mapping[str, Array], answer: Mapping[str, Array]
) -> list[tuple[str, Array, Array]]:
    """Return the common outputs of two models, with both values.

    Outputs are paired by name, else by place where both models have as many.
    """
    named = {bare(key): value for key, value in answer.items()}
    pairs = [(key, value, named[bare(key)]) for key, value in expected.items() if bare(key) in named]
    if not pairs and len(expected) == len(answer):
        both = zip(expected.items(), answer.values(), strict=True)
        pairs = [(key, value, other) for (key, value), other in both]
    return pairs


def disagreement(
    expected: Mapping[str, Array], answer: Mapping[str, Array], *, atol: float, rtol: float
) -> str | None:
    """Return the difference of two models' answers, or None for equal answers.

    Only outputs that both models have are compared.
    """
    pairs = pair_outputs(expected, answer)
    if not pairs:
        return f"no output in common: {', '.join(expected)} and {', '.join(answer)}"
    for key, value, other in pairs:
        if value.shape != other.shape:
            return f"output {key}: shapes {[*value.shape]} and {[*other.shape]}"
        if value.dtype.kind in "OSUbiu":
            if not np.array_equal(value, other):
                return f"output {key}: other values"
            continue
        left, right = value.astype(np.float64), other.astype(np.float64)
        if not np.allclose(right, left, atol=atol, rtol=rtol, equal_nan=True):
            return f"output {key}: {np.nanmax(np.abs(left - right)):.1e} apart"
    return None


def compare_files(paths: Sequence[Path], *, atol: float, rtol: float) -> list[str | None]:
    """Return a reason for each file with answers unlike the first file's, else None."""
    first, *others = (read_calls(path) for path in paths)
    reasons: list[str | None] = [None]
    for calls in others:
        differences = (
            disagreement(expected, answer, atol=atol, rtol=rtol)
            for expected, answer in zip(first, calls, strict=True)
        )
        reasons.append(next(filter(None, differences), None))
    return reasons
