"""The parent: rounds of all models in turns, and the results as medians with bounds.

For each number of threads every model gets a process. In a round each of them makes its calls, one process
after another, so that what else happens on the machine happens to all; ratios are taken round by round. The
bounds of a median are order statistics, which suppose nothing about the times.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate, product
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median, quantiles
from typing import Any, Final

from cudnn_convert import process
from cudnn_convert.benchmark.worker import serve
from cudnn_convert.context import Limits, report_progress
from cudnn_convert.errors import CudnnConvertError, UsageError
from cudnn_convert.options import Options
from cudnn_convert.workers import Worker

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios, with the bounds for `CONFIDENCE`."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(upper: Sequence[float], lower: Sequence[float]) -> Ratio:
    """Return `upper / lower`, round by round."""
    return summary([a / b for a, b in zip(upper, lower, strict=True)])


def summary(values: Sequence[float]) -> Ratio:
    """Return the median with confidence bounds.

    Fewer than six values give the smallest and the largest.
    """
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return Ratio(median(ordered), ordered[rank], ordered[-1 - rank])


def spread(values: Sequence[float]) -> float:
    """Return the interquartile distance as a share of the median.

    It is 0 of a single value.
    """
    if len(values) < 2:
        return 0.0
    first, middle, third = quantiles(values, n=4, method="inclusive")
    return (third - first) / middle


def _rank(count: int) -> int:
    """Return the number of values below the lower confidence bound.

    Each value is on one side of the true median as a coin falls.
    """
    allowed = (1 - CONFIDENCE) / 2 * 2**count
    falls = accumulate(math.comb(count, below) for below in range(count))
    return max(0, len([total for total in falls if total <= allowed]) - 1)


#: Of random inputs, unless the user chooses another: that of proofs.
SEED: Final = 20240229
#: Calls that are profiled.
_PROFILED: Final = 5
#: One thread is faster than several where it is so by this factor at least.
FIGHTING: Final = 1.15


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of a model at a given size and number of threads.

    Times are microseconds of a call: the median of all rounds' medians with its bounds, the 99th percentile
    of all calls. `per_second` counts examples. `first_call_us` is that of the first call of this shape.
    `ratio` is how many times as fast as the model compared with it is, with its bounds; None, with a reason
    in `incomparable`, where their answers do not agree. `batch` and `steps` are None where the data or the
    model has its own.
    """

    model: str
    format: str
    batch: int | None
    steps: int | None
    threads: int
    median_us: float
    median_low_us: float
    median_high_us: float
    p99_us: float
    per_second: float | None
    first_call_us: float
    load_s: float
    peak_mb: float | None
    ratio: float | None
    ratio_low: float | None = None
    ratio_high: float | None = None
    incomparable: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """All rows, the base model of the ratios, and the profiles.

    There is a profile of each model for each number of threads.
    """

    against: str
    results: tuple[Measurement, ...]
    notes: tuple[str, ...]
    machine: Mapping[str, Any]
    profiles: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> str:
        """Return the JSON printed by `--json`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, allow_nan=False)


#: What marks a report's JSON as one of a benchmark.
FORMAT: Final = "cudnn_convert benchmark"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The arguments of a benchmark: models, sizes, numbers of threads, and rounds.

    `steps` is empty where `options` name data. `profile` is a folder for the profiles, or None.
    """

    models: Sequence[Path]
    against: Path
    batches: Sequence[int]
    steps: Sequence[int]
    threads: Sequence[int]
    rounds: int
    time_first: bool
    seed: int
    options: Options
    atol: float
    rtol: float
    profile: Path | None = None


class _WorkerError(CudnnConvertError):
    """A worker's refusal, with the exit code of the single command."""

    def __init__(self, message: str, code: int) -> None:
        self.exit_code = code  # type: ignore[misc]
        super().__init__(message)


