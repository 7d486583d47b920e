"""What is done with an input: everything that the tool does with a file before it runs or writes anything."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import origins

from cudnn_convert import cli, pipeline
from cudnn_convert.artifacts import runners
from cudnn_convert.cli import terminal
from cudnn_convert.errors import (
    CudnnConvertError,
    RefusalError,
    UnsupportedModelError,
    UsageError,
    VerificationError,
)
from cudnn_convert.feeds.data import Data, read_calls, read_shard, share_out
from cudnn_convert.inspection import inspect
from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.read import read
from cudnn_convert.verification import recordings
from cudnn_convert.verification.judges import Judge
from cudnn_convert.verification.settings import choose_judge

#: Characters of one line of a message.
LONGEST = 1000


#: The exit code of a bug.
_BUG = 70
#: Looks that write where temporary files are.
WRITING = frozenset({"command"})


class BugError(Exception):
    """A command ended as our bug."""


class UnsoundError(Exception):
    """A refusal that does not say itself in a line for each reason."""


def looked(look: str, path: Path) -> str:
    """The refusal of an input, "" for one that is read; any other exception is a crash."""
    try:
        LOOKS[look](path)
    except CudnnConvertError as error:
        return _checked(error)
    return ""


def _checked(error: CudnnConvertError) -> str:
    lines = str(error).splitlines()
    most = (
        len(error.reasons)
        if isinstance(error, RefusalError)
        else None
        if isinstance(error, UsageError)
        else 1
    )
    if not lines or (most is not None and len(lines) > most):
        raise UnsoundError(f"{len(lines)} lines: {str(error)[:2000]!r}") from error
    for line in lines:
        if not line.isprintable() or len(line) > LONGEST:
            raise UnsoundError(f"{len(line)} characters: {line[:2000]!r}") from error
    return lines[0]


def _source(path: Path) -> None:
    """Every tensor is read, then all is planned and told; where both refuse, the first says why."""
    refused: CudnnConvertError | None = None
    try:
        _read_all(read(path))
    except CudnnConvertError as error:
        refused = error
        _checked(error)
    _inspected(path, Options())
    if refused is not None:
        raise refused


def _read_all(model: Model) -> None:
    refused = None
    for tensor in _tensors(model):
        try:
            found = tensor.read()
            assert found.shape == tensor.shape, (found.shape, tensor.shape)
            assert found.dtype == tensor.dtype, (found.dtype, tensor.dtype)
        except CudnnConvertError as error:
            refused = refused or error
    for one in model.canonical:
        try:
            for mode in one.modes:
                [*one.decode(mode)]
        except CudnnConvertError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _tensors(model: Model) -> Iterator[Any]:
    yield from model.variables.values()
    if (made := model.architecture) is not None:
        yield from (tensor for listed in made.weights.values() for _, tensor in listed)
        yield from (tensor for _, tensor in made.optimizer)
        yield from made.extras.values()


def _inspected(path: Path, options: Options) -> None:
    """As the command does, printed in both ways to a stream that takes what a terminal takes."""
    found = inspect.inspect_source(path, options)
    found.to_json()
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8", sys.stdout.errors)):
        terminal.show_inspection(found)


def _commanded(path: Path) -> None:
    """As `inspect` does, and then as its first command does. Raises BugError of what that prints."""
    found = inspect.inspect_source(path, Options())
    _inspected(path, Options())
    command = found.command or next((one.command for one in found.candidates), None)
    if command is None:
        return
    written = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(written):
        program, source, out, *flags = command
        with contextlib.redirect_stdout(io.StringIO()):
            code = cli.main([source, str(Path(folder, out)), *flags])
    text = written.getvalue()
    if code == _BUG:
        raise BugError(" ".join(" ".join(reversed(text.splitlines()[-4:-1])).split()))
    if code not in (0, CudnnConvertError.exit_code, VerificationError.exit_code):
        raise UnsoundError(f"{program} ended with {code}: {text[-2000:]!r}")
    if code:
        raise UnsupportedModelError(path, [f"its command: {text.splitlines()[-1]}"])


def _architecture(path: Path) -> None:
    _inspected(path, Options(architecture=path.with_name("model.json")))


def _artifact(path: Path) -> None:
    """Paired with its source, and its weights, which a map of them looks for."""
    pair = pipeline.plan_for_artifact(origins.SOURCE, path, Options())
    runners.read_arrays(pair.options.format, pair.path)


def _verified(path: Path) -> None:
    """As `verify` does before a runtime sees the artifact."""
    pair = pipeline.plan_for_artifact(origins.SOURCE, path, Options())
    runners.examine(pair.options.format, pair.path, pair.plan.parts)


def _arrays(path: Path) -> None:
    """Paired with its source, and opened to be computed."""
    pair = pipeline.plan_for_artifact(origins.SOURCE, path, Options())
    runners.open_artifact(pair.options.format, pair.path, pair.plan.parts)


def _recording(path: Path) -> None:
    recordings.open_recording(_judge(origins.RECORDED), path)


def _data(path: Path) -> None:
    recordings.read_feeds(_judge(origins.SOURCE), read_calls(Data(path)))


def _examples(path: Path, kind: str) -> None:
    features = [origins.FEATURES[kind]] if origins.FEATURES[kind] else []
    read_calls(Data(path, features, batch=3, limit=6, seed=1))


def _shards(path: Path) -> None:
    """Records as they are shared out, after what is said of them without features."""
    try:
        read_calls(Data(path))
    except UsageError as error:
        _checked(error)
    given = Data(path, [origins.FEATURES["records"]], batch=6, limit=6, seed=1)
    for shard in share_out(given)[0]:
        read_shard(given, shard)


@cache
def _judge(source: Path) -> Judge:
    ends = origins.RECORDED_ENDS if source == origins.RECORDED else {}
    return choose_judge(make_plan(read(source), Options(format="onnx", **ends)))


LOOKS: Mapping[str, Callable[[Path], None]] = {
    "source": _source,
    "command": _commanded,
    "architecture": _architecture,
    "artifact": _artifact,
    "verified": _verified,
    "arrays": _arrays,
    "recording": _recording,
    "data": _data,
    "shards": _shards,
    **{kind: partial(_examples, kind=kind) for kind in origins.FEATURES},
}
