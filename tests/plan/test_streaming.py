"""Which models can be run in chunks of steps, how their states are called, and why others cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from support import asking_graphs, tiers
from support.graphs import BLOB, drawing, lstm, placeholder, saved, variable
from support.keras3_samples import exported
from support.samples import FIXTURES, LONG, STATEFUL, Fixture, fixture

from cudnn_convert.errors import CudnnConvertError, UnsupportedModelError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source

BIDIRECTIONAL = "a bidirectional one, which needs the end of the sequence first"
LOOP, BRANCH = "one in a loop, which runs several times", "one in a branch, which not every call takes"
NONE = "--states: expected a cuDNN recurrence, found none"
#: What is said of each case that cannot be run in chunks.
REASONS = {
    **dict.fromkeys(
        "averages_saver bilstm_tagger build_prefix checkpoint_v1 cond_training_default final_state_only "
        "frozen_binary gru_bi gru_bi_2l_float64 horovod lstm_bi_2l_states op_auto_linear "
        "op_cond_gru op_proj_lstm op_skip_lstm params_gru_bi_2l params_lstm_bi project_characters "
        "project_music project_pointer project_reader project_speech project_tasks project_translation "
        "raw_only rnn_relu_bi "
        "rnn_tanh_bi_2l saved_model_tags state_gru_resource statistics_by_hand twins_backprop two_layers "
        "unknown_rank v2_gru v3_batch_major v3_gru_lengths v3_lengths_batch_major "
        "v3_lengths_time_major".split(),
        BIDIRECTIONAL,
    ),
    **dict.fromkeys("cond_in_while while_nested while_refine while_rows".split(), LOOP),
    "cond": BRANCH,
    **dict.fromkeys("keras_go_backwards keras_gru_bi keras_tagger".split(), "reads its steps in reverse"),
    **dict.fromkeys(
        "block_cell_bidirectional block_cell_clip block_cell_loop block_fused block_fused_clip "
        "block_fused_lengths block_fused_peephole block_fused_stacked compatible_gru_loop".split(),
        NONE,
    ),
    "attention_memory": "cut the graph before it, which drops logits, with --outputs Select:0",
    "decode_attention": "found a loop over the steps",
    "lengths_mask": "found a sum over time",
    "project_forecast": "found a mean over time",
    "project_handwriting": "found steps and rows in one axis of an output",
    "printed_scatter": "ScatterNd: --states: expected ops that take each step by itself",
    "towers_split": "expected a recurrence over the steps and rows of an input, found one over other axes",
    "dropout_in_loop": "found a loop over the steps",
    "statistics_layers": "found a convolution over 3 steps",
    "statistics_slim": "found the number of steps, read as a number",
    "two_heads": "found a maximum over time; cut the graph before it, which drops intents_BiasAdd, with "
    "--outputs tag_probs:0,transpose_1:0",
    **dict.fromkeys("saved_model_words two_lookups".split(), "which cannot fill"),
}
#: Samples of the first tier among those that are refused in the same words.
TOLD = frozenset("build_prefix raw_only state_gru_resource while_rows block_fused".split())
#: What their layers are called where that is not the last scope alone.
NAMES = {
    "keras_siamese": {"cu_dnnlstm", "cu_dnnlstm_1"},
    "same_sizes": {"left_cudnn_lstm", "right_cudnn_lstm"},
    "target_saver": {"online_cudnn_gru", "target_cudnn_gru"},
    "params_lstm_2l": {"rnn"},
}


def planned(source: Path, form: str = "frozen", **flags: Any) -> Plan:
    options = Options(format=form, states=True, **flags)
    return make_plan(read_source(source, options, tag=None), options)


def of(sample: Fixture) -> Plan:
    flags = sample.options
    if sample.folder.name == "two_heads":
        flags = {"outputs": ["tag_probs:0,intents/BiasAdd:0"]}
    return planned(sample.prefix, **flags)


def is_first(sample: Fixture) -> bool:
    """Whether it is one of `TOLD`, or neither long nor refused in those words."""
    name = sample.folder.name
    is_told = REASONS.get(name) in (BIDIRECTIONAL, LOOP, NONE)
    return sample.name.startswith("1.15.5") and name not in LONG and (not is_told or name in TOLD)


def test_each_sample_told_of_is_in_the_first_tier() -> None:
    assert {sample.folder.name for sample in (*FIXTURES, *STATEFUL) if is_first(sample)} >= TOLD


@tiers.samples((*FIXTURES, *STATEFUL), is_first)
def test_each_case_streams_or_says_why_not(sample: Fixture) -> None:
    reason = REASONS.get(sample.folder.name)
    if reason is not None:
        with pytest.raises(CudnnConvertError) as refused:
            of(sample)
        assert reason in str(refused.value)
        return
    plan = of(sample)
    streaming = plan.streaming
    assert streaming is not None
    layers = {state.key.rpartition("_")[0] for state in streaming.states}
    assert layers == NAMES.get(sample.folder.name, layers)
    kinds = {recurrence.node: recurrence.sizes.mode.value for recurrence in plan.recurrences}
    wanted = [(node, kind) for node, mode in kinds.items() for kind in ("hc" if mode == "lstm" else "h")]
    assert [(state.node, state.kind) for state in streaming.states] == wanted
    assert {state.key for state in streaming.states} <= {*plan.signature.inputs}
    assert {state.next_key for state in streaming.states} <= {*plan.signature.outputs}
    assert streaming.inputs
    assert plan.flags[-1] == "--states"


def test_a_bidirectional_layer_is_told_by_its_name() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(fixture("1.15.5-two_layers").prefix)
    [reason] = refused.value.reasons
    assert reason == (
        "outer/inner/encoder/CudnnRNN: --states: expected a recurrence that goes on from its last step, "
        "found a bidirectional one, which needs the end of the sequence first; convert without --states"
    )


def test_a_branch_that_a_call_may_not_take_is_told() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(fixture("1.15.5-cond").prefix)
    [reason] = refused.value.reasons
    assert reason.endswith("found one in a branch, which not every call takes; convert without --states")


def test_lengths_that_the_model_computes_are_no_input() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(exported("keras-3.15.1-masked_last").path)
    [reason] = refused.value.reasons
    assert "found one whose lengths are no input; make them one with --inputs " in reason
    assert [{*remedy.options} for remedy in reason.remedies] == [{"inputs"}]


def test_the_cut_behind_a_convolution_streams(tmp_path: Path) -> None:
    source = asking_graphs.convolved(tmp_path)
    with pytest.raises(UnsupportedModelError) as refused:
        planned(source)
    [reason] = refused.value.reasons
    [remedy] = reason.remedies
    plan = planned(source, **remedy.options)
    assert plan.streaming is not None
    assert [*plan.signature.inputs.values()][1:] == ["rnn_h:0", "rnn_c:0"]


def test_a_state_does_not_take_the_name_of_an_input(tmp_path: Path) -> None:
    """TensorFlow 2's loader takes names that differ in case alone for one."""
    with drawing() as graph:
        y = lstm(placeholder("x"), variable("blob", BLOB.shape)).output
        y = y * placeholder("rnn_h", [])
        tf.multiply(y, placeholder("RNN_C", []), name="scores")
    plan = planned(saved(tmp_path, graph, {"blob": BLOB}))
    assert plan.streaming is not None
    assert [state.key for state in plan.streaming.states] == ["rnn_h_1", "rnn_c_1"]
    assert [state.next_key for state in plan.streaming.states] == ["rnn_h_1_next", "rnn_c_1_next"]


