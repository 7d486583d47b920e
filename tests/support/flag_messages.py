"""The pieces of text in cudnn_convert that name a flag: what a user may read, and so type.

A `Remedy` is such a piece too: the text of its flags is made from its options.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from support.package_modules import nodes, trees

_FLAG: Final = re.compile(r"--[a-z]")
#: Calls whose strings are no message: what argparse declares, and patterns.
_DECLARING: Final = frozenset(
    {"_flag", "add", "add_argument", "add_argument_group", "addoption", "getoption", "compile"}
)
#: Flags by which a message begins: the place of a mistake. `--layers, --units: `, `{path}: --tag: `.
_PLACE: Final = re.compile(r"(\{\}: )?--[a-z-]+(, --[a-z-]+)*(( \{\}| \w+)?: |$)")


@dataclass(frozen=True)
class Piece:
    """A string or a remedy of the source, `{}` where it has a value; `file` within the package."""

    file: str
    text: str
    is_remedy: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a message looks like that has this piece in it."""
        return re.compile(".*".join(map(re.escape, self.text.split("{}"))))

    @property
    def is_place(self) -> bool:
        """Whether its flags say which flag of the call the message is about, and nothing is advised."""
        match = _PLACE.match(self.text)
        return match is not None and not re.search(r"--[a-z]|; ", self.text[match.end() :])


@cache
def pieces() -> tuple[Piece, ...]:
    """All pieces that name a flag, each once."""
    # Tags and CSS have dashes too.
    named = ((path.as_posix(), tree) for path, tree in trees().items() if path.name != "html.py")
    return tuple(dict.fromkeys(Piece(file, *found) for file, tree in named for found in _texts(tree)))


def _texts(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Each text, and whether it is a remedy's."""
    left = {id(node) for node in _left(tree)}
    for node in nodes(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in left and (is_text or isinstance(node, ast.JoinedStr)):
            text = _text(node)
            if _FLAG.search(text):
                yield text, False
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remedy":
            yield _remedy(*node.args), True


def _text(node: ast.AST) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def _remedy(options: ast.AST, lead: ast.AST | None = None) -> str:
    """A remedy as its message has it, `{}` where its options are not written out."""
    begin = [_text(lead)] if lead else []
    if not isinstance(options, ast.Dict):
        return " ".join([*begin, "{}"])
    flags = [
        f"--{key.value.replace('_', '-')}{_value(item)}" if isinstance(key, ast.Constant) else "{}"
        for key, value in zip(options.keys, options.values, strict=True)
        for item in (value.elts if isinstance(value, ast.Tuple) else [value])
    ]
    return " ".join([*begin, *flags])


def _value(item: ast.AST) -> str:
    """A flag's value behind it; that of a switch is none."""
    is_switch = isinstance(item, ast.Constant) and item.value is True
    return "" if is_switch else f" {_text(item)}"


def _left(tree: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, the constants of f-strings, and what `_DECLARING` calls take."""
    for node in nodes(tree):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from (part for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from ast.walk(node) if name in _DECLARING else ()
