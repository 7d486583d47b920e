"""Cuts of Keras models at layers: which results, and what is offered before layers of other code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.keras_files import entry, model, sequential

from cudnn_convert.errors import UsageError
from cudnn_convert.keras import cut_layers
from cudnn_convert.keras.config import classes, layer_tree
from cudnn_convert.model import KerasFile, Model

HERE = Path("model.h5")


def called(kind: str, name: str, *nodes: list[Any], **config: Any) -> dict[str, Any]:
    return {**entry(kind, name, **config), "name": name, "inbound_nodes": [*nodes]}


def shared(last: str = "Lambda") -> Model:
    """Two inputs through one layer, and what compares its results."""
    layers = [
        called("InputLayer", "a", batch_input_shape=[None, 3]),
        called("InputLayer", "b", batch_input_shape=[None, 3]),
        called("Dense", "both", [["a", 0, 0, {}]], [["b", 0, 0, {}]], units=2),
        called(last, "end", [["both", 0, 0, {}], ["both", 1, 0, {}]]),
    ]
    ends = {"input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["end", 0, 0]]}
    config = {"class_name": "Model", "config": {"name": "model", "layers": layers, **ends}}
    return Model(HERE, "Keras HDF5 file", None, {}, architecture=model(config, {}), keras=KerasFile.HDF5)


def cut(source: Model, *outputs: str) -> Any:
    found = cut_layers.cut_at_layers(source, outputs).architecture
    assert found is not None
    return found.config


def test_a_layer_that_is_called_twice_has_two_results() -> None:
    config = cut(shared(), "both:1")
    assert config["config"]["output_layers"] == [["both", 0, 0]]  # numbered anew
    assert [layer_tree.layer_name(layer) for layer in config["config"]["layers"]] == ["b", "both"]
    config = cut(shared(), "both,both:1")
    assert config["config"]["output_layers"] == [["both", 0, 0], ["both", 1, 0]]
    assert len(config["config"]["input_layers"]) == 2


def test_a_row_of_layers_ends_with_the_layer() -> None:
    layers = [entry("LSTM", "rnn", units=2), entry("Dense", "out", units=2), entry("Lambda", "code")]
    source = Model(HERE, "Keras HDF5 file", None, {}, architecture=model(sequential(*layers), {}))
    assert [layer_tree.layer_name(layer) for layer in layer_tree.layer_entries(cut(source, "rnn"))] == ["rnn"]
    with pytest.raises(UsageError, match="expected one layer of a Sequential model, found rnn, out"):
        cut(source, "rnn", "out")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("both,other", r"expected layers of model.h5, such as a, b, both, end, found other"),
        ("both:2", r"expected at most both:1, its last call, found both:2"),
    ],
)
def test_what_is_not_there_is_told(outputs: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut(shared(), outputs)


def test_tensors_are_no_layers() -> None:
    assert not cut_layers.names_layers(shared(), ["both/BiasAdd:0"])
    assert cut_layers.names_layers(shared(), ["both:1"])


def test_the_cut_before_other_code_is_offered() -> None:
    architecture = shared().architecture
    assert architecture is not None
    assert cut_layers.find_ends(architecture, classes.NOTHING) == (["both", "both:1"], True)
    (reason,) = cut_layers.offer_cut(architecture, classes.NOTHING, ["layer end: found Lambda"])
    assert (
        str(reason) == "layer end: found Lambda, or convert what comes before it with --outputs both,both:1"
    )
    plain = shared("Add").architecture
    assert plain is not None
    assert cut_layers.find_ends(plain, classes.NOTHING) == ([], False)
