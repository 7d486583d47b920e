"""The census of ops: what TensorFlow 1.15 answers to each variant, and what each format's artifact does.

`tests/data/op_census.tar.xz` has the graphs and answers (scripts/op_census), `op_verdicts.tsv` beside it the
verdict on each variant in each format, `op_reasons.tsv` why some differ. Each graph stands beside an LSTM:
what is proven and replaced beside a recurrence is not what is so without one.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.model import SERVING, Array, Part, Signature
from support import graphs

DATA: Final = Path(__file__).resolve().parents[1] / "data"
ARCHIVE: Final = DATA / "op_census.tar.xz"
VERDICTS: Final = DATA / "op_verdicts.tsv"
REASONS: Final = DATA / "op_reasons.tsv"
FORMATS: Final = ("savedmodel", "frozen", "onnx", "tflite")
#: Types that TensorFlow Lite is not asked of: it makes float32 of floats, and has few ops of others.
_NOT_OF_LITE: Final = re.compile("float64|float16|complex64|int8|int16|int64|string")
#: The kinds of values that a variant is fed (scripts/op_census/values.py); last, that it crashes.
_KINDS: Final = ("ordinary", "odd", "one", "empty", "large", "nonfinite", "denormal", "crash")
#: How many variants are converted as one model.
_TOGETHER: Final = 16
#: How many axes of inputs one model may have, except of a variant alone.
_AXES: Final = 40
#: Inputs of more axes are images and matrices, whose sizes have to go together.
_PLAIN: Final = 2
#: How a line names a variant: by an op, an input or an output of it.
_OWNER: Final = re.compile(r"\bv(\d+)[/_]")
#: With oneDNN, on which the processor decides, a softmax of NaN and some quantizations are others.
_PLAIN_KERNELS: Final = {"TF_ENABLE_ONEDNN_OPTS": "0"}
#: How long one model may take, in seconds, before its process is ended.
_PATIENCE: Final = 240
#: The relative bound of each precision, and the absolute one of values near 1.
_BOUNDS: Final = {"float16": 5e-3, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True, slots=True)
class Case:
    """A variant: its graph, the tensors that it gives, and inputs and answers by the kind of their values."""

    graph: Any
    outputs: Sequence[str]
    feeds: Mapping[str, tuple[list[Array], list[Array]]]


@cache
def cases() -> Mapping[str, Mapping[str, bytes]]:
    """The members of each variant by its name, in the census's order."""
    listed: dict[str, dict[str, bytes]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for info in archive:
            name, _, member = info.name.rpartition("/")
            content = archive.extractfile(info)
            assert content is not None
            listed.setdefault(name, {})[member] = content.read()
    return listed


def case(name: str) -> Case:
    """One variant."""
    members = cases()[name]
    with np.load(io.BytesIO(members["golden.npz"])) as golden:
        arrays = {key: _as_objects(golden[key]) for key in golden.files if key != "outputs"}
        outputs = [str(tensor) for tensor in golden["outputs"]]
    feeds = {}
    for kind in dict.fromkeys(key.partition("/")[0] for key in arrays):
        sides = ([*_numbered(arrays, f"{kind}/{side}/")] for side in ("in", "out"))
        feeds[kind] = tuple(sides)
    return Case(GraphDef.FromString(members["graph.pb"]), outputs, feeds)


def _numbered(arrays: Mapping[str, Array], prefix: str) -> Iterator[Array]:
    place = 0
    while (key := f"{prefix}{place}") in arrays:
        yield arrays[key]
        place += 1


@cache
def ops_of(name: str) -> frozenset[str]:
    """The ops of a variant's graph."""
    return frozenset(node.op for node in GraphDef.FromString(cases()[name]["graph.pb"]).node)


def _as_objects(value: Array) -> Array:
    return value.astype(object) if value.dtype.kind == "S" else value


@cache
def _recurrence() -> Any:
    """The nodes of an LSTM from `x` to `rnn`."""
    with graphs.drawing() as graph:
        graphs.lstm(graphs.placeholder("x"), tf.constant(graphs.BLOB))
    return graph.as_graph_def()


def _join(each: Sequence[Case]) -> Any:
    """One graph of an LSTM and variants, whose nodes begin with `v0/`, `v1/`."""
    whole = GraphDef()
    whole.CopyFrom(_recurrence())
    for number, variant in enumerate(each):
        whole.versions.CopyFrom(variant.graph.versions)
        for node in variant.graph.node:
            copy = whole.node.add()
            copy.CopyFrom(node)
            copy.name = f"v{number}/{node.name}"
            del copy.input[:]
            copy.input.extend(_under(f"v{number}/", name) for name in node.input)
            if "frame_name" in copy.attr:
                copy.attr["frame_name"].s = f"v{number}/".encode() + copy.attr["frame_name"].s
            if "_class" in copy.attr:
                del copy.attr["_class"]
    return whole


def _under(prefix: str, reference: str) -> str:
    return f"^{prefix}{reference[1:]}" if reference.startswith("^") else f"{prefix}{reference}"


def judge(names: Sequence[str], form: str, *, verify: bool = True, opset: int = 17) -> dict[str, str]:
    """What becomes of some variants by each one's name, as one model where that tells them apart.

    A refusal whose lines name some variants is theirs, and the others are asked again. What a model of
    several does not tell is asked of each alone.
    """
    outcomes, left = dict[str, str](), [*names]
    while left:
        found = _judge_together(left, form, verify=verify, opset=opset)
        if not found:
            half = (len(left) + 1) // 2
            halves = (judge(part, form, verify=verify, opset=opset) for part in (left[:half], left[half:]))
            return outcomes | next(halves) | next(halves)
        outcomes |= found
        left = [name for name in left if name not in found]
    return {name: outcomes[name] for name in names}


def _judge_together(names: Sequence[str], form: str, *, verify: bool, opset: int) -> dict[str, str]:
    """The outcome of those variants that their one model tells; of a variant alone always."""
    each = [case(name) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "model.pb"), Path(folder, "out")
        source.write_bytes(_join(each).SerializeToString())
        inputs = {"x": "x:0"}
        inputs |= {f"v{n}_in{k}": f"v{n}/in{k}:0" for n, one in enumerate(each) for k in range(_fed(one))}
        outputs = {"rnn": "rnn:0"}
        outputs |= {
            f"v{n}_out{k}": f"v{n}/{name}" for n, one in enumerate(each) for k, name in enumerate(one.outputs)
        }
        signature = Signature(inputs, outputs)
        try:
            _convert(source, out, form, signature, each, verify=verify, opset=opset)
        except cudnn_convert.CudnnConvertError as refusal:
            lines = str(refusal).replace(str(source), "").splitlines()
            return _refused(names, lines)
        except Exception as failure:  # noqa: BLE001 - what no conversion may raise
            line = " ".join(f"{type(failure).__name__} {failure}".split())
            return {names[0]: f"crash: {line}"} if len(names) == 1 else {}
        _, path, _ = runners.identify(out)
        try:
            opened = runners.open_artifact(form, path, [Part(SERVING, signature)])
        except cudnn_convert.CudnnConvertError as failure:
            line = " ".join(str(failure).split())
            return {names[0]: f"crash: the artifact does not open: {line}"} if len(names) == 1 else {}
        return _compare(names, each, opened)


def _refused(names: Sequence[str], lines: Sequence[str]) -> dict[str, str]:
    """The refusal of each variant that a line names; of all where there is one alone."""
    if len(names) == 1:
        return {names[0]: f"refused: {' '.join(' '.join(lines).split())}"}
    found = dict[str, str]()
    for line in lines:
        owner = _OWNER.search(line)
        if owner is not None and int(owner[1]) < len(names):
            found.setdefault(names[int(owner[1])], f"refused: {' '.join(line.split())}")
    return found


def _convert(
    source: Path,
    out: Path,
    form: str,
    signature: Signature,
    each: Sequence[Case],
    *,
    verify: bool,
    opset: int,
) -> None:
    """Convert with the proof: on the ordinary data where it asks for some, or looks for sizes at length."""
    sides: dict[str, Any] = {"opset": opset} if form == "onnx" else {}
    sides |= {
        "inputs": [f"{key}={name}" for key, name in signature.inputs.items()],
        "outputs": [f"{key}={name}" for key, name in signature.outputs.items()],
    }
    if not verify:
        cudnn_convert.convert(source, out, format=form, **sides, verify=False)
        return
    data = _feed(each, "ordinary")
    if any(value.ndim > _PLAIN for value in data.values()):
        cudnn_convert.convert(source, out, format=form, **sides, data=data)
        return
    try:
        cudnn_convert.convert(source, out, format=form, **sides)
    except cudnn_convert.CudnnConvertError as refusal:
        if "give data" not in str(refusal):
            raise
        cudnn_convert.convert(source, out, format=form, **sides, data=data)


def _feed(each: Sequence[Case], kind: str) -> dict[str, Array]:
    """The inputs of a model of several variants, of a kind of values; the first where one has none of it."""
    fed = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 2, 3)}
    for number, variant in enumerate(each):
        given, _ = _chosen(variant, kind)
        fed |= {f"v{number}_in{place}": value for place, value in enumerate(given)}
    return fed


