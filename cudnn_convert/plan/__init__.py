"""What to convert: the outputs, the inputs, the constants, the graph between them and its recurrences.

Nothing is guessed silently: `Plan.notes` says what was chosen, `Plan.flags` repeats the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudnn_convert.graph.interface import Single
from cudnn_convert.model import Model, Part, Recurrence, Signature

if TYPE_CHECKING:  # weights without a graph are planned without TensorFlow
    from cudnn_convert.graph.settle import Carried


@dataclass(frozen=True, slots=True)
class Plan:
    """A model cut down to its chosen signature.

    `source` names the signature's tensors as the file does, `signature` as `graph` does: they differ where
    a tensor in the middle of the graph became an input. `parts` divides `signature` where the artifact has
    several. `whole` is the cut graph with everything that inference does not need still in it, state in its
    variables: verification runs that one. `states` says what became of the state. `initializers` are the ops
    of both graphs that fill tables. Recurrences that stand alone need none: `singles` then has one for each
    of `parts`, `whole` is None, and so is `graph` but for what their weights are computed from.
    """

    model: Model
    whole: Any
    graph: Any
    source: Signature
    signature: Signature
    parts: tuple[Part, ...]
    recurrences: tuple[Recurrence, ...]
    notes: tuple[str, ...]
    flags: tuple[str, ...]
    states: tuple[Carried, ...] = ()
    initializers: tuple[str, ...] = ()
    singles: tuple[Single, ...] = ()
