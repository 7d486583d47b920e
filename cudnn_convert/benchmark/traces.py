"""What profilers write: spans of TensorFlow's trace and of ONNX Runtime's.

TensorFlow's trace is an XSpace: lines of events by thread (tensorflow v2.21.0 tsl/profiler/protobuf/
xplane.proto). It has an event for what a thread of the executor works off at once, with the number of the
iteration where that is in a loop, and in it an event for each op that takes more than some microseconds; the
rest are small ops, and what handing them around costs (core/common_runtime/executor.cc `ExecutorState`).
ONNX Runtime's is a list of events in JSON, one for each call of a node; those of a loop's body lie in the
loop's (onnxruntime v1.29.0 core/framework/sequential_executor.cc).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cudnn_convert.private import tf_private

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
class Step:
    """One call: how long it took, and when in it the runtime worked; microseconds from its begin."""

    wall: float
    runtime: tuple[Span, ...] = ()


@dataclass(slots=True)
class Work:
    """Microseconds that threads of a runtime worked, all calls together.

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
        """Count the work of one op."""
        self.ops[op] += micros
        if op in RECURRENT:
            self.recurrences[node] += micros
        elif in_loop:
            body = _BODY.match(node)
            self.loops[body[1] if body else node] += micros


def read_tensorflow(folder: Path) -> tuple[list[Step], Work]:
    """The calls and the work in the newest trace below a folder. None of it is executed."""
    files = sorted(folder.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    return summarise_tensorflow(tf_private.parse_xspace(files[-1].read_bytes()))


def summarise_tensorflow(space: Any) -> tuple[list[Step], Work]:
    """The calls and the work in an XSpace."""
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
    return [Step(end - begin, tuple(_within(runtime, (begin, end)))) for begin, end in steps], work


def _host_events(space: Any) -> Iterator[tuple[str, int, Span, int | None]]:
    """Each event of the host's threads: name, line, begin and end in microseconds, iteration of a loop."""
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
    """Count the work of a thread, each event without those in it; when it worked."""
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

    for name, (begin, end), iteration in sorted(events, key=lambda event: (event[1][0], -event[1][1])):
        close(begin)
        if stack:
            stack[-1][2] -= min(end, stack[-1][1]) - begin
        else:
            busy.append((begin, end))
        # Who works off an iteration may go on to what follows the loop: of an op its name says where it is.
        match = _OP.fullmatch(name)
        in_loop = bool(iteration) if match is None else _BODY.match(match["node"]) is not None
        stack.append([name, end, end - begin, in_loop])
    close(float("inf"))
    return busy


def read_onnx_runtime(file: Path) -> Work:
    """The work of nodes in a profile of ONNX Runtime, each without the nodes in its body."""
    return summarise_onnx_runtime(json.loads(file.read_bytes()))


def summarise_onnx_runtime(events: Sequence[Mapping[str, Any]]) -> Work:
    """The work in the events of ONNX Runtime's last calls, those after the first of them that is named."""
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
    """The union of spans, in order."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _within(spans: Sequence[Span], step: Span) -> Iterator[Span]:
    """The parts of spans in a step, from its begin."""
    for span in spans:
        begin, end = max(span[0], step[0]), min(span[1], step[1])
        if begin < end:
            yield begin - step[0], end - step[0]
