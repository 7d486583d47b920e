"""Which input takes tokens, which output is searched, and what is refused of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from support import asking_graphs
from support.asking_graphs import WORDS, language_model, logits_of
from support.graphs import UNITS, variable

from cudnn_convert.errors import CudnnConvertError, UsageError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.targets import flags


def planned(source: Path, **flags: Any) -> Plan:
    options = Options(**{"decode": "greedy", "steps": 4, "format": "onnx"} | flags)
    return make_plan(read_source(source, options, tag=None), options)


def refused(source: Path, **flags: Any) -> str:
    with pytest.raises(CudnnConvertError) as caught:
        planned(source, **flags)
    return str(caught.value)


def test_tokens_and_logits_are_found(tmp_path: Path) -> None:
    plan = planned(language_model(tmp_path), decode="beam", end=3)
    decoder = plan.decoder
    assert decoder is not None
    assert (decoder.token, decoder.token_axis, decoder.logits, decoder.logits_axis) == ("ids", 0, "logits", 0)
    assert (decoder.scale, decoder.vocabulary, decoder.width) == ("logits", WORDS, 8)
    assert [*decoder.signature.inputs] == ["tokens", "rnn_h", "rnn_c"]
    assert [*decoder.signature.outputs] == ["sequences", "lengths", "scores"]
    assert plan.notes[-1] == "decode: tokens go into ids:0; logits:0 gives logits of 9 tokens"
    assert {"--decode=beam", "--steps=4", "--width=8", "--end=3", "--token=ids:0"} <= {*plan.flags}


def test_probabilities_are_told_from_logits(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = language_model(tmp_path / "plain", lambda y: tf.nn.softmax(logits_of(y), name="chances"))
    (tmp_path / "keras").mkdir()

    def as_keras(y: Any) -> Any:
        # tensorflow v1.15.0 python/keras/activations.py softmax, of three axes.
        logits = logits_of(y)
        above = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
        return tf.divide(above, tf.reduce_sum(above, -1, keepdims=True), name="chances")

    for source in (plain, language_model(tmp_path / "keras", as_keras)):
        decoder = planned(source).decoder
        assert decoder is not None
        assert decoder.scale == "probabilities"


def test_tokens_and_probabilities_of_a_keras_archive(tmp_path: Path) -> None:
    """An embedding of Keras 3 turns ids below zero first; its model gives all outputs by one op."""
    import keras

    ids = keras.Input((None,), dtype="int32", name="ids")
    y = keras.layers.LSTM(4, return_sequences=True)(keras.layers.Embedding(WORDS, 3)(ids))
    chances = keras.layers.Dense(WORDS, activation="softmax", name="chances")(y)
    keras.Model(ids, [y, chances]).save(tmp_path / "model.keras")
    decoder = planned(tmp_path / "model.keras").decoder
    assert decoder is not None
    assert (decoder.token, decoder.logits, decoder.scale) == ("ids", "chances", "probabilities")


def test_logits_after_the_last_step(tmp_path: Path) -> None:
    source = language_model(
        tmp_path, lambda y: tf.matmul(y[-1], variable("out", (UNITS, WORDS)), name="last")
    )
    decoder = planned(source).decoder
    assert decoder is not None
    assert (decoder.logits, decoder.logits_axis) == ("last", None)


def test_lengths_and_other_inputs_beside_the_tokens(tmp_path: Path) -> None:
    """Lengths are of one step; a vector of each row goes to all of its beams, a number is for all."""
    decoder = planned(asking_graphs.conditioned(tmp_path)).decoder
    assert decoder is not None
    assert decoder.lengths == ("lengths",)
    assert decoder.beside == {"sharpness": None, "speaker": 0}
    assert sorted(decoder.signature.inputs) == ["rnn_c", "rnn_h", "sharpness", "speaker", "tokens"]


def test_an_input_of_a_key_that_a_search_has(tmp_path: Path) -> None:
    source = asking_graphs.conditioned(tmp_path, noise="noise")
    assert planned(source).decoder  # which takes none
    line = refused(source, decode="sample")
    assert "expected no input noise beside the token ids, found one, and a search has its own" in line
    assert line.endswith("; give it another key with --inputs")
    decoder = planned(source, decode="sample", inputs=["ids,lengths,sharpness,speaker=noise"]).decoder
    assert decoder is not None
    assert {"speaker", "noise"} < {*decoder.signature.inputs}


def test_a_batch_that_inputs_and_states_fixed_is_opened(tmp_path: Path) -> None:
    plan = planned(language_model(tmp_path, batch=4))
    assert plan.notes[-1] == "decode: the number of rows is open; the source's inputs and states fixed 4"
    assert plan.graph.shapes.get_tensor_by_name("ids:0").shape.as_list() == [None, None]
    assert plan.whole.shapes.get_tensor_by_name("ids:0").shape.as_list() == [None, None]


def test_a_batch_that_the_graph_keeps_is_refused(tmp_path: Path) -> None:
    def end(y: Any) -> Any:
        flat = tf.matmul(tf.reshape(y, [-1, UNITS]), variable("out", (UNITS, WORDS)))
        return tf.reshape(flat, [-1, 4, WORDS], name="logits")

    line = refused(language_model(tmp_path, end, batch=4))
    assert "ids:0: expected an open number of rows, found 4, which the graph keeps in logits:0" in line


def test_an_output_is_named_where_several_fit(tmp_path: Path) -> None:
    source, outputs = asking_graphs.two_heads(tmp_path), {"outputs": ["one,other"]}
    line = refused(source, **outputs)
    assert (
        "expected one output of logits or probabilities of the next token, found one float32 [?, ?, 9]"
        in line
    )
    assert line.endswith("; name it with --logits one:0, or name it with --logits other:0")
    decoder = planned(source, logits="other", **outputs).decoder
    assert decoder is not None
    assert decoder.logits == "other"
    assert "--logits: expected one of one (" in refused(source, logits="third", **outputs)


def test_an_input_is_named_where_none_takes_rows(tmp_path: Path) -> None:
    source = asking_graphs.signal(tmp_path)
    line = refused(source)
    assert (
        "token: expected one input of token ids [batch, steps], which take rows of a table, found x" in line
    )
    assert line.endswith("name it with --token x:0")
    decoder = planned(source, token="x:0").decoder
    assert decoder is not None
    assert decoder.token == "x"


def test_features_are_no_tokens(tmp_path: Path) -> None:
    line = refused(asking_graphs.plain(tmp_path), token="x")
    assert "found x float32 [?, ?, 3] (x:0); make the ids the input with --inputs" in line


def sums(y: Any) -> Any:
    return tf.reduce_sum(logits_of(y), 2, name="sums")


def last_of_four_axes(y: Any) -> Any:
    return tf.identity(tf.reshape(logits_of(y[-1:])[0], [-1, 3, 3]), name="deep")


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (sums, "[batch, steps, vocabulary], or with the steps first, found float32 [?, ?]"),
        (last_of_four_axes, "[batch, vocabulary] after the last step, found float32 [?, 3, 3]"),
    ],
    ids=["rank 2 for 3", "rank 3 for 2"],
)  # fmt: skip
def test_logits_of_another_rank(tmp_path: Path, end: Any, line: str) -> None:
    message = refused(language_model(tmp_path, end))
    assert line in message
    assert message.endswith("choose other --outputs")


def test_a_table_that_lacks_tokens(tmp_path: Path) -> None:
    source = language_model(tmp_path, rows=WORDS - 1)
    assert "logits: expected at most 8 tokens, as the table of the input has, found 9" in refused(source)
    assert planned(source, end=WORDS - 1).decoder  # an end is never read


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"end": WORDS}, "--end: expected a token below 9, the size of the vocabulary, found 9"),
        ({"decode": "beam", "width": 10, "steps": 1}, "--width: expected at most 9, as many as"),
        ({"decode": "sample", "top_k": 10}, "--top-k: expected at most 9, the size of the vocabulary"),
    ],
    ids=["end", "width", "top_k"],
)  # fmt: skip
def test_flags_that_the_vocabulary_does_not_allow(tmp_path: Path, flags: dict[str, Any], line: str) -> None:
    assert line in refused(language_model(tmp_path), **flags)


def test_models_without_states(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    line = refused(asking_graphs.bidirectional(tmp_path / "one"))
    assert (
        "rnn: --decode: expected a recurrence that goes on from its last step, found a bidirectional one"
        in line
    )
    assert line.endswith("convert without --decode")
    line = refused(asking_graphs.without_recurrence(tmp_path), outputs=["scores"])
    assert line.endswith("--decode: expected a cuDNN recurrence, found none; convert without --decode")


def test_weights_alone(tmp_path: Path) -> None:
    source = asking_graphs.plain(tmp_path)
    Path(f"{source}.meta").unlink()
    assert "--decode greedy: expected a model with its graph, found" in refused(source)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"decode": "beam", "width": 0}, "--width: expected at least 1, found 0"),
        ({"steps": 0}, "--steps: expected at least 1, found 0"),
        ({"steps": None}, "--decode greedy needs --steps: how many tokens a sequence has at most"),
        ({"width": 3}, "--width: expected --decode beam, found greedy; leave out --width"),
        (
            {"decode": None},
            "--steps: expected --decode greedy or beam or sample, or --lowering fused, found neither; "
            "leave out --steps",
        ),
        ({"temperature": 0.0, "decode": "sample"}, "--temperature: expected a number above 0, found 0.0"),
        ({"end": -1}, "--end: expected a token, a whole number of at least 0, found -1"),
    ],
)
def test_flags_that_do_not_fit_each_other(flags: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**{"decode": "greedy", "steps": 4} | flags)
    assert str(caught.value) == line


@pytest.mark.parametrize("form", ["tflite", "frozen", "keras", "h5", "checkpoint", "npz", "safetensors"])
def test_formats_that_cannot_search(form: str) -> None:
    with pytest.raises(UsageError) as caught:
        flags.check_options(Options(decode="greedy", steps=3, format=form))
    assert str(caught.value) == f"--decode: expected --format savedmodel or onnx, found {form}"
