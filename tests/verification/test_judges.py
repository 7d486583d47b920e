"""How weights without a graph are judged: by their recurrences, on feeds that need no graph either."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.cases import Case

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array, CanonicalEvidence, Mode, Model, Part, Recurrence, Signature
from cudnn_convert.plan import RecurrencesPlan
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.verification import effort, judges
from cudnn_convert.verification.judges import Draw, computation
from cudnn_convert.verification.settings import choose_judge
from cudnn_convert.weights import lazy, parameter_blob
from cudnn_convert.weights.lazy import Read

LSTM, GRU = Case(Mode.LSTM, 1, 2, "CudnnRNNV3"), Case(Mode.GRU, 2, 1)


def planned() -> RecurrencesPlan:
    """A batch-major LSTM of lengths and states, and a time-major GRU of neither."""
    singles = (
        Single("one", LSTM.recurrence("one/CudnnRNN"), batch_major=True, states=True),
        Single("two", GRU.recurrence("two/CudnnRNN"), batch_major=False, states=False),
    )
    parts = tuple(Part(one.name, one.signature, f"{one.name}/") for one in singles)
    union = Signature(
        {part.prefix + key: name for part in parts for key, name in part.signature.inputs.items()},
        {part.prefix + key: name for part in parts for key, name in part.signature.outputs.items()},
    )
    model = Model("weights", "a checkpoint", None, {})  # type: ignore[arg-type]
    found = tuple(one.recurrence for one in singles)
    return RecurrencesPlan(model, None, None, union, union, parts, found, (), (), singles=singles)


def fed() -> dict[str, Array]:
    one, two = LSTM.feeds(), GRU.feeds(4, 2)
    return {
        "one/inputs:0": one["x"].swapaxes(0, 1),
        "one/initial_h:0": one["h"],
        "one/initial_c:0": one["c"],
        "one/sequence_lengths:0": one["lengths"],
        "two/inputs:0": two["x"],
    }


def test_each_recurrence_answers_for_itself() -> None:
    plan = planned()
    with choose_judge(plan).open() as judge:
        names = [*plan.signature.outputs.values()]
        found = dict(zip(names, judge.run(fed(), names), strict=True))
        assert judge.sizes == [(7, 3), (4, 2)]
    y, h, c = LSTM.expected(LSTM.feeds())
    still = GRU.feeds(4, 2) | {"h": np.zeros((2, 2, 5), np.float32)}
    expected = {"one/outputs:0": y.swapaxes(0, 1), "one/state_h:0": h, "one/state_c:0": c}
    expected |= zip(["two/outputs:0", "two/state_h:0"], GRU.expected(still), strict=True)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-7)


def test_feeds_are_made_for_every_input() -> None:
    plan = planned()
    with choose_judge(plan).open() as judge:
        feeds = choose_judge(plan).make_feeds(judge, seed=3, more=((2, 5),))
        again = choose_judge(plan).make_feeds(judge, seed=3)
        for feed in feeds:
            choose_judge(plan).require_accepted(judge, feed, where="made up")
    shapes = [(feed["one/inputs:0"].shape, feed["two/inputs:0"].shape) for feed in feeds]
    assert shapes == [((3, 17, 4), (17, 3, 4)), ((2, 9, 4), (9, 2, 4)), ((5, 2, 4), (2, 5, 4))]
    for feed, (time, batch) in zip(feeds, (*effort.FEED_SIZES, (2, 5)), strict=True):
        lengths = feed["one/sequence_lengths:0"]
        assert (lengths.dtype, lengths.shape) == (np.int32, (batch,))
        assert 1 <= lengths.min() <= lengths.max() <= time
        assert feed["one/initial_h:0"].any()
        assert not np.array_equal(feed["one/initial_h:0"], feed["one/initial_c:0"])
    for one, other in zip(feeds, again, strict=False):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_given_arrays_take_the_types_of_the_inputs() -> None:
    plan = planned()
    wide = {key: fed()[name].astype(np.float64) for key, name in plan.signature.inputs.items()}
    wide["one/sequence_lengths"] = fed()["one/sequence_lengths:0"].astype(np.int64)
    found = choose_judge(plan).fit(wide, where="--data x.npz")
    assert {name: value.dtype for name, value in found.items()} == {
        name: np.dtype(np.int32 if "lengths" in name else np.float32) for name in fed()
    }
    assert all(np.array_equal(found[name], value) for name, value in fed().items())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("two/inputs", np.zeros((4, 2, 3)), "expected float32(None, None, 4), found float64[4, 2, 3]"),
        ("two/inputs", np.zeros((4, 4)), "expected float32(None, None, 4), found float64[4, 4]"),
        ("one/sequence_lengths", np.full(3, 0.5), "expected int32, found 0.5"),
    ],
)
def test_arrays_that_do_not_fit(key: str, value: Array, message: str) -> None:
    plan = planned()
    with pytest.raises(UsageError) as refused:
        choose_judge(plan).fit({key: value}, where="here")
    assert str(refused.value) == f"here: {key}: {message}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "one/initial_c:0",
            np.zeros((2, 4, 5), np.float32),
            "one/initial_c: expected a batch of 3 as in the inputs before it, found 4",
        ),
        (
            "one/sequence_lengths:0",
            np.array([7, 8, 1], np.int32),
            "one/sequence_lengths: expected lengths of 0 to 7 steps, found 1 to 8",
        ),
    ],
)
def test_feeds_that_contradict_each_other(name: str, value: Array, message: str) -> None:
    plan = planned()
    with choose_judge(plan).open() as judge, pytest.raises(UsageError) as refused:
        choose_judge(plan).require_accepted(judge, fed() | {name: value}, where="here")
    assert str(refused.value) == f"here: {message}"


# Large recurrences are computed layer by layer, of weights that are read for it and let go of.

GATES, UNITS, INPUTS, LAYERS = 4, 5, 4, 4
KEY = "rnn/multi_rnn_cell/cell_{}/cudnn_compatible_lstm_cell/{}"


class Tensors:
    """The canonical tensors of four layers; remembers what was read, and how many are alive at most."""

    def __init__(self) -> None:
        random = np.random.default_rng(3)
        self.arrays: dict[str, Array] = {}
        for layer in range(LAYERS):
            rows = (INPUTS if layer == 0 else UNITS) + UNITS
            kernel = random.uniform(-0.5, 0.5, (rows, GATES * UNITS)).astype(np.float32)
            bias = random.uniform(-0.5, 0.5, GATES * UNITS).astype(np.float32)
            self.arrays |= {KEY.format(layer, "kernel"): kernel, KEY.format(layer, "bias"): bias}
        self.asked: list[str] = []
        self.alive = self.most = 0

    def read(self, name: str) -> Array:
        self.asked.append(name)
        made = self.arrays[name].astype(np.float64)  # of the type wanted: no cast lets it go
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(made, self._let_go)
        return made

    def _let_go(self) -> None:
        self.alive -= 1

    def recurrence(self) -> Recurrence:
        case = Case(Mode.LSTM, LAYERS)
        evidence = CanonicalEvidence(Read(self.arrays, self.read))
        return replace(case.recurrence(), evidence=evidence)


def expected(tensors: Tensors, x: Array, h: Array, c: Array) -> Array:
    """The last layer's outputs, step by step, as TensorFlow 1's cell has them: gates i, g, f, o."""

    def sigmoid(value: Array) -> Array:
        return 1 / (1 + np.exp(-value))

    for layer in range(LAYERS):
        state, memory, rows = h[layer], c[layer], []
        kernel, bias = (tensors.arrays[KEY.format(layer, part)] for part in ("kernel", "bias"))
        for row in x:
            i, g, f, o = np.split(np.concatenate([row, state], 1) @ kernel.astype(np.float64) + bias, 4, 1)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
            state = sigmoid(o) * np.tanh(memory)
            rows.append(state)
        x = np.stack(rows)
    return x


@pytest.mark.parametrize("large", [True, False])
def test_each_weight_is_read_once_in_a_call_and_one_layer_is_there_at_a_time(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "LARGE", 0 if large else 1 << 20)
    tensors, seen, random = Tensors(), [], np.random.default_rng(4)
    compute = computation(tensors.recurrence(), np.float64, seen, Draw())
    x = random.normal(size=(6, 3, INPUTS))
    h, c = random.uniform(-1, 1, (2, LAYERS, 3, UNITS))
    y, _, _ = compute(x, h, c)
    np.testing.assert_allclose(y, expected(tensors, x, h, c), rtol=1e-12)
    assert sorted(tensors.asked) == sorted(tensors.arrays)
    assert tensors.most == (2 if large else 2 * LAYERS)
    compute(x, h, c)
    assert len(tensors.asked) == len(tensors.arrays)  # the same call is not computed again
    other, _, _ = compute(2 * x, h, c)
    np.testing.assert_allclose(other, expected(tensors, 2 * x, h, c), rtol=1e-12)
    assert len(tensors.asked) == len(tensors.arrays) * (2 if large else 1)
    assert seen == [(6, 3)] * 3


def test_large_weights_are_proven_on_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, fewer = effort.FEED_SIZES, effort.FEED_SIZES_OF_LARGE
    assert sum(time for time, _ in fewer) < sum(time for time, _ in usual) / 1.8
    assert len({*fewer[0], *fewer[1]}) >= 3  # another time, another batch

    small, large = Case(Mode.GRU).recurrence(), Case(Mode.GRU, 2).recurrence()
    monkeypatch.setattr(lazy, "LARGE", parameter_blob.length(small.sizes) * small.dtype.itemsize)

    def sizes(*recurrences: Recurrence) -> judges.Sizes:
        return judges.sizes(SimpleNamespace(recurrences=recurrences))

    assert sizes(large, large) == fewer
    assert sizes(small) == sizes(small, large) == sizes() == usual
