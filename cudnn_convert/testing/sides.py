"""One side of a comparison: something that answers, and the names that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.verification.compare import Tolerance

Feed = Mapping[str, Array]
#: The name of an input that was given without one.
UNNAMED: Final = "input"


@dataclass(frozen=True, slots=True)
class Side:
    """`kind` and `name` are what a person reads. `run` takes arrays by the side's own names.

    `inputs`: these names, None where any are taken. `calls`: of recorded answers, how many calls they are of.
    `signed`: whether it has signatures to choose from. `recording` and `bound`: what a recording says of
    itself, and how its device widens a tolerance for a type.
    """

    kind: str
    name: str
    run: Callable[[Feed], Any]
    inputs: tuple[str, ...] | None = None
    calls: int | None = None
    signed: bool = False
    recording: dict[str, Any] | None = None
    bound: Callable[[Tolerance, np.dtype[Any]], Tolerance] = lambda bound, _: bound


def recorded(where: str, answers: Sequence[Any]) -> Side:
    """Answers that were given already, one for each call."""
    stored: Iterator[Any] = iter(answers)
    return Side("arrays", f"arrays given as {where}", lambda _: next(stored), calls=len(answers))


def is_array(value: Any) -> bool:
    """An array of NumPy's or of another library's that becomes one."""
    return hasattr(value, "__array__") and not isinstance(value, type)


def array(value: Any, where: str) -> Array:
    """A copy as an array of NumPy's: runtimes reuse their buffers. Raises UsageError for what is none."""
    if value is None or isinstance(value, Mapping | list | tuple):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise UsageError(f"{where}: expected an array, found {found}")
    return np.array(value)


def by_name(answer: Any, where: str) -> dict[str, Array]:
    """What a side answered, by name: a sequence without names is `output_0`, `output_1`, ...

    Raises UsageError where there is nothing in it.
    """
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        answer = dict(zip(answer._fields, answer, strict=True))
    if isinstance(answer, list | tuple):
        answer = {f"output_{k}": value for k, value in enumerate(answer)}
    elif not isinstance(answer, Mapping):
        answer = {"output_0": answer}
    if not answer:
        raise UsageError(f"{where}: expected at least one output, found none")
    return {str(key): array(value, f"{where}: output {key}") for key, value in answer.items()}
