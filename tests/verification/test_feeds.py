"""Random inputs that a model accepts, and inputs in which a value stands for padding."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, UNITS, drawing, lstm, model, placeholder, resource, variable
from support.keras3_samples import exported
from support.plans import plan_graph

from cudnn_convert.errors import CudnnConvertError, UnsupportedModelError, UsageError
from cudnn_convert.feeds.data import Data, read_calls
from cudnn_convert.graph.index import Index
from cudnn_convert.plan import Plan
from cudnn_convert.read import read
from cudnn_convert.verification import feeds, graph_judge, recordings

# Random inputs that a model accepts, found without asking; and those that the user gives.

SIZES = {(17, 3), (9, 2)}  # (time, batch)


def planned(build: Callable[[], Any], **values: np.ndarray) -> Plan:
    """The plan of a graph whose last op is `scores`."""
    with drawing() as graph:
        tf.identity(build(), "scores")
    return plan_graph(model(graph, values), outputs=["scores"])


def generated(build: Callable[[], Any], **values: np.ndarray) -> list[dict[str, np.ndarray]]:
    made = planned(build, **values)
    with graph_judge.open_source(made) as judge:
        return feeds.generate(made, judge, seed=5)


def rnn(x: Any) -> Any:
    return lstm(x, variable("blob", BLOB.shape)).output


def batch_major(x: Any) -> Any:
    return tf.transpose(rnn(tf.transpose(x, [1, 0, 2])), [1, 0, 2])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda: rnn(placeholder("x")), [(17, 3, 3), (9, 2, 3)], id="time-major"),
        pytest.param(lambda: batch_major(placeholder("x")), [(3, 17, 3), (2, 9, 3)], id="batch-major"),
        pytest.param(lambda: rnn(placeholder("x", (6, None, 3))), [(6, 3, 3), (6, 2, 3)], id="fixed-time"),
        pytest.param(lambda: rnn(placeholder("x", (None, 4, 3))), [(17, 4, 3), (9, 4, 3)], id="fixed-batch"),
    ],
)
def test_time_and_batch_are_told_apart(build: Callable[[], Any], expected: list[tuple[int, ...]]) -> None:
    assert [feed["x:0"].shape for feed in generated(build)] == expected


def test_the_same_seed_gives_the_same_feeds() -> None:
    one, other = (generated(lambda: rnn(placeholder("x"))) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first["x:0"], second["x:0"])
    assert np.unique(one[0]["x:0"]).size == one[0]["x:0"].size


def embedded(table: Any) -> Any:
    """Ids over time and batch, looked up in a table of 5 rows."""
    ids = placeholder("ids", (None, None), tf.int32)
    if table.dtype == tf.resource:
        return rnn(tf.raw_ops.ResourceGather(resource=table, indices=ids, dtype=tf.float32))
    return rnn(tf.raw_ops.GatherV2(params=table, indices=tf.maximum(ids, 0), axis=0))


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: embedded(tf.identity(variable("table", [5, INPUTS]))), id="gather"),
        pytest.param(lambda: embedded(resource("table", [5, INPUTS])), id="resource-gather"),
        pytest.param(
            lambda: rnn(tf.one_hot(placeholder("ids", (None, None), tf.int32), 5)[..., :INPUTS]), id="one-hot"
        ),
    ],
)
def test_ids_stay_within_the_table(build: Callable[[], Any]) -> None:
    for feed in generated(build, table=np.ones((5, INPUTS), np.float32)):
        ids = feed["ids:0"]
        assert set(np.unique(ids)) <= set(range(5))
        assert np.unique(ids).size > 2


def masked(lengths: Any) -> Any:
    y = rnn(placeholder("x"))
    return y * tf.cast(tf.range(tf.shape(y)[0])[:, None, None] < lengths[None, :, None], tf.float32)


def test_other_integers_are_lengths() -> None:
    found = generated(lambda: masked(placeholder("lengths", (None,), tf.int32)))
    for feed, (time, batch) in zip(found, ((17, 3), (9, 2)), strict=True):
        assert feed["lengths:0"].shape == (batch,)
        assert feed["lengths:0"].min() >= 1
        assert feed["lengths:0"].max() <= time
    assert np.unique(found[0]["lengths:0"]).size > 1


def test_masks_are_true_up_to_a_length() -> None:
    def build() -> Any:
        mask = placeholder("mask", (None, None), tf.bool)
        return batch_major(placeholder("x")) * tf.cast(mask, tf.float32)[..., None]

    for feed in generated(build):
        mask = feed["mask:0"]
        assert mask.shape == feed["x:0"].shape[:2]
        assert mask[:, 0].all()
        assert (np.diff(mask.astype(int), axis=1) <= 0).all()


def test_fixed_dimensions_are_kept() -> None:
    found = generated(lambda: rnn(placeholder("x", (6, 4, 3))))
    assert [feed["x:0"].shape for feed in found] == [(6, 4, 3)] * 2
    assert not np.array_equal(found[0]["x:0"], found[1]["x:0"])


def refused(build: Callable[[], Any]) -> tuple[str, ...]:
    with pytest.raises(UnsupportedModelError) as caught:
        generated(build)
    return caught.value.reasons


def looked_up(words: Any) -> Any:
    """The numbers of words, 0 to 2, in a table that the graph fills."""
    table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, name="table")
    numbers = tf.constant([0, 1], tf.int64)
    tf.raw_ops.InitializeTableV2(table_handle=table, keys=tf.constant(["a", "b"]), values=numbers)
    return tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=words, default_value=tf.constant(2, tf.int64)
    )


def with_lengths(x: Any, lengths: Any = None) -> Any:
    """A recurrence whose rows have lengths."""
    zeros = tf.zeros([1, tf.shape(x)[1], UNITS])
    lengths = placeholder("lengths", (None,), tf.int32) if lengths is None else lengths
    return tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=zeros,
        input_c=zeros,
        params=variable("blob", BLOB.shape),
        sequence_lengths=lengths,
        is_training=False,
        name="rnn",
    ).output


def pooled(x: Any) -> Any:
    """A pool of two steps, [batch, steps, width], and what is left of them, time-major."""
    left = tf.nn.max_pool1d(tf.nn.conv1d(x, tf.ones([3, INPUTS, INPUTS]), 1, "VALID"), 2, 2, "VALID")
    return rnn(tf.transpose(left, [1, 0, 2]))


def spectral(x: Any) -> Any:
    """Frames of 8 samples, 4 apart, of which the first frequencies are kept."""
    frames = tf.signal.frame(x, 8, 4)
    return rnn(tf.transpose(tf.abs(tf.signal.rfft(frames))[:, :, :INPUTS], [1, 0, 2]))


def generated_with_more(build: Callable[[], Any]) -> list[dict[str, np.ndarray]]:
    plan = planned(build)
    with graph_judge.open_source(plan) as judge:
        return feeds.generate(plan, judge, seed=5, more=[(1, 2)])


def test_a_window_is_filled_and_its_batch_is_right() -> None:
    """One step is less than a convolution takes, so the feed of one step is left out."""
    drawn = generated_with_more(lambda: pooled(placeholder("x")))
    assert [feed["x:0"].shape for feed in drawn] == [(3, 17, INPUTS), (2, 9, INPUTS)]
    wide = planned(lambda: rnn(tf.transpose(tf.nn.avg_pool1d(placeholder("x"), 20, 20, "VALID"), [1, 0, 2])))
    with graph_judge.open_source(wide) as judge:
        drawn = feeds.generate(wide, judge, seed=5)
    assert [feed["x:0"].shape for feed in drawn] == [(3, 136, INPUTS), (2, 72, INPUTS)]
    windows = feeds._Windows(wide)
    for shape, message in (((3, 17, INPUTS), "."), ((0, 20, INPUTS), "would find nothing in its window")):
        with pytest.raises(ValueError, match=message):
            windows.require_filled({"x:0": np.zeros(shape, np.float32)})
    windows.require_filled({"x:0": np.zeros((3, 20, INPUTS), np.float32)})


def test_frames_are_long_enough_for_a_step() -> None:
    """Of further sizes, one may leave no frame; of the usual ones, none may."""
    drawn = generated_with_more(lambda: spectral(placeholder("x", (None, None))))
    assert [feed["x:0"].shape for feed in drawn] == [(3, 17), (2, 9), (2, 1)]
    drawn = generated_with_more(lambda: spectral(placeholder("x", (None, None))[:, 8:]))
    assert [feed["x:0"].shape for feed in drawn] == [(3, 136), (2, 72), (2, 8)]


def test_longer_inputs_may_need_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then those without a step do; where none runs at all, it is said."""
    kept = [{"x:0": np.zeros((3, 17))}]
    answers = [((feeds._NO_STEPS, kept), ""), ((feeds._REFUSED, []), "no")]

    def choose(*_: Any, **__: Any) -> Any:
        if answers:
            return answers.pop(0)
        raise tf.errors.ResourceExhaustedError(None, None, "full")

    monkeypatch.setattr(feeds, "_choose_accepted", choose)
    assert generated_with_more(lambda: spectral(placeholder("x", (None, None)))) == kept
    with pytest.raises(UnsupportedModelError, match=r"found none \(full\); give --data"):
        generated_with_more(lambda: spectral(placeholder("x", (None, None))))


