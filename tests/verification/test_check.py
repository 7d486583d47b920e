"""From feeds to a verdict: what is compared, what is excused, what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, UNITS, drawing, lstm, model, placeholder, saved, variable
from support.plans import plan_graph

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import VerificationError
from cudnn_convert.options import Options
from cudnn_convert.report import Verification
from cudnn_convert.verification import check, graph_judge, judges

Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def rnn() -> Any:
    return lstm(placeholder("x"), variable("blob", BLOB.shape)).output


def verdict(
    build: Callable[[], Any], change: Change, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> Verification:
    """On an artifact that answers as the source does, but for `change`."""
    with drawing() as graph:
        tf.identity(build(), "scores")
    made = plan_graph(model(graph), outputs=["scores"])

    def answering(*_: Any) -> Any:
        def answer(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            with graph_judge.open_source(made) as judge:
                named = {made.signature.inputs[key]: value for key, value in feeds.items()}
                values = judge.run(named, list(made.signature.outputs.values()))
            return change(dict(zip(made.signature.outputs, values, strict=True)))

        return answer

    monkeypatch.setattr(runners, "open_artifact", answering)
    return check.verify_artifact(made, Path("artifact"), Options(format="savedmodel", **given))


def shifted(by: float) -> Change:
    return lambda answers: {key: (value + by).astype(value.dtype) for key, value in answers.items()}


def test_the_same_answers_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(rnn, lambda answers: answers, monkeypatch)
    assert found.passed
    assert found.feeds == ({"x": (17, 3, 3)}, {"x": (9, 2, 3)}, {"x": (1, 2, 3)})
    (output,) = found.outputs
    assert output.compared == (17 * 3 + 9 * 2 + 1 * 2) * UNITS
    assert (output.worst, output.atol, output.rtol, output.reason) == (0, 1e-5, 1e-5, "float32")
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(shifted(1e-4), "at ", id="a-little-off"),
        pytest.param(lambda answers: {}, "missing", id="missing"),
        pytest.param(lambda answers: {"scores": answers["scores"][:-1]}, "expected float32[", id="shape"),
        pytest.param(lambda answers: {"scores": answers["scores"] * np.nan}, "NaN or Inf at other", id="nan"),
    ],
)
def test_other_answers_fail(change: Change, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(rnn, change, monkeypatch)
    assert not found.passed
    assert found.outputs[0].message.startswith(message)


def test_an_output_too_many_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(rnn, lambda answers: {**answers, "more": np.zeros(1)}, monkeypatch)
    assert not found.passed
    assert [(output.output, output.passed) for output in found.outputs] == [("scores", True), ("more", False)]


def test_an_output_that_is_always_empty_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(lambda: rnn()[:0], lambda answers: answers, monkeypatch)
    assert (found.end_to_end, found.unproven) == ("not judged", ("rnn",))
    (output,) = found.outputs
    assert (output.passed, output.judged, output.message) == (True, False, "empty for every feed")
    found = verdict(lambda: rnn()[:0], lambda answers: {"scores": answers["scores"][:, 1:]}, monkeypatch)
    assert not found.passed


def test_the_figures_cover_all_feeds_and_find_the_axis_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step of the long feed alone is off; the short one has 9."""

    def late(answers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        (value,) = answers.values()
        value = value.copy()
        value[16:, 1, 0] += 0.25
        return {"scores": value}

    (output,) = verdict(rnn, late, monkeypatch).outputs
    assert output.over_time is not None
    assert output.worst_element is not None
    assert output.distribution is not None
    assert (output.over_time.axis, output.over_time.group, len(output.over_time.errors)) == (0, 1, 17)
    assert output.over_time.errors[:16] == (0,) * 16
    assert output.over_time.errors[16] == output.max_abs == pytest.approx(0.25)
    assert (output.worst_element.feed, output.worst_element.index) == (0, (16, 1, 0))
    assert output.distribution.exact == output.compared - 1


def test_one_feed_that_differs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_short(answers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return shifted(1)(answers) if len(answers["scores"]) == 9 else answers

    assert not verdict(rnn, only_short, monkeypatch).passed


def test_an_override_is_used_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(rnn, shifted(1e-4), monkeypatch, atol=1e-3)
    assert found.passed
    assert (found.outputs[0].atol, found.outputs[0].reason) == (1e-3, "asked for")


def test_an_ill_conditioned_model_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of the recurrence's rounding, made large."""
    found = verdict(lambda: tf.sin(rnn() * 5e3), lambda answers: answers, monkeypatch)
    (output,), (remark,) = found.outputs, found.remarks
    assert found.passed
    assert output.atol > 1e-4
    assert output.rtol == 1e-5
    assert (found.warnings, remark) == ((), f"scores: ill-conditioned; compared as {output.reason}")
    assert output.reason.startswith("float32, widened to 10 times the model's noise floor ")
    assert output.judged
    assert found.end_to_end == "equal"


def test_a_bound_wider_than_a_hundredth_of_the_spread_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of rounding can be told neither equal nor different."""
    for change in (lambda answers: answers, shifted(0.5)):
        found = verdict(lambda: tf.sin(rnn() * 1e6), change, monkeypatch)
        (output,) = found.outputs
        assert (output.judged, output.passed, found.passed) == (False, True, True)
        assert found.end_to_end == "not judged"
        assert "not judged end to end: its bound " in output.message
        assert found.unproven == ("rnn",)  # this artifact cannot be asked for it


@pytest.mark.parametrize(("by", "end"), [(0.0, "equal"), (1e-2, "different")])
def test_milder_inputs_judge_what_the_usual_ones_do_not(
    by: float, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the sine of a large multiple rounding makes noise, and the multiple is small where inputs are."""

    def built() -> Any:
        x = placeholder("x")
        size = tf.reduce_sum(tf.square(x), -1, keepdims=True)
        return tf.sin(lstm(x, variable("blob", BLOB.shape)).output * tf.square(tf.square(size)) * 1e6)

    found = verdict(built, shifted(by), monkeypatch)
    (output,) = found.outputs
    assert (output.judged, found.end_to_end, found.passed) == (True, end, end == "equal")
    assert found.feeds[-1] == {"x": (9, 2, 3)}
    assert output.compared == 9 * 2 * UNITS
    assert output.worst_element is not None
    assert output.worst_element.feed == len(found.feeds) - 1
    if end == "equal":
        wanted = "scores: judged on milder inputs, of standard deviation 0.1; on others its bound "
        assert any(warning.startswith(wanted) for warning in found.warnings)
        assert found.unproven == ("rnn",)  # which milder inputs do not show


@pytest.mark.parametrize(("by", "end"), [(0.0, "equal"), (1e-2, "different")])
def test_fewer_steps_of_given_values_judge_what_the_given_inputs_do_not(
    by: float, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sine is of a multiple that grows with the steps, and that inputs of random signs make noise."""

    def built() -> Any:
        x = placeholder("x")
        growth = tf.pow(tf.cast(tf.shape(x)[0], tf.float32) / 9, 9.0)
        wild = 1e7 * tf.reduce_max(tf.nn.relu(-x))
        return tf.sin(lstm(x, variable("blob", BLOB.shape)).output * (growth + wild))

    data = tmp_path / "feeds.npz"
    np.savez(data, x=np.random.default_rng(1).uniform(0.1, 2, (60, 2, 3)).astype(np.float32))
    found = verdict(built, shifted(by), monkeypatch, data=data)
    (output,) = found.outputs
    assert (output.judged, found.end_to_end, found.passed) == (True, end, end == "equal")
    assert found.feeds == ({"x": (60, 2, 3)}, {"x": (9, 2, 3)})
    if end == "equal":
        wanted = "scores: judged on milder inputs, fewer steps of values of --data; on others its bound "
        assert any(warning.startswith(wanted) for warning in found.warnings)


def test_given_values_stay_with_those_of_their_place() -> None:
    rng, rows = np.random.default_rng(0), np.array([[1.0, 10.0], [2.0, 20.0]])
    floats = judges.Floats(0.1, {"rows": rows, "flat": np.array([5.0, 6.0])})
    drawn = floats.draw(rng, "rows", [9, 3, 2])
    assert drawn.shape == (9, 3, 2)
    assert {tuple(row) for row in drawn.reshape(-1, 2)} == {(1.0, 10.0), (2.0, 20.0)}
    assert {*floats.draw(rng, "flat", [9, 3]).ravel()} == {5.0, 6.0}
    assert floats.draw(rng, "other", [1000]).std() == pytest.approx(0.1, rel=0.1)


def test_what_is_wrong_by_any_bound_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(lambda: tf.sin(rnn() * 1e6), lambda answers: {}, monkeypatch)
    assert not found.passed
    assert found.end_to_end == "different"


def test_outputs_too_small_for_their_bound_are_not_judged_while_they_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = verdict(lambda: rnn() * 1e-6, lambda answers: answers, monkeypatch)
    assert (found.end_to_end, found.unproven) == ("not judged", ("rnn",))
    assert not verdict(lambda: rnn() * 1e-6, shifted(1e-3), monkeypatch).passed


def test_an_output_that_does_not_move_proves_nothing_of_a_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(lambda: rnn() * 0.0 + 3.0, lambda answers: answers, monkeypatch)
    assert found.passed
    assert found.unproven == ("rnn",)


def test_choices_that_move_prove_a_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(choices(lambda y: tf.concat([y[..., :1], 0 * y[..., :1]], -1)), lambda a: a, monkeypatch)
    assert (found.passed, found.end_to_end) == (True, "equal")


def test_nan_on_both_sides_passes_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(lambda: rnn() / tf.constant([0.0, 1.0]), lambda answers: answers, monkeypatch)
    assert found.passed
    assert found.warnings == ("scores: NaN or Inf at the same places on both sides",)


def other_choice(answers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"scores": (1 - answers["scores"]).astype(answers["scores"].dtype)}


def choices(scores: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: tf.argmax(scores(rnn()), axis=-1, output_type=tf.int32)


def test_a_tie_may_go_either_way_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = choices(lambda y: tf.concat([y[..., :1], y[..., :1]], -1))
    found = verdict(tied, other_choice, monkeypatch)
    count = 17 * 3 + 9 * 2 + 1 * 2
    assert found.passed
    assert found.outputs[0].excused == count
    assert found.remarks == (f"scores: {count} choices between scores too close to call differ",)


def test_a_clear_choice_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(choices(lambda y: y), other_choice, monkeypatch)
    assert not found.passed
    assert found.outputs[0].excused == 0


@pytest.mark.parametrize(("bound", "passed"), [(0.26, True), (0.24, False)])
def test_a_choice_may_differ_where_errors_of_its_scores_explain_it(
    bound: float, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores half apart: an error of a quarter in each turns the choice round."""
    near = choices(lambda y: tf.concat([y[..., :1], y[..., :1] + 0.5], -1))
    found = verdict(near, other_choice, monkeypatch, max_error=bound)
    assert (found.passed, found.outputs[0].excused) == (passed, (17 * 3 + 9 * 2 + 1 * 2) * passed)


@pytest.mark.parametrize(("bound", "passed"), [(2e-4, True), (5e-5, False)])
def test_a_largest_error_is_the_bound_of_floats(
    bound: float, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(rnn, shifted(1e-4), monkeypatch, max_error=bound)
    (output,) = found.outputs
    assert found.passed is passed
    assert (output.atol, output.rtol, output.reason) == (bound, 0, "--max-error")


def test_a_choice_is_judged_along_its_own_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores `[a, 2, 2]`: tied along the last axis, not along the one in the middle, which decides."""

    def build() -> Any:
        y = rnn()[..., :1]
        square = tf.stack([tf.concat([y, y], -1), tf.concat([y, y], -1) + 1.0], axis=2)[0]
        return tf.argmax(square, axis=1, output_type=tf.int32)

    assert not verdict(build, other_choice, monkeypatch).passed


def test_a_choice_that_does_not_exist_is_excused_by_no_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = choices(lambda y: tf.concat([y[..., :1], y[..., :1]], -1))
    assert not verdict(tied, shifted(2), monkeypatch).passed
    assert not verdict(tied, shifted(-2), monkeypatch).passed


def test_a_conversion_whose_numbers_differ_names_the_worst_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with drawing() as graph:
        tf.identity(rnn(), "scores")
    prefix, out = saved(tmp_path, graph, {"blob": BLOB}), tmp_path / "out"
    real = runners.open_artifact

    def wrong(*args: Any) -> Any:
        answer = real(*args)
        return lambda feeds: shifted(0.5)(answer(feeds))

    monkeypatch.setattr(runners, "open_artifact", wrong)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.convert(prefix, out)
    assert str(caught.value).startswith(f"{prefix}: output scores: at [")
    assert "expected " in str(caught.value)
    assert not caught.value.report.verification.passed
    assert caught.value.exit_code == 3
    assert not out.exists()
