"""The flags of the subcommands, each group once."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from cudnn_convert.errors import UsageError, flag_of
from cudnn_convert.options import KINDS, Options


class Parser(argparse.ArgumentParser):
    """Usage errors in one line, as all others; no abbreviations, which later flags would break."""

    def __init__(self, **names: str) -> None:
        super().__init__(allow_abbrev=False, **names)  # type: ignore[arg-type]

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


def add_flags(parser: argparse.ArgumentParser, *groups: str) -> None:
    """The flags of the options that belong to one of `groups`: `source`, `target`, `judge`, `golden`."""
    sections: dict[str | None, Any] = {None: parser}
    for option in fields(Options):
        of, section, kind = option.metadata.get("of"), option.metadata.get("section"), KINDS[option.name]
        if of not in groups:
            continue
        if section not in sections:
            sections[section] = parser.add_argument_group(section)
        known = {
            key: option.metadata[key] for key in ("help", "metavar", "choices") if key in option.metadata
        }
        if most := option.metadata.get("most"):
            known["choices"] = range(1, most + 1)
        if kind is bool:
            known["action"] = "store_true"
        elif kind is list:
            known |= {"action": "append", "default": []}
        else:
            known |= {"type": kind, "default": option.default}
        sections[section].add_argument(flag_of(option.name), **known)


def read_options(flags: argparse.Namespace, **others: Any) -> Options:
    """The options that the flags give. Raises UsageError where one has a value that it cannot have."""
    given = {name: getattr(flags, name) for name in KINDS if getattr(flags, name, None) is not None}
    return Options(**given | others)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the report goes."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report: .html, or JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
