"""Cutting a graph down to what its outputs need: inputs become placeholders, `--set` values constants."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.errors import UsageError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, reference, split, tensor, unique
from cudnn_convert.model import Array

#: Sources that a program, not a file, fills: cut at the components used.
STREAMS: Final = frozenset(
    "IteratorGetNext IteratorGetNextSync QueueDequeue QueueDequeueV2 QueueDequeueMany QueueDequeueManyV2 "
    "QueueDequeueUpTo QueueDequeueUpToV2 Unstage".split()
)
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})


@dataclass(frozen=True, slots=True)
class Cut:
    """A tensor to become an input; `shape` refines what the graph knows."""

    tensor: str
    shape: tuple[int | None, ...] | None = None


def require(path: Path, index: Index, names: Iterable[str]) -> None:
    """Raises UsageError where a tensor `op:k` is not in the graph, with the nearest names."""
    reasons = []
    for name in names:
        op, k = split(name)
        if op not in index.nodes:
            near = difflib.get_close_matches(op, index.nodes, n=3, cutoff=0.5)
            hint = (
                f"the nearest are {', '.join(f'{found}:0' for found in near)}" if near else "nothing is near"
            )
            reasons.append(f"{path}: tensor {name}: expected one of the graph, found no node {op}; {hint}")
        elif (count := _outputs(index.nodes[op])) is not None and not 0 <= k < count:
            reasons.append(
                f"{path}: tensor {name}: expected one of the graph, found that {op} has {count} outputs"
            )
    if reasons:
        raise UsageError(*reasons)


def _outputs(node: Any) -> int | None:
    """How many outputs a node has, or None where its op is unknown here or a function of the graph."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return None
    count = 0
    for argument in definition.output_arg:
        if argument.number_attr:
            count += node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count += len(node.attr[argument.type_list_attr].list.type)
        else:
            count += 1
    return count


def streams(index: Index, outputs: Iterable[str], *, stop: Iterable[str]) -> list[str]:
    """The components of iterators and queues that `outputs` need beside `stop`, as tensors `op:k`."""
    closed = set(stop)
    ends = {split(name)[0] for name in closed}
    needed = index.ancestors((split(name)[0] for name in outputs), stop=ends)
    read = {name for op in needed - ends for name in index.data_inputs(index.nodes[op])}
    return sorted(name for name in read - closed if index.nodes[split(name)[0]].op in STREAMS)


def cut(
    graph: Any, *, inputs: Iterable[Cut], constants: Mapping[str, Array], outputs: Sequence[str]
) -> tuple[Any, dict[str, str]]:
    """The subgraph for `outputs`, and the new name of each tensor that became an input or a constant."""
    index, inputs = Index(graph), list(inputs)
    seen = build.sound(build.kept(graph, _ancestors(index, inputs, constants)))
    needed = index.ancestors((split(name)[0] for name in outputs), stop={split(f.tensor)[0] for f in inputs})
    taken, moved, made = set(index.nodes), {}, []
    for found in inputs:
        op, k = split(found.tensor)
        # The first output keeps the op's own name; nothing else of the op is left to need it.
        name = op if k == 0 and _is_free(index, op, inputs, needed) else unique(f"{op}_{k}", taken)
        taken.add(name)
        moved[found.tensor] = f"{name}:0"
        dtype, shape = _described(seen, found.tensor)
        shape = shape if shape.rank is not None else _recorded(index.nodes[op], k)
        made.append(build.placeholder(name, dtype, _refined(found, shape)))
    for name, value in constants.items():
        op, k = split(name)
        fresh = op if k == 0 and index.nodes[op].op in PLACEHOLDERS else unique(f"{op}_{k}_set", taken)
        taken.add(fresh)
        moved[name] = f"{fresh}:0"
        made.append(build.constant(fresh, value))
    return _pruned(graph, made, moved, [moved.get(name, name) for name in outputs]), moved


def with_values(graph: Any, outputs: Sequence[str]) -> tuple[Any, list[str]]:
    """The graph with a read of each resource variable among the tensors `outputs`, and their new names."""
    index, reads = Index(graph), {}
    for name in outputs:
        op, _ = split(name)
        if index.nodes[op].op == "VarHandleOp":
            dtype = tf.as_dtype(index.nodes[op].attr["dtype"].type)
            reads[name] = build.node(unique(f"{op}/value", index.nodes), "ReadVariableOp", [op], dtype=dtype)
    names = [f"{reads[name].name}:0" if name in reads else name for name in outputs]
    return build.with_nodes(graph, [*graph.node, *reads.values()]), names


