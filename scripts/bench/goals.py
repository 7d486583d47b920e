"""What speed and costs are to be, and whether they are: judged by medians, speed mostly with one thread.

What is to hold in many places is judged by the bound of each median that is nearer to the goal: the furthest
of a hundred medians tells how much they stray.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from contender import JIT, ONNX, ONNX_INT8, SESSION, TFLITE, TFLITE_FUSED
from kept import Timing, across
from roster import OURS, own
from shapes import counted

from cudnn_convert.benchmark.rounds import Ratio, ratio, summary

#: How many times faster than TensorFlow 1's cells, by cell and shape.
FASTER: Final = MappingProxyType(
    {("lstm", "u1"): 2.0, ("lstm", "u6"): 3.0, ("lstm", "u2"): 1.4, ("gru", "u1"): 1.6, ("gru", "u6"): 2.5}
)
#: The most that our SavedModel may take over our ONNX model of the same weights.
NEAR_ONNX: Final = MappingProxyType({("gru", "u1"): 3.0, ("gru", "u6"): 5.1})
#: The most that two threads may take over one.
SECOND_THREAD: Final = 1.1
#: How many times as fast batches of 512 records are when they are parsed at once.
BATCHED: Final = 3.0
#: The most that a network of channels-first images may take over the same network channels last.
OTHER_LAYOUT: Final = 1.1
NOWHERE_BELOW: Final = 1.0
#: Our time over that of the best form of TensorFlow.
NEAR_BEST: Final = 1.05
#: The time of ONNX Runtime's own node over ours.
NEAR_NODE: Final = 0.97
#: The time of our ONNX model over that of the same in int8, by a processor with instructions for it: without
#: them it takes three to do what is one with them.
INT8_FASTER: Final = 1.7
INT8_BY: Final = "VNNI"
#: The time of TensorFlow Lite's loops over that of its fused ops.
FUSED_FASTER: Final = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, what was found where it is furthest from it, and whether it is met.

    None: nothing was found, or what was found is not to be judged by it.
    """

    goal: str
    figure: str
    met: bool | None

    @property
    def word(self) -> str:
        if self.met is None:
            return "not judged here" if self.figure else "not measured"
        return "met" if self.met else "not met"


@dataclass(frozen=True, slots=True)
class _Place:
    where: str
    over: Ratio


def verdicts(
    timings: Sequence[Timing], unbound: Sequence[Timing], vectors: Collection[str]
) -> Iterator[Verdict]:
    """Every goal of speed.

    `unbound`: ours with one thread and two cores; `vectors`: the processor's instructions, as `machine` names
    them.
    """
    alone = [timing for timing in timings if timing.threads == 1]
    for (cell, shape), least in FASTER.items():
        here = _at(alone, cell, shape)
        goal = f"SavedModel, {cell.upper()} at {shape}: at least {least}x as fast as TensorFlow 1's cells"
        yield _least(goal, least, _over(here, "tf1", SESSION))
    for (cell, shape), most in NEAR_ONNX.items():
        here = _at(alone, cell, shape)
        goal = f"SavedModel, {cell.upper()} at {shape}: at most {most}x the time of our ONNX model"
        yield _most(goal, most, _over(here, SESSION, ONNX), by=_median)
    goal = f"SavedModel: nowhere below {NOWHERE_BELOW}x of TensorFlow 1's cells, with any number of threads"
    yield _least(goal, NOWHERE_BELOW, _over(timings, "tf1", SESSION), by=_high)
    goal = f"ours with two threads: at most {SECOND_THREAD}x the time with one, on the same two cores"
    both = [timing for timing in timings if timing.threads == 2]
    ratios = [(name, across(both, unbound, name)) for name in OURS]
    two = [_Place(f"{' '.join(at)}, {name}", over) for name, here in ratios for at, over in here.items()]
    yield _most(goal, SECOND_THREAD, two)
    best = [place for timing in alone for place in _beside(timing)]
    share = round((NEAR_BEST - 1) * 100)
    yield _most(f"SavedModel: within {share} % of TensorFlow's best form without XLA", NEAR_BEST, best)
    goal = f"ONNX: at least {NEAR_NODE}x of ONNX Runtime's fused node alone, with any number of threads"
    yield _least(goal, NEAR_NODE, _over(timings, "bare_node", ONNX), by=_high)
    goal = f"ONNX in int8: at least {INT8_FASTER}x as fast as in float32, with {INT8_BY}"
    int8 = _least(goal, INT8_FASTER, _over(alone, ONNX, ONNX_INT8))
    yield int8 if INT8_BY in vectors else replace(int8, met=None)


def of_runtimes(timings: Sequence[Timing]) -> Iterator[Verdict]:
    """A fused TensorFlow Lite file is as fast as a loop."""
    goal = f"TensorFlow Lite, `--lowering fused`: at least {FUSED_FASTER}x as fast as loops"
    yield _least(goal, FUSED_FASTER, _over(timings, TFLITE, TFLITE_FUSED), by=_high)