def test_smaller_inputs_are_tried_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each reading of the axes: another may be the one that multiplies long ones."""
    accept, sizes = feeds._sizes, list[tuple[int, ...]]()

    def run(plan: Any, source: Any, feed: Any) -> Any:
        sizes.append(feed["x:0"].shape)
        if feed["x:0"].size > 5 * 3 * INPUTS:
            raise tf.errors.ResourceExhaustedError(None, None, "full")
        return accept(plan, source, feed)

    monkeypatch.setattr(feeds, "_sizes", run)
    assert [feed["x:0"].shape for feed in generated(lambda: rnn(placeholder("x")))] == [
        (5, 2, INPUTS),
        (3, 3, INPUTS),
    ]
    assert sizes[:2] == [(3, 17, INPUTS), (17, 3, INPUTS)]


def test_a_mask_has_ones_and_is_padded_on_the_right() -> None:
    def build() -> Any:
        x, mask = placeholder("x"), placeholder("mask", (None, None))
        lengths = tf.cast(tf.reduce_sum(mask, 1), tf.int32)
        turned = tf.reverse_sequence(x * tf.transpose(mask)[..., None], lengths, seq_axis=0, batch_axis=1)
        return rnn(turned)

    for feed in generated(build):
        mask = feed["mask:0"]
        assert {*np.unique(mask)} <= {0.0, 1.0}
        assert (mask[:, 0] == 1).all()
        assert (np.diff(mask, axis=1) <= 0).all()
    assert any((feed["mask:0"] == 0).any() for feed in generated(build))


def test_the_right_batch_comes_before_more_sizes() -> None:
    """One step is too few for the two best; time and batch exchanged would do for all sizes."""

    def build() -> Any:
        y = with_lengths(tf.transpose(placeholder("x"), [1, 0, 2]))
        return tf.math.top_k(tf.reduce_sum(tf.transpose(y, [1, 0, 2]), 2), 2)[0]

    drawn = generated_with_more(build)
    assert [(feed["x:0"].shape, feed["lengths:0"].size) for feed in drawn] == [
        ((3, 17, INPUTS), 3),
        ((2, 9, INPUTS), 2),
    ]


def test_lengths_beyond_the_steps_are_refused() -> None:
    plan = planned(lambda: with_lengths(placeholder("x")))
    feed = {"x:0": np.ones((4, 2, INPUTS), np.float32), "lengths:0": np.array([5, 1], np.int32)}
    with graph_judge.open_source(plan) as judge:
        with pytest.raises(tf.errors.OpError, match="expected 0 to 4 steps, found 1 to 5"):
            judge.run(feed, ["scores:0"])
        judge.run({**feed, "lengths:0": np.array([4, 0], np.int32)}, ["scores:0"])


def test_lengths_are_within_the_steps_of_words() -> None:
    """A lookup in a table hides how many steps there are."""

    def build() -> Any:
        words = placeholder("words", (None, 4), tf.string)
        return with_lengths(tf.one_hot(tf.transpose(looked_up(words)), INPUTS))

    found = generated(build)
    assert [feed["words:0"].shape for feed in found] == [(3, 4), (2, 4)]
    lengths = np.concatenate([feed["lengths:0"] for feed in found])
    assert lengths.min() >= 1
    assert lengths.max() <= 4
    assert np.unique(lengths).size > 1


def test_lengths_that_pick_rows_too_are_within_the_steps() -> None:
    """A table of lengths has more rows than there are steps."""

    def build() -> Any:
        lengths = placeholder("lengths", (None,), tf.int32)
        table = tf.constant(np.linspace(-1, 1, 50 * UNITS, dtype=np.float32).reshape(50, UNITS))
        return with_lengths(placeholder("x"), lengths) + tf.gather(table, lengths)

    for feed, (time, batch) in zip(generated(build), ((17, 3), (9, 2)), strict=True):
        assert feed["lengths:0"].shape == (batch,)
        assert feed["lengths:0"].min() >= 1
        assert feed["lengths:0"].max() <= time


def test_what_cannot_be_made_up_is_asked_for_all_at_once() -> None:
    def build() -> Any:
        x = tf.reshape(placeholder("x", None), [4, -1, INPUTS])
        scale = tf.strings.length(placeholder("text", (None,), tf.string))[0] + placeholder("n", [], tf.int32)
        return rnn(x) * tf.cast(scale, tf.float32)

    assert sorted(refused(build)) == [
        "n:0: expected an input for random numbers, found one integer of unknown meaning; give --data, or "
        "bind it with --set n:0=VALUE",
        "text:0: expected numbers, found strings; give --data",
        "x:0: expected a known rank, found an unknown one; give its shape with --inputs "
        "'x=x:0[?,?,?],text=text:0,n=n:0'",
    ]


def test_a_model_that_takes_no_random_input_asks_for_data() -> None:
    def build() -> Any:
        x = placeholder("x")
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.reduce_all(x > 100.0), data=["too small"])]
        ):
            return rnn(tf.identity(x))

    (reason,) = refused(build)
    assert reason.startswith("inputs: expected random inputs that the model accepts, found none (")
    array = f"numpy.zeros([2, 5, {INPUTS}], 'float32')"
    line = f"numpy.savez('feeds.npz', **{{'x': {array}}})"
    assert reason.endswith(f"; give --data feeds.npz of yours, as {line} makes it")


def given(folder: Path, data: Any, build: Callable[[], Any] | None = None) -> list[dict[str, np.ndarray]]:
    path = folder / "feeds.npz"
    if isinstance(data, bytes):
        path.write_bytes(data)
    elif data is not None:
        np.savez(path, **data)
    made = planned(build or (lambda: rnn(placeholder("x"))))
    with graph_judge.open_source(made) as judge:
        return recordings.accept_feeds(graph_judge.GraphJudge(made), judge, read_calls(Data(path)))


def test_given_feeds_are_taken_in_the_models_dtype(tmp_path: Path) -> None:
    data = np.arange(24, dtype=np.float64).reshape(4, 2, 3)
    (feed,) = given(tmp_path, {"x": data})
    assert feed["x:0"].dtype == np.float32
    np.testing.assert_array_equal(feed["x:0"], data)


class Bomb:
    """Unpickling it would raise, and could as well do harm."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a pickle was run')",)


