"""Prints maps, inspections, choices and proofs, and shows progress.

Maps and inspections go to stdout: tables on a terminal, plain lines in a pipe. Choices, proofs and the
progress line, which comes where work takes over a second, go to stderr.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich import progress
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudnn_convert.artifacts.runners import WHOLE, Answers, measure
from cudnn_convert.inspection import End, InspectedRecurrence, Inspection, WeightTensor
from cudnn_convert.model import Array
from cudnn_convert.report import Report, Verification, verdict
from cudnn_convert.report.values import (
    DecodingReport,
    GateReport,
    MicroReport,
    OpsReport,
    StreamReport,
    Subject,
    TensorRegion,
    VariableReport,
    WeightsReport,
)
from cudnn_convert.storage import remote
from cudnn_convert.text import command, visible

if TYPE_CHECKING:
    from cudnn_convert.batch import Summary
    from cudnn_convert.batch.jobs import Job
    from cudnn_convert.benchmark.rounds import BenchmarkResult

_UNTOLD: Final = "?"
_LIVE: Final = {True: "yes", False: "no", None: "?"}
_STREAMS: Final = {True: "yes", False: "no", None: "-"}
_RUNS: Final = {True: "yes", False: "no", None: "not known"}
#: Columns of a file or a pipe, where nothing needs to be cut.
_WIDE: Final = 10_000
#: Seconds in which no progress is shown.
_AFTER: Final = 1.0
#: The step whose amounts are bytes.
_BYTES: Final = frozenset({"lowering", "writing", "digesting", "fetching", "uploading"})
#: Names of files are no markup.
_AS_IT_IS: Final[Mapping[str, Any]] = {"highlight": False, "markup": False, "emoji": False}
#: How many values of an output are printed.
_SHOWN: Final = 4


def show_map(subject: Subject) -> None:
    """Print a weight map on stdout.

    A part that was not located is `?`.
    """
    assert subject.weights is not None
    console = Screen(stderr=False)
    where = subject.artifact or f"what --format {subject.format} writes"
    console.print(f"{subject.source}: {subject.kind}, to {where}", style="bold")
    for recurrence in subject.recurrences:
        sizes = f"{recurrence.layers} layers, {recurrence.directions} directions, {recurrence.units} units"
        sizes += f", {recurrence.input_size} inputs, {recurrence.dtype}"
        console.print(f"{recurrence.node or '(root)'}: {recurrence.mode}, {sizes}", style="bold")
        console.print(_orders(subject.weights, recurrence.node))
        console.print(_gates(subject.weights.gates[recurrence.node]))
    if subject.weights.variables:
        console.print(_variables(subject.weights.variables))
    console.print_each("note", subject.notes)


def _orders(weights: WeightsReport, node: str) -> str:
    sides = (("source", weights.source_layouts[node]), ("target", weights.target_layouts[node]))
    return "; ".join(f"gates in the {side}: {', '.join(layout.gates) or _UNTOLD}" for side, layout in sides)


def _gates(rows: Iterable[GateReport]) -> Table:
    table = _make_table("layer", "direction", "gate", "weights", "source", "target")
    for row in rows:
        target = f"{_region(row.target)}{f' ({row.doubt})' if row.doubt else ''}"
        table.add_row(str(row.layer), row.direction, row.gate, row.weights, _region(row.source), target)
    return table


def _region(region: TensorRegion | None) -> str:
    return _UNTOLD if region is None else f"{region.tensor}{region.part} {region.axes}"


def _variables(rows: Iterable[VariableReport]) -> Table:
    table = _make_table("other tensor", "shape", "role", "target")
    for row in rows:
        table.add_row(row.source, str(list(row.shape)), row.role, row.target or "-")
    return table


def show_inspection(inspection: Inspection) -> None:
    """Print an inspection on stdout.

    Recurrences of uncalled functions are only counted.
    """
    console = Screen(stderr=False)
    versions = ", ".join(f"{name} {version}" for name, version in inspection.versions.items())
    title = f"{inspection.source}: {inspection.kind}{f' ({versions})' if versions else ''}"
    console.print(title, style="bold")
    shown = [each for each in inspection.recurrences if each.live is not False or each.function is None]
    if shown:
        console.print_table(_recurrences(shown))
        for line in (*_settings(shown), *_weights(shown)):
            console.print(line)
    if hidden := len(inspection.recurrences) - len(shown):
        console.print(f"{hidden} more in functions that nothing calls: dead (--json lists them)")
    for offered in inspection.signatures:
        name = f"signature {offered.key}" if offered.key else "signature chosen from the graph"
        console.print(f"{name}{'' if offered.taken else ' (not taken)'}")
        for kind, ends in (("takes", offered.inputs), ("gives", offered.outputs)):
            for line in _ends(ends):
                console.print(f"  {kind} {line}")
    console.print_each("note", inspection.notes)
    why = f", because of {', '.join(inspection.gpu_ops)}" if inspection.gpu_ops else ""
    console.print(f"runs on a CPU as it is: {_RUNS[inspection.runs_on_cpu]}{why}")
    for reason in inspection.reasons:
        console.print(reason)
    _commands(console, inspection)
    if not any(each.streams is False for each in inspection.recurrences):  # which the table has
        console.print_each("not in chunks of steps", inspection.stream_reasons)


def _commands(console: Screen, inspection: Inspection) -> None:
    if inspection.command is not None:
        console.print_commands("convert it with:", inspection.command)
    elif inspection.candidates:
        commands = (candidate.command for candidate in inspection.candidates)
        console.print_commands("convert it with one of:", *commands)
    elif not inspection.runs_on_cpu:
        console.print("no command converts it as it is")
    if inspection.stream_command is not None:
        lead = "in chunks of steps, with its states as inputs and outputs:"
        console.print_commands(lead, inspection.stream_command)
    if inspection.decode_command is not None:
        console.print_commands("with a search over its next tokens in the graph:", inspection.decode_command)


def _recurrences(recurrences: Iterable[InspectedRecurrence]) -> Table:
    table = _make_table(
        *"recurrence op mode layers directions units inputs dtype axes lengths dropout live streams".split()
    )
    for recurrence in recurrences:
        sizes = (recurrence.layers, recurrence.directions, recurrence.units, recurrence.input_size)
        units = [*map(_width, sizes)]
        units[2] += f" to {recurrence.projection}" if recurrence.projection else ""
        table.add_row(
            recurrence.name or "(root)",
            recurrence.op or "-",
            recurrence.mode or "?",
            *units,
            recurrence.dtype,
            ", ".join(recurrence.axes),
            "yes" if recurrence.lengths else "no",
            f"{recurrence.dropout:g}",
            _LIVE[recurrence.live],
            _STREAMS[recurrence.streams],
        )
    return table


def _weights(recurrences: Iterable[InspectedRecurrence]) -> Iterator[str]:
    """Yield lines on the place of weights, a line per shared set.

    Recurrences that share their weights have one line.
    """
    sharing: dict[tuple[str, tuple[WeightTensor, ...], tuple[WeightTensor, ...]], list[str]] = {}
    for recurrence in recurrences:
        weights = (recurrence.copies, recurrence.raw, recurrence.canonical)
        sharing.setdefault(weights, []).append(recurrence.name or "(root)")
    for (copies, raw, canonical), names in sharing.items():
        yield f"weights of {', '.join(names)}: {copies}"
        for kind, tensors in (("raw", raw), ("canonical", canonical)):
            if tensors:
                yield f"  {kind}: {', '.join(f'{tensor.name} {list(tensor.shape)}' for tensor in tensors)}"


def _settings(recurrences: Iterable[InspectedRecurrence]) -> Iterator[str]:
    for recurrence in recurrences:
        if recurrence.settings:
            settings = ", ".join(f"{key}={value}" for key, value in recurrence.settings.items())
            yield f"{recurrence.name}: {settings}"


def _ends(ends: Mapping[str, End]) -> Iterator[str]:
    for key, end in ends.items():
        shape = "" if end.shape is None else f" [{', '.join(_width(width) for width in end.shape)}]"
        yield f"{key} = {end.tensor}{f' {end.dtype}' if end.dtype else ''}{shape}"


def _width(width: Any) -> str:
    return "?" if width is None else str(width)


def show_answers(answers: Answers, *, quiet: bool = False) -> None:
    """Print a table of outputs on stdout, and the feeds on stderr.

    The table has a row for each output of every call.
    """
    if not quiet:
        errors = Screen(stderr=True)
        kind = "random whole numbers" if answers.drawn == WHOLE else "random"
        origin = answers.data or "given" if answers.seed is None else f"{kind}, seed {answers.seed}"
        errors.print(f"{answers.artifact}: {answers.format}, signature {answers.signature}")
        for feed in answers.feeds:
            shapes = (f"{key} {value.dtype} {[*value.shape]}" for key, value in feed.items())
            errors.print(f"inputs ({origin}): {', '.join(shapes)}")
    table = _make_table("output", "dtype", "shape", "min", "max", "mean", "first values")
    for answer in answers.outputs:
        for key, value in answer.items():
            figures = ("-" if number is None else f"{number:.6g}" for number in measure(value).values())
            table.add_row(key, str(value.dtype), str([*value.shape]), *figures, _first_values(value))
    Screen(stderr=False).print(table)


def _first_values(value: Array) -> str:
    shown = ", ".join(_show_value(item) for item in value.ravel()[:_SHOWN])
    return f"{shown}, ..." if value.size > _SHOWN else shown


def _show_value(item: Any) -> str:
    if isinstance(item, bytes):
        return repr(item.decode(errors="backslashreplace"))
    return f"{float(item):.6g}" if isinstance(item, np.floating) else str(item)


def explain(report: Report, *, chosen_here: bool = False, verbose: bool = False) -> None:
    """Print choices, notes, warnings and the verdict on stderr, in order.

    Notes and warnings are what asks for something to be done. `chosen_here`: no flag named the format.
    `verbose`: recurrences, the flags that repeat the choices, and the figures of the proof too.
    """
    console = Screen(stderr=True)
    if verbose and report.recurrences:
        console.print(_sizes(report))
    if chosen_here and report.out is not None:
        console.print(f"note: format {report.format}; --format chooses another")
    console.print_each("note", report.notes)
    if verbose and report.flags:
        console.print(f"repeat with: {command(report.flags)}")
    console.print_each("warning", report.warnings)
    if report.micro is not None:
        console.print(describe_micro(report.micro))
    if report.out is None:
        return
    if report.verification is None:
        console.print(verdict.of_conversion(report), style="bold red")
    else:
        _proof(console, report.verification, verdict.of_conversion(report), verbose=verbose)


def describe_micro(needed: MicroReport) -> str:
    """Return a line on the needs of a file in TensorFlow Lite Micro."""
    return f"in TensorFlow Lite Micro: {'; '.join(f'{name} {words}' for name, words in needed.facts)}"


def explain_proof(result: Verification, *, verbose: bool = False) -> None:
    """Print the warnings of a verification and the verdict on stderr.

    With `verbose` the figures are printed too.
    """
    _proof(Screen(stderr=True), result, verdict.of_verification(result), verbose=verbose)


def _proof(console: Screen, result: Verification, sentence: str, *, verbose: bool) -> None:
    if verbose:
        _figures(console, result)
    console.print_each("warning", result.warnings)
    console.print(sentence, style="bold" if result.end_to_end == "equal" else "bold yellow")


def _sizes(report: Report) -> Table:
    table = _make_table("recurrence", "op", "mode", "layers", "directions", "units", "inputs", "weights")
    for recurrence in report.recurrences:
        sizes = (recurrence.layers, recurrence.directions, recurrence.units, recurrence.input_size)
        table.add_row(recurrence.node, recurrence.op, recurrence.mode, *map(str, sizes), recurrence.weights)
    return table


def _figures(console: Screen, result: Verification) -> None:
    """Print each recurrence, each output, the further comparisons, and the inputs."""
    if result.recurrences:
        console.print(_recurrence_table(result))
    table = _make_table("output", "values", "max abs error", "max error [% of tolerance]", "judged as")
    for output in result.outputs:
        share = f"{output.needed:.1%}".rstrip("%") if output.judged else "not judged"
        table.add_row(output.output, str(output.compared), f"{output.worst:.2e}", share, output.reason)
    console.print(table)
    if result.ops is not None:
        console.print(describe_ops(result.ops))
    if result.streaming is not None:
        console.print(_in_chunks(result.streaming))
    if result.decoding is not None:
        console.print(describe_search(result.decoding))
    console.print_each("remark", result.remarks)
    if result.recording:
        console.print(f"judged by {_recording(result.recording)}")
    feeds = (", ".join(f"{key} {list(shape)}" for key, shape in feed.items()) for feed in result.feeds)
    seed = "" if result.seed is None else f" (seed {result.seed})"
    console.print(f"compared on: {'; '.join(feeds)}{seed}")
    if result.data is not None:
        console.print(f"data: {result.data}")


def describe_ops(asked: OpsReport) -> str:
    """Return a line on the ops around recurrences."""
    counts = f"{asked.ops} ops, {asked.constants} constants, {asked.gates} gates"
    regions = f" in {asked.regions} regions" if asked.regions else ""
    return f"around recurrences: {asked.verdict} ({counts}{regions})" if asked.asked else asked.verdict


def _in_chunks(streamed: StreamReport) -> str:
    """Return a line on the answers to feeds in chunks."""
    verdict = f"{'equal to' if streamed.passed else 'different from'} {streamed.beside}"
    worst = f"worst difference {streamed.worst:.2e}, {streamed.needed:.1%} of tolerance"
    hidden = f"; not judged: {', '.join(streamed.unjudged)}" if streamed.unjudged else ""
    return f"in chunks {', '.join(streamed.chunks)}: {verdict} ({streamed.compared} values, {worst}){hidden}"


def describe_search(searched: DecodingReport) -> str:
    """Return a line on a search compared with NumPy's search."""
    verdict = "equal to a search in NumPy" if searched.passed else "different from a search in NumPy"
    rows = f"{searched.examples} rows, {searched.compared} tokens, {searched.ended} ends"
    ties = f", {searched.ties} turned by rounding" if searched.ties else ""
    worst = f"worst difference of scores {searched.worst:.2e}, {searched.needed:.1%} of tolerance"
    return f"decode ({searched.kind}): {verdict} on the step's own numbers ({rows}{ties}; {worst})"


