"""What the Keras that wrote a file had not yet."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from support.keras_files import entry, model, sequential

from cudnn_convert.keras.config import classes, validate, versions


@pytest.mark.parametrize(
    ("version", "others"),
    [
        ("2.1.6", "GroupNormalization LayerNormalization MultiHeadAttention gelu mish swish"),
        ("2.3.1", "GroupNormalization LayerNormalization MultiHeadAttention gelu mish swish"),
        ("2.1.6-tf", "GroupNormalization LayerNormalization MultiHeadAttention gelu mish swish"),
        ("2.2.4-tf", "GroupNormalization MultiHeadAttention gelu mish swish"),
        ("2.3.0-tf", "GroupNormalization MultiHeadAttention gelu mish"),
        ("2.4.0", "GroupNormalization mish"),
        ("2.11.0", "mish"),
        ("2.13.1", ""),
        ("3.4.1", ""),
        ("", ""),
    ],
)
def test_a_name_that_came_later_is_the_users_own(version: str, others: str) -> None:
    kinds = ["Dense", "LayerNormalization", "MultiHeadAttention", "GroupNormalization"]
    layers = [entry(kind, kind) for kind in kinds]
    functions = ["tanh", "swish", "gelu", "mish"]
    layers += [entry("Activation", name, activation=name) for name in functions]
    listed = validate.refusals(model(sequential(*layers), {}, keras_version=version))
    assert {refusal.class_name for refusal in listed} == set(others.split())
    assert all(f"with --custom-objects MODULE:{refusal.layer}" in str(refusal) for refusal in listed)


def test_keras_3_has_activations_of_its_own() -> None:
    """It writes `swish` as `silu`; a function of the user's is an object, whatever its name."""
    others = {"get", "serialize", "deserialize"}
    names = {name for name in dir(keras.activations) if not name.startswith("_")} - others
    assert names <= classes.ACTIVATIONS_OF_KERAS_3
    known = (entry("Activation", name, activation=name) for name in sorted(names))
    own = entry("Dense", "own", activation={"class_name": "function", "module": None, "config": "silu"})
    layers = sequential(*known, own)
    for version, refused in (("3.15.1", ["own"]), ("2.15.0", [*names - classes.ACTIVATIONS, "own"])):
        listed = validate.refusals(model(layers, {}, keras_version=version))
        assert sorted(refusal.layer for refusal in listed) == sorted(refused)


def test_every_name_that_came_later_is_known_now() -> None:
    assert versions.newer_names("2.1.6") <= classes.BUILT_IN | classes.ACTIVATIONS


def test_an_object_without_a_module_is_the_users_own() -> None:
    keras = {"module": "builtins", "class_name": "function", "config": "gelu", "registered_name": "gelu"}
    layers = [
        {**entry("LayerNormalization", "mine"), "module": None, "registered_name": "LayerNormalization"},
        entry("Dense", "own", activation={**keras, "module": None}),
        entry("Dense", "theirs", activation=keras),
        {**entry("LayerNormalization", "known"), "module": "keras.layers", "registered_name": None},
    ]
    listed = validate.refusals(model(sequential(*layers), {}, keras_version="3.4.1"))
    assert [refusal.layer for refusal in listed] == ["mine", "own"]


_OLDER, _NEWER = {"sparse": False}, {"sparse": False, "ragged": False}
_WRAPPED = entry("GRU", "gru", zero_output_for_mask=True)


@pytest.mark.parametrize(
    ("version", "layers", "newest", "oldest"),
    [
        ("2.2.4-tf", [entry("InputLayer", "x", **_NEWER)], (2, 2, 4, 15), (2, 2, 4, 15)),
        ("2.2.4-tf", [entry("InputLayer", "x", **_OLDER)], (2, 2, 4, 14), (2, 2, 4, 13)),
        ("2.2.4-tf", [entry("Dense", "x")], (2, 2, 4, 15), (2, 2, 4, 13)),
        (
            "2.2.4-tf",
            [entry("InputLayer", "x", **_OLDER), entry("Bidirectional", "both", layer=_WRAPPED)],
            *((2, 2, 4, 13), (2, 2, 4, 13)),
        ),
        (
            "2.2.4-tf",
            [entry("Bidirectional", "both", layer=_WRAPPED), entry("InputLayer", "x", **_OLDER)],
            *((2, 2, 4, 13), (2, 2, 4, 13)),
        ),
        # Later releases save it too where it was given.
        ("2.2.4-tf", [entry("InputLayer", "x", **_OLDER), _WRAPPED], (2, 2, 4, 14), (2, 2, 4, 13)),
        (
            "2.2.4-tf",
            [entry("InputLayer", "x", **_NEWER), entry("Bidirectional", "both", layer=_WRAPPED)],
            *((2, 2, 4, 15), (2, 2, 4, 15)),
        ),
        ("2.2.4", [entry("InputLayer", "x", **_OLDER)], (2, 2, 4), (2, 2, 4)),
        ("2.1.6-tf", [entry("InputLayer", "x", **_OLDER)], (2, 1, 6), (2, 1, 6)),
        ("3.0.0", [], (3, 0, 0), (3, 0, 0)),
        ("3.0", [], None, None),  # JSON
        ("", [], None, None),
    ],
)
def test_releases_of_one_version_are_told_apart(
    version: str, layers: list[Any], newest: tuple[int, ...] | None, oldest: tuple[int, ...] | None
) -> None:
    assert versions.find_writer(version, sequential(*layers)) == (version, newest, oldest)


@pytest.mark.parametrize(
    ("version", "keras_team"),
    [("2.0.9", True), ("2.3.1", True), ("2.2.4-tf", False), ("2.4.0", False), ("1.2", False), ("", False)],
)
def test_files_of_keras_team(version: str, keras_team: bool) -> None:
    assert versions.is_keras_team(version) == keras_team
