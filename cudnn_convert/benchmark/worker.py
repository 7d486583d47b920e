"""Measures a model with a fixed number of threads, in a separate process.

It takes a request at a time. A request and its answer are a line of JSON each; arrays go through files. The
process is bound to as many cores as it has threads before a runtime is imported, and the runtimes are told
the number too. What it does between two requests is nothing: the parent lets one process of a round work at a
time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from cudnn_convert import context, process, workers
from cudnn_convert.context import Limits
from cudnn_convert.options import Options

#: How long the calls of a round take in all, in microseconds, unless one call takes longer.
_ROUND: Final = 20_000
#: The most calls of a round.
_CALLS: Final = 200
#: Calls that nothing is measured of: one more than runtimes need to settle on a shape.
_WARM: Final = 3


def serve(parent: int, scratch: str) -> None:
    """Answer requests until stdin ends: `workers.answer_requests`."""
    workers.answer_requests(parent, scratch, partial(_answer, _Server()), _explain)


def _answer(server: _Server, request: dict[str, Any]) -> dict[str, Any]:
    do: Callable[..., dict[str, Any]] = getattr(server, request.pop("do"))
    return do(**request)


def _explain(_: dict[str, Any], error: Exception) -> dict[str, Any]:
    """Return the answer for an error, as lines with an exit code.

    The parent ends with it.
    """
    outcome = process.outcome_of(error)
    lines = [*outcome.lines, process.explain_bug()] if outcome.is_bug else outcome.lines
    return {"exit_code": outcome.exit_code, "error": "\n".join(lines)}


class _Server:
    """The state of a process: model, runtime and feeds."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._options = Options()
        self._feeds: list[dict[str, Any]] = []
        self._opening: Any = None

    def open(self, *, model: str, options: Mapping[str, Any], threads: int) -> dict[str, Any]:
        """Load the model.

        `load_s` begins when the model's runtime is imported.
        """
        bind_to_cores(threads)
        self._options = Options.of_json(options)
        limits = Limits.of(self._options.limit)
        process.set_limits(limits)
        for setting in (context.within(limits), context.using_threads(threads), context.silence()):
            self._stack.enter_context(setting)
        from cudnn_convert.benchmark import models
        from cudnn_convert.pipeline import name_conversion

        with name_conversion(Path(model), self._options), context.mute_output():
            model_found = models.find_model(Path(model), self._options)
            import_runtime(model_found[0])
            start = time.perf_counter()
            self._opening = models.open_model(model_found, self._options)
            seconds = time.perf_counter() - start
        return {
            "format": self._opening.form,
            "load_s": seconds,
            "has_steps": models.has_steps(self._opening.interface),
        }

    def draw(self, *, batch: int, steps: int, time_first: bool, seed: int, out: str) -> dict[str, Any]:
        """Write random inputs of given sizes, and return the axes' names."""
        from cudnn_convert.benchmark import models

        sizes = models.FeedSizes(batch, steps, time_first)
        with context.mute_output():
            feed = models.draw_feed(self._opening, sizes, seed=seed)
        _arrays().write_calls(Path(out), [feed])
        return {"axes": models.describe_axes(self._opening.interface, sizes)}

    def read(self, *, batch: int, seed: int, out: str) -> dict[str, Any]:
        """Write the feeds of the user's data."""
        from dataclasses import replace

        from cudnn_convert.feeds import data as user_data

        data = user_data.Data.of(self._options, seed=seed)
        assert data is not None
        calls = user_data.read_calls(replace(data, batch=batch) if batch else data)
        _arrays().write_calls(Path(out), calls.feeds)
        shapes = {key: [*value.shape] for key, value in calls.feeds[0].items()}
        return {"data": calls.summary, "shapes": shapes}

    def begin(self, *, feeds: str, answers: str) -> dict[str, Any]:
        """Take feeds, time the first call, write the answers, and warm up."""
        from cudnn_convert.benchmark import models

        self._feeds = [
            models.pair_feed(self._opening.interface, feed, self._opening.path)
            for feed in _arrays().read_calls(Path(feeds))
        ]
        with context.mute_output():
            start = time.perf_counter()
            first = [self._opening.run(self._feeds[0])]
            seconds = time.perf_counter() - start
            _arrays().write_calls(Path(answers), [*first, *map(self._opening.run, self._feeds[1:])])
            times = [self._measure(1)[0] for _ in range(_WARM)]
        # Each round asks all feeds as often as each other.
        turns = max(1, min(_CALLS, round(_ROUND / max(min(times), 1))) // len(self._feeds))
        return {"first_call_us": seconds * 1e6, "calls": turns * len(self._feeds)}

    def measure(self, *, calls: int) -> dict[str, Any]:
        """Return the microseconds of each of `calls` calls."""
        with context.mute_output():
            return {"us": self._measure(calls)}

    def _measure(self, calls: int) -> list[float]:
        run, feeds, clock, times = self._opening.run, self._feeds, time.perf_counter, []
        for k in range(calls):
            feed = feeds[k % len(feeds)]
            start = clock()
            run(feed)
            times.append((clock() - start) * 1e6)
        return times

    def peak(self) -> dict[str, Any]:
        """Return the peak memory of the process, with the runtime included."""
        return {"peak_mb": peak_memory()}

    def profile(self, *, folder: str, steps: int) -> dict[str, Any]:
        """Profile some calls, with the runtime's own profile kept in a folder."""
        from cudnn_convert.benchmark import profile

        with context.mute_output():
            profiled = profile.profile_model(self._opening, self._feeds, Path(folder), steps=steps)
        return asdict(profiled)


def _arrays() -> Any:
    """Import and return the module for files of arrays.

    It imports NumPy, whose threads are chosen before.
    """
    from cudnn_convert.benchmark import answers

    return answers


def bind_to_cores(threads: int) -> None:
    """Bind the process to `threads` cores, and tell runtimes the number.

    Where the system cannot bind a process, only the runtimes are told.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in (
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ):
        os.environ[name] = str(threads)


def import_runtime(form: str) -> None:
    """Import the runtime of a format, as a user's process has already."""
    import importlib

    names = {
        "onnx": "onnxruntime",
        "keras": "keras",
        "h5": "tf_keras",
        "npz": "numpy",
        "safetensors": "numpy",
    }
    importlib.import_module(names.get(form, "tensorflow"))


def peak_memory() -> float | None:
    """Return the peak memory of the process in MiB, or None if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 20)
