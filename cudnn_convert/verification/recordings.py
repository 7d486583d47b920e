"""Feeds of the user, and recordings of the original with the judge's role.

A recording is an `.npz` of plain arrays: `feed<k>/in/<key>` and `feed<k>/out/<key>` for the k-th call, in
order in one session, and `meta`, JSON in UTF-8 as an array of uint8: the machine and the tensors' names.
`scripts/record_tf1.py` and `verification/record.py` write it, and share no code: the former runs in
TensorFlow 1 on Python 2.7.

The reference still runs beside a recording: it knows the types and shapes of the source's outputs, the floor
of noise, the scores behind a choice, and whether a recording that the artifact fails fails the source too.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import Reason, Remedy, UsageError
from cudnn_convert.feeds.data import DataCalls
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.verification import compare, effort
from cudnn_convert.verification.judges import Judge, RunningSource
from cudnn_convert.weights import npz_archive

_CUT_OFF: Final = "arrays of type object keep the zero bytes at the end of strings, those of type S do not"


def accept_feeds(
    judge: Judge, source: RunningSource, calls: DataCalls, *, without: Collection[str] = ()
) -> list[dict[str, Array]]:
    """Read the user's feeds by tensor, except the keys `without`, and test acceptance.

    Raises UsageError.
    """
    feeds = read_feeds(judge, calls, without=without)
    try:
        for feed in feeds:
            judge.require_accepted(source, feed, where=calls.where)
    except UsageError as error:
        if any(value.dtype.kind == "S" for feed in calls.feeds for value in feed.values()):
            raise UsageError(f"{error}; {_CUT_OFF}") from error
        raise
    return feeds


def read_feeds(judge: Judge, calls: DataCalls, *, without: Collection[str] = ()) -> list[dict[str, Array]]:
    """Read the feeds of `accept_feeds` in the source's types, before any run.

    Each is a dict by tensor; states that are left out begin with zeros. Raises UsageError for other keys, and
    for an input that is NaN alone, on which everything agrees.
    """
    where, plan = calls.where, judge.plan
    keys, streaming = {*plan.signature.inputs}, plan.streaming
    free = {state.key for state in plan.variable_states}
    free |= {state.key for state in streaming.states} if streaming else set()
    left_out = {*without, *(streaming.begins if streaming else ())}
    for call in calls.feeds:
        if not keys - free <= call.keys() - left_out <= keys:
            expected = f"expected the keys {sorted(keys - free)}, found {sorted(call)}"
            cure = _cut_to(plan, call)
            raise UsageError(Reason(f"{where}: {expected}{f'; {cure}' if cure else ''}", cure))
    for key in sorted(keys):
        values = [np.asarray(call[key]) for call in calls.feeds if key in call]
        if sum(value.size for value in values) and all(map(_is_nan, values)):
            raise UsageError(f"{where}: {key}: expected numbers, found NaN alone")
    fed = (judge.fit({key: call[key] for key in call.keys() & keys}, where=where) for call in calls.feeds)
    return [feed | begin_states(plan, feed) for feed in fed]


def _is_nan(value: Array) -> bool:
    return value.dtype.kind == "f" and bool(np.isnan(value).all())


def _cut_to(plan: Plan, keys: Collection[str]) -> Remedy | None:
    """Return the remedy for `keys` as features of serialized tf.Examples, if any."""
    if isinstance(plan, RecurrencesPlan):
        return None
    from cudnn_convert.graph.index import Index  # TensorFlow, which weights alone do not need
    from cudnn_convert.graph.passes import subgraphs

    features = subgraphs.features(Index(plan.graph), plan.signature.outputs.values(), stop=())
    parsed = {feature.key: feature.tensor for feature in features if feature.key is not None}
    tensors = {**plan.source.inputs, **parsed}
    if not parsed or len(parsed) < len(features) or not parsed.keys() <= {*keys} <= tensors.keys():
        return None
    cuts = ",".join(f"{key}={tensors[key]}" for key in sorted(keys))
    return Remedy({"inputs": (cuts,)}, "to give parsed features, cut behind their parser with")


def begin_states(plan: Plan, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Return zeros for the states missing from a feed by tensor, with the feed's rows."""
    if plan.streaming is None:
        return {}
    rows = next(
        (feed[plan.signature.inputs[key]].shape[axis] for key, axis in plan.streaming.rows.items()), 1
    )
    dtypes = {recurrence.node: recurrence.dtype for recurrence in plan.recurrences}
    return {
        state.start: np.zeros((state.depth, rows, state.width), dtypes[state.node])
        for state in plan.streaming.states
        if state.start not in feed
    }


