"""A piece of an artifact: what computes layers of one recurrence, and can be asked by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudnn_convert.model import Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.verification.pieces.inputs import Asked

#: `(y [time, batch, directions*width], h [layers*directions, batch, width], c [..., units] or None)`, of the
#: layers that were asked.
Answer = tuple[Array, Array, Array | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Layers of the recurrence `node` in an artifact.

    `name` says where it computes them. `ask` gives its answer in the type that it computes in; c is None in
    what is no LSTM. `lengths`: it takes rows of several lengths. `projected`: a projection is part of it;
    where it stands around it, it takes and gives the state before that. `tied`: both initial states of an
    LSTM are one tensor. `outputs`: something reads `y`; else it is not compared. `steps` and `rows`: the
    sizes that the artifact holds it to beside a single step, which it takes of any number of rows.
    """

    node: str
    layers: tuple[int, ...]
    name: str
    ask: Callable[[Asked], Answer]
    lengths: bool = True
    projected: bool = True
    tied: bool = False
    outputs: bool = True
    steps: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """What is asked: a file of some format, the plan of its source, and what runs it as its user will."""

    form: str
    path: Path
    plan: Plan
    answer: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Pieces:
    """All pieces of an artifact, and by node why a recurrence has none.

    `same`: by node another node whose piece is the very same computation on the same weights.
    """

    found: tuple[Piece, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)

    def of(self, recurrence: Recurrence, others: Iterable[Recurrence]) -> list[Piece]:
        """The pieces of a recurrence; where it has none, those of another that holds the same weights."""
        node = self.same.get(recurrence.node, recurrence.node)
        own = [piece for piece in self.found if piece.node == node]
        wanted = (recurrence.shared, recurrence.sizes, recurrence.dtype)
        twins = [one.node for one in others if (one.shared, one.sizes, one.dtype) == wanted]
        return own or [piece for piece in self.found if piece.node in twins]
