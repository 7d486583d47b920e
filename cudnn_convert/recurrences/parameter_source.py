"""Finds the source of a cuDNN node's parameters, and computes parameters packed by a graph.

Parameters are a variable, a constant, or the result of ops that pack a blob from kernels and biases. Keras'
CuDNN layers pack with slices, reshapes and one concatenation (tensorflow v1.15.0
python/keras/layers/cudnn_recurrent.py `_process_batch`, recurrent_v2.py `_canonical_to_params`). The kernel
of CudnnRNNCanonicalToParams copies each of its tensors to its position in the blob (core/kernels/
cudnn_rnn_ops.cc): matrices in the order of pseudo-layers and linear layer ids, then biases likewise. To
compute parameters, only arithmetic on variables and constants is run.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import PARAMS, Index, NodeDef, split, unique, walk
from cudnn_convert.graph.session import check_values, session
from cudnn_convert.model import Array, BlobEvidence, CanonicalEvidence, Model
from cudnn_convert.text import first_line

#: Ops that hand a tensor on as it is. Switch and Enter carry it into a branch or a loop.
_CARRIERS: Final = ops.COPIES | {"RefIdentity", "ReadVariableOp", "Cast"}
#: Recurrences that run on a CPU, and where their kernel stands (tensorflow v2.21.0 core/ops/rnn_ops.cc).
_CPU_KERNELS: Final = MappingProxyType({"BlockLSTM": 4, "BlockLSTMV2": 4, "LSTMBlockCell": 3})
#: What tf.distribute calls a variable's copies on other devices than the first (tensorflow v1.15.0
#: python/distribute/mirrored_strategy.py _real_mirrored_creator).
_COPY: Final = re.compile(r"(.+)/replica_[1-9]\d*")


@dataclass(frozen=True, slots=True)
class ParameterRoot:
    """The root of a parameter tensor, and the Switch and Enter nodes after the root.

    `tensor` is the root, `op:k`; `passage` has those nodes, outermost first. `leaves` are the variables from
    which the root is computed, else its constants, else the root itself. `computed`: the root is neither a
    variable nor a constant.
    """

    tensor: str
    passage: tuple[str, ...]
    leaves: tuple[str, ...]
    computed: bool

    @property
    def op(self) -> str:
        return split(self.tensor)[0]


def find_parameters(index: Index, node: NodeDef) -> ParameterRoot:
    """Follow the parameters of a recurrence back to the computing or storing op."""
    tensor, passage = index.data_inputs(node)[_CPU_KERNELS.get(node.op, PARAMS)], []
    while (source := index.nodes[split(tensor)[0]]).op in _CARRIERS | ops.PASSAGES:
        if source.op in ops.PASSAGES:
            passage.append(source.name)
        tensor = index.data_inputs(source)[0]
    op = split(tensor)[0]
    computed = index.nodes[op].op not in ops.VARIABLES | {"Const"}
    return ParameterRoot(
        tensor, tuple(reversed(passage)), _leaves(index, op) if computed else (op,), computed
    )


def computation(index: Index, op: str) -> dict[str, Any]:
    """Return `op` and the nodes used to compute `op`, by name."""

    def above(name: str) -> list[str]:
        inputs = index.data_inputs(index.nodes[name])
        # What a Switch decides and a loop counts is no part of the value that passes through.
        return [split(s)[0] for s in (inputs[:1] if index.nodes[name].op in ops.PASSAGES else inputs)]

    return {name: index.nodes[name] for name in walk([op], above)}


def _leaves(index: Index, op: str) -> tuple[str, ...]:
    below = computation(index, op).values()
    variables = sorted(node.name for node in below if node.op in ops.VARIABLES)
    return tuple(variables or sorted(node.name for node in below if _is_weight(node)) or [op])


def _is_weight(node: NodeDef) -> bool:
    """Return True if a node is a floating-point constant, unlike an index or axis."""
    return node.op == "Const" and bool(tf.as_dtype(node.attr["dtype"].type).is_floating)


def is_copy(index: Index, variable: str) -> bool:
    """Return True if a variable is another device's replica.

    Only the first one counts.
    """
    named = _COPY.fullmatch(variable)
    return named is not None and named[1] in index.nodes


def recurrences(index: Index) -> list[Any]:
    """Return the forward cuDNN nodes of a graph, in graph order."""
    return [node for node in index.nodes.values() if node.op in ops.CUDNN]


def cpu_recurrences(index: Index) -> list[Any]:
    """Return a graph's fused recurrences with CPU kernels, in graph order."""
    return [node for node in index.nodes.values() if node.op in _CPU_KERNELS]