FORMAT: Final = "cudnn_convert recording"
VERSION: Final = 1
FLAG: Final = "--golden"
_META: Final = "meta"
_SIDES: Final = ("inputs", "outputs")
#: What every recording says of itself, and what the report repeats of it.
_FACTS: Final = ("recorder", "source", "tensorflow", "python", "cuda", "cudnn", "devices", "tf32")


def _have_texts(entries: Iterable[Any], *names: str) -> bool:
    """Return True if each entry is a dict with a text for each name."""
    return all(isinstance(entry, dict) and isinstance(entry.get(k), str) for entry in entries for k in names)


#: What is read of `meta`, here and in reports, by whether it is of the form that is written.
_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    # What `describe_tensors` gives.
    **dict.fromkeys(
        _SIDES, lambda ends: isinstance(ends, dict) and _have_texts(ends.values(), "tensor", "dtype")
    ),
    "devices": lambda listed: isinstance(listed, list) and _have_texts(listed, "type", "description"),
    "tf32": lambda tf32: isinstance(tf32, dict) and isinstance(tf32.get("on"), bool) and "reason" in tf32,
}


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording: keys to tensors of the source, and feeds and answers by key."""

    path: Path
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    feeds: tuple[Mapping[str, Array], ...]
    answers: tuple[Mapping[str, Array], ...]
    facts: Mapping[str, Any]

    @property
    def is_tf32(self) -> bool:
        """True if the device computed float32 with 10 bits of mantissa."""
        return bool(self.facts["tf32"]["on"])


def describe_tensors(pairs: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return the `meta` of inputs or outputs, from `(tensor, dtype)` by key."""
    return {key: {"tensor": name, "dtype": dtype} for key, (name, dtype) in pairs.items()}


