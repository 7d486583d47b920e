"""The recurrences of a source that has weights and no graph: what names, shapes and flags say of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph.index import unique
from cudnn_convert.graph.pairing import scopes
from cudnn_convert.model import CanonicalParameters, Mode, Model, Sizes

#: What contrib layers call their blob (tensorflow v1.15.0 contrib/cudnn_rnn/python/layers/cudnn_rnn.py).
BLOB: Final = "opaque_kernel"
FLAGS: Final = "--mode, --layers, --units and --directions"
#: The default scopes of contrib layers name their mode, the same file.
_SCOPE: Final = re.compile(r"(?:.*/)?cudnn_(lstm|gru|rnn_tanh|rnn_relu)(?:_\d+)?")


@dataclass(frozen=True, slots=True)
class Described:
    """What the user says of recurrences that no graph describes; None where nothing is said."""

    mode: Mode | None = None
    layers: int | None = None
    units: int | None = None
    directions: int | None = None

    def fits(self, sizes: Sizes) -> bool:
        """Whether nothing that was said contradicts `sizes`."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return all(value is None or getattr(sizes, name) == value for name, value in said.items())


@dataclass(frozen=True, slots=True)
class Alone:
    """One recurrence: `variable` is the key of its blob, which need not exist where canonical keys do."""

    variable: str
    sizes: Sizes
    dtype: np.dtype[Any]
    name: str = ""
    batch_major: bool = False
    note: str | None = None


def canonical(model: Model, said: Described) -> tuple[Alone, ...]:
    """The recurrences with canonical keys, each with its raw blob where that is here too.

    Raises AmbiguousSourceError where flags must decide, UnsupportedModelError where they contradict the keys.
    """
    blobs = blob_by_scope(model)
    found_under = dict.fromkeys(found.scope for found in _sure(model, said))
    found = (_canonical(model, scope, blobs.get(scope, f"{scope}{BLOB}"), said) for scope in found_under)
    return tuple(alone for alone in found if alone is not None)


def blob_by_scope(model: Model) -> dict[str, str]:
    """The key of each `opaque_kernel` that has canonical keys, by scope: its own or the one around it."""
    known = {found.scope for found in model.canonical}
    found: dict[str, str] = {}
    for key in blobs(model):
        scope = next((scope for scope in scopes(key) if scope in known), None)
        if scope is not None:
            found.setdefault(scope, key)
    return found


def blobs(model: Model) -> list[str]:
    """The keys of the layers' blobs."""
    return [
        key
        for key, tensor in model.variables.items()
        if key.rpartition("/")[2] == BLOB and len(tensor.shape) == 1
    ]


def mode_by_name(scope: str) -> Mode | None:
    """The mode that a layer's default scope names."""
    match = _SCOPE.fullmatch(scope.rstrip("/"))
    return Mode(match[1]) if match else None


def named(alone: Sequence[Alone]) -> Iterator[Alone]:
    """The recurrences with the names of their signatures, which all differ."""
    taken: list[str] = []
    for one in alone:
        taken.append(unique(name(one.variable), taken))
        yield replace(one, name=taken[-1])


def name(key: str) -> str:
    """A signature's name: the scope of a layer's blob, or the key of a blob that its user named."""
    scope = key.removesuffix(BLOB).strip("/") if key.rpartition("/")[2] == BLOB else key
    return re.sub(r"\W", "_", scope) or "rnn"


def told(sizes: Sizes) -> str:
    """Sizes as the flags that say them."""
    return (
        f"--mode {sizes.mode.value} --layers {sizes.layers} --units {sizes.units} "
        f"--directions {sizes.directions} (input size {sizes.input_size})"
    )


def _sure(model: Model, said: Described) -> list[CanonicalParameters]:
    """The sets that can be nothing else, and those that the user described."""
    described = said.mode is not None and said.units is not None
    return [
        found
        for found in model.canonical
        if not found.may_be_dense or (described and any(said.fits(sizes) for sizes in _readings(found)))
    ]


def _readings(found: CanonicalParameters) -> list[Sizes]:
    return [
        Sizes(mode, found.layers, found.directions, found.units, found.input_size) for mode in found.modes
    ]


def _canonical(model: Model, scope: str, key: str, said: Described) -> Alone | None:
    """The recurrence of one scope's keys, or None where they are the half of another."""
    sets = [found for found in _sure(model, said) if found.scope == scope]
    readings = [(found, sizes) for found in sets for sizes in _readings(found)]
    fitting = [pair for pair in readings if said.fits(pair[1])]
    where = scope.rstrip("/") or "the root scope"
    if not fitting:
        if said.directions == 2 and all(found.may_be_half for found in sets):
            return None
        listed = "; ".join(told(sizes) for _, sizes in readings)
        raise UnsupportedModelError(
            model.path, [f"{where}: expected what the flags say, found {listed}; say that"]
        )
    mode, note = mode_by_name(scope), None
    if len(fitting) > 1 and mode is not None:
        fitting = [pair for pair in fitting if pair[1].mode is mode] or fitting
        note = f"{where}: {mode.value} by the name of its scope; --mode chooses"
    if len(fitting) > 1:
        listed = " or ".join(told(sizes) for _, sizes in fitting)
        raise AmbiguousSourceError(model.path, [f"{where}: keys and shapes fit {listed}; choose with --mode"])
    ((found, sizes),) = fitting
    if found.may_be_half and said.directions is None:
        half = "TensorFlow before 1.4 saved half of a bidirectional layer under these keys"
        cure = "say --directions 1 if it had one, else convert its blob with --directions 2"
        raise AmbiguousSourceError(model.path, [f"{where}: {half}; {cure}"])
    return Alone(key, sizes, found.dtype, batch_major=found.batch_major, note=note or found.note)
