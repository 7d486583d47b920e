"""The parameter blob: lengths and offsets, layers one at a time, sizes that are only claimed."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from support.graphs import BLOB, SIZES

from cudnn_convert import context
from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import Array, BlobEvidence, Cell, Convention, InMemory, Mode, Recurrence, Sizes
from cudnn_convert.plan import notes
from cudnn_convert.weights import lazy
from cudnn_convert.weights.lazy import Layers, prefetch

# The parameter blob: lengths that others published, and offsets written out.


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param(Sizes(Mode.LSTM, 3, 2, 143, 143), 1_315_600, id="tensorflow-20273"),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 5, 7), 280, id="tensorrt-cookbook"),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 100, 20), 48_800, id="tensorflow-9370"),
        pytest.param(Sizes(Mode.LSTM, 1, 2, 100, 20), 97_600, id="tensorflow-9370-both-ways"),
        pytest.param(
            Sizes(Mode.GRU, 2, 1, 2, 3), 3 * 2 * (3 + 2 + 2) + 3 * 2 * (2 + 2 + 2), id="gru-2-layers"
        ),
        pytest.param(
            Sizes(Mode.RNN_TANH, 2, 2, 2, 3), 2 * 2 * (3 + 4) + 2 * 2 * (4 + 4), id="tanh-both-ways"
        ),
        # By cuDNN 9.28.0's host code, which scripts/record_cudnn.py --without-device asks.
        pytest.param(
            Sizes(Mode.GRU, 2, 2, 3, 3, skip_input=True),
            2 * 3 * 3 * (0 + 3 + 2) + 2 * 3 * 3 * (6 + 3 + 2),
            id="gru-skipped",
        ),
        pytest.param(
            Sizes(Mode.LSTM, 2, 2, 5, 7, projection=3),
            2 * 4 * 5 * (7 + 3 + 2) + 2 * 4 * 5 * (6 + 3 + 2) + 4 * 3 * 5,
            id="lstm-projected",
        ),
    ],
)
def test_the_length(sizes: Sizes, expected: int) -> None:
    assert lazy.length(sizes) == expected
    assert lazy.solve_input_size(expected, sizes) == sizes.input_size


def test_all_matrices_come_before_all_biases() -> None:
    """Two directions of one plain layer, 1 unit, 2 inputs: fw W W R, bw W W R, fw b b, bw b b."""
    ((forward, backward),) = lazy.split(np.arange(10.0), Sizes(Mode.RNN_TANH, 1, 2, 1, 2), where="blob")
    assert forward.kernel.tolist() == [[[0, 1]]]
    assert forward.recurrent_kernel.tolist() == [[[2]]]
    assert backward.kernel.tolist() == [[[3, 4]]]
    assert backward.recurrent_kernel.tolist() == [[[5]]]
    assert [forward.bias.item(), forward.recurrent_bias.item()] == [6, 7]
    assert [backward.bias.item(), backward.recurrent_bias.item()] == [8, 9]


def test_a_second_layer_sees_both_directions() -> None:
    layers = lazy.split(np.arange(60.0), Sizes(Mode.RNN_RELU, 2, 2, 2, 3), where="blob")
    assert [cell.kernel.shape for layer in layers for cell in layer] == [(1, 2, 3)] * 2 + [(1, 2, 4)] * 2
    assert layers[1][0].kernel[0, 1].tolist() == [24, 25, 26, 27]  # row-major: the second unit's row


def test_a_projection_follows_the_recurrent_kernels_of_its_pseudo_layer() -> None:
    """Two directions, 2 units, 1 input, 1 projected: fw 8 W, 8 R, 2 Q, bw the same, then all biases."""
    sizes = Sizes(Mode.LSTM, 1, 2, 2, 1, projection=1)
    ((forward, backward),) = lazy.split(np.arange(68.0), sizes, where="blob")
    assert forward.kernel.ravel().tolist() == [*range(8)]
    assert forward.recurrent_kernel.ravel().tolist() == [*range(8, 16)]
    assert forward.projection is not None
    assert backward.projection is not None
    assert forward.projection.tolist() == [[16, 17]]
    assert backward.kernel.ravel().tolist() == [*range(18, 26)]
    assert backward.projection.tolist() == [[34, 35]]
    assert [forward.bias[0, 0], backward.recurrent_bias[3, 1]] == [36, 67]


def test_a_projection_is_row_major() -> None:
    ((cell,),) = lazy.split(np.arange(120.0), Sizes(Mode.LSTM, 1, 1, 4, 3, projection=2), where="blob")
    assert cell.recurrent_kernel.shape == (4, 4, 2)
    assert cell.projection is not None
    assert cell.projection.tolist() == [[80, 81, 82, 83], [84, 85, 86, 87]]


def test_a_second_layer_sees_both_projections() -> None:
    sizes = Sizes(Mode.LSTM, 2, 2, 5, 7, projection=3)
    layers = lazy.split(np.zeros(lazy.length(sizes)), sizes, where="blob")
    assert [layer[0].kernel.shape for layer in layers] == [(4, 5, 7), (4, 5, 6)]


def test_a_skipped_input_has_identities_and_both_biases() -> None:
    sizes = Sizes(Mode.GRU, 2, 1, 2, 2, skip_input=True)
    (first,), (second,) = lazy.split(np.arange(60.0), sizes, where="blob")
    assert first.kernel.tolist() == [[[1, 0], [0, 1]]] * 3
    assert first.recurrent_kernel[0].tolist() == [[0, 1], [2, 3]]
    assert second.kernel[0].tolist() == [[12, 13], [14, 15]]
    assert [first.bias[0, 0], first.recurrent_bias[0, 0], second.bias[0, 0]] == [36, 42, 48]


def test_only_an_input_as_wide_as_the_units_is_skipped() -> None:
    sizes = Sizes(Mode.GRU, 1, 1, 2, 3, skip_input=True)
    with pytest.raises(InvalidModelError) as refused:
        lazy.split(np.zeros(lazy.length(sizes)), sizes, where="rnn: params")
    assert str(refused.value) == "rnn: params: expected an input of 2 values, which skip_input needs, found 3"


def test_only_identities_can_be_left_out() -> None:
    sizes = Sizes(Mode.GRU, 1, 1, 2, 2)
    cells = lazy.split(np.arange(36.0), sizes, where="blob")
    with pytest.raises(InvalidModelError, match=r"^cell\.kernel: expected identities"):
        lazy.join(cells, skip_input=True)


def test_an_identity_is_square() -> None:
    """Ones on the diagonal of an input that is wider than the units leave the rest of it out."""
    bias = np.ones((1, 2))
    wide = Cell(Mode.RNN_TANH, np.eye(2, 3)[None], np.ones((1, 2, 2)), bias, bias)
    with pytest.raises(InvalidModelError, match=r"^cell\.kernel: expected identities"):
        lazy.join([[wide]], skip_input=True)


def test_the_sizes_that_fit_are_listed_in_order() -> None:
    """The rounder units first, then the fewer layers, one direction before two; at most 8 layers."""
    found = lazy.fitting(36, Mode.RNN_TANH)
    fits = [
        (layers, ways, units, inputs)
        for layers, ways, units, inputs in product(range(1, 9), (1, 2), range(1, 7), range(1, 37))
        if ways * units * (inputs + units + 2 + (layers - 1) * (ways * units + units + 2)) == 36
    ]
    rounder = {1: 1, 2: 2, 3: 1, 4: 4, 5: 1, 6: 2}
    assert {units for _, _, units, _ in fits} == {1, 2, 3, 4}
    assert max(fits)[:2] == (8, 1)
    assert [(one.layers, one.directions, one.units, one.input_size) for one in found] == sorted(
        fits, key=lambda fit: (-rounder[fit[2]], fit[0])
    )


@pytest.mark.parametrize("units", [1, 2, 5, 64, 1000])
def test_as_many_units_as_a_blob_can_have_are_tried(units: int) -> None:
    """One layer of one input: a blob of as many units has no less than these elements."""
    found = lazy.fitting(units * (1 + units + 2), Mode.RNN_RELU, layers=1, directions=1)
    assert Sizes(Mode.RNN_RELU, 1, 1, units, 1) in found


@pytest.mark.parametrize(("units", "found"), [(1 << 14, True), ((1 << 14) + 1, False)])
def test_no_more_than_16384_units_are_looked_for_unasked(units: int, found: bool) -> None:
    elements, sizes = units * (1 + units + 2), Sizes(Mode.RNN_RELU, 1, 1, units, 1)
    assert (sizes in lazy.fitting(elements, Mode.RNN_RELU, 1, 1)) is found
    assert lazy.fitting(elements, Mode.RNN_RELU, 1, 1, units) == [sizes]


def test_a_mode_that_is_not_known_may_be_any() -> None:
    """36 elements, one unit: 4 * (6 + 3), 3 * (9 + 3) or 33 + 3."""
    found = lazy.fitting(36, layers=1, directions=1, units=1)
    inputs = {Mode.LSTM: 6, Mode.GRU: 9, Mode.RNN_TANH: 33, Mode.RNN_RELU: 33}
    assert {one.mode: one for one in found} == {mode: Sizes(mode, 1, 1, 1, n) for mode, n in inputs.items()}


@pytest.mark.parametrize("shape", [(279,), (281,), (28, 10), ()], ids=str)
def test_another_length_is_refused(shape: tuple[int, ...]) -> None:
    sizes = Sizes(Mode.LSTM, 1, 1, 5, 7)
    with pytest.raises(InvalidModelError) as refused:
        lazy.split(np.zeros(shape), sizes, where="rnn: params")
    assert str(refused.value) == f"rnn: params: expected 280 values for {sizes}, found shape {shape}"


# Layers that are decoded when they are asked for: one at a time, and no more often than that.


def cell(value: float, inputs: int = 3) -> Cell:
    """A plain cell of two units, all of whose weights are `value`."""
    kernel, recurrent, bias = (np.full((1, 2, width), value, np.float32) for width in (inputs, 2, 1))
    return Cell(Mode.RNN_TANH, kernel, recurrent, bias[:, :, 0], bias[:, :, 0].copy())


class Decoder:
    """Decodes layers of one cell each; remembers which, and how many of them were alive at most."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.alive: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        self.most = 0

    def __call__(self, number: int) -> tuple[Cell, ...]:
        self.asked.append(number)
        made = cell(number + 0.5)
        self.alive[len(self.asked)] = made.kernel
        self.most = max(self.most, len(self.alive))
        return (made,)