def _chosen(variant: Case, kind: str) -> tuple[list[Array], list[Array]]:
    return variant.feeds.get(kind) or next(iter(variant.feeds.values()))


def _fed(variant: Case) -> int:
    return len(next(iter(variant.feeds.values()))[0])


def _compare(names: Sequence[str], each: Sequence[Case], opened: runners.OpenArtifact) -> dict[str, str]:
    """Whether an artifact answers as TensorFlow 1.15 did, and for which kinds of values it does not.

    Of several variants it does not tell which one an artifact stops on.
    """
    off: dict[str, dict[str, list[str]]] = {name: {} for name in names}
    for kind in dict.fromkeys(kind for one in each for kind in one.feeds):
        having = [(n, name) for n, name in enumerate(names) if kind in each[n].feeds]
        try:
            found = opened(_feed(each, kind))
        except cudnn_convert.CudnnConvertError as failure:
            if len(names) > 1:
                for _, name in having:
                    off.pop(name, None)
                continue
            said = " ".join(str(failure).split())[-150:]
            off[names[0]].setdefault("fails", []).append(f"{kind} ({said})")
            continue
        for n, name in having:
            answers = enumerate(each[n].feeds[kind][1])
            lines = [line for k, value in answers if (line := difference(found[f"v{n}_out{k}"], value))]
            if lines and name in off:
                off[name].setdefault("differs", []).append(f"{kind} ({lines[0]})")
    return {
        name: "; ".join(f"{what}: {', '.join(lines)}" for what, lines in kinds.items()) or "equal"
        for name, kinds in off.items()
    }


