"""Identifies an artifact on disk, opens a runtime, and calls the artifact.

`identify` reads the provenance that an artifact carries. `FORMATS` names the module of each format in this
package, and `Opener` describes its functions; each is imported where it is needed. Where no provenance gives
them, signature keys are matched to an artifact's names.

`call_artifact` draws inputs where none are given. Without a source it is not known which sizes belong
together, so every size that is not fixed is the same: batch and time then agree wherever they meet. Integers
may be ids of a small table, or lengths. Floats are normal, and whole numbers too where a model refuses that:
Keras casts the floats that an Embedding gets (tensorflow v1.15.0 python/keras/layers/embeddings.py
`Embedding.call`).
"""

import errno
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol, cast

import numpy as np

from cudnn_convert import casts, context
from cudnn_convert.errors import (
    CudnnConvertError,
    ReadError,
    UnsupportedModelError,
    UsageError,
    WriteError,
    name_access,
)
from cudnn_convert.formats import FORMATS, PROVENANCE, Keeps
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.model import SERVING, Array, Part, Signature, is_float
from cudnn_convert.storage import RECORD
from cudnn_convert.text import first_line


class MissingKernelsError(ValueError):
    """An error for kernels missing in a runtime, but present in some builds."""


def identify(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    """Return `(format, the artifact's own path, provenance or None)`. Raises ReadError, AccessError."""
    with name_access(artifact):
        return _read(artifact)


def _read(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    if any(f"/{artifact.name}" in form.files for form in FORMATS.values()):
        artifact = artifact.parent
    for name, form in FORMATS.items():  # those of several files, by the names of these
        for path in (artifact / form.name, artifact) if form.files else ():
            if all(Path(f"{path}{end}").is_file() for end in form.files):
                return name, path, opener(name).provenance(path)
    for name, form in FORMATS.items():
        if form.name and (artifact / form.name).is_file():
            return name, artifact / form.name, read_record(artifact / RECORD)
    for name, form in FORMATS.items():
        is_each = Keeps.ONE_FILE not in form.keeps and (artifact / RECORD).is_file()
        if is_each and list(artifact.glob(f"*{form.suffix}")):
            return name, artifact, read_record(artifact / RECORD)
    if artifact.is_file() and (name := _by_suffix(artifact)):
        return name, artifact, opener(name).provenance(artifact)
    actual = "a file or folder that is none of these" if artifact.exists() else "no such file or folder"
    *suffixes, last = (form.suffix for form in FORMATS.values() if form.suffix)
    known = f"a SavedModel, a checkpoint with its .meta, a {', '.join(suffixes)} or {last}"
    raise ReadError(artifact, "artifact", expected=f"{known}, or an OUT folder", found=actual)


def _by_suffix(path: Path) -> str:
    """Return the format of a file's suffix, or ""."""
    return next((name for name, form in FORMATS.items() if form.has_suffix(path)), "")


def is_ours(path: Path) -> bool:
    """Return True if a file or folder has a provenance of cudnn-convert."""
    try:
        if path.is_dir():
            records = (path / RECORD, path / "assets.extra" / PROVENANCE)
            return any(read_record(record) is not None for record in records)
        name = _by_suffix(path)
        return bool(name) and opener(name).provenance(path) is not None
    except (OSError, CudnnConvertError):
        return False


def read_record(path: Path) -> dict[str, Any] | None:
    """Read the provenance from a separate file. Raises ReadError.

    Returns None if the file does not exist.
    """
    return parse_provenance(path, path.read_bytes()) if path.is_file() else None


def parse_provenance(path: Path, text: Any) -> dict[str, Any]:
    """Parse a provenance. Raises ReadError for a foreign or missing text."""
    try:
        record = json.loads(text)
        named = [names[side] for names in (record, record["tensors"]) for side in ("inputs", "outputs")]
        states, begins = record.get("states", []), record.get("begins", {})
        named += [begins, *({key: state[key] for key in ("key", "next_key")} for state in states)]
        named += [{key: key for key in record.get("encoded", [])}]
        if all(isinstance(name, str) for ends in named for name in ends.values()):
            return {**record, "options": dict(record["options"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise _foreign(path) from cause
    raise _foreign(path)


def _foreign(path: Path) -> ReadError:
    expected, actual = "JSON as this tool writes it", "content that is damaged or of another program"
    return ReadError(path, "provenance", expected=expected, found=actual)


#: Takes arrays by signature key, gives arrays by signature key.
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The dtype and shape of an input.

    None is a size that is not fixed, or no known shape.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Interface:
    """A way to call an artifact: a part, and each input's dtype and shape."""

    part: Part
    inputs: Mapping[str, TensorSpec]


class Opener(Protocol):
    """The functions in the module of a format."""

    def provenance(self, path: Path, /) -> dict[str, Any] | None:
        """Return the provenance of an artifact. Raises ReadError.

        Returns None where another tool made it.
        """

    def check(self, path: Path, parts: Sequence[Part], trust: bool, /) -> None:
        """Check an artifact outside any runtime.

        Raises a CudnnConvertError where loading it would run code, unless `trust`, or would crash.
        """

    def open_parts(self, path: Path, parts: Sequence[Part], vouched: Vouched, /) -> list[Runner]:
        """Return a runner for each part of the artifact."""

    def interfaces(self, path: Path, vouched: Vouched, /) -> list[Interface]:
        """List the ways to call the artifact.

        Raises ReadError where it does not say what it takes and gives.
        """

    def arrays(self, path: Path, /) -> Iterator[tuple[str, Array]]:
        """Yield the artifact's constants and variables by name."""


def opener(form: str) -> Opener:
    """Return the module of a format."""
    return cast(Opener, import_module(f"cudnn_convert.artifacts.{FORMATS[form].module}"))


@dataclass(frozen=True, slots=True)
class OpenArtifact:
    """An opened artifact with answers under the keys of all parts.

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
                raise _refusal(self.path, f"a model that {self.form}'s runtime can run", cause) from cause
            answers |= {part.prefix + key: value for key, value in answered.items()}
        return answers


def load_graph(form: str, path: Path) -> tuple[Any, Path | None]:
    """Return an artifact's MetaGraphDef, and the prefix of the checkpoint, if any."""
    loaded: tuple[Any, Path | None] = cast(Any, opener(form)).load_graph(path)
    return loaded


def examine(form: str, path: Path, parts: Sequence[Part], *, trust: bool = False) -> None:
    """Check an artifact outside any runtime. Raises like `open_artifact`."""
    with _loading(form, path):
        opener(form).check(path, parts, trust)


def open_artifact(form: str, path: Path, parts: Sequence[Part], vouched: Vouched = NOTHING) -> OpenArtifact:
    """Return the runner of an artifact. Raises ReadError if loading fails.

    Raises UnsupportedModelError where that or calling it would run more than arithmetic, unless trusted.
    """
    examine(form, path, parts, trust=vouched.trust)
    with _loading(form, path), context.on(path):
        runners = [*zip(parts, opener(form).open_parts(path, parts, vouched), strict=True)]
    return OpenArtifact(form, path, runners)


def require_loadable(form: str, path: Path, parts: Sequence[Part]) -> None:
    """Open an artifact once. Raises like `open_artifact`, missing kernels excepted.

    Other builds have those kernels.
    """
    try:
        open_artifact(form, path, parts)
    except ReadError as error:
        if not isinstance(error.__cause__, MissingKernelsError):
            raise


def find_interfaces(form: str, path: Path, vouched: Vouched = NOTHING) -> list[Interface]:
    """List the ways to call an artifact. Raises ReadError.

    It is raised where the artifact does not say them, or does not load.
    """
    with _loading(form, path), context.on(path):
        return opener(form).interfaces(path, vouched)


def read_arrays(form: str, artifact: Path) -> dict[str, Array]:
    """Return an artifact's float constants and variables of rank 1 and more by name.

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
        raise _refusal(artifact, f"weights as {form} has them", cause) from cause
    return arrays


def files_of(path: Path, suffix: str) -> list[tuple[str, Path]]:
    """Return the files of an artifact, each with a prefix for names."""
    if path.is_file():
        return [("", path)]
    return [(f"{file.name}: ", file) for file in sorted(path.glob(f"*{suffix}"))]


#: What the system says of a disk without space.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def _loading(form: str, path: Path) -> Iterator[None]:
    """Turn a runtime's exceptions into ReadError or WriteError, within the context.

    WriteError is for its temporary files.
    """
    try:
        yield
    except CudnnConvertError:  # ours, which say more
        raise
    except Exception as cause:  # each runtime has exceptions of its own
        raise _refusal(path, f"a model that loads as {form}", cause) from cause


def _refusal(path: Path, expected: str, cause: Exception) -> CudnnConvertError:
    """Return the error for a runtime's exception.

    It is about the artifact, or about the disk that the runtime has its temporary files on.
    """
    origin: BaseException | None = cause
    while origin is not None:
        if isinstance(origin, OSError) and origin.errno in _FULL:
            advice = "set TMPDIR to a folder with more space"
            return WriteError(tempfile.gettempdir(), f"cannot write: {origin.strerror}; {advice}")
        origin = origin.__cause__ or origin.__context__
    return ReadError(path, "artifact", expected=expected, found=first_line(cause))


def pair_inputs(path: Path, wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Map signature keys to the artifact's inputs, named as the key, tensor or op.

    `wanted` are the source's tensors by key, `there` the names of the artifact's inputs. Raises UsageError
    where a key finds none, or an input no key.
    """
    names = {key: name for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    lost = [key for key in wanted if key not in names]
    unfed = [name for name in there if name not in names.values()]
    if lost or unfed:
        what = f"the artifact's inputs {', '.join(sorted(there)) or 'none'}"
        raise UsageError(
            f"{path}: inputs: expected {what}, found {', '.join(wanted)}; name them with --inputs NAME=TENSOR"
        )
    return names


def pair_outputs(wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Map the artifact's outputs to signature keys; a keyless output keeps the name."""
    paired = {name: key for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    return {name: paired.get(name, name) for name in there}


def _name(key: str, tensor: str, there: Collection[str]) -> str | None:
    op = tensor.removesuffix(":0")
    return next((name for name in (key, f"{key}:0", tensor, op) if name in there), None)


def pair_tensors(
    path: Path, wanted: Signature, ops: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Map signature keys to tensors of a graph of `ops`, for inputs and outputs.

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
    """List the output tensors of parts in a GraphDef, named by `pair_tensors`."""
    ops = {node.name for node in graph.node}
    return [name for part in parts for name in pair_tensors(path, part.signature, ops)[1].values()]


def choose_signature(path: Path, name: str, there: Collection[str]) -> str:
    """Return the signature of a name, or the only signature. Raises UsageError."""
    if name in there:
        return name
    if len(there) == 1 and name == SERVING:
        return next(iter(there))
    listed = ", ".join(sorted(there)) or "none"
    raise UsageError(f"{path}: signatures: expected {name}, found {listed}; choose with --signature")


#: Of each size that is not fixed; no other integer is drawn, so that it is also a valid length.
_SIZE: Final = 4
#: What random floats are: normal, or where a model refuses these, the same numbers as integers.
NORMAL: Final = "normal"
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True)
class Answers:
    """An artifact's answers: each call's inputs and outputs by key, as NumPy arrays.

    `seed` is that of random inputs, None where they were given; then `data` says what they are of. `drawn`:
    what random floats are, `NORMAL` or `WHOLE`.
    """

    artifact: str
    format: str
    signature: str
    seed: int | None
    feeds: Sequence[Mapping[str, Array]]
    outputs: Sequence[Mapping[str, Array]]
    data: str | None = None
    drawn: str | None = None

    def to_json(self) -> str:
        """Return dtype and shape of each array as JSON, values left out.

        Of outputs also minimum, maximum and mean.
        """
        calls = [
            {
                "inputs": {key: _describe(value) for key, value in feed.items()},
                "outputs": {key: _describe(value) | measure(value) for key, value in answer.items()},
            }
            for feed, answer in zip(self.feeds, self.outputs, strict=True)
        ]
        names = ("artifact", "format", "signature", "seed", "data", "drawn")
        head = {name: getattr(self, name) for name in names}
        return json.dumps({**head, "calls": calls}, indent=2, allow_nan=False)

    def arrays(self) -> dict[str, Array]:
        """Return all outputs by key, after `feed<k>/` in case of several calls."""
        prefixes = [f"feed{k}/" for k in range(len(self.outputs))] if len(self.outputs) > 1 else [""]
        return {
            prefix + key: value
            for prefix, answer in zip(prefixes, self.outputs, strict=True)
            for key, value in answer.items()
        }


def _describe(value: Array) -> dict[str, Any]:
    return {"dtype": str(value.dtype), "shape": [*value.shape]}


def measure(value: Array) -> dict[str, float | None]:
    """Return minimum, maximum and mean of an array's finite numbers.

    Returns None where it has none.
    """
    numbers = value.astype(np.float64).ravel() if value.dtype.kind in "biuf" or is_float(value.dtype) else ()
    finite = [number for number in numbers if np.isfinite(number)]
    figures = map(float, (min(finite), max(finite), sum(finite) / len(finite))) if finite else (None,) * 3
    return dict(zip(("min", "max", "mean"), figures, strict=True))


def call_artifact(
    form: str,
    path: Path,
    feeds: Sequence[Mapping[str, Array]] | None,
    *,
    seed: int,
    signature: str | None,
    vouched: Vouched,
) -> Answers:
    """Call an artifact by a signature, on `feeds` or once on random inputs.

    `seed` is that of random inputs. Raises UsageError where the signature or an input does not fit, ReadError
    where it does not load or run, UnsupportedModelError where that would run more than arithmetic, or no
    input can be drawn.
    """
    interfaces = {each.part.name: each for each in find_interfaces(form, path, vouched)}
    chosen = interfaces[choose_signature(path, signature or SERVING, interfaces)]
    run = open_artifact(form, path, [chosen.part], vouched)
    if feeds is not None:
        given = [_fit(feed, chosen, path) for feed in feeds]
        return Answers(str(path), form, chosen.part.name, None, given, [run(feed) for feed in given])
    _require_drawable(chosen, path)
    has_floats = any(is_float(spec.dtype) for spec in chosen.inputs.values())
    # An id may lie past a small table: its row 1 does not.
    for kind, ids in product((NORMAL, WHOLE) if has_floats else (NORMAL,), (_SIZE, 1)):
        rng = np.random.default_rng(seed)
        drawn = {key: _values(spec, rng, ids, whole=kind == WHOLE) for key, spec in chosen.inputs.items()}
        try:
            answers = run(drawn)
        except ReadError as error:
            refused = error
        else:
            return Answers(str(path), form, chosen.part.name, seed, [drawn], [answers], drawn=kind)
    # A state may fix the number of rows, which no signature tells.
    names = {name: getattr(refused, name) for name in ("expected", "found")}
    raise ReadError(refused.path, refused.where, **names, advice="give inputs with --data") from refused


def _fit(feed: Mapping[str, Array], chosen: Interface, path: Path) -> dict[str, Array]:
    """Return the inputs of a call in the dtypes of the artifact.

    Raises UsageError for other keys or shapes, and for numbers that a dtype does not have.
    """
    if feed.keys() != chosen.inputs.keys():
        wanted, actual = (", ".join(keys) or "none" for keys in (chosen.inputs, feed))
        raise UsageError(f"--data: expected the inputs {wanted} of {path}, found {actual}")
    for key, spec in chosen.inputs.items():
        if spec.shape is not None and not _fits(feed[key].shape, spec.shape):
            sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
            raise UsageError(f"--data: {key}: expected the shape [{sizes}], found {[*feed[key].shape]}")
    return {
        key: casts.cast(value, chosen.inputs[key].dtype, where=f"--data: {key}")
        for key, value in feed.items()
    }


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        want in (None, size) for size, want in zip(shape, wanted, strict=True)
    )


def _require_drawable(chosen: Interface, path: Path) -> None:
    """Raise UnsupportedModelError unless every input is of numbers and a known rank."""
    undrawn = [
        f"input {key}: expected numbers of a known rank, found {_kind(spec)}; give inputs with --data"
        for key, spec in chosen.inputs.items()
        if spec.shape is None or spec.dtype.kind in "OSU"
    ]
    if undrawn:
        raise UnsupportedModelError(path, undrawn)


def _kind(spec: TensorSpec) -> str:
    return "strings" if spec.dtype.kind in "OSU" else "no known shape"


def _values(spec: TensorSpec, rng: np.random.Generator, ids: int, *, whole: bool) -> Array:
    """Return random numbers: 1 to `ids` for integers and, with `whole`, for floats.

    Other floats are normal.
    """
    assert spec.shape is not None
    shape = [_SIZE if size is None else size for size in spec.shape]
    if (is_float(spec.dtype) and not whole) or spec.dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(spec.dtype)
    return np.asarray(rng.integers(1, ids + 1, shape)).astype(spec.dtype)
