"""What a cuDNN node keeps for its gradient: an artifact has none, and inference needs none.

Source: tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc (reserve_space of type T, host_reserved of int8).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import build
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index, split, tensor, unique

_HOST: Final = 4


def emptied(graph: Any, outputs: Iterable[str]) -> Any:
    """`graph` with an empty array for each such output whose readers lead to none of the tensors `outputs`.

    A loop that was made for gradients too collects them beside what it is for.
    """
    index, ends = Index(graph), {split(name)[0] for name in outputs}
    moved: dict[str, Any] = {}
    for node in graph.node:
        for k in (OUTPUTS, _HOST) if node.op in CUDNN_OPS else ():
            readers = [reader.name for reader in index.consumers(node.name, k)]
            if readers and not index.descendants(readers) & ends:
                dtype = np.int8 if k == _HOST else tf.as_dtype(node.attr["T"].type).as_numpy_dtype
                name = unique(f"{node.name}/reserved_{k}", index.nodes)
                # The edge puts it into the node's frame.
                moved[f"{node.name}:{k}"] = build.constant(
                    name, np.zeros(0, dtype), control=[f"^{node.name}"]
                )
    if not moved:
        return graph
    made = build.with_nodes(graph, [*graph.node, *moved.values()])
    for node in made.node:
        for place, name in enumerate(node.input):
            if not name.startswith("^") and tensor(name) in moved:
                node.input[place] = moved[tensor(name)].name
    return made
