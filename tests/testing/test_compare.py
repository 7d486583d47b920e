"""What fails, what is refused, and what is said of it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudnn_convert.errors import UsageError
from cudnn_convert.testing import EquivalenceError, assert_equivalent

Answers = dict[str, np.ndarray]


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Answers], Answers]:
    return lambda answers: {**answers, name: change(answers[name])}


def with_nan(value: np.ndarray) -> np.ndarray:
    value = value.copy()
    value[1, 0] = np.nan
    return value


FAILING: dict[str, tuple[Callable[[Answers], Answers], str, str]] = {
    "missing": (lambda one: {"y": one["y"], "h": one["h"]}, "c", "missing"),
    "extra": (lambda one: {**one, "more": one["h"]}, "more", "not expected"),
    "shape": (changed("h", lambda h: h[:, :-1]), "h", r"expected float32\[2, 4\], found float32\[2, 3\]"),
    "dtype": (
        changed("h", lambda h: h.astype(np.float64)), "h",
        r"expected float32\[2, 4\], found float64\[2, 4\]",
    ),
    "NaN": (changed("h", with_nan), "h", r"NaN or Inf at other places: at \[1, 0\] expected .*, found nan"),
    "off": (changed("h", lambda h: h + np.float32(3e-5)), "h", r"at \[\d, \d\] .*, allowed 1\.\de-05"),
    "time": (changed("y", lambda y: y[:, ::-1]), "y", r"at \[\d, \d, \d\] expected"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAILING)
def test_what_fails(kind: str, lstm: Any, feeds: Any) -> None:
    change, output, message = FAILING[kind]
    with pytest.raises(EquivalenceError, match=f"(?m)^output {output}: {message}") as caught:
        assert_equivalent(lambda x: change(lstm(x)), lstm, feeds)
    assert {one.output for one in caught.value.report.outputs if not one.passed} == {output}


def test_only_a_later_call_may_differ(feeds: Any) -> None:
    """A model that remembers: the second call begins where the first ended on one side alone."""
    total = [0.0]

    def remembering(x: np.ndarray) -> np.ndarray:
        total[0] += float(x.sum())
        return np.float32(total[0]) * np.ones(3, np.float32)

    def forgetting(x: np.ndarray) -> np.ndarray:
        return np.float32(x.sum()) * np.ones(3, np.float32)

    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(remembering, forgetting, feeds)
    (output,) = caught.value.report.outputs
    assert output.worst_element is not None
    assert output.worst_element.feed == 1
    total[0] = 0.0
    assert assert_equivalent(remembering, forgetting, feeds[:1]).passed


def test_nothing_compared_is_no_proof() -> None:
    empty = {"y": np.zeros((0, 3), np.float32)}
    with pytest.raises(EquivalenceError, match="output y: empty for every feed"):
        assert_equivalent(empty, empty, {"x": np.zeros((0, 1))})
    assert assert_equivalent([empty, {"y": np.ones(2)}], [empty, {"y": np.ones(2)}], [np.ones(1)] * 2).passed
    for nothing, found in (({}, "expected at least one output, found none"), (None, "found nothing")):
        with pytest.raises(UsageError, match=found):
            assert_equivalent(lambda x, given=nothing: given, lambda x: x, np.ones(2))
    with pytest.raises(UsageError, match="expected at least one call, found none"):
        assert_equivalent(lambda x: x, lambda x: x, [])


def test_nan_at_the_same_places_passes_with_a_warning(lstm: Any) -> None:
    answers = {"h": with_nan(np.ones((2, 3), np.float32))}
    found = assert_equivalent(answers, {"h": answers["h"].copy()}, np.ones(1))
    assert found.warnings == ("h: NaN or Inf at the same places on both sides",)


def test_nan_alone_is_no_proof() -> None:
    answers = {"h": np.full((2, 3), np.nan, np.float32), "y": np.ones(2)}
    told = "output h: NaN or Inf at the same places on both sides"
    with pytest.raises(EquivalenceError, match=told):
        assert_equivalent(answers, {key: value.copy() for key, value in answers.items()}, np.ones(1))
    infinite = {"h": np.full((2, 3), -np.inf, np.float32)}  # as a mask has
    assert assert_equivalent(infinite, {"h": infinite["h"].copy()}, np.ones(1)).passed


def test_bounds_are_those_of_the_type_of_noise_or_as_asked_for(lstm: Any, feeds: Any) -> None:
    def off(x: np.ndarray) -> Answers:
        return {name: value + np.float32(3e-5) for name, value in lstm(x).items()}

    found = assert_equivalent(off, lstm, feeds, noise=2e-5)
    assert {(one.atol, one.rtol) for one in found.outputs} == {(4e-5, 1e-5)}
    assert found.remarks[0].startswith("y: ill-conditioned; compared as float32, widened to twice")
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(off, lstm, feeds, noise={"h": 2e-5, "c": 2e-5})
    assert [one.output for one in caught.value.report.outputs if not one.passed] == ["y"]
    with pytest.raises(EquivalenceError):
        assert_equivalent(off, lstm, feeds, noise=1e-6)
    found = assert_equivalent(off, lstm, feeds, atol=1e-4, rtol=0.0)
    assert {(one.atol, one.rtol, one.reason) for one in found.outputs} == {(1e-4, 0.0, "asked for")}
    with pytest.raises(UsageError, match="noise: expected outputs of y, h, c, found z"):
        assert_equivalent(off, lstm, feeds, noise={"z": 1.0})


def test_floats_of_two_types_need_a_type_to_be_judged_by(lstm: Any, feeds: Any) -> None:
    def double(x: np.ndarray) -> Answers:
        return {name: value.astype(np.float64) + 1e-7 for name, value in lstm(x).items()}

    for ours, theirs in ((double, lstm), (lstm, double)):
        found = assert_equivalent(ours, theirs, feeds, dtype="float32")
        assert {one.reason for one in found.outputs} == {"float32"}
        assert all(one.ulp is not None and one.ulp < 2**24 for one in found.outputs)
        with pytest.raises(EquivalenceError, match="expected float"):
            assert_equivalent(ours, theirs, feeds)
        with pytest.raises(EquivalenceError, match=r"allowed \d\.\de-12"):
            assert_equivalent(ours, theirs, feeds, dtype=np.float64)
        with pytest.raises(EquivalenceError, match="expected int64"):
            assert_equivalent({"n": np.ones(2, np.int32)}, {"n": np.ones(2, np.int64)}, [1 * np.ones(1)])
    half = {"y": np.ones(3, ml_dtypes.bfloat16)}
    assert assert_equivalent(half, {"y": np.ones(3)}, np.ones(1), dtype=ml_dtypes.bfloat16).passed


def test_what_a_side_does_to_its_arrays_stays_with_it() -> None:
    held = np.zeros((2, 3), np.float32)

    def doubling(x: np.ndarray) -> np.ndarray:
        x *= 2
        return x

    def reusing(x: np.ndarray) -> np.ndarray:
        held[:] = 2 * x
        return held

    x = np.random.default_rng(1).normal(size=(2, 2, 3)).astype(np.float32)
    before = x.copy()
    for ours, theirs in ((doubling, reusing), (reusing, doubling)):
        assert assert_equivalent(ours, theirs, [x[0], x[1]]).passed
    np.testing.assert_array_equal(x, before)


def test_names_that_differ_are_told_never_guessed(lstm: Any, feeds: Any) -> None:
    def renamed(features: np.ndarray) -> Answers:
        y, h, c = lstm(features).values()
        return {"c": h, "state:0": c, "out": y}

    names = {"c": "h", "state:0": "c", "out": "y"}
    assert assert_equivalent(renamed, lstm, feeds, outputs=names).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(renamed, lstm, feeds, outputs={"c": "c", "state:0": "h", "out": "y"})
    with pytest.raises(
        UsageError, match=r"outputs: expected y, h, c, found c, state:0, out; pair them with outp"
    ):
        assert_equivalent(renamed, lstm, feeds)
    with pytest.raises(UsageError, match=r"found c, state:0, out; .*, not \{gone: y\}"):
        assert_equivalent(renamed, lstm, feeds, outputs={"gone": "y"})
    with pytest.raises(UsageError, match=r"not \{c: h, out: h\}"):
        assert_equivalent(renamed, lstm, feeds, outputs={"c": "h", "out": "h"})
    # One too many that is called as what another stands for.
    with pytest.raises(EquivalenceError, match=r"(?m)^output actual's h: not expected$"):
        assert_equivalent(lambda x: {**renamed(x), "h": lstm(x)["h"]}, lstm, feeds, outputs=names)
    # A name of TensorFlow's is the same with and without its :0.
    assert assert_equivalent(
        {"y:0": np.ones(2), "h": np.ones(1)}, {"y": np.ones(2), "h": np.ones(1)}, np.ones(1)
    )


def test_inputs_that_differ_are_told_never_guessed() -> None:
    drawn = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)
    feed = {"a": drawn[0], "b": drawn[1]}
    expected = lambda a, b: a - 2 * b  # noqa: E731
    actual = lambda first, second: second - 2 * first  # noqa: E731
    told = {"first": "b", "second": "a"}
    assert assert_equivalent(actual, expected, feed, inputs=told).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(actual, expected, feed, inputs={"first": "a", "second": "b"})
    with pytest.raises(UsageError, match=r"expected the parameters \(first, second\), found the inputs a, b"):
        assert_equivalent(actual, expected, feed)
    with pytest.raises(UsageError, match="inputs: expected a, b, the inputs of expected, found z"):
        assert_equivalent(actual, expected, feed, inputs={"first": "z"})
    with pytest.raises(UsageError, match="inputs: expected a name for each, found b, b"):
        assert_equivalent(lambda **_: drawn, expected, feed, inputs={"b": "a"})
    with pytest.raises(UsageError, match="feeds: call 2: expected a, b as in the first, found a"):
        assert_equivalent(lambda **_: drawn, lambda **_: drawn, [feed, {"a": drawn[0]}])
    with pytest.raises(UsageError, match="call 2: expected one as in the first, found two"):
        count = iter(["one", "two"])
        assert_equivalent(lambda **_: {next(count): drawn}, lambda **_: drawn, [feed, feed])
    for given, found in (("x", "found a str"), ([1, 2], "found a list")):
        with pytest.raises(UsageError, match=found):
            assert_equivalent(expected, expected, [{"a": [1], "b": given}] if given != "x" else [given])


def test_scalars_texts_and_complex_numbers() -> None:
    answers = {"loss": np.float32(2.5), "words": np.array([b"one", b"two"]), "z": np.array([1 + 2j, -1j])}
    assert assert_equivalent(lambda x: answers, answers, np.ones(1)).passed
    for name, value in (
        ("loss", np.float32(2.6)),
        ("words", np.array([b"one", b"too"])),
        ("z", answers["z"] + 1e-4j),
    ):
        with pytest.raises(EquivalenceError) as caught:
            assert_equivalent(lambda x, one={**answers, name: value}: one, answers, np.ones(1))
        assert [one.output for one in caught.value.report.outputs if not one.passed] == [name]


def test_several_outputs_without_names_go_by_their_order(lstm: Any, feeds: Any) -> None:
    assert assert_equivalent(
        lambda x: tuple(lstm(x).values()), lambda x: [*lstm(x).values()], feeds
    ).outputs[2].output == "output_2"  # fmt: skip
    with pytest.raises(EquivalenceError):
        assert_equivalent(lambda x: [*lstm(x).values()][::-1], lambda x: [*lstm(x).values()], feeds)
    named = namedtuple("named", "y h c")
    assert_equivalent(lambda x: named(**{**lstm(x)}), lstm, feeds)
    with pytest.raises(UsageError, match="output output_1: expected an array, found a list"):
        assert_equivalent(lambda x: (x, [x, x]), lstm, feeds)


def test_steps_past_a_length_are_not_compared(lstm: Any) -> None:
    """cuDNN leaves zeros there, Keras on a CPU repeats the last output; in the state they agree."""
    x = np.random.default_rng(5).normal(size=(3, 6, 3)).astype(np.float32)
    lengths = np.array([6, 2, 4])
    late = np.arange(6)[None] >= lengths[:, None]

    def zeros(x: np.ndarray, n: np.ndarray) -> Answers:
        return {"y": np.where(late[..., None], 0, lstm(x)["y"]), "n": n}

    def repeated(x: np.ndarray, n: np.ndarray) -> Answers:
        y = lstm(x)["y"]
        return {"y": np.where(late[..., None], y[np.arange(3), n - 1][:, None], y), "n": n}

    feed = {"x": x, "n": lengths}
    with pytest.raises(EquivalenceError):
        assert_equivalent(repeated, zeros, feed, time_axis=1)
    for given in ("n", lengths, [lengths]):
        found = assert_equivalent(repeated, zeros, feed, time_axis=1, lengths=given)
        assert [one.compared for one in found.outputs] == [12 * 4, 3]
        assert found.outputs[0].distribution is not None
        assert found.outputs[0].distribution.exact == 12 * 4
    for wrong in (lengths + 1, lengths[::-1]):
        with pytest.raises(EquivalenceError):
            assert_equivalent(repeated, zeros, feed, time_axis=1, lengths=np.minimum(wrong, 6))
    steps = {key: value.swapaxes(0, 1) for key, value in {"y": lstm(x)["y"]}.items()}
    odd = {"y": steps["y"] + late.T[..., None].astype(np.float32)}
    assert assert_equivalent(odd, steps, feed, time_axis={"y": 0}, lengths="n").passed
    with pytest.raises(EquivalenceError, match="output y: empty for every feed"):
        assert_equivalent(repeated, zeros, feed, time_axis={"y": 1}, lengths=lengths * 0)
    with pytest.raises(EquivalenceError, match=r"expected float32\[3, 6, 4\], found float32\[3, 1, 4\]"):
        assert_equivalent({"y": lstm(x)["y"][:, :1]}, {"y": lstm(x)["y"]}, feed, time_axis=1, lengths="n")


def test_only_a_name_makes_time_of_the_last_of_two_axes() -> None:
    """A state of as many units as there are steps looks like it."""
    x = np.ones((2, 3, 4))
    expected = {"y": x, "state": np.ones((2, 3))}
    actual = {"y": x, "state": np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]])}
    lengths = np.array([3, 2])
    with pytest.raises(EquivalenceError, match="output state"):
        assert_equivalent(actual, expected, x, time_axis=1, lengths=lengths)
    assert_equivalent(actual, expected, x, time_axis={"state": 1}, lengths=lengths)


def test_terms_that_do_not_fit_are_refused(lstm: Any, feeds: Any) -> None:
    sizes = [np.array([9, 2]), np.array([3, 4, 5, 6, 6])]
    for terms, found in (
        (
            {"lengths": sizes},
            "lengths: expected outputs with an axis of time, found none; name it with time_axis=",
        ),
        ({"lengths": sizes[0], "time_axis": 1}, r"expected 2 arrays of integers .*, found int64\[2\]"),
        ({"lengths": "n", "time_axis": 1}, "lengths: expected one of x, found n"),
        (
            {"lengths": sizes[::-1], "time_axis": 1},
            r"expected 5 rows in axis 0 of outputs, found y \[2, 9, 4\]",
        ),
        ({"time_axis": {"y": 3}}, "expected axes of y of 3 axes, h of 2 axes, c of 2 axes, found y: 3"),
        ({"time_axis": {"z": 1}}, "found z: 1"),
        ({"time_axis": -1}, "expected an axis counted from 0, found -1"),
        ({"dtype": "int32"}, "dtype: expected a type of floats, found int32"),
        ({"dtype": "short float"}, "dtype: expected a type of floats, found short float"),
    ):
        with pytest.raises(UsageError, match=found):
            assert_equivalent(lstm, lstm, feeds, **terms)
