"""docs/performance.md and its plots, made of the stored results and of what cuDNN was recorded to take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import conversions
import goals
import listing
from charts import chart
from contender import FUNCTION, JIT, ONNX, ONNX_INT8, OPENVINO_ONNX, SESSION
from goals import Verdict
from kept import Timing, across, timings, unbound
from listing import Cell, Table
from roster import OURS, own, words
from shapes import QUICK, SHAPES

from cudnn_convert.benchmark.rounds import CONFIDENCE, ratio, summary

NAME: Final = "performance.md"
_PLOTS: Final = MappingProxyType(
    {
        "tensorflow": ("TensorFlow", ("tf1", "tf_keras", "keras")),
        "runtimes": (
            "ONNX and other runtimes",
            ("onnx_int8", "bare_node", "tf2onnx_tf_keras", "tf2onnx_tf1", "torch", OPENVINO_ONNX),
        ),
    }
)
_INTRODUCTION: Final = """\
# Performance

This page helps you choose a format, a number of threads and flags. `make bench` measured every figure and
wrote the page. Compare ratios: microseconds belong to one machine. Every implementation has the same random
weights. Its answer was compared with a float64 reference before it was timed. "Largest error" is the largest
absolute difference from the reference."""
_JUDGED: Final = """\
Medians decide, with one thread unless another number is given, at the place that is furthest from the goal.
Some medians of a hundred places stray. So a goal for all places is missed only if both bounds of a
median are beyond it. VNNI are a processor's instructions for products of bytes. For a processor without VNNI
the page gives the speed of int8 without a verdict."""
_METHOD: Final = """\
All implementations of a column are in one process. The process is bound to as many cores as it has threads.
Our implementations are also in a process with one thread and two cores. Two threads are compared with this
process. The implementations run in turn, in an order drawn anew for each round (seed {seed}). A turn has
three parts:

* a pause of {pause} ms
* a call to warm up
* calls for about {block} ms, at least one, of which {counts} counts

The processes do their rounds in turn, because the speed of a shared machine changes from minute to minute.
{processes} such sets of processes follow one another, because each set has other places in memory. Each set
has {rounds} rounds and {seconds} s of each process at least. Each round gives one ratio. A table shows the
median ratio. Below it are the bounds that hold the median with {confidence:.0%} (order statistics). Below our
own times is the distance of the quartiles.

