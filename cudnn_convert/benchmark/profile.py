"""`profile(callable, feeds)`: where the time of a pipeline goes, Python included, in a sentence.

Calls are timed as they are, with the runtimes' calls noted; TensorFlow's own profiler runs over some of them.
Where Python takes much, the same calls run once more under Python's profiler, which only names the function:
its shares would be wrong, for it slows Python and nothing else.

TensorFlow's trace is an XSpace: lines of events by thread (tensorflow v2.21.0 tsl/profiler/protobuf/
xplane.proto). It has an event for what a thread of the executor works off at once, with the number of the
iteration where that is in a loop, and in it an event for each op that takes more than some microseconds; the
rest are small ops, and what handing them around costs (core/common_runtime/executor.cc `ExecutorState`).
ONNX Runtime's is a list of events in JSON, one for each call of a node; those of a loop's body lie in the
loop's (onnxruntime v1.29.0 core/framework/sequential_executor.cc).
"""

import cProfile
import json
import pstats
import re
import site
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final

from cudnn_convert.benchmark.models import Opening
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS, part_file
from cudnn_convert.private import tf_private
from cudnn_convert.text import first_line

#: Ops that are recurrences by themselves, of either runtime.
RECURRENT: Final = frozenset(
    "BlockLSTM BlockLSTMV2 LSTMBlockCell GRUBlockCell GRUBlockCellV2 CudnnRNN CudnnRNNV2 CudnnRNNV3 "
    "LSTM GRU RNN DynamicQuantizeLSTM".split()
)
LOOPS: Final = frozenset({"Loop", "Scan"})
#: The name of the event around each call.
STEP: Final = "cudnn_convert.step"
_PROCESS: Final = "ExecutorState::Process"
_ITERATION: Final = "iter_num"
#: What TensorFlow calls its own work for a call from Python.
_CALLS: Final = frozenset(
    {"TFE_Py_Execute", "TFE_Py_ExecuteCancelable", "TFE_Py_FastPathExecute", "EagerExecute", "FunctionRun"}
)
_OP: Final = re.compile(r"(?P<node>[\w.][\w.\-/>\\]*):(?P<op>_?[A-Z]\w*)")
#: Before the op's own name: oneDNN's variant of it.
_VARIANT: Final = re.compile("^_(?:Mkl|OneDnn)(?:Native)?")
_BODY: Final = re.compile(r"^(.*?while(?:_\d+)?)(?:/|$)")

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call: duration, and spans of the runtime's work.

    Both are in microseconds, the spans from the begin of the call.
    """

    wall: float
    runtime: tuple[Span, ...] = ()


@dataclass(slots=True)
class Work:
    """Microseconds of work by the threads of a runtime, for all calls together.

    `ops` by op, `recurrences` by node and `loops` by name are what stands in both; `small` are ops that have
    no event of their own, in loops and elsewhere. `busy` is when any thread worked.
    """

    ops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    recurrences: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    loops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    small_in_loops: float = 0.0
    small: float = 0.0
    busy: float = 0.0

    @property
    def total(self) -> float:
        """The work of all threads."""
        return sum(self.ops.values()) + self.small + self.small_in_loops

    def add(self, op: str, node: str, micros: float, *, in_loop: bool) -> None:
        """Count the work of an op."""
        self.ops[op] += micros
        if op in RECURRENT:
            self.recurrences[node] += micros
        elif in_loop:
            body = _BODY.match(node)
            self.loops[body[1] if body else node] += micros


def read_tensorflow(folder: Path) -> tuple[list[TimedCall], Work]:
    """Read the calls and the work from the newest trace below a folder.

    The trace is only parsed, and nothing of it is executed.
    """
    files = sorted(folder.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    return summarise_tensorflow(tf_private.parse_xspace(files[-1].read_bytes()))


def summarise_tensorflow(space: Any) -> tuple[list[TimedCall], Work]:
    """Return the calls and the work in an XSpace."""
    events = [*_host_events(space)]
    steps = sorted(span for name, _, span, _ in events if name == STEP)
    work, calls, busy = Work(), [], []
    lines: dict[int, list[tuple[str, Span, int | None]]] = defaultdict(list)
    for name, line, span, iteration in events:
        if not any(begin <= span[0] < end for begin, end in steps):
            continue
        if name in _CALLS:
            calls.append(span)
        if name == _PROCESS or _OP.fullmatch(name):
            lines[line].append((name, span, iteration))
    for of in lines.values():
        busy += _count_line(of, work)
    work.busy = sum(end - begin for begin, end in join_spans(busy))
    runtime = join_spans([*calls, *busy])
    return [TimedCall(end - begin, tuple(_within(runtime, (begin, end)))) for begin, end in steps], work


def _host_events(space: Any) -> Iterator[tuple[str, int, Span, int | None]]:
    """Yield the events of the host's threads.

    Each is a name, a line, begin and end in microseconds, and the iteration of a loop.
    """
    for plane in space.planes:
        names, stats = plane.event_metadata, plane.stat_metadata
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                iteration = next(
                    (stat.int64_value for stat in event.stats if stats[stat.metadata_id].name == _ITERATION),
                    None,
                )
                name = names[event.metadata_id].name
                yield name, line.id, (begin, begin + event.duration_ps / 1e6), iteration


def _count_line(events: Iterable[tuple[str, Span, int | None]], work: Work) -> list[Span]:
    """Count the work of a thread, and return the spans of work.

    An event counts without the events inside.
    """
    busy = []
    stack: list[list[Any]] = []  # name, end, own microseconds, in a loop

    def close(until: float) -> None:
        while stack and stack[-1][1] <= until:
            name, _, own, in_loop = stack.pop()
            if match := _OP.fullmatch(name):
                work.add(_VARIANT.sub("", match["op"]), match["node"], own, in_loop=in_loop)
            elif in_loop:
                work.small_in_loops += own
            else:
                work.small += own

    for name, (begin, last), iteration in sorted(events, key=lambda event: (event[1][0], -event[1][1])):
        close(begin)
        end = min(last, stack[-1][1]) if stack else last  # by rounding it may outlast the event around it
        if stack:
            stack[-1][2] -= end - begin
        else:
            busy.append((begin, end))
        # Who works off an iteration may go on to what follows the loop: of an op its name says where it is.
        match = _OP.fullmatch(name)
        in_loop = bool(iteration) if match is None else _BODY.match(match["node"]) is not None
        stack.append([name, end, end - begin, in_loop])
    close(float("inf"))
    return busy


def summarise_onnx_runtime(events: Sequence[Mapping[str, Any]]) -> Work:
    """Return the work of nodes in the events of an ONNX Runtime profile.

    The work of a node is without that of the nodes in its body.
    """
    nodes = [
        event
        for event in events
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")
    ]
    work, busy = Work(), []
    stack: list[list[Any]] = []  # op, name, end, own, in a loop

    def close(until: float) -> None:
        while stack and stack[-1][2] <= until:
            op, name, _, own, in_loop = stack.pop()
            work.add(op, name, own, in_loop=in_loop or op in LOOPS)

    for event in sorted(nodes, key=lambda event: (event["ts"], -event["dur"])):
        begin, end = float(event["ts"]), float(event["ts"] + event["dur"])
        close(begin)
        if stack:
            end = min(end, stack[-1][2])
            stack[-1][3] -= end - begin
        else:
            busy.append((begin, end))
        op, name = str(event["args"]["op_name"]), str(event["name"]).removesuffix("_kernel_time")
        outer = next((entry[1] for entry in stack if entry[0] in LOOPS), None)
        stack.append([op, outer or name, end, end - begin, outer is not None])
    close(float("inf"))
    work.busy = sum(end - begin for begin, end in join_spans(busy))
    return work


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans, in order."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _within(spans: Sequence[Span], step: Span) -> Iterator[Span]:
    """Yield the parts of spans in a step, from the step's begin."""
    for span in spans:
        begin, end = max(span[0], step[0]), min(span[1], step[1])
        if begin < end:
            yield begin - step[0], end - step[0]