NO_ARRAYS = "expected an .npz file of plain arrays, found a file that is not one"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param({"y": np.zeros(2)}, "expected the keys ['x'], found ['y']", id="other-key"),
        pytest.param(
            {"x": np.zeros(2), "y": np.zeros(2)}, "expected the keys ['x'], found ['x', 'y']", id="more",
        ),
        pytest.param(
            {"x": np.zeros((4, 2, 5), np.float32)},
            "x: expected float32(None, None, 3), found float32[4, 2, 5]", id="shape",
        ),
        pytest.param({"x": np.array([Bomb()], object)}, NO_ARRAYS, id="pickle-inside"),
        pytest.param(pickle.dumps(Bomb()), NO_ARRAYS, id="pickle"),
        pytest.param(b"", NO_ARRAYS, id="empty"),
        pytest.param(b"PK\x03\x04 and no more", NO_ARRAYS, id="cut-off"),
        pytest.param(None, "expected a file, or a pattern that matches files, found nothing", id="no-file"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(tmp_path, data)
    assert str(caught.value) == f"--data {tmp_path / 'feeds.npz'}: {message}"


def test_an_array_in_place_of_an_archive_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(UsageError, match=r"expected an \.npz file of plain arrays"):
        given(tmp_path, (tmp_path / "array.npy").read_bytes())


def test_fractions_for_integers_are_refused(tmp_path: Path) -> None:
    def build() -> Any:
        return rnn(tf.one_hot(placeholder("ids", (None, None), tf.int32), INPUTS))

    with pytest.raises(UsageError, match=r"ids: expected int32, found 0\.5"):
        given(tmp_path, {"ids": np.full((4, 2), 0.5)}, build)


def test_feeds_that_the_model_rejects_are_the_callers_to_mend(tmp_path: Path) -> None:
    def build() -> Any:
        x = placeholder("x")
        return rnn(tf.ensure_shape(x, [4, None, INPUTS]))

    with pytest.raises(CudnnConvertError, match="the model does not accept these inputs") as caught:
        given(tmp_path, {"x": np.zeros((5, 2, 3))}, build)
    assert caught.value.exit_code == 2


def test_a_branch_with_the_recurrence_is_taken_where_some_reading_of_the_axes_takes_it() -> None:
    """Of 3 rows and 17 steps the first axis must be the steps for more than 8 to be there."""

    def build() -> Any:
        x, blob = placeholder("x"), variable("blob", BLOB.shape)
        return tf.compat.v1.cond(tf.shape(x)[0] > 8, lambda: lstm(x, blob).output, lambda: x[..., :2])

    (first, *_) = generated(build)
    assert first["x:0"].shape == (17, 3, INPUTS)


# Inputs in which a value stands for padding: found by the comparison that makes the mask, drawn to fit.

v1 = tf.compat.v1


def padding_of(build: Callable[[Any], object], dtype: Any = tf.float32) -> Any:
    """The value that pads the placeholder `x [B, T, 3]` of a graph."""
    with tf.Graph().as_default() as graph:
        build(v1.placeholder(dtype, [None, None, 3], "x"))
    return feeds.find_padding(Index(graph.as_graph_def()), "x:0")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda x: tf.not_equal(x, 0.0), 0.0, id="masking"),
        pytest.param(lambda x: tf.reduce_any(tf.not_equal(x, -7.5), -1), -7.5, id="another_value"),
        pytest.param(lambda x: tf.not_equal(3.0, x), 3.0, id="the_other_way_round"),
        pytest.param(lambda x: tf.not_equal(tf.identity(tf.identity(x)), 2.0), 2.0, id="behind_identities"),
        pytest.param(lambda x: tf.not_equal(tf.cast(x, tf.int32), 4), 4, id="behind_a_cast"),
        pytest.param(lambda x: (tf.sin(x), tf.not_equal(x, 5.0)), 5.0, id="one_of_several_readers"),
        pytest.param(lambda x: tf.equal(x, 0.0), None, id="equal"),
        pytest.param(lambda x: tf.not_equal(x, x), None, id="itself"),
        pytest.param(lambda x: tf.not_equal(tf.sin(x), 0.0), None, id="behind_arithmetic"),
        pytest.param(lambda x: tf.not_equal(x, v1.placeholder(tf.float32, [])), None, id="unknown"),
        pytest.param(lambda x: tf.not_equal(x, [0.0, 1.0, 2.0]), None, id="no_scalar"),
        pytest.param(lambda x: x * 2, None, id="no_mask"),
    ],
)
def test_the_value_that_an_input_is_compared_with(build: Callable[[Any], object], expected: Any) -> None:
    assert padding_of(build) == expected


