"""Opens an artifact of any format and runs it on arrays by name.

`FORMATS` names the module of each format in this package, `Opener` describes its functions. Each runtime is
imported where it is needed. Where no provenance gives them, signature keys are matched to an artifact's
names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import CudnnConvertError, ReadError, UnsupportedModelError, UsageError, first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.model import SERVING, Array, Part, Signature, is_float

#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The dtype and shape of an input; None is a size that is not fixed, or no known shape."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Interface:
    """One way to call an artifact: a part of it, and what each of its inputs takes."""

    part: Part
    inputs: Mapping[str, TensorSpec]


class Opener(Protocol):
    """What the module of a format has."""

    def provenance(self, path: Path, /) -> dict[str, Any] | None:
        """What an artifact says of its origin; None where another tool made it. Raises ReadError."""

    def check(self, path: Path, parts: Sequence[Part], trust: bool, /) -> None:
        """Check an artifact without a runtime.

        Raises a CudnnConvertError where loading it would run code, unless `trust`, or would crash.
        """

    def open_parts(self, path: Path, parts: Sequence[Part], vouched: Vouched, /) -> list[Runner]:
        """A runner for each part of it."""

    def interfaces(self, path: Path, vouched: Vouched, /) -> list[Interface]:
        """The ways to call it. Raises ReadError where it does not say what it takes and gives."""

    def arrays(self, path: Path, /) -> Iterator[tuple[str, Array]]:
        """Its constants and variables by name."""


def opener(form: str) -> Opener:
    """The module of a format."""
    return cast(Opener, import_module(f"cudnn_convert.artifacts.{FORMATS[form].module}"))


@dataclass(frozen=True, slots=True)
class Opened:
    """An artifact that answers by the keys of all its parts.

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
    """The MetaGraphDef of an artifact, and the prefix of its checkpoint, if any."""
    loaded: tuple[Any, Path | None] = cast(Any, opener(form)).load_graph(path)
    return loaded


def examine(form: str, path: Path, parts: Sequence[Part], *, trust: bool = False) -> None:
    """Check an artifact without a runtime. Raises as `open_artifact`."""
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


def find_interfaces(form: str, path: Path, vouched: Vouched = NOTHING) -> list[Interface]:
    """The ways to call an artifact. Raises ReadError where it does not say them, or does not load."""
    with _loading(form, path), context.on(path):
        return opener(form).interfaces(path, vouched)


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


def pair_inputs(path: Path, wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Signature key -> the artifact's input, named as the key, tensor or op.

    `wanted` are the source's tensors by key, `there` the names of the artifact's inputs. Raises UsageError
    where a key finds none, or an input no key.
    """
    names = {key: name for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    lost = [key for key in wanted if key not in names]
    unfed = [name for name in there if name not in names.values()]
    if lost or unfed:
        what = f"the artifact's {', '.join(sorted(there)) or 'none'}"
        raise UsageError(
            f"{path}: inputs: expected {what}, found {', '.join(wanted)}; name them with --inputs NAME=TENSOR"
        )
    return names


def pair_outputs(wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """The artifact's output -> signature key; one without a key keeps its name."""
    paired = {name: key for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    return {name: paired.get(name, name) for name in there}


def _name(key: str, tensor: str, there: Collection[str]) -> str | None:
    op = tensor.removesuffix(":0")
    return next((name for name in (key, f"{key}:0", tensor, op) if name in there), None)


def pair_tensors(
    path: Path, wanted: Signature, ops: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Signature key -> tensor of a graph of `ops`, for inputs and for outputs.

    The source's own name, which our artifacts keep, else what the key names. An output that neither names is
    left out; an input is refused with a UsageError.
    """
    inputs, outputs = (
        {key: there for key, name in side.items() if (there := _tensor(key, name, ops))}
        for side in (wanted.inputs, wanted.outputs)
    )
    lost = [name for key, name in wanted.inputs.items() if key not in inputs]
    if lost:
        expected = f"expected {', '.join(lost)} in the graph, found no such op"
        cure = "name them with --inputs NAME=TENSOR, or keep them when freezing"
        raise UsageError(f"{path}: inputs: {expected}; {cure}")
    return inputs, outputs


def _tensor(key: str, tensor: str, ops: Collection[str]) -> str | None:
    names = (tensor, key if ":" in key else f"{key}:0")
    return next((name for name in names if name.partition(":")[0] in ops), None)


def outputs_of_graph(path: Path, graph: Any, parts: Iterable[Part]) -> list[str]:
    """The tensors of a GraphDef that are outputs of parts, as `pair_tensors` names them."""
    ops = {node.name for node in graph.node}
    return [name for part in parts for name in pair_tensors(path, part.signature, ops)[1].values()]


def choose_signature(path: Path, name: str, there: Collection[str]) -> str:
    """The signature of a name, or the only one there. Raises UsageError."""
    if name in there:
        return name
    if len(there) == 1 and name == SERVING:
        return next(iter(there))
    listed = ", ".join(sorted(there)) or "none"
    raise UsageError(f"{path}: signatures: expected {name}, found {listed}; choose with --signature")