#: Calls of each feed before anything is measured.
_WARM: Final = 2
#: Calls that are profiled, by default.
STEPS: Final = 5
#: From which share on something is what the time goes to.
_MUCH: Final = 0.5
_SOME: Final = 0.3
#: The calls of runtimes that are noted, where these are imported: module, class, method.
_RUNTIME_CALLS: Final = (
    ("onnxruntime", "InferenceSession", "run"),
    ("tensorflow.python.client.session", "BaseSession", "run"),
    ("tensorflow.lite.python.interpreter", "Interpreter", "invoke"),
    ("tensorflow.lite.python.interpreter", "SignatureRunner", "__call__"),
)
#: Rows of a kind that are kept.
_ROWS: Final = 12


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of a call's time: `share` of the whole, `us` microseconds per call.

    `kind` is `python`, `recurrence`, `loop`, `other`, `waiting` or `runtime`: the work of a runtime of which
    no more is known. The shares of all parts are 1 in all.
    """

    kind: str
    name: str
    share: float
    us: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of `calls` calls of `wall_us` microseconds each.

    `ops` are the same by op, `sentences` what to say of it, the most important first. `trace` is the folder
    of the runtime's own profile, which TensorBoard reads where TensorFlow made it; None where none was kept.
    """

    calls: int
    wall_us: float
    parts: tuple[TimeShare, ...]
    ops: tuple[TimeShare, ...]
    sentences: tuple[str, ...]
    trace: str | None = None

    @property
    def sentence(self) -> str:
        """The most important sentence: the use of the time, with a possible remedy."""
        return self.sentences[0]

    def share(self, kind: str) -> float:
        """Return the share of all parts of a kind."""
        return sum(part.share for part in self.parts if part.kind == kind)


