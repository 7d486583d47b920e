"""The items of `--inputs` and `--outputs`: `[KEY=]TENSOR[[shape]]`, comma-separated.

A KEY with a sign that means something here stands in double quotes, in which `\\"` and `\\\\` are a quote and
a backslash: `"a=b"=x:0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.graph.index import split, tensor, unique

_QUOTED: Final = r'"(?:[^"\\]|\\["\\])+"(?==)'
_ITEM: Final = re.compile(rf"(?:{_QUOTED}|[^,\[]|\[[^\]]*\])+")
_SPEC: Final = re.compile(
    rf"(?:(?P<key>{_QUOTED}|[^=\[\]]+)=)?(?P<tensor>[^=\[\]]+)(?:\[(?P<shape>[?\d, ]*)\])?"
)
#: A key that means itself.
_PLAIN: Final = re.compile(r'[^\s"=,\[\]](?:[^"=,\[\]]*[^\s"=,\[\]])?')


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
        found.append(
            Spec(_unquoted(match["key"]), tensor(match["tensor"]), _shape(match["shape"], flag, item))
        )
    return found


def item(key: str, name: str, shape: tuple[int | None, ...] | None = None) -> str:
    """The item that `parse` reads as this key, tensor and shape."""
    quoted = key if _PLAIN.fullmatch(key) else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    widths = () if shape is None else ("?" if width is None else str(width) for width in shape)
    return f"{quoted}={name}" + ("" if shape is None else f"[{','.join(widths)}]")


def _unquoted(key: str | None) -> str | None:
    if key is None or not re.fullmatch(_QUOTED.removesuffix("(?==)"), key):
        return key
    return re.sub(r"\\(.)", r"\1", key[1:-1])


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
