"""Published sums of real cuDNN's gradients judge a repaired SavedModel's, and the reference's slopes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest
from support.published_artifacts import Repaired
from support.published_networks import INPUTS, NETWORKS, measure_distance, measure_slopes

pytestmark = [
    pytest.mark.xdist_group("published"),
    pytest.mark.slow(
        *("cudnn_convert/lower/", "cudnn_convert/graph/", "cudnn_convert/reference/"),
        *("tests/support/published_networks.py", "tests/data/cudnn/"),
    ),
]

#: Every mode, both numbers of directions, and a lowering: the tape of a portable loop is traced sooner.
REPAIRED: Final = {
    "sample-tanh": "fast",
    "sample-lstm": "portable",
    "sample-gru": "portable",
    "torch-relu": "portable",
}
#: Relative. Two published sums of one dhx differ by 3.4e-6 (golden_3.txt has 1.182562E+01, cudnn.torch's test
#: 1.182566E+01), and a dw is the sum of up to ten million float32.
BOUND: Final = 2e-5
#: Relative to the length of the gradient, as float32 is judged elsewhere.
BOUND_OF_SLOPES: Final = 1e-5


@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if network.gradients])
def test_the_reference_has_the_slopes_of_cudnn(name: str) -> None:
    """A sum of gradients is the slope along the line on which all elements grow alike."""
    network = NETWORKS[name]
    given = network.fill_ones(1) | {"w": network.blob}
    lines = {INPUTS[title]: np.ones(given[INPUTS[title]].shape) for title in network.gradients}
    slopes = measure_slopes(network, given, lines, 1e-4)
    for title, published in network.gradients.items():
        assert measure_distance(slopes[INPUTS[title]] * network.batch, published) <= BOUND, title


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_model_has_the_gradients_of_cudnn(tmp_path: Path, name: str) -> None:
    """The published network first; then distinct values, where slopes tell the elements apart."""
    network = NETWORKS[name]
    model = Repaired(network, REPAIRED[name], tmp_path)
    given = network.fill_ones(1) | {"w": network.blob}
    gradients = model.measure_gradients(given)
    for title, published in network.gradients.items():
        total = gradients[INPUTS[title]].sum() * network.batch
        assert measure_distance(total, published) <= BOUND, title

    random = np.random.default_rng(11)
    given = {key: random.uniform(-1, 1, value.shape).astype(np.float32) for key, value in given.items()}
    given["w"] *= np.float32(0.05)  # so that gates are open
    gradients = model.measure_gradients(given)
    lines = {INPUTS[title]: random.uniform(-1, 1, given[INPUTS[title]].shape) for title in network.gradients}
    # Steps as small as these pass no unit of a relu from one side of 0 to the other.
    for key, slope in measure_slopes(network, given, lines, 1e-6).items():
        length = np.linalg.norm(gradients[key])
        assert length > 0
        assert abs(np.sum(gradients[key] * lines[key]) - slope) <= BOUND_OF_SLOPES * length, key