def _recurrence_table(result: Verification) -> Table:
    """Return a table of each recurrence's check, and the power of the inputs."""
    table = _make_table(
        *("recurrence", "layer", "in the artifact", "max abs error", "max error [% of tolerance]"),
        *("wrong weights [tolerances]", "weakest weight [tolerances]", ""),
    )
    for recurrence in result.recurrences:
        shares = (_times(recurrence.smallest), _times(recurrence.weakest))
        numbers = (f"{recurrence.worst:.2e}", f"{recurrence.needed:.1%}".rstrip("%"), *shares)
        numbers = numbers if recurrence.asked else ("", "", "", "")
        layers = ", ".join(map(str, recurrence.layers))
        remarks = [f"{len(recurrence.unseen)} changes show little"] if recurrence.unseen else []
        if recurrence.sampled is not None:
            remarks.append(f"single weights of {recurrence.sampled} rows of each matrix")
        message = recurrence.message or "; ".join(remarks)
        table.add_row(recurrence.node, layers, recurrence.piece, *numbers, message)
    return table


def _times(share: float | None) -> str:
    """Return a share of the tolerance as a multiple."""
    return "-" if share is None else f"{share:,.0f}"


def _recording(facts: dict[str, Any]) -> str:
    """Return a line on a recording: file, recorder, devices and TF32."""
    names = [device["description"] for device in facts["devices"] if device["type"] == "GPU"] or ["CPU"]
    built = "".join(f", {name} {facts[name]}" for name in ("cuda", "cudnn") if facts[name])
    tf32 = "on" if facts["tf32"]["on"] else "off"
    origin = f"{facts['recorder']} from {facts['source']}, TensorFlow {facts['tensorflow']}{built}"
    return f"{facts['file']}: {origin}; {'; '.join(names)}; TF32 {tf32} ({facts['tf32']['reason']})"


