"""The names of variables in an object graph, and damaged ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.protobuf import trackable_object_graph_pb2

from cudnn_convert.read.tensorbundle import entries
from cudnn_convert.read.tensorbundle.object_graph import list_variable_names


class Held:
    """The tensor of an object graph, of any bytes."""

    shape, dtype = (), entries.of(entries.STRING)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self) -> np.ndarray:
        return np.array(self.content, object)


def test_the_graph_of_objects_names_variables() -> None:
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    for names in ((("w", "model/w"), ("b", "model/b")), (("counter", ""),)):
        node = graph.nodes.add()
        for key, name in names:
            node.attributes.add(name="VARIABLE_VALUE", full_name=name, checkpoint_key=key)
    stored = {"_CHECKPOINTABLE_OBJECT_GRAPH": Held(graph.SerializeToString())}
    assert list_variable_names(stored) == {"w": "model/w", "b": "model/b", "counter": ""}


@given(st.binary(max_size=64))
def test_a_damaged_graph_of_objects_says_nothing(content: bytes) -> None:
    assert isinstance(list_variable_names({"_CHECKPOINTABLE_OBJECT_GRAPH": Held(content)}), dict)
