"""Compares two sides on the same calls: pairs of names, values, and bounds."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array, is_float
from cudnn_convert.report import Verification
from cudnn_convert.report.values import Subject
from cudnn_convert.testing.sides import UNNAMED, Side, array, by_name, is_array, is_recording
from cudnn_convert.verification import compare
from cudnn_convert.verification.compare import OutputDifference, Tolerance
from cudnn_convert.weights import npz_archive

Answers = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a comparison, with the names of `assert_equivalent`."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    atol: float | None
    rtol: float | None
    noise: float | Mapping[str, float]
    dtype: np.dtype[Any] | None
    time_axis: int | Mapping[str, int] | None
    lengths: Any


def judge_sides(
    actual: Side, expected: Side, feeds: Sequence[Mapping[str, Array]], parameters: Parameters
) -> Verification:
    """Compare the answers of `actual` and `expected` to each of the `feeds`.

    The feeds are by the keys of `expected`.
    """
    keys = [*feeds[0]]
    own_names = {theirs: ours for ours, theirs in parameters.inputs.items()}
    if strange := [key for key in own_names if key not in keys]:
        raise UsageError(
            f"inputs: expected {', '.join(keys)}, the inputs of expected, found {', '.join(strange)}"
        )
    taken = pair_inputs(actual, keys, own_names)
    wanted = _answers(expected, feeds, pair_inputs(expected, keys, {}))
    answers = _answers(actual, feeds, taken)
    pairs = pair_outputs([*answers[0]], [*wanted[0]], parameters.outputs)
    # One too many may be called as another's partner is.
    labels = {name: pairs.get(name, f"actual's {name}" if name in wanted[0] else name) for name in answers[0]}
    answers = [{labels[name]: value for name, value in answer.items()} for answer in answers]
    bounds = _bounds(wanted[0], expected, parameters)
    axes = time_axes(parameters.time_axis, feeds, wanted)
    sizes = lengths(parameters.lengths, feeds)
    differences = []
    for k, (ours, theirs) in enumerate(zip(answers, wanted, strict=True)):
        late = beyond(theirs, sizes[k], axes) if sizes is not None else {}
        comparisons = compare.outputs(
            without(ours, late),
            without(theirs, late),
            bounds,
            {},
            mixed=parameters.dtype is not None,
            axes=axes,
        )
        differences.append([compare_without(comparison, late) for comparison in comparisons])
    reports = tuple(compare.aggregate(group, bounds) for group in zip(*differences, strict=True))
    return Verification(
        all(report.passed for report in reports),
        None,
        tuple({key: value.shape for key, value in feed.items()} for feed in feeds),
        reports,
        compare.warnings(reports),
        subject=_subject(actual, expected, {ours: key for key, ours in taken.items()}, pairs),
        recording=expected.recording,
        remarks=compare.remarks(reports),
    )


def _answers(
    side: Side, feeds: Sequence[Mapping[str, Array]], taken: Mapping[str, str]
) -> list[dict[str, Array]]:
    """Return the side's answers by the side's names, a dictionary per call.

    The calls are in order: a side may remember.
    """
    if side.calls is not None and side.calls != len(feeds):
        raise UsageError(f"{side.name}: expected answers to {len(feeds)} calls, found {side.calls}")
    answers: list[dict[str, Array]] = []
    for k, feed in enumerate(feeds, 1):
        if [*feed] != [*feeds[0]] and set(feed) != set(feeds[0]):
            raise UsageError(
                f"feeds: call {k}: expected {', '.join(feeds[0])} as in the first, found {', '.join(feed)}"
            )
        # A copy: what a function does to its arrays is not what the other side is fed.
        answer = side.run({taken[key]: value.copy() for key, value in feed.items()})
        answers.append(by_name(answer, f"{side.name}: call {k}"))
        if set(answers[-1]) != set(answers[0]):
            first, now = (", ".join(answer) for answer in (answers[0], answers[-1]))
            raise UsageError(f"{side.name}: call {k}: expected {first} as in the first, found {now}")
    return answers


def _bounds(wanted: Mapping[str, Array], expected: Side, parameters: Parameters) -> dict[str, Tolerance]:
    noise = (
        parameters.noise if isinstance(parameters.noise, Mapping) else dict.fromkeys(wanted, parameters.noise)
    )
    if strange := [name for name in noise if name not in wanted]:
        raise UsageError(f"noise: expected outputs of {', '.join(wanted)}, found {', '.join(strange)}")
    bounds = {}
    for name, value in wanted.items():
        kind = parameters.dtype if parameters.dtype is not None and is_float(value.dtype) else value.dtype
        bound = compare.tolerance(kind, noise.get(name, 0.0), atol=parameters.atol, rtol=parameters.rtol)
        bounds[name] = expected.bound(bound, kind, noise.get(name, 0.0))
    return bounds


def _subject(actual: Side, expected: Side, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Subject:
    return Subject(
        source=expected.name,
        kind=expected.kind,
        format=actual.kind,
        artifact=actual.name,
        inputs=dict(inputs),
        outputs=dict(outputs),
        recurrences=(),
        notes=(),
    )


def pair_inputs(side: Side, keys: Sequence[str], own_names: Mapping[str, str]) -> dict[str, str]:
    """Map each key of a feed to the side's input name.

    `own_names` has the side's name by key, where they differ. Raises UsageError where a key has no input, or
    an input no key.
    """
    names = {key: own_names.get(key, key) for key in keys}
    wanted = {name: name for name in names.values()}
    if len(wanted) < len(names):
        raise UsageError(
            f"{side.name}: inputs: expected a name for each, found {_join_names(names.values())}"
        )
    if side.inputs is None:
        return names
    from cudnn_convert.artifacts import runners

    there = side.inputs
    own = {name: theirs for theirs, name in runners.pair_outputs(wanted, there).items() if name in wanted}
    if len(own) == len(names) == len(there):
        return {key: own[name] for key, name in names.items()}
    if len(names) == len(there) == 1 and not own_names:
        return dict(zip(names, there, strict=True))
    actual = "an array without a name" if [*names.values()] == [UNNAMED] else _join_names(names.values())
    raise UsageError(
        f"{side.name}: inputs: expected {_join_names(there)}, found {actual}; "
        "pair them with inputs={'of actual': 'of expected'}, and feed those of expected"
    )


def pair_outputs(
    actual: Collection[str], expected: Collection[str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the expected side's output for each actual output with a partner.

    `given` is the same for names that differ. Those left on one side alone are missing, or too many, which is
    for the comparison to say; where both sides have some, a UsageError refuses to guess.
    """
    if len(actual) == len(expected) == 1 and not given:
        return dict(zip(actual, expected, strict=True))
    from cudnn_convert.artifacts import runners

    once = len({*given.values()}) == len(given)
    strange = [
        f"{ours}: {theirs}"
        for ours, theirs in given.items()
        if not once or ours not in actual or theirs not in expected
    ]
    left = [name for name in actual if name not in given]
    wanted = {name: name for name in expected if name not in given.values()}
    paired = {ours: theirs for ours, theirs in runners.pair_outputs(wanted, left).items() if theirs in wanted}
    if strange or (len(paired) < len(left) and len(paired) < len(wanted)):
        cure = "pair them with outputs={'of actual': 'of expected'}"
        wrong = f", not {{{', '.join(strange)}}}" if strange else ""
        raise UsageError(
            f"outputs: expected {_join_names(expected)}, found {_join_names(actual)}; {cure}{wrong}"
        )
    return {**given, **paired}


