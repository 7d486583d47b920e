"""What stands in for tf2onnx' sets, and what its log says of nodes that it cannot convert."""

from __future__ import annotations

import logging
import sys

import pytest
from tf2onnx import tfonnx, utils
from tf2onnx.optimizer import back_to_back_optimizer
from tf2onnx.rewriter import gru_rewriter

from cudnn_convert.lower.onnx.tf2onnx_private import InsertionSet, fix_order, keep_copied_sizes, listen


def test_a_set_in_the_order_of_its_elements() -> None:
    letters = InsertionSet("dcab")
    letters.add("e")
    letters.add("d")
    letters.discard("c")
    letters.discard("x")
    letters.update("fa")
    assert [*letters] == ["d", "a", "b", "e", "f"]
    assert len(letters) == 5
    assert "a" in letters and "c" not in letters
    assert [*letters.union("xb")] == ["d", "a", "b", "e", "f", "x"]
    assert [*letters.intersection("fxd")] == ["d", "f"]
    assert [*InsertionSet()] == []


@pytest.mark.parametrize("elements", ["", "b", "ab", "abc", "bc"])
def test_a_subset_has_all_its_elements_in_another(elements: str) -> None:
    assert InsertionSet("ab").issubset(elements) == {"a", "b"}.issubset(elements)


def test_sets_are_in_order_while_tf2onnx_works() -> None:
    before = utils.INTERNAL_NAME
    with fix_order():
        assert vars(tfonnx)["set"] is vars(utils)["set"] is InsertionSet
        assert utils.INTERNAL_NAME == 1
        assert set is not InsertionSet
    assert "set" not in vars(tfonnx)
    assert before == utils.INTERNAL_NAME


def test_the_log_says_why_nodes_are_not_converted() -> None:
    """Other lines of it do not; loggers are as they were afterwards."""
    logger, failures = logging.getLogger("tf2onnx.tfonnx"), dict[str, str]()
    parent = logging.getLogger("tf2onnx")
    before = (parent.handlers, parent.propagate, parent.level)
    with listen(failures):
        logger.error("Tensorflow op [%s: %s] is not supported", "a", "Strange")
        logger.error("something else of %s", "b")
        logger.error("all of it, without arguments")
        logger.warning("Tensorflow op [%s: %s] is not supported", "c", "Stranger")
        try:
            raise ValueError("two\n lines")
        except ValueError:
            logger.exception("Failed to convert node %r (fct=%r)", "d", "f")
    assert failures == {"a": "", "d": "two lines"}
    assert (parent.handlers, parent.propagate, parent.level) == before


def test_what_tf2onnx_prints_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with listen({}):
        exec("print('gate_bias', (8,))", vars(gru_rewriter))
        sys.stdout.write("of the program\n")
    assert capfd.readouterr().out == "of the program\n"
    assert "print" not in vars(gru_rewriter)


def test_the_rule_for_reshapes_is_as_it_was_afterwards() -> None:
    before = dict(back_to_back_optimizer._func_map)
    with keep_copied_sizes():
        assert before != back_to_back_optimizer._func_map
    assert before == back_to_back_optimizer._func_map
