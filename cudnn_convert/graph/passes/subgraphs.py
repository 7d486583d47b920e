"""Extracts the subgraph between inputs and outputs, and finds places for a cut.

Inputs become placeholders, `--set` values constants, and nodes that the outputs do not need are removed:

    before:  x = IteratorGetNext; training = Placeholder; y = Cond(training, f(x:1)); loss = g(y, x:2)
    after:   x_1 = Placeholder; training = Const; y = Cond(training, f(x_1))

A value for a tensor in a loop is a constant in the frame of that loop.

`features` lists the tensors that a graph parses out of serialized tf.Examples, where a cut may be: a sparse
feature that becomes dense at once is cut where it is dense, any other at its indices, values and shape.
Source: tensorflow v2.21.0 core/ops/parsing_ops.cc (the order of a parser's inputs and outputs).

`CutFinder` finds outputs that avoid a node which a target refuses, and keep as much of the graph as possible.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import Remedy, UsageError
from cudnn_convert.graph import control_flow, node_defs, ops
from cudnn_convert.graph.graph import (
    Graph,
    drop_uncalled_functions,
    extract_nodes,
    import_checked,
    prune,
    share_without_devices,
)
from cudnn_convert.graph.index import Index, NodeDef, claim, reference, split, tensor
from cudnn_convert.model import Array, UserGraph
from cudnn_convert.private import tf_private

_SPARSE: Final = ("indices", "values", "shape")


@dataclass(frozen=True, slots=True)
class ParsedFeature:
    """A tensor behind a parser, and the feature's name where given by the parser."""

    key: str | None
    tensor: str
    parser: str


def features(index: Index, outputs: Iterable[str], *, stop: Collection[str]) -> list[ParsedFeature]:
    """List the parsed features needed by `outputs` beside `stop`, in the parser's order.

    `outputs` and `stop` are tensors `op:k`.
    """
    dense = {node.name: node for node in index.nodes.values() if _is_made_dense(index, node)}
    closed = {split(name)[0] for name in stop}
    needed = index.ancestors((split(name)[0] for name in outputs), stop=closed | dense.keys()) - closed
    read = {name for op in needed - dense.keys() for name in index.data_inputs(index.nodes[op])}
    parsed = [split(name) for name in read - set(stop) if index.nodes[split(name)[0]].op in ops.PARSERS]
    listed = [(op, k, f"{op}:{k}", False) for op, k in parsed]
    listed += [(*split(node.input[0]), f"{name}:0", True) for name, node in dense.items() if name in needed]
    return [
        ParsedFeature(_key(index, index.nodes[op], k, whole=whole), name, op)
        for op, k, name, whole in sorted(listed)
    ]


def _is_made_dense(index: Index, node: NodeDef) -> bool:
    """Return True if a node turns a parser's sparse feature into a dense tensor."""
    if node.op != "SparseToDense":
        return False
    indices, shape, values = map(split, index.data_inputs(node)[:3])
    parser = index.nodes[indices[0]]
    if parser.op not in ops.PARSERS or {values[0], shape[0]} != {parser.name}:
        return False
    count = _sparse(parser)
    return 0 <= indices[1] < count and (values[1], shape[1]) == (indices[1] + count, indices[1] + 2 * count)


def _sparse(parser: NodeDef) -> int:
    """Count a parser's sparse features, 0 for sequence parsers.

    The outputs of those are ordered otherwise.
    """
    attribute = "Nsparse" if parser.op == "ParseExample" else "num_sparse"
    return int(parser.attr[attribute].i) if attribute in parser.attr else 0


def _key(index: Index, parser: NodeDef, k: int, *, whole: bool) -> str | None:
    """Name output `k` of a parser by the feature.

    None where the feature's name is not a word, or the parser is of sequences.
    """
    count = _sparse(parser)
    names = [*_names(index, parser)]
    position = k % count if k < 3 * count else k - 2 * count
    if position >= len(names) or not re.fullmatch(r"[\w/.-]+", names[position]):
        return None
    key = re.sub(r"\W", "_", names[position])
    return key if whole or k >= 3 * count else f"{key}_{_SPARSE[k // count]}"


def _names(index: Index, parser: NodeDef) -> Iterator[str]:
    """Yield the names of a parser's features, sparse features first."""
    if parser.op == "ParseSingleExample":
        keys = (parser.attr[name].list.s for name in ("sparse_keys", "dense_keys"))
        yield from (key.decode(errors="replace") for of in keys for key in of)
    elif parser.op in ("ParseExample", "ParseExampleV2"):
        last = 2 + (_sparse(parser) + parser.attr["Ndense"].i if parser.op == "ParseExample" else 2)
        for name in index.data_inputs(parser)[2:last]:
            node = index.nodes[split(name)[0]]
            if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                keys = tf.make_ndarray(node.attr["value"].tensor).reshape(-1)
                yield from (bytes(key).decode(errors="replace") for key in keys)


