"""Writes cudnn_convert/graph/gpu_ops.tsv: what TensorFlow has a GPU kernel for and no CPU kernel.

    python scripts/list_gpu_ops.py

It asks TensorFlow's own registry of kernels, for whole ops and for each type of an op's attributes. What is
done with an op, and why, is kept from the file; a new row says `refused`, and waits for a person.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cudnn_convert.graph import gpu_ops
from cudnn_convert.private import tf_private

HEAD = "op\ttype\tdone\thow\n"


def list_missing() -> list[tuple[str, str]]:
    """Each op without a CPU kernel, and each `(op, ATTRIBUTE=TYPE)` that GPUs alone have a kernel for."""
    kernels: dict[str, list[object]] = {}
    for kernel in tf_private.list_all_kernels():
        kernels.setdefault(kernel.op, []).append(kernel)
    return sorted(row for op, known in kernels.items() for row in gpu_ops.find_missing(op, known))


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