def parameters_only(index: Index, outputs: Collection[str]) -> set[str]:
    """Return the names of nodes used for parameters alone, removable after decoding.

    The ops `outputs` are never among them.
    """
    names: set[str] = set()
    todo = [split(index.data_inputs(node)[PARAMS])[0] for node in recurrences(index)]
    while todo:
        name = todo.pop()
        if name in names or name in outputs:
            continue
        if all(_reads_parameters(reader, name, names) for reader in index.readers(name)):
            names.add(name)
            todo += [split(source)[0] for source in index.nodes[name].input]
    return names


def _reads_parameters(reader: Any, name: str, names: set[str]) -> bool:
    """Return True if a reader uses `name` for parameters alone.

    Such a reader is in `names`, or a cuDNN node with `name` as parameters only.
    """
    positions = [position for position, source in enumerate(reader.input) if split(source)[0] == name]
    return reader.name in names or (reader.op in ops.CUDNN and positions == [PARAMS])


#: What computed parameters are called, by their variables and their bytes.
Names: TypeAlias = dict[tuple[tuple[str, ...], bytes], str]
_FIRST: Final = 3
_CURE: Final = "freeze the graph where it was trained, and convert that"


def value(model: Model, index: Index, origin: ParameterRoot) -> Array:
    """Return the 1-D value of computed parameters.

    Raises UnsupportedModelError where they need more than arithmetic on variables and constants, or where a
    variable has no value.
    """
    below = computation(index, origin.op)
    reasons = [f"{origin.op}: {reason}" for reason in _obstacles(below)]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    graph = Graph(tf.compat.v1.GraphDef(), _plain(below))
    check_values(model.path, graph, model.variables, decoded=())
    try:
        with session(graph, model.variables) as running:
            return np.asarray(running.run(origin.tensor)).reshape(-1)
    except (tf.errors.OpError, ValueError) as cause:
        expected = "parameters that can be computed from the variables"
        reason = f"{origin.op}: expected {expected}, found an error: {first_line(cause)}; {_CURE}"
        raise UnsupportedModelError(model.path, [reason]) from cause


def _obstacles(below: dict[str, Any]) -> Iterator[str]:
    expected = "parameters that follow from variables and constants alone"
    for name, node in sorted(below.items()):
        if node.op in ops.PLACEHOLDERS:
            yield f"expected {expected}, found the placeholder {name}; bind it with --set {name}:0=VALUE"
        elif node.op not in ops.ARITHMETIC | ops.PASSAGES | ops.VARIABLES | ops.CUDNN_PACKING:
            yield f"expected {expected}, found {node.op} {name}; {_CURE}"


def _plain(below: dict[str, Any]) -> Iterator[Any]:
    """Copy the nodes except Switch and Enter, with CPU ops for CudnnRNNCanonicalToParams."""

    def direct(name: str) -> str:
        while below[split(name)[0]].op in ops.PASSAGES:
            name = below[split(name)[0]].input[0]
        return name

    for node in below.values():
        if node.op not in ops.PASSAGES:
            inputs = [direct(name) for name in node.input if not name.startswith("^")]
            if node.op in ops.CUDNN_PACKING:
                yield from _pack_nodes(node, inputs[_FIRST:], below)
            else:
                yield node_defs.copy_node(node, inputs=inputs)


def _pack_nodes(node: NodeDef, tensors: list[str], taken: Collection[str]) -> Iterator[Any]:
    """Flatten `tensors` row by row, and concatenate the rows under the node's name."""
    dtype = tf.as_dtype(node.attr["T"].type)
    shape, axis = (unique(f"{node.name}/{part}", taken) for part in ("flat", "axis"))
    yield node_defs.constant(shape, np.array([-1], np.int32))
    yield node_defs.constant(axis, np.array(0, np.int32))
    flat = [
        node_defs.node(f"{shape}_{number}", "Reshape", [name, shape], T=dtype, Tshape=tf.int32)
        for number, name in enumerate(tensors)
    ]
    yield from flat
    inputs = [*(reshape.name for reshape in flat), axis]
    yield node_defs.node(node.name, "ConcatV2", inputs, T=dtype, Tidx=tf.int32, N=len(flat))


def scope(leaves: Sequence[str]) -> str:
    """Return the innermost common scope of `leaves`, `""` for the root."""
    levels = zip(*(name.split("/")[:-1] for name in leaves), strict=False)
    return "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))


def parameter_name(names: Names, origin: ParameterRoot, evidence: BlobEvidence | CanonicalEvidence) -> str:
    """Return the name of parameters: the variable's, or a shared name for equal computed values.

    `names` has the names of computed parameters so far, and is added to.
    """
    if not origin.computed or isinstance(evidence, CanonicalEvidence):
        return origin.op
    key = (origin.leaves, evidence.blob.tobytes())
    if key not in names:
        inside = scope(origin.leaves)
        names[key] = unique(f"{inside}/parameters" if inside else "parameters", set(names.values()))
    return names[key]
