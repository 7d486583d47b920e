"""Protocols for the tensors of an artifact by name, with values for any fed tensors."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cudnn_convert.model import Array


@dataclass(frozen=True, slots=True)
class StoredCuts:
    """The statement of a file about shared tensors and left-out parts.

    `names` has by tensor the source's that it was when the file was written, `left` by the source's tensor
    what differed on values that no run brings.
    """

    names: Mapping[str, str]
    left: Mapping[str, str]

    @classmethod
    def parse(cls, text: str | bytes | None) -> StoredCuts | None:
        """Parse the text of a statement.

        Returns None for no text, or for one that is not ours.
        """
        try:
            record = json.loads(text or "")
            return cls(dict(record["names"]), dict(record["left"]))
        except (ValueError, TypeError, KeyError):
            return None

    def format(self) -> str:
        """Return the statement as text."""
        return json.dumps({"names": dict(self.names), "left": dict(self.left)}, sort_keys=True)


class FileRunner(Protocol):
    """An open artifact with some tensors as outputs and further tensors as inputs."""

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """Compute outputs from given values of inputs by key and of cuts."""


class TensorFile(Protocol):
    """A file of an artifact as tensors by name.

    `names_are_kept`: each name is the source's, whatever the value. A converter may call another tensor so.
    """

    names_are_kept: ClassVar[bool]

    @property
    def outputs(self) -> Mapping[str, str]:
        """The name of each output's tensor, by key."""

    @property
    def tensors(self) -> list[str]:
        """The names of all computed tensors."""

    def list_namesakes(self, name: str) -> list[str]:
        """Return the source's tensors of possibly equal value; some may be absent."""

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[frozenset[str] | None, bool]:
        """Return the leaves of a sink, if known, and whether a recurrence computes the sink.

        The leaves are the tensors whose values the sink is computed from.
        """

    def open(self, names: Sequence[str], cuts: Mapping[str, Array]) -> FileRunner:
        """Open the file with `cuts` as further inputs and `names` as outputs.

        The inputs have the types and ranks of `cuts`.
        """

    def read_cuts(self) -> StoredCuts | None:
        """Read the statement about shared tensors stored in the file, if any."""

    def write_cuts(self, cuts: StoredCuts) -> None:
        """Store the map to the source's tensors in the file."""
