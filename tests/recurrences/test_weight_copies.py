"""Which set of canonical keys is a copy of which variable: a layer's set is that of its own blob alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.model import CanonicalParameters, Cell, Convention, Mode, Model
from cudnn_convert.recurrences import weight_copies

v1 = tf.compat.v1
UNITS = 4


def canonical(scope: str) -> CanonicalParameters:
    """A GRU's canonical set that is matched, and never read."""

    def unread(*_: Any) -> Any:
        raise AssertionError("a set is matched by its scope and sizes, not by its numbers")

    return CanonicalParameters(scope, (Mode.GRU,), 1, 1, UNITS, 3, unread, {})


def model(*variables: str, scopes: tuple[str, ...], keys: Mapping[str, str] | None = None) -> Model:
    with tf.Graph().as_default() as graph:
        for name in variables:
            v1.placeholder(tf.float32, [None], name)
    sets = tuple(canonical(scope) for scope in scopes)
    return Model(Path("m.ckpt"), "a test's", graph.as_graph_def(), {}, sets, keys=keys or {})


def scopes_of(given: Model, variable: str) -> tuple[str | None, str | None]:
    """The scope of the set that is matched by scope, and by sizes."""
    facts = weight_copies.Facts("node", Mode.GRU, 1, 1, UNITS, np.dtype(np.float32))
    by_scope = weight_copies.match_by_scope(given, variable, Mode.GRU, 1, projection=0)
    by_sizes = weight_copies.match_by_sizes(given, facts, variable, has_blob=True)
    return by_scope and by_scope.scope, by_sizes and by_sizes.scope


LAYER = "net/g/opaque_kernel"


@pytest.mark.parametrize("scope", ["net/g/", "net/"])  # contrib's own scope, and that of older layers
@pytest.mark.parametrize(
    "other",
    [f"{LAYER}/ExponentialMovingAverage", "net/g/target_kernel", "net/params", "target/params", "params"],
)
def test_a_layers_set_is_no_other_variables(scope: str, other: str) -> None:
    given = model(LAYER, other, scopes=(scope,))
    assert scopes_of(given, LAYER) == (scope, scope)
    assert scopes_of(given, other) == (None, None)


def test_the_set_of_a_scope_is_not_that_of_a_layer_inside_it() -> None:
    outer, inner = "net/opaque_kernel", "net/g/opaque_kernel"
    given = model(outer, inner, scopes=("net/",))
    assert scopes_of(given, outer) == ("net/", "net/")
    assert scopes_of(given, inner) == (None, None)


@pytest.mark.parametrize("scope", ["net/g/", "net/"])
def test_a_set_without_a_layer_is_that_of_the_variable_in_its_scope(scope: str) -> None:
    given = model("net/g/params", scopes=(scope,))
    assert scopes_of(given, "net/g/params") == (scope, scope)


def test_a_scope_that_the_user_chose_is_found_by_sizes() -> None:
    given = model("params", scopes=("saved/",))
    assert scopes_of(given, "params") == (None, "saved/")


def test_the_key_of_a_renamed_layer_counts() -> None:
    given = model(LAYER, "net/g/other", scopes=("old/",), keys={LAYER: "old/opaque_kernel"})
    assert scopes_of(given, LAYER) == ("old/", "old/")
    assert scopes_of(given, "net/g/other") == (None, None)


def test_a_moving_average_that_is_restored_in_a_layers_place_has_no_set() -> None:
    given = model(LAYER, scopes=("net/g/",), keys={LAYER: f"{LAYER}/ExponentialMovingAverage"})
    assert scopes_of(given, LAYER) == (None, None)


def test_copies_of_other_sizes_differ() -> None:
    """A blob and the keys beside it need not be of one model."""

    def cell(inputs: int) -> Cell:
        return Cell(
            Mode.RNN_TANH, np.ones((1, 2, inputs)), np.ones((1, 2, 2)), np.ones((1, 2)), np.ones((1, 2))
        )

    def compared(first: list[int], second: list[int]) -> str | None:
        cells = ([(cell(inputs),) for inputs in each] for each in (first, second))
        return weight_copies.compare_copies(*cells, Convention())

    assert compared([5], [5]) is None
    told = "expected canonical keys and raw blob to agree, found a difference of inf"
    assert compared([5], [375]) == f"layers[0].forward.kernel: {told}"
    assert compared([5, 2], [5]) == "expected canonical keys and raw blob of one depth, found 2 and 1 layers"