def test_each_input_has_its_own() -> None:
    with tf.Graph().as_default() as graph:
        x, y, z = (v1.placeholder(tf.int32, [None, None], name) for name in "xyz")
        tf.not_equal(x, 1)
        tf.not_equal(y, 2)
        tf.identity(z)
    index = Index(graph.as_graph_def())
    assert [feeds.find_padding(index, name) for name in ("x:0", "y:0", "z:0")] == [1, 2, None]


def lengths_of(value: np.ndarray, pad: Any) -> list[int]:
    """How many steps each row `[T, ...]` has before nothing but `pad` follows; they must be free of it."""
    found = []
    for row in value:
        full = [step for step in range(len(row)) if np.any(row[step] != pad)]
        length = max(full, default=-1) + 1
        assert not np.any(row[:length] == pad), row
        assert np.all(row[length:] == pad), row
        found.append(length)
    return found


@pytest.mark.parametrize("pad", [0, 3, 9])
def test_ids_are_padded_on_the_right(pad: int) -> None:
    """No id means padding before the end, each is in its table, and each row has a step."""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 10, (200, 12))
    assert (drawn == pad).any()
    found = feeds.pad_rows(rng, drawn.copy(), pad, ["batch", "time"], rows=10)
    assert (found.dtype, found.shape) == (drawn.dtype, drawn.shape)
    lengths = lengths_of(found, pad)
    assert min(lengths) == 1
    assert max(lengths) == 12
    assert len(set(lengths)) > 5
    assert ((found >= 0) & (found < 10)).all()
    kept = (found != pad) & (drawn != pad)
    np.testing.assert_array_equal(found[kept], drawn[kept])


