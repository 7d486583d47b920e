"""The ops computed by TensorFlow on GPUs alone: a table from TensorFlow's registry of kernels.

`gpu_ops.tsv` has a row for each op without a CPU kernel, and for each type that GPUs alone compute an op in;
`scripts/list_gpu_ops.py` writes it. A row says what is done: `lowered` to ops of every CPU, `dropped` as part
of training, or `refused`. Ops whose images are channels first are not in it: their kernels say when they run
that they take none.
Source: tensorflow v2.21.0 core/framework/kernel_def.proto, core/framework/op_kernel.cc (KernelAttrsMatch).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph.index import NodeDef
from cudnn_convert.private import tf_private

FILE: Final = Path(__file__).with_name("gpu_ops.tsv")
#: The types that are asked for: those of images and sums.
_TYPES: Final = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64)
_ON_CPU: Final = frozenset({"CPU", "DEFAULT"})


@dataclass(frozen=True, slots=True)
class GpuOp:
    """A row of the table: an op, or a type of an op as `ATTRIBUTE=TYPE`.

    `done` is what is done with it, and `how` the way.
    """

    op: str
    type: str
    done: str
    how: str


def read_table() -> list[GpuOp]:
    """Return the rows of the table."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return [GpuOp(*line.split("\t")) for line in lines]


@cache
def _by_op() -> dict[str, list[GpuOp]]:
    rows: dict[str, list[GpuOp]] = {}
    for row in read_table():
        rows.setdefault(row.op, []).append(row)
    return rows


def is_gpu_only(op: str) -> bool:
    """Return True if GPUs alone have a kernel of an op, whatever its types."""
    return any(not row.type for row in _by_op().get(op, ()))


def find_row(node: NodeDef) -> GpuOp | None:
    """Return the row of a node lacking a CPU kernel.

    Returns None for any other node.
    """
    for row in _by_op().get(node.op, ()):
        attribute, _, name = row.type.partition("=")
        # To read an attribute where it is not would set it.
        if not attribute or (attribute in node.attr and node.attr[attribute].type == _number(name)):
            return row
    return None


@cache
def _number(name: str) -> int:
    return int(tf.as_dtype(name).as_datatype_enum)


def find_missing(op: str, kernels: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the op, or each type of the op, with kernels for GPUs alone.

    `(op, "")` where GPUs alone have a kernel, else `(op, ATTRIBUTE=TYPE)` for each type of that kind.
    """
    gpu = [kernel for kernel in kernels if kernel.device_type == "GPU"]
    cpu = [kernel for kernel in kernels if kernel.device_type in _ON_CPU]
    definition = tf_private.find_op(op)
    if not gpu or definition is None or op.startswith("_"):  # TensorFlow makes such ops as it runs
        return
    if not cpu:
        yield op, ""
        return
    for attribute in (each.name for each in definition.attr if each.type == "type"):
        for kind in _TYPES:
            if _takes(gpu, attribute, kind, named=True) and not _takes(cpu, attribute, kind, named=False):
                yield op, f"{attribute}={kind.name}"


def _takes(kernels: Collection[Any], attribute: str, kind: tf.DType, *, named: bool) -> bool:
    """Return True if a kernel takes a type.

    With `named` the kernel has to name it; otherwise a kernel that names no type takes any.
    """
    for kernel in kernels:
        allowed = [each.allowed_values.list.type for each in kernel.constraint if each.name == attribute]
        if (not allowed and not named) or any(kind.as_datatype_enum in types for types in allowed):
            return True
    return False
