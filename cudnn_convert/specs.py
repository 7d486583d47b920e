"""The items of `--inputs` and `--outputs`: `[KEY=]TENSOR[[shape]]`, comma-separated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.graph.index import split, tensor, unique

_ITEM: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_SPEC: Final = re.compile(r"(?:(?P<key>[^=\[\]]+)=)?(?P<tensor>[^=\[\]]+)(?:\[(?P<shape>[?\d, ]*)\])?")


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor `op:k`, the key it should have, and a shape that refines the graph's."""

    key: str | None
    tensor: str
    shape: tuple[int | None, ...] | None = None


def parse(items: Iterable[str], *, flag: str) -> list[Spec]:
    """The items of one repeatable flag. Raises UsageError."""
    found = []
    for item in (part.strip() for text in items for part in _parts(text, flag)):
        match = _SPEC.fullmatch(item)
        if match is None:
            raise UsageError(f"{flag}: expected [KEY=]TENSOR[[shape]], found {item!r}")
        found.append(Spec(match["key"], tensor(match["tensor"]), _shape(match["shape"], flag, item)))
    return found


def _parts(text: str, flag: str) -> list[str]:
    """What stands between the commas outside of brackets; something must."""
    parts = _ITEM.findall(text)
    if not parts or _ITEM.sub("", text).strip(", "):
        raise UsageError(f"{flag}: expected [KEY=]TENSOR[[shape]],..., found {text!r}")
    return parts


def _shape(text: str | None, flag: str, item: str) -> tuple[int | None, ...] | None:
    if text is None:
        return None
    if not text.strip():
        return ()
    try:
        return tuple(None if part.strip() == "?" else int(part) for part in text.split(","))
    except ValueError as cause:
        raise UsageError(f"{flag}: expected a shape like [?,?,39], found {item!r}") from cause


def keyed(found: Iterable[Spec]) -> dict[str, str]:
    """Signature key -> tensor: the user's own key, else the op's name with `/` as `_`."""
    found = list(found)
    named: dict[str, str] = {}
    chosen = [spec.key for spec in found if spec.key]
    for spec in found:
        op, k = split(spec.tensor)
        plain = op.replace("/", "_") + (f"_{k}" if k else "")
        if spec.key in named:
            found_twice = f"{spec.key} twice; name one of them KEY=TENSOR"
            raise UsageError(f"--inputs, --outputs: expected keys that differ, found {found_twice}")
        named[spec.key or unique(plain, {*named, *chosen})] = spec.tensor
    return named