def show_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr."""
    Screen(stderr=True).print_each("note", notes)


def show_plan(actions: Iterable[tuple[Job, str]]) -> None:
    """Print the plan of a batch on stdout, a line a model."""
    table = _make_table("what", "source", "OUT", "format", "bytes")
    for job, action in actions:
        table.add_row(action, job.source, job.out, job.options.format, decimal(job.size))
    Screen(stderr=False).print(table)


def show_summary(summary: Summary) -> None:
    """Print the number of models by status, and the proofs, on stderr."""
    table = _make_table("status", "models")
    for status, count in summary.counts.items():
        table.add_row(status, str(count))
    if summary.missing:
        table.add_row("not begun", str(summary.missing))
    console = Screen(stderr=True)
    console.print(table)
    console.print(f"{remote.name_of(summary.path)}: {_describe_proofs(summary)}", style="bold")


def _describe_proofs(summary: Summary) -> str:
    """Return the number of proven models, the largest error, and the unproven rest.

    The error is a share of its tolerance.
    """
    proven = [proof for proof in summary.proofs if proof is not None]
    total = sum(summary.counts.values()) + summary.missing
    facts = []
    if shares := [proof["needed"] for proof in proven if proof["needed"] is not None]:
        facts.append(f"largest error {verdict.percent(max(shares))} of the tolerance")
    if partly := sum(proof["end_to_end"] != "equal" for proof in proven):
        facts.append(f"{partly} not judged end to end")
    left = f"; {without} converted without proof" if (without := summary.proofs.count(None)) else ""
    closeness = f" ({'; '.join(facts)})" if facts else ""
    return f"{len(proven)} of {total} models converted and proven{closeness}{left}"


def show_benchmark(result: BenchmarkResult) -> None:
    """Print a row for each model and size on stdout, then the profiles.

    A profile says where the time of a model goes.
    """
    from cudnn_convert.benchmark.page import micros

    table = _make_table(
        *("model", "batch", "steps", "threads", "median", "bounds", "99 %", "a second", "first call", "load"),
        *("MiB", "times as fast"),
    )
    for row in result.results:
        sizes = ("-" if size is None else str(size) for size in (row.batch, row.steps))
        times = row.incomparable and f"not comparable: {row.incomparable}"
        if row.ratio is not None:
            times = f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
        table.add_row(
            f"{row.model} ({row.format})",
            *sizes,
            str(row.threads),
            micros(row.median_us),
            f"[{micros(row.median_low_us)}, {micros(row.median_high_us)}]",
            micros(row.p99_us),
            "-" if row.per_second is None else f"{row.per_second:,.0f}",
            micros(row.first_call_us),
            micros(row.load_s * 1e6),
            "-" if row.peak_mb is None else f"{row.peak_mb:.0f}",
            times,
        )
    console = Screen(stderr=False)
    console.print(table)
    if len({row.model for row in result.results}) > 1:
        console.print(f"times as fast as {result.against}")
    for profile in result.profiles:
        threads = f"{profile['threads']} thread{'' if profile['threads'] == 1 else 's'}"
        console.print(f"{profile['model']}, {threads}: {profile['sentences'][0]}")
        for sentence in profile["sentences"][1:]:
            console.print(f"  {sentence}")
        for part in profile["parts"]:
            console.print(f"  {part['share']:>6.1%}  {part['name']} ({part['kind']})")


class Screen(Console):
    """A console for names from files, free of markup and control sequences."""

    def __init__(self, *, stderr: bool) -> None:
        is_seen = (sys.stderr if stderr else sys.stdout).isatty()
        width = None if is_seen else _WIDE
        super().__init__(stderr=stderr, width=width, soft_wrap=True, **_AS_IT_IS)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Replace unprintable characters, in cells of tables too."""
        return super().render_str(visible(text), **settings)

    def print_each(self, lead: str, lines: Iterable[str]) -> None:
        """Print each line behind a leading word."""
        for line in lines:
            self.print(f"{lead}: {line}")

    def print_commands(self, lead: str, *commands: Sequence[str]) -> None:
        """Print commands below a leading line."""
        self.print(lead)
        for words in commands:
            self.print(f"  {command(words)}", style="bold")

    def print_table(self, table: Table) -> None:
        """Print a table of text, or paragraphs on a narrow terminal.

        Each row is a paragraph where its columns need a wider terminal.
        """
        if self.measure(table, options=self.options.update(width=_WIDE)).maximum <= self.width:
            self.print(table)
            return
        names = [str(column.header) for column in table.columns]
        for first, *cells in zip(*(column.cells for column in table.columns), strict=True):
            self.print(f"{names[0]} {first}", style="bold")
            pairs = [f"{name} {cell}" for name, cell in zip(names[1:], cells, strict=True)]
            self.print(Padding("; ".join(pairs), (0, 0, 0, 2)), soft_wrap=False)