def difference(found: Array, expected: Array) -> str:
    """Where two answers differ; "" where they do not. Integers, text and booleans must be the same."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind == "c":
        parts = np.zeros((), expected.dtype).real.dtype
        return difference(
            *(
                np.ascontiguousarray(value.astype(expected.dtype))[..., None].view(parts)
                for value in (found, expected)
            )
        )
    if expected.dtype.kind != "f":
        with np.errstate(invalid="ignore"):
            same = found == expected
        return "" if np.all(same) else _first(found, expected, ~same)
    narrow = min(found.dtype, expected.dtype, key=lambda dtype: dtype.itemsize)
    bound = _BOUNDS.get(narrow.name)
    if bound is None:
        return f"dtype {found.dtype}, expected {expected.dtype}"
    with np.errstate(over="ignore", invalid="ignore"):
        found, expected = (value.astype(narrow).astype(np.float64) for value in (found, expected))
        scale = float(np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
        close = np.isclose(found, expected, rtol=bound, atol=bound * min(scale, 1e4) / 10, equal_nan=True)
    return "" if close.all() else _first(found, expected, ~close)


def _first(found: Array, expected: Array, off: Array) -> str:
    place = tuple(int(index) for index in np.argwhere(off)[0])
    return (
        f"{np.count_nonzero(off)} of {off.size}, at {list(place)} {found[place]}, expected {expected[place]}"
    )


def check(form: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What becomes of each variant in a format: `equal`, or `refused`, `differs`, `fails`, `crash` and where.

    Some end their process: another goes on.
    """
    jobs = deque(_batches(names))
    while jobs:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(form, [*jobs], theirs), daemon=True)
        with mock.patch.dict(os.environ, _PLAIN_KERNELS):
            worker.start()
        theirs.close()
        try:
            while jobs:
                if not ours.poll(_PATIENCE):
                    worker.kill()
                    raise EOFError
                outcomes = ours.recv()
                jobs.popleft()
                yield from outcomes.items()
        except (EOFError, ConnectionError):
            job = jobs.popleft()
            if len(job) == 1:
                yield job[0], "crash: the process ends"
            else:
                half = len(job) // 2
                jobs.extendleft((job[half:], job[:half]))
        worker.join()