def test_words_are_padded_on_the_right() -> None:
    """A word of the vocabulary that stands for padding is none before the end."""
    rng = np.random.default_rng(5)
    drawn = rng.choice(np.array([b"<pad>", b"a", b"b"], object), (40, 6))
    found = feeds.pad_rows(rng, drawn.copy(), b"<pad>", ["batch", "time"], rows=None)
    assert len(set(lengths_of(found, b"<pad>"))) > 3
    kept = (found != b"<pad>") & (drawn != b"<pad>")
    np.testing.assert_array_equal(found[kept], drawn[kept])
    assert not {*found[~kept]} & {b"a", b"b"}


def test_lengths_are_counted_from_padded_words() -> None:
    def build() -> Any:
        words = placeholder("words", (None, None), tf.string)
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(words, ""), tf.int32), 1)
        return with_lengths(tf.one_hot(tf.transpose(looked_up(words)), INPUTS), lengths)

    found = [feed["words:0"] for feed in generated(build)]
    assert [words.shape for words in found] == [(3, 17), (2, 9)]
    lengths = [length for words in found for length in lengths_of(words, b"")]
    assert min(lengths) >= 1
    assert len(set(lengths)) > 2


@pytest.mark.parametrize("roles", [["batch", "time", None], ["time", "batch", None]])
def test_whole_steps_are_padding(roles: list[str | None]) -> None:
    """Of every feature alike, whichever axis is time."""
    rng = np.random.default_rng(2)
    drawn = rng.normal(size=(9, 9, 4)).astype(np.float32)
    found = feeds.pad_rows(rng, drawn.copy(), -1.0, roles, rows=None)
    assert found.dtype == np.float32
    by_row = found if roles[0] == "batch" else found.swapaxes(0, 1)
    assert len(set(lengths_of(by_row, -1.0))) > 3