def _make_table(*columns: str) -> Table:
    """Return a table with folded instead of cut names.

    Names fold where a terminal is narrow.
    """
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


class _Console(Console):
    """A console with a visible cursor.

    A killed process could not bring a hidden cursor back.
    """

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Share(progress.ProgressColumn):
    """A bar and the amounts, if known."""

    _bar = progress.BarColumn(bar_width=24)

    def render(self, task: progress.Task) -> RenderableType:
        return self._bar.render(task) if task.total else Text()


class _Amount(progress.ProgressColumn):
    """The bytes or calls done, of how many."""

    def render(self, task: progress.Task) -> RenderableType:
        if not task.total:
            return Text()
        unit = decimal if task.description in _BYTES else str
        return Text(f"{unit(int(task.completed))} of {unit(int(task.total))}")


class _Time(progress.ProgressColumn):
    """The time left, or the time passed before the first part is done."""

    _passed = progress.TimeElapsedColumn()

    def render(self, task: progress.Task) -> RenderableType:
        if not (task.total and task.completed and task.elapsed):
            return self._passed.render(task)
        left = task.elapsed * (task.total - task.completed) / task.completed
        return Text(f"{timedelta(seconds=math.ceil(left))} left", style="progress.remaining")


class Line:
    """The progress line.

    The thread that works calls `at` and `close`, another draws it. It comes after a second.
    """

    def __init__(self) -> None:
        columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False))
        self._progress = progress.Progress(
            *(*columns, _Share(), _Amount(), _Time()),
            console=_Console(stderr=True),
            refresh_per_second=5,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._step, self._ended, self._lock = "", False, Lock()
        self._timer = Timer(_AFTER, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def at(self, step: str, done: int = 0, total: int = 0) -> None:
        """Take a step with amounts, as a `context.ProgressCallback`."""
        if step != self._step:
            self._step = step
            self._progress.reset(self._task, total=None, description=step)
        self._progress.update(self._task, completed=done, total=total or None)

    def tell(self, text: str) -> None:
        """Print a text above the line."""
        with self._lock:
            self._progress.console.print(visible(text), soft_wrap=True, **_AS_IT_IS)

    def close(self) -> None:
        """Remove the line, or cancel a pending line."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            self._progress.stop()

    def _begin(self) -> None:
        with self._lock:
            if not self._ended:
                self._progress.start()
