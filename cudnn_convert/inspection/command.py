"""The command that converts a source, in words, with a name for OUT that nothing has yet."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Final

from cudnn_convert.formats import FORMATS
from cudnn_convert.options import READING, VOUCHED, Options
from cudnn_convert.read import extent

_PROGRAM: Final = "cudnn-convert"
#: Endings of sources that OUT's name does without.
_SUFFIXES: Final = frozenset(
    ".ckpt .index .meta .pb .pbtxt .h5 .hdf5 .keras .weights .data-00000-of-00001".split()
)
#: What a file of that name has to be called by its folder for.
SUBCOMMANDS: Final = frozenset({"inspect", "map", "verify", "record", "formats"})


def command(source: Path, options: Options) -> tuple[str, ...]:
    """`cudnn-convert SOURCE OUT --format F` with the flags of `options`; OUT lies in the current folder."""
    words = (_PROGRAM, _word(str(source)), _word(str(_out(source, options.format))))
    return (*words, "--format", options.format, *flags(options))


def flags(options: Options) -> tuple[str, ...]:
    """The flags that say how the source is read, where that is not the usual way."""
    usual = {field.name: field.default for field in fields(Options)}
    words: list[str] = []
    for name in (*READING, *VOUCHED):
        flag, value = f"--{name.replace('_', '-')}", getattr(options, name)
        if value is True:
            words.append(flag)
        elif isinstance(value, tuple | list):
            words += [f"{flag}={item}" for item in value]
        elif value != usual[name]:
            words.append(f"{flag}={value:g}" if isinstance(value, float) else f"{flag}={value}")
    return (*words, *(() if options.verify else ("--no-verify",)))


def _out(source: Path, form: str) -> Path:
    whole = Path(os.path.realpath(source))  # `resolve` raises for a link that leads to itself
    whole = whole.parent if whole.name in ("saved_model.pb", "saved_model.pbtxt") else whole
    stem = whole
    while stem.suffix in _SUFFIXES and stem.stem:
        stem = stem.with_suffix("")
    # An OUT inside of the source, or of the SavedModel that it is a file of, is refused.
    folders = (path.resolve() for path in extent.of(source) if path.is_dir())
    folder = next((one.parent for one in folders if Path.cwd().is_relative_to(one)), Path())
    suffix = FORMATS[form].suffix or "" if FORMATS[form].layers else ""
    found, count = folder / f"{stem.name}_cpu{suffix}", 1
    while found.exists() or found.is_symlink():
        count += 1
        found = folder / f"{stem.name}_cpu_{count}{suffix}"
    return found


def _word(text: str) -> str:
    """A path that is neither a flag nor a subcommand."""
    return f"./{text}" if text.startswith("-") or text in SUBCOMMANDS else text
