"""What a checkpoint without its graph is taken for, and what is asked where that is left open."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.checkpoints import bundle, claimed, header
from support.command_line import refused
from support.plans import plan_graph
from support.samples import GRAPHLESS, fixture

from cudnn_convert import AmbiguousSourceError, UnsupportedModelError, inspect
from cudnn_convert.model import InMemory, Mode, Model, PartialSizes, Sizes
from cudnn_convert.read import dialects, read
from cudnn_convert.recurrences import graphless
from cudnn_convert.weights import parameter_blob


def alone(name: str, folder: Path, *, drop: str = "") -> Path:
    """A sample without its MetaGraph, and without one of its keys."""
    shutil.copytree(fixture(name).folder, folder, ignore=shutil.ignore_patterns("*.meta"))
    prefix = folder / "model.ckpt"
    if drop:
        reader = tf.train.load_checkpoint(str(prefix))
        names = sorted(key for key in reader.get_variable_to_shape_map() if key != drop)
        tensors = [tf.constant(reader.get_tensor(key)) for key in names]
        tf.raw_ops.SaveV2(
            prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
        )
    return prefix


def holding(**shapes: tuple[int, ...]) -> Model:
    """A model of zeros by key."""
    values = {key: InMemory(np.zeros(shape, np.float32)) for key, shape in shapes.items()}
    return Model(Path("model.ckpt"), "checkpoint", None, values, dialects.find(Path("model.ckpt"), values))


def blob_of(mode: Mode, layers: int, units: int, directions: int, inputs: int) -> tuple[int]:
    return (parameter_blob.length(Sizes(mode, layers, directions, units, inputs)),)


def test_every_fitting_size_is_listed_for_a_blob_alone(tmp_path: Path) -> None:
    source = alone("1.15.5-raw_only", tmp_path / "source")
    (line,) = refused(tmp_path, source, tmp_path / "out", code=1)
    assert "cudnn_gru/opaque_kernel: a blob of 312 values without its graph: name --mode, --layers" in line
    assert "--mode gru --layers 1 --units 4 --directions 2 (input size 7)" in line
    assert "--mode lstm" not in line  # the scope says gru


def test_the_flags_must_fit_the_length(tmp_path: Path) -> None:
    source = alone("1.15.5-raw_only", tmp_path / "source")
    flags = ("--mode", "gru", "--layers", "1", "--units", "5", "--directions", "2")
    (line,) = refused(tmp_path, source, tmp_path / "out", *flags, code=1)
    assert "expected sizes that fit its length, found none; check --mode, --layers, --units" in line


def test_tanh_and_relu_are_told_by_the_scope_or_the_flag(tmp_path: Path) -> None:
    key = "encoder/rnn/multi_rnn_cell/cell_0/basic_rnn_cell/{}"
    model = holding(**{key.format("kernel"): (9, 5), key.format("bias"): (5,)})
    with pytest.raises(
        AmbiguousSourceError, match=r"--mode rnn_tanh .* or --mode rnn_relu .*; choose with --mode"
    ):
        graphless.find_blob_recurrences(model, PartialSizes())
    (found,) = graphless.find_blob_recurrences(model, PartialSizes(mode=Mode.RNN_RELU))
    assert found.sizes == Sizes(Mode.RNN_RELU, 1, 1, 5, 4)
    key = "a/cudnn_rnn_relu_1/rnn/multi_rnn_cell/cell_0/basic_rnn_cell/{}"
    (found,) = graphless.find_blob_recurrences(
        holding(**{key.format("kernel"): (9, 5), key.format("bias"): (5,)}), PartialSizes()
    )
    assert (found.name, found.sizes.mode) == ("a_cudnn_rnn_relu_1", Mode.RNN_RELU)
    assert found.note == "a/cudnn_rnn_relu_1: rnn_relu by its name; --mode chooses"


def test_flags_that_contradict_the_keys(tmp_path: Path) -> None:
    source = alone("1.15.5-gru_bi", tmp_path / "source")
    (line,) = refused(tmp_path, source, tmp_path / "out", "--units", "7", code=1)
    found = "--mode gru --layers 1 --units 6 --directions 2"
    assert f"cudnn_gru: expected the sizes that the flags say, found {found}" in line


def test_a_blob_that_its_user_named() -> None:
    shape = blob_of(Mode.LSTM, 2, 5, 1, 4)
    model = holding(lstm_params=shape, **{"lstm_params/Adam": shape, "dense/bias": (7,)})
    said = PartialSizes(Mode.LSTM, 2, 5, 1)
    (found,) = graphless.find_blob_recurrences(model, said)
    assert (found.name, found.sizes.input_size) == ("lstm_params", 4)
    with pytest.raises(
        UnsupportedModelError, match=r"the longest 1-D tensors are lstm_params \[460\], dense/bias"
    ):
        graphless.find_blob_recurrences(model, PartialSizes(Mode.LSTM))
    with pytest.raises(
        UnsupportedModelError, match="expected a 1-D tensor of a length that they allow, found none"
    ):
        graphless.find_blob_recurrences(model, PartialSizes(Mode.GRU, 3, 50, 2))


def test_a_prefix_that_a_custom_getter_made_stays_in_the_name() -> None:
    model = holding(**{"fp32_storage/cudnn_lstm/opaque_kernel": blob_of(Mode.LSTM, 1, 5, 2, 4)})
    (found,) = graphless.find_blob_recurrences(model, PartialSizes(layers=1, units=5, directions=2))
    assert (found.name, found.sizes) == ("fp32_storage_cudnn_lstm", Sizes(Mode.LSTM, 1, 2, 5, 4))


def test_the_blob_of_a_layer_in_an_object_based_checkpoint_is_known_by_its_name() -> None:
    """Not so the slots of its optimizer, which are as long."""
    shape = blob_of(Mode.LSTM, 2, 5, 2, 4)
    keys = ("model/encoder/opaque_kernel", "optimizer/_variables/3", "optimizer/_variables/4")
    model = holding(**{f"{key}/.ATTRIBUTES/VARIABLE_VALUE": shape for key in keys})
    (found,) = graphless.find_blob_recurrences(model, PartialSizes(Mode.LSTM, 2, 5, 2))
    assert (found.name, found.sizes) == ("model_encoder", Sizes(Mode.LSTM, 2, 2, 5, 4))
    with pytest.raises(
        AmbiguousSourceError, match=r"encoder/opaque_kernel/\.ATTRIBUTES/VARIABLE_VALUE: a blob of \d+ values"
    ):
        graphless.find_blob_recurrences(model, PartialSizes())


def test_of_two_such_blobs_the_signature_chooses() -> None:
    shape = blob_of(Mode.GRU, 1, 5, 1, 4)
    model, said = holding(first=shape, second=shape), PartialSizes(Mode.GRU, 1, 5, 1)
    with pytest.raises(
        AmbiguousSourceError, match=r"first \(first\), second \(second\); choose with --signature"
    ):
        graphless.find_blob_recurrences(model, said)
    (found,) = graphless.find_blob_recurrences(model, said, wanted="second")
    assert found.variable == "second"


def test_keys_of_half_a_layer_are_refused_with_the_reason(tmp_path: Path) -> None:
    source = alone("1.3.0-params_lstm_bi", tmp_path / "source")
    (line,) = refused(tmp_path, source, tmp_path / "out", code=1)
    assert "TensorFlow before 1.4 saved half of a bidirectional layer under these keys" in line
    assert "say --directions 1 if it had one, else convert its blob with --directions 2" in line


def test_half_of_two_layers_is_seen_by_its_sizes(tmp_path: Path) -> None:
    source = alone("1.3.0-params_gru_bi_2l", tmp_path / "source")
    flags = ("--directions", "1", "--mode", "gru")
    (line,) = refused(tmp_path, source, tmp_path / "out", *flags, code=1)
    assert "half of a bidirectional layer, all that TensorFlow before 1.4 saved of it" in line


@pytest.mark.parametrize("name", ["1.3.0-params_lstm_bi", "1.3.0-params_gru_bi_2l"])
def test_half_a_layer_with_its_graph_needs_the_blob(tmp_path: Path, name: str) -> None:
    prefix = alone(name, tmp_path / "source", drop="rnn_params")
    shutil.copy(fixture(name).folder / "model.ckpt.meta", f"{prefix}.meta")
    (line,) = refused(tmp_path, prefix, tmp_path / "out", code=1)
    assert "expected the blob rnn_params or canonical keys under the root scope, found neither" in line
    assert "TensorFlow before 1.4 saved half under its canonical keys" in line


def test_canonical_keys_of_another_scope_are_found_by_their_sizes(tmp_path: Path) -> None:
    name = "1.3.0-params_lstm_2l"  # the blob at the root, the keys under encoder/
    prefix = alone(name, tmp_path / "source", drop="rnn_params")
    shutil.copy(fixture(name).folder / "model.ckpt.meta", f"{prefix}.meta")

    (found,) = plan_graph(read(prefix)).recurrences
    assert (found.sizes.layers, found.sizes.units) == (2, 5)


def test_a_single_cell_of_an_object_based_checkpoint_may_be_a_dense_layer(tmp_path: Path) -> None:
    (sample,) = (found for found in GRAPHLESS if found.name == "1.15.5-object_lstm_1l")
    (line,) = refused(tmp_path, sample.prefix, tmp_path / "out", code=1)
    assert "encoder may be an LSTM or a dense layer: say --mode lstm --units N" in line


def test_a_source_with_a_graph_takes_no_such_flags(tmp_path: Path) -> None:
    (line,) = refused(
        tmp_path, fixture("1.15.5-gru_bi").prefix, tmp_path / "out", "--layout", "batch", code=2
    )
    assert "--layout, --lengths: expected a source without a graph" in line


def test_an_unknown_signature_names_those_there_are(tmp_path: Path) -> None:
    source = alone("1.15.5-gru_bi", tmp_path / "source")
    (line,) = refused(tmp_path, source, tmp_path / "out", "--signature", "decoder", code=2)
    assert "--signature: expected one of cudnn_gru, found decoder" in line


def test_a_shape_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    """A damaged index may claim any; TensorFlow makes no variable of more values than 64 bits count."""
    size = (1 << 61) - 1
    kernel, bias = (claimed(*shape, size=8) for shape in ((size, 24), (24,)))
    keys = (f"rnn/cell-0/{name}/.ATTRIBUTES/VARIABLE_VALUE".encode() for name in ("bias", "kernel"))
    source = bundle(tmp_path, {b"": header(), **dict(zip(keys, (bias, kernel), strict=True))}, b"12345678")
    values = 24 * (size - 6) + 24 * 6 + 48
    for form in ("savedmodel", "onnx", "npz"):
        (line,) = refused(tmp_path, source, tmp_path / "out", "--format", form, code=1)
        assert line.endswith(
            f"rnn: expected weights that a file can hold, found sizes for {values} values; copy it again"
        )
    inspection = inspect(source)
    assert [recurrence.name for recurrence in inspection.recurrences] == ["rnn"]
    assert "copy it again" in " ".join(inspection.reasons)