Others' figures are their time over ours: 2.00 takes twice as long as our artifact called in the same way. Our
artifact is called in a Session, as a function of TensorFlow 2, or in another runtime as our ONNX model.
Session and function differ by the cost of a call itself. Keras takes its batch first, as it does by default.
All others take time first. OpenVINO is told to compute in float32, because its default on some processors is
bfloat16. It is also told the sizes of the fused node alone. The sizes of our ONNX model stay open in it."""
_RUNTIMES: Final = """\
All rows are in one process with one thread, in turns as in the tables of speed. Each of {processes} processes
has {rounds} rounds and {seconds} s at least. Our ONNX model and our loops in TensorFlow Lite take every size.
Files of `--lowering fused` and the fused node alone in OpenVINO have fixed sizes. The first row is
microseconds, all others are their time over it."""
_COSTS: Final = """\
These are whole processes, in turn with the processes that they are compared with. If the other process writes
as many files, both end when their files are on the disk. They also begin {pause:.0f} s after all other
files are on the disk. The reason is that a virtual machine gives back the memory of deleted files within
seconds. A process that begins before that has the memory at hand. Other processes wait for each page."""

_LAYOUTS: Final = """\
The network reads lines of text, of 32 x 160 pixels. It has four convolutions with pools and two bidirectional
LSTM layers of 128 units. It was drawn channels first and channels last, with the same weights. Both were
converted, and are called one after another in one process with one thread."""
_DECODING: Final = """\
The task is a beam search of {n} examples with {width} beams and {steps} steps. The model has 3.5 million
parameters: an LSTM of 512 units between an embedding and a softmax of 1350 tokens. All forms are called one
after another in one process with one thread. So is the step alone, at the batch of all beams, as often as the
search has steps. Memory is the amount that the first search adds to the peak of a process of its own. Set-up
is building the graph and its first call, with a model that takes no time to compute. The machine was shared
with other work. Compare ratios, which are of calls beside each other."""


_INPUTS: Final = """\
The input is records of {bits:,} packed bits and a label. `tf.data` reads them from one file with two threads
and unpacks them to a byte a bit. [Feeding a model](feeding.md) has the pipelines. All are in one process and
run in turns, each to the end of its records. Ratios are of runs beside each other, because the machine was
shared with other work. By itself TensorFlow 2 makes `map` parallel and prefetches. Both are off unless
named."""


_THREADS: Final = "How many threads?"
#: Each question with advice and ranges: words, an implementation, what it is compared with, threads, cell.
_ANSWERS: Final = (
    (
        "Which format?",
        "Use ONNX if you may change the runtime. If you stay with TensorFlow, use a SavedModel rather "
        "than the cells that TensorFlow 1 restores cuDNN weights into, or a Keras model of the same weights.",
        (
            ("Our ONNX model over our SavedModel in a Session", ONNX, SESSION, 1),
            ("The same with two threads", ONNX, SESSION, 2),
            ("TensorFlow 1's cells over our SavedModel", "tf1", SESSION, 1),
            ("The same with two threads", "tf1", SESSION, 2),
            ("tf_keras over our SavedModel of `tf.saved_model.load`", "tf_keras", FUNCTION, 1),
            ("The same with two threads", "tf_keras", FUNCTION, 2),
        ),
    ),
    (
        _THREADS,
        "For a batch of one, use one thread (`intra_op_parallelism_threads=1`, in ONNX Runtime "
        "`intra_op_num_threads=1`). A second thread gains little if matrices are small. It serves another "
        "call better. With `tf.saved_model.load`, use "
        "`tf.config.threading.set_intra_op_parallelism_threads(1)`. For large batches and matrices, use as "
        "many threads as there are cores. The table has the time with two threads over the time with one, "
        "both on two cores.",
        (("TensorFlow 1's cells over our SavedModel, two threads", "tf1", SESSION, 2),),
    ),
    (
        "When does `--jit` pay?",
        "It pays for a batch of one and many steps, if lengths and batches recur: XLA compiles anew for "
        "each. Leave it off for large batches.",
        (
            ("LSTM, `--jit` over the SavedModel without", JIT, SESSION, 1, "lstm"),
            ("GRU", JIT, SESSION, 1, "gru"),
        ),
    ),
    (
        "When does int8 pay?",
        "It pays for LSTMs in ONNX, if an answer may differ by the error that the tables name. It pays most "
        "if matrices fill the caches. GRUs have no int8 form.",
        (("`--quantize int8` over float32", ONNX_INT8, ONNX, 1, "lstm"),),
    ),
)
_UNROLLED: Final = """\
Use a loop, unless there are few steps and their number is fixed. An unrolled graph takes one number of steps,
and its set-up grows with that number. `parallel_iterations` and `swap_memory` matter little to a loop on a
CPU, because each step waits for the step before."""
_DEVICE: Final = """\
A batch of one with small matrices gains nothing on a GPU, which starts kernels for each step. Wide matrices
and large batches gain much. The table has milliseconds of `cudnnRNNForward` of cuDNN {version} on one
{device}, to its end, without TensorFlow and without copies (`scripts/record_cudnn.py`; medians of 100 calls).
Beside them stands this page's machine. TF32 is TensorFlow's default."""
_LOOPS: Final = """\
These are the baselines of Yu and others, "Dynamic Control Flow in Large-Scale Machine Learning" (EuroSys
2018), of TensorFlow 1's cells in one Session each. Set-up is building or loading the graph, restoring its
weights and the first call, in a process that did so before. Calls are times over ours, as in the tables of
speed. The machine was shared with other work. Compare ratios, which are of calls beside each other."""


def written(sections: Mapping[str, Any], recording: Mapping[str, Any]) -> dict[str, str]:
    """The page and its plots, by file name, of the sections that were measured.

    `recording` is what real cuDNN was recorded to take, as in tests/data/cudnn/recording.json. What users
    ask comes first, goals and forms of the lowering last.
    """
    parts = [_INTRODUCTION, *_answers(sections, recording)]
    plots: dict[str, str] = {}
    if speed := sections.get("speed"):
        plots = dict(_plots(timings(speed)))
        parts += _speed(speed, plots)
    if runtimes := sections.get("runtimes"):
        parts += ["## Our files in other runtimes", _RUNTIMES.format(**runtimes), _about(runtimes["taken"])]
        tables = listing.speed(timings(runtimes))
        parts += [f"### Runtimes, {table.title}\n\n{table.markdown()}" for table in tables]
    if loops := sections.get("loops"):
        parts += ["## Dynamic loop or unrolled", _LOOPS, _about(loops["taken"])]
        parts += [f"### {table.title}\n\n{table.markdown()}" for table in listing.loops(loops["rows"])]
    if costs := sections.get("conversions"):
        parts += [
            "## What a conversion costs",
            _COSTS.format(pause=conversions.PAUSE),
            _about(costs["taken"]),
            listing.costs(costs["costs"]).markdown(),
        ]
    if repaired := sections.get("repaired"):
        parts += [
            "## Repaired SavedModels of Keras 3",
            _about(repaired["taken"]),
            listing.repaired(repaired["rows"]).markdown(),
        ]
    if layouts := sections.get("layouts"):
        parts += [
            "## Channels first",
            _LAYOUTS,
            _about(layouts["taken"]),
            listing.layouts(layouts["rows"]).markdown(),
        ]
    if decoding := sections.get("decoding"):
        parts += [
            "## Decoding",
            _DECODING.format(**decoding),
            _about(decoding["taken"]),
            listing.decoding(decoding).markdown(),
            listing.setups(decoding["setups"]).markdown(),
        ]
    if inputs := sections.get("inputs"):
        parts += [
            "## Feeding a model",
            _INPUTS.format(**inputs),
            _about(inputs["taken"]),
            *(f"### {table.title}\n\n{table.markdown()}" for table in listing.inputs(inputs)),
        ]
    parts += _judged(sections)
    if speed:
        parts += _forms(timings(speed))
    return {NAME: "\n\n".join(parts) + "\n", **plots}


def _answers(sections: Mapping[str, Any], recording: Mapping[str, Any]) -> Iterator[str]:
    """What users ask, each answered with the figures of the tables below."""
    if speed := sections.get("speed"):
        measured = timings(speed)
        yield "## Which format, threads and flags"
        yield (
            "Ranges are of medians over the sizes of the tables below. Each median has its size beside it. "
            "Below 1.00 the first named is faster. Figures are for one thread unless another number is given."
        )
        if note := speed.get("note"):
            yield note
        for question, advice, figures in _ANSWERS:
            lines = [f"{words}: {given}" for words, *of in figures if (given := _range(measured, *of))]
            if lines:
                yield f"### {question}"
                yield advice
                yield "\n".join(f"- {line}." for line in lines)
            if question == _THREADS and (table := listing.threads(measured, unbound(speed))):
                yield _one_core(speed)
                yield table.markdown()
        if table := listing.device(measured, recording):
            yield "### What did the GPU take?"
            yield _DEVICE.format(**recording, version=_version(recording["cudnn_version"]))
            if given := _over_device(measured, recording):
                yield f"- Our ONNX model with one thread over the GPU in float32: {given}."
            yield table.markdown()
    if loops := sections.get("loops"):
        yield "### Dynamic loop or unrolled?"
        yield _UNROLLED
        yield "\n".join(_unrolled(loops["rows"]))


def _one_core(section: Mapping[str, Any]) -> str:
    """What one thread of ours takes where it may use two cores, over one core."""
    bound = [timing for timing in timings(section) if timing.threads == 1]
    lines = []
    for name in OURS:
        over = across(unbound(section), bound, name)
        ratios = [(value.median, f"{cell.upper()} {shape}") for (cell, shape), value in over.items()]
        if ratios:
            whose = words(name).replace("our", "Our", 1)
            lines.append(f"- {whose}, one thread, two cores over one: {_least_and_most(ratios)}.")
    return "\n".join(lines)


def _over_device(measured: Sequence[Timing], recording: Mapping[str, Any]) -> str:
    """The least and the largest time of our ONNX model over the GPU's, each with where it is."""
    ratios = []
    for timing in (timing for timing in measured if timing.threads == 1):
        took, median = recording["times"][timing.cell].get(timing.shape), timing.median(ONNX)
        if took and median:
            ratios.append((median / took["fma"]["median"], f"{timing.cell.upper()} {timing.shape}"))
    return _least_and_most(ratios)


