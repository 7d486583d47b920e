"""The setting of a library call: lock, silence, device, limits on files, and progress.

The lock, the loggers and the descriptors belong to the process; limits and listeners are context variables,
so that each thread has its own and a new thread has the defaults.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from cudnn_convert.errors import UsageError

#: Source: onnxruntime v1.29.0 docs/Privacy.md.
_NO_EVENTS: Final = "ORT_DISABLE_TELEMETRY"
_LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")
_STREAMS: Final = (1, 2)

_process_lock = threading.RLock()


def _renew_lock() -> None:
    """Give a forked child a free lock: the holder of the parent's lock is missing."""
    global _process_lock  # noqa: PLW0603 - a lock cannot be freed by a thread that does not hold it
    _process_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def hold_process_lock() -> AbstractContextManager[bool]:
    """Hold the lock around process-wide effects; concurrent library calls wait.

    A library call holds it from begin to end. Patches of Keras, TensorFlow's control flow and float type,
    tf2onnx's tables, `sys.path` and the descriptors are seen by every graph that another thread builds or
    runs meanwhile, so that a lock around each patch alone is not enough. A thread that holds it may take it
    again: a listener may call the library.
    """
    return _process_lock


@contextmanager
def silence(*, on_cpu: bool = True) -> Iterator[None]:
    """Hold the process lock, silence libraries, and run ops eagerly, with usual settings.

    Ops run on the CPU. The caller may be building a graph or have turned TensorFlow 2 off; the items of
    shapes are numbers even then. A training may have set Keras's types, a tape or checks of numerics.
    Afterwards all settings are as they were except ONNX Runtime's telemetry, which must be off before its
    import: it stays off in this process unless the environment says otherwise. Without `on_cpu` TensorFlow
    chooses the devices.
    """
    os.environ.setdefault(_NO_EVENTS, "1")
    with hold_process_lock(), ExitStack() as stack:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # a filter may make errors of what other libraries warn of
        stack.enter_context(_usual_keras())
        # Without TensorFlow nothing has built a graph yet, and without a GPU it computes on the CPU.
        if "tensorflow" in sys.modules or (on_cpu and _may_have_gpu()):
            from cudnn_convert.private import tf_private

            stack.enter_context(tf_private.eager_mode())
            stack.enter_context(tf_private.without_callbacks())
            stack.enter_context(_plain_sizes())
            if on_cpu:
                stack.enter_context(_compute_on_cpu())
        yield


@contextmanager
def _usual_keras() -> Iterator[None]:
    """Give layers the usual types and layout, despite the caller's settings."""
    keras, tf_keras = (sys.modules.get(name) for name in ("keras", "tf_keras"))
    with ExitStack() as stack:
        stack.enter_context(_usual_policy())
        for settings in (getattr(keras, "config", None), getattr(tf_keras, "backend", None)):
            if settings is not None:
                _set_for_now(stack, settings.floatx, settings.set_floatx, "float32")
                _set_for_now(
                    stack, settings.image_data_format, settings.set_image_data_format, "channels_last"
                )
        policies = getattr(tf_keras, "mixed_precision", None)
        if policies is not None and policies.global_policy().name != "_infer":  # TensorFlow 1's cannot be set
            _set_for_now(stack, policies.global_policy, policies.set_global_policy, "float32")
        yield


@contextmanager
def _usual_policy() -> Iterator[None]:
    """Unset the policy of Keras 3 within the context, and restore the policy afterwards.

    The first layer sets it, from then on for all.
    """
    name, unset = "keras.src.backend.common.global_state", None
    state = sys.modules.get(name)
    before = state.get_global_attribute("dtype_policy") if state else unset
    if state:
        state.set_global_attribute("dtype_policy", unset)
    try:
        yield
    finally:
        if state := sys.modules.get(name):
            state.set_global_attribute("dtype_policy", before)


def _set_for_now(
    stack: ExitStack, read: Callable[[], Any], change: Callable[[Any], None], usual: str
) -> None:
    """Change an unusual setting to the usual value until the stack ends."""
    before = read()
    if getattr(before, "name", before) != usual:
        change(usual)
        stack.callback(change, before)


