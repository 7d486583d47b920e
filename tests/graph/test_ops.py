"""Sets of ops: what their names promise, by TensorFlow's own definitions."""

from __future__ import annotations

from cudnn_convert.graph import ops
from cudnn_convert.private import tf_private


def test_what_is_folded_has_no_state_and_may_run() -> None:
    assert not {name for name in ops.FOLDABLE if tf_private.find_op(name).is_stateful}
    assert ops.FOLDABLE <= ops.PURE
    assert not ops.FOLDABLE & ops.RANDOM


def test_ops_of_references_take_or_give_one() -> None:
    for name in ops.REFERENCE_CARRIERS | ops.REFERENCE_VARIABLES:
        found = tf_private.find_op(name)
        assert any(argument.is_ref for argument in (*found.input_arg, *found.output_arg)), name


def test_stateful_sections_are_those_of_tensorflow() -> None:
    assert ops.STATEFUL < ops.PURE
    assert all(tf_private.find_op(name).is_stateful for name in ops.STATEFUL)
