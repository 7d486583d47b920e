"""Threads convert at once: artifacts and the process are as after one conversion at a time."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support.samples import ROOT, TF1

import cudnn_convert
from cudnn_convert import context
from cudnn_convert.context import Limits
from cudnn_convert.testing import assert_equivalent

LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")
KERAS: Final = ROOT / "tests" / "data" / "keras"
SEQUENTIAL: Final = KERAS / "keras-2.1.6" / "sequential_lstm" / "model.h5"
GRU: Final = TF1 / "1.15.5" / "gru_bi" / "model.ckpt"
#: Each thread converts all, in another order: the effects of each kind meet those of another.
JOBS: Final = ((SEQUENTIAL, "onnx"), (SEQUENTIAL, "savedmodel"), (SEQUENTIAL, "keras"), (GRU, "tflite"))


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def convert(order: Sequence[int], folder: str) -> None:
    """Converts to FOLDER/NUMBER in the working directory; a Keras artifact is proven too."""
    for number in order:
        source, form = JOBS[number]
        cudnn_convert.convert(source, f"{folder}/{number}", format=form, verify=form == "keras")


def run_threads(*works: Callable[[], None]) -> None:
    """Runs all at once, switching between them as often as Python can; raises the first failure."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for failure in failures:
        raise failure


@pytest.fixture
def quick_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def process_state() -> dict[str, Any]:
    """What a conversion changes of its process while it runs."""
    import tensorflow as tf
    import tf_keras
    from tf2onnx.handler import tf_op
    from tf_keras.src import backend

    loggers = [logging.getLogger(name) for name in LOGGERS]
    return {
        "loggers": [(each.level, each.propagate, tuple(each.handlers)) for each in loggers],
        "tables": {key: [dict(each) for each in tables] for key, tables in tf_op.get_opsets().items()},
        "loops": (tf.compat.v1.control_flow_v2_enabled(), backend.rnn, tf_keras.backend.floatx()),
        "eager": tf.executing_eagerly(),
        "path": tuple(sys.path),
        "warnings": tuple(warnings.filters),
        "descriptors": [(os.fstat(stream).st_dev, os.fstat(stream).st_ino) for stream in (1, 2)],
    }


@pytest.mark.slow("cudnn_convert/context.py", "cudnn_convert/pipeline.py")
@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize(
    "orders", [((0, 1, 2), (2, 0, 1)), pytest.param(((0, 3, 1, 2), (1, 2, 0, 3)), marks=pytest.mark.every)]
)
def test_artifacts_are_those_of_one_conversion_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orders: Sequence[Sequence[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    convert(orders[0], "alone")
    before = process_state()
    run_threads(*(partial(convert, order, f"thread_{k}") for k, order in enumerate(orders)))
    assert process_state() == before
    for k in range(len(orders)):
        assert digest(tmp_path / f"thread_{k}") == digest(tmp_path / "alone")


@pytest.mark.parametrize("effect", [context.silence, context.mute_output, context.hold_process_lock])
def test_another_thread_waits(effect: Callable[[], Any]) -> None:
    within = threading.Event()

    def take() -> None:
        with effect():
            within.set()

    with effect(), effect():  # a nested call does not wait
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        assert not within.wait(0.05)
    assert within.wait(10)
    thread.join(10)


def test_an_exception_frees_the_lock() -> None:
    with pytest.raises(RuntimeError), context.silence():
        raise RuntimeError
    run_threads(lambda: assert_equivalent(lambda x: x, lambda x: x, {"x": np.ones(1)}))


def test_a_comparison_holds_the_lock() -> None:
    free: list[bool] = []

    def function(x: Any) -> Any:
        def take() -> None:
            with context.hold_process_lock():
                free.append(True)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        thread.join(0.05)
        assert not free
        return x

    assert_equivalent(function, lambda x: x, {"x": np.ones(1)})


def test_a_listener_may_call_the_library(tmp_path: Path) -> None:
    steps: list[str] = []
    modes: list[str] = []

    def listener(step: str, done: int = 0, total: int = 0) -> None:
        if not steps:
            steps.append(step)
            modes.extend(each.mode for each in cudnn_convert.load(GRU).recurrences)

    with context.listen(listener):
        cudnn_convert.convert(GRU, tmp_path / "out.npz", format="npz", verify=False)
    assert set(modes) == {"gru"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_does_not_inherit_the_lock() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with context.hold_process_lock():
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads forks
        child = os.fork()
    if not child:
        signal.alarm(10)  # ends a child that waits
        with context.hold_process_lock():
            os._exit(0)
    done.set()
    thread.join(10)
    assert os.waitpid(child, 0)[1] == 0


def test_limits_and_progress_are_of_one_thread() -> None:
    seen: list[Any] = []

    def look() -> None:
        context.report_progress("unseen")
        with context.on("artifact"):
            seen.append(context.current())

    with context.within(Limits(nodes=1)), context.listen(lambda step, done=0, total=0: seen.append(step)):
        run_threads(look)
        context.report_progress("seen")
        assert context.current().nodes == 1
    assert seen == [Limits(), "seen"]