def test_a_layer_is_decoded_when_it_is_asked_for_and_stays_until_the_next() -> None:
    decode = Decoder()
    found = Layers(3, decode)
    assert len(found) == 3
    assert decode.asked == []
    assert [found[1][0].kernel[0, 0, 0], found[1][0].bias[0, 0], found[-1][0].bias[0, 0]] == [1.5, 1.5, 2.5]
    assert decode.asked == [1, 2]
    assert decode.most == 1
    for number in (3, -4):
        with pytest.raises(IndexError):
            found[number]
    assert [layer[0].bias[0, 0] for layer in found[1:]] == [1.5, 2.5]


def test_a_walk_over_layers_holds_two_at_most() -> None:
    decode = Decoder()
    assert [layer[0].bias[0, 1] for layer in Layers(4, decode)] == [0.5, 1.5, 2.5, 3.5]
    assert decode.asked == [0, 1, 2, 3]
    assert decode.most <= 2


def test_changes_are_made_as_layers_are_decoded() -> None:
    decode = Decoder()
    found = lazy.map_cells(Layers(2, decode), lambda one: cell(-one.bias[0, 0]))
    assert decode.asked == []
    assert [layer[0].kernel[0, 1, 2] for layer in found] == [-0.5, -1.5]
    there = lazy.map_cells(((cell(2),), (cell(3),)), lambda one: cell(-one.bias[0, 0]))
    assert [layer[0].kernel[0, 1, 2] for layer in there] == [-2, -3]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_known_once_its_layer_was_decoded(value: float) -> None:
    found = Layers(2, lambda number: (cell(value if number else 1.0),))
    assert found.finite
    assert found[0]
    assert found.finite
    assert found[1]
    assert not found.finite


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 1, 99_999), (0, 1, 65_536)])
def test_one_value_among_many_is_found(place: tuple[int, int, int]) -> None:
    good = cell(1.0, inputs=100_000)
    assert lazy.is_finite(good)
    good.kernel[place] = np.nan
    assert not lazy.is_finite(good)
    turned = Cell(good.mode, good.kernel.transpose(2, 0, 1).copy().transpose(1, 2, 0), *rest(good))
    assert not lazy.is_finite(turned)


