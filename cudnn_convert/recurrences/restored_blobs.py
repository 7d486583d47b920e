"""Computes blobs stored in another form in a checkpoint, by the saver's restore ops.

A project's saveable may store a recurrence under keys and in shapes of its own: transposed, without the
forget bias that its cell adds, each bias once. What its restore ops make of the entries is the blob:

    kernel, bias = RestoreV2; w = Split(Transpose(kernel)); b = Split(bias + [0, 0, 1, 0])
    Assign(opaque_kernel, CudnnRNNCanonicalToParams(layers, units, inputs, w, b))

The op has no kernel for CPUs. It flattens all weights, then all biases.
Source: tensorflow v1.15.0 core/kernels/cudnn_rnn_ops.cc CudnnRNNCanonicalToParams.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import constant_folding, node_defs, ops
from cudnn_convert.graph.graph import Graph, extract_nodes, import_checked, open_session
from cudnn_convert.graph.index import Index, NodeDef, split
from cudnn_convert.graph.recurrent_state import root
from cudnn_convert.graph.session import checkpoint_key
from cudnn_convert.model import Array, InMemory, Model

_FORMS: Final = frozenset({"Identity", "Reshape", "Cast"})
#: num_layers, num_units and input_size come before weights and biases.
_FIRST: Final = 3
#: The matrices of a layer and direction, by mode; 2 of others.
_MATRICES: Final = {"lstm": 8, "gru": 6}


def with_restored_blobs(model: Model) -> Model:
    """Add the blobs computed by restore ops, and a note on each blob.

    The restore ops read entries whose keys no dialect knows.
    """
    graph = Graph.of(model.graph)
    if not any(node.op in ops.CUDNN_PACKING for node in graph.node):
        return model
    canonical = {key for parameters in model.canonical for key in model.list_stored_keys(parameters)}
    blobs, notes = {}, []
    for variable, packing in _list_restored(graph.index, model):
        entries = _list_entries(graph.index, packing)
        if (
            entries
            and canonical.isdisjoint(entries.values())
            and {*entries.values()} <= model.variables.keys()
        ):
            value = _compute(
                graph, packing, {name: model.variables[key].read() for name, key in entries.items()}
            )
            if value is not None:
                blobs[checkpoint_key(graph.index.nodes[variable])] = InMemory(value)
                keys = ", ".join(sorted({*entries.values()}))
                notes.append(f"{variable}: computed from {keys} as the restore ops of the source's saver do")
    if not blobs:
        return model
    return replace(model, variables={**model.variables, **blobs}, notes=(*model.notes, *notes))


def _list_restored(index: Index, model: Model) -> Iterator[tuple[str, NodeDef]]:
    """Yield variables assigned packed parameters, each with the packing op.

    The variables have no value of their own.
    """
    for node in index.nodes.values():
        if node.op in ops.OVERWRITES:
            packing, variable = index.maker(node.input[1], _FORMS), root(index, node.name)
            if packing.op not in ops.CUDNN_PACKING or variable is None:
                continue
            if checkpoint_key(index.nodes[variable]) not in model.variables and _is_whole(index, packing):
                yield variable, packing


def _is_whole(index: Index, packing: NodeDef) -> bool:
    """Return True if an op packs the matrices of all layers and directions.

    TensorFlow before 1.4 saved half.
    """
    layers = constant_folding.fold_constant(index, index.data_inputs(packing)[0])
    mode, direction = packing.attr["rnn_mode"].s.decode(), packing.attr["direction"].s.decode()
    directions = 2 if direction == "bidirectional" else 1
    expected = 0 if layers is None else _MATRICES.get(mode, 2) * int(layers) * directions
    return int(packing.attr["num_params"].i) in (0, expected)


def _list_entries(index: Index, packing: NodeDef) -> dict[str, str]:
    """Return the key of each restored tensor `op:k` needed by an op.

    Empty for other sources, and for slices.
    """
    entries: dict[str, str] = {}
    restores = _list_restores(index)
    needed = index.ancestors([packing.name], control=False, stop=restores)
    for op in needed - {packing.name}:
        node = index.nodes[op]
        if node.op != "RestoreV2":
            if node.op not in ops.ARITHMETIC:
                return {}
            continue
        names, slices = (constant_folding.fold_constant(index, name) for name in index.data_inputs(node)[1:])
        if names is None or slices is None or any(slices):
            return {}
        entries |= {f"{op}:{k}": bytes(name).decode() for k, name in enumerate(names)}
    read = {name for op in needed - restores for name in index.data_inputs(index.nodes[op])}
    return {name: key for name, key in entries.items() if name in read}


def _list_restores(index: Index) -> set[str]:
    return {node.name for node in index.nodes.values() if node.op == "RestoreV2"}


def _compute(graph: Graph, packing: NodeDef, entries: Mapping[str, Array]) -> Array | None:
    """Compute the blob: the op's weights, then the biases, each flattened.

    None where TensorFlow refuses.
    """
    index = graph.index
    inputs = index.data_inputs(packing)[_FIRST:]
    constants = {name: node_defs.constant(name.replace(":", "/"), value) for name, value in entries.items()}
    moved = {name: node.name for name, node in constants.items()}
    needed = index.ancestors((split(name)[0] for name in inputs), control=False, stop=_list_restores(index))
    kept = extract_nodes(graph, needed - _list_restores(index))
    nodes = [node_defs.redirect(node, moved) for node in kept.node]
    fetched = [f"{moved[name]}:0" if name in moved else name for name in inputs]
    try:
        imported = import_checked(Graph(kept, [*nodes, *constants.values()], ()))
        with open_session(imported) as running:
            values = running.run(fetched)
    except (InvalidModelError, tf.errors.OpError):
        return None
    return np.concatenate([np.asarray(value).ravel() for value in values])
