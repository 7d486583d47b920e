"""Variable bundles: `<prefix>.index` and `<prefix>.data-00000-of-00001`, written by TensorFlow's own ops.

A large one has several data files, written one after the other: what three hold is in memory at a time.
Source: tensorflow v2.21.0 core/kernels/save_restore_v2_ops.cc (MergeV2Checkpoints moves the data files and
deletes the folder that they were in), core/util/tensor_bundle/tensor_bundle.cc MergeBundles.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.eager import context as eager
from tensorflow.python.framework import ops

from cudnn_convert import progress
from cudnn_convert.layers import size
from cudnn_convert.model import Array, Tensor
from cudnn_convert.write.ahead import ahead

#: A data file with so many bytes gets no further tensor.
_SHARD: Final = 1 << 28
#: Files whose tensors are made while one is written: a pseudo-layer's two matrices are made together.
_AHEAD: Final = 2


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> None:
    """Writes each tensor under its key; at least one, for a bundle cannot be empty. Each is read once, in the
    order of the keys. Raises OSError, and what reading them raises.
    """
    shards = [*_shards(variables)]
    written, total = 0, sum(map(size, variables.values()))
    progress.at("writing", written, total)
    if len(shards) == 1:
        _save(prefix, shards[0], _read(shards[0], variables))
        return
    # A folder of its own, as Saver has it: merging deletes it.
    parts = [f"{prefix}_temp/part-{number:05d}-of-{len(shards):05d}" for number in range(len(shards))]
    Path(f"{prefix}_temp").mkdir()
    read = ahead((_read(names, variables) for names in shards), _AHEAD)
    for part, names, tensors in zip(parts, shards, read, strict=True):
        _save(Path(part), names, tensors)
        written += sum(size(variables[name]) for name in names)
        progress.at("writing", written, total)
    with _said():
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))


def _shards(variables: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """The keys in order, those of a data file together."""
    names: list[str] = []
    held = 0
    for name in sorted(variables):
        if held >= _SHARD:
            yield names
            names, held = [], 0
        names.append(name)
        held += size(variables[name])
    yield names


def _read(names: Sequence[str], variables: Mapping[str, Tensor]) -> list[Any]:
    with tf.device("/CPU:0"):
        return [_tensor(variables[name].read()) for name in names]


def _save(prefix: Path, names: Sequence[str], tensors: list[Any]) -> None:
    with tf.device("/CPU:0"):
        arguments = {
            "tensor_names": tf.constant(names, tf.string),
            "shape_and_slices": tf.constant([""] * len(names), tf.string),
            "tensors": tensors,
        }
        with _said():
            tf.raw_ops.SaveV2(prefix=str(prefix), **arguments)


def _tensor(array: Array) -> Any:
    """What `tf.constant` gives, which copies an array twice (tensorflow v2.21.0 constant_op.py); here its
    memory stays, or is copied once where it is not aligned.
    """
    if array.dtype.kind == "O":
        return tf.convert_to_tensor(array)
    current = eager.context()
    current.ensure_initialized()
    kind = tf.as_dtype(array.dtype).as_datatype_enum
    return ops.EagerTensor(array, device=current.device_name, dtype=kind)


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as cause:  # TensorFlow's name for what the system said
        said = cause.message.partition(" [Op:")[0].rpartition("; ")[2]
        raise OSError(errno.EIO, said) from cause