def rest(one: Cell) -> tuple[Array, Array, Array]:
    return one.recurrent_kernel, one.bias, one.recurrent_bias


def test_large_is_what_has_more_bytes_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(Mode.RNN_TANH, 1, 1, 2, 3)  # 6 + 4 + 4 values
    monkeypatch.setattr(lazy, "LARGE", 56)
    assert not lazy.exceeds_memory_budget(sizes, np.dtype(np.float32))
    assert lazy.exceeds_memory_budget(sizes, np.dtype(np.float64))


def test_tensors_are_read_by_name() -> None:
    found = lazy.read({"a": InMemory(np.arange(3)), "b": InMemory(np.arange(2))})
    assert [*found] == ["a", "b"]
    assert len(found) == 2
    assert {key: [*value] for key, value in found.items()} == {"a": [0, 1, 2], "b": [0, 1]}
    assert "c" not in found
    with pytest.raises(KeyError):
        found["c"]
    unlimited = lazy.Read(["a"], lambda name: np.zeros(1))
    with pytest.raises(KeyError):
        unlimited["c"]


# Turned matrices hold what they held, whatever lies where in memory.


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (257, 33), (300, 700), (0, 4)])
def test_a_turned_matrix_has_its_rows_side_by_side(shape: tuple[int, int]) -> None:
    stored = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    for matrix in (stored.T, stored, stored[:, ::-1].T, stored[::2]):
        found = lazy.contiguous(matrix)
        assert found.flags.c_contiguous
        assert [[*row] for row in found] == [[*row] for row in matrix]


