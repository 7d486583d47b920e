"""CNTK's models: each form of the file, names, shared weights, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import refused
from support.samples import ROOT

from cudnn_convert import inspect
from cudnn_convert.errors import ReadError
from cudnn_convert.model import Mode, PartialSizes
from cudnn_convert.read import is_model, read
from cudnn_convert.read.arrays import cntk_dictionary

CNTK = ROOT / "tests/data/arrays/cntk"
FORMATS = CNTK / "formats"
SIZES = PartialSizes(Mode.RNN_TANH, 2, 4, 2)


@pytest.mark.parametrize("name", ["matrix", "vector", "frozen", "split", "float16"])
def test_every_form_has_the_same_weights(name: str) -> None:
    path = FORMATS / f"{name}.model"
    model = read(path)
    assert (model.kind, model.blobs) == ("CNTK model", {"rnn": SIZES})
    tensor, expected = model.variables["rnn"], read(FORMATS / "matrix.model").variables["rnn"].read()
    assert (tensor.shape, tensor.dtype) == ((200,), "float16" if name == "float16" else "float32")
    np.testing.assert_array_equal(tensor.read(), expected.astype(tensor.dtype), strict=True)
    assert expected.any()
    assert is_model(path)


def test_other_parameters_have_numpys_shape_and_are_left_out() -> None:
    path = CNTK / "net/saved.model"
    model = read(path)
    assert model.blobs == {
        "inner": PartialSizes(Mode.LSTM, 2, 4, 1),
        "outer": PartialSizes(Mode.RNN_TANH, 1, 2, 2),
    }
    shapes = {name: tensor.shape for name, tensor in model.variables.items()}
    assert shapes == {"inner": (336,), "outer": (32,), "W": (4, 3), "b": (3,), "E": (6, 5)}
    np.testing.assert_array_equal(model.variables["b"].read(), np.full(3, 0.25, np.float32), strict=True)
    notes = inspect(path).notes
    lead = (
        "the graph of saved.model is one of CNTK, so that recurrences alone are converted; left out: W, b, E"
    )
    assert any(lead in note for note in notes)


def changed(path: Path, source: Path, change: Callable[[dict[str, Any], Any], None]) -> Path:
    """A model after a change of its first OptimizedRNNStack, by key, and of the whole."""
    root = cntk_dictionary.message_class().FromString(source.read_bytes())
    functions = entries(root)["primitive_functions"].vector_value.value
    stacks = [entries(each.dictionary_value) for each in functions]
    change(next(each for each in stacks if each["op"].size_t_value == 49), root)
    path.write_bytes(root.SerializeToString(deterministic=True))
    return path


def entries(dictionary: Any) -> dict[str, Any]:
    """The DictionaryValues of a dictionary by key."""
    return {entry.key: entry.value for entry in dictionary.data}


def attribute(function: dict[str, Any], key: str) -> Any:
    return entries(function["attributes"].dictionary_value)[key]


def set_layers(number: int) -> Callable[[dict[str, Any], Any], None]:
    def change(function: dict[str, Any], _: Any) -> None:
        attribute(function, "numLayers").size_t_value = number

    return change


def set_operation(function: dict[str, Any], _: Any) -> None:
    attribute(function, "recurrentOp").string_value = "other"


def set_inputs(function: dict[str, Any], _: Any) -> None:
    function["inputs"].vector_value.value[1].string_value = "Parameter0"


def drop_inputs(function: dict[str, Any], _: Any) -> None:
    del function["inputs"].vector_value.value[:]


def set_operand(function: dict[str, Any], root: Any) -> None:
    for each in entries(root)["inputs"].vector_value.value:
        variable = entries(each.dictionary_value)
        if variable["kind"].size_t_value == 0:
            variable["shape"].nd_shape_value.shape_dim[0] = 6


def each_array(root: Any) -> Any:
    for each in entries(root)["inputs"].vector_value.value:
        variable = entries(each.dictionary_value)
        if "value" in variable:
            yield variable["value"].nd_array_view_value


def set_sparse(_: dict[str, Any], root: Any) -> None:
    for view in each_array(root):
        view.storage_format = 1


def set_int8(_: dict[str, Any], root: Any) -> None:
    for view in each_array(root):
        view.data_type = 5


def cut_values(_: dict[str, Any], root: Any) -> None:
    for view in each_array(root):
        view.float_values.value[0] = view.float_values.value[0][:-1]


def double_key(_: dict[str, Any], root: Any) -> None:
    root.data.add().CopyFrom(root.data[0])


def set_type(_: dict[str, Any], root: Any) -> None:
    entries(root)["type"].string_value = "Trainer"


def set_functions(_: dict[str, Any], root: Any) -> None:
    entries(root)["primitive_functions"].vector_value.value[0].value_type = 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_layers(3), "rnn: expected weights for 3 layers of 4 units, found 200 values"),
        (set_layers(0), "rnn: expected recurrentOp, numLayers and hiddenSize, found rnnTanh, 0 and 4"),
        (set_layers(2**63), "rnn: expected recurrentOp, numLayers and hiddenSize, found rnnTanh, 9"),
        (set_operation, "rnn: expected recurrentOp, numLayers and hiddenSize, found other, 2 and 4"),
        (set_inputs, "rnn: expected a parameter or constant of dense floats as its weights, found another"),
        (drop_inputs, "rnn: expected a parameter or constant of dense floats as its weights, found another"),
        (set_operand, "rnn: expected weights for 2 layers of 4 units and an input of 6, found 200 values"),
        (
            set_sparse,
            "rnn: expected a parameter or constant of dense floats as its weights, found another; save",
        ),
        (
            set_int8,
            "rnn: expected a parameter or constant of dense floats as its weights, found another; save",
        ),
        (cut_values, "weights: expected 800 bytes of values, found 799; copy it again"),
        (double_key, "file: expected a whole dictionary of CNTK, found a damaged or incomplete one; copy it"),
        (
            set_type,
            "type: expected CompositeFunction, found Trainer; give the model, which CNTK saves beside",
        ),
        (set_functions, "file: expected the dictionaries of a model, found others; copy it again"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], Any], None], message: str
) -> None:
    path = changed(tmp_path / "a.model", FORMATS / "matrix.model", change)
    with pytest.raises(ReadError) as raised:
        read(path)
    assert f"{path}: {message}" in str(raised.value)


def test_a_model_without_the_recurrence_runs_on_a_cpu_already(tmp_path: Path) -> None:
    [line] = refused(tmp_path, FORMATS / "converted.model", tmp_path / "out", code=1)
    assert line.endswith(
        "primitive_functions: expected a function OptimizedRNNStack, cuDNN's recurrence, found none; a model "
        "without it runs on a CPU as it is, in CNTK"
    )


def test_a_model_of_cntk_1_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.dnn"
    path.write_bytes("BCN\0BVersion\0".encode("utf-16-le"))
    with pytest.raises(
        ReadError, match="file: expected a model of CNTK 2, found one of CNTK 1; load it in CNTK 2"
    ):
        read(path)


def test_the_state_of_a_trainer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.model.ckp"
    path.write_bytes(b"\x08\x02\x12\x11\n\x07Version\x12\x06\x08\x02\x10\x03(\x01")
    with pytest.raises(
        ReadError, match="type: expected CompositeFunction, found none; give the model, which"
    ):
        read(path)


def test_every_cut_is_refused(tmp_path: Path) -> None:
    for name in ("matrix", "split"):
        whole, path = (FORMATS / f"{name}.model").read_bytes(), tmp_path / "cut.model"
        for end in range(80, len(whole), 11):
            path.write_bytes(whole[:end])
            with pytest.raises(ReadError):
                read(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (b"\0", "file: expected the values of parameters and constants alone behind it, found more"),
        (b"", "weights: expected 800 bytes of values, found 799; copy it again"),
    ],
)
def test_values_behind_the_message_are_of_its_arrays_alone(
    tmp_path: Path, extra: bytes, message: str
) -> None:
    path, whole = tmp_path / "split.model", (FORMATS / "split.model").read_bytes()
    path.write_bytes(whole + extra if extra else whole[:-1])
    with pytest.raises(ReadError, match=message):
        read(path)


def split(path: Path, source: Path, change: Callable[[Any], None]) -> Path:
    """A model with its values behind the message, as files of 2 GiB have them, after a change."""
    root = cntk_dictionary.message_class().FromString(source.read_bytes())
    values = b""
    for view in each_array(root):
        values += b"".join(view.float_values.value)
        view.ClearField("float_values")
    change(root)
    message = root.SerializeToString(deterministic=True)
    path.write_bytes(b"ktnc" + struct.pack("<I", len(message)) + message + values)
    return path


def test_values_behind_the_message_stand_in_the_order_of_the_arrays(tmp_path: Path) -> None:
    whole = read(CNTK / "net/saved.model")
    path = split(tmp_path / "split.model", CNTK / "net/saved.model", lambda root: None)
    model = read(path)
    assert (model.blobs, {*model.variables}) == (whole.blobs, {*whole.variables})
    for name, tensor in model.variables.items():
        np.testing.assert_array_equal(tensor.read(), whole.variables[name].read(), strict=True)

    def add(root: Any) -> None:
        """An array elsewhere, whose values would stand anywhere."""
        value = root.data.add(key="other").value
        value.value_type = 11
        value.nd_array_view_value.data_type = 1

    with pytest.raises(
        ReadError, match="expected the values of parameters and constants alone behind it, found"
    ):
        read(split(path, CNTK / "net/saved.model", add))


def test_two_stacks_of_one_parameter_are_one_recurrence_and_a_note(tmp_path: Path) -> None:
    def share(second: str, layers: int) -> Callable[[dict[str, Any], Any], None]:
        def change(_: dict[str, Any], root: Any) -> None:
            functions = entries(root)["primitive_functions"].vector_value.value
            functions.add().CopyFrom(functions[0])
            other = entries(functions[1].dictionary_value)
            other["name"].string_value, other["uid"].string_value = second, f"{second}_uid"
            attribute(other, "numLayers").size_t_value = layers
            other["inputs"].vector_value.value[0].string_value = "of_no_known_shape"

        return change

    source = FORMATS / "matrix.model"
    model = read(changed(tmp_path / "a.model", source, share("again", 2)))
    assert (model.blobs, model.notes) == (
        {"rnn": SIZES},
        ("rnn: again has the same weights and sizes, and is converted with it",),
    )
    model = read(changed(tmp_path / "b.model", source, share("rnn", 2)))
    assert [*model.blobs] == ["rnn"]
    assert model.notes == ("rnn: another has the same weights and sizes, and is converted with it",)
    deep = changed(tmp_path / "c.model", source, share("rnn", 1))
    model = read(deep)
    assert [*model.blobs] == ["rnn", "rnn_1"]
    assert model.blobs["rnn_1"].layers == 1
    np.testing.assert_array_equal(model.variables["rnn"].read(), model.variables["rnn_1"].read())


def test_weights_may_be_the_argument_of_a_block(tmp_path: Path) -> None:
    def pass_on(function: dict[str, Any], root: Any) -> None:
        given = function["inputs"].vector_value.value[1]
        uid, given.string_value = given.string_value, "Placeholder9"
        block = entries(root)["primitive_functions"].vector_value.value.add()
        block.value_type = 10
        for key, value in (("keys", "Placeholder9"), ("values", uid)):
            entry = block.dictionary_value.data.add(key=f"block_function_composite_arguments_map_{key}")
            entry.value.value_type = 9
            entry.value.vector_value.value.add(value_type=6, string_value=value)

    model = read(changed(tmp_path / "a.model", FORMATS / "matrix.model", pass_on))
    assert model.blobs == {"rnn": SIZES}


def test_a_function_without_a_name_has_its_id(tmp_path: Path) -> None:
    def unname(function: dict[str, Any], _: Any) -> None:
        function["name"].string_value = ""

    (name,) = read(changed(tmp_path / "a.model", FORMATS / "matrix.model", unname)).blobs
    assert name.startswith("OptimizedRNNStack")
