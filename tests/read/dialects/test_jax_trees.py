"""Keys of JAX's trees: how they are joined, and which are an optimizer's."""

from __future__ import annotations

import re

import numpy as np

from cudnn_convert.model import InMemory
from cudnn_convert.read.dialects import jax_trees


def paths(*keys: str) -> list[str]:
    tensors = {key: InMemory(np.full(1, number)) for number, key in enumerate(keys)}
    listed = jax_trees.list_weights(tensors)
    assert [tensor.read()[0] for tensor in listed.values()] == sorted(
        tensor.read()[0] for tensor in listed.values()
    )
    return [*listed]


def test_every_form_of_a_key_is_a_path() -> None:
    keys = ["['params']['a']['w']", "['rnns'][12]['b'].value", "net/a/w", "net.b.w", "[0]['lstm/~/x']['w']"]
    assert paths(*keys) == ["params/a/w", "rnns/12/b.value", "net/a/w", "net.b.w", "0/lstm/~/x/w"]


def test_an_optimizers_keys_are_left_out() -> None:
    assert paths("['opt_state'][0].mu['a']['w']", "state.opt_state.0.nu.w", "opt_state/w", "a/w") == ["a/w"]


def test_keys_with_the_same_path_stay_as_they_are() -> None:
    assert paths("['a']['w']", "a/w") == ["['a']['w']", "a/w"]


def test_keys_of_other_modules_below_a_path() -> None:
    """The first key below each path, without those of a module `cell` itself."""
    pattern, ignored = re.compile(r"(?P<path>(?:.*[./])?)w"), re.compile(r"rngs[./]")
    keys = ("net/cell/w", "net.cell.w", "net/cell/rngs/key", "net/norm.scale", "net/bias", "w", ".x")
    tensors = {key: InMemory(np.ones(1)) for key in keys}
    foreign = jax_trees.list_foreign(tensors, pattern, ignored=ignored)
    assert foreign == {"net": "cell/w", "net/cell/rngs": "key", "net/norm": "scale", "": "x"}
    assert jax_trees.list_foreign(tensors, pattern)["net/cell"] == "rngs/key"
    deep = "/".join("abc" * 20)
    assert {*jax_trees.list_foreign({deep: InMemory(np.ones(1))}, pattern)} == {
        deep[: 2 * count - 1] for count in range(28, 60)
    }
