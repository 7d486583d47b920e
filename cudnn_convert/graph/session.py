"""Running a graph whose variables get their values from files: for freezing and for verification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from cudnn_convert.graph import build
from cudnn_convert.graph.index import split
from cudnn_convert.graph.trace import VARIABLES
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import Array, Tensor

#: Bytes of values that are set in one run; a larger value has a run to itself.
_TOGETHER: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Restore:
    """The op of a source's own saver that sets a variable, from the checkpoint `prefix` named in `files`."""

    variable: str
    op: str
    files: tuple[str, ...]
    prefix: Path


def answering(
    running: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A function of arrays by the keys of `inputs`, to arrays by those of `outputs`, in a session."""

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values = running.run(list(outputs.values()), {inputs[key]: value for key, value in feeds.items()})
        return dict(zip(outputs, map(np.asarray, values), strict=True))

    return run


def variable_ops(graph: Any) -> list[Any]:
    """The nodes of a GraphDef that hold a variable."""
    return [node for node in graph.node if node.op in VARIABLES]


@contextmanager
def session(
    graph: Any,
    variables: Mapping[str, Tensor],
    *,
    initializers: Sequence[str] = (),
    assets: Mapping[str, Path] = MappingProxyType({}),
    restores: Sequence[Restore] = (),
) -> Iterator[Any]:
    """A Session over a GraphDef with its variables set, through placeholders: a Const is copied often.

    Those of `restores` are set by the graph's own ops. Then the ops `initializers` run, fed with the files
    `assets` by the tensors that hold their names.
    """
    made = build.imported(graph)
    # Nodes that no run reaches may have no CPU kernel; only what runs is placed.
    options = tf.compat.v1.GraphOptions(place_pruned_graph=True)
    # A source runs as it is written: TensorFlow fuses some layer normalisations with another epsilon.
    options.rewrite_options.remapping = RewriterConfig.OFF
    config = tf.compat.v1.ConfigProto(graph_options=options)
    with made.as_default(), tf.compat.v1.Session(graph=made, config=config) as running:
        restored = {found.variable for found in restores}
        others = [node for node in variable_ops(graph) if node.name not in restored]
        _assign(running, others, variables)
        for found in restores:
            running.run(made.get_operation_by_name(found.op), dict.fromkeys(found.files, str(found.prefix)))
        names = {op.name for op in made.get_operations()}
        fed = {name: str(path) for name, path in assets.items() if split(name)[0] in names}
        running.run([made.get_operation_by_name(op) for op in initializers], fed)
        yield running


def _assign(running: Any, nodes: Iterable[Any], variables: Mapping[str, Tensor]) -> None:
    """Sets variable ops of the session's graph to their values.

    A run costs what it takes to prepare one: small values share it, large ones are not in memory together.
    """
    assigned: list[Any] = []
    fed: dict[Any, Array] = {}
    for node in nodes:
        value = variables[checkpoint_key(node)]
        given = tf.compat.v1.placeholder(tf.as_dtype(value.dtype), value.shape)
        assigned.append(_assignment(running.graph, node, given))
        fed[given] = value.read()
        if sum(array.nbytes for array in fed.values()) >= _TOGETHER:
            running.run(assigned, fed)
            assigned, fed = [], {}
    if assigned:
        running.run(assigned, fed)


def _assignment(graph: tf.Graph, node: Any, value: Any) -> Any:
    """What gives a variable op a value, whichever of the two kinds it is."""
    target = graph.get_tensor_by_name(f"{node.name}:0")
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)
    # TensorFlow 1 lets a variable be declared without its shape; the value's own counts then.
    return tf.raw_ops.Assign(ref=target, value=value, validate_shape=False)
