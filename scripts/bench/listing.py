"""The tables, for people: the same cells as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import roster
from contender import ONNX, SESSION
from kept import Timing, across
from roster import FORM, OURS
from shapes import QUICK, SHAPES, counted

from cudnn_convert.benchmark.rounds import Ratio, ratio, summary


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table: a figure, and in smaller letters how sure it is."""

    figure: str
    sure: str = ""

    @property
    def plain(self) -> str:
        return f"{self.figure} {self.sure}".strip()

    @property
    def marked(self) -> str:
        return f"{self.figure}<br><small>{self.sure}</small>" if self.sure else self.figure


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def plain(self) -> str:
        lines = [list(self.heads), *([cell.plain for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        ]
        return "\n".join([self.title, *(line.rstrip() for line in padded)])

    def markdown(self) -> str:
        rows = ["| " + " | ".join(cell.marked for cell in row) + " |" for row in self.rows]
        rule = "|---|" + "---:|" * (len(self.heads) - 1)
        return "\n".join([f"| {' | '.join(self.heads)} |", rule, *rows])


def speed(timings: Sequence[Timing], *, forms: bool | None = None) -> Iterator[Table]:
    """A table for each number of threads and cell: ours in microseconds, the others' time over ours.

    `forms`: the forms of our lowering alone, none of them, or all rows.
    """
    for threads, cell in dict.fromkeys((timing.threads, timing.cell) for timing in timings):
        here = ordered([timing for timing in timings if (timing.threads, timing.cell) == (threads, cell)])
        present = roster.ordered(name for timing in here for name in timing.micros)
        rows = [
            [Cell(roster.words(name)), *(_cell(timing, name) for timing in here), _error(here, name)]
            for name in present
            if forms is None or name.startswith(FORM) == forms
        ]
        if not rows:
            continue
        many = "1 thread" if threads == 1 else f"{threads} threads"
        heads = ["", *(timing.shape for timing in here), "largest error"]
        yield Table(f"{cell.upper()}, {many}", heads, rows)


def threads(timings: Sequence[Timing], unbound: Sequence[Timing]) -> Table | None:
    """Ours with two threads over the same with one, of processes with two cores that took turns."""
    two = ordered([timing for timing in timings if timing.threads == 2])
    shapes = [*dict.fromkeys(timing.shape for timing in two)]
    ratios = {name: across(two, unbound, name) for name in OURS}
    if not any(ratios.values()):
        return None
    rows = []
    for cell in dict.fromkeys(timing.cell for timing in two):
        for name in OURS:
            values = [ratios[name].get((cell, shape)) for shape in shapes]
            cells = [Cell("-") if over is None else _over(over) for over in values]
            rows.append([Cell(f"{cell.upper()}, {roster.words(name)}"), *cells])
    return Table("Two threads over one, two cores", ["", *shapes], rows)


def device(timings: Sequence[Timing], recording: Mapping[str, Any]) -> Table | None:
    """Milliseconds of a call on the recorded GPU, by how it multiplies, and of our ONNX model on this CPU."""
    here = {(timing.cell, timing.shape, timing.threads): timing.median(ONNX) for timing in timings}
    names = [timing.shape for timing in ordered(timings) if timing.shape in recording["times"]["lstm"]]
    shapes = [*dict.fromkeys(names)]
    rows = []
    for cell in dict.fromkeys(timing.cell for timing in timings):
        times = {
            f"the GPU, {told}": [recording["times"][cell][shape][math]["median"] for shape in shapes]
            for math, told in (("fma", "float32"), ("tensor", "TF32"))
        }
        for threads, many in ((1, "1 thread"), (2, "2 threads")):
            times[f"{roster.words(ONNX)}, {many}"] = [here.get((cell, shape, threads)) for shape in shapes]
        rows += [
            [Cell(f"{cell.upper()}, {words}"), *map(_milliseconds, micros)]
            for words, micros in times.items()
            if any(micros)
        ]
    return Table("A GPU", ["ms", *shapes], rows) if rows else None


def _milliseconds(micros: float | None) -> Cell:
    return Cell("-" if micros is None else f"{micros / 1000:.3g}")


def costs(measured: Sequence[Mapping[str, Any]]) -> Table:
    """What conversions cost, each beside the process that it is measured by."""
    rows = []
    for cost in measured:
        seconds, beside = summary(cost["seconds"]), summary(cost["beside_seconds"])
        against = ratio(cost["seconds"], cost["beside_seconds"])
        rows.append(
            [
                Cell(cost["name"]),
                Cell(f"{cost['size'] / 1e6:.0f} MB"),
                Cell(f"{seconds.median:.2f} s", f"{seconds.low:.2f}-{seconds.high:.2f}"),
                Cell(f"{beside.median:.2f} s", cost["beside"]),
                Cell(f"{against.median:.2f}", f"{against.low:.2f}-{against.high:.2f}"),
                Cell(f"{summary(cost['memory']).median / 1e6:.0f} MB"),
            ]
        )
    heads = ["whole process", "checkpoint", "takes", "beside it", "ratio", "memory at its peak"]
    return Table("Conversions", heads, rows)


def repaired(measured: Sequence[Mapping[str, Any]]) -> Table:
    """Repaired SavedModels over Keras' own."""
    rows = []
    for row in measured:
        against = ratio(row["repaired"], row["keras"])
        sizes = f"{row['units']} units, {counted(row['steps'], 'step')}, batch {row['batch']}"
        rows.append(
            [
                Cell(f"{row['cell'].upper()}, {sizes}"),
                Cell(f"{summary(row['keras']).median:.3f} ms"),
                Cell(f"{against.median:.3f}", f"{against.low:.3f}-{against.high:.3f}"),
            ]
        )
    return Table("Repaired SavedModels", ["", "Keras' own for a CPU", "repaired over it"], rows)


def layouts(measured: Sequence[Mapping[str, Any]]) -> Table:
    """Networks of channels-first images over the same channels last."""
    rows = []
    for row in measured:
        against = ratio(row["first"], row["last"])
        rows.append(
            [
                Cell(f"{row['format']}, batch {row['batch']}"),
                Cell(f"{summary(row['last']).median:.3f} ms"),
                Cell(f"{against.median:.3f}", f"{against.low:.3f}-{against.high:.3f}"),
            ]
        )
    return Table("Channels first", ["", "channels last", "channels first over it"], rows)


#: What each search is, in the order of the table.
_SEARCHES = {
    "step": "the step alone, called as often",
    "loop": "`beam_search`",
    "python_paths": "`beam_search`, paths followed in Python",
    "unrolled": "unrolled into a graph",
    "keras": "Keras layers, step by step from Python",
}


def decoding(section: Mapping[str, Any]) -> Table:
    """What a search costs, over the step alone, and its memory."""
    rows = []
    for name, words in _SEARCHES.items():
        seconds = section["seconds"][name]
        against, memory = ratio(seconds, section["seconds"]["step"]), section["memory"].get(name)
        rows.append(
            [
                Cell(words),
                Cell(f"{summary(seconds).median:.2f} s"),
                Cell(f"{against.median:.2f}", f"{against.low:.2f}-{against.high:.2f}"),
                Cell(f"{(memory['after'] - memory['before']) / 1e6:.0f} MB" if memory else "-"),
            ]
        )
    return Table("Beam search", ["", "a batch", "over the step alone", "memory"], rows)


def setups(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """Set-up by number of steps."""
    rows = []
    for steps, loop in measured["loop"].items():
        unrolled = measured["unrolled"][steps]
        share = ratio(loop, unrolled)
        rows.append(
            [
                Cell(counted(int(steps), "step")),
                Cell(f"{summary(loop).median:.2f} s"),
                Cell(f"{summary(unrolled).median:.2f} s"),
                Cell(f"{share.median:.1%}", f"{share.low:.1%}-{share.high:.1%}"),
            ]
        )
    return Table("Set-up", ["", "`beam_search`", "unrolled", "share"], rows)


#: What each form of a recurrence is, in the order of the table.
_FORMS = {
    SESSION: "our SavedModel, in a Session",
    "parallel_32": "`dynamic_rnn`, `parallel_iterations=32` (its default)",
    "parallel_8": "`dynamic_rnn`, `parallel_iterations=8`",
    "parallel_1": "`dynamic_rnn`, `parallel_iterations=1`",
    "swap_memory": "`dynamic_rnn`, `swap_memory=True`",
    "unrolled": "`static_rnn`, unrolled",
}


def _over(over: Ratio) -> Cell:
    return Cell(f"{over.median:.2f}", f"{over.low:.2f}-{over.high:.2f}")


def loops(rows: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """For each cell and size: set-up in seconds, and calls over ours, by number of threads."""
    for cell, sizes in dict.fromkeys((row["cell"], row["told"]) for row in rows):
        here = [row for row in rows if (row["cell"], row["told"]) == (cell, sizes)]
        table = []
        for name, words in _FORMS.items():
            setup = summary(here[0]["setups"][name])
            line = [Cell(words), Cell(f"{setup.median:.2f} s", f"{setup.low:.2f}-{setup.high:.2f}")]
            for row in here:
                over = ratio(row["micros"][name], row["micros"][SESSION])
                ours = Cell(f"{summary(row['micros'][name]).median:.0f} µs")
                line.append(ours if name == SESSION else _over(over))
            table.append(line)
        threads = [f"a call, {counted(row['threads'], 'thread')}" for row in here]
        yield Table(f"{cell.upper()}, {sizes}", ["", "set-up and first call", *threads], table)


#: What each pipeline is, in the order of the table.
_PIPELINES = {
    "parse_then_batch": "parse each record, then batch",
    "parallel_parse_then_batch": "the same, in parallel",
    "parse_batch_decode": "parse batches, unpack each record",
    "batch_then_parse": "batch, then parse and unpack at once",
    "parallel_batch_then_parse": "the same, in parallel",
}


def inputs(section: Mapping[str, Any]) -> Iterator[Table]:
    """Records a second over those of the usual order, by batch; large records, and prefetching."""
    batches = section["batches"]
    heads = ["", *(f"batch {batch}" for batch in batches)]
    rows = []
    for name, words in _PIPELINES.items():
        row = [Cell(words)]
        for batch, seconds in batches.items():
            times = ratio(seconds["parse_then_batch"], seconds[name])
            each = section["records"][batch] / summary(seconds[name]).median
            row.append(Cell(f"{times.median:.2f}", f"{times.low:.2f}-{times.high:.2f}, {each:,.0f} a second"))
        rows.append(row)
    yield Table("Records a second, over parsing each record before batching", heads, rows)
    large = ratio(section["large"]["parse_then_batch"], section["large"]["batch_then_parse"])
    last = ratio(section["prefetch"]["without"], section["prefetch"]["last"])
    yield Table(
        "Where the order matters less",
        ["", "times as fast"],
        [
            [
                Cell("batch before parsing, records of 64 KiB"),
                Cell(f"{large.median:.2f}", f"{large.low:.2f}-{large.high:.2f}"),
            ],
            [
                Cell("prefetch last, a consumer as slow as the pipeline"),
                Cell(f"{last.median:.2f}", f"{last.low:.2f}-{last.high:.2f}"),
            ],
        ],
    )


def ordered(timings: Sequence[Timing]) -> list[Timing]:
    """In the order of the shapes."""
    position = {shape.name: k for k, shape in enumerate((*SHAPES, *QUICK))}
    return sorted(timings, key=lambda timing: position[timing.shape])


def _cell(timing: Timing, name: str) -> Cell:
    if name in OURS:
        median, spread = timing.median(name), timing.spread(name)
        return Cell("-") if median is None or spread is None else Cell(f"{median:.0f} µs", f"±{spread:.0%}")
    over = timing.over(name, roster.own(name))
    return Cell("-") if over is None else Cell(f"{over.median:.2f}", f"{over.low:.2f}-{over.high:.2f}")


def _error(timings: Sequence[Timing], name: str) -> Cell:
    return Cell(f"{max(timing.errors[name] for timing in timings if name in timing.errors):.0e}")