def write(
    path: Path,
    meta: Mapping[str, Any],
    feeds: Sequence[Mapping[str, Array]],
    answers: Sequence[Mapping[str, Array]],
) -> None:
    """Write a recording; `feeds` and `answers` are by key, per call. Raises OSError."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **meta}, sort_keys=True)
    arrays = {_META: np.frombuffer(text.encode(), np.uint8)}
    for k, (feed, answer) in enumerate(zip(feeds, answers, strict=True)):
        arrays |= {f"feed{k}/in/{key}": value for key, value in feed.items()}
        arrays |= {f"feed{k}/out/{key}": value for key, value in answer.items()}
    with path.open("wb") as stream:  # a file that is open gets no ending of NumPy's own
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def read_recording(path: Path) -> Recording:
    """Read the recording in a file. Raises UsageError for anything else."""
    arrays = npz_archive.load_user_arrays(path, flag=FLAG)
    where = f"{FLAG} {path}"
    meta = _meta(arrays.pop(_META, None), where)
    feeds: list[dict[str, Array]] = []
    answers: list[dict[str, Array]] = []
    for k, call in enumerate(npz_archive.calls(arrays, where=where)):
        for side, into in (("in", feeds), ("out", answers)):
            names = meta[f"{side}puts"]
            values = {key[len(side) + 1 :]: v for key, v in call.items() if key.startswith(f"{side}/")}
            if set(values) != set(names):
                expected, seen = ", ".join(sorted(names)), ", ".join(sorted(values)) or "none"
                raise UsageError(f"{where}: feed{k}/{side}: expected {expected}, found {seen}")
            into.append({key: _with_type(value, names[key]["dtype"]) for key, value in values.items()})
    inputs, outputs = ({key: names["tensor"] for key, names in meta[side].items()} for side in _SIDES)
    facts = {"file": path.name} | {name: meta[name] for name in _FACTS}
    return Recording(path, inputs, outputs, tuple(feeds), tuple(answers), facts)


def is_ours(path: Path) -> bool:
    """Return True if a file claims to be a recording."""
    try:
        arrays = npz_archive.load(path, only=_META)
        record = json.loads(arrays[_META].tobytes())
        return isinstance(record, dict) and record.get("format") == FORMAT
    except (OSError, ValueError, KeyError, RecursionError):
        return False


def _meta(stored: Array | None, where: str) -> dict[str, Any]:
    try:
        meta = json.loads((np.zeros(0, np.uint8) if stored is None else stored).tobytes())
        name, version = meta["format"], meta["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as cause:
        actual = "a file without meta" if stored is None else "meta of another program"
        raise UsageError(f"{where}: expected a recording, found {actual}; make one with record") from cause
    if (name, version) != (FORMAT, VERSION):
        cure = "record again, or take a newer cudnn-convert"
        raise UsageError(f"{where}: expected a {FORMAT} {VERSION}, found {name} {version}; {cure}")
    if missing := [key for key in (*_FACTS, *_SIDES) if key not in meta]:
        raise UsageError(f"{where}: meta: expected {', '.join(missing)}, found none; record again")
    if wrong := [name for name, is_so in _FORMS.items() if not is_so(meta[name])]:
        raise UsageError(f"{where}: meta: expected {wrong[0]} as record writes it, found another form")
    return dict(meta)


def _with_type(value: Array, dtype: str) -> Array:
    """Restore bfloat16 from the two bytes in NumPy's files.

    NumPy's files know no bfloat16.
    """
    if value.dtype != np.dtype("V2") or dtype != "bfloat16":
        return value
    import ml_dtypes

    return value.view(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class Golden:
    """A recording in a plan's tensor names.

    `feeds` and `answers` have one dict by tensor for each call.
    """

    recording: Recording
    feeds: tuple[dict[str, Array], ...]
    answers: tuple[dict[str, Array], ...]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the recording, for the report."""
        return dict(self.recording.facts)

    def widen(self, noise: float) -> float:
        """Return the device's possible noise for a float32 noise of `noise`."""
        return max(effort.TF32, effort.TF32_ROUNDINGS * noise) if self.recording.is_tf32 else noise

    def instead(
        self, exact: Sequence[Sequence[Array]], wanted: Sequence[str], keys: Mapping[str, str]
    ) -> list[list[Array]]:
        """Return the reference's answers `exact` to `wanted`, with recorded answers in place.

        `keys`: the outputs' keys by tensor. Raises UsageError where a shape or a type is not the source's.
        """
        reasons: list[str] = []
        parts = []
        for k, (values, answers) in enumerate(zip(exact, self.answers, strict=True)):
            parts.append([answers.get(name, value) for name, value in zip(wanted, values, strict=True)])
            for name, value, array in zip(wanted, values, parts[-1], strict=True):
                if array.shape != value.shape or not _is_same_type(array.dtype, value.dtype):
                    expected, what = (f"{each.dtype}{list(each.shape)}" for each in (value, array))
                    where = f"{FLAG} {self.recording.path}: feed{k}/out/{keys.get(name, name)}"
                    reasons.append(f"{where}: expected {expected} as the source gives it, found {what}")
        if reasons:
            raise UsageError(*reasons)
        return parts

    def bound(self, bound: compare.Tolerance, dtype: np.dtype[Any], noise: float = 0.0) -> compare.Tolerance:
        """Return the tolerance of an output, wide enough for TF32 on the recording's device.

        `noise` is how far float32's rounding moves it. A bound that the user asked for stays.
        """
        if not self.recording.is_tf32 or dtype.name != "float32" or bound.origin == "given":
            return bound
        wide, reason = self.widen(noise), "at least TF32's rounding, 2^-10, which the recording's device used"
        if wide > effort.TF32:
            reason = f"{effort.TF32_ROUNDINGS} times it for TF32, to which the recording's device rounded"
            bound = replace(bound, reason=f"float32, the model's noise floor is {noise:.1e}")
        return replace(
            bound,
            atol=max(bound.atol, wide),
            rtol=max(bound.rtol, effort.TF32),
            reason=f"{bound.reason}; {reason}",
        )

    def disagreements(
        self,
        exact: Sequence[Sequence[Array]],
        answers: Sequence[Sequence[Array]],
        bounds: Mapping[str, compare.Tolerance],
        failed: Collection[str],
    ) -> list[str]:
        """Describe the `failed` outputs with a failure of the reference too.

        `bounds` are the tolerances of the outputs by key, in the order of the answers.
        """
        begin = "the source's own graph, computed here in float64, differs from the recording too"
        lines: dict[str, str] = {}
        for ours, theirs in zip(exact, answers, strict=True):
            actual, expected = (dict(zip(bounds, side, strict=False)) for side in (ours, theirs))
            for output in compare.outputs(actual, expected, bounds, {}):
                if not output.passed and output.output in failed:
                    lines.setdefault(output.output, f"{output.output}: {begin}: {output.message}")
        return list(lines.values())


