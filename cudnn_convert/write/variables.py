"""Variable bundles: `<prefix>.index` and `<prefix>.data-00000-of-00001`, written by TensorFlow's own op."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from cudnn_convert.model import Tensor


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> None:
    """Writes each tensor under its key; at least one, for a bundle cannot be empty. Raises OSError."""
    names = sorted(variables)
    with tf.device("/CPU:0"):
        arguments = {
            "tensor_names": tf.constant(names, tf.string),
            "shape_and_slices": tf.constant([""] * len(names), tf.string),
            "tensors": [tf.convert_to_tensor(variables[name].read()) for name in names],
        }
        try:
            tf.raw_ops.SaveV2(prefix=str(prefix), **arguments)
        except tf.errors.OpError as cause:  # TensorFlow's name for what the system said
            said = cause.message.partition(" [Op:")[0].rpartition("; ")[2]
            raise OSError(errno.EIO, said) from cause
