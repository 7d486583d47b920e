"""The forty models: what writes each, and the inputs on which its hidden parts show."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))  # whose support makes graphs

import containers
import feeds
import graphs
import layers
import tensorflow as tf

#: A signature, and the arrays that it is called with.
Call = tuple[str, dict[str, np.ndarray]]
SERVING: Final = "serving_default"
X: Final = {"x": (tf.float32, [None, None, 4])}
IDS: Final = {"ids": (tf.int32, [None, None])}


@dataclass(frozen=True)
class Model:
    """A source of one kind; `batch_first` swaps the first two axes of what the feeds draw."""

    name: str
    kind: str
    write: Callable[[Path], Path]
    rare: feeds.Rare
    ordinary: feeds.Rare
    signatures: Sequence[str] = (SERVING,)
    outputs: Sequence[str] = ()
    batch_first: bool = False

    def calls(self) -> list[Call]:
        """Random ordinary inputs and the rare ones, for each signature."""
        rng = np.random.default_rng(seed_of(self.name))
        drawn = [dict(feed) for rare in (self.ordinary, self.rare) for feed in rare(rng)]
        if self.batch_first:
            drawn = [{key: value.swapaxes(0, 1) for key, value in feed.items()} for feed in drawn]
        return [(signature, feed) for signature in self.signatures for feed in drawn]


def seed_of(name: str) -> int:
    """A seed for each name."""
    return zlib.crc32(name.encode())


ORDINARY_X: Final = feeds.sizes((5, 3), (2, 4))
ORDINARY_IDS: Final = feeds.ids(1, 2, usual=5)


def _graph(
    kind: str,
    body: containers.Body,
    rare: feeds.Rare,
    *,
    specs: containers.Specs = X,
    ordinary: feeds.Rare = ORDINARY_X,
    others: Mapping[str, containers.Body] | None = None,
) -> Model:
    """A model of a body; `others` are those of further signatures of a TensorFlow 2 SavedModel."""
    name = body.__name__
    bodies = {SERVING: body, **(others or {})}
    write: Callable[..., Path] = {
        "frozen": partial(containers.write_frozen, body),
        "saved_1": partial(containers.write_saved_1, body),
        "saved_2": partial(containers.write_saved_2, bodies),
    }[kind]
    made = partial(write, specs, seed=seed_of(name))
    return Model(name, kind, made, rare, ordinary, [*bodies] if kind == "saved_2" else [SERVING])


def _layers(build: Callable[[], Any], rare: feeds.Rare, *, ordinary: feeds.Rare = ORDINARY_X) -> Model:
    name = build.__name__
    write = partial(layers.write_hdf5, build, seed=seed_of(name))
    return Model(name, "hdf5", write, rare, ordinary, batch_first=True)


_LENGTHS: Final = X | {"lengths": (tf.int32, [None])}
_HEAD: Final = X | {"head": (tf.float32, [])}


def _with_lengths(*rows: Sequence[int]) -> feeds.Rare:
    """Feeds of eight steps with lengths for each row."""
    return lambda rng: [
        {"x": feeds.draw_x(rng, 8, len(lengths)), "lengths": np.int32(lengths)} for lengths in rows
    ]


MODELS: Final[tuple[Model, ...]] = (
    _graph("frozen", graphs.beside_visible, feeds.values(50.0)),
    _graph("frozen", graphs.second_output, feeds.values(9.0)),
    _graph("frozen", graphs.between_recurrences, feeds.values(30.0)),
    _graph("frozen", graphs.gated_state, feeds.values(-20.0)),
    _graph("frozen", graphs.choice_of_scores, feeds.values(40.0, 100.0, 1000.0)),
    _graph("frozen", graphs.masked_output, feeds.values(0.0, 1e3**0.5, 50.0)),
    _graph("frozen", graphs.tiny_scale, feeds.values(20.0)),
    _graph("frozen", graphs.many_rows, feeds.sizes((5, 8), (10, 4), (41, 1), (7, 6), (20, 30))),
    _graph("frozen", graphs.exact_value, feeds.values(3.0)),
    _graph("frozen", graphs.branch, feeds.values(50.0, 99.0, 100.0, 1.6)),
    _graph("frozen", graphs.loop, feeds.values(19.0, 20.0, 30.0, 40.0)),
    _graph("frozen", graphs.chosen_weights, feeds.values(6.0)),
    _graph("saved_1", graphs.branch_in_loop, feeds.values(12.0, 25.0, 60.0)),
    _graph(
        "saved_1", graphs.embedding, feeds.ids(*range(0, 60, 3), usual=5), specs=IDS, ordinary=ORDINARY_IDS
    ),
    _graph(
        "saved_1",
        graphs.bounded_lengths,
        _with_lengths([8, 7, 2], [6, 5, 6], [8, 8, 1]),
        specs=_LENGTHS,
        ordinary=_with_lengths([3, 5, 1], [2, 4, 4]),
    ),
    _graph("saved_1", graphs.lookup, feeds.ids(*range(31), usual=4), specs=IDS, ordinary=ORDINARY_IDS),
    _graph("saved_1", graphs.booleans, feeds.values(12.0, 30.0, -15.0)),
    _graph("saved_1", graphs.chosen_steps, feeds.values(15.0)),
    _graph("saved_1", graphs.norms, feeds.values(0.0, 1e-3, 5e-4)),
    _graph("saved_1", graphs.convolution, feeds.values(10.0)),
    _graph("saved_2", graphs.plain_head, feeds.values(50.0), others={"rare": graphs.beside_visible}),
    _graph(
        "saved_2",
        graphs.switch,
        feeds.scalars("head", [0.0, 1.0, 2.0, -2.5, 7.0], np.float32),
        specs=_HEAD,
        ordinary=feeds.scalars("head", [0.3, 1.1], np.float32),
    ),
    _graph("saved_2", graphs.nested_branches, feeds.values(8.0, 40.0)),
    _graph("saved_2", graphs.positions, feeds.sizes((12, 2), (23, 1), (24, 2), (30, 1))),
    _graph("saved_2", graphs.saturated, feeds.values(8.0, 10.0, 70.0)),
    _graph("saved_2", graphs.best_rows, feeds.values(20.0, 60.0)),
    _graph("saved_2", graphs.whole_tens, feeds.values(10.0, 17.0, -28.0, 40.0)),
    _graph(
        "saved_2",
        graphs.parity,
        feeds.ids(*range(0, 50, 2), 21, 27, usual=7),
        specs=IDS,
        ordinary=ORDINARY_IDS,
    ),
    _layers(layers.relu_beside_visible, feeds.values(50.0)),
    _layers(layers.two_heads, feeds.values(9.0)),
    _layers(layers.nested_model, feeds.values(15.0)),
    _layers(layers.distributed, feeds.values(12.0)),
    _layers(layers.masked_steps, feeds.values(7.0)),
    _layers(layers.embedding_rows, feeds.ids(*range(0, 60, 3), usual=5), ordinary=ORDINARY_IDS),
    _layers(layers.largest_step, feeds.values(30.0)),
    _layers(layers.tiny_normalisation, feeds.values(30.0)),
    _layers(layers.larger_of_two, feeds.values(20.0)),
    _layers(layers.shared_dense, feeds.values(25.0)),
    _layers(layers.learned_slopes, feeds.values(9.0, 18.0, steps=6), ordinary=feeds.sizes((6, 3))),
    _layers(layers.convolved, feeds.values(14.0)),
)
