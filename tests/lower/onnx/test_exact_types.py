"""ONNX Runtime answers as TensorFlow does for types, values and sizes that tf2onnx' own forms do not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from lower.onnx.test_exact_ops import OPSETS, agree
from support.versions import needs

from cudnn_convert.errors import UnsupportedModelError

raw = tf.raw_ops
LAST = OPSETS[-1:]
IMAGE = np.arange(2 * 5 * 7 * 2, dtype=np.int32).reshape(2, 5, 7, 2) * 2**24 + 1
SIGNS = np.array([-3.0, -1.0, -0.0, 0.0, 1.0, 3.0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "step"), [(2, 1), (2, 3)])
def test_pools_of_integers_keep_each(padding: str, size: int, step: int) -> None:
    agree(lambda x: tf.nn.max_pool2d(x, size, step, padding), IMAGE, opsets=LAST)
    agree(lambda x: tf.nn.max_pool2d(x, size, step, padding), IMAGE.astype(np.float32), opsets=LAST)


NO_COSINE = needs("onnxruntime", 1, 29, why="ONNX Runtime has no cosine of doubles")


@pytest.mark.parametrize(
    "op",
    [
        tf.sinh,
        tf.cosh,
        pytest.param(tf.tan, marks=NO_COSINE),
        tf.nn.elu,
        tf.nn.selu,
        tf.nn.softplus,
        tf.nn.softsign,
    ],
)
def test_functions_of_doubles(op: Callable[[Any], Any]) -> None:
    agree(op, np.array([-40, -1.5, -1e-9, -0.0, 1e-9, 0.3, 1.5, 40.0]), opsets=LAST)


def test_positive_parts_of_integers() -> None:
    agree(tf.nn.relu, np.array([2**53 + 1, -(2**63), 0]), opsets=LAST)
    agree(tf.nn.relu, np.array([200, 0, 3], np.uint8), opsets=LAST)


def test_an_angle_is_in_the_quadrant_that_signs_say() -> None:
    agree(tf.atan2, SIGNS.astype(np.float32)[:, None], SIGNS.astype(np.float32), opsets=LAST)


def test_the_rest_is_a_size() -> None:
    agree(lambda x: tf.split(x, [1, -1, 2], 1)[1], IMAGE, opsets=LAST)
    agree(lambda x, sizes: raw.SplitV(value=x, size_splits=sizes, axis=1, num_split=2)[0], IMAGE,
          np.array([-1, 2], np.int32), opsets=LAST)  # fmt: skip


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("exclusive", [True, False])
def test_running_products(steps: int, exclusive: bool) -> None:
    agree(
        lambda x: tf.math.cumprod(x, -1, exclusive=exclusive), np.ones((2, steps), np.int32) * 3, opsets=LAST
    )


def test_bounds_that_cross_give_the_lower_one() -> None:
    agree(lambda x: raw.ClipByValue(t=x, clip_value_min=2.0, clip_value_max=-1.0), SIGNS.astype(np.float32))


def test_bounds_of_integers_in_every_opset() -> None:
    x = np.array([2**24 + 1, -5, 7], np.int32)
    agree(lambda x: raw.ClipByValue(t=x, clip_value_min=-1, clip_value_max=2**24), x, opsets=OPSETS[1:])


def test_a_power_of_integers_wraps_around() -> None:
    x = np.array([-(2**31), 65537, -7, 0, 3], np.int32)
    for power in (0, 1, 2, 5):
        agree(lambda x, power=power: raw.Pow(x=x, y=tf.constant(power)), x, opsets=LAST)
    with pytest.raises(UnsupportedModelError, match="integers, which ONNX Runtime raises as doubles"):
        agree(lambda x, y: raw.Pow(x=x, y=y), x, x)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "step"), [((5, 7), 2), ((6, 8), 2), ((7, 4), 1)])
def test_transposed_convolutions_of_open_sizes(padding: str, size: tuple[int, int], step: int) -> None:
    """`size` is that of what they give, of which rows and columns may be left over."""
    random = np.random.default_rng(3)
    kernel = random.normal(size=(3, 2, 2, 4)).astype(np.float32)
    image = np.zeros((2, *size, 2), np.float32)
    x = tf.nn.conv2d(image, kernel, step, padding).numpy()
    x = random.normal(size=x.shape).astype(np.float32)
    agree(lambda x: tf.nn.conv2d_transpose(x, kernel, image.shape, step, padding), x, opsets=LAST)
    with pytest.raises(UnsupportedModelError, match="open sizes, for which opset 12 is the first"):
        agree(lambda x: tf.nn.conv2d_transpose(x, kernel, image.shape, step, padding), x, opsets=OPSETS[:1])


def test_rows_of_integers_in_segments() -> None:
    rows = np.array([[2**31 - 1, 5], [-(2**31), 7], [3, -8]], np.int32)
    ids = np.array([0, 0, 2])
    for op in (raw.SegmentMax, raw.SegmentMin, raw.SegmentMean):
        agree(lambda x, ids, op=op: op(data=x, segment_ids=ids), rows // 2, ids, opsets=LAST)
    for op in (raw.UnsortedSegmentMax, raw.UnsortedSegmentMin):
        agree(lambda x, ids, op=op: op(data=x, segment_ids=ids, num_segments=4), rows, ids, opsets=LAST)


WRONG: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "another text": (tf.strings.as_string, SIGNS),
    "over channels": (
        lambda x: raw.MaxPool(input=x, ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID"),
        IMAGE.astype(np.float32),
    ),
    "indices that may come twice": (lambda x: tf.dynamic_stitch([[0, 1], [1]], [x[:2], x[2:3]]), SIGNS),
    "by areas": (lambda x: raw.ResizeArea(images=x, size=[3, 3]), IMAGE.astype(np.float32)),
    "with other ties or bounds": (
        lambda x: raw.QuantizeAndDequantizeV2(input=x, input_min=0.0, input_max=1.0),
        SIGNS.astype(np.float32),
    ),
    "doubles, for which ONNX Runtime has no kernel": (tf.atan, SIGNS),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_would_be_wrong_is_refused_before_it_is_written(why: str) -> None:
    function, x = WRONG[why]
    with pytest.raises(UnsupportedModelError, match=f"found .* \\({why}\\)"):
        agree(function, x, opsets=LAST)
