"""What a case is: how to build its model, what to feed it, and which recurrences its signatures hold."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def seeded(text: str) -> np.random.RandomState:
    """Random numbers that depend on names alone: neither the order of calls nor a version changes one."""
    return np.random.RandomState(zlib.crc32(text.encode()) & 0xFFFFFFFF)


@dataclasses.dataclass(frozen=True)
class Floats:
    """Standard normal numbers."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    def value(self, text: str) -> np.ndarray:
        return seeded(text).standard_normal(self.shape).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class Padded:
    """Standard normal numbers `[B, T, size]`, zeros past each row's length."""

    lengths: tuple[int, ...]
    steps: int
    size: int

    def value(self, text: str) -> np.ndarray:
        numbers = seeded(text).standard_normal((len(self.lengths), self.steps, self.size))
        valid = np.arange(self.steps) < np.array(self.lengths)[:, None]
        return np.where(valid[:, :, None], numbers, 0.0).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Ids:
    """Whole numbers `[B, T]` from 1 to below `below`, zeros past each row's length."""

    lengths: tuple[int, ...]
    steps: int
    below: int

    def value(self, text: str) -> np.ndarray:
        numbers = seeded(text).randint(1, self.below, (len(self.lengths), self.steps))
        return np.where(np.arange(self.steps) < np.array(self.lengths)[:, None], numbers, 0).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Words:
    """Strings as bytes."""

    rows: tuple[tuple[str, ...], ...]

    def value(self, text: str) -> np.ndarray:
        return np.array(self.rows, dtype=np.bytes_)


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Whole numbers `[B]`, as given."""

    rows: tuple[int, ...]

    def value(self, text: str) -> np.ndarray:
        return np.array(self.rows, dtype=np.int32)


Feed = Mapping[str, Floats | Padded | Ids | Words | Lengths]


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """One cuDNN node that a signature reaches, as the case's author knows it.

    `backwards`: the node stands between ReverseSequence ops. `masked`: its lengths follow from the feed,
    otherwise each is the number of steps. `needed`: an output hangs on it, not the order of execution alone.
    """

    mode: str
    units: int
    input_size: int
    layers: int = 1
    directions: int = 1
    backwards: bool = False
    masked: bool = False
    needed: bool = True


def lstm(units: int, input_size: int, **options: Any) -> Recurrence:
    return Recurrence("lstm", units, input_size, **options)


def gru(units: int, input_size: int, **options: Any) -> Recurrence:
    return Recurrence("gru", units, input_size, **options)


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature's feeds in order (a stateful model's are calls in a row) and its recurrences.

    Where there is a mask, `lengths` has each feed's rows' lengths, `per_step` names the outputs `[B, T, ...]`
    that hold for valid steps only, and `zero_past_length` those of them that are a recurrence's own output:
    cuDNN has zeros there.
    """

    feeds: Sequence[Feed]
    recurrences: Sequence[Recurrence]
    lengths: Sequence[Sequence[int]] = ()
    per_step: Sequence[str] = ()
    zero_past_length: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Case:
    """A built model. `save` writes the SavedModel; None: `model.export`.

    `called`: the model takes the first signature's feeds itself. `archive`: a .keras file is written too.
    `answer` maps a signature's name and feed to outputs, where the export of a machine without a GPU does not
    answer.
    """

    model: Any
    signatures: Mapping[str, Signature]
    save: Callable[[Path], None] | None = None
    stateful: bool = False
    archive: bool = False
    called: bool = True
    answer: Callable[[str, dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None