class _ModelWorker(Worker):
    """A worker for measuring a model.

    Each request waits for its answer.
    """

    def __init__(self, model: Path, limits: Limits, until: float) -> None:
        self.model, self._limits, self._until = model, limits, until
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        super().__init__(serve, hear=self._answers.put)

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises CudnnConvertError for a refusal, a crash, or time that is over.
        """
        self.send({"do": do, **request}, self._until)
        try:
            line = self._answers.get(timeout=self.seconds_left)
        except Empty:
            self.kill_late()
            line = None
        if line is None:
            raise CudnnConvertError(f"{self.model}: {self.explain_end(self._limits)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _WorkerError(answer["error"], answer["exit_code"])
        return answer


def run_benchmark(call: Benchmark) -> BenchmarkResult:
    """Measure the models of a benchmark.

    Raises the errors of `cudnn_convert.errors`: one model that does not run ends all.
    """
    models = [call.against, *(model for model in call.models if model != call.against)]
    here = process.count_cores()
    if too_many := [count for count in call.threads if count > here]:
        raise UsageError(
            f"--threads: expected at most {here}, the cores of this process, found {max(too_many)}"
        )
    rows: list[Measurement] = []
    notes: list[str] = []
    profiles: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as folder:
        for threads in call.threads:
            with _processes(models, call.options) as workers:
                bench = _Experiment(call, threads, workers, Path(folder), notes)
                rows += bench.measure()
                profiles += bench.profile()
    ordered = sorted(
        rows, key=lambda row: call.models.index(Path(row.model)) if Path(row.model) in call.models else -1
    )
    _compare_threads(profiles, rows)
    machine = {"cores": here, "processor": _processor(), "rounds": call.rounds}
    return BenchmarkResult(
        str(call.against), tuple(ordered), tuple(dict.fromkeys(notes)), machine, tuple(profiles)
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")


@contextmanager
def _processes(models: Sequence[Path], options: Options) -> Iterator[list[_ModelWorker]]:
    """Yield a process for each model within the context."""
    limits = Limits.of(options.limit)
    until = time.monotonic() + limits.seconds
    with ExitStack() as stack:
        workers = []
        for model in models:
            worker = _ModelWorker(model, limits, until)
            stack.callback(worker.end, at_once=True)
            workers.append(worker)
        yield workers


class _Experiment:
    """All measurements with a given number of threads.

    The first process is of the model compared with.
    """

    def __init__(
        self, call: Benchmark, threads: int, workers: Sequence[_ModelWorker], folder: Path, notes: list[str]
    ) -> None:
        self._call, self._threads, self._workers = call, threads, workers
        self._folder, self._notes = folder, notes
        options = call.options.to_json()
        report_progress("loading")
        self._opened = [
            worker.ask("open", model=str(worker.model), options=options, threads=threads)
            for worker in workers
        ]

    def measure(self) -> Iterator[Measurement]:
        """Yield the rows of all sizes."""
        sizes = [*product(self._call.batches or (0,), self._call.steps or (0,))]
        if self._call.steps and not self._opened[0]["has_steps"]:
            self._notes.append(f"{self._call.against}: its steps are fixed, so --steps changes nothing")
            sizes = [(batch, 0) for batch in dict.fromkeys(batch for batch, _ in sizes)]
        for batch, steps in sizes:
            yield from self._measure(batch, steps)

    def _measure(self, batch: int, steps: int) -> Iterator[Measurement]:
        from cudnn_convert.benchmark import answers

        feeds, shown = self._prepare(batch, steps)
        names = [self._folder / f"answers{k}.npz" for k in range(len(self._workers))]
        begun = [
            worker.ask("begin", feeds=str(feeds), answers=str(name))
            for worker, name in zip(self._workers, names, strict=True)
        ]
        reasons = answers.compare_files(names, atol=self._call.atol, rtol=self._call.rtol)
        times: list[list[list[float]]] = [[] for _ in self._workers]
        for number in range(self._call.rounds):
            report_progress("measuring", number, self._call.rounds)
            for worker, begin, of in zip(self._workers, begun, times, strict=True):
                of.append(worker.ask("measure", calls=begin["calls"])["us"])
        base = [median(each) for each in times[0]]
        for worker, opened, begin, of, reason in zip(
            self._workers, self._opened, begun, times, reasons, strict=True
        ):
            middle, p99 = summarise_rounds(of)
            compared: Ratio | None = None if reason else ratio(base, [median(each) for each in of])
            yield Measurement(
                model=str(worker.model),
                format=opened["format"],
                batch=batch or shown,
                steps=steps or None,
                threads=self._threads,
                median_us=round(middle.median, 2),
                median_low_us=round(middle.low, 2),
                median_high_us=round(middle.high, 2),
                p99_us=round(p99, 2),
                per_second=round((batch or shown or 0) / middle.median * 1e6, 1) or None,
                first_call_us=round(begin["first_call_us"], 2),
                load_s=round(opened["load_s"], 4),
                peak_mb=(peak := worker.ask("peak")["peak_mb"]) and round(peak, 1),
                ratio=None if compared is None else round(compared.median, 4),
                ratio_low=None if compared is None else round(compared.low, 4),
                ratio_high=None if compared is None else round(compared.high, 4),
                incomparable=reason or "",
            )

    def _prepare(self, batch: int, steps: int) -> tuple[Path, int | None]:
        """Write feeds of given sizes to a file, and return the path and batch.

        The batch is that of the user's data where none was asked for, else None.
        """
        out, first = self._folder / "feeds.npz", self._workers[0]
        if self._call.options.data is not None:
            answer = first.ask("read", batch=batch, seed=self._call.seed, out=str(out))
            self._notes.append(f"data: {answer['data']}")
            return out, next((shape[0] for shape in answer["shapes"].values() if shape), None)
        answer = first.ask(
            "draw",
            batch=batch,
            steps=steps or 1,
            time_first=self._call.time_first,
            seed=self._call.seed,
            out=str(out),
        )
        self._notes.append(f"inputs: {answer['axes']} (--layout says which axis is first)")
        return out, None

    def profile(self) -> Iterator[dict[str, Any]]:
        """Yield a profile of each model, at the last measured sizes."""
        if self._call.profile is None:
            return
        for number, (worker, opened) in enumerate(zip(self._workers, self._opened, strict=True)):
            report_progress("profiling", number, len(self._workers))
            where = self._call.profile / f"{number}_{worker.model.stem}_{self._threads}"
            where.mkdir(parents=True, exist_ok=True)
            answer = worker.ask("profile", folder=str(where), steps=_PROFILED)
            yield {
                "model": str(worker.model),
                "format": opened["format"],
                "threads": self._threads,
                "folder": str(where),
                **answer,
            }


def summarise_rounds(times: Sequence[Sequence[float]]) -> tuple[Ratio, float]:
    """Return the median of the rounds' medians with bounds, and the calls' 99th percentile."""
    calls = sorted(each for of_round in times for each in of_round)
    return summary([median(each) for each in times]), calls[min(len(calls) - 1, int(0.99 * len(calls)))]


def _compare_threads(profiles: Sequence[dict[str, Any]], rows: Sequence[Measurement]) -> None:
    """Put the sentence on fighting threads first in the profiles.

    Threads fight where fewer of them are faster.
    """
    for each in profiles:
        last = {row.threads: row.median_us for row in rows if row.model == each["model"]}
        if sentence := explain_threads(last, each["threads"]):
            each["sentences"] = [sentence, *each["sentences"]]


def explain_threads(median_us: Mapping[int, float], threads: int) -> str | None:
    """Return a sentence if fewer threads are faster than `threads`, else None."""
    fewer = {count: value for count, value in median_us.items() if count < threads}
    if threads not in median_us or not fewer:
        return None
    best = min(fewer, key=lambda count: fewer[count])
    times = median_us[threads] / fewer[best]
    if times < FIGHTING:
        return None
    word = "one is" if best == 1 else f"{best} are"
    return f"threads fight: {word} {times:.1f}x as fast as {threads}; give the runtime {best}"


def is_ours(path: Path) -> bool:
    """Return True if a file is a report by cudnn-convert, of any kind."""
    from cudnn_convert.report import files

    return files.is_ours(path) or files.read_record(path).get("format") == FORMAT
