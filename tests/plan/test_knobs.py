"""The value that the author of a model feeds for inference is found among placeholders and variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import cast_dropout, drawing, floor_dropout, model, placeholder, v1, variable
from support.plans import plan_graph

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.plan import knobs

FLAG = {"flag": np.array(True)}


def cure(make: Callable[[Any], Any], values: dict[str, Any] | None = None) -> list[tuple[str, ...]]:
    """What the refusal of a model advises to set."""
    with drawing() as graph:
        tf.identity(make(placeholder("x")), "y")
    source = model(graph, values or {})
    with pytest.raises(UnsupportedModelError) as refused:
        plan_graph(source, outputs=["y"])
    found = [remedy.options["set"] for reason in refused.value.reasons for remedy in reason.remedies]
    assert plan_graph(source, outputs=["y"], constants=[each for group in found for each in group])
    return found


def keep(name: str = "keep_prob", default: float | None = None) -> Any:
    return placeholder(name, []) if default is None else v1.placeholder_with_default(default, [], name)


def noisy(x: Any) -> Any:
    return x + tf.raw_ops.RandomStandardNormal(shape=tf.shape(x), dtype=tf.float32, name="noise")


def branch(x: Any, flag: Any, f: Callable[[Any], Any]) -> Any:
    return v1.cond(flag, lambda: f(x), lambda: tf.identity(x))


def twice(x: Any) -> Any:
    """A dropout in each of two layers, that one placeholder decides."""
    kept = keep(default=0.5)
    return floor_dropout(tf.tanh(cast_dropout(x, 1.0 - kept)), kept)


def looped(x: Any) -> Any:
    kept = keep(default=0.5)
    body = lambda k, y: (k + 1, cast_dropout(y, 1.0 - kept))  # noqa: E731
    invariants = [tf.TensorShape([]), x.shape]
    return v1.while_loop(lambda k, _: k < 3, body, [0, x], shape_invariants=invariants)[1]


def augmented(x: Any) -> Any:
    """What only the program that trained can compute."""
    return tf.raw_ops.PyFunc(input=[x], token="pyfunc_0", Tout=[tf.float32])[0]


def looped_flag(x: Any) -> Any:
    """A flag that decides in a loop, as of a cell that normalises its steps."""
    flag = placeholder("flag", [], tf.bool)
    invariants = [tf.TensorShape([]), x.shape]
    loop = v1.while_loop(
        lambda k, _: k < 3, lambda k, y: (k + 1, branch(y, flag, noisy)), [0, x], shape_invariants=invariants
    )
    return loop[1]


def stored(x: Any) -> Any:
    return branch(x, tf.identity(variable("flag", [], tf.bool), "flag/read"), noisy)


def many(x: Any) -> Any:
    for number in range(6):
        x = floor_dropout(x, keep(f"dropout_{number}", 0.9))
    return x


def literal(x: Any) -> Any:
    for number in range(3):
        x = cast_dropout(tf.tanh(x), tf.constant(0.3 + number / 10, name=f"layer_{number}/dropout/rate"))
    return x


def scaled(x: Any) -> Any:
    """A project that multiplies by its rate where it trains: the flag alone gives what inference gives."""
    return branch(x, placeholder("flag", [], tf.bool), lambda x: floor_dropout(x, tf.constant(0.5)) * 0.5)


@pytest.mark.parametrize(
    ("make", "values", "settings"),
    [
        pytest.param(twice, {}, ("keep_prob:0=1",), id="one-for-two"),
        pytest.param(looped, {}, ("keep_prob:0=1",), id="in-a-loop"),
        pytest.param(scaled, {}, ("flag:0=false",), id="a-flag"),
        pytest.param(
            lambda x: branch(x, placeholder("flag", [], tf.bool), augmented),
            {},
            ("flag:0=false",),
            id="a-call-of-python",
        ),
        pytest.param(looped_flag, {}, ("flag:0=false",), id="a-flag-in-a-loop"),
        pytest.param(stored, FLAG, ("flag:0=false",), id="a-variable"),
        pytest.param(lambda x: branch(x, keep("flag") > 0.5, noisy), {}, ("flag:0=0",), id="a-number"),
        pytest.param(
            lambda x: branch(x, tf.equal(placeholder("mode", [], tf.int32), 1), noisy),
            {},
            ("mode:0=0",),
            id="mode",
        ),
        pytest.param(many, {}, ("dropout_?:0=1",), id="a-glob"),
        pytest.param(literal, {}, ("*/rate:0=0",), id="rates-of-layers"),
        pytest.param(
            lambda x: floor_dropout(cast_dropout(x, keep("rate")), keep()),
            {},
            ("rate:0=0", "keep_prob:0=1"),
            id="two",
        ),
    ],
)
def test_the_knob_that_turns_training_off(
    make: Callable[[Any], Any], values: dict[str, Any], settings: tuple[str, ...]
) -> None:
    assert sorted(cure(make, values)[0]) == sorted(settings)


def test_what_is_off_by_its_value_in_the_file_is_off() -> None:
    with drawing() as graph:
        tf.identity(stored(placeholder("x")), "y")
    plan = plan_graph(model(graph, {"flag": np.array(False)}), outputs=["y"])
    assert not any(node.op in ("Switch", "RandomStandardNormal") for node in plan.graph.node)
    assert "flag: what the file holds decides what belongs to training; --set changes it" in plan.notes


def test_what_is_off_by_its_default_is_off_in_loops_too() -> None:
    with drawing() as graph:
        kept = keep(default=1.0)
        body = lambda k, y: (k + 1, cast_dropout(y, 1.0 - kept))  # noqa: E731
        x = placeholder("x")
        invariants = [tf.TensorShape([]), x.shape]
        tf.identity(v1.while_loop(lambda k, _: k < 3, body, [0, x], shape_invariants=invariants)[1], "y")
    plan = plan_graph(model(graph, {}), outputs=["y"])
    assert not any(node.op == "RandomUniform" for node in plan.graph.node)


@pytest.mark.parametrize(
    ("tensors", "others", "expected"),
    [
        (["a:0"], [], ["a:0"]),
        (["d_0:0", "d_1:0", "d_2:0"], ["x"], ["d_*:0"]),
        (["d_0:0", "d_1:0"], ["d_x/mul"], ["d_?:0"]),
        (["d_0:0", "d_1:0"], ["d_2"], ["d_0:0", "d_1:0"]),
        (["a/rate:0", "b/c/rate:0"], ["a/x"], ["*/rate:0"]),
        (["a/rate:0", "a_1/rate:0"], ["b/rate"], ["a*/rate:0"]),
    ],
)
def test_a_glob_names_no_other_op(tensors: list[str], others: list[str], expected: list[str]) -> None:
    names = [*(name.removesuffix(":0") for name in tensors), *others]
    assert knobs.glob(tensors, names) == expected
