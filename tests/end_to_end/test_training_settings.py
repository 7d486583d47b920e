"""A library call in a process that trains: what the training has set changes no conversion, and stays set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras
from support.command_line import run_python
from support.keras_samples import keras_fixture
from support.samples import fixture

import cudnn_convert
from cudnn_convert import context

#: Each setting: how it is read, how it is set, what a training may have set, and what a call works with.
SETTINGS: dict[str, tuple[Any, Any, Any, Any]] = {
    "types of Keras": (keras.config.floatx, keras.config.set_floatx, "float64", "float32"),
    "types of tf_keras": (tf_keras.backend.floatx, tf_keras.backend.set_floatx, "float16", "float32"),
    "policy of Keras": (
        lambda: keras.config.dtype_policy().name,
        keras.config.set_dtype_policy,
        "mixed_float16",
        "float32",
    ),
    "policy of tf_keras": (
        lambda: tf_keras.mixed_precision.global_policy().name,
        tf_keras.mixed_precision.set_global_policy,
        "mixed_bfloat16",
        "float32",
    ),
    "layout of Keras": (
        keras.config.image_data_format,
        keras.config.set_image_data_format,
        "channels_first",
        "channels_last",
    ),
    "layout of tf_keras": (
        tf_keras.backend.image_data_format,
        tf_keras.backend.set_image_data_format,
        "channels_first",
        "channels_last",
    ),
}


@pytest.fixture
def settings() -> Iterator[ExitStack]:
    """Undoes what is pushed on it."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_the_usual_one_within_a_call(settings: ExitStack, name: str) -> None:
    read, change, given, usual = SETTINGS[name]
    settings.callback(change, read())
    change(given)
    with context.silence():
        assert read() == usual
    assert read() == given


@pytest.mark.slow("cudnn_convert/context.py")
def test_a_policy_that_was_never_set_goes_on_following_the_type() -> None:
    """In a process of its own: a policy that is set once stays set."""
    program = """
import keras
from cudnn_convert import context
keras.config.set_floatx("float64")
with context.silence():
    print(keras.layers.Dense(1).dtype_policy.name)
keras.config.set_floatx("float16")
print(keras.layers.Dense(1).dtype_policy.name)
"""
    assert run_python(program).split() == ["float32", "float16"]


def test_no_tape_and_no_check_of_numerics_sees_a_call(settings: ExitStack) -> None:
    tf.debugging.enable_check_numerics()
    settings.callback(tf.debugging.disable_check_numerics)
    function = tf.function(lambda x: x * 2.0)
    with tf.GradientTape() as tape:
        x = tf.Variable(3.0)
        with context.silence():
            hidden = x * 2.0
            graph = function.get_concrete_function(tf.TensorSpec([])).graph
        seen = x * 2.0
    assert {op.type for op in graph.get_operations()} == {"Placeholder", "Const", "Mul", "Identity"}
    assert tape.gradient([hidden, seen], x).numpy() == 2.0
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.math.log(-1.0)


@pytest.mark.slow("cudnn_convert/cli/", "cudnn_convert/context.py", "cudnn_convert/keras/")
def test_conversions_are_proven_as_ever(settings: ExitStack, tmp_path: Path) -> None:
    for read, change, _, _ in SETTINGS.values():
        settings.callback(change, read())
    for _, change, given, _ in SETTINGS.values():
        change(given)
    tf.debugging.enable_check_numerics()
    settings.callback(tf.debugging.disable_check_numerics)
    settings.enter_context(warnings.catch_warnings())
    warnings.simplefilter("error")
    settings.enter_context(tf.GradientTape())
    stacked, tagger = keras_fixture("keras-2.2.4-stacked"), fixture("1.15.5-bilstm_tagger")
    for form in ("keras", "h5"):
        assert cudnn_convert.convert(stacked.path, tmp_path / form, format=form).verification.passed
    assert cudnn_convert.convert(tagger.prefix, tmp_path / "out").verification.passed
    assert cudnn_convert.load(stacked.path).to_keras("second/CudnnRNNV3")


@pytest.mark.slow("cudnn_convert/cli/", "cudnn_convert/context.py", "cudnn_convert/keras/")
@pytest.mark.parametrize("form", ["keras", "h5"])
def test_a_command_reads_no_settings_of_keras(tmp_path: Path, form: str) -> None:
    """Another backend, types and layouts in the user's file: a command knows nothing of them."""
    content = {"backend": "jax", "floatx": "float16", "image_data_format": "channels_first", "epsilon": 0.5}
    (tmp_path / "keras.json").write_text(json.dumps(content))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KERAS_HOME": str(tmp_path)}
    environment.pop("KERAS_BACKEND", None)  # of the suite: it would hide the file's
    source = keras_fixture("keras-2.2.4-stacked").path
    words = [sys.executable, "-m", "cudnn_convert", source, tmp_path / "out", "--format", form]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