def _version(number: int) -> str:
    """`91900` as 9.19.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _range(measured: Sequence[Timing], name: str, own: str, threads: int, cell: str = "") -> str:
    """The least and the largest time of `name` over `own`, each with where it is."""
    here = [timing for timing in measured if timing.threads == threads and cell in ("", timing.cell)]
    all_here = [(timing.over(name, own), f"{timing.cell.upper()} {timing.shape}") for timing in here]
    return _least_and_most([(over.median, where) for over, where in all_here if over])


def _least_and_most(ratios: Sequence[tuple[float, str]]) -> str:
    """Ratios, each with its place, as a range; empty for none."""
    if not ratios:
        return ""
    (least, where), (most, there) = min(ratios), max(ratios)
    return f"{least:.2f} ({where}) to {most:.2f} ({there})"


def _unrolled(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What an unrolled graph and a loop take beside ours, by cell and size, with one thread."""
    for row in (row for row in rows if row["threads"] == 1):
        micros, setups = row["micros"], row["setups"]
        unrolled, loop = (ratio(micros[name], micros[SESSION]).median for name in ("unrolled", "parallel_32"))
        seconds = [summary(setups[name]).median for name in ("unrolled", "parallel_32", SESSION)]
        yield (
            f"- {row['cell'].upper()}, {row['told']}: a call takes {unrolled:.2f} of ours unrolled, "
            f"{loop:.2f} as a loop; set-up takes {seconds[0]:.2f} s unrolled, {seconds[1]:.2f} s as a loop, "
            f"{seconds[2]:.2f} s as our SavedModel."
        )


