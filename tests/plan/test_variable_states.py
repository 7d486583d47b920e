"""States of plain layers in variables: which become inputs and outputs, by which names, and which cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, resource, saved

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source

SHAPE = (2, 3)
START = np.array([[0.5, -1.5, 2.5], [-3.5, 4.5, -5.5]], np.float32)


def read(handle: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def assign(handle: Any, value: Any, name: str) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value, name=name)


def model(folder: Path, name: str, change: Callable[[Any, Any], Any], start: Any = START) -> Path:
    """A model with a variable, which `change` writes by its handle and the value of a step.

    It gives the op that the output waits for.
    """
    with drawing() as graph:
        handle = resource(name, SHAPE)
        y = tf.tanh(placeholder("x", [2, 3]) + read(handle))
        with tf.control_dependencies([change(handle, y)]):
            tf.identity(y, "y")
    return saved(folder, graph, {name: np.asarray(start, np.float32)})


def planned(source: Path, form: str = "onnx", *, states: bool = True) -> Plan:
    options = Options(format=form, outputs=("y",), states=states, verify=False)
    return make_plan(read_source(source, options, tag=None), options)


def write_once(handle: Any, y: Any) -> Any:
    return assign(handle, y, "write")


def write_twice(handle: Any, y: Any) -> Any:
    with tf.control_dependencies([assign(handle, y, "first")]):
        return assign(handle, y * 2, "second")


def write_in_switch(handle: Any, y: Any) -> Any:
    """As TensorFlow 1 wrote a branch."""
    predicate = tf.reduce_sum(y) > 0
    return tf.cond(predicate, lambda: tf.group(assign(handle, y, "write")), lambda: tf.group(tf.no_op()))


def write_in_part(handle: Any, y: Any) -> Any:
    return tf.raw_ops.ResourceScatterNdUpdate(ref=handle, indices=[[1]], updates=y[:1], name="part")


INSEPARABLE = {
    write_twice: "first and second write it",
    write_in_switch: "cond/write writes it in a branch or a loop",
    write_in_part: "part (ResourceScatterNdUpdate) writes it",
}


@pytest.mark.parametrize("form", ["onnx", "savedmodel"])
@pytest.mark.parametrize("change", INSEPARABLE, ids=lambda change: change.__name__)
def test_a_variable_without_one_value_to_take_and_give_is_named(
    tmp_path: Path, change: Callable[[Any, Any], Any], form: str
) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(model(tmp_path, "layer/h", change), form)
    (reason,) = refused.value.reasons
    assert reason == (
        "variable layer/h: --states: expected one that a call reads and then writes once, outside of "
        f"branches and loops, found that {INSEPARABLE[change]}; choose other --outputs, or convert with "
        "--format savedmodel, without --states"
    )


def test_a_read_behind_the_write_is_named(tmp_path: Path) -> None:
    with drawing() as graph:
        handle = resource("h", SHAPE)
        y = tf.tanh(placeholder("x", [2, 3]) + read(handle))
        with tf.control_dependencies([assign(handle, y, "write")]):
            late = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="late")
        tf.identity(late * 3, "y")
    with pytest.raises(UnsupportedModelError, match=r"variable h: .* late may read it after write wrote it"):
        planned(saved(tmp_path, graph, {"h": START}))


@pytest.mark.parametrize(("start", "begins"), [(START, ["gru_1_h_begin"]), (np.zeros(SHAPE), [])])
def test_a_variable_becomes_an_input_and_an_output(tmp_path: Path, start: Any, begins: list[str]) -> None:
    source = model(
        tmp_path, "gru-1/Variable", lambda handle, y: assign(handle, y, "gru-1/AssignVariableOp"), start
    )
    plan = planned(source)
    assert [*plan.signature.inputs] == ["x", "gru_1_h"]
    assert [*plan.signature.outputs] == ["y", "gru_1_h_next", *begins]
    (state,) = plan.variable_states
    assert (state.variable, state.kind) == ("gru-1/Variable", "h")
    np.testing.assert_array_equal(state.value, start)
    ends = f"the outputs {', '.join(begins)}" if begins else "zeros"
    assert plan.notes[-1] == (
        "states: the model takes gru_1_h and gives what each is after the call as ..._next; "
        f"begin a sequence with {ends}"
    )
    assert plan.flags == ("--inputs=x=x:0", "--outputs=y=y:0", "--states")


def test_a_taken_key_is_not_given_twice(tmp_path: Path) -> None:
    with drawing() as graph:
        handle = resource("lstm/state_c", SHAPE)
        y = tf.tanh(placeholder("lstm_c", [2, 3]) + read(handle))
        with tf.control_dependencies([assign(handle, y, "write")]):
            tf.identity(y, "y")
    plan = planned(saved(tmp_path, graph, {"lstm/state_c": START}))
    assert [*plan.signature.inputs] == ["lstm_c", "lstm_c_1"]


def test_states_of_a_cell_of_several_keep_their_order(tmp_path: Path) -> None:
    """Names of variables say nothing: the order in which Keras assigns its states does."""
    variables = {"cells/Variable_2": 0, "cells/Variable": 2, "cells/Variable_1": 1}
    with drawing() as graph:
        x, writes = placeholder("x", [2, 3]), []
        for name, number in variables.items():
            handle = resource(name, SHAPE)
            x = tf.tanh(x + read(handle))
            suffix = f"_{number}" if number else ""
            writes.append(assign(handle, x, f"model/cells/AssignVariableOp{suffix}"))
        with tf.control_dependencies(writes):
            tf.identity(x, "y")
    plan = planned(saved(tmp_path, graph, dict.fromkeys(variables, START)))
    assert {state.variable: state.key for state in plan.variable_states} == {
        name: f"cells_{number}" for name, number in variables.items()
    }


def test_what_nothing_asks_for_is_refused_with_the_flag(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(model(tmp_path, "h", write_once), states=False)
    (reason,) = refused.value.reasons
    assert reason == (
        "variable h: expected one that is only read, or a recurrence's state, found that write changes it; "
        "make it an input and an output with --states, choose other --outputs, or --format savedmodel"
    )


def test_a_write_in_part_is_refused_without_the_flag_too(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"variable h: .* part \(ResourceScatterNdUpdate\) writes it"
    ):
        planned(model(tmp_path, "h", write_in_part), states=False)
