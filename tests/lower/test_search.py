"""A search in a graph, over a step that reads all that a search can give it, beside the judge of searches.

Half of the step's table is a constant, half a variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import search_steps
from support.search_steps import BIAS, FEED, TABLE, VOCABULARY, numbers_of

from cudnn_convert.graph.graph import Graph, copy_graph
from cudnn_convert.lower import search
from cudnn_convert.model import Signature

v1 = tf.compat.v1
BOUNDS = {np.float64: 1e-12, np.float32: 1e-5, np.float16: 2e-2}


def graph_of_step(dtype: Any, scale: str, logits_axis: int | None) -> tuple[Graph, Signature]:
    """The step as a graph, with variables, which `initialize` sets, and a function."""
    with tf.Graph().as_default() as graph:
        token = v1.placeholder(tf.int64, [None, 1], "token")
        state = v1.placeholder(dtype, [1, None, VOCABULARY], "state")
        context = v1.placeholder(dtype, [VOCABULARY, None], "context")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        still = v1.placeholder(dtype, [1, None, 2], "still")
        factor = v1.placeholder(dtype, [], "scale")
        values = {"bias": BIAS.astype(dtype), "table": TABLE.astype(dtype) / 2}
        bias, table = (
            v1.get_variable(name, initializer=value, use_resource=True) for name, value in values.items()
        )
        v1.group(bias.initializer, table.initializer, name="initialize")

        @tf.function(autograph=False)
        def transposed(x: Any) -> Any:
            return tf.transpose(x)

        halves = (tf.constant(values["table"]), table)  # the variable is gathered from, never read whole
        row = tf.add_n([tf.gather(half, token[:, 0]) for half in halves])
        given = numbers_of(row, state[0], transposed(context), factor, bias.read_value())
        # A length that is not 1 spoils them.
        given *= tf.cast(lengths, dtype)[:, None]
        after = tf.identity(given[None] / 4, "next")
        chances = tf.nn.softmax(given) if scale == "probabilities" else given
        logits = tf.identity(
            chances if logits_axis is None else tf.expand_dims(chances, logits_axis), "logits"
        )
        ends = {"next": after.name, "still_next": still.name, "logits": logits.name}
        inputs = {each.op.name: each.name for each in (token, state, still, context, lengths, factor)}
        return Graph.of(graph.as_graph_def()), Signature(inputs, ends)


def run_search(kind: str, dtype: Any, scale: str, logits_axis: int | None) -> dict[str, Any]:
    """What a Session answers, by the keys of the search."""
    graph, signature = graph_of_step(dtype, scale, logits_axis)
    rules = search_steps.decoder(kind, scale, logits_axis)
    definition = copy_graph(search.add_search(graph, rules, signature))
    ends = rules.signature
    with tf.Graph().as_default() as runnable:
        tf.graph_util.import_graph_def(definition, name="")
    with v1.Session(graph=runnable) as session:
        session.run("initialize")
        answers: dict[str, Any] = session.run(
            dict(ends.outputs), {name: FEED[key] for key, name in ends.inputs.items()}
        )
    # Large constants and variables stay outside of the loop.
    nodes = [node for body in definition.library.function for node in body.node_def]
    sizes = [tf.TensorShape(node.attr["value"].tensor.tensor_shape) for node in nodes if node.op == "Const"]
    assert max(size.num_elements() for size in sizes) < TABLE.size
    assert not {node.op for node in nodes} & {"ReadVariableOp", "VarHandleOp"}
    return answers


@pytest.mark.first("sample-float16-logits-1")
@pytest.mark.parametrize(
    ("kind", "dtype", "scale", "logits_axis"),
    [
        ("beam", np.float32, "probabilities", 1),
        ("greedy", np.float64, "logits", None),
        ("sample", np.float16, "logits", 1),
    ],
)
def test_a_search_is_that_of_its_step(kind: str, dtype: Any, scale: str, logits_axis: int | None) -> None:
    answers = run_search(kind, dtype, scale, logits_axis)
    scores = np.float64 if dtype is np.float64 else np.float32
    search_steps.check_answers(answers, kind, scores=scores, bound=BOUNDS[dtype])


@pytest.mark.parametrize("scale", ["logits", "probabilities"])
def test_chances_of_a_step_in_half_are_exact(scale: str) -> None:
    """A logarithm in float16 would be off by 1e-3; the bound is of some roundings in float32."""
    values = np.random.default_rng(2).random((3, VOCABULARY)).astype(np.float16)
    chances = search._log_probs(search_steps.decoder("greedy", scale, None), tf.constant(values))
    exact = values.astype(np.float64)
    wanted = np.log(exact) if scale == "probabilities" else exact - np.log(np.exp(exact).sum(1))[:, None]
    np.testing.assert_allclose(chances, wanted, rtol=1e-6)
