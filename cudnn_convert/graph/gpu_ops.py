"""The ops computed by TensorFlow on GPUs alone: a table from TensorFlow's registry of kernels.

`gpu_ops.tsv` has a row for each op without a CPU kernel, and for each type that GPUs alone compute an op in;
`scripts/list_gpu_ops.py` writes it. A row says what is done: `lowered` to ops of every CPU, `dropped` as part
of training, or `refused`. Ops whose images are channels first are not in it: their kernels say when they run
that they take none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import tensorflow as tf

from cudnn_convert.graph.index import NodeDef

FILE: Final = Path(__file__).with_name("gpu_ops.tsv")


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
    """Return True if GPUs alone have a kernel of an op, for all types."""
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
