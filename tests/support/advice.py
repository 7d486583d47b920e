"""What the tool advises, and how it is followed to the letter: `Advice`, a row of the tables of advice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from support.command_line import Ended, command

#: Flags of which a call may have several; of the others the advised one takes the place of the given one.
_ADDING: Final = frozenset({"--set", "--custom-objects"})


@dataclass(frozen=True)
class Advice:
    """A message that names flags, how it comes about, and where its flags must lead.

    `pieces`: what of the source it is made of, as `file: some of its words` (messages.py). `source` is the
    name of a sample, or makes a source in an empty folder. In `flags` and `answers` `{here}` is the folder
    around it, in which `prepare` makes other files. `ways` matches every way that a message offers: its group
    is flags to add, in the place of those given; a group `other` is another value of the flag; a group `gone`
    has flags to leave out. `answers` is what only a user knows, by the word of the message that stands for
    it, or by the flag that has no value there. `then` matches the next question where there is one more.
    `verb` is the command that says it, `then_verb` the one that takes it where that is another.
    """

    pieces: Sequence[str]
    source: str | Callable[[Path], Path]
    flags: Sequence[str]
    ways: str
    answers: Mapping[str, str] = field(default_factory=dict)
    then: str = ""
    verb: str = ""
    then_verb: str | None = None
    out: str = "out"
    prepare: Callable[[Path, Path], Any] | None = None
    patch: tuple[str, Any] | None = None

    def next(self, number: int) -> Advice:
        """The row of the call that takes its way of that number: another OUT, but where that is replaced."""
        verb = self.verb if self.then_verb is None else self.then_verb
        stays = self.out != "out" or "--force" in self.ways
        return replace(self, verb=verb, out=self.out if stays else f"out{number}")

    @property
    def is_of_proof(self) -> bool:
        """Whether a proof says it, needs it or is its cure; other conversions are made without one."""
        words = (
            "verif",
            "--data",
            "--golden",
            "--atol",
            "--max-error",
            "obstacles.py",
            "tflite.py",
            "runtime",
        )
        return any(word in text for text in (*self.pieces, *self.flags, self.ways) for word in words)

    @property
    def name(self) -> str:
        """An id for the test: the first piece, and what tells its cases apart."""
        return " ".join([self.pieces[0], *self.flags]).replace("{here}/", "")


def called(row: Advice, source: Path, here: Path, flags: Sequence[str]) -> Ended:
    """The call of a row. A conversion has an OUT; what another command compares is among the flags."""
    words = [source, here / row.out] if not row.verb else [row.verb, source]
    more = [] if row.verb or row.is_of_proof else ["--no-verify"]
    return command(*words, *(flag.format(here=here) for flag in flags), *more)


def offered(row: Advice, ended: Ended) -> list[tuple[str, re.Match[str]]]:
    """The ways that a message of the call offers, each with its line."""
    lines = ended.stderr.splitlines() + ended.stdout.splitlines()
    return [(line, match) for line in lines for match in re.finditer(row.ways, line)]


def followed(row: Advice, match: re.Match[str]) -> Iterator[list[str]]:
    """The flags of a call that takes a way at its word, and of one for another value of its flag."""
    named = match.groupdict()
    numbers = {match.re.groupindex.get(name) for name in ("gone", "other")}
    groups = (match[k] for k in range(1, match.re.groups + 1) if k not in numbers)
    advised = " ".join(filter(None, groups))
    made = [*row.flags]
    for flag in re.findall(r"--[a-z-]+", named.get("gone") or ""):
        made = _without(made, flag)
    for word, value in row.answers.items():
        advised = advised if word.startswith("--") else advised.replace(word, value)
    for flag, *values in _by_flag(shlex.split(advised)):
        given = values or ([row.answers[flag]] if flag in row.answers else [])
        made = [*(made if flag in _ADDING else _without(made, flag)), flag, *given]
    yield made
    if named.get("other"):
        yield [*made[:-1], named["other"]]


def _without(flags: Sequence[str], gone: str) -> list[str]:
    return [word for words in _by_flag(flags) if words[0] != gone for word in words]


def _by_flag(words: Sequence[str]) -> list[list[str]]:
    """Words by the flag that they belong to; `--flag=value` is two."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not found:
            flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            found.append([flag, value] if equals else [flag])
        else:
            found[-1].append(word)
    return found
