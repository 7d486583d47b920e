"""Batch normalisation as TensorFlow 1 wrote it, in graphs that are made in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.model import Array
from support.graphs import v1, variable

EPSILON = 1e-3


def values_of(scope: str, width: int) -> dict[str, Array]:
    """Distinct values of the variables that `normalise` makes."""
    rng = np.random.default_rng(len(scope) + width)
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    return {f"{scope}/{name}": rng.uniform(0.2, 0.9, width).astype(np.float32) for name in names}


def make_variables(scope: str, width: int) -> list[Any]:
    """Make gamma, beta, moving mean and variance."""
    with tf.name_scope(scope):
        return [variable(name, [width]) for name in ("gamma", "beta", "moving_mean", "moving_variance")]


def normalise(
    x: Any,
    axis: int,
    training: Any,
    *,
    scope: str = "norm",
    fused: bool = False,
    updates: str | None = "sub",
    variables: Sequence[Any] = (),
) -> Any:
    """Normalise over all axes but `axis`; `training` is a bool or a tensor of one.

    `updates` says how the averages move: `sub` as TensorFlow's layers do it, `assign` as tutorials do;
    None: not at all. tensorflow v1.15.0 python/layers/normalization.py, python/ops/nn_impl.py moments.
    """
    axes = [each for each in range(x.shape.rank) if each != axis % x.shape.rank]
    width = x.shape[axis]
    shape = [width if each not in axes else 1 for each in range(x.shape.rank)]
    gamma, beta, mean, variance = variables or make_variables(scope, width)
    reads = [tf.identity(each, f"{scope}/read") for each in (gamma, beta, mean, variance)]
    if fused:
        return _fused(x, reads, (mean, variance), training, scope)
    batch = v1.nn.moments(x, axes, keep_dims=True, name=f"{scope}/moments")
    for average, read, value in zip((mean, variance), reads[2:], batch, strict=True):
        _update(average, read, tf.squeeze(value, axes), updates)
    kept = [tf.reshape(read, shape) for read in reads]
    used = [_choose(training, *pair) for pair in zip(batch, kept[2:], strict=True)]
    return tf.nn.batch_normalization(x, *used, kept[1], kept[0], EPSILON)


def _choose(training: Any, batch: Any, average: Any) -> Any:
    if isinstance(training, bool):
        return batch if training else average
    return v1.cond(training, lambda: batch, lambda: average)


def _update(average: Any, read: Any, value: Any, updates: str | None) -> None:
    if updates in ("sub", "twice"):
        tf.raw_ops.AssignSub(ref=average, value=(read - value) * 0.01)
    elif updates == "assign":
        tf.raw_ops.Assign(ref=average, value=read * 0.99 + value * 0.01)


def _fused(x: Any, reads: Sequence[Any], averages: Sequence[Any], training: Any, scope: str) -> Any:
    gamma, beta, *kept = reads

    def run(*, is_training: bool) -> Any:
        used = [tf.zeros([0])] * 2 if is_training else kept
        made = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=gamma, offset=beta, mean=used[0], variance=used[1], epsilon=EPSILON,
            is_training=is_training, name=f"{scope}/FusedBatchNormV3",
        )  # fmt: skip
        return made.y, made.batch_mean, made.batch_variance

    if isinstance(training, bool):
        y, *batch = run(is_training=training)
    else:
        y, *batch = v1.cond(training, lambda: run(is_training=True), lambda: run(is_training=False))
    for average, read, value in zip(averages, kept, batch, strict=True):
        _update(average, read, value, "sub")
    return y
