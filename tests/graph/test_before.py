"""Where a refusal advises to cut: what is left is as much of the model as there can be, and converts."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from graphs import BLOB, drawing, lstm, placeholder, variable

from cudnn_convert.errors import Remedy
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes.subgraphs import Cuts


def drawn() -> Any:
    """`x` -> `first` -> `odd` -> `second` -> `odder` -> `last`, sizes of `first` beside it, a loop behind."""
    with drawing() as graph:
        first = tf.nn.relu(placeholder("x"), name="first")
        zeros = tf.fill(tf.shape(first, name="sizes"), 1.0, name="ones")
        odd = tf.add_n([zeros, first], name="odd")
        second = tf.tanh(odd, name="second")
        odder = tf.exp(tf.cast(second, tf.float64, name="wide"), name="odder")
        tf.identity(odder, name="last")

        def step(k: Any, y: Any) -> tuple[Any, Any]:
            return k + 1, tf.sin(y, name="inside")

        tf.while_loop(lambda k, _: k < 3, step, (0, first), name="loop")
        tf.split(first, 3, axis=2, name="parts")
        tf.cos(graph.get_tensor_by_name("parts:2"), name="third")
        tf.cos(tf.constant(1.0), name="fixed")
    return graph.as_graph_def()


@pytest.mark.parametrize(
    ("name", "avoid", "wanted"),
    [
        ("odd", (), "first:0"),  # neither its sizes nor what is made of them
        ("odder", (), "wide:0"),
        ("odder", ("odd",), "first:0"),  # nothing that another refusal is of
        ("odder", ("odd", "first"), None),  # an input is no output by itself
        ("third", (), "parts:2"),
        ("fixed", (), None),  # no input is left of it
        ("of another graph", (), None),
    ],
)
def test_most_of_the_model_is_left(name: str, avoid: tuple[str, ...], wanted: str | None) -> None:
    index = Index(drawn())
    remedy = Cuts(index, index.nodes).before(name, avoid)
    assert remedy == (Remedy({"outputs": (wanted,)}, "cut before it with") if wanted else None)


def test_a_recurrence_is_left() -> None:
    """Where the graph has one: a model without it is not the one that its user has."""
    with drawing() as graph:
        scaled = tf.multiply(placeholder("x"), 2.0, name="scaled")
        odd = tf.identity(lstm(tf.exp(scaled, name="odd"), variable("blob", BLOB.shape)).output, "odd_too")
        tf.tanh(odd, name="last")
    index = Index(graph.as_graph_def())
    assert str(Cuts(index, index.nodes).before("last", ())) == "cut before it with --outputs odd_too:0"
    assert Cuts(index, index.nodes).before("odd", ()) is None
    lowered, wide = Index(drawn()), Remedy({"outputs": ("wide:0",)}, "cut before it with")
    assert Cuts(lowered, lowered.nodes, recurrences=["odd"]).before("odder", ()) == wide
    assert Cuts(lowered, lowered.nodes, recurrences=["odd"]).before("odd", ()) is None


def test_no_tensor_of_a_loop_is_offered() -> None:
    index = Index(drawn())
    (inside,) = (name for name in index.nodes if name.endswith("inside"))
    assert Cuts(index, index.nodes).before(inside, ()) == Remedy(
        {"outputs": ("first:0",)}, "cut before it with"
    )


def test_only_what_its_user_knows_is_offered() -> None:
    index = Index(drawn())
    assert Cuts(index, {"x", "odd"}).before("odder", ()) == Remedy(
        {"outputs": ("odd:0",)}, "cut before it with"
    )