def verdicts(sections: Mapping[str, Any]) -> list[Verdict]:
    """All goals, those of sections that were not measured left out."""
    judged: list[Verdict] = []
    if speed := sections.get("speed"):
        judged += goals.verdicts(timings(speed), unbound(speed), speed["taken"]["vectors"])
    if runtimes := sections.get("runtimes"):
        judged += goals.of_runtimes(timings(runtimes))
    if costs := sections.get("conversions"):
        judged += goals.of_costs(costs["costs"])
    if repaired := sections.get("repaired"):
        judged += goals.of_repaired(repaired["rows"])
    if layouts := sections.get("layouts"):
        judged += goals.of_layouts(layouts["rows"])
    if decoding := sections.get("decoding"):
        judged += goals.of_decoding(decoding)
    if inputs := sections.get("inputs"):
        judged += goals.of_inputs(inputs)
    return judged


def goals_table(judged: Iterable[Verdict]) -> Table:
    rows = [[Cell(verdict.goal), Cell(verdict.figure or "-"), Cell(verdict.word)] for verdict in judged]
    return Table("Goals", ["goal", "measured", "verdict"], rows)


def _judged(sections: Mapping[str, Any]) -> Iterator[str]:
    yield "## Goals"
    yield _JUDGED
    yield goals_table(verdicts(sections)).markdown()


def _forms(measured: Sequence[Timing]) -> Iterator[str]:
    """What our lowering might be instead, over what it is."""
    tables = [*listing.speed(measured, forms=True)]
    if tables:
        yield "## Forms of the lowering"
        yield "The tables have the time of other possible forms of our SavedModel, over ours in a Session."
    for table in tables:
        yield f"### Forms, {table.title}"
        yield table.markdown()


def _speed(section: Mapping[str, Any], plots: Iterable[str]) -> Iterator[str]:
    measured = timings(section)
    present = {timing.shape for timing in measured}
    yield "## Speed"
    yield _METHOD.format(
        rounds=section["rounds"],
        seconds=section["seconds"],
        processes=section["processes"],
        seed=section["seed"],
        **section["round"],
        confidence=CONFIDENCE,
    )
    yield _about(section["taken"])
    if note := section.get("note"):
        yield note
    if section["absent"]:
        names = ", ".join(words(name) for name in section["absent"])
        yield f"Not installed where this was measured: {names}."
    shapes = [[Cell(shape.name), Cell(shape.told)] for shape in (*SHAPES, *QUICK) if shape.name in present]
    yield Table("", ["", "one call"], shapes).markdown().replace("---:", "---")
    for plot in plots:
        cell, family = plot.removesuffix(".svg").split("-")[1:]
        yield f"![{cell.upper()}, 1 thread: {_PLOTS[family][0]}, time over ours by shape]({plot})"
    for table in listing.speed(measured, forms=False):
        yield f"### {table.title}"
        yield table.markdown()


def _plots(measured: Sequence[Timing]) -> Iterator[tuple[str, str]]:
    for cell in dict.fromkeys(timing.cell for timing in measured):
        here = listing.ordered([timing for timing in measured if timing.cell == cell and timing.threads == 1])
        for family, (title, names) in _PLOTS.items():
            series = {
                words(name).replace("`", ""): [timing.over(name, own(name)) for timing in here]
                for name in names
            }
            shown = {name: values for name, values in series.items() if any(values)}
            if shown:
                about = f"{cell.upper()}, 1 thread, {title}: time over ours"
                yield f"speed-{cell}-{family}.svg", chart(about, [timing.shape for timing in here], shown)


def _about(taken: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in taken["versions"].items())
    cpu = " with ".join(filter(None, [taken["cpu"], " and ".join(taken["vectors"])]))
    machine = f"{cpu}, {taken['cores']} cores, {taken['gigabytes']} GB, {taken['system']}"
    return f"Measured {taken['date']} on {machine}; {versions}."
