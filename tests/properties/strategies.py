"""What the properties draw: sizes, and a cuDNN node with its weights and one run of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from properties import by_hand
from support.cases import Case, swapped

from cudnn_convert.model import Array, Mode, Sizes

SEEDS = st.integers(0, 2**32 - 1)
MODES = st.sampled_from(list(Mode))
# Each list has another content and begins with what shows most: few examples then see much.
LAYERS, DIRECTIONS = st.sampled_from([2, 1, 3]), st.sampled_from([2, 1])
UNITS, INPUTS = st.sampled_from([3, 5, 2, 7, 1, 6, 4]), st.sampled_from([4, 2, 7, 1, 5, 3, 6])
PROJECTIONS = st.sampled_from([2, 0, 0, 3, 1, 7])
STEPS, ROWS = [4, 6, 3, 5, 4, 6, 2, 1, 0], [3, 4, 2, 4, 3, 2, 1, 0]


@st.composite
def sizes(draw: st.DrawFn, mode: Mode | None = None, *, plain: bool = False) -> Sizes:
    """A projection is an LSTM's, no wider than the units; a skipped input is as wide as they are.

    `plain`: without a projection.
    """
    mode = draw(MODES) if mode is None else mode
    layers, directions, units, inputs = draw(LAYERS), draw(DIRECTIONS), draw(UNITS), draw(INPUTS)
    skip = draw(st.sampled_from([False, False, False, True]))
    projection = min(draw(PROJECTIONS), units) if mode is Mode.LSTM and not plain else 0
    return Sizes(mode, layers, directions, units, units if skip else inputs, skip, projection)


@dataclasses.dataclass(frozen=True)
class Run(Case):
    """A node with drawn weights, and one run of it: `batch` rows of `steps`, or of a length each.

    `static`: whether its graph says how many steps and rows there are.
    """

    inputs: int = 1
    seed: int = 0
    steps: int = 1
    batch: int = 1
    lengths: tuple[int, ...] | None = None
    static: bool = False

    @property
    def parts(self) -> list[list[by_hand.Parts]]:
        return by_hand.drawn(self.sizes, self.seed, self.dtype)

    @property
    def blob(self) -> Array:
        return by_hand.blob(self.mode, self.parts)

    @property
    def outputs(self) -> int:
        """How many of the node's outputs cuDNN defines."""
        return 3 if self.mode is Mode.LSTM else 2

    def placeholders(self) -> list[Any]:
        found = super().placeholders()
        if self.static:
            outer = [self.steps, self.batch] if self.time_major else [self.batch, self.steps]
            found[0].set_shape([*outer, self.inputs])
        return found

    @property
    def fed(self) -> dict[str, Array]:
        """`Case.feeds` of the drawn shape."""
        random = np.random.default_rng([self.seed, 1])
        found = {"x": random.normal(size=(self.steps, self.batch, self.inputs))}
        # As far as a cell state may go, so that one that is clipped shows.
        for key, width, most in (("h", self.sizes.width, 1), ("c", self.units, 5)):
            found[key] = random.uniform(-most, most, (self.depth, self.batch, width))
        found = {key: value.astype(self.dtype) for key, value in found.items()}
        return found if self.lengths is None else {**found, "lengths": np.array(self.lengths, np.int32)}

    @property
    def given(self) -> dict[str, Array]:
        """What the graph is fed, in the axis order of the node; a cell state is an LSTM's."""
        found = self.fed if self.mode is Mode.LSTM else {**self.fed, "c": np.zeros((), self.dtype)}
        return found if self.time_major else {key: swapped(value) for key, value in found.items()}

    def judged(self, found: Sequence[Array], bound: float) -> None:
        """Raises where `found`, of the node's axis order, is not what the float64 reference says.

        `bound` is meant for values near 1: what a ReLU has let grow may miss by as much more.
        """
        expected = self.expected(self.fed)
        assert len(found) == len(expected)
        for name, one, other in zip("yhc", found, expected, strict=False):
            turned = one.astype(np.float64) if self.time_major else swapped(one.astype(np.float64))
            assert turned.shape == other.shape, name
            largest = np.abs(other).max(initial=1.0)
            np.testing.assert_allclose(turned, other, rtol=0, atol=bound * largest, err_msg=name)


@st.composite
def runs(
    draw: st.DrawFn, mode: Mode, dtypes: Sequence[str], *, plain: bool = False, rows: int = 0, steps: int = 0
) -> Run:
    """Runs of at least `rows` and `steps`; lengths, projections and batch-major runs are V3's alone."""
    found, seed = draw(sizes(mode, plain=plain)), draw(SEEDS)
    longest = draw(st.sampled_from([step for step in STEPS if step >= steps]))
    batch = draw(st.sampled_from([row for row in ROWS if row >= rows]))
    kind = draw(st.sampled_from(["ragged", "full", "none"]))
    if found.projection and kind == "none":
        kind = "full"
    ragged = np.random.default_rng([seed, 2]).integers(0, longest + 1, batch).tolist()
    is_third = kind != "none"
    return Run(
        mode,
        found.layers,
        found.directions,
        "CudnnRNNV3" if is_third else draw(st.sampled_from(["CudnnRNN", "CudnnRNNV2"])),
        draw(st.sampled_from([False, True])) if is_third else True,
        draw(st.sampled_from(dtypes)),
        found.units,
        "skip_input" if found.skip_input else "linear_input",
        found.projection,
        inputs=found.input_size,
        seed=seed,
        steps=longest,
        batch=batch,
        lengths={"ragged": tuple(ragged), "full": (longest,) * batch, "none": None}[kind],
        static=draw(st.sampled_from([False, True, False])),
    )
