"""Calls an artifact on inputs of the user's, or on random ones.

Without a source nobody says which sizes belong together, so every size that is not fixed is the same:
batch and time then agree wherever they meet. Integers may be ids of a small table, or lengths.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import Interface, TensorSpec
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError
from cudnn_convert.keras.config.classes import Vouched
from cudnn_convert.model import SERVING, Array, is_float

#: Of each size that is not fixed; no other integer is drawn, so that it is also a valid length.
_SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class Answers:
    """What an artifact answered: for each call its inputs and outputs by key, as NumPy arrays.

    `seed` is that of random inputs, None where they were given; then `data` says what they are of.
    """

    artifact: str
    format: str
    signature: str
    seed: int | None
    feeds: Sequence[Mapping[str, Array]]
    outputs: Sequence[Mapping[str, Array]]
    data: str | None = None

    def to_json(self) -> str:
        """Dtype and shape of each array, of outputs also minimum, maximum and mean; no values."""
        calls = [
            {
                "inputs": {key: _describe(value) for key, value in feed.items()},
                "outputs": {key: _describe(value) | measure(value) for key, value in answer.items()},
            }
            for feed, answer in zip(self.feeds, self.outputs, strict=True)
        ]
        names = ("artifact", "format", "signature", "seed", "data")
        head = {name: getattr(self, name) for name in names}
        return json.dumps({**head, "calls": calls}, indent=2, allow_nan=False)

    def arrays(self) -> dict[str, Array]:
        """All outputs by key, after `feed<k>/` where there were several calls."""
        prefixes = [f"feed{k}/" for k in range(len(self.outputs))] if len(self.outputs) > 1 else [""]
        return {
            prefix + key: value
            for prefix, answer in zip(prefixes, self.outputs, strict=True)
            for key, value in answer.items()
        }


def _describe(value: Array) -> dict[str, Any]:
    return {"dtype": str(value.dtype), "shape": [*value.shape]}


def measure(value: Array) -> dict[str, float | None]:
    """Minimum, maximum and mean of an array's finite numbers; None where it has none."""
    numbers = value.astype(np.float64).ravel() if value.dtype.kind in "biuf" or is_float(value.dtype) else ()
    finite = [number for number in numbers if np.isfinite(number)]
    figures = (min(finite), max(finite), sum(finite) / len(finite)) if finite else (None,) * 3
    return dict(zip(("min", "max", "mean"), map(_plain, figures), strict=True))


def _plain(number: float | None) -> float | None:
    return None if number is None else float(number)


def call_artifact(
    form: str,
    path: Path,
    feeds: Sequence[Mapping[str, Array]] | None,
    *,
    seed: int,
    signature: str | None,
    vouched: Vouched,
) -> Answers:
    """Call an artifact by one of its signatures; without `feeds` once, on random inputs of `seed`.

    Raises UsageError where the signature or an input does not fit, ReadError where it does not load or run,
    UnsupportedModelError where that would run more than arithmetic, or no input can be drawn.
    """
    interfaces = {each.part.name: each for each in runners.find_interfaces(form, path, vouched)}
    chosen = interfaces[runners.choose_signature(path, signature or SERVING, interfaces)]
    run = runners.open_artifact(form, path, [chosen.part], vouched)
    if feeds is not None:
        given = [_fit(feed, chosen, path) for feed in feeds]
        return Answers(str(path), form, chosen.part.name, None, given, [run(feed) for feed in given])
    drawn = _draw(chosen, path, np.random.default_rng(seed), ids=_SIZE)
    try:
        answers = run(drawn)
    except ReadError:  # an id may lie past a small table: its row 1 does not
        drawn = _draw(chosen, path, np.random.default_rng(seed), ids=1)
        try:
            answers = run(drawn)
        except ReadError as cause:  # a state may fix the number of rows, which no signature tells
            names = {name: getattr(cause, name) for name in ("expected", "found")}
            raise ReadError(cause.path, cause.where, **names, advice="give inputs with --data") from cause
    return Answers(str(path), form, chosen.part.name, seed, [drawn], [answers])


def _fit(feed: Mapping[str, Array], chosen: Interface, path: Path) -> dict[str, Array]:
    """The inputs of a call in the dtypes of the artifact. Raises UsageError for other keys or shapes."""
    if feed.keys() != chosen.inputs.keys():
        wanted, actual = (", ".join(keys) or "none" for keys in (chosen.inputs, feed))
        raise UsageError(f"--data: expected the inputs {wanted} of {path}, found {actual}")
    for key, spec in chosen.inputs.items():
        if spec.shape is not None and not _fits(feed[key].shape, spec.shape):
            sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
            raise UsageError(f"--data: {key}: expected the shape [{sizes}], found {[*feed[key].shape]}")
    return {
        key: value if value.dtype.kind in "OSU" else value.astype(chosen.inputs[key].dtype)
        for key, value in feed.items()
    }


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        want in (None, size) for size, want in zip(shape, wanted, strict=True)
    )


def _draw(chosen: Interface, path: Path, rng: np.random.Generator, *, ids: int) -> dict[str, Array]:
    """Random inputs: floats are normal, integers 1 to `ids`. Raises UnsupportedModelError."""
    undrawn = [
        f"input {key}: expected numbers of a known rank, found {_kind(spec)}; give inputs with --data"
        for key, spec in chosen.inputs.items()
        if spec.shape is None or spec.dtype.kind in "OSU"
    ]
    if undrawn:
        raise UnsupportedModelError(path, undrawn)
    return {key: _values(spec, rng, ids) for key, spec in chosen.inputs.items()}


def _kind(spec: TensorSpec) -> str:
    return "strings" if spec.dtype.kind in "OSU" else "no known shape"


def _values(spec: TensorSpec, rng: np.random.Generator, ids: int) -> Array:
    assert spec.shape is not None
    shape = [_SIZE if size is None else size for size in spec.shape]
    if is_float(spec.dtype) or spec.dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(spec.dtype)
    return np.asarray(rng.integers(1, ids + 1, shape)).astype(spec.dtype)
