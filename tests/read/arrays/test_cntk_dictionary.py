"""CNTK's dictionaries: types of values, keys, and arrays in them."""

from __future__ import annotations

import pytest
from support.samples import ROOT

from cudnn_convert.read.arrays import cntk_dictionary

SAVED = ROOT / "tests/data/arrays/cntk/net/saved.model"


def test_a_model_is_values_by_key() -> None:
    root = cntk_dictionary.message_class().FromString(SAVED.read_bytes())
    values = cntk_dictionary.values(root)
    assert (values["type"], values["version"], values["uid"]) == (
        "CompositeFunction",
        3,
        "CompositeFunction6591",
    )
    functions = [
        cntk_dictionary.values(each) for each in cntk_dictionary.members(values["primitive_functions"])
    ]
    attributes = [cntk_dictionary.values(each["attributes"]) for each in functions if each["op"] == 49]
    assert {"hiddenSize": 4, "numLayers": 2, "bidirectional": False, "recurrentOp": "lstm"} in attributes
    assert cntk_dictionary.count_arrays(root) == 5


def test_a_key_that_is_there_twice_is_an_error() -> None:
    """A map of protobuf keeps the last one."""
    root = cntk_dictionary.message_class()()
    for number in (1, 2):
        entry = root.data.add(key="x")
        entry.value.value_type, entry.value.size_t_value = 3, number
    with pytest.raises(ValueError, match="a key twice"):
        cntk_dictionary.values(root)
    root.data[1].key = "y"
    assert cntk_dictionary.values(root) == {"x": 1, "y": 2}


def test_values_of_other_types_are_none() -> None:
    root = cntk_dictionary.message_class()()
    root.data.add(key="x").value.value_type = 4
    assert cntk_dictionary.values(root) == {"x": None}
    assert cntk_dictionary.members(None) == []
    assert cntk_dictionary.count_arrays(root) == 0
