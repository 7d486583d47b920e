"""Provenance in an artifact: plain JSON without folders."""

from __future__ import annotations

import json

from support.reports import made

from cudnn_convert.report.provenance import make_provenance, with_pieces


def test_an_artifact_says_where_it_computes_which_layer() -> None:
    text = make_provenance(made(), tensors={"inputs": {}, "outputs": {}}, options={"version": "1"})
    pieces = [{"piece": "LSTM_0", "node": "rnn", "layer": 0}]
    assert json.loads(with_pieces(text, pieces)) == json.loads(text) | {"pieces": pieces}
    assert with_pieces(text, []) == text


def test_the_provenance_names_the_source_but_not_where_it_lay() -> None:
    options = {"version": "1.2.3", "set": ["a=1"]}
    text = make_provenance(made(), tensors={"inputs": {"x": "x:0"}, "outputs": {"y": "y:0"}}, options=options)
    found = json.loads(text)
    assert found["cudnn_convert"] == "1.2.3"
    assert found["source"] == {"name": "model.ckpt", "kind": "TensorFlow 1 checkpoint"}
    assert found["options"] == {"set": ["a=1"]}
    assert options == {"version": "1.2.3", "set": ["a=1"]}  # the caller's own
    assert "folder" not in text
    assert "verification" not in found
