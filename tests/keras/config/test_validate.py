"""What a Keras config must be, and which of its layers may be built."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.errors import ReadError, UsageError
from cudnn_convert.keras.config import classes, validate, values
from cudnn_convert.keras.config.classes import Vouched

# What may be built: layers of Keras, and nothing that a file would have run.


def layer(class_name: str, name: str = "it", **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": {"name": name, **config}}


def row(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "row", "layers": [*layers]}}


def found(model: dict[str, Any], vouched: Vouched = classes.NOTHING) -> list[tuple[str, str, bool]]:
    return [(one.layer, one.class_name, one.runs) for one in validate.layers_not_allowed(model, vouched)]


RUNS = {
    "Lambda": layer("Lambda", function=["4wEA", None, None]),
    "TFOpLambda of io.gfile.rmtree": layer("TFOpLambda", function="io.gfile.rmtree"),
    "TFOpLambda of nn.softmax.__globals__": layer("TFOpLambda", function="nn.softmax.__globals__"),
    "TFOpLambda of compat.v1.io.write_file": layer("TFOpLambda", function="compat.v1.io.write_file"),
    "ClassMethod": layer("ClassMethod", cls_symbol="io.gfile.GFile", method_name="x"),
    "TensorFlowOpLayer": layer("TensorFlowOpLayer", node_def="op: 'WriteFile'"),
}


def op_layer(op: Any, *, constants: dict[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    """One op of TensorFlow as a layer; its name has a prefix outside of its config."""
    node = {"name": "op", "op": op, "input": ["x"], "attr": attributes}
    config = layer("TensorFlowOpLayer", "op", node_def=node, constants=constants or {})
    return {**config, "name": "tf_op_layer_op"}


@pytest.mark.parametrize(
    ("code", "op"),
    [
        (op_layer("WriteFile"), "WriteFile"),
        (op_layer("PrintV2", output_stream={"s": "ZmlsZTovLy90bXAveA=="}), "PrintV2"),
        (op_layer("RandomUniform"), "RandomUniform"),
        (op_layer(["Mean"]), "['Mean']"),
        (op_layer("PartitionedCall", f={"func": {"name": "f"}}), "PartitionedCall"),
        (op_layer("Case", branches={"list": {"func": [{"name": "f"}]}}), "Case"),
        (op_layer("Mean", constants={"1": {"class_name": "system", "module": "os"}}), "Mean"),
    ],
)
def test_an_op_is_refused_that_does_more_than_compute(code: dict[str, Any], op: str) -> None:
    expected = ("tf_op_layer_op", f"TensorFlowOpLayer of {op}", True)
    assert found(row(code)) == [expected]
    assert found(row(layer("TimeDistributed", "outer", layer=code))) == [expected]
    assert not found(row(code), Vouched(trust=True))


@pytest.mark.parametrize("class_name", RUNS)
def test_code_is_refused_wherever_it_stands(class_name: str) -> None:
    code = RUNS[class_name]
    for model in (
        row(code),
        row(layer("TimeDistributed", "outer", layer=code)),
        row(layer("Bidirectional", "outer", layer=layer("CuDNNLSTM"), backward_layer=code)),
        row(layer("Dense", "outer", activation=code)),
        row(layer("RNN", "outer", cell={"class_name": "StackedRNNCells", "config": {"cells": [code]}})),
        row({**layer("Dense", "outer"), "inbound_nodes": [[["x", 0, 0, {"mask": code}]]]}),
        row(
            {
                **layer("Dense", "outer"),
                "inbound_nodes": [{"args": [{"class_name": "__slice__", "config": {"start": code}}]}],
            }
        ),
        row(row(code)),
    ):
        name = "tf_op_layer_it" if class_name == "TensorFlowOpLayer" else "it"
        assert found(model) == [(name, class_name, True)]
        assert not found(model, Vouched(trust=True))


FOREIGN = {
    "unknown": layer("Attention2D"),
    "registered": layer("Mine>Dense"),
    "same name, other package": {**layer("Dense"), "registered_name": "Mine>Dense"},
    "same name, other module": {**layer("Dense"), "module": "this_module_must_not_be_imported"},
    "activation": layer("Dense", activation="serialize"),
    "function of a module": layer(
        "Dense", activation={"class_name": "function", "config": "system", "module": "os"}
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_class_of_others_is_refused(case: str) -> None:
    ((name, _, runs),) = found(row(FOREIGN[case]))
    assert (name, runs) == ("it", False)
    assert "this_module_must_not_be_imported" not in sys.modules


def test_the_names_that_the_user_vouches_for() -> None:
    model = row(layer("Mine>Scale"), layer("Dense", activation="mine"), layer("Other"))
    vouched = Vouched(tf_keras={"Scale": object, "mine": abs})
    assert found(model, vouched) == [("it", "Other", False)]
    assert found(model, Vouched(keras={"Scale": object}))[0] == ("it", "Mine>Scale", False)


def test_what_keras_itself_brings() -> None:
    assert not found(
        row(
            layer("CuDNNGRU"),
            layer("Dense", activation="relu", kernel_initializer=layer("Mine"), dtype=layer("Policy")),
            layer("Activation", activation={"class_name": "LeakyReLU", "config": {"alpha": 0.1}}),
            layer("TFOpLambda", function="math.reduce_sum"),
            layer("TFOpLambda", function="compat.v1.pad"),
            layer("TFOpLambda", function="gather_nd"),
            layer("SlicingOpLambda", function="__operators__.getitem"),
            op_layer("Mean", constants={"1": [1, 2]}, keep_dims={"b": False}),
        )
    )


@pytest.mark.parametrize(
    ("module", "name", "is_own"),
    [
        ("keras.src.ops.numpy", None, True),
        ("keras.src.ops.nn", "NotEqual", True),
        ("keras.src.ops.numpy", "Mine>NotEqual", False),
        ("keras.src.ops.core", None, False),  # one of its classes builds a function that a config names
        ("keras.src.ops.numpy_of_mine", None, False),
        (None, None, False),
    ],
)
def test_operations_of_keras_3(module: str | None, name: str | None, is_own: bool) -> None:
    operation = {**layer("NotEqual"), "module": module, "registered_name": name}
    assert bool(found(row(operation))) is not is_own


@pytest.mark.parametrize(
    ("kind", "is_own"), [("Cast", True), ("Unstack", True), ("Map", False), ("Cond", False)]
)
def test_core_operations_of_keras_3_that_call_nothing_are_its_own(kind: str, *, is_own: bool) -> None:
    operation = {**layer(kind), "module": "keras.src.ops.core", "registered_name": kind}
    assert bool(found(row(operation))) is not is_own


def test_the_line_says_what_to_do() -> None:
    (scale, code) = validate.layers_not_allowed(row(layer("Mine>Scale", "a"), layer("Lambda", "b")))
    assert str(scale) == (
        "layer a: expected a layer of Keras itself, found Mine>Scale; bring it for tf_keras with "
        "--custom-objects MODULE:Scale"
    )
    assert str(code) == (
        "layer b: expected a layer of Keras itself, found Lambda, which runs code that the file names; "
        "vouch for the file with --trust"
    )


def test_a_config_that_names_modules_is_no_plain_one() -> None:
    assert validate.is_plain([row({**layer("Dense"), "module": "keras.layers"}), {}])
    assert not validate.is_plain(row(layer("Dense", kernel_initializer={**layer("system"), "module": "os"})))
    assert not validate.is_plain([{}, {"optimizer_config": {**layer("Adam"), "module": "mine"}}])


def test_a_plain_config_keeps_what_inference_needs() -> None:
    newer = {
        "module": "keras.layers",
        "class_name": "Conv1D",
        "registered_name": None,
        "build_config": {"input_shape": [None, 3]},
        "config": {
            "name": "c",
            "kernel_size": {"class_name": "__tuple__", "items": [3]},
            "kernel_initializer": layer("Orthogonal"),
            "kernel_regularizer": layer("L2"),
            "bias_initializer": None,
            "activation": {"class_name": "function", "config": "relu", "module": "builtins"},
            "dtype": {"class_name": "Policy", "config": {"name": "float64"}},
        },
    }
    assert values.to_legacy_form(newer) == {
        "class_name": "Conv1D",
        "config": {
            "name": "c",
            "kernel_size": [3],
            "kernel_initializer": "zeros",
            "bias_initializer": None,
            "activation": "relu",
            "dtype": "float64",
        },
    }
    mine = layer("Mine>Scale", kernel_initializer=layer("Own"))
    assert values.to_legacy_form(mine, kept={"Scale"}) == {**mine, "class_name": "Scale"}


def test_custom_objects_are_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layers_of_mine.py").write_text(
        "import tf_keras\n"
        "class A(tf_keras.layers.Layer): pass\n"
        "class B(type('Layer', (), {'__module__': 'keras.src.layers'})): pass\n"
        "def swish2(x): return x\n"
    )
    monkeypatch.chdir(tmp_path)
    path = [*sys.path]
    brought = classes.import_user_objects([f"layers_of_mine:{name}" for name in ("A", "B", "swish2")])
    assert (set(brought.tf_keras), set(brought.keras)) == ({"A", "swish2"}, {"B", "swish2"})
    assert sys.path == path


@pytest.mark.parametrize("item", ["no_such_module:A", "os:no_such_name"])
def test_a_custom_object_that_is_not_there(item: str) -> None:
    with pytest.raises(
        UsageError, match=f"--custom-objects {item}: expected MODULE:NAME that Python can import"
    ):
        classes.import_user_objects([item])


# What a Keras config must be before anything follows it; one change at a time to one that is sound.

Config = dict[str, Any]


def claimed_layer(kind: str, name: str, *calls: Any, **config: Any) -> Config:
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": [*calls]}


def functional() -> Config:
    inner = claimed_layer("CuDNNGRU", "gru", units=3)
    way = claimed_layer("Bidirectional", "both", [["x", 0, 0, {}]], layer=inner, merge_mode=None)
    start = {"class_name": "Zeros", "config": {}}
    dense = claimed_layer(
        "Dense", "dense", [["both", 0, 0, {}]], kernel_initializer=start, bias_initializer="zeros"
    )
    layers = [claimed_layer("InputLayer", "x", batch_input_shape=[None, None, 4]), way, dense]
    config = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]]}
    return {"class_name": "Model", "config": {**config, "output_layers": {"a": [["dense", 0, 0]]}}}


def claimed_row() -> Config:
    return {
        "class_name": "Sequential",
        "config": [claimed_layer("CuDNNLSTM", "lstm", units=2, batch_input_shape=[None, 7, 4])],
    }


def refusal(config: Config) -> str:
    with pytest.raises(ReadError) as caught:
        validate.require(Path("m.h5"), "config", config)
    return str(caught.value).removeprefix("m.h5: config: ")


def test_sound_models_pass() -> None:
    own = {"class_name": "mine>Own", "config": {"units": "many", "batch_input_shape": "any"}}
    tensor = {"class_name": "__keras_tensor__", "config": {"shape": [1], "keras_history": ["x", 0, 0]}}
    newer = {"args": [tensor], "kwargs": {"mask": None}}
    nested = functional()
    nested["config"]["layers"].append(claimed_layer("Dense", "last", newer))
    nested["config"]["layers"].append(op_layer("Mean"))
    nested["config"]["output_layers"] = ["tf_op_layer_op", 0, 0]
    for config in (
        functional(),
        claimed_row(),
        own,
        nested,
        {"class_name": "Sequential", "config": {"layers": []}},
    ):
        validate.require(Path("m.h5"), "config", config)


def put(*path: Any, value: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        held: Any = config
        for key in path[:-1]:
            held = held[key]
        held[path[-1]] = value

    return change


LAYERS = ("config", "layers")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("class_name", value=3), "model: expected class_name and config, found {"),
        (put("config", value="m"), "model: expected class_name and config, found {"),
        (put("config", value=[]), "model: expected a config with names, found []"),
        (put("config", "name", value=["m"]), "model: expected one name, found ['m']"),
        (put(*LAYERS, value=None), "model m: expected a list of layers, found none"),
        (put(*LAYERS, value={}), "model m: expected a list of layers, found {}"),
        (put(*LAYERS, 1, value="both"), "layer: expected class_name and config, found 'both'"),
        (put(*LAYERS, 2, "name", value="other"), "layer: expected one name, found 'other'"),
        (put(*LAYERS, 2, value={**op_layer("Mean"), "name": "op"}), "layer: expected one name, found 'op'"),
        (put(*LAYERS, 2, "config", value=[]), "layer dense: expected a config with names, found []"),
        (put("build_config", value=[1]), "model m: expected a build_config with names, found [1]"),
        (put(*LAYERS, 2, "inbound_nodes", value=7), "layer dense: expected a list of inbound_nodes, found 7"),
        (
            put("config", "input_layers", value=None),
            "model m: input_layers: expected references to its layers, f",
        ),
        (
            put("config", "input_layers", value=[]),
            "model m: input_layers: expected references to its layers, found []",
        ),
        (
            put("config", "output_layers", value="dense"),
            "model m: output_layers: expected references to its layers",
        ),
        (
            put("config", "output_layers", value=["y", 0, 0]),
            "model m: output_layers: expected references to its l",
        ),
        (
            put("config", "output_layers", value=["x", 0, -1]),
            "model m: output_layers: expected references to its",
        ),
        (
            put("config", "output_layers", value=["x", True, 0]),
            "model m: output_layers: expected references to i",
        ),
        (
            put("config", "output_layers", value=["x", 0]),
            "model m: output_layers: expected references to its lay",
        ),
        (
            put(*LAYERS, 1, "config", "layer", value=None),
            "layer both: layer: expected the layer that it wraps, found none",
        ),
        (
            put(*LAYERS, 1, "config", "backward_layer", value=1),
            "layer: expected class_name and config, found 1",
        ),
        (
            put(*LAYERS, 1, "config", "merge_mode", value=[1]),
            "layer both: merge_mode: expected the name of a mode, found [1]",
        ),
        (
            put(*LAYERS, 1, "config", "layer", "config", "units", value=0),
            "layer gru: units: expected a number of at least 1, found 0",
        ),
        (
            put(*LAYERS, 1, "config", "layer", "config", "units", value=True),
            "layer gru: units: expected a number of at least 1, found True",
        ),
        (
            put(*LAYERS, 0, "config", "batch_input_shape", value=[None, 0]),
            "layer x: batch_input_shape: expected sizes, found [None, 0]",
        ),
        (
            put(*LAYERS, 0, "config", "batch_shape", value=["a"]),
            "layer x: batch_shape: expected sizes, found ['a']",
        ),
        (
            put(*LAYERS, 2, "config", "kernel_initializer", "config", value=5),
            "kernel_initializer: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "bias_regularizer", value={"config": 1}),
            "bias_regularizer: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "bias_constraint", value={"config": 1}),
            "bias_constraint: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "axis", value=2**63),
            "JSON: expected whole numbers from -2^63 to 2^63 - 1, found one of 64 bits",
        ),
        (
            put(*LAYERS, 2, "config", "axis", value=-(2**63) - 1),
            "JSON: expected whole numbers from -2^63 to 2^63 - 1, found one of 64 bits",
        ),
    ],
)
def test_each_fault_is_told(change: Callable[[Config], None], told: str) -> None:
    config = functional()
    change(config)
    assert refusal(config).startswith(told), refusal(config)


@pytest.mark.parametrize("history", [None, "x", ["x", 0], [0, 0, 0], ["x", "0", 0]])
def test_a_tensor_has_a_history(history: Any) -> None:
    config = functional()
    tensor = {"class_name": "__keras_tensor__", "config": {"keras_history": history}}
    config["config"]["layers"][2]["inbound_nodes"] = [{"args": [tensor], "kwargs": {}}]
    assert refusal(config).startswith(
        "__keras_tensor__: expected a keras_history of a layer's name and two num"
    )


def test_depth_is_bounded() -> None:
    def deep(levels: int) -> Config:
        config = claimed_row()
        held = config["config"][0]["config"]
        for _ in range(levels - 4):
            held["x"] = {}
            held = held["x"]
        return config

    validate.require(Path("m.h5"), "config", deep(100))
    assert refusal(deep(102)) == "JSON: expected at most 100 nested levels, found more"


def test_a_row_and_its_inner_models_are_looked_through() -> None:
    config = claimed_row()
    config["config"].append(functional())
    validate.require(Path("m.h5"), "config", config)
    config["config"][1]["config"]["layers"][1]["config"]["layer"]["config"]["units"] = "3"
    assert refusal(config) == "layer gru: units: expected a number of at least 1, found '3'"
    again = json.loads(json.dumps(claimed_row()))
    again["config"][0]["config"]["batch_input_shape"] = {"class_name": "__tuple__", "items": [None, "a"]}
    assert refusal(copy.deepcopy(again)).startswith("layer lstm: batch_input_shape: expected sizes, found {")


@pytest.mark.parametrize(
    "flag", ["go_backwards", "return_sequences", "return_state", "stateful", "time_major"]
)
def test_settings_are_true_or_false(flag: str) -> None:
    for value in (None, True, False):
        config = functional()
        put(*LAYERS, 1, "config", "layer", "config", flag, value=value)(config)
        validate.require(Path("m.h5"), "config", config)
    for value in (float("-inf"), [], "yes", 2):
        put(*LAYERS, 1, "config", "layer", "config", flag, value=value)(config)
        assert refusal(config) == f"layer gru: {flag}: expected true or false, found {value!r}"


def test_the_cells_of_a_stack_are_layers() -> None:
    cells = [claimed_layer("LSTMCell", "cell", units=2)]
    stack = {
        "class_name": "RNN",
        "config": {"name": "rnn", "cell": claimed_layer("StackedRNNCells", "s", cells=cells)},
    }
    own = {"class_name": "Own", "config": {"name": "own", "cells": [1]}}
    config = {
        "class_name": "Sequential",
        "config": [claimed_layer("StackedRNNCells", "s", cells=cells), stack, own],
    }
    validate.require(Path("m.h5"), "config", config)
    cells.append("cell")
    assert refusal(config) == "layer: expected class_name and config, found 'cell'"
    config["config"] = [stack]
    assert refusal(config) == "layer: expected class_name and config, found 'cell'"


def test_a_type_that_is_an_object_has_a_config() -> None:
    config = claimed_row()
    config["config"][0]["config"]["dtype"] = {"class_name": "Policy", "config": {"name": "float32"}}
    validate.require(Path("m.h5"), "config", config)
    config["config"][0]["config"]["dtype"]["config"] = "float32"
    assert refusal(config).startswith(
        "dtype: expected an object with a config, found {'class_name': 'Policy'"
    )