def _described(seen: tf.Graph, name: str) -> tuple[tf.DType, tf.TensorShape]:
    """Dtype and shape of a tensor, or of the variable whose handle or reference it is."""
    found = seen.get_tensor_by_name(name)
    if found.op.type == "VarHandleOp":
        return found.op.get_attr("dtype"), tf.TensorShape(found.op.get_attr("shape"))
    if found.dtype in (tf.resource, tf.variant):
        raise UsageError(f"tensor {name}: expected numbers, found a handle; cut behind what reads it")
    return found.dtype.base_dtype, found.shape


def _recorded(node: Any, k: int) -> tf.TensorShape:
    """The shape that the writer of the graph noted for output `k`: of a queue nothing else tells it."""
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else []
    try:
        return tf.TensorShape(shapes[k] if k < len(shapes) else None)
    except ValueError:
        return tf.TensorShape(None)


def _ancestors(index: Index, inputs: list[Cut], constants: Mapping[str, Array]) -> set[str]:
    return index.ancestors(split(name)[0] for name in [*(found.tensor for found in inputs), *constants])


def _is_free(index: Index, op: str, inputs: list[Cut], needed: set[str]) -> bool:
    """Whether the outputs need nothing of an op but what is cut off it."""
    cut_here = {split(found.tensor)[1] for found in inputs if split(found.tensor)[0] == op}
    readers = (node for node in index.consumers(op) if node.name in needed)
    used = {split(name)[1] for node in readers for name in node.input if split(name)[0] == op}
    return used <= cut_here


def _refined(found: Cut, shape: tf.TensorShape) -> tf.TensorShape:
    wanted = tf.TensorShape(found.shape) if found.shape is not None else shape
    if not wanted.is_compatible_with(shape) or (wanted != shape and wanted != wanted.merge_with(shape)):
        known, asked = written(shape), written(wanted)
        expected = f"expected {known} or narrower, to which the graph is bound, found {asked} in --inputs"
        raise UsageError(f"tensor {found.tensor}: {expected}; give {found.tensor}{known}")
    return wanted.merge_with(shape)


def written(shape: Iterable[int | None]) -> str:
    """A shape as `--inputs` takes it."""
    return f"[{','.join('?' if width is None else str(width) for width in shape)}]"


def _pruned(graph: Any, made: list[Any], moved: Mapping[str, str], outputs: list[str]) -> Any:
    """`graph` with `made` in front and every reader of a moved tensor redirected, down to `outputs`."""
    fresh = {node.name for node in made}
    nodes = [node for node in build.placed(graph).node if node.name not in fresh]
    for node in nodes:
        places = [
            k for k, name in enumerate(node.input) if not name.startswith("^") and tensor(name) in moved
        ]
        for place in places:
            node.input[place] = reference(moved[tensor(node.input[place])])
        if 0 in places:  # where a handle would stand; indices of a gather may move too
            read_value(node)
    whole = build.with_nodes(graph, [*made, *nodes])
    return build.kept(whole, Index(whole).ancestors(split(name)[0] for name in outputs))


def read_value(node: Any) -> None:
    """A read of a resource variable that became a plain tensor reads that tensor."""
    if node.op == "ReadVariableOp":
        source, *control = node.input
        node.CopyFrom(build.identity(node.name, source, node.attr["dtype"].type, control=control))
    elif node.op == "ResourceGather":
        dtype, indices = (tf.as_dtype(node.attr[key].type) for key in ("dtype", "Tindices"))
        node.CopyFrom(build.node(node.name, "Gather", node.input, Tparams=dtype, Tindices=indices))


def parse_value(seen: tf.Graph, name: str, text: str) -> Array:
    """The constant that `--set NAME=TEXT` binds, in the tensor's own dtype and, if fixed, its shape."""
    dtype, known = _described(seen, name)
    words: dict[str, Any] = {"true": True, "false": False}
    try:
        # NumPy takes every word for true.
        word = (
            {**words, "1": True, "0": False}[text.lower()] if dtype.is_bool else words.get(text.lower(), text)
        )
        value: Array = np.asarray(word).astype(dtype.as_numpy_dtype)
    except (TypeError, ValueError, KeyError) as cause:
        raise UsageError(f"--set {name}: expected a {dtype.name}, found {text!r}") from cause
    shape = known if known.rank is not None else tf.TensorShape([])
    if not shape.is_fully_defined():
        cure = f"leave it out, or make it an input with --inputs {name} in the place of --set"
        raise UsageError(f"--set {name}: expected a tensor of known shape, found {shape}; {cure}")
    return np.array(np.broadcast_to(value, shape.as_list()))
