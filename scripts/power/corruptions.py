"""A corruption of one place of an artifact, and those of constants, which all formats share."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray
#: Writes new values of constants, by name, into a copy of an artifact.
Store: TypeAlias = Callable[[Path, Mapping[str, Array]], None]
#: The part of its norm by which one value of a constant is moved.
MOVED: Final = 1e-3
#: In names of what computes a recurrence: a node of the source, or a function or weights in its place.
_INSIDE: Final = re.compile(r"rnn_\d|cudnn_convert_|layer_\d|/_cudnn")
#: The kinds, in the order in which a sample takes one of each.
KINDS: Final = (*("op", "value", "wire", "zeroed", "attribute", "columns", "step", "rows", "exchanged"),)


@dataclass(frozen=True)
class Corruption:
    """One change: its kind, its place, and what writes it into a copy of the artifact."""

    kind: str
    place: str
    write: Callable[[Path], None]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.place}"


def draw_sample(every: Iterable[Corruption], count: int, seed: int) -> list[Corruption]:
    """At most `count` corruptions, one of each kind in turn, drawn from those of that kind.

    Every fourth is inside a recurrence, as far as names tell, where most places are.
    """
    chance = random.Random(seed)
    around, inside = defaultdict(list), defaultdict(list)
    for corruption in every:
        is_inside = _INSIDE.search(corruption.place) is not None
        (inside if is_inside else around)[corruption.kind].append(corruption)
    for drawn in (*around.values(), *inside.values()):
        chance.shuffle(drawn)
    first, second = _in_turn(around), _in_turn(inside)
    sample: list[Corruption] = []
    while len(sample) < count:
        turn, other = (second, first) if len(sample) % 4 == 3 else (first, second)
        if (corruption := next(turn, None) or next(other, None)) is None:
            break
        sample.append(corruption)
    return sample


def _in_turn(by_kind: Mapping[str, list[Corruption]]) -> Iterator[Corruption]:
    while any(by_kind.values()):
        for kind in KINDS:
            if by_kind[kind]:
                yield by_kind[kind].pop()


def of_constants(constants: Mapping[str, Array], store: Store, seed: int) -> Iterator[Corruption]:
    """Corruptions of each constant, and of each two that have a dtype and a shape in common."""
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for name in sorted(constants):
        value = constants[name]
        if value.size == 0 or value.dtype.kind not in "fiubO":
            continue
        alike[value.dtype.str, value.shape].append(name)
        rng = np.random.default_rng([seed, *name.encode()])
        for kind, what, changed in _changes(value, rng):
            yield Corruption(kind, f"{name}{what}", _storing(store, {name: changed}))
    for names in alike.values():
        for one, other in combinations(names, 2):
            if not np.array_equal(constants[one], constants[other]):
                changed = {one: constants[other], other: constants[one]}
                yield Corruption("exchanged", f"{one} with {other}", _storing(store, changed))


def _storing(store: Store, changed: Mapping[str, Array]) -> Callable[[Path], None]:
    return lambda path: store(path, changed)


def _changes(value: Array, rng: np.random.Generator) -> Iterator[tuple[str, str, Array]]:
    """`(kind, place in the constant, changed value)`."""
    if value.dtype.kind == "O":  # words change places alone
        yield from _exchanges(value, rng)
        return
    place = tuple(int(rng.integers(size)) for size in value.shape)
    moved = value.copy()
    if value.dtype.kind == "f":
        norm = float(np.linalg.norm(value.astype(np.float64)))
        moved[place] += MOVED * (norm if 0 < norm < np.inf else 1.0)
    elif value.dtype.kind == "b":
        moved[place] = not moved[place]
    else:
        moved[place] += 1 if moved[place] < np.iinfo(value.dtype).max else -1
    yield "value", f"[{','.join(map(str, place))}]", moved
    if value.any():
        yield "zeroed", "", np.zeros_like(value)
    yield from _exchanges(value, rng)


def _exchanges(value: Array, rng: np.random.Generator) -> Iterator[tuple[str, str, Array]]:
    for axis, kind in ((0, "rows"), (value.ndim - 1, "columns")):
        if value.ndim == 0 or value.shape[axis] < 2 or (kind == "columns" and value.ndim < 2):
            continue
        pair = sorted(int(k) for k in rng.choice(value.shape[axis], 2, replace=False))
        order = _exchange(value.shape[axis], pair)
        changed = np.take(value, order, axis)
        if not np.array_equal(changed, value):
            yield kind, f" {pair[0]} and {pair[1]}", changed


def _exchange(size: int, pair: Sequence[int]) -> list[int]:
    order = [*range(size)]
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    return order


def shifted_step(value: int) -> int:
    """Another step of time for an index: its neighbour, counted from the same end."""
    return value - 1 if value < 0 or value > 1 else value + 1


def moved_number(name: str, value: float) -> float:
    """Another value of an attribute that is a whole number or a float."""
    if isinstance(value, float):
        return value * 1.5 if value else 0.5
    return value ^ 1 if name.endswith("_mask") else value + 1