def test_what_is_in_order_is_not_copied() -> None:
    matrix = np.ones((300, 700), np.float32)
    assert np.shares_memory(lazy.contiguous(matrix), matrix)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_begins_where_runtimes_take_it_as_it_is(dtype: str) -> None:
    for rows in range(1, 9):
        found = lazy.empty((rows, 3), np.dtype(dtype))
        assert found.shape == (rows, 3)
        assert found.dtype == dtype
        assert found.ctypes.data % 64 == 0


def test_other_ranks_are_copied_too() -> None:
    turned = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)
    copy = lazy.contiguous(turned)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, turned)


def test_what_is_lowered_is_reported_in_bytes() -> None:
    recurrences = [
        Recurrence("", "CudnnRNN", sizes, True, False, np.dtype(dtype), (), BlobEvidence(BLOB), "")
        for sizes, dtype in (
            (Sizes(Mode.RNN_TANH, 1, 1, 2, 3), "f4"),
            (Sizes(Mode.RNN_TANH, 1, 1, 1, 1), "f8"),
        )
    ]
    steps = list[tuple[str, int, int]]()
    with context.listen(lambda *step: steps.append(step)):
        lazy.report_lowered(recurrences, 1)
    assert steps == [("lowering", 56, 88)]  # 14 values, and 4 more


def test_strips_are_a_turned_matrix_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.arange(700 * 300, dtype=np.float32).reshape(700, 300)
    monkeypatch.setattr(lazy, "_STRIP", 70 * 700 * 4)
    found = [*lazy.row_chunks(stored.T)]
    assert [strip.shape for strip in found] == [(70, 700)] * 4 + [(20, 700)]
    assert all(strip.flags.c_contiguous for strip in found)
    assert [[*row] for strip in found for row in strip] == [[*row] for row in stored.T]


