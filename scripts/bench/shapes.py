"""The sizes that are measured, and the small ones of `--quick`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Shape:
    """One call of a recurrence: its weights, and an input `[steps, batch, inputs]`."""

    name: str
    steps: int
    batch: int
    inputs: int
    units: int
    layers: int = 1
    directions: int = 1

    @property
    def told(self) -> str:
        """In words, for a table."""
        stacked = f", {self.layers} layers" if self.layers > 1 else ""
        ways = ", bidirectional" if self.directions > 1 else ""
        return (
            f"{self.steps} steps, batch {self.batch}, {self.inputs} inputs, {self.units} units{stacked}{ways}"
        )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


CELLS: Final = ("lstm", "gru")
SHAPES: Final = (
    Shape("u1", 100, 1, 128, 128),
    Shape("u2", 200, 1, 512, 512),
    Shape("u3", 50, 32, 256, 256),
    Shape("u4", 200, 32, 512, 512),
    Shape("u5", 1, 1, 512, 512),
    Shape("u6", 1000, 1, 64, 64),
    Shape("o1", 200, 16, 100, 100, layers=2, directions=2),
)
#: Those of our files in other runtimes: one row at a time, as outside of a server.
SMALL: Final = ("u1", "u5", "u6")
#: No two numbers alike, so that no transposition passes the check before the timing.
QUICK: Final = (
    Shape("q1", 7, 3, 5, 4),
    Shape("q2", 1, 2, 3, 6),
    Shape("q3", 6, 3, 5, 4, layers=2, directions=2),
)
