"""Makes foreign text printable: names, paths, messages and commands.

These come from files of strangers. As they are they could move the cursor, colour a verdict, turn the order
of characters around or start a line that looks like ours. Every output that a person reads goes through
`visible` last; JSON escapes by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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
    """Return the first line with a reason from another library's exception.

    Without a reason it is the first line, without a message the class's name.
    """
    lines = [line for line in map(str.strip, str(cause).splitlines()) if line]
    reasons = (match[1] for line in lines if (match := _REASON.fullmatch(line)))
    return next(reasons, lines[0] if lines else type(cause).__name__)


#: What a shell takes as it is.
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
#: What has a meaning between `$'` and `'`.
_QUOTED: Final = {ord("\\"): "\\\\", ord("'"): "\\'"}


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.replace('_', '-')}"


def flags_of(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the flags for options, with values; a list has a flag per item."""
    for name, value in options.items():
        for item in value if isinstance(value, tuple | list) else (value,):
            text = f"{item:g}" if isinstance(item, float) else str(item)
            yield (flag_of(name),) if item is True else (flag_of(name), text)


def visible(text: str) -> str:
    """Put `text` in a line, with shapeless characters as `\\x1b`, `\\u202e`.

    Control, bidi and other characters without a shape become such escapes.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def list_some(names: Sequence[str], most: int) -> str:
    """Join the first `most` names, and count the rest."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def command(words: Iterable[str]) -> str:
    """Join words to a printable line, split back into equal words by bash, zsh, ksh."""
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
