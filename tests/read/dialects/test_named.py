"""Decoded weights that come back: what the description says, and what contradicts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.decoded import assert_decoded_as_the_reference
from support.samples import fixture

import cudnn_convert
from cudnn_convert.errors import AmbiguousSourceError, ReadError
from cudnn_convert.model import CanonicalParameters, InMemory, Mode
from cudnn_convert.read.dialects import named
from cudnn_convert.weights.npz_archive import RECORD

PATH = Path("weights.npz")
UNITS, INPUTS, LAYERS = 4, 3, 2
SIZES = {"layers": LAYERS, "directions": 2, "units": UNITS, "input_size": INPUTS}
DESCRIBED = {
    "name": "a/rnn",
    "mode": "rnn_relu",
    "projection": 0,
    "skip_input": False,
    "layout": "batch",
    "gates": ["hidden"],
    "dtype": "float32",
} | SIZES


def arrays(gates: int, *, width: int = UNITS) -> dict[str, InMemory]:
    rng = np.random.default_rng(4)
    stored = {}
    for layer in range(LAYERS):
        shapes = {
            "kernel": (gates, UNITS, INPUTS if layer == 0 else 2 * width),
            "recurrent_kernel": (gates, UNITS, width),
            "bias": (gates, UNITS),
            "recurrent_bias": (gates, UNITS),
        }
        shapes |= {"projection": (width, UNITS)} if width != UNITS else {}
        for way in ("forward", "backward"):
            for field, shape in shapes.items():
                stored[f"a/rnn/layer_{layer}/{way}/{field}"] = InMemory(
                    rng.normal(size=shape).astype(np.float32)
                )
    return stored


def record(**changed: Any) -> dict[str, InMemory]:
    text = json.dumps({"weights": [DESCRIBED | changed]})
    return {RECORD: InMemory(np.frombuffer(text.encode(), np.uint8))}


def find(tensors: dict[str, InMemory]) -> CanonicalParameters:
    (found,) = named.find(PATH, tensors)
    return found


def test_the_description_says_what_shapes_leave_open() -> None:
    tensors = arrays(1)
    without, described = find(tensors), find(tensors | record())
    assert without.modes == (Mode.RNN_TANH, Mode.RNN_RELU)
    assert (described.modes, described.batch_major, described.title) == ((Mode.RNN_RELU,), True, "a/rnn")
    assert described.scope == "a/rnn/"
    halved = find(tensors | record(dtype="bfloat16"))
    assert (described.dtype, halved.dtype) == (np.float32, ml_dtypes.bfloat16)
    for layer, cells in enumerate(described.decode(Mode.RNN_RELU)):
        for way, cell in zip(("forward", "backward"), cells, strict=True):
            for field in ("kernel", "recurrent_kernel", "bias", "recurrent_bias"):
                stored = tensors[f"a/rnn/layer_{layer}/{way}/{field}"].array
                np.testing.assert_array_equal(getattr(cell, field), stored, strict=True)


def test_values_that_are_no_bfloat16_contradict_the_description() -> None:
    described = find(arrays(1) | record(dtype="bfloat16"))
    with pytest.raises(ReadError, match="expected values of bfloat16, as its description says, found others"):
        described.decode(Mode.RNN_RELU)[0]


@pytest.mark.parametrize("number", ["00", "01", "\u0660"])
def test_a_layer_s_number_has_one_spelling(number: str) -> None:
    """Else two arrays would be one."""
    tensors = arrays(4)
    other = {f"a/rnn/layer_{number}/forward/kernel": InMemory(np.ones((4, UNITS, INPUTS), np.float32))}
    assert find(tensors | other).tensors.keys() == find(tensors).tensors.keys()


def test_one_type_for_all_weights() -> None:
    tensors = arrays(4)
    key = "a/rnn/layer_1/forward/recurrent_bias"
    tensors[key] = InMemory(tensors[key].array.astype(np.float16))
    with pytest.raises(
        ReadError, match=f"{key}: expected float32, as the cell's other weights, found float16"
    ):
        find(tensors)


def test_a_projection_and_a_skipped_input() -> None:
    tensors = arrays(4, width=2)
    found = find(tensors)
    assert_decoded_as_the_reference(found, "named", Mode.LSTM)
    first, _ = found.decode(Mode.LSTM)
    np.testing.assert_array_equal(first[1].projection, tensors["a/rnn/layer_0/backward/projection"].array)
    assert (found.modes, found.projection, found.units) == ((Mode.LSTM,), 2, UNITS)
    tensors = arrays(3)
    for way in ("forward", "backward"):
        del tensors[f"a/rnn/layer_0/{way}/kernel"]
    skipping = find(tensors)
    assert (skipping.skip_input, skipping.input_size) == (True, UNITS)
    first, _ = skipping.decode(Mode.GRU)
    np.testing.assert_array_equal(first[0].kernel[2], np.eye(UNITS))


@pytest.mark.parametrize(
    "changed",
    [
        {"units": 5},
        {"layers": 1},
        {"mode": "lstm"},
        {"projection": 4},
        {"skip_input": True},
        {"input_size": "3"},
        {"gates": ["cell"]},
        {"layout": "foo"},
        {"dtype": "float64"},
    ],
)
def test_a_description_of_other_sizes_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ReadError, match=f"a/rnn/{next(iter(changed))}: expected .*, found "):
        find(arrays(1) | record(**changed))


@pytest.mark.parametrize("text", ["[", "{}", "3", '{"weights": [3]}', "[" * 100_000])
def test_another_text_in_the_place_of_the_description_is_refused(text: str) -> None:
    tensors = arrays(1) | {RECORD: InMemory(np.frombuffer(text.encode(), np.uint8))}
    with pytest.raises(ReadError, match="expected the description that this tool writes, found another text"):
        find(tensors)


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("layer_1/backward/bias", None),
        ("layer_0/forward/recurrent_kernel", None),
        ("layer_1/forward/kernel", (4, UNITS, 7)),
        ("layer_1/forward/projection", (2, UNITS)),
        ("layer_3/forward/bias", (4, UNITS)),
        ("layer_0/forward/bias", (2, UNITS)),
        ("layer_0/forward/bias", (4, 0)),
        ("layer_0/forward/kernel", (4, UNITS, 0)),
        ("layer_0/backward/kernel", None),
    ],
)
def test_a_set_that_is_not_whole_is_refused(key: str, shape: tuple[int, ...] | None) -> None:
    tensors = arrays(4)
    if shape is None:
        del tensors[f"a/rnn/{key}"]
    else:
        tensors[f"a/rnn/{key}"] = InMemory(np.ones(shape, np.float32))
    with pytest.raises(ReadError, match="write the file again, or take it as it was written"):
        find(tensors)


@pytest.mark.parametrize(("field", "shape"), [("kernel", (4, UNITS, 0)), ("recurrent_kernel", (4, UNITS, 0))])
def test_empty_arrays_are_refused(field: str, shape: tuple[int, ...]) -> None:
    tensors = arrays(4)
    for way in ("forward", "backward"):
        tensors[f"a/rnn/layer_0/{way}/{field}"] = InMemory(np.ones(shape, np.float32))
    with pytest.raises(ReadError, match="layer_0/forward/bias: expected 4, 3 or 1 gates"):
        find(tensors)


def test_a_cell_or_projection_that_is_missing_is_told() -> None:
    tensors = arrays(4, width=2)
    whole = {key: tensor for key, tensor in tensors.items() if "layer_0/backward" not in key}
    with pytest.raises(ReadError, match="a/rnn/layer_0/backward: expected weights, found none"):
        find(whole)
    narrow = {key: tensor for key, tensor in tensors.items() if not key.endswith("/projection")}
    expected = rf"a/rnn/layer_0/forward/projection: expected shape \(2, {UNITS}\), found none"
    with pytest.raises(ReadError, match=expected):
        find(narrow)


@pytest.mark.first("1.15.5-lstm_float16-safetensors")
@pytest.mark.parametrize("form", ["npz", "safetensors"])
@pytest.mark.parametrize(
    "name", ["1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi", "1.15.5-v3_batch_major", "1.15.5-lstm_float16"]
)
def test_weights_come_back_as_the_same_bytes(tmp_path: Path, name: str, form: str) -> None:
    """Of arrays and their description; the provenance names the file that each was made of."""
    sample = fixture(name)
    first, second = (tmp_path / f"{which}.{form}" for which in ("first", "second"))
    cudnn_convert.convert(sample.prefix, first, format=form, **sample.options)
    report = cudnn_convert.convert(first, second, format=form)
    assert report.verification is not None
    assert report.verification.passed
    from cudnn_convert.recurrences import named_weights

    ones, others = (named_weights.arrays(path) for path in (first, second))
    assert [*ones] == [*others]
    for key, value in ones.items():
        assert value.dtype == others[key].dtype
        assert value.tobytes() == others[key].tobytes(), key
    described = [named_weights.file_metadata(path)["weights"] for path in (first, second)]
    assert described[0] == described[1]


def test_weights_go_on_to_onnx(tmp_path: Path) -> None:
    sample = fixture("1.15.5-lstm_bi_2l_states")
    cudnn_convert.convert(sample.prefix, tmp_path / "a.npz", format="npz", **sample.options)
    report = cudnn_convert.convert(tmp_path / "a.npz", tmp_path / "a.onnx", format="onnx", states=True)
    assert report.verification is not None
    assert report.verification.passed
    assert report.warnings == ()
    assert cudnn_convert.verify(tmp_path / "a.npz", tmp_path / "a.onnx").passed


def test_tanh_or_relu_is_asked_for_without_a_description(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{key: tensor.array for key, tensor in arrays(1).items()})
    with pytest.raises(AmbiguousSourceError, match="choose with --mode"):
        cudnn_convert.convert(tmp_path / "a.npz", tmp_path / "out", format="onnx")
