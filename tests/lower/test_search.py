"""A search in a graph, over a step that reads all that a search can give it, beside the judge of searches.

The step, of rows n:  `numbers = table[token] + 3 * state + scale * context + bias`, with a vocabulary of 40,
and `next = numbers / 4`. So a prefix alone says what comes next. Half of the table is a constant, half a
variable.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import decoding_judges as judges

from cudnn_convert.graph import node_defs
from cudnn_convert.lower.search import add_search
from cudnn_convert.model import Decoder, Signature, StreamState

v1 = tf.compat.v1
#: END is a token that each kind of search meets in one of the rows.
VOCABULARY, ROWS, WIDTH, STEPS, END, PAD = 40, 3, 4, 5, 21, -2
BOUNDS = {np.float64: 1e-12, np.float32: 1e-5, np.float16: 2e-2}
RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(VOCABULARY, VOCABULARY)) * 2
BIAS = RNG.normal(size=VOCABULARY)
FEED = {
    "tokens": np.array([3, 11, 25], np.int32),
    "state": RNG.normal(size=(1, ROWS, VOCABULARY)),
    "context": RNG.normal(size=(VOCABULARY, ROWS)),
    "scale": np.array(1.5),
    "noise": RNG.random((ROWS, STEPS)).astype(np.float32),
}


def numbers_of(row: Any, state: Any, context: Any, scale: Any, bias: Any) -> Any:
    """For the next token; `row` is the table's."""
    return row + 3 * state + scale * context + bias


def graph_of_step(dtype: Any, scale: str, logits_axis: int | None) -> tuple[node_defs.Graph, Signature]:
    """The step as a graph, with variables, which `initialize` sets, and a function."""
    with tf.Graph().as_default() as graph:
        token = v1.placeholder(tf.int64, [None, 1], "token")
        state = v1.placeholder(dtype, [1, None, VOCABULARY], "state")
        context = v1.placeholder(dtype, [VOCABULARY, None], "context")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
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
        ends = {"next": after.name, "logits": logits.name}
        inputs = {each.op.name: each.name for each in (token, state, context, lengths, factor)}
        return node_defs.Graph.of(graph.as_graph_def()), Signature(inputs, ends)


def decoder(kind: str, scale: str, logits_axis: int | None) -> Decoder:
    keys = ["tokens", *(["noise"] if kind == "sample" else []), "state", "context", "scale"]
    outputs = ["sequences", "lengths", "scores"]
    if kind == "beam":
        outputs += ["history_tokens", "history_parents", "history_scores"]
    return Decoder(
        kind=kind, steps=STEPS, width=WIDTH if kind == "beam" else 1, end=END, pad=PAD, length_penalty=0.7,
        top_k=6, temperature=1.7, history=kind == "beam", scale=scale, vocabulary=VOCABULARY, token="token",
        token_axis=1, logits="logits", logits_axis=logits_axis, lengths=("lengths",),
        beside={"context": 1, "scale": None},
        states=(StreamState("rnn", "h", True, "state", "next", "state:0", "next:0", 1, VOCABULARY),),
        signature=Signature(
            {key: f"decode/{key}:0" for key in keys}, {key: f"decode/{key}:0" for key in outputs}
        ),
    )  # fmt: skip


@cache
def log_probs(row: int, prefix: tuple[int, ...]) -> Any:
    """What the step says after a prefix, in NumPy."""
    state = FEED["state"][0, row]
    context = FEED["context"][:, row]
    for token in (FEED["tokens"][row], *prefix):
        given = numbers_of(TABLE[token], state, context, FEED["scale"], BIAS)
        state = given / 4
    return given - np.log(np.exp(given).sum())


def run_search(kind: str, dtype: Any, scale: str, logits_axis: int | None) -> dict[str, Any]:
    """What a Session answers, by the keys of the search."""
    graph, signature = graph_of_step(dtype, scale, logits_axis)
    rules = decoder(kind, scale, logits_axis)
    definition = node_defs.copy_graph(add_search(graph, rules, signature))
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
    is_beam = kind == "beam"
    scores = np.float64 if dtype is np.float64 else np.float32
    rules = judges.Rules(WIDTH if is_beam else 1, STEPS, END, PAD, 0.7 if is_beam else 0.0, dtype=scores)
    if kind == "sample":
        drawn = [
            judges.sample(log_probs, row, FEED["noise"][row], rules, top_k=6, temperature=1.7)
            for row in range(ROWS)
        ]
        expected = {
            "sequences": np.array([tokens for tokens, _ in drawn]),
            "scores": np.array([score for _, score in drawn]),
        }
    else:
        best = judges.beam_search(log_probs, ROWS, rules)
        names = {"tokens": "history_tokens", "parents": "history_parents", "sums": "history_scores"}
        expected = {names.get(key, key): value if is_beam else value[:, 0] for key, value in best.items()}
    assert is_beam == ("history_scores" in answers)
    assert answers["scores"].dtype == scores
    for key in answers.keys() & expected.keys():
        # Scores near 0 are sums of numbers near 1, each rounded.
        bound = BOUNDS[dtype] if answers[key].dtype.kind == "f" else 0.0
        np.testing.assert_allclose(answers[key], expected[key], rtol=bound, atol=bound, err_msg=key)
