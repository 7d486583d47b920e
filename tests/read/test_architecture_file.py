"""Configs of Keras models in files of their own, and weights that are paired with their layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory
from cudnn_convert.read import architecture_file


def config(*kinds: str) -> dict[str, Any]:
    layers = [{"class_name": kind, "config": {"name": f"own_{k}"}} for k, kind in enumerate(kinds)]
    return {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}


def weights(*names: str) -> dict[str, tuple[tuple[str, InMemory], ...]]:
    return {name: (("kernel", InMemory(np.full([1], k))),) for k, name in enumerate(names)}


def test_layers_that_have_weights_take_them_by_order() -> None:
    stored = weights("lstm_3", "dense_7")
    paired, (note,) = architecture_file.pair_by_order(stored, config("LSTM", "Dropout", "Dense"))
    assert paired == {"own_0": stored["lstm_3"], "own_2": stored["dense_7"]}
    assert note.endswith("as Keras loads them: lstm_3 is own_0, dense_7 is own_2")


def test_weights_stay_where_names_fit_or_numbers_do_not() -> None:
    for stored in (weights("own_2"), weights("one", "two", "three")):
        assert architecture_file.pair_by_order(stored, config("LSTM", "Dropout", "Dense")) == (stored, ())


def test_a_wrapper_has_the_weights_of_its_layer() -> None:
    model = config("TimeDistributed", "TimeDistributed")
    for layer, kind in zip(model["config"]["layers"], ("Dense", "Flatten"), strict=True):
        layer["config"]["layer"] = {"class_name": kind, "config": {"name": kind}}
    assert architecture_file.list_able(model) == ["own_0"]


def test_the_config_of_keras_3_says_so_by_its_module() -> None:
    assert architecture_file.describe(config() | {"module": "keras"}, {}).keras_version == "3.0"
    assert architecture_file.describe(config() | {"keras_version": "2.2.4"}, {}).keras_version == "2.2.4"


def test_weights_have_a_backend_of_their_own() -> None:
    written = config() | {"keras_version": "2.2.4", "backend": "theano"}
    assert architecture_file.describe(written, {}).backend == "theano"
    for version, backend in (("1", ""), ("2.0.9", "tensorflow")):
        described = architecture_file.describe(written, {}, weights_version=version, weights_backend=backend)
        assert (described.backend, described.weights_version) == (backend, version)


def test_json_of_a_model_is_told_from_other_json(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(config("Flatten")))
    assert architecture_file.is_config(path)
    assert architecture_file.read_config(path) == config("Flatten")
    path.write_text('{"name": "another"}')
    assert not architecture_file.is_config(path)
    with pytest.raises(ReadError, match=r"expected class_name and config, .* found a file without them"):
        architecture_file.read_config(path)
