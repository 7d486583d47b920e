"""Text of files for a terminal: what is not printable is written out, as Python writes it.

Names, paths and messages come from files of strangers. As they are they could move the cursor, colour a
verdict, turn the order of characters around or start a line that looks like ours. Every output that a person
reads goes through `visible` last; JSON escapes by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: What a shell takes as it is.
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
#: What has a meaning between `$'` and `'`.
_QUOTED: Final = {ord("\\"): "\\\\", ord("'"): "\\'"}


def visible(text: str) -> str:
    """`text` in one line: control, bidi and other characters without a shape become `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def command(words: Iterable[str]) -> str:
    """The words as a line for a shell: printable, and what bash, zsh and ksh read is the words again."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
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