def _at(timings: Sequence[Timing], cell: str, shape: str) -> list[Timing]:
    return [timing for timing in timings if (timing.cell, timing.shape) == (cell, shape)]


def _over(timings: Sequence[Timing], name: str, own: str) -> list[_Place]:
    values = [(_named(timing), timing.over(name, own)) for timing in timings]
    return [_Place(where, value) for where, value in values if value is not None]


def _beside(timing: Timing) -> Iterator[_Place]:
    """Ours over each of TensorFlow's others, which is compared with ours called in the same way."""
    for name in timing.micros:
        if name in {*OURS, JIT} or own(name) == ONNX:
            continue
        if (value := timing.over(own(name), name)) is not None:
            yield _Place(f"{_named(timing)}, {name}", value)


def _median(place: _Place) -> float:
    return place.over.median


def _high(place: _Place) -> float:
    return place.over.high


def _low(place: _Place) -> float:
    return place.over.low


def _least(
    goal: str, bound: float, places: Sequence[_Place], *, by: Callable[[_Place], float] = _median
) -> Verdict:
    worst = min(places, key=by, default=None)
    return _judged(goal, worst, worst is not None and by(worst) >= bound)


def _most(
    goal: str, bound: float, places: Sequence[_Place], *, by: Callable[[_Place], float] = _low
) -> Verdict:
    worst = max(places, key=by, default=None)
    return _judged(goal, worst, worst is not None and by(worst) <= bound)


def _judged(goal: str, worst: _Place | None, met: bool) -> Verdict:
    return Verdict(goal, f"{worst.over} ({worst.where})", met) if worst else Verdict(goal, "", None)


def _named(timing: Timing) -> str:
    threads = "" if timing.threads == 1 else f", {timing.threads} threads"
    return f"{timing.cell} {timing.shape}{threads}"


def of_costs(costs: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """Every goal of a conversion's cost."""
    for cost in costs:
        if bound := cost["seconds_goal"]:
            over = ratio(cost["seconds"], cost["beside_seconds"])
            goal = f"{cost['name']}: at most {bound}x the time of {cost['beside']}"
            yield Verdict(goal, str(over), over.median <= bound)
        if bound := cost["bytes_goal"]:
            used = summary(cost["memory"]).median
            goal = f"{cost['name']}: at most {bound / 1e6:.0f} MB of memory"
            yield Verdict(goal, f"{used / 1e6:.0f} MB", used <= bound)


def of_repaired(rows: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """A repaired SavedModel is as fast as Keras' own."""
    for bound in sorted({row["bound"] for row in rows}):
        here = [row for row in rows if row["bound"] == bound]
        steps = " or ".join(sorted({counted(row["steps"], "step") for row in here}))
        places = [_Place(_row(row), ratio(row["repaired"], row["keras"])) for row in here]
        goal = f"repaired SavedModel, {steps}: at most {bound}x the time of Keras' own"
        yield _most(goal, bound, places)


def _row(row: Mapping[str, Any]) -> str:
    return f"{row['cell']}, {row['units']} units, batch {row['batch']}"


def of_layouts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """A network of channels-first images is as fast as the same network channels last."""
    places = [
        _Place(f"{row['format']}, batch {row['batch']}", ratio(row["first"], row["last"])) for row in rows
    ]
    goal = f"images channels first: at most {OTHER_LAYOUT}x the time of the same network channels last"
    yield _most(goal, OTHER_LAYOUT, places)


def of_inputs(section: Mapping[str, Any]) -> Iterator[Verdict]:
    """Batches are parsed at once, which is faster the more records a batch has."""
    seconds = section["batches"]["512"]
    over = ratio(seconds["parse_then_batch"], seconds["batch_then_parse"])
    goal = "records of packed bits: batch, then parse at least 3x as fast as parse, then batch, at 512"
    yield Verdict(goal, str(over), over.median >= BATCHED)


def of_decoding(section: Mapping[str, Any]) -> Iterator[Verdict]:
    """A loop costs little more than its steps, and its set-up neither much nor more with more steps."""
    seconds, setups = section["seconds"], section["setups"]
    steps, first = max(setups["loop"], key=int), min(setups["loop"], key=int)
    for goal, most, upper, lower in (
        ("beam search: at most 1.25x the time of its steps alone", 1.25, seconds["loop"], seconds["step"]),
        (
            f"beam search of {steps} steps: a set-up of at most 0.03x that of the unrolled form",
            *(0.03, setups["loop"][steps], setups["unrolled"][steps]),
        ),
        (
            f"beam search: a set-up for {steps} steps of at most 1.1x that for {first}",
            *(1.1, setups["loop"][steps], setups["loop"][first]),
        ),
    ):
        over = ratio(upper, lower)
        yield Verdict(goal, f"{over.median:.3f} [{over.low:.3f}, {over.high:.3f}]", over.median <= most)