#: Names of GPUs on Linux: NVIDIA's driver, Windows' under WSL, AMD's.
_GPU_FILES: Final = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
#: With this value TensorFlow sees no GPU; AMD's libraries have their own name for it.
_GPU_SETTINGS: Final = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


def hide_gpus() -> None:
    """Hide GPUs from TensorFlow in the current process, before the import.

    What is proven here runs on a CPU.
    """
    os.environ.update(_GPU_SETTINGS)


def use_plain_keras() -> None:
    """Make Keras run on TensorFlow and ignore the user's settings, before the import.

    `~/.keras/keras.json` may name another backend, which crashes beside TensorFlow, or types for all layers.
    """
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)


def _may_have_gpu() -> bool:
    """Return True if TensorFlow may find a GPU at import."""
    is_hidden = any(os.environ.get(name) == value for name, value in _GPU_SETTINGS.items())
    return not is_hidden and any(Path(file).exists() for file in _GPU_FILES)


@contextmanager
def _compute_on_cpu() -> Iterator[None]:
    """Run eager ops and called functions on the CPU, with float32 in full.

    A function runs where it is called (tensorflow v2.21.0 core/common_runtime/colocation_graph.cc
    FilterSupportedDevices). Keras may still choose cuDNN's op, which only a GPU has: TF32 would give it 10
    bits of mantissa.
    """
    import tensorflow as tf

    precision = tf.config.experimental
    before = precision.tensor_float_32_execution_enabled()
    precision.enable_tensor_float_32_execution(False)
    try:
        # None: the caller's own scope may name another job.
        with tf.device(None), tf.device("/CPU:0"):
            yield
    finally:
        precision.enable_tensor_float_32_execution(before)


@contextmanager
def _plain_sizes() -> Iterator[None]:
    """Make the items of a TensorShape numbers, also after `tf.disable_v2_behavior()`."""
    import tensorflow as tf

    if isinstance(tf.TensorShape([1])[0], int):
        yield
        return
    tf.compat.v1.enable_v2_tensorshape()
    try:
        yield
    finally:
        tf.compat.v1.disable_v2_tensorshape()


@contextmanager
def mute_output() -> Iterator[None]:
    """Hold the process lock, and discard all output to descriptors 1 and 2.

    A graph may print what looks like a verdict, or until the disk is full (Print, PrintV2); these write past
    Python.
    """
    kept: dict[int, int] = {}
    with hold_process_lock():
        _flush()
        for stream in _STREAMS:
            with suppress(OSError):  # one that is closed stays so
                kept[stream] = os.dup(stream)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in kept:
            os.dup2(nowhere, stream)
        os.close(nowhere)
        try:
            yield
        finally:
            _flush()
            for stream, original in reversed(kept.items()):  # one may lie where a closed stream was
                os.dup2(original, stream)
                os.close(original)


def _flush() -> None:
    """Write out the buffers of Python and C for the descriptors."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # none, closed, or nothing reads it
            stream.flush()
    with suppress(AttributeError, OSError, TypeError):  # Windows has no such library
        ctypes.CDLL(None).fflush(None)


_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: What bounds the process of a command, and so has no meaning in a process of the caller's.
OF_PROCESS: Final = frozenset({"memory", "seconds", "file"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a file's demands on the machine, by the names of `--limit`.

    Each default is far above what any known model needs. `within` sets them for all that is called in it.
    """

    #: Bytes that the process of a command may allocate; None: the machine's, or the container's.
    memory: int | None = None
    #: How long a command may take.
    seconds: int = 3600
    #: Bytes of any one file that a command writes.
    file: int = 1 << 38
    #: Bytes that a compressed part of a file may always become.
    expanded: int = 1 << 28
    #: How many times its stored bytes a larger part may become.
    expansion: int = 100
    #: Nodes of a graph once its functions are laid flat.
    nodes: int = 1 << 20
    #: Bytes that are copied here of a source or an artifact that lies in a store.
    staged: int = 1 << 36

    @classmethod
    def of(cls, given: Sequence[str]) -> Limits:
        """Apply each `NAME=NUMBER` to the defaults; K, M, G or T may end a number.

        Raises UsageError.
        """
        names = [field.name for field in fields(cls)]
        changes = {}
        for item in given:
            name, equals, value = item.partition("=")
            if name not in names or not equals:
                expected = f"NAME=NUMBER with a NAME of {', '.join(names)}"
                raise UsageError(f"--limit: expected {expected}, found {item!r}")
            changes[name] = _number(name, value)
        return replace(cls(), **changes)