def test_axes_of_known_width_are_taken_as_they_come() -> None:
    """Batch first, time second, where nothing else is said."""
    rng = np.random.default_rng(3)
    drawn = rng.integers(1, 9, (30, 5))
    assert len(set(lengths_of(feeds.pad_rows(rng, drawn, 0, [None, None], rows=9), 0))) > 2
    only_time = feeds.pad_rows(rng, drawn, 0, [None, "time"], rows=9)
    assert len(set(lengths_of(only_time, 0))) > 2


def test_one_axis_is_no_sequence() -> None:
    drawn = np.array([0, 4, 2])
    np.testing.assert_array_equal(
        feeds.pad_rows(np.random.default_rng(4), drawn, 0, ["batch"], rows=5), drawn
    )


@pytest.mark.first("masked_last-0.0")
@pytest.mark.parametrize(("case", "pad"), [("masked", 0), ("masked_last", 0.0), ("go_backwards_masked", 0.0)])
def test_what_verification_feeds_an_export_of_keras(case: str, pad: Any) -> None:
    made = plan_graph(read(exported(f"keras-3.15.1-{case}").path), signature="serving_default")
    with graph_judge.open_source(made) as judge:
        found = feeds.generate(made, judge, seed=11)
    lengths = [length for feed in found for value in feed.values() for length in lengths_of(value, pad)]
    assert min(lengths) >= 1
    assert len(set(lengths)) > 2
