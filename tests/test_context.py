"""Limits, silence and devices of a call, as the command line and the library say them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tensorflow as tf
from support.command_line import run_python
from support.samples import fixture

import cudnn_convert
from cudnn_convert import context
from cudnn_convert.context import Limits, mute_output
from cudnn_convert.errors import UsageError
from cudnn_convert.graph.graph import open_session
from cudnn_convert.options import Options, with_limits

# What a file may ask of the machine, as the command line and the library say it.


def test_numbers_may_have_units() -> None:
    told = Limits.of(["memory=2G", "seconds=7", "file=3T", "expanded=5K", "expansion=9", "nodes=1M"])
    assert told == Limits(2 * 2**30, 7, 3 * 2**40, 5 * 1024, 9, 2**20)
    assert Limits.of([]) == Limits()


WRONG = ["memory", "memory=", "memory=G", "memory=-1", "memory=0", "memory=1.5G", "memory=9" + "9" * 30]
WRONG += ["memory=9999999T", "memory=٣", "colour=1", "=1", ""]


@pytest.mark.parametrize("given", WRONG)
def test_anything_else_is_a_usage_error(given: str) -> None:
    with pytest.raises(UsageError, match=r"^--limit( memory)?: expected .*, found '"):
        Limits.of([given])


def test_limits_hold_where_they_are_set() -> None:
    usual = context.current()
    with context.within(Limits(nodes=1)):
        assert context.current() == Limits(nodes=1)
    assert context.current() == usual == Limits()


def test_a_call_works_under_the_limits_of_its_options() -> None:
    @with_limits
    def call(_: str, options: Options) -> int:
        return context.current().expansion

    assert call("x", Options(limit=["expansion=7"])) == 7
    assert context.current() == Limits()


def test_the_library_takes_limits_of_reading() -> None:
    source = fixture("1.15.5-gru_uni_2l").folder
    assert cudnn_convert.inspect(source, limit="nodes=100K").kind
    with pytest.raises(UsageError, match=r"^limit: expected a limit of reading, .* found 'seconds=5'"):
        cudnn_convert.inspect(source, limit=["seconds=5"])


def test_the_machine_has_memory() -> None:
    found = context.machine_memory()
    assert found is None or found > 1 << 28


def test_a_container_has_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("123456\n", 123456), ("max\n", context.machine_memory())):
        (tmp_path / "memory.max").write_text(text)
        with monkeypatch.context() as patched:
            patched.setattr(context, "Path", lambda _: tmp_path / "memory.max")
            assert context.machine_memory() == expected


@pytest.mark.parametrize(
    ("size", "stored", "found"), [(100, 1, False), (101, 1, True), (120, 40, False), (121, 40, True)]
)
def test_a_bomb_is_large_and_made_of_little(size: int, stored: int, found: bool) -> None:
    with context.within(Limits(expanded=100, expansion=3)):
        assert context.is_bomb(size, stored) is found


# What runs at the same time as a proof, and after it, prints where it always did.


def test_the_outer_one_brings_the_descriptors_back(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(1, b"before ")
    with mute_output():
        with mute_output():
            os.write(1, b"within both")
        os.write(2, b"within the outer one")
    os.write(2, b"after")
    assert capfd.readouterr() == ("before ", "after")


def test_a_failure_brings_them_back_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), mute_output():
        os.write(1, b"within")
        raise RuntimeError
    os.write(1, b"after")
    assert capfd.readouterr() == ("after", "")


def test_a_stream_that_is_closed_stays_so() -> None:
    kept = os.dup(2)
    os.close(2)
    try:
        with mute_output():
            pass
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(2)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# What is converted for a CPU is computed on one, on a machine with a GPU too. A second logical CPU stands for
# the GPU: what the caller's device scope names.

ON_TWO_DEVICES = """
import tensorflow as tf
from cudnn_convert import context
from cudnn_convert.graph import node_defs
first = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(first, [tf.config.LogicalDeviceConfiguration()] * 2)
precision = tf.config.experimental
square = tf.function(lambda x: tf.matmul(x, x))
def say(what):
    product = square(tf.ones([2, 2]))
    print(what, product.device.rpartition("/")[2], precision.tensor_float_32_execution_enabled())
with tf.device("/CPU:1"):
    say("before")
    with context.silence():
        say("within")
    with context.silence(on_cpu=False):
        say("as it comes")
    say("after")
"""


@pytest.mark.slow("cudnn_convert/context.py", "cudnn_convert/artifacts/")
def test_a_call_computes_on_the_cpu_in_full_precision() -> None:
    assert run_python(ON_TWO_DEVICES).splitlines() == [
        "before device:CPU:1 True",
        "within device:CPU:0 False",
        "as it comes device:CPU:1 True",
        "after device:CPU:1 True",
    ]


def test_sessions_have_the_cpu_alone() -> None:
    graph = tf.Graph()
    assert open_session(graph)._config.device_count == {"GPU": 0}
    assert not open_session(graph, on_cpu=False)._config.device_count


@pytest.mark.parametrize(
    ("file", "settings", "expected"),
    [
        ("driver", {}, True),
        ("driver", {"CUDA_VISIBLE_DEVICES": "0"}, True),
        ("driver", {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ("driver", {"HIP_VISIBLE_DEVICES": "-1"}, False),
        ("no driver", {}, False),
    ],
)
def test_a_gpu_is_expected_where_a_driver_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, settings: dict[str, str], expected: bool
) -> None:
    (tmp_path / "driver").touch()
    monkeypatch.setattr(context, "_GPU_FILES", (str(tmp_path / file),))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert context._may_have_gpu() is expected


@pytest.mark.slow("cudnn_convert/context.py", "cudnn_convert/private/tf_private.py")
def test_a_machine_with_a_gpu_computes_on_the_cpu_from_the_first_call_on(tmp_path: Path) -> None:
    """TensorFlow is not imported yet: the call imports it, to choose the device before anything runs."""
    (tmp_path / "driver").touch()
    program = f"""
import sys
from cudnn_convert import context
with context.silence():
    print("tensorflow" in sys.modules)
context._GPU_FILES = ({str(tmp_path / "driver")!r},)
with context.silence():
    import tensorflow as tf
    print(tf.ones([]).device.rpartition("/")[2], tf.config.experimental.tensor_float_32_execution_enabled())
"""
    shown = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    assert run_python(program, **shown).splitlines() == ["False", "device:CPU:0 False"]


@pytest.mark.parametrize(("command", "seen"), [("record", "7"), ("verify", "-1"), ("model.h5", "-1")])
def test_commands_see_no_gpu_unless_they_record(command: str, seen: str) -> None:
    """And none reads `~/.keras/keras.json`, which may name a backend that crashes beside TensorFlow."""
    program = f"""
import os, sys
sys.argv = ["cudnn-convert", {command!r}]
from cudnn_convert import cli
names = ("CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "KERAS_HOME")
cli.main = lambda **_: print(*map(os.environ.get, names), flush=True)
cli.run()
"""
    printed = run_python(program, CUDA_VISIBLE_DEVICES="7", KERAS_BACKEND="torch", KERAS_HOME="/home/keras")
    assert printed.split() == [seen, "tensorflow", os.devnull]
