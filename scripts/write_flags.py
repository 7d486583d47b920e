"""Writes docs/flags.md, every flag of every subcommand, from the parsers of the command line.

PYTHON scripts/write_flags.py; `make docs` does it too. A test fails where the page is not what this writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cudnn_convert.cli import commands
from cudnn_convert.cli.parser import Parser

PAGE = Path(__file__).parents[1] / "docs" / "flags.md"
HEAD = """# Every flag

`scripts/write_flags.py` writes this page from the parsers; [The command line](cli.md) says more. In the
library a flag that a function takes is the keyword of the same name: `--forget-bias 1` is `forget_bias=1`.
Only `--no-verify` is `verify=False`.
"""


class _Made(Exception):  # noqa: N818 - what is raised is no error
    """A parser with all its flags, at the moment when it would begin to parse."""


def parsers() -> Iterator[Parser]:
    """Of the conversion, and of each subcommand."""

    def stop(parser: Parser, _: object) -> None:
        raise _Made(parser)

    with mock.patch.object(Parser, "parse_args", stop):
        for command in commands.SUBCOMMANDS.values():
            try:
                command([])
            except _Made as made:
                yield made.args[0]


def page() -> str:
    """All of docs/flags.md."""
    return "\n".join([HEAD, *(part for parser in parsers() for part in _of(parser))])


def _of(parser: Parser) -> Iterator[str]:
    words = " ".join([parser.prog, *(_name(one) for one in parser._actions if not one.option_strings)])
    yield f"## `{words}`\n\n{parser.description}\n"
    for group in parser._action_groups:
        rows = [_row(parser, action) for action in group._group_actions if action.dest != "help"]
        if rows:
            title = "" if group.title in ("options", "positional arguments") else f"### {group.title}\n\n"
            kind = "argument" if group.title == "positional arguments" else "flag"
            yield f"{title}| {kind} | takes | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _name(action: argparse.Action) -> str:
    if action.option_strings:
        return action.option_strings[0]
    name = str(action.metavar or action.dest.upper())
    return f"[{name}]" if action.nargs == argparse.OPTIONAL else name


def _row(parser: Parser, action: argparse.Action) -> str:
    """The flag, what it takes, what it says of itself."""
    if action.choices is not None:
        takes = ", ".join(f"`{choice}`" for choice in action.choices)
    elif not action.option_strings or action.nargs == 0:
        takes = ""
    elif action.metavar:
        takes = f"`{action.metavar}`"
    else:
        takes = {int: "a whole number", float: "a number"}[action.type]  # type: ignore[index]
    told = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"| `{_name(action)}` | {takes} | {told} |".replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
