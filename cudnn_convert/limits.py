"""What a file may ask of the machine: claims above these limits are refused in one line.

Each has a default that no model we know of comes near, and `--limit NAME=NUMBER` changes it. They hold where
they are set (`within`) and need not be handed through every function that reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError

_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: What bounds the process of a command, and so has no meaning in a process of the caller's.
OF_PROCESS: Final = frozenset({"memory", "seconds", "file"})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits, by the names that `--limit` takes."""

    #: Bytes that the process of a command may allocate; None: the machine's, or the container's.
    memory: int | None = None
    #: How long a command may take.
    seconds: int = 3600
    #: Bytes of any one file that a command writes.
    file: int = 1 << 38
    #: Bytes that a compressed part of a file may always become.
    expanded: int = 1 << 28
    #: How many times its stored bytes a larger part may become.
    expansion: int = 100
    #: Nodes of a graph once its functions are laid flat.
    nodes: int = 1 << 20

    @classmethod
    def of(cls, given: Sequence[str]) -> Limits:
        """The limits, each `NAME=NUMBER` in place; a number may end in K, M, G or T. Raises UsageError."""
        names = [found.name for found in fields(cls)]
        changes = {}
        for item in given:
            name, equals, value = item.partition("=")
            if name not in names or not equals:
                expected = f"NAME=NUMBER with a NAME of {', '.join(names)}"
                raise UsageError(f"--limit: expected {expected}, found {item!r}")
            changes[name] = _number(name, value)
        return replace(cls(), **changes)


def _number(name: str, text: str) -> int:
    digits, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    found = int(digits) * unit if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
    if not 0 < found < 1 << 63:
        raise UsageError(f"--limit {name}: expected a number such as 100 or 8G, found {text!r}")
    return found


def machine_memory() -> int | None:
    """Bytes of memory that this process may use at most; None where the system does not say."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # of a container; "max" where it has no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)


def is_bomb(size: int, stored: int) -> bool:
    """Whether `size` bytes are more than the limits let a part of so few `stored` bytes become."""
    held = current()
    return size > held.expanded and size > held.expansion * stored


def raising(size: int) -> str:
    """What to do where a part of a file is large on purpose."""
    return f"if that is meant, give --limit expanded={size}"


_CURRENT: Final[ContextVar[Limits]] = ContextVar("limits")


def current() -> Limits:
    """The limits that hold here."""
    return _CURRENT.get(Limits())


@contextmanager
def within(limits: Limits) -> Iterator[None]:
    """In this context these limits hold."""
    token = _CURRENT.set(limits)
    try:
        yield
    finally:
        _CURRENT.reset(token)