_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_FLOATS: Final = frozenset(kind.as_datatype_enum for kind in node_defs.FLOATS)
#: Ops whose outputs depend on their inputs' shapes alone.
_SHAPED: Final = frozenset({"Fill", "ZerosLike", "OnesLike"})


class CutFinder:
    """Places for a cut: float tensors outside all loops, of ops known to the user.

    An input is never a place. If the graph has recurrences, one of them stays.
    """

    def __init__(
        self,
        index: Index,
        user: UserGraph | None = None,
        *,
        outputs: Mapping[str, str] = _NO_NAMES,
        recurrences: Collection[str] = (),
    ) -> None:
        """Take the graph's index, and the original user's graph, by default the same.

        `outputs` are the tensors of the index' graph by the keys of `user.outputs`. `recurrences` are nodes
        that are no cuDNN ops any more.
        """
        self._index, self._frames = index, control_flow.frames(index)
        self._user = user or UserGraph(index.nodes, outputs)
        self._outputs = {key: split(name)[0] for key, name in outputs.items() if key in self._user.outputs}
        cudnn = (name for name, node in index.nodes.items() if node.op in ops.CUDNN)
        self._recurrences = {*recurrences, *cudnn}

    def before(self, name: str, avoid: Collection[str]) -> Remedy | None:
        """Return the remedy of outputs independent of node `name` and of `avoid`.

        Returns None where there is no place for a cut. The remedy keeps each such output, adds the last
        tensor before the node, and names those it drops.
        """
        candidates: list[tuple[int, str]] = []
        seen, todo = {name}, [name] if name in self._index.nodes else []
        while todo:
            for source in self._index.data_inputs(self._index.nodes[todo.pop()]):
                op, k = split(source)
                if op in seen or op not in self._index.nodes:
                    continue
                seen.add(op)
                needed = self._index.ancestors([op])
                if not any(self._index.nodes[name_needed].op in ops.PLACEHOLDERS for name_needed in needed):
                    continue
                is_part = needed & self._recurrences or not self._recurrences
                if is_part and self._is_offered(op, k) and not needed & {*avoid, name}:
                    candidates.append((len(needed), source))
                else:
                    todo.append(op)
        if not candidates:
            return None
        kept, dropped = self._divide({*avoid, name})
        last = max(candidates)[1]
        chosen = [] if last in (self._user.outputs[key] for key in kept) else [last]
        named = ",".join([*map(self._name, kept), *chosen])
        drops = f", which drops {', '.join(dropped)}," if dropped else ""
        return Remedy({"outputs": (named,)}, f"cut the graph before it{drops} with")

    def without(self, name: str) -> Remedy | None:
        """Return the remedy of the outputs independent of node `name`.

        Returns None if those are none or all.
        """
        kept, dropped = self._divide({name})
        if not kept or not dropped:
            return None
        named = ",".join(map(self._name, kept))
        return Remedy({"outputs": (named,)}, f"leave out {', '.join(dropped)}, which it decides, with")

    def _divide(self, avoid: Collection[str]) -> tuple[list[str], list[str]]:
        """Return the keys of outputs independent of `avoid`, and of the remaining outputs."""
        kept = [key for key, op in self._outputs.items() if not self._index.ancestors([op]) & {*avoid}]
        return kept, [key for key in self._outputs if key not in kept]

    def _name(self, key: str) -> str:
        """Write an output in the form of `--outputs`.

        It has its key where its tensor would get another.
        """
        name = self._user.outputs[key]
        return name if key == split(name)[0].replace("/", "_") else f"{key}={name}"

    def _is_offered(self, op: str, k: int) -> bool:
        node: Any = self._index.nodes[op]
        if op not in self._user.ops or self._frames.get(op) or node.op in _SHAPED | ops.PLACEHOLDERS:
            return False
        types = [*output_types(node)]
        return k < len(types) and types[k] in _FLOATS


def output_types(node: NodeDef) -> Iterator[int]:
    """Yield the types.proto number of each output of a known op.

    There are none for an unknown op.
    """
    definition = tf_private.find_op(node.op)
    for argument in () if definition is None else definition.output_arg:
        if argument.type_list_attr:
            yield from node.attr[argument.type_list_attr].list.type
            continue
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        is_said = argument.type_attr in node.attr  # to read it where it is not would set it
        kind = node.attr[argument.type_attr].type if is_said else _default(definition, argument.type_attr)
        yield from [argument.type or kind] * count


def _default(definition: Any, attribute: str) -> int:
    """Return the default type of an attribute, or 0 for a mandatory attribute."""
    known = (each.default_value.type for each in definition.attr if each.name == attribute)
    return next(known, 0)