def _join_names(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def time_axes(given: int | Mapping[str, int] | None, feeds: Answers, answers: Answers) -> dict[str, int]:
    """Return the time axis of each output, where known. Raises UsageError.

    `given`: by output, or one for every output of three axes or more that is as long there as an input is.
    """
    names = answers[0]
    if isinstance(given, Mapping):
        ranks = {name: min(answer[name].ndim for answer in answers) for name in names}
        wrong = [f"{name}: {axis}" for name, axis in given.items() if not 0 <= axis < ranks.get(name, 0)]
        if wrong:
            listed = ", ".join(f"{name} of {rank} axes" for name, rank in ranks.items())
            raise UsageError(f"time_axis: expected axes of {listed}, found {', '.join(wrong)}")
        return dict(given)
    if given is None:
        return {}
    if given < 0:
        raise UsageError(f"time_axis: expected an axis counted from 0, found {given}")
    pairs = [*zip(feeds, answers, strict=True)]
    return {
        name: given
        for name in names
        if all(
            answer[name].ndim > max(given, 2)
            and answer[name].shape[given]
            in {value.shape[given] for value in feed.values() if value.ndim > given}
            for feed, answer in pairs
        )
    }


def lengths(given: Any, feeds: Answers) -> list[Array] | None:
    """Return the number of steps of each row, an array `[batch]` per call.

    `given` is the key of an input, the arrays themselves, or None. Raises UsageError for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str):
        if any(given not in feed for feed in feeds):
            raise UsageError(f"lengths: expected one of {', '.join(feeds[0])}, found {given}")
        sizes = [feed[given] for feed in feeds]
    else:
        sizes = [array(size, "lengths") for size in ([given] if is_array(given) else given)]
    strange = [size for size in sizes if size.ndim != 1 or size.dtype.kind not in "iu"]
    if len(sizes) != len(feeds) or strange:
        what = f"{len(feeds)} arrays of integers [batch], one a call"
        listed = ", ".join(f"{size.dtype}{list(size.shape)}" for size in sizes) or "none"
        raise UsageError(f"lengths: expected {what}, found {listed}")
    return sizes


def beyond(values: Mapping[str, Array], sizes: Array, axes: Mapping[str, int]) -> dict[str, Array]:
    """Return masks of the output values past each row's length.

    A mask is True there, in the output's shape. The batch is the first axis, or the second where time is the
    first. Raises UsageError where no output has an axis of time, or one's batch is not that of the lengths.
    """
    if not axes:
        raise UsageError(
            "lengths: expected outputs with an axis of time, found none; name it with time_axis="
        )
    masks = {}
    for name, axis in axes.items():
        value, batch = values[name], 0 if axis else 1
        if value.ndim < 2 or value.shape[batch] != sizes.size:
            shape = f"{name} {list(value.shape)}"
            raise UsageError(f"lengths: expected {sizes.size} rows in axis {batch} of outputs, found {shape}")
        steps, rows = ([-1 if k == own else 1 for k in range(value.ndim)] for own in (axis, batch))
        late = np.arange(value.shape[axis]).reshape(steps) >= sizes.reshape(rows)
        masks[name] = np.broadcast_to(late, value.shape)
    return masks


def without(values: Mapping[str, Array], late: Mapping[str, Array]) -> dict[str, Array]:
    """Replace values by zeros, or empty values of the type, where `late` is true."""
    kept = dict(values)
    for name, there in late.items():
        if name in kept and kept[name].shape == there.shape:
            kept[name] = np.where(there, np.zeros((), kept[name].dtype), kept[name])
    return kept


def compare_without(difference: OutputDifference, late: Mapping[str, Array]) -> OutputDifference:
    """Subtract the `late` values from a difference's counts.

    They prove no equality.
    """
    there = late.get(difference.output)
    if there is None or not difference.compared:
        return difference
    count = int(there.sum())
    figures = difference.figures
    if figures.counts:
        figures = replace(figures, exact=figures.exact - count)
    return replace(difference, compared=difference.compared - count, figures=figures)


def calls(given: Any) -> list[dict[str, Array]]:
    """Return the arrays of each call by input. Raises UsageError.

    `given`: a mapping, an array for the only input, a sequence of either, or the path of an `.npz` with an
    array for each input, by key, or with those of several calls as `feed0/KEY`; or that of a recording.
    """
    if isinstance(given, str | os.PathLike):
        listed: Sequence[Any] = of_file(Path(given))
    else:
        listed = [*given] if isinstance(given, list | tuple) else [given]
    if not listed:
        raise UsageError("feeds: expected at least one call, found none")
    return [_call(call, f"feeds: call {k}") for k, call in enumerate(listed, 1)]


def of_recording(given: Any) -> list[dict[str, Array]]:
    """Return the feeds of the recording at a path.

    Raises UsageError for anything else.
    """
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".npz":
        path = Path(given)
        if is_recording(npz_archive.load_user_arrays(path, flag="feeds")):
            return calls(path)
    raise UsageError(
        "feeds: expected arrays, found none; a recording alone, given as expected, brings its own"
    )


def of_file(path: Path) -> Sequence[Mapping[str, Array]]:
    """Return the calls in an `.npz`.

    Of a recording they are what was fed alone.
    """
    arrays = npz_archive.load_user_arrays(path, flag="feeds")
    if is_recording(arrays):
        from cudnn_convert.verification import recordings

        return recordings.read_recording(path).feeds
    return npz_archive.calls(arrays, where=f"feeds {path}")


def _call(given: Any, where: str) -> dict[str, Array]:
    if is_array(given):
        return {UNNAMED: array(given, where)}
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}: expected a mapping of arrays or an array, found a {type(given).__name__}")
    return {str(key): array(value, f"{where}: {key}") for key, value in given.items()}
