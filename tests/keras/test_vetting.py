"""What may be built: layers of Keras, and nothing that a file would have run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.errors import UsageError
from cudnn_convert.keras.config import classes, validate, values
from cudnn_convert.keras.config.classes import Vouched


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
    "ClassMethod": layer("ClassMethod", cls_symbol="io.gfile.GFile", method_name="x"),
    "TensorFlowOpLayer": layer("TensorFlowOpLayer", node_def="op: 'WriteFile'"),
}


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
        row(row(code)),
    ):
        assert found(model) == [("it", class_name, True)]
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
            layer("SlicingOpLambda", function="__operators__.getitem"),
        )
    )


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
    with pytest.raises(UsageError, match=f"--custom-objects {item}: expected MODULE:NAME, found "):
        classes.import_user_objects([item])