@dataclass(frozen=True, slots=True)
class InputCut:
    """A tensor to become an input; `shape` refines the shape in the graph."""

    tensor: str
    shape: tuple[int | None, ...] | None = None


def check_tensors_exist(path: Path, index: Index, names: Iterable[str]) -> None:
    """Raise UsageError for tensors `op:k` missing from the graph, with the nearest names."""
    reasons = []
    for name in names:
        op, k = split(name)
        if op not in index.nodes:
            near = difflib.get_close_matches(op, index.nodes, n=3, cutoff=0.5)
            similar = ", ".join(f"{each}:0" for each in near)
            hint = f"similar names are {similar}" if near else "no name is similar"
            reasons.append(
                f"{path}: tensor {name}: expected a tensor of the graph, found no node {op}; {hint}"
            )
        elif (count := _count_outputs(index.nodes[op])) is not None and not 0 <= k < count:
            reasons.append(
                f"{path}: tensor {name}: expected a tensor of the graph, found that {op} has "
                f"{count} output{'s' * (count != 1)}"
            )
    if reasons:
        raise UsageError(*reasons)


def _count_outputs(node: NodeDef) -> int | None:
    """Count the outputs of a node.

    Returns None if its op is unknown or a function.
    """
    return None if tf_private.find_op(node.op) is None else len([*output_types(node)])


def find_input_pipelines(index: Index, outputs: Iterable[str], *, stop: Iterable[str]) -> list[str]:
    """List the outputs `op:k` of iterators and queues needed by `outputs` beside `stop`."""
    closed = set(stop)
    ends = {split(name)[0] for name in closed}
    needed = index.ancestors((split(name)[0] for name in outputs), stop=ends)
    read = {name for op in needed - ends for name in index.data_inputs(index.nodes[op])}
    return sorted(name for name in read - closed if index.nodes[split(name)[0]].op in ops.STREAMS)


def extract_subgraph(
    graph: Graph, *, inputs: Iterable[InputCut], constants: Mapping[str, Array], outputs: Sequence[str]
) -> tuple[Graph, dict[str, str]]:
    """Extract the subgraph for `outputs`, with `inputs` as placeholders and `constants` bound.

    Also returns the new name of each tensor that became an input or a constant. Raises UsageError for a shape
    that the graph contradicts.
    """
    index, inputs = graph.index, list(inputs)
    if inputs or constants:
        cut_off = index.ancestors(split(name)[0] for name in [*(cut.tensor for cut in inputs), *constants])
        seen = import_checked(extract_nodes(graph, cut_off))
    needed = index.ancestors((split(name)[0] for name in outputs), stop={split(f.tensor)[0] for f in inputs})
    taken, moved, placeholders = set(index.nodes), {}, []
    for cut in inputs:
        op, k = split(cut.tensor)
        # The first output keeps the op's own name; nothing else of the op is left to need it.
        name = op if k == 0 and _is_free(index, op, inputs, needed) else claim(f"{op}_{k}", taken)
        moved[cut.tensor] = f"{name}:0"
        dtype, shape = _dtype_and_shape(seen, cut.tensor)
        shape = shape if shape.rank is not None else _read_noted_shape(index.nodes[op], k)
        placeholders.append(node_defs.placeholder(name, dtype, _refine_shape(cut, shape)))
    inside = control_flow.inside(index) if constants else set()
    for name, value in constants.items():
        op, k = split(name)
        node = index.nodes[op]
        fresh = op if k == 0 and node.op in ops.PLACEHOLDERS else claim(f"{op}_{k}_set", taken)
        moved[name] = f"{fresh}:0"
        if node.op in ops.ENTERS:  # outside of the loop, and taken into it as before
            outside = claim(f"{op}_outside", taken)
            placeholders.append(node_defs.constant(outside, value))
            placeholders.append(node_defs.copy_node(node, name=fresh, op="Enter", inputs=[outside]))
            continue
        # In its loop or branch because it waits for what is there.
        wait = [f"^{_find_anchor(index, op)}"] if op in inside and node.input else []
        placeholders.append(node_defs.constant(fresh, value, control=wait))
    return _redirect(graph, placeholders, moved, [moved.get(name, name) for name in outputs]), moved