def profile(
    call: Callable[[Any], Any], feeds: Iterable[Any], *, steps: int = STEPS, folder: Path | None = None
) -> Profile:
    """Profile `steps` calls of `call(feed)`, with the feeds in turn.

    A few calls before them are not measured. With `folder` the trace of TensorFlow's profiler is kept there.
    Raises UsageError where there is no feed, or where a profiler of TensorFlow runs already.
    """
    given = [*feeds]
    if not given or steps < 1:
        raise UsageError(f"profile: expected at least one feed and step, found {len(given)} and {steps}")
    chosen = _warm_up(call, given, steps)
    timed = _time_calls(call, chosen)
    work: Work | None = None
    if "tensorflow" in sys.modules:
        traced, work = _trace_tensorflow(call, chosen, folder)
        timed = _join_steps(timed, traced)
    return _summarise(timed, work, lambda: _find_function(call, chosen), folder)


def profile_model(opening: Opening, feeds: Sequence[Any], folder: Path, *, steps: int) -> Profile:
    """Profile an open model.

    The profile of the model's runtime goes to a folder.
    """
    if FORMATS[opening.form].module != "onnx":
        return profile(opening.run, feeds, steps=steps, folder=folder)
    from cudnn_convert.artifacts import onnx

    part = opening.interface.part
    file = str(part_file(opening.path, part.name))
    run = onnx.as_runner(onnx.open_session(file), opening.path, part)
    chosen = _warm_up(run, feeds, steps)
    timed = _time_calls(run, chosen)
    session = onnx.open_session(file, trace=folder / "onnxruntime")
    traced = onnx.as_runner(session, opening.path, part)
    for feed in chosen:
        traced(feed)
    work = summarise_onnx_runtime(json.loads(Path(session.end_profiling()).read_bytes()))
    return _summarise(timed, work, lambda: _find_function(run, chosen), folder)


def _warm_up(call: Callable[[Any], Any], feeds: Sequence[Any], steps: int) -> list[Any]:
    """Call all feeds before any measurement, and return the feeds of `steps` calls.

    The feeds are taken in turn.
    """
    for feed in feeds:
        for _ in range(_WARM):
            call(feed)
    return [feeds[k % len(feeds)] for k in range(steps)]


def _time_calls(call: Callable[[Any], Any], feeds: Sequence[Any]) -> list[TimedCall]:
    """Time the calls, and note the spans of runtime calls."""
    steps = []
    spans: list[Span] = []
    with _note_runtimes(spans):
        for feed in feeds:
            spans.clear()
            start = time.perf_counter()
            call(feed)
            end = time.perf_counter()
            inside = join_spans(spans)
            runtime = tuple(((a - start) * 1e6, (b - start) * 1e6) for a, b in inside)
            steps.append(TimedCall((end - start) * 1e6, runtime))
    return steps


@contextmanager
def _note_runtimes(spans: list[Span]) -> Iterator[None]:
    """Add the span of each call of a runtime to `spans` within the context."""
    with ExitStack() as stack:
        for module, name, method in _RUNTIME_CALLS:
            if (kind := getattr(sys.modules.get(module), name, None)) is not None:
                stack.enter_context(_replace_method(kind, method, spans))
        yield


