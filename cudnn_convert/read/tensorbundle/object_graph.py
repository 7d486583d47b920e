"""Reads the names of variables in the object graph of a checkpoint.

Object-based checkpoints (`tf.train.Checkpoint`, Keras' `save_weights(..., save_format="tf")`) store the graph
of their objects beside the tensors. It has the name of each variable; the slices of a cuDNN blob are no
variables and have no name there.
Source: tensorflow v1.15.0 core/protobuf/trackable_object_graph.proto (nodes = 1; attributes = 2; full_name =
2, checkpoint_key = 3), python/training/tracking/base.py OBJECT_GRAPH_PROTO_KEY.
"""

from collections.abc import Mapping
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Tensor
from cudnn_convert.read.tensorbundle import tables

_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NODES, _ATTRIBUTES, _FULL_NAME, _CHECKPOINT_KEY = 1, 2, 2, 3


def list_variable_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the variable name of each key of an object-based checkpoint.

    The name is "" for other objects. Empty where the checkpoint has no object graph, or a damaged one: no
    recurrence needs it.
    """
    stored = tensors.get(_KEY)
    if stored is None or stored.shape != () or stored.dtype.kind != "O":
        return {}
    try:
        graph = tables.fields(memoryview(stored.read().item()))
        return {
            bytes(tables.content(entry, _CHECKPOINT_KEY)).decode(): bytes(
                tables.content(entry, _FULL_NAME)
            ).decode()
            for node in tables.contents(graph, _NODES)
            for entry in map(tables.fields, tables.contents(tables.fields(node), _ATTRIBUTES))
        }
    except (ValueError, ReadError, TypeError):
        return {}
