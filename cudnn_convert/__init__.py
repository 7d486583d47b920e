"""cudnn-convert: TensorFlow and Keras models with cuDNN recurrences become CPU models.

    from cudnn_convert import convert
    report = convert("model.ckpt", "out/", format="onnx")

The functions take what the command line's flags take, under the same names. They raise
`CudnnConvertError`s whose messages name arguments, never print and never exit. Steps and warnings go to the
logger `cudnn_convert`. TensorFlow is imported by the first call, not before, and its C++ side then logs
nothing unless `TF_CPP_MIN_LOG_LEVEL` is set.

Every function takes `progress`, a function of `(step, done, total)`, which the calling thread calls: `done`
of `total` are 0 where unknown, bytes while writing, calls of models while verifying. What it raises ends
the call. `data` is the path of an `.npz`, or a mapping from input keys to arrays; the keys `feed0/KEY`,
`feed1/KEY` are those of several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cudnn_convert.errors import (
    AccessError,
    AmbiguousSourceError,
    CudnnConvertError,
    InvalidModelError,
    MissingDependencyError,
    ReadError,
    UnprovenError,
    UnsupportedModelError,
    UsageError,
    VerificationError,
    WriteError,
)
from cudnn_convert.version import __version__ as __version__

if TYPE_CHECKING:
    import numpy.typing as npt

    from cudnn_convert.artifacts.runners import Answers
    from cudnn_convert.benchmark.profile import Profile
    from cudnn_convert.context import ProgressCallback
    from cudnn_convert.inspection import Inspection
    from cudnn_convert.options import Options
    from cudnn_convert.recurrences.named_weights import Loaded
    from cudnn_convert.report import Report, Verification

    Data = str | PathLike[str] | Mapping[str, npt.ArrayLike]

__all__ = [
    "AccessError",
    "AmbiguousSourceError",
    "Answers",
    "CudnnConvertError",
    "Inspection",
    "InvalidModelError",
    "MissingDependencyError",
    "Profile",
    "ReadError",
    "Report",
    "UnprovenError",
    "UnsupportedModelError",
    "UsageError",
    "Verification",
    "VerificationError",
    "WriteError",
    "convert",
    "inspect",
    "load",
    "profile",
    "record",
    "run",
    "verify",
]

#: What is no option of the work: what a call works on, and what it writes and says beside it.
_ASIDE: Final = frozenset({"source", "out", "artifact", "report", "card", "progress"})
#: The public names that are imported when they are asked for, and where they are.
_LATE: Final = {
    "Answers": "cudnn_convert.artifacts.runners",
    "Inspection": "cudnn_convert.inspection",
    "Profile": "cudnn_convert.benchmark.profile",
    "Report": "cudnn_convert.report",
    "Verification": "cudnn_convert.report",
}

if not TYPE_CHECKING:  # to a type checker it would make every name one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATE[name]), name)


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the flag's own name
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    cell: str = "compatible",
    rename: str | Sequence[str] = (),
    slots: bool = False,
    opset: int = 17,
    weights_dtype: str = "float32",
    quantize: str | None = None,
    max_error: float | None = None,
    lowering: str = "fast",
    jit: bool = False,
    recurrences_only: bool = False,
    decode: str | None = None,
    steps: int | None = None,
    width: int | None = None,
    end: int | None = None,
    pad: int = 0,
    length_penalty: float = 0.0,
    top_k: int | None = None,
    temperature: float = 1.0,
    history: bool = False,
    pad_mask: str | None = None,
    initial_scores: bool = False,
    token: str | None = None,
    logits: str | None = None,
    data: Data | None = None,
    features: str | Sequence[str] = (),
    batch: int | None = None,
    limit_examples: int | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int | None = None,
    verify: bool = True,
    trust: bool = False,
    force: bool = False,
    force_convert: bool = False,
    report: str | PathLike[str] | None = None,
    card: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Convert the model at `source` to `out`, and verify the artifact.

    Without `format` the suffix of `out` names it (`model.onnx`), else a SavedModel is written. `inputs` and
    `outputs` are items `[KEY=]TENSOR[[shape]]`, `set` items `TENSOR=VALUE`. `report` is the file of a report,
    JSON or a page in `.html` with JSON beside it, `card` that of a model card in Markdown. Raises ReadError,
    UnsupportedModelError or AmbiguousSourceError for the source, UsageError for the call, VerificationError
    where the numbers differ, WriteError for the disk; nothing is then left at `out`. Nor is anything written
    where the source is portable already, unless `force_convert`: `Report.out` is then None.

    Threads may call the library at once: one call runs after the other, for a conversion changes settings of
    TensorFlow, Keras and the process, and puts them back. So models of Keras, graphs with loops and what is
    printed should not be another thread's business meanwhile; processes do not wait for each other.
    """
    given = locals()
    with _call(progress):
        from cudnn_convert.options import choose_format

        options = _options(given | {"format": choose_format(out, format), "lineage": report is not None})
        from cudnn_convert import pipeline

        files = pipeline.apart(Path(source), options) if report or card else []
        with _reports(report, card, [*files, (f"OUT {out}", Path(out))], force=force) as keep:
            return _log_warnings(pipeline.convert(Path(source), Path(out), options, ready=keep))


def inspect(
    source: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the flag's own name
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    trust: bool = False,
    progress: ProgressCallback | None = None,
) -> Inspection:
    """Describe the source, the recurrences, and the command for the conversion.

    Runs nothing of it, and imports TensorFlow only for a source with a graph. `format` is that of the
    command, by default the one that fits the source. What a conversion would refuse is reported in the
    result; raises ReadError and AccessError where the source cannot be read, UsageError for the call.
    """
    given = locals()
    with _call(progress):
        options = _options(given)
        from cudnn_convert.inspection import inspect

        return inspect.inspect_source(Path(source), options, form=format)