@contextmanager
def _replace_method(kind: Any, method: str, spans: list[Span]) -> Iterator[None]:
    own = method in vars(kind)
    original = getattr(kind, method)

    @wraps(original)
    def note(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*given, **named)
        finally:
            spans.append((start, time.perf_counter()))

    setattr(kind, method, note)
    try:
        yield
    finally:
        if own:
            setattr(kind, method, original)
        else:
            delattr(kind, method)


def _trace_tensorflow(
    call: Callable[[Any], Any], feeds: Sequence[Any], folder: Path | None
) -> tuple[list[TimedCall], Work]:
    """Return the calls and the work seen by TensorFlow's profiler."""
    import tensorflow as tf

    profiler = tf.profiler.experimental
    options = profiler.ProfilerOptions(host_tracer_level=3, python_tracer_level=0, device_tracer_level=0)
    with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as scratch:
        where = Path(scratch) if folder is None else folder
        try:
            profiler.start(str(where), options)
        except tf.errors.OpError as cause:
            raise UsageError(
                f"profile: expected a free profiler of TensorFlow, found an error: {first_line(cause)}"
            ) from cause
        try:
            for number, feed in enumerate(feeds):
                with profiler.Trace(STEP, step_num=number):
                    call(feed)
        finally:
            profiler.stop()
        return read_tensorflow(where)


def _join_steps(timed: Sequence[TimedCall], traced: Sequence[TimedCall]) -> list[TimedCall]:
    """Return the timed calls, joined with the runtime spans of the trace.

    A trace knows TensorFlow alone, and its functions; other runtimes were noted.
    """
    joined = []
    for step, other in zip(timed, traced, strict=False):
        scale = step.wall / other.wall if other.wall else 1.0
        seen = [(begin * scale, end * scale) for begin, end in other.runtime]
        joined.append(TimedCall(step.wall, tuple(join_spans([*step.runtime, *seen]))))
    return joined


def _summarise(
    steps: Sequence[TimedCall], work: Work | None, find: Callable[[], str | None], folder: Path | None
) -> Profile:
    wall = sum(step.wall for step in steps)
    pieces = {"pre-processing": 0.0, "between calls of the runtime": 0.0, "post-processing": 0.0}
    runtime = 0.0
    for step in steps:
        before, between, after = _split_python(step)
        for name, value in zip(pieces, (before, between, after), strict=True):
            pieces[name] += value
        runtime += sum(end - begin for begin, end in step.runtime)
    if not runtime:
        pieces = {"the callable": wall}
    parts = [_part("python", name, value, wall, len(steps)) for name, value in pieces.items() if value > 0]
    inside, ops = _share_runtime(runtime, work, wall, len(steps))
    parts += inside
    python = sum(part.share for part in parts if part.kind == "python")
    function = find() if python >= _SOME else None
    sentences = tuple(_explain(parts, ops, function)) or (_UNREMARKABLE,)
    trace = None if folder is None else str(folder)
    ordered = tuple(sorted(parts, key=lambda part: -part.share))
    return Profile(len(steps), wall / len(steps), ordered, tuple(ops), sentences, trace)


def _split_python(step: TimedCall) -> tuple[float, float, float]:
    """Return the Python time before, between and after calls of a runtime.

    The three are microseconds in a call.
    """
    if not step.runtime:
        return step.wall, 0.0, 0.0
    first, last = step.runtime[0][0], step.runtime[-1][1]
    inside = sum(end - begin for begin, end in step.runtime)
    return max(first, 0.0), max(last - first - inside, 0.0), max(step.wall - last, 0.0)


def _part(kind: str, name: str, value: float, wall: float, calls: int) -> TimeShare:
    return TimeShare(kind, name, value / wall if wall else 0.0, value / calls)


