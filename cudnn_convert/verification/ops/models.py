"""What is asked of an artifact: its tensors by name, and their values when others are fed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cudnn_convert.model import Array


class Runner(Protocol):
    """An artifact that is open, with some of its tensors as outputs and others as inputs."""

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """The values of outputs, where inputs by key and cuts have the values that are given."""


class Model(Protocol):
    """A file of an artifact as tensors by name."""

    @property
    def outputs(self) -> Mapping[str, str]:
        """The name of each output's tensor by its key."""

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors that are computed."""

    def list_namesakes(self, name: str) -> list[str]:
        """The source's tensors that may have the value of one, if they are there."""

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[frozenset[str] | None, frozenset[str]]:
        """The tensors whose values a sink is computed from, if known, and the kinds of ops that do."""

    def has_fused(self, kinds: Collection[str]) -> bool:
        """Whether a recurrence is among kinds of ops."""

    def open(self, names: Sequence[str], cuts: Mapping[str, Array]) -> Runner:
        """The file with `cuts` as further inputs, of these types and ranks, and `names` as outputs."""

    def read_cuts(self) -> dict[str, str] | None:
        """By tensor the source's that it was when the file was written; None where it does not say."""

    def write_cuts(self, names: Mapping[str, str]) -> None:
        """Let the file say which of its tensors are the source's."""