def load(
    source: str | PathLike[str],
    *,
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    trust: bool = False,
    progress: ProgressCallback | None = None,
) -> Loaded:
    """Load the recurrences at `source` with decoded weights as NumPy arrays.

    Each is a `named_weights.Weights`. These are the recurrences that a signature reaches, or all in a graph
    without signatures; the rest of the graph is ignored. Imports TensorFlow only for a source with a graph.
    Raises ReadError, AccessError, UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    given = locals()
    with _call(progress):
        options = _options(given | {"format": "npz"})
        from cudnn_convert import pipeline

        return pipeline.load(Path(source), options)


def profile(
    callable: Callable[[Any], Any],  # noqa: A002 - what it is
    feeds: Iterable[Any],
    *,
    steps: int = 5,
    folder: str | PathLike[str] | None = None,
) -> Profile:
    """Measure the time of `callable(feed)` in Python, recurrences, loops and remaining ops.

    Each feed is passed as it is, in turn, `steps` calls in all after two of each that are not measured.
    `Profile.sentence` has the verdict, `parts` the shares, whose sum is 1, and microseconds of a call, `ops`
    the same by op. It sees TensorFlow's functions and sessions, ONNX Runtime and TensorFlow Lite; by op it
    knows TensorFlow alone. With `folder` the trace of TensorFlow's profiler is kept there, for TensorBoard.
    Raises UsageError without a feed, or where a profiler of TensorFlow runs already; and what `callable`
    raises. Nothing else should run in this process meanwhile.
    """
    from cudnn_convert.benchmark import profile as room

    return room.profile(callable, feeds, steps=steps, folder=None if folder is None else Path(folder))


def record(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    data: Data,
    features: str | Sequence[str] = (),
    batch: int | None = None,
    limit_examples: int | None = None,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    trust: bool = False,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Run the original at `source` on `data` and write the answers to `out`.

    `data` has an array for each input, by key, or those of several calls as `feed0/KEY`, `feed1/KEY`; or it
    is a pattern of files of records, tables or arrays, whose `features` become the inputs. Returns the
    recording's description. Raises as `convert`, UnsupportedModelError where this machine lacks a device
    that the source needs.
    """
    given = locals()
    with _call(progress):
        options = _options(given)
        from cudnn_convert import pipeline

        return pipeline.record(Path(source), Path(out), options)


def run(
    artifact: str | PathLike[str],
    *,
    signature: str | None = None,
    data: Data | None = None,
    features: str | Sequence[str] = (),
    batch: int | None = None,
    limit_examples: int | None = None,
    seed: int | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    trust: bool = False,
    progress: ProgressCallback | None = None,
) -> Answers:
    """Run an artifact, and return inputs and outputs as NumPy arrays.

    The artifact is a file or an OUT folder. Without `data` it is called once on random inputs of `seed`,
    sizes that are not fixed all alike. Raises UsageError where the signature or `data` does not fit,
    ReadError where the artifact does not load or run, UnsupportedModelError where that would run more than
    arithmetic and `trust` is not given.
    """
    given = locals()
    with _call(progress):
        options = _options(given)
        from cudnn_convert import pipeline

        return pipeline.run(Path(artifact), options)


def verify(
    source: str | PathLike[str],
    artifact: str | PathLike[str],
    *,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    data: Data | None = None,
    features: str | Sequence[str] = (),
    batch: int | None = None,
    limit_examples: int | None = None,
    golden: str | PathLike[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int | None = None,
    trust: bool = False,
    force: bool = False,
    report: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Verification:
    """Compare an artifact, a file or an OUT folder, with the source.

    Tensors are paired by the artifact's provenance, else by `inputs` and `outputs`. `golden` is a recording
    of the original, which then gives the inputs and the expected outputs. `report` is as in `convert`; with
    `force` it replaces an older one. Raises as `convert`.
    """
    given = locals()
    with _call(progress):
        options = _options(given | {"lineage": report is not None})
        from cudnn_convert import pipeline

        files = pipeline.apart(Path(source), options, Path(artifact)) if report else []
        with _reports(report, None, files, force=force) as keep:
            result = pipeline.verify(Path(source), Path(artifact), options)
            keep(result)
            return _log_warnings(result)


def _call(progress: ProgressCallback | None) -> AbstractContextManager[None]:
    from cudnn_convert.calls import library_call

    return library_call(progress)


def _reports(
    report: str | PathLike[str] | None,
    card: str | PathLike[str] | None,
    apart: Sequence[tuple[str, Path]],
    *,
    force: bool,
) -> AbstractContextManager[Callable[[Any], None]]:
    """Write the files of a report and a card, if any are asked for."""
    from cudnn_convert.calls import LOGGER
    from cudnn_convert.report.files import write_reports

    paths = (None if path is None else Path(path) for path in (report, card))
    return write_reports(*paths, apart=apart, force=force, warn=LOGGER.warning)


_Result = TypeVar("_Result", "Report", "Verification")


def _log_warnings(result: _Result) -> _Result:
    """Log the warnings of a conversion and of a proof."""
    from cudnn_convert.calls import log_warnings

    proof: Any = getattr(result, "verification", result)
    log_warnings(() if proof is result else result.warnings)
    log_warnings(() if proof is None else proof.warnings)
    return result


def _options(given: Mapping[str, Any]) -> Options:
    """Return a call's keywords as the flags of the same names.

    None means not given.
    """
    from cudnn_convert.options import Options

    return Options.of({name: value for name, value in given.items() if name not in _ASIDE})
