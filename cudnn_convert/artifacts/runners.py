"""Opens an artifact of any format: checked, run as its user does, its arrays by name.

Each format has a module in this room, which `FORMATS` names and `Opener` describes. Each runtime is imported
by what needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from cudnn_convert import context
from cudnn_convert.errors import CudnnConvertError, ReadError, UnsupportedModelError, UsageError, first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.model import Array, Part, is_float

#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


class Opener(Protocol):
    """What the module of a format has."""

    def provenance(self, path: Path, /) -> dict[str, Any] | None:
        """What an artifact says of its origin; None where another tool made it. Raises ReadError."""

    def check(self, path: Path, parts: Sequence[Part], trust: bool, /) -> None:
        """Looks at it without a runtime. Raises where a loader would run it, unless trusted, or crash."""

    def open_parts(self, path: Path, parts: Sequence[Part], vouched: Vouched, /) -> list[Runner]:
        """A runner for each part of it."""

    def arrays(self, path: Path, /) -> Iterator[tuple[str, Array]]:
        """Its constants and variables by name."""


def opener(form: str) -> Opener:
    """The module of a format."""
    return cast(Opener, import_module(f"cudnn_convert.artifacts.{FORMATS[form].module}"))


@dataclass(frozen=True, slots=True)
class Opened:
    """An artifact that answers by the keys of all its parts; `runners` has each part's own.

    Raises ReadError where a runtime refuses a call.
    """

    form: str
    path: Path
    runners: Sequence[tuple[Part, Runner]]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        answers: dict[str, Array] = {}
        for part, runner in self.runners:
            fed = {key: feeds[part.prefix + key] for key in part.signature.inputs}
            try:
                with context.on(self.path):
                    answered = runner(fed)
            except Exception as cause:
                raise _read_error(self.path, f"one that {self.form}'s runtime can run", cause) from cause
            answers |= {part.prefix + key: value for key, value in answered.items()}
        return answers


def load_graph(form: str, path: Path) -> tuple[Any, Path | None]:
    """The MetaGraphDef of a format of graphs, and the prefix of the checkpoint of its variables, if any."""
    loaded: tuple[Any, Path | None] = cast(Any, opener(form)).load_graph(path)
    return loaded


def examine(form: str, path: Path, parts: Sequence[Part], *, trust: bool = False) -> None:
    """Looks at an artifact as far as no runtime is needed for it, and raises what `open_artifact` does."""
    with _loading(form, path):
        opener(form).check(path, parts, trust)


def open_artifact(form: str, path: Path, parts: Sequence[Part], vouched: Vouched = NOTHING) -> Opened:
    """The runner of an artifact. Raises ReadError where it does not load.

    Raises UnsupportedModelError where that or calling it would run more than arithmetic, unless trusted.
    """
    examine(form, path, parts, trust=vouched.trust)
    with _loading(form, path), context.on(path):
        runners = [*zip(parts, opener(form).open_parts(path, parts, vouched), strict=True)]
    return Opened(form, path, runners)


def read_arrays(form: str, artifact: Path) -> dict[str, Array]:
    """The constants and variables of an artifact by name, floats of rank 1 and more.

    Reads all of them into memory. Raises ReadError.
    """
    arrays: dict[str, Array] = {}
    try:
        for name, value in opener(form).arrays(artifact):
            if is_float(value.dtype) and value.ndim and value.size:
                arrays.setdefault(name, value)
    except CudnnConvertError:
        raise
    except Exception as cause:  # each format's library has exceptions of its own
        raise _read_error(artifact, f"weights as {form} has them", cause) from cause
    return arrays


def files_of(path: Path, suffix: str) -> list[tuple[str, Path]]:
    """The files of an artifact, each with what comes before the names in it."""
    if path.is_file():
        return [("", path)]
    return [(f"{file.name}: ", file) for file in sorted(path.glob(f"*{suffix}"))]


@contextmanager
def _loading(form: str, path: Path) -> Iterator[None]:
    """In this context what a runtime raises becomes a ReadError."""
    try:
        yield
    except (UsageError, UnsupportedModelError, ReadError):  # ours, which say more
        raise
    except Exception as cause:  # each runtime has exceptions of its own
        raise _read_error(path, f"one that loads as {form}", cause) from cause


def _read_error(path: Path, expected: str, cause: Exception) -> ReadError:
    return ReadError(path, "artifact", expected=expected, found=first_line(cause))