def _share_runtime(
    runtime: float, work: Work | None, wall: float, calls: int
) -> tuple[list[TimeShare], list[TimeShare]]:
    """Return the runtime's time by recurrence, loop, remaining ops and waiting, and by op.

    Threads work at once: the time in which any worked is divided as the work of all threads is.
    """
    if work is None or not work.total or not runtime:
        return [_part("runtime", "the runtime", runtime, wall, calls)] if runtime else [], []
    busy = min(work.busy, runtime)
    scale = busy / work.total
    rows = [
        *(("recurrence", name, value) for name, value in work.recurrences.items()),
        *(("loop", name, value) for name, value in work.loops.items()),
        ("loop", "small ops in loops", work.small_in_loops),
    ]
    rest = work.total - sum(value for _, _, value in rows)
    rows.append(("other", "other ops", rest))
    parts = [_part(kind, name, value * scale, wall, calls) for kind, name, value in rows if value > 0]
    if runtime > busy:
        parts.append(
            _part("waiting", "handing work to threads, and waiting for them", runtime - busy, wall, calls)
        )
    small = {"small ops in loops": work.small_in_loops, "small ops": work.small}
    ops = [
        _part("op", name, value * scale, wall, calls)
        for name, value in {**work.ops, **small}.items()
        if value > 0
    ]
    return parts, sorted(ops, key=lambda part: -part.share)[:_ROWS]


_UNREMARKABLE: Final = "no part takes half of the time"


def _explain(parts: Sequence[TimeShare], ops: Sequence[TimeShare], function: str | None) -> Iterator[str]:
    """Yield sentences on large parts of the time, the most important first.

    Each says what could be done. The recurrence is judged among all work: who waits may wait for other
    processes of a busy machine.
    """

    def of(*kinds: str) -> list[TimeShare]:
        return sorted((part for part in parts if part.kind in kinds), key=lambda part: -part.share)

    python, steps, waiting = of("python"), of("recurrence", "loop"), _sum(of("waiting"))
    if (share := _sum(python)) >= _MUCH:
        where = f", most of it in {function}" if function else ""
        cure = "work on whole arrays at once, or do it while the next call runs"
        yield f"{python[0].name} in Python takes {share:.0%}{where}; {cure}"
    work = 1 - waiting
    if steps and (share := _sum(steps) / work) >= _MUCH:
        cure = "its steps follow one another: put more rows in a call, or compare another format"
        # A loop may be the recurrence itself, unless ops are known that are and take less.
        is_loop = 0 < _sum(of("recurrence")) < _sum(of("loop"))
        what = "loops and recurrences take" if is_loop else "the recurrence takes"
        yield f"{what} {share:.0%} of the work, most of it {steps[0].name}; {cure}"
    elif ops and (share := ops[0].share / work) >= _MUCH:
        yield f"{ops[0].name} takes {share:.0%} of the work"
    if waiting >= _MUCH:
        cure = "give the runtime fewer threads, put more rows in a call, or leave the machine alone"
        yield f"handing work to threads and waiting takes {waiting:.0%}; {cure}"
    if (share := _sum(of("runtime"))) >= _MUCH:
        yield f"the runtime takes {share:.0%}; it does not say what of"


def _sum(parts: Sequence[TimeShare]) -> float:
    return sum(part.share for part in parts)


def _find_function(call: Callable[[Any], Any], feeds: Sequence[Any]) -> str | None:
    """Return the user's function with the most time in Python, or None.

    What it calls of libraries counts too.
    """
    profiler = cProfile.Profile()
    try:
        profiler.enable()
    except ValueError:  # another profiler is active
        return None
    try:
        for feed in feeds:
            call(feed)
    finally:
        profiler.disable()
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    own: dict[Any, float] = {}
    for key, (_, _, inner, _, callers) in stats.items():
        if _is_of_user(key):
            own[key] = own.get(key, 0.0) + inner
        elif not _is_of_runtime(key):
            for caller, (_, _, _, whole) in callers.items():
                if _is_of_user(caller):
                    own[caller] = own.get(caller, 0.0) + whole
    if not own:
        return None
    file, line, name = max(own, key=lambda key: own[key])
    return f"{name} ({Path(file).name}:{line})"


_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    | {*site.getsitepackages()}
    | {str(Path(__file__).parents[1])}
)
_RUNTIMES: Final = ("tensorflow", "onnxruntime", "keras", "tf_keras")


def _is_of_user(key: tuple[str, int, str]) -> bool:
    return not key[0].startswith(("<", "~", *_LIBRARIES))


def _is_of_runtime(key: tuple[str, int, str]) -> bool:
    file, _, name = key
    return any(f"/{each}/" in file.replace("\\", "/") or f"{each}." in name for each in _RUNTIMES)