def names_of(form: str) -> list[str]:
    """The variants that a format is asked of, in the census's order."""
    return [name for name in cases() if form != "tflite" or not _NOT_OF_LITE.search(name)]


def verdict(outcome: str) -> str:
    """An outcome without where it was seen: `equal`, `refused`, `differs on odd, nonfinite`."""
    kinds = {}
    for part in outcome.split("; "):
        what, _, where = part.partition(": ")
        if what in ("differs", "fails"):
            kinds[what] = ", ".join(kind for kind in _KINDS if f"{kind} (" in where)
    return "; ".join(f"{what} on {where}" for what, where in kinds.items()) or outcome.partition(":")[0]


def read_verdicts() -> dict[str, dict[str, str]]:
    """The verdict of each format by the variant's name, as the table has it."""
    head, *rows = [line.split("\t") for line in VERDICTS.read_text(encoding="utf-8").splitlines()]
    return {name: dict(zip(head[1:], verdicts, strict=True)) for name, *verdicts in rows}


def write_verdicts(verdicts: Mapping[str, Mapping[str, str]]) -> None:
    """Write the table, in the census's order."""
    rows = [["variant", *FORMATS]]
    rows += [[name, *(verdicts[name].get(form, "-") for form in FORMATS)] for name in cases()]
    VERDICTS.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why variants, a pattern of `fnmatch`, differ in formats on kinds of values."""

    variants: str
    formats: Sequence[str]
    kinds: Sequence[str]
    why: str

    def covers(self, name: str, form: str, kind: str) -> bool:
        """Whether it says why a variant differs in a format on a kind of values."""
        return form in self.formats and kind in self.kinds and fnmatchcase(name, self.variants)


@cache
def reasons() -> Sequence[Reason]:
    """Each reason, of which a row of `op_reasons.tsv` gives several variants."""
    _, *rows = [line.split("\t") for line in REASONS.read_text(encoding="utf-8").splitlines()]
    return [
        Reason(name, formats.split(), kinds.split(), why)
        for names, formats, kinds, why in rows
        for name in names.split("|")
    ]


def explain(name: str, form: str, verdict: str) -> dict[str, str]:
    """The reason for each kind of values that a verdict says to differ on; "" where there is none."""
    kinds = [kind for kind in _KINDS if kind in verdict.replace(",", " ").split()]
    return {
        kind: next((each.why for each in reasons() if each.covers(name, form, kind)), "") for kind in kinds
    }


def _batches(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Several at a time, of few open axes, whose sizes the proof looks for together.

    Alone those whose sizes are fed, of which some drawn ones do not fit in memory: TensorFlow waits ten
    seconds before it says so.
    """
    batch, axes = list[str](), 0
    for name in (name for name in names if "fed" not in name):
        first = next(iter(case(name).feeds.values()))[0]
        more = sum(value.ndim for value in first)
        if batch and (axes + more > _AXES or len(batch) == _TOGETHER):
            yield tuple(batch)
            batch, axes = [], 0
        batch.append(name)
        axes += more
    if batch:
        yield tuple(batch)
    yield from ((name,) for name in names if "fed" in name)


def _work(form: str, jobs: Sequence[tuple[str, ...]], pipe: Any) -> None:
    expected = read_verdicts()
    for job in jobs:
        outcomes = judge(job, form)
        if len(job) > 1:  # others of the model may be why: what is not as the table has it is asked alone
            for name in job:
                known = expected.get(name, {}).get(form, "-")
                if known not in ("-", verdict(outcomes[name])):
                    outcomes |= judge([name], form)
        pipe.send(outcomes)