@pytest.mark.parametrize(("form", "has_both"), [("savedmodel", True), ("onnx", False)])
def test_a_format_of_several_signatures_keeps_that_without_states(form: str, has_both: bool) -> None:
    plan = planned(fixture("1.15.5-keras_lstm_states").prefix, form)
    assert (plan.serving is not None) == has_both
    assert plan.parts[0].name == ("stream" if has_both else "serving_default")
    assert plan.streaming is not None
    assert {*plan.streaming.begins} == {"h0", "c0"}
    if plan.serving is not None:
        assert {*plan.serving.signature.inputs} == {"x", "h0", "c0"}


def test_a_batch_that_only_zeros_held_fixed_is_open(tmp_path: Path) -> None:
    """And in the signature without states too, where every row begins alike."""
    with drawing() as graph:
        zeros = tf.zeros([1, 4, 2])
        y = tf.raw_ops.CudnnRNN(
            input=placeholder("x"), input_h=zeros, input_c=zeros, is_training=False, name="rnn",
            params=variable("blob", BLOB.shape),
        ).output  # fmt: skip
        tf.identity(y, "scores")
    plan = planned(saved(tmp_path, graph, {"blob": BLOB}), "savedmodel")
    seen = plan.graph.shapes
    assert seen.get_tensor_by_name("rnn_h:0").shape.as_list() == [1, None, 2]
    assert seen.get_operation_by_name("rnn_h").inputs[0].shape.as_list() == [1, None, 2]
