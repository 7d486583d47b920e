"""The surroundings of a library call: arguments in place of flags, progress, a log.

Messages are written with the flags of the command line. What a library call raises names the arguments of
the call instead: the remedies of a reason exactly, for they are values, and flags in prose by the type that
their option has. Log records go to the logger `cudnn_convert`: a step at INFO, a warning of a proof at
WARNING. Nothing is printed: what native code says while TensorFlow is imported goes nowhere, and later it
says nothing unless `TF_CPP_MIN_LOG_LEVEL` is set.
"""

import json
import logging
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from cudnn_convert.context import ProgressCallback, current_listener, listen, mute_output
from cudnn_convert.errors import CudnnConvertError, Reason
from cudnn_convert.options import KINDS, Options
from cudnn_convert.process import silence_native

LOGGER: Final = logging.getLogger("cudnn_convert")
LOGGER.addHandler(logging.NullHandler())


@contextmanager
def library_call(progress: ProgressCallback | None = None) -> Iterator[None]:
    """Hear the steps of a call, and name arguments in raised errors."""
    silence_native()
    try:
        with mute_import("tensorflow"), listen(_StepLogger(progress or current_listener())):
            yield
    except CudnnConvertError as error:
        error.spell(spell_arguments)
        raise


@contextmanager
def mute_import(package: str) -> Iterator[None]:
    """Discard the output of native code during the first import of `package`.

    absl writes to descriptor 2 before it reads any setting.
    """
    if package in sys.modules:
        yield
        return
    finder = _MutedFinder(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _MutedFinder(MetaPathFinder):
    """A finder of a single package, with a loader for a muted import.

    It finds the package as all other finders do.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._package:
            return None
        # Calls of several threads have one each; they would ask each other without an end.
        others = (finder for finder in sys.meta_path if not isinstance(finder, _MutedFinder))
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with mute_output():
                    load(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def log_warnings(warnings: Iterable[str]) -> None:
    """Log the warnings of a proof."""
    for warning in warnings:
        LOGGER.warning("%s", warning)


class _StepLogger:
    """A listener logging the name of each step, and passing all to the caller's function."""

    def __init__(self, progress: ProgressCallback) -> None:
        self._progress, self._step = progress, ""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        if step != self._step:
            self._step = step
            LOGGER.info("%s", step)
        self._progress(step, done, total)


#: Flags that are no options of `Options`, and the arguments that they are.
_OTHERS: Final[Mapping[str, str]] = {
    "no-verify": "verify=False",
    "force": "force=True",
    "report": "report",
    "card": "card",
}
#: A word as a shell takes it; what ends a part of a sentence belongs to no plain word.
_VALUE: Final = r"'[^']*'(?:\"'\"'[^']*')*|\$'(?:[^'\\]|\\.)*'|[^\s;|)'\"]*[^\s;|)'\",.:]"
_FLAG: Final = re.compile(rf"(?<![\w-])--([a-z][a-z-]*)(?:(:)|[ =]({_VALUE}))?")
#: What stands in a message for a value that only the user knows.
_STANDS_FOR: Final = re.compile(r"[A-Z]+(?:[=:][A-Z]+)?")


def spell_arguments(text: str) -> str:
    """Write a message with the arguments of a library call in the place of flags.

    `--set a:0=1 --set b:0=2` becomes `set=["a:0=1", "b:0=2"]`, `--no-verify` becomes `verify=False`.
    """
    remedies = text.remedies if isinstance(text, Reason) else ()
    for remedy in remedies:
        flags, own = remedy.flags, ", ".join(_arguments(remedy.options))
        if flags:
            text = text.replace(flags, own)
    pieces: list[str] = []
    end, last, values = 0, "", list[str]()
    while match := _FLAG.search(text, end):
        between, name = text[end : match.start()], match[1].replace("-", "_")
        given, until = _take(match, name)
        if values and between == " ":
            between = ", "
        # A list has a flag for each of its values.
        if values and given and between == ", " and name == last and KINDS.get(name) is list:
            values.append(given)
            pieces[-1] = _assign(name, values)
        else:
            last, values = name, [given] if given else []
            is_place = match[2] is not None or between.endswith(("without ", "leave out "))
            pieces += [between, _assign(name, values) if values else _plain(match[1], is_place=is_place)]
        end = until
    return "".join([*pieces, text[end:]])


def _assign(name: str, values: Sequence[str]) -> str:
    return f"{name}={values[0]}" if len(values) == 1 else f"{name}=[{', '.join(values)}]"


def _take(match: re.Match[str], name: str) -> tuple[str | None, int]:
    """Return a prose flag's value in Python's form, and the place after the value.

    The value is None where the flag has none.
    """
    kind, word = KINDS.get(name), match[3]
    alone = match.end() if match[2] is not None or word is None else match.start(3) - 1
    if kind is None or kind is bool or word is None:
        return None, match.end(1) if word is None else alone
    text = _unquote(word)
    choices = Options.__dataclass_fields__[name].metadata.get("choices", ())
    if _STANDS_FOR.fullmatch(text):
        return (text if kind in (int, float) else json.dumps(text)), match.end()
    if kind in (int, float):
        is_number = re.fullmatch(r"[-+]?[\d.]+(?:e[-+]?\d+)?", text)
        return (text, match.end()) if is_number else (None, alone)
    is_quoted = word != text
    is_value = (
        text in choices
        if choices
        else is_quoted or (bool(re.search(r"[=:]", text)) if kind is list else bool(re.search(r"[./]", text)))
    )
    return (json.dumps(text, ensure_ascii=False), match.end()) if is_value else (None, alone)


def _unquote(word: str) -> str:
    return word if word.startswith("$") else "".join(shlex.split(word))


def _plain(flag: str, *, is_place: bool) -> str:
    """Return the argument for a bare flag: the name, with True for a switch."""
    name = flag.replace("-", "_")
    if is_place:
        return name
    return f"{name}=True" if KINDS.get(name) is bool else _OTHERS.get(flag, name)


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        several = [*value] if isinstance(value, tuple | list) else [value]
        values = [
            json.dumps(item, ensure_ascii=False) if isinstance(item, str) else str(item) for item in several
        ]
        yield _assign(name, values)
