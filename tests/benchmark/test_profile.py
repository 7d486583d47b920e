"""Where time goes: shares of traces made by hand, and the sentence on pipelines built for it.

What a sentence is told of takes ten times what else there is: a busy machine does not change it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import cudnn_convert
from cudnn_convert.benchmark import profile
from cudnn_convert.benchmark import profile as room
from cudnn_convert.benchmark.profile import TimedCall, Work
from cudnn_convert.errors import UsageError

ROWS = tf.ones([64, 128])
WEIGHTS = tf.random.stateless_normal([128, 128], [1, 2]) / 12


@tf.function
def small(x: Any) -> Any:
    return tf.tanh(x) + 1.0


@tf.function
def recurrent(x: Any) -> Any:
    for _ in tf.range(300):
        x = tf.tanh(x @ WEIGHTS)
    return x


def slow_step(values: np.ndarray) -> int:
    """Element by element, as it is often written."""
    total = 0
    for value in values.ravel().tolist() * 40:
        total += int(value * 7) % 3
    return total


def test_a_slow_step_in_python_is_named() -> None:
    found = cudnn_convert.profile(lambda x: slow_step(small(x).numpy()), [ROWS], steps=3)
    assert found.sentence.startswith("post-processing in Python takes ")
    assert "most of it in slow_step (test_profile.py:" in found.sentence
    assert found.share("python") > 0.6
    assert sum(part.share for part in found.parts) == pytest.approx(1, abs=0.02)
    assert found.calls == 3 and found.trace is None
    of_call = sum(part.us for part in found.parts)
    assert of_call == pytest.approx(found.wall_us, rel=0.02)


def test_what_comes_first_is_told_from_what_comes_last() -> None:
    def call(x: Any) -> Any:
        return small(x + slow_step(x.numpy())).numpy()

    assert cudnn_convert.profile(call, [ROWS], steps=3).sentence.startswith("pre-processing in Python takes ")


def test_python_alone(tmp_path: Path) -> None:
    found = cudnn_convert.profile(slow_step, [np.ones([64, 128])], steps=2, folder=tmp_path)
    assert found.sentence.startswith("the callable in Python takes 100%, most of it in slow_step (")
    assert found.trace == str(tmp_path)
    assert [*tmp_path.rglob("*.xplane.pb")]


def test_a_recurrence_is_what_takes_the_time() -> None:
    found = cudnn_convert.profile(lambda x: recurrent(x).numpy(), [ROWS], steps=3)
    assert found.sentence.startswith("the recurrence takes "), found
    assert found.share("loop") > 4 * found.share("other")
    assert {part.name for part in found.ops} >= {"MatMul"}


def test_no_feed_and_another_profiler() -> None:
    with pytest.raises(UsageError, match="expected at least one feed and step, found 0 and 5"):
        cudnn_convert.profile(small, [])
    tf.profiler.experimental.start("")
    try:
        with pytest.raises(UsageError, match="expected a free profiler of TensorFlow"):
            cudnn_convert.profile(small, [ROWS])
    finally:
        tf.profiler.experimental.stop(save=False)


def test_runtimes_are_as_they_were() -> None:
    kind = tf.lite.Interpreter
    before = kind.invoke
    with pytest.raises(ZeroDivisionError):
        cudnn_convert.profile(lambda x: 1 / 0, [1])
    cudnn_convert.profile(lambda x: x, [1])
    assert kind.invoke is before


def space(*lines: list[tuple[str, float, float, int | None]]) -> Any:
    """A trace with a line for each list of events: name, begin and microseconds, iteration."""
    made = xplane_pb2.XSpace()
    plane = made.planes.add(name="/host:CPU")
    plane.stat_metadata[7].name = "iter_num"
    numbers: dict[str, int] = {}
    for number, events in enumerate(lines):
        line = plane.lines.add(id=number, timestamp_ns=5_000_000)
        for name, begin, micros, iteration in events:
            key = numbers.setdefault(name, len(numbers) + 1)
            plane.event_metadata[key].name = name
            event = line.events.add(
                metadata_id=key, offset_ps=round(begin * 1e6), duration_ps=round(micros * 1e6)
            )
            if iteration is not None:
                event.stats.add(metadata_id=7, int64_value=iteration)
    return xplane_pb2.XSpace.FromString(made.SerializeToString())


def test_a_trace_of_tensorflow() -> None:
    """Two calls of 100: one works from 10 to 70 in two threads, of which 20 are a recurrence."""
    python = [
        (profile.STEP, 0, 100, None), ("FunctionRun", 10, 70, None),
        (profile.STEP, 200, 100, None), ("FunctionRun", 210, 10, None), ("FunctionRun", 260, 30, None),
    ]  # fmt: skip
    first = [
        ("ExecutorState::Process", 12, 40, 0), ("scope/lstm/BlockLSTM:BlockLSTM", 14, 20, None),
        ("dense/MatMul:_MklMatMul", 36, 10, None),
        ("ExecutorState::Process", 54, 10, 3), ("a/while/body/b/MatMul:MatMul", 55, 6, None),
        ("ExecutorState::Process", 150, 40, 0),
    ]  # fmt: skip
    second = [("ExecutorState::Process", 30, 34, 2)]
    steps, work = profile.summarise_tensorflow(space(python, first, second))
    assert steps == [TimedCall(100, ((10, 80),)), TimedCall(100, ((10, 20), (60, 90)))]
    assert dict(work.ops) == pytest.approx({"BlockLSTM": 20, "MatMul": 16})
    assert dict(work.recurrences) == pytest.approx({"scope/lstm/BlockLSTM": 20})
    assert dict(work.loops) == pytest.approx({"a/while": 6})
    assert (work.small, work.small_in_loops, work.busy) == pytest.approx((10, 4 + 34, 52))


def test_a_profile_of_onnx_runtime() -> None:
    def event(name: str, op: str, begin: int, micros: int) -> dict[str, Any]:
        return {
            "cat": "Node", "name": f"{name}_kernel_time", "ts": begin, "dur": micros, "args": {"op_name": op},
        }  # fmt: skip

    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 200},
        event("cell", "LSTM", 10, 50), event("decode", "Scan", 70, 100), event("inner", "Add", 80, 30),
        event("dense", "MatMul", 175, 20),
    ]  # fmt: skip
    work = profile.summarise_onnx_runtime(events)
    assert dict(work.ops) == {"LSTM": 50, "Scan": 70, "Add": 30, "MatMul": 20}
    assert (dict(work.recurrences), dict(work.loops)) == ({"cell": 50}, {"decode": 100})
    assert work.busy == 170


def test_shares_of_a_call() -> None:
    """Of 100: 10 before, 20 after, 70 in the runtime, where two threads work 40 in 35."""
    work = Work(busy=35)
    work.add("LSTM", "cell", 30, in_loop=False)
    work.add("MatMul", "dense", 10, in_loop=False)
    found = room._summarise([TimedCall(100, ((10, 80),))], work, lambda: None, None)
    assert {(part.kind, part.name): round(part.share, 4) for part in found.parts} == {
        ("waiting", "handing work to threads, and waiting for them"): 0.35,
        ("recurrence", "cell"): 0.2625,
        ("python", "post-processing"): 0.2,
        ("python", "pre-processing"): 0.1,
        ("other", "other ops"): 0.0875,
    }
    assert [(part.name, round(part.us, 2)) for part in found.ops] == [("LSTM", 26.25), ("MatMul", 8.75)]
    assert found.sentences == ("no part takes half of the time",)
    alone = room._summarise(
        [TimedCall(100, ((0, 100),))], Work(ops={"Conv": 90.0}, busy=90), lambda: None, None
    )
    assert alone.sentence == "Conv takes 100% of the work"
    work = Work(busy=40)
    work.add("LSTM", "cell", 10, in_loop=False)
    work.add("Scan", "decode", 25, in_loop=True)
    work.add("MatMul", "dense", 5, in_loop=False)
    loops = room._summarise([TimedCall(100, ((0, 80),))], work, lambda: None, None)
    assert loops.sentence.startswith(
        "loops and recurrences take 58% of the work, most of it decode; its steps follow"
    ), loops
    unknown = room._summarise([TimedCall(100, ((1, 100),))], None, lambda: None, None)
    assert unknown.sentence == "the runtime takes 99%; it does not say what of"
