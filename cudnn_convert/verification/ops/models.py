"""What is asked of an artifact: its tensors by name, and their values when others are fed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cudnn_convert.model import Array


@dataclass(frozen=True, slots=True)
class StoredCuts:
    """What a file says of its tensors: which are the source's, and which parts are left out.

    `names` has by tensor the source's that it was when the file was written, `left` by the source's tensor
    what differed on values that no run brings.
    """

    names: Mapping[str, str]
    left: Mapping[str, str]

    @classmethod
    def parse(cls, text: str | bytes) -> StoredCuts | None:
        """What a text says; None for one that is not ours."""
        try:
            record = json.loads(text)
            return cls(dict(record["names"]), dict(record["left"]))
        except (ValueError, TypeError, KeyError):
            return None

    def format(self) -> str:
        """A text that says it."""
        return json.dumps({"names": dict(self.names), "left": dict(self.left)}, sort_keys=True)


class FileRunner(Protocol):
    """An artifact that is open, with some of its tensors as outputs and others as inputs."""

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """The values of outputs, where inputs by key and cuts have the values that are given."""


class TensorFile(Protocol):
    """A file of an artifact as tensors by name.

    `names_are_kept`: each name is the source's, whatever the value. A converter may call another tensor so.
    """

    names_are_kept: ClassVar[bool]

    @property
    def outputs(self) -> Mapping[str, str]:
        """The name of each output's tensor by its key."""

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors that are computed."""

    def list_namesakes(self, name: str) -> list[str]:
        """The source's tensors that may have the value of one, if they are there."""

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[frozenset[str] | None, bool]:
        """The tensors whose values a sink is computed from, if known, and whether a recurrence does it."""

    def open(self, names: Sequence[str], cuts: Mapping[str, Array]) -> FileRunner:
        """The file with `cuts` as further inputs, of these types and ranks, and `names` as outputs."""

    def read_cuts(self) -> StoredCuts | None:
        """What the file says of its tensors; None where it says nothing."""

    def write_cuts(self, cuts: StoredCuts) -> None:
        """Let the file say which of its tensors are the source's."""