def _number(name: str, text: str) -> int:
    digits, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    number = int(digits) * unit if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
    if not 0 < number < 1 << 63:
        raise UsageError(f"--limit {name}: expected a number such as 100 or 8G, found {text!r}")
    return number


def machine_memory() -> int | None:
    """Return the bytes of memory usable by the process.

    None where the system does not say.
    """
    amounts = []
    with suppress(OSError, ValueError, AttributeError):
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # of a container; "max" where it has no limit
        amounts.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(amounts, default=None)


def is_bomb(size: int, stored: int) -> bool:
    """Return True if a part of `stored` bytes, expanded to `size`, exceeds the limits."""
    limits = current()
    return size > limits.expanded and size > limits.expansion * stored


def raising(size: int) -> str:
    """Return advice on accepting an intentionally large part of a file."""
    return f"if that is meant, give --limit expanded={size}"


_Value = TypeVar("_Value")


@contextmanager
def _setting(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Set a variable of the thread within the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


_CURRENT: Final[ContextVar[Limits]] = ContextVar("limits")


def current() -> Limits:
    """Return the limits of the thread, from the innermost `within`, else the defaults."""
    return _CURRENT.get(Limits())


def within(limits: Limits) -> AbstractContextManager[None]:
    """Set the limits of the thread within the context."""
    return _setting(_CURRENT, limits)


_THREADS: Final[ContextVar[int | None]] = ContextVar("threads", default=None)


def threads() -> int | None:
    """Return the number of threads allowed to newly opened runtimes.

    None: a runtime chooses itself.
    """
    return _THREADS.get()


def using_threads(count: int) -> AbstractContextManager[None]:
    """Bound the threads of runtimes opened within the context."""
    return _setting(_THREADS, count)


class ProgressCallback(Protocol):
    """A callback for progress: the name of a step, and the amount done.

    Amounts are 0 of 0 if unknown, calls of a model for `verifying`, bytes for `lowering` (of weights),
    `writing`, `digesting`, `fetching` and `uploading`. The working thread calls it.
    """

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None: ...


def unheard(step: str, done: int = 0, total: int = 0) -> None:
    """Ignore progress, as the default listener."""


_LISTENER: Final[ContextVar[ProgressCallback]] = ContextVar("progress", default=unheard)


def listen(listener: ProgressCallback) -> AbstractContextManager[None]:
    """Send the progress of the thread to `listener` within the context."""
    return _setting(_LISTENER, listener)


def current_listener() -> ProgressCallback:
    """Return the listener of the thread."""
    return _LISTENER.get()


def report_progress(step: str, done: int = 0, total: int = 0) -> None:
    """Tell the thread's listener of `done` out of `total` in a step."""
    _LISTENER.get()(step, done, total)


#: Takes the path of the file that is worked on, "" for the source.
Marker = Callable[[str], None]
_MARKER: Final[ContextVar[Marker]] = ContextVar("marker", default=lambda _: None)


def mark_with(marker: Marker) -> None:
    """Call `marker` from now on with the path of each file worked on."""
    _MARKER.set(marker)


@contextmanager
def on(artifact: object) -> Iterator[None]:
    """Mark an artifact as the file worked on, for a message if native code crashes."""
    mark = _MARKER.get()
    mark(str(artifact))
    try:
        yield
    finally:
        mark("")


def renaming(rename: Callable[[str], str]) -> AbstractContextManager[None]:
    """Mark files worked on by the names of `rename`, within the context."""
    mark = _MARKER.get()
    return _setting(_MARKER, lambda path: mark(rename(path)))
