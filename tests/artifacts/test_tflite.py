"""A TensorFlow Lite file is checked before the interpreter maps it, which would follow any offset."""

from __future__ import annotations

import faulthandler
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.samples import ROOT
from support.tflite_tables import table
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import cudnn_convert
from cudnn_convert.artifacts import tflite
from cudnn_convert.cli import child_process
from cudnn_convert.errors import ReadError

SOURCE = ROOT / "tests" / "data" / "tf1" / "1.15.5" / "keras_weights_lstm" / "model.ckpt"
FEED = {"inputs": (3, 7, 4), "initial_h": (1, 3, 5), "initial_c": (1, 3, 5)}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model with a loop, and so with several subgraphs."""
    path = tmp_path_factory.mktemp("sound") / "model.tflite"
    cudnn_convert.convert(SOURCE, path, format="tflite", verify=False)
    tflite.check_model(path)
    return path.read_bytes()


def outside(model: Any) -> None:
    model.subgraphs[0].tensors[0].buffer = len(model.buffers)


def unknown_op(model: Any) -> None:
    model.subgraphs[0].operators[0].opcodeIndex = 10**6


def lost_tensor(model: Any) -> None:
    model.subgraphs[0].operators[0].inputs = [len(model.subgraphs[0].tensors)]


def lost_output(model: Any) -> None:
    model.subgraphs[0].outputs = [-1]


def lost_signature(model: Any) -> None:
    model.signatureDefs[0].subgraphIndex = 99


def nameless(model: Any) -> None:
    model.signatureDefs[0].inputs[0].name = None


def endless(model: Any) -> None:
    (loop,) = (op for op in model.subgraphs[0].operators if type(op.builtinOptions) is schema.WhileOptionsT)
    loop.builtinOptions.bodySubgraphIndex = 0


def elsewhere(model: Any) -> None:
    if not hasattr(schema, "ExternalBufferT"):
        pytest.skip("this TensorFlow's schema has no values in other files")
    model.externalBuffers = [schema.ExternalBufferT()]


def texts(model: Any) -> None:
    model.subgraphs[0].tensors[0].type = schema.TensorType.STRING
    model.subgraphs[0].tensors[0].buffer = len(model.buffers)
    model.buffers.append(table(schema.BufferT, data=[*np.array([1, 12, 1 << 30], np.int32).tobytes()]))


def behind_the_end(model: Any) -> None:
    model.buffers[0].offset, model.buffers[0].size = 8, 1 << 40


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (outside, "a buffer of a tensor of number"),
        (unknown_op, "an op of number 1000000 of"),
        (lost_tensor, "a tensor of an op of number"),
        (lost_output, "an output of number -1 of"),
        (lost_signature, "a signature's subgraph of number 99 of"),
        (nameless, "an input or output of a signature without a name"),
        (endless, "subgraphs that call themselves"),
        (elsewhere, "values in other files"),
        (texts, "texts that do not lie in their buffer"),
        (behind_the_end, f"a buffer of {1 << 40} bytes at 8 of"),
    ],
)
def test_numbers_name_what_is_there(
    sound: bytes, tmp_path: Path, change: Callable[[Any], None], told: str
) -> None:
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(sound))
    change(model)
    path = tmp_path / "model.tflite"
    path.write_bytes(flatbuffer_utils.convert_object_to_bytearray(model))
    with pytest.raises(ReadError, match=told) as refusal:
        tflite.check_model(path)
    assert str(refusal.value).startswith(f"{path}: artifact: expected a sound TensorFlow Lite model, found ")


@pytest.mark.parametrize("size", [0, 3, 8, 100, -1])
def test_a_part_of_a_file_is_no_file(sound: bytes, tmp_path: Path, size: int) -> None:
    (tmp_path / "model.tflite").write_bytes(sound[:size])
    with pytest.raises(ReadError, match="expected a sound TensorFlow Lite model, found"):
        tflite.check_model(tmp_path / "model.tflite")


def test_what_the_fuzzer_makes_is_sound_or_refused(
    sound: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "fuzz"))
    import inputs
    import lite

    path, refused, written = tmp_path / "model.tflite", 0, 0
    for seed in range(25):
        try:
            changed = lite.mutated(random.Random(seed), sound)
        except inputs._UNWRITTEN:  # the fuzzer changes bytes then
            continue
        assert changed == lite.mutated(random.Random(seed), sound)
        written += 1
        path.write_bytes(changed)
        try:
            tflite.check_model(path)
        except ReadError:
            refused += 1
    assert 0 < refused < written


def ran(path: Path) -> bytes:
    """What a model answers, in a child that may crash: `crash`, `error`, or the outputs."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            rng = np.random.default_rng(0)
            runner = tf.lite.Interpreter(str(path), num_threads=1).get_signature_runner("serving_default")
            found = runner(**{key: rng.random(size, np.float32) for key, size in FEED.items()})
            os.write(tell, b"".join(found[key].tobytes() for key in sorted(found)))
        except Exception:  # noqa: BLE001 - a refusal of the interpreter is as good as ours
            os.write(tell, b"error")
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as stream:
        answer = stream.read()
    return b"crash" if os.waitpid(child, 0)[1] else answer


@pytest.mark.skipif(not child_process.can_fork(), reason="a crash ends the test")
@pytest.mark.slow
def test_a_changed_bit_never_reaches_beside_the_file(sound: bytes, tmp_path: Path) -> None:
    """What is not refused answers twice alike: nothing was read that is not the file's."""
    rng, path, refused, crashed = random.Random(1), tmp_path / "model.tflite", 0, 0
    for _ in range(200):
        changed = bytearray(sound)
        place = rng.choice((rng.randrange(64), rng.randrange(len(sound))))
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            tflite.check_model(path)
        except ReadError:
            refused += 1
            crashed += crashed < 3 and ran(path) == b"crash"
            continue
        answers = {ran(path), ran(path)}
        assert len(answers) == 1, place
        assert answers != {b"crash"}, place
    assert refused > 25
    assert crashed  # of what was refused some would have


def test_a_model_of_tensorflow_lite_is_packed_and_unpacked() -> None:
    buffers = [table(schema.BufferT, data=[1, 2, 3])]
    model = table(schema.ModelT, version=3, description="a model", buffers=buffers)
    again = tflite.unpack_model(tflite.pack_model(model))
    assert (again.version, again.description, list(again.buffers[0].data)) == (3, b"a model", [1, 2, 3])


@pytest.mark.parametrize(("older", "newer", "kind"), [(22, 0, 22), (22, 22, 22), (127, 146, 146)])
def test_an_operators_kind_is_in_one_of_two_fields(older: int, newer: int, kind: int) -> None:
    """Old files have the older alone, and numbers beyond 127 fit the newer alone."""
    codes = [table(schema.OperatorCodeT, builtinCode=1, deprecatedBuiltinCode=1)]
    codes.append(table(schema.OperatorCodeT, builtinCode=newer, deprecatedBuiltinCode=older))
    model = table(schema.ModelT, operatorCodes=codes)
    assert tflite.operator_kind(model, table(schema.OperatorT, opcodeIndex=1)) == kind