def open_recording(judge: Judge, path: Path) -> Golden:
    """Open the recording at `path` for a plan. Raises UsageError for a different signature."""
    golden_file, plan = read_recording(path), judge.plan
    signature, source = plan.signature, plan.source
    starts = {state.start for state in plan.states if state.start is not None}
    ends = {state.end for state in plan.states if state.end is not None}
    if plan.streaming is not None:
        starts |= {state.start for state in plan.streaming.states}
        ends |= {state.end for state in plan.streaming.states}
    free = {key for key, name in signature.inputs.items() if name in starts}
    inputs = _pair(path, "inputs", source.inputs, golden_file.inputs, free)
    free = {key for key, name in signature.outputs.items() if name in ends}
    outputs = _pair(path, "outputs", source.outputs, golden_file.outputs, free)
    fed = tuple(
        judge.fit({key: feed[name] for key, name in inputs.items()}, where=f"{FLAG} {path}: feed{k}/in")
        for k, feed in enumerate(golden_file.feeds)
    )
    fed = tuple(feed | begin_states(plan, feed) for feed in fed)
    answers = tuple(
        {signature.outputs[key]: answer[name] for key, name in outputs.items()}
        for answer in golden_file.answers
    )
    return Golden(golden_file, fed, answers)


def _pair(
    path: Path, side: str, wanted: Mapping[str, str], recorded: Mapping[str, str], free: set[str]
) -> dict[str, str]:
    """Return the recording's key for each key of the plan, by name or by tensor.

    Those in `free` need none: state that the source keeps itself.
    """
    by_tensor = {name: key for key, name in recorded.items() if key not in wanted}
    keys = {key: key if key in recorded else by_tensor.get(name) for key, name in wanted.items()}
    missing = [key for key, name in keys.items() if name is None and key not in free]
    unknown = [key for key in recorded if key not in keys.values()]
    if missing or unknown:
        parts = [f"nothing for {', '.join(missing)}"] if missing else []
        parts += [f"{', '.join(unknown)}, which the conversion does not have"] if unknown else []
        begin = f"{FLAG} {path}: {side}: expected {', '.join(wanted)}"
        cure = f"record with the --{side} of the conversion"
        raise UsageError(f"{begin}, found {' and '.join(parts)}; {cure}")
    return {key: name for key, name in keys.items() if name is not None}


def require_accepted(judge: Judge, source: RunningSource, golden: Golden) -> None:
    """Raise UsageError where the source refuses a recorded feed."""
    for k, feed in enumerate(golden.feeds):
        judge.require_accepted(source, feed, where=f"{FLAG} {golden.recording.path}: feed{k}/in")


def _is_same_type(dtype: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return True if two types count as equal.

    Strings have a type in each runtime, and one more in files.
    """
    return dtype == other or {dtype.kind, other.kind} <= set("OSU")