def test_a_row_longer_than_a_strip_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "_STRIP", 4)
    stored = np.arange(35, dtype=np.float32).reshape(5, 7)
    assert [strip.tolist() for strip in lazy.row_chunks(stored.T)] == [[[*row]] for row in stored.T]


def test_strips_of_what_is_in_order_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them in memory are little of it, wherever they lie."""
    monkeypatch.setattr(lazy, "_STRIP", 200 * 700 * 4)
    for array, count in ((np.ones((300, 700), np.float32), 2), (np.ones(5), 1), (np.ones((0, 4)), 0)):
        found = [*lazy.row_chunks(array)]
        assert len(found) == count
        assert sum(map(len, found)) == len(array)
        assert all(np.shares_memory(strip, array) for strip in found)


def test_large_memory_is_there_before_it_is_used() -> None:
    """Several threads ask for its pages, so that its user waits for none: not one of 2 MB, a 64th of it."""
    resource = pytest.importorskip("resource", reason="the system counts no memory of a process")
    made = lazy.empty((1 << 27,), np.dtype(np.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made.fill(1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 32
    assert made.min() == 1


SHAPE = (700, 500)
FLOAT = np.dtype(np.float32)


def test_memory_that_nothing_lies_in_is_used_again() -> None:
    with lazy.buffer_pool():
        kept, places = lazy.empty(SHAPE, FLOAT), set()
        for _ in range(9):
            dropped = lazy.empty(SHAPE, FLOAT)
            assert not np.shares_memory(dropped, kept)
            places.add(dropped.ctypes.data)
            del dropped
        assert len(places) == 1


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda array: array[3:5, ::7].T, id="a slice"),
        pytest.param(lambda array: array.data, id="a memoryview"),
        pytest.param(lambda array: array.reshape(-1).view(np.uint8)[4:8], id="bytes"),
    ],
)
def test_memory_that_anything_lies_in_is_not(view) -> None:
    with lazy.buffer_pool():
        first = lazy.empty(SHAPE, FLOAT)
        first[:] = 7
        held = view(first)
        before = bytes(held)
        del first
        for _ in range(9):
            lazy.empty(SHAPE, FLOAT)[:] = 8
        assert bytes(held) == before


def test_small_memory_and_memory_of_other_sizes_is_new() -> None:
    with lazy.buffer_pool():
        many = [lazy.empty((rows, 1000), FLOAT) for rows in range(300, 320)]
        for number, array in enumerate(many):
            array[:] = number
        assert [np.unique(array).tolist() for array in many] == [[number] for number in range(20)]


def test_little_is_kept_that_fits_nothing() -> None:
    """Only what is in use may be many; of the rest, as much as stays is soon too much."""
    with lazy.buffer_pool():
        used = [lazy.empty(SHAPE, FLOAT) for _ in range(40)]
        places = {array.ctypes.data for array in used}
        del used
        again = [lazy.empty(SHAPE, FLOAT) for _ in range(40)]
        assert {array.ctypes.data for array in again} == places
        bases = [weakref.ref(array.base.base._buffer) for array in again]
        del again
        assert sum(base() is not None for base in bases) == 40
        lazy.empty((3000, 1000), FLOAT)
        assert sum(base() is not None for base in bases) == 4


def test_a_context_has_memory_of_its_own() -> None:
    with lazy.buffer_pool():
        outer = lazy.empty(SHAPE, FLOAT)
        place = outer.ctypes.data
        del outer
        with lazy.buffer_pool():
            assert lazy.empty(SHAPE, FLOAT).ctypes.data != place  # that the outer one holds
        assert lazy.empty(SHAPE, FLOAT).ctypes.data == place


# Items made beside their use: in order, no more at a time than was said, and never without their errors.


@pytest.mark.parametrize("count", [1, 3, 200])
def test_all_items_in_order(count: int) -> None:
    assert [*prefetch(range(100), count)] == [*range(100)]
    assert [*prefetch([None, 0, [], ""], count)] == [None, 0, [], ""]
    assert [*prefetch([], count)] == []


@pytest.mark.parametrize("count", [1, 3])
def test_items_are_made_while_one_before_them_is_used(count: int) -> None:
    used, made = [threading.Event() for _ in range(8)], [threading.Event() for _ in range(8)]

    def items() -> Iterator[int]:
        for number in range(8):
            assert number <= count or used[number - count - 1].is_set()  # no further ahead than that
            made[number].set()
            yield number

    for number in prefetch(items(), count):
        assert made[min(number + count, 7)].wait(10)
        used[number].set()


def test_one_item_is_made_at_a_time() -> None:
    def items() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.05)  # a second thread would find the generator at work
            yield number

    assert [*prefetch(items(), 3)] == [0, 1, 2, 3]


def test_what_fails_fails_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = []
    with pytest.raises(ValueError, match="the second"):
        found.extend(prefetch(items(), 3))
    assert found == [1]


def test_who_stops_early_leaves_no_thread_and_waits_for_one_item_alone() -> None:
    before, begun, stopped = threading.active_count(), [], threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            assert number < 2 or stopped.wait(10)
            yield number

    later = threading.Timer(0.2, stopped.set)
    for _ in prefetch(items(), 50):
        later.start()
        break
    later.join()
    assert threading.active_count() == before
    assert len(begun) < 5


def test_items_are_made_in_the_context_of_their_user() -> None:
    heard = []

    def items() -> Iterator[int]:
        context.report_progress("writing", 1, 2)
        yield 1

    with context.listen(lambda *given: heard.append(given)):
        assert [*prefetch(items(), 1)] == [1]
    assert heard == [("writing", 1, 2)]


# Sizes that a file or a call only claims: told from a few numbers, in no time.


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_length_of_many_layers_is_that_of_each(layers: int, projection: int, directions: int) -> None:
    sizes = Sizes(Mode.LSTM, layers, directions, 7, 4, projection=projection)
    width = projection or 7
    each = [
        4 * 7 * (inputs + width + 2) + projection * 7 for inputs in [4, *[directions * width] * (layers - 1)]
    ]
    assert lazy.length(sizes) == directions * sum(each)


def test_layers_beyond_all_measure_have_a_length() -> None:
    assert lazy.length(Sizes(Mode.GRU, 10**15, 1, 1, 1)) == 3 * 4 * 10**15
    assert lazy.fitting(56, Mode.LSTM, 10**12, 1, 2) == []


def test_units_are_looked_for_up_to_a_limit() -> None:
    for units, found in ((1 << 14, True), ((1 << 14) + 1, False)):
        sizes = Sizes(Mode.RNN_TANH, 1, 1, units, 5)
        fits = lazy.fitting(lazy.length(sizes), Mode.RNN_TANH, 1, 1)
        assert (sizes in fits) is found
    assert sizes in lazy.fitting(lazy.length(sizes), Mode.RNN_TANH, 1, 1, units)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "place", [0, 24, 41, 55], ids=["kernel", "recurrent kernel", "bias", "recurrent bias"]
)
def test_weights_that_are_no_numbers_are_told_of(place: int, value: float) -> None:
    blob = BLOB.copy()
    recurrences = []
    for name, held in (("sound", BLOB), ("one", blob), ("two", blob)):
        if name == "one":
            blob[place] = value
        recurrences.append(
            Recurrence(
                node=name,
                op="CudnnRNN",
                sizes=SIZES,
                time_major=True,
                lengths=False,
                dtype=held.dtype,
                cells=lazy.split(held, SIZES, where=name),
                evidence=BlobEvidence(held),
                shared=name,
                convention=Convention(),
            )
        )
    told = "one, two: weights hold NaN or infinite values, and are converted as they are"
    assert list(notes.no_numbers(recurrences)) == [told]
    assert list(notes.no_numbers(recurrences[:1])) == []
