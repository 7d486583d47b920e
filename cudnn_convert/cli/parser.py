"""Parses words to options: parser of every command, help, and completion in a shell.

Shells complete by argcomplete: it runs the command with the typed line in `COMP_LINE`, and the parser that
would parse the line answers (argcomplete 3.7, finders.py `CompletionFinder.__call__`).
"""

import argparse
import difflib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UsageError
from cudnn_convert.options import KINDS, Options
from cudnn_convert.text import flag_of

PROGRAM: Final = "cudnn-convert"
SHELLS: Final = ("bash", "zsh", "fish", "powershell")
#: How much of its letters a word shares with a subcommand that it stands for.
NEAR: Final = 0.7
#: The same for a flag: some flags are alike without meaning the same.
_ALMOST: Final = 0.85
#: Set by a shell that asks for completions: the number of words before the arguments.
COMPLETING: Final = "_ARGCOMPLETE"

#: The titles of groups of options in the help, for those without a section of their own.
_TITLES: Final = {"source": "what to take", "target": "what to write", "judge": "how to compare"}


#: Where the work of a command is done, once its flags are understood.
Within = Callable[[Callable[[], int], argparse.Namespace], int]


def directly(work: Callable[[], int], _: argparse.Namespace) -> int:
    """Do the work in the current process."""
    return work()


class Parser(argparse.ArgumentParser):
    """A parser with usage errors in a line and unabbreviated flags.

    Abbreviations are left out, for later flags would break them. `everyday`: the only flags that `--help`
    shows, by destination; `--help-all` then shows all.
    """

    def __init__(self, *, everyday: Sequence[str] = (), **settings: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=layout, **settings)
        self.everyday = everyday
        if everyday:
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all flags and exit")

    def parse_args(self, words: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse all words.

        Raises UsageError, with the flag that an unknown one may stand for.
        """
        if COMPLETING in os.environ:
            import argcomplete

            argcomplete.autocomplete(self, always_complete_options=False)  # prints and exits
        self._refuse_unknown(words)  # before what is missing is told, for a flag may be what took its place
        flags, unknown = self.parse_known_args(words)
        if unknown:
            raise self._unknown(next((word for word in unknown if word.startswith("-")), unknown[0]))
        return flags

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Raise UsageError for an unknown flag, unless help is asked for.

        Such a word looks like a flag and is none.
        """
        if {"-h", "--help", self.help_flag} & {*words}:
            return
        for word in words[: words.index("--")] if "--" in words else words:
            if word.startswith("--") and " " not in word and _name(word) not in self._option_string_actions:
                raise self._unknown(word)

    def _unknown(self, word: str) -> UsageError:
        near = self._find_near(_name(word))
        cure = f"did you mean {near}?" if near else f"see {self.prog} {self.help_flag}"
        what = f"expected a flag of {self.prog}, found an unknown one"
        if not word.startswith("-"):
            what = f"expected the end of the call of {self.prog}, found one more word"
        return UsageError(f"{_name(word)}: {what}; {cure}")

    def _find_near(self, word: str) -> str | None:
        """Return the flag with the same beginning or almost the same spelling."""
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        begins = [flag for flag in flags if flag.startswith(word)]
        return next(iter([*begins, *difflib.get_close_matches(word, flags, n=1, cutoff=_ALMOST)]), None)

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} {self.help_flag}")

    @property
    def help_flag(self) -> str:
        """The flag for showing all flags."""
        return "--help-all" if self.everyday else "--help"

    def format_help(self) -> str:
        """Return the help: everyday flags and examples if named, else all flags."""
        if not self.everyday:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage("%(prog)s SOURCE OUT [flags]", (), ())
        formatter.add_text(self.description)
        shown = [action for action in self._actions if action.dest in (*self.everyday, "help_all")]
        for title, actions in (("arguments", self._get_positional_actions()), ("flags", shown)):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_whole_help(self) -> str:
        """Return the help with all flags."""
        return super().format_help()


def _name(word: str) -> str:
    """Return the flag of a word, with any value cut off."""
    return word.partition("=")[0]


class _HelpAll(argparse.Action):
    """The action for printing all flags and exiting.

    `--help` does so with the everyday flags.
    """

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_whole_help(), end="")
        parser.exit()


def add_flags(parser: argparse.ArgumentParser, *groups: str) -> None:
    """Add the flags of options of some groups: `source`, `target`, `judge`, `golden`."""
    sections: dict[str | None, Any] = {None: parser}
    for option in fields(Options):
        of = option.metadata.get("of")
        if of not in groups:
            continue
        section = option.metadata.get("section") or (_TITLES.get(of) if len(groups) > 1 else None)
        if section not in sections:
            sections[section] = parser.add_argument_group(section)
        add_flag(sections[section], option.name)


def add_flag(parser: Any, name: str) -> None:
    """Add the flag of an option to a parser or to a parser's group."""
    option, kind = Options.__dataclass_fields__[name], KINDS[name]
    known = {key: option.metadata[key] for key in ("help", "metavar", "choices") if key in option.metadata}
    if most := option.metadata.get("most"):
        known["choices"] = range(1, most + 1)
    if kind is bool:
        known["action"] = "store_true"
    elif kind is list:
        known |= {"action": "append", "default": []}
    else:
        known |= {"type": kind, "default": option.default}
    parser.add_argument(flag_of(name), **known)


def read_options(flags: argparse.Namespace, **others: Any) -> Options:
    """Return the Options of parsed flags.

    Raises UsageError for a value that an option cannot have.
    """
    given = {name: getattr(flags, name) for name in KINDS if getattr(flags, name, None) is not None}
    return Options(**given | others)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the place of a report."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report: .html, or JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    amount.add_argument(
        "--verbose", action="store_true", help="tables of the proof, its inputs, and the flags that repeat it"
    )


def also_complete(argument: argparse.Action, words: Collection[str]) -> None:
    """Offer some words beside files where a shell completes an argument."""
    if COMPLETING in os.environ:
        from argcomplete.completers import FilesCompleter

        files = FilesCompleter()
        argument.completer = lambda prefix, **_: [*words, *files(prefix)]  # type: ignore[attr-defined]


def words_to_complete(commands: Collection[str]) -> list[str]:
    """Return the completed line's first word if a subcommand, else an empty list.

    The line is the one that a shell asks about. The parser of the subcommand answers then, for the words
    after it.
    """
    from argcomplete.lexers import split_line

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    *_, words, _ = split_line(line, point)
    if len(words) > 1 and words[1] in commands:
        os.environ[COMPLETING] = "2"
        return words[1:2]
    return []


def print_completion(shell: str) -> None:
    """Print the code for registering completion in a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode([PROGRAM], shell=shell), end="")
