"""Exceptions of the package, their exit codes, and text made printable for a terminal.

Every exception has fields, and its message is made from them: a line for each reason, which says where, what
was expected, what was found and what to do. What to do is also a value, the remedies of a `Reason`: code
reads these, and no code reads a message. `exit_code` is the process status of the command line.

Names, paths and messages come from files of strangers. As they are they could move the cursor, colour a
verdict, turn the order of characters around or start a line that looks like ours. Every output that a person
reads goes through `visible` last; JSON escapes by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

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
#: Characters of a part that a file may have brought; of a word, where flags may stand that are to be copied.
_PART: Final = 300
_WORD: Final = re.compile(r"\S{700,}")


#: What TensorFlow says before the reason for which a graph did not run: where the graph was built, which
#: nodes failed. tensorflow v2.21.0 python/framework/error_interpolation.py `interpolate_graph`,
#: python/client/session.py; core/common_runtime/executor.cc for the root errors.
_BEFORE: Final = (
    r"Graph execution error:|Detected at node.*|File \".*|Node: .*|<stack traces unavailable>|"
    r"\d+ root error\(s\) found\.|\[\[.*\]\]"
)
_REASON: Final = re.compile(rf"(?!(?:{_BEFORE})$)(?:\(\d+\) [A-Z_]+: )?(.+)")


def _shorten(text: str) -> str:
    return f"{text[: _PART - 100]}...{text[-100:]}" if len(text) > _PART else text


def _part(text: str) -> str:
    return _shorten(visible(text))


def _reason(text: str) -> str:
    return _WORD.sub(lambda word: _shorten(word[0]), visible(text))


def first_line(cause: BaseException) -> str:
    """Return the first line of another library's exception that gives a reason.

    Without a reason it is the first line, without a message the class's name.
    """
    lines = [line for line in map(str.strip, str(cause).splitlines()) if line]
    reasons = (match[1] for line in lines if (match := _REASON.fullmatch(line)))
    return next(reasons, lines[0] if lines else type(cause).__name__)


@dataclass(frozen=True, slots=True)
class Remedy:
    """Options that may help, by the fields of `Options`.

    As text: `lead` and the flags that set them.
    """

    options: Mapping[str, Any]
    lead: str = ""

    @property
    def flags(self) -> str:
        """The flags that set the options, as a shell takes them."""
        return " ".join(" ".join([flag, *map(_quote, value)]) for flag, *value in flags_of(self.options))

    def __str__(self) -> str:
        return f"{self.lead} {self.flags}".strip()


class Reason(str):
    """A line of a refusal: where, what was expected, what was found, what to do.

    `remedies` are what the line advises, as far as options can follow it: several are alternatives.
    """

    remedies: tuple[Remedy, ...]

    def __new__(cls, text: str, *remedies: Remedy | None) -> Reason:
        """Make a reason of its text and remedies, without those that are None."""
        reason = super().__new__(cls, text)
        reason.remedies = tuple(remedy for remedy in remedies if remedy is not None)
        return reason


class CudnnConvertError(Exception):
    """Base of everything that this library raises on purpose."""

    exit_code: ClassVar[int] = 1

    def spell(self, how: Callable[[str], str]) -> None:
        """Write the message and its reasons anew, each line by `how`."""
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
        return _rebuild, (type(self), self.args, self.__dict__)


def _spell(reason: str, how: Callable[[str], str]) -> str:
    """A reason spelled anew, with its remedies where it has some."""
    return Reason(how(reason), *reason.remedies) if isinstance(reason, Reason) else how(reason)


def _rebuild(cls: type[CudnnConvertError], args: tuple[Any, ...], state: dict[str, Any]) -> CudnnConvertError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ReadError(CudnnConvertError):
    """The file is damaged, or not what it claims to be."""

    def __init__(self, path: object, where: str, *, expected: str, found: str, advice: str = "") -> None:
        self.path, self.where, self.advice = str(path), where, advice
        self.expected, self.found = expected, found
        message = f"{visible(self.path)}: {_part(where)}: expected {_part(expected)}, found {_part(found)}"
        super().__init__(f"{message}; {advice}" if advice else message)


class AccessError(CudnnConvertError):
    """The system does not let us read the source: a permission, a disk."""

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{visible(self.path)}: cannot read: {_part(reason)}")


@contextmanager
def name_access(path: object) -> Iterator[None]:
    """In this context an OSError becomes an AccessError of its own file, or else of `path`."""
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
    """A refusal that gives all its reasons at once, a line each.

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
    """A sound file that asks for something we refuse to do."""


class UnprovenError(UnsupportedModelError):
    """A source whose conversion cannot be proven on these inputs, though nothing differs."""


class AmbiguousSourceError(RefusalError):
    """The file can be read in several ways; the reasons list them and their flags."""


class UsageError(CudnnConvertError):
    """The call is wrong: an unknown tensor, a bad value, an OUT that exists.

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


class MissingDependencyError(CudnnConvertError):
    """A package that the chosen target needs is missing or unusable."""

    exit_code = 4

    def __init__(self, reason: str) -> None:
        super().__init__(_reason(reason))


#: What a shell takes as it is.
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
#: What has a meaning between `$'` and `'`.
_QUOTED: Final = {ord("\\"): "\\\\", ord("'"): "\\'"}


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.replace('_', '-')}"


def flags_of(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the flags that set options, with their values; one per item of a list."""
    for name, value in options.items():
        for item in value if isinstance(value, tuple | list) else (value,):
            text = f"{item:g}" if isinstance(item, float) else str(item)
            yield (flag_of(name),) if item is True else (flag_of(name), text)


def visible(text: str) -> str:
    """`text` in one line: control, bidi and other characters without a shape become `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def command(words: Iterable[str]) -> str:
    """Join words to a printable line that bash, zsh and ksh split into them again."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    if word.isprintable():
        return "'" + word.replace("'", "'\"'\"'") + "'"
    return f"$'{''.join(map(_escape, word))}'"


def _escape(character: str) -> str:
    if character.isprintable():
        return character.translate(_QUOTED)
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors=errors))
