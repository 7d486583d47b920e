"""Exceptions of the package, with exit codes.

Every exception has fields, and its message is made from them: a line for each reason, which says where, what
was expected, what was found and what to do. What to do is also a value, the remedies of a `Reason`: code
reads these, and no code reads a message. `exit_code` is the process status of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cudnn_convert.text import _part, _quote, _reason, flags_of, visible

__all__ = [
    "AccessError",
    "AmbiguousSourceError",
    "CudnnConvertError",
    "InvalidModelError",
    "MissingDependencyError",
    "ReadError",
    "RefusalError",
    "UnprovenError",
    "UnsupportedModelError",
    "UsageError",
    "VerificationError",
    "WriteError",
]


#: What to do where bytes are not what was written.
AGAIN: Final = "copy it again"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Possibly helpful options, by the fields of `Options`.

    As text: `lead` and the flags that set them.
    """

    options: Mapping[str, Any]
    lead: str = ""

    @property
    def flags(self) -> str:
        """The flags for the options, in a shell's form."""
        return " ".join(" ".join([flag, *map(_quote, value)]) for flag, *value in flags_of(self.options))

    def __str__(self) -> str:
        return f"{self.lead} {self.flags}".strip()


class Reason(str):
    """A line of a refusal: the place, the expected, the found, and the remedy.

    `remedies` are what the line advises, as far as options can follow it: several are alternatives.
    """

    remedies: tuple[Remedy, ...]

    def __new__(cls, text: str, *remedies: Remedy | None) -> Reason:
        """Make a reason of a text and remedies, skipping missing remedies."""
        reason = super().__new__(cls, text)
        reason.remedies = tuple(remedy for remedy in remedies if remedy is not None)
        return reason


class CudnnConvertError(Exception):
    """The base of all intentional errors of the library."""

    exit_code: ClassVar[int] = 1

    def spell(self, how: Callable[[str], str]) -> None:
        """Rewrite the message and all reasons, each line by `how`."""
        fields = self.__dict__
        if "reasons" in fields:
            fields["reasons"] = tuple(_spell(reason, how) for reason in fields["reasons"])
        if fields.get("advice"):
            fields["advice"] = how(fields["advice"])
        self.args = (self._message(how),)

    def _message(self, how: Callable[[str], str]) -> str:
        return "\n".join(map(how, str(self).split("\n")))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default reduce calls the class with `args`, which holds the message, not the fields.
        return _rebuild, (type(self), *self.args), self.__dict__


def _spell(reason: str, how: Callable[[str], str]) -> str:
    """Spell a reason anew, and keep the remedies."""
    return Reason(how(reason), *reason.remedies) if isinstance(reason, Reason) else how(reason)


def _rebuild(cls: type[CudnnConvertError], *args: Any) -> CudnnConvertError:
    return cls.__new__(cls, *args)


class ReadError(CudnnConvertError):
    """A damaged file, or a file different from the claimed kind."""

    def __init__(self, path: object, where: str, *, expected: str, found: str, advice: str = "") -> None:
        self.path, self.where, self.advice = str(path), where, advice
        self.expected, self.found = expected, found
        message = f"{visible(self.path)}: {_part(where)}: expected {_part(expected)}, found {_part(found)}"
        super().__init__(f"{message}; {advice}" if advice else message)


class AccessError(CudnnConvertError):
    """A source unreadable for a reason of the system: a permission, a disk."""

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{visible(self.path)}: cannot read: {_part(reason)}")


@contextmanager
def name_access(path: object) -> Iterator[None]:
    """Turn OSErrors of the context into AccessErrors of the error's file, else of `path`."""
    try:
        yield
    except OSError as cause:
        raise AccessError(cause.filename or path, cause.strerror or str(cause)) from cause


class InvalidModelError(CudnnConvertError):
    """A shape, dtype or size rule of `cudnn_convert.model` is broken."""

    def __init__(self, where: str, *, expected: str, found: str) -> None:
        self.where, self.expected, self.found = where, expected, found
        super().__init__(f"{_part(where)}: expected {_part(expected)}, found {_part(found)}")


class RefusalError(CudnnConvertError):
    """A refusal with all reasons at once, each in a line.

    `path` is the source's, or the name of the format that refuses a graph whose source it does not know.
    """

    def __init__(self, path: object, reasons: Iterable[str]) -> None:
        self.path = str(path)
        self.reasons = tuple(reason if isinstance(reason, Reason) else Reason(reason) for reason in reasons)
        super().__init__(self._message(str))

    def _message(self, _: Callable[[str], str]) -> str:
        # The reasons are spelled already, and know their remedies.
        path = visible(self.path)
        return "\n".join(f"{path}: {_reason(reason)}" for reason in self.reasons)


class UnsupportedModelError(RefusalError):
    """A sound file with demands refused by the library."""


class UnprovenError(UnsupportedModelError):
    """A conversion left unproven on the given inputs, though all comparisons pass."""


class AmbiguousSourceError(RefusalError):
    """A file with several readings; the reasons list the readings and the flags."""


class UsageError(CudnnConvertError):
    """A wrong call: an unknown tensor, a bad value, an existing OUT.

    Its message has a line for each reason.
    """

    exit_code = 2

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("\n".join(map(_reason, reasons)))


class VerificationError(CudnnConvertError):
    """The numbers differ; `report` says where: `convert`'s Report, or the Verification of `verify`.

    A line for each of the `reasons`.
    """

    exit_code = 3

    def __init__(self, report: Any, *reasons: str) -> None:
        self.report, self.reasons = report, reasons
        super().__init__("\n".join(map(_reason, reasons)))


class WriteError(CudnnConvertError):
    """The disk, a permission or another process stood in the way."""

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{visible(self.path)}: {_part(reason)}")


@contextmanager
def name_write(path: object, lead: str = "cannot write") -> Iterator[None]:
    """Turn OSErrors of the context into WriteErrors of `path`, with `lead` in front."""
    try:
        yield
    except OSError as cause:
        raise WriteError(path, f"{lead}: {cause.strerror or cause}") from cause


class MissingDependencyError(CudnnConvertError):
    """A package needed by the chosen target is missing or unusable."""

    exit_code = 4

    def __init__(self, reason: str) -> None:
        super().__init__(_reason(reason))
