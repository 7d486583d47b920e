"""The recorder's formula, packing, case table and descriptor arguments, without a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import record_cudnn as rec

from cudnn_convert.model import Mode, Sizes
from cudnn_convert.weights import parameter_blob

pytestmark = pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")

LINEAR = [
    net for net in rec.offset_networks() if net.dtype == "float" and not net.projection and not net.skip_input
]
ALL = [net for net in rec.offset_networks() if net.dtype == "float"]


def sizes(net: rec.Network) -> Sizes:
    return Sizes(Mode(net.mode), net.layers, net.directions, net.units, net.input_size)


@pytest.mark.parametrize("net", LINEAR, ids=lambda net: net.name)
def test_size_is_the_package_s(net: rec.Network) -> None:
    assert rec.blob_size(net) == parameter_blob.length(sizes(net))


@pytest.mark.parametrize("net", LINEAR, ids=lambda net: net.name)
def test_regions_cut_where_the_package_cuts(net: rec.Network) -> None:
    blob = np.arange(rec.blob_size(net), dtype=np.float64)
    cells = [cell for layer in parameter_blob.split(blob, sizes(net), where="blob") for cell in layer]
    for weights, cell in zip(rec.unpack(net, blob), cells, strict=True):
        np.testing.assert_array_equal(weights.kernel, cell.kernel)
        np.testing.assert_array_equal(weights.recurrent, cell.recurrent_kernel)
        np.testing.assert_array_equal(weights.bias, cell.bias)
        np.testing.assert_array_equal(weights.recurrent_bias, cell.recurrent_bias)


@pytest.mark.parametrize("net", ALL, ids=lambda net: net.name)
def test_regions_cover_the_blob_once(net: rec.Network) -> None:
    covered = np.zeros(rec.blob_size(net), int)
    for region in rec.regions(net):
        covered[max(region.matrix_offset, 0) :][: region.rows * region.columns] += 1
        covered[max(region.bias_offset, 0) :][: region.bias_size] += 1
    assert (covered == 1).all()


def test_regions_of_a_projected_lstm_written_out() -> None:
    """2 units, 3 inputs, projection 1: W is 2x3, R 2x1, the projection 1x2 without a bias; then biases."""
    table = rec.regions(rec.Network("lstm", 1, 1, units=2, input_size=3, projection=1))
    kernels = [(0, k, 6 * k, 2, 3, 34 + 2 * k, 2) for k in range(4)]
    recurrent = [(0, 4 + k, 24 + 2 * k, 2, 1, 42 + 2 * k, 2) for k in range(4)]
    assert [tuple(region) for region in table] == [*kernels, *recurrent, (0, 8, 32, 1, 2, -1, 0)]


def test_regions_of_a_skipped_layer_written_out() -> None:
    """No W in layer 0 of either direction; layer 1 sees both directions."""
    table = rec.regions(rec.Network("rnn_tanh", 2, 2, units=2, input_size=2, skip_input=True))
    assert [tuple(region) for region in table] == [
        (0, 0, -1, 0, 0, 32, 2),
        (0, 1, 0, 2, 2, 34, 2),
        (1, 0, -1, 0, 0, 36, 2),
        (1, 1, 4, 2, 2, 38, 2),
        (2, 0, 8, 2, 4, 40, 2),
        (2, 1, 16, 2, 2, 42, 2),
        (3, 0, 20, 2, 4, 44, 2),
        (3, 1, 28, 2, 2, 46, 2),
    ]


@pytest.mark.parametrize(
    ("net", "elements"),
    [
        # Lengths that other people's cuDNN gave: tensorflow/tensorflow#9370 (uni, bi) and #20273.
        (rec.Network("lstm", 1, 1, 100, 20), 48_800),
        (rec.Network("lstm", 2, 1, 100, 20), 97_600),
        (rec.Network("lstm", 1, 1, 5, 7), 280),
        # Skip input drops the W of layer 0 and keeps both biases; a projection adds P x H each.
        (rec.Network("gru", 1, 1, 5, 5, skip_input=True), 3 * 5 * (5 + 2)),
        (rec.Network("lstm", 2, 1, 5, 7, projection=3), 2 * (4 * 5 * (7 + 3 + 2) + 3 * 5)),
    ],
)
def test_known_sizes(net: rec.Network, elements: int) -> None:
    assert rec.blob_size(net) == elements


def test_offset_networks_cover_every_axis() -> None:
    nets = rec.offset_networks()
    axes = {
        (n.mode, n.directions, n.layers, n.skip_input, bool(n.projection), n.dtype, n.units) for n in nets
    }
    assert len(axes) == len(nets) == 4 * 2 * 3 * 2 * 2 * 4 * 2
    assert all(n.units % 2 and n.input_size % 2 for n in nets)


def test_output_cases_cover_the_questions() -> None:
    cases = rec.output_cases()
    assert len({case.name for case in cases}) == len(cases)
    core = {
        (c.network.mode, c.network.directions, c.network.layers, c.lengths, c.batch_major, c.random_initial)
        for c in cases
        if c.network.dtype == "float" and not (c.training or c.math == "tensor")
    }
    for mode in rec.MODES:
        for way in (1, 2):
            for layers in (1, 2, 3):
                for initial in (False, True):
                    assert (mode, way, layers, "none", False, initial) in core
                    for lengths in ("full", "ragged", "short"):
                        for batch_major in (False, True):
                            assert (mode, way, layers, lengths, batch_major, initial) in core
    for mode in rec.MODES:
        mine = [c for c in cases if c.network.mode == mode]
        assert {c.network.dtype for c in mine} == set(rec.DATA_TYPE)
        assert {c.training for c in mine} == {c.network.skip_input for c in mine} == {False, True}
        assert {(c.network.dtype, c.math) for c in mine} == set(rec.ROUNDOFF)
        assert {c.batch_major for c in mine if c.lengths == "zero"} == {False, True}
    assert {c.network.mode for c in cases if c.network.projection} == {"lstm"}
    assert cases[-1].lengths == "empty"  # what may fail comes last


def test_sizes_differ_so_that_no_transposition_survives() -> None:
    for case in rec.output_cases():
        net = case.network
        numbers = [case.steps, case.batch, net.units, *([] if net.skip_input else [net.input_size])]
        assert len(set(numbers)) == len(numbers)
        assert case.batch not in (net.pseudo_layers, rec.GATES[net.mode])


def test_lengths() -> None:
    case = rec.Case(rec.Network("lstm"))
    found = {lengths: replace(case, lengths=lengths).row_lengths for lengths in rec.LENGTHS}
    assert found["none"] == found["full"] == [9] * 8
    assert set(found["short"]) == {7}
    assert found["ragged"] == [3, 8, 4, 9, 5, 1, 6, 2]
    assert found["zero"] == [3, 8, 0, 9, 5, 1, 6, 2]


def test_values_are_the_same_for_every_dtype_but_rounded() -> None:
    case = rec.Case(rec.Network("gru"))
    exact = rec.values_of(replace(case, network=replace(case.network, dtype="double")))
    assert np.unique(exact.blob).size == exact.blob.size
    for dtype, bits in (("float", 24), ("half", 11), ("bfloat16", 8)):
        found = rec.values_of(replace(case, network=replace(case.network, dtype=dtype)))
        gap = np.abs(found.x.astype(np.float64) - exact.x)
        assert 0 < gap.max() <= 2.0**-bits
    assert rec.rounded(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bfloat16").tolist() == [1.0, 1 + 2.0**-6]


def test_rnn_descriptor_arguments() -> None:
    net = rec.Network("gru", 2, 3, units=5, input_size=7)
    assert rec.rnn_descriptor_arguments(rec.Case(net, "ragged")) == {
        "algo": 0,
        "cellMode": 3,
        "biasMode": 2,
        "dirMode": 1,
        "inputMode": 0,
        "dataType": 0,
        "mathPrec": 0,
        "mathType": 3,
        "inputSize": 7,
        "hiddenSize": 5,
        "projSize": 5,
        "numLayers": 3,
        "auxFlags": 1,
    }
    other = rec.Network("lstm", 1, 1, 5, 5, projection=3, skip_input=True, dtype="half")
    half = rec.rnn_descriptor_arguments(rec.Case(other, math="tensor-half"))
    assert (half["dataType"], half["mathPrec"], half["mathType"]) == (2, 2, 1)
    found = rec.rnn_descriptor_arguments(rec.Case(other, math="tensor"))
    assert (found["cellMode"], found["dirMode"], found["inputMode"], found["projSize"]) == (2, 0, 1, 3)
    assert (found["dataType"], found["mathPrec"], found["mathType"], found["auxFlags"]) == (2, 0, 1, 0)


def test_data_descriptor_arguments() -> None:
    case = rec.Case(rec.Network("lstm", dtype="bfloat16"), "ragged", batch_major=True)
    assert rec.data_descriptor_arguments(case, 7) == {
        "dataType": 9,
        "layout": 2,
        "maxSeqLength": 9,
        "batchSize": 8,
        "vectorSize": 7,
        "seqLengthArray": [3, 8, 4, 9, 5, 1, 6, 2],
        "paddingFill": 0.0,
    }
    assert rec.data_descriptor_arguments(replace(case, batch_major=False), 7)["layout"] == 0


def test_state_descriptor_arguments() -> None:
    case = rec.Case(rec.Network("lstm", 2, 3, dtype="double"))
    assert rec.state_descriptor_arguments(case, 5) == {
        "dataType": 1,
        "nbDims": 3,
        "dimA": [6, 8, 5],
        "strideA": [40, 5, 1],
    }


@pytest.mark.parametrize(
    ("found", "wanted", "far"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, 2.0], [1.0, np.nan], np.inf),
        ([np.nan], [np.nan], np.inf),  # poison on both sides is still poison
        ([1.0], [1.0, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_distance(found: list[float], wanted: list[float], far: float) -> None:
    assert rec.distance(np.array(found), np.array(wanted)) == far


def test_an_empty_comparison_is_refused() -> None:
    empty = rec.Outputs(*[np.zeros((0, 3))] * 3)
    with pytest.raises(ValueError, match=r"^nothing to compare: y is empty$"):
        rec.error_of(empty, empty)