def _find_anchor(index: Index, op: str) -> str:
    """Return an op with few needs, run whenever `op` runs.

    In a loop it is a loop's variable, if there is one.
    """
    frames = control_flow.frames(index)
    around = frames.get(op, ())
    if not around:
        return split(index.nodes[op].input[0])[0]
    own = [node for node in index.nodes.values() if frames.get(node.name) == around]
    conditions = [node.name for node in own if node.op == "LoopCond"]
    if op in index.ancestors(conditions):
        names = [node.name for node in own if node.op in ops.MERGES]
    else:  # in the body, which does not run once more at the end
        taken = {
            f"{node.name}:1"
            for node in own
            if node.op in ops.SWITCHES and split(node.input[1])[0] in conditions
        }
        names = [node.name for node in own if node.op in ops.IDENTITIES and tensor(node.input[0]) in taken]
    return min(
        names, key=lambda name: len(index.ancestors([name])), default=split(index.nodes[op].input[0])[0]
    )


def _dtype_and_shape(seen: tf.Graph, name: str) -> tuple[tf.DType, tf.TensorShape]:
    """Return dtype and shape of a tensor; for a handle or reference, of the variable."""
    placed = seen.get_tensor_by_name(name)
    if placed.op.type == "VarHandleOp":
        return placed.op.get_attr("dtype"), tf.TensorShape(placed.op.get_attr("shape"))
    if placed.dtype in (tf.resource, tf.variant):
        what = "expected numbers, found a handle of TensorFlow"
        raise UsageError(f"tensor {name}: {what}; name an output of the op that reads it")
    return placed.dtype.base_dtype, placed.shape


def _read_noted_shape(node: NodeDef, k: int) -> tf.TensorShape:
    """Return output `k`'s shape as noted by the graph's writer.

    A queue has no other.
    """
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else []
    try:
        return tf.TensorShape(shapes[k] if k < len(shapes) else None)
    except ValueError:
        return tf.TensorShape(None)


def _is_free(index: Index, op: str, inputs: list[InputCut], needed: set[str]) -> bool:
    """Return True if `op` is a placeholder, or all used outputs are cut.

    Nodes that wait for a placeholder may wait for the new one.
    """
    if index.nodes[op].op in ops.PLACEHOLDERS:
        return True
    cut_here = {split(cut.tensor)[1] for cut in inputs if split(cut.tensor)[0] == op}
    readers = (node for node in index.consumers(op) if node.name in needed)
    used = {split(name)[1] for node in readers for name in node.input if split(name)[0] == op}
    return used <= cut_here


def _refine_shape(cut: InputCut, shape: tf.TensorShape) -> tf.TensorShape:
    wanted = tf.TensorShape(cut.shape) if cut.shape is not None else shape
    if not wanted.is_compatible_with(shape) or (wanted != shape and wanted != wanted.merge_with(shape)):
        raise reject_shape(cut.tensor, "the graph's", shape, wanted)
    return wanted.merge_with(shape)


def reject_shape(name: str, whose: str, shape: tf.TensorShape, wanted: tf.TensorShape) -> UsageError:
    """Return the error for a shape in `--inputs` contradicting a tensor's `shape`."""
    known, asked = shape_as_text(shape), shape_as_text(wanted)
    expected = f"expected {whose} shape {known}, where only ? may change, found {asked} in --inputs"
    return UsageError(f"tensor {name}: {expected}; give {name}{known}")


def shape_as_text(shape: Iterable[int | None]) -> str:
    """Write a shape in the form of `--inputs`."""
    return f"[{','.join('?' if width is None else str(width) for width in shape)}]"


def _redirect(
    graph: Graph, placeholders: list[NodeDef], moved: Mapping[str, str], outputs: list[str]
) -> Graph:
    """Add `placeholders`, redirect readers of `moved` tensors, and prune to `outputs`."""
    fresh = {node.name for node in placeholders}
    references = {name: reference(new) for name, new in moved.items()}
    nodes = []
    for old in graph.node:
        node = node_defs.redirect(old, references)
        if old.input and tensor(old.input[0]) in moved:  # where a handle would stand; indices may move too
            node = read_value(node)
        nodes += [] if node.name in fresh else [node]
    needed = prune(Graph(graph, [*placeholders, *nodes]), outputs)
    return drop_uncalled_functions(share_without_devices(needed))


def read_value(node: NodeDef) -> NodeDef:
    """Return a node's replacement for a resource variable turned into a plain tensor."""
    if node.op == "ReadVariableOp":
        source, *control = node.input
        return node_defs.identity(node.name, source, node.attr["dtype"].type, control=control)
    if node.op == "ResourceGather":
        dtype, indices = (tf.as_dtype(node.attr[key].type) for key in ("dtype", "Tindices"))
        return node_defs.node(node.name, "Gather", node.input, Tparams=dtype, Tindices=indices)
    return node


def parse_value(seen: tf.Graph, name: str, text: str) -> Array:
    """Parse the TEXT of `--set NAME=TEXT` in the tensor's dtype and, if fixed, shape.

    A tensor of unknown rank is a scalar. Raises UsageError.
    """
    dtype, known = _dtype_and_shape(seen, name)
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
