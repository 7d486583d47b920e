"""Sizes that `--lowering fused` fixes, and what it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from support.samples import fixture

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source


def plan(name: str, **flags: object) -> Plan:
    sample = fixture(f"1.15.5-{name}")
    options = Options.of({"format": "tflite", "lowering": "fused", **sample.options, **flags})
    return make_plan(read_source(sample.prefix, options, tag=None), options)


def shapes(made: Plan) -> dict[str, list[int | None]]:
    return {
        key: made.graph.shapes.get_tensor_by_name(name).shape.as_list()
        for key, name in made.signature.inputs.items()
    }


def test_open_rows_are_one_and_open_steps_are_given() -> None:
    made = plan("bilstm_tagger", steps=6)
    assert shapes(made) == {"ids": [1, 6]}
    assert made.notes[-1] == "sizes are fixed: ids [1, 6]"
    assert made.whole.shapes.get_tensor_by_name("ids:0").shape.as_list() == [1, 6]
    assert shapes(plan("bilstm_tagger", steps=6, batch=3, data=Path("rows.npz"))) == {"ids": [3, 6]}


def test_without_steps_they_are_asked_for() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        plan("bilstm_tagger")
    expected = "expected an input of fixed sizes, found [batch, time]"
    assert str(caught.value).endswith(
        f"ids: --lowering fused: {expected}; give the number of steps with --steps"
    )


def test_sizes_without_names_are_given_by_inputs() -> None:
    """Its one recurrence is a block of TensorFlow's, so that no axis is known as the steps."""
    with pytest.raises(UnsupportedModelError) as caught:
        plan("block_fused", steps=6)
    inputs = "x=x:0[1,1,5],c0=c0:0[1,4],h0=h0:0[1,4]"
    assert str(caught.value).endswith(
        "x: --lowering fused: expected an input of fixed sizes, found [?, ?, 5]; "
        f"give all sizes, as in --inputs '{inputs}'"
    )
    given = plan("block_fused", inputs=[inputs.replace("[1,1,5]", "[6,1,5]")])
    assert shapes(given) == {"x": [6, 1, 5], "c0": [1, 4], "h0": [1, 4]}


def test_steps_that_a_source_fixes_are_left_out() -> None:
    expected = "--steps 7: expected an input with an open number of steps, found sizes that the source fixes"
    with pytest.raises(UsageError, match=expected):
        plan("bilstm_tagger", steps=7, inputs=["ids=ids:0[1,6]"])


def test_chunks_have_the_steps_and_the_source_several_chunks() -> None:
    sample = "tests/data/keras/keras-2.2.4/stateful_lstm/model.h5"
    options = Options.of({"format": "tflite", "lowering": "fused", "states": True, "steps": 4})
    made = make_plan(read_source(Path(sample), options, tag=None), options)
    assert made.streaming is not None
    assert made.streaming.chunk == 4
    key, h, c = (f"cu_dnnlstm_1_{end}" for end in ("input", "h", "c"))
    assert shapes(made) == {key: [1, 4, 4], h: [1, 1, 5], c: [1, 1, 5]}
    assert made.streaming.whole is not None
    assert shapes(made.streaming.whole) == {key: [1, 12, 4]}


def test_loops_take_every_size() -> None:
    sample = fixture("1.15.5-bilstm_tagger")
    options = Options.of({"format": "tflite", **sample.options})
    made = make_plan(read_source(sample.prefix, options, tag=None), options)
    assert made.graph.shapes.get_tensor_by_name("ids:0").shape == tf.TensorShape([None, None])
