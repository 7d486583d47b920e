"""The objects of an object-based checkpoint: which key holds a variable, and what that variable was called.

`tf.train.Checkpoint` and Keras' `save_weights(..., save_format="tf")` write the graph of their objects beside
the tensors. A variable has its own name there; the pieces of a cuDNN blob, which are no variables, have none.
Source: tensorflow v1.15.0 core/protobuf/trackable_object_graph.proto (nodes = 1; attributes = 2; full_name =
2, checkpoint_key = 3), python/training/tracking/base.py OBJECT_GRAPH_PROTO_KEY.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Tensor
from cudnn_convert.read.checkpoints import wire

_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NODES, _ATTRIBUTES, _FULL_NAME, _CHECKPOINT_KEY = 1, 2, 2, 3


def variables(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The name of the variable that each key of a checkpoint holds, "" for what was no variable.

    Empty where the checkpoint has no graph of objects, or a damaged one, which no recurrence needs.
    """
    stored = tensors.get(_KEY)
    if stored is None or stored.shape != () or stored.dtype.kind != "O":
        return {}
    try:
        graph = wire.fields(memoryview(stored.read().item()))
        return {
            bytes(wire.content(found, _CHECKPOINT_KEY)).decode(): bytes(
                wire.content(found, _FULL_NAME)
            ).decode()
            for node in wire.contents(graph, _NODES)
            for found in map(wire.fields, wire.contents(wire.fields(node), _ATTRIBUTES))
        }
    except (ValueError, ReadError, TypeError):
        return {}
