"""Writes cudnn_convert/graph/gpu_ops.tsv: what TensorFlow has a GPU kernel for and no CPU kernel.

    python scripts/list_gpu_ops.py

It asks TensorFlow's own registry of kernels, for whole ops and for each type of an op's attributes. What is
done with an op, and why, is kept from the file; a new row says `refused`, and waits for a person.
Source: tensorflow v2.21.0 core/framework/kernel_def.proto, core/framework/op_kernel.cc (KernelAttrsMatch).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from cudnn_convert.graph import gpu_ops
from cudnn_convert.private import tf_private

#: The types that are asked for: those of images and sums.
_TYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64)
_ON_CPU = frozenset({"CPU", "DEFAULT"})
HEAD = "op\ttype\tdone\thow\n"


def list_missing() -> list[tuple[str, str]]:
    """Each op without a CPU kernel, and each `(op, ATTRIBUTE=TYPE)` that GPUs alone have a kernel for."""
    kernels: dict[str, list[object]] = {}
    for kernel in tf_private.list_all_kernels():
        kernels.setdefault(kernel.op, []).append(kernel)
    return sorted(row for op, known in kernels.items() for row in find_missing(op, known))


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


def main() -> int:
    file = Path(gpu_ops.FILE)
    known = {(row.op, row.type): row for row in gpu_ops.read_table()} if file.exists() else {}
    lines = []
    for op, kind in list_missing():
        row = known.get((op, kind), gpu_ops.GpuOp(op, kind, "refused", ""))
        lines.append("\t".join((op, kind, row.done, row.how)))
    file.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} rows; new: {[row for row in list_missing() if row not in known]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
