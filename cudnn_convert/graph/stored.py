"""What stands in a function for a cuDNN node's weights: the blob, or the matrices that it is packed from.

Whatever the packing is made of: it runs once on the numbers of elements in the place of the weights, and
what comes out says which element of which matrix lies where in the blob. Nothing depends on values, which a
program may still change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import layouts, opaque
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import build, flat, resolve, sizing, trace
from cudnn_convert.graph.index import CUDNN_OPS, PARAMS, Index, split
from cudnn_convert.graph.lengths import are_full
from cudnn_convert.model import Array, Convention, Mode, Sizes

#: Ops that only move elements, and what tells them where to.
_MOVES: Final = frozenset(
    "Const Identity Snapshot StopGradient ConcatV2 Concat Reshape StridedSlice Slice Split SplitV Transpose "
    "Pack Unpack ExpandDims Squeeze GatherV2 Gather ReverseV2 ZerosLike Fill Shape ShapeN Size Rank Range "
    "ConcatOffset".split()
)
#: What the output of a source is called in a function.
_SOURCES: Final = MappingProxyType({"ReadVariableOp": "value", "Cast": "y"})


@dataclass(frozen=True, slots=True)
class Stored:
    """A cuDNN node of a function, and where its weights are.

    `matrices` are the tensors, by their names in the function, of Keras' kernel `[inputs, gates*units]`,
    recurrent kernel `[units, gates*units]` and bias (`layouts.pack_keras`), or None where the blob alone is
    there. `lengths`: whether sequences may be shorter than the input.
    """

    function: str
    node: str
    sizes: Sizes
    dtype: np.dtype[Any]
    time_major: bool
    lengths: bool
    matrices: tuple[str, str, str] | None


def find(path: Path, graph: Any, convention: Convention) -> tuple[Stored, ...]:
    """The cuDNN nodes of all functions that a flat graph came from, each once.

    Raises UnsupportedModelError where the sizes of one are not to be told, or not the same in all calls.
    """
    index, seen = Index(graph), build.sound(graph)
    found: dict[tuple[str, str], Stored] = {}
    reasons: list[str] = []
    for node in graph.node:
        place = flat.origin(node) if node.op in CUDNN_OPS else None
        if place is None:
            continue
        try:
            one = _stored(index, seen, node, place, convention)
        except UnsupportedModelError as error:
            reasons += error.reasons
            continue
        known = found.setdefault(place, one)
        if known != one and known != replace(one, matrices=known.matrices):
            found_sizes = f"{one.sizes}; convert one call of it with --signature"
            reasons.append(f"{node.name}: expected {known.sizes} in every call, found {found_sizes}")
        if known != one:
            found[place] = replace(known, matrices=None)
    if reasons:
        raise UnsupportedModelError(path, reasons)
    return tuple(found.values())


def _stored(
    index: Index, seen: tf.Graph, node: Any, place: tuple[str, str], convention: Convention
) -> Stored:
    tensors = seen.get_operation_by_name(node.name).inputs
    facts = resolve.described(node, tensors)
    elements = tensors[PARAMS].shape.num_elements()
    if None in (facts.layers, facts.units, elements):
        expected = "static shapes of its states and parameters"
        cure = "convert it alone with --signature"
        raise UnsupportedModelError("", [f"{node.name}: expected {expected}, found none; {cure}"])
    assert facts.layers is not None and facts.units is not None and elements is not None
    known = Sizes(facts.mode, facts.layers, facts.directions, facts.units, facts.input_size or 0)
    sizes = sizing.solve(elements, replace(known, projection=facts.projection), facts.input_mode)
    if sizes is None:
        found = f"{elements}; are its states and parameters of one model?"
        reason = f"{node.name}: params: expected {sizing.lengths(known)}, found {found}"
        raise UnsupportedModelError("", [reason])
    lengths = node.op == "CudnnRNNV3" and not are_full(index, node)
    return Stored(
        *place,
        sizes,
        facts.dtype,
        resolve.is_time_major(node),
        lengths,
        _matrices(index, seen, node, sizes, convention),
    )


def _matrices(
    index: Index, seen: tf.Graph, node: Any, sizes: Sizes, convention: Convention
) -> tuple[str, str, str] | None:
    if sizes.layers * sizes.directions > 1 or sizes.projection or sizes.mode not in (Mode.LSTM, Mode.GRU):
        return None
    origin = trace.parameters(index, node)
    if not origin.computed or origin.passage:
        return None
    sources = {name: seen.get_tensor_by_name(f"{name}:0") for name in _sources(index, origin.op)}
    computed = tf.as_dtype(node.attr["T"].type)  # the blob may be cast behind its packing
    if not all(one.dtype == computed and one.shape.is_fully_defined() for one in sources.values()):
        return None
    numbers = _numbered({name: one.shape.as_list() for name, one in sources.items()})
    packed = _packed(index, origin.tensor, numbers)
    if packed is None or packed.size != opaque.length(sizes):
        return None
    ((cell,),) = opaque.split(packed, sizes, where=node.name)
    wanted = layouts.pack_keras(layouts.conventional(cell, convention, canonical=False))
    here = {name: place[1] for name in numbers if (place := _beside(index.nodes[name], node))}
    names = [
        next((name for name in here if np.array_equal(numbers[name], part)), None) for part in wanted.values()
    ]
    kernel, recurrent, bias = (
        None if name is None else f"{here[name]}:{_SOURCES[index.nodes[name].op]}:0" for name in names
    )
    return (kernel, recurrent, bias) if kernel and recurrent and bias else None


def _beside(source: Any, node: Any) -> tuple[str, str] | None:
    """The origin of `source` where it stood in the same function as `node`."""
    found, place = flat.origin(source), flat.origin(node)
    return found if found and place and found[0] == place[0] else None


def _sources(index: Index, op: str) -> list[str]:
    """What a tensor is packed from: reads of variables, in the type that the recurrence computes in."""
    found, todo, done = [], [op], set()
    while todo:
        name = todo.pop()
        if name not in done:
            done.add(name)
            inputs = [split(source)[0] for source in index.data_inputs(index.nodes[name])]
            is_read = index.nodes[name].op == "ReadVariableOp"
            is_cast = index.nodes[name].op == "Cast" and index.nodes[inputs[0]].op == "ReadVariableOp"
            if is_read or is_cast:
                found.append(name)
            else:
                todo += inputs
    return sorted(found)


def _numbered(shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """For each tensor the numbers of its elements, from 1; no two elements have the same."""
    numbers, first = {}, 1
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        numbers[name] = np.arange(first, first + size, dtype=np.float64).reshape(shape)
        first += size
    return numbers


def _packed(index: Index, tensor: str, numbers: Mapping[str, Array]) -> Array | None:
    """What the packing makes of the numbers, or None where it does more than move them."""
    ops = index.ancestors([split(tensor)[0]], control=False, stop=numbers)
    if any(index.nodes[op].op not in _MOVES for op in ops - numbers.keys()):
        return None
    nodes = [*_doubled(index.nodes[op] for op in sorted(ops - numbers.keys()))]
    with tf.Graph().as_default() as graph:
        fed = {name: tf.compat.v1.placeholder(tf.float64, ids.shape, name) for name, ids in numbers.items()}
        nodes_by_op = build.kept(build.with_nodes(tf.compat.v1.GraphDef(), nodes), ops)
        inputs = {f"{name}:0": found for name, found in fed.items()}
        tf.import_graph_def(nodes_by_op, inputs, name="packing")
        with tf.compat.v1.Session(graph=graph) as session:
            feeds = {fed[name]: ids for name, ids in numbers.items()}
            return np.asarray(session.run(f"packing/{tensor}", feeds)).reshape(-1)


def _doubled(nodes: Iterator[Any]) -> Iterator[Any]:
    """The nodes with float64 for every float: it holds each number of an element exactly."""
    for node in nodes:
        copy = type(node)()
        copy.CopyFrom(node)
        build.floats_as(copy.attr.values(), tf.float64)
        yield copy
