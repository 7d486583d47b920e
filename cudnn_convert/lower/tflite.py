"""The lowering for TensorFlow Lite: each recurrence a loop of its ops, and float32 throughout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import build, written
from cudnn_convert.graph.index import INPUT, Index, split, tensor, unique
from cudnn_convert.graph.variables import as_resources
from cudnn_convert.lower import freeze, onnx_block, tensorflow
from cudnn_convert.lower.tflite_loop import FORM, names_of_loops
from cudnn_convert.model import WAYS, Recurrence, Tensor

_FLOAT: Final = tf.float32.as_datatype_enum
#: TensorFlow Lite has a few kernels for these types, and not those that a recurrence needs.
_OTHERS: Final[dict[int, str]] = {
    tf.float64.as_datatype_enum: "float64",
    tf.float16.as_datatype_enum: "float16",
    tf.bfloat16.as_datatype_enum: "bfloat16",
}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A GraphDef, and `pieces`: which loop of it computes which layer and direction of which recurrence."""

    graph: Any
    pieces: tuple[dict[str, Any], ...]


def lower(
    graph: Any, recurrences: Sequence[Recurrence], values: Mapping[str, Tensor], *, ends: Sequence[str]
) -> Lowered:
    """A graph of constants, float32 wherever `graph` has another float type; tensor names stay.

    `values` are those of the source's variables, `ends` the tensors of the signature, inputs too. Block
    LSTMs, which TensorFlow Lite does not know, become loops as they do on the way to ONNX. Raises
    UnsupportedModelError where one of those stands inside a loop, or where the constants would not fit a
    GraphDef.
    """
    made = _lowered(graph, recurrences, values, ends)
    made, blocks = onnx_block.lowered(made, ends)
    made = _unchecked(_single(_lowered(made, blocks, {}, ends) if blocks else made))
    return Lowered(made, tuple(_pieces([*recurrences, *blocks])))


def _pieces(recurrences: Sequence[Recurrence]) -> Iterator[dict[str, Any]]:
    for one in recurrences:
        for layer, names in enumerate(names_of_loops(one.sizes)):
            for direction, name in zip(WAYS, names, strict=False):
                loop = f"{one.node}/{name}"
                yield {"piece": loop, "node": one.node, "layer": layer, "direction": direction}


def notes(graph: Any) -> tuple[str, ...]:
    """What becomes of the graph's float types."""
    kinds = {value.type for node in graph.node for value in node.attr.values()} & _OTHERS.keys()
    names = " and ".join(sorted(_OTHERS[kind] for kind in kinds))
    found = f"{names} becomes float32, inputs and outputs too: TensorFlow Lite has no kernels for it"
    return (found,) if kinds else ()


def _lowered(
    graph: Any, recurrences: Sequence[Recurrence], values: Mapping[str, Tensor], ends: Sequence[str]
) -> Any:
    graph = _behind_switches(graph, recurrences)
    made = tensorflow.lower(graph, recurrences, values, outputs=ends, form=FORM)
    found = as_resources(written.as_resources(made.graph, made.variables), made.variables)
    return freeze.frozen(found, made.variables, ends)


def _behind_switches(graph: Any, recurrences: Sequence[Recurrence]) -> Any:
    """`graph` with an Identity between each recurrence and a Switch that its input comes from.

    Constants of what is put in the node's place hang on the op that its input comes from, and a Switch runs
    whichever branch is taken: the converter would then not know where they belong.
    """
    index, changes, added = Index(graph), {}, []
    for recurrence in recurrences:
        node = index.nodes[recurrence.node]
        if index.nodes[split(node.input[INPUT])[0]].op in ("Switch", "RefSwitch"):
            dtype = tf.as_dtype(recurrence.dtype).as_datatype_enum
            name = unique(f"{node.name}/input", index.nodes)
            added.append(build.identity(name, node.input[INPUT], dtype))
            changes[node.name] = type(node)()
            changes[node.name].CopyFrom(node)
            changes[node.name].input[INPUT] = name
    made = build.rewritten(graph, changes)
    made.node.extend(added)
    return made


def _unchecked(graph: Any) -> Any:
    """`graph`, changed in place: a check of a shape that nothing says beforehand is left out, as in ONNX."""
    seen = build.imported(graph)
    for node in graph.node:
        if node.op == "EnsureShape":
            known = seen.get_tensor_by_name(tensor(node.input[0])).shape
            if not known.is_subtype_of(tf.TensorShape(node.attr["shape"].shape)):
                node.op = "Identity"
                del node.attr["shape"]
    return graph


def _single(graph: Any) -> Any:
    """`graph`, changed in place: every float type becomes float32, in its functions too."""
    functions = graph.library.function
    arguments = (arg for one in functions for arg in (*one.signature.input_arg, *one.signature.output_arg))
    for argument in arguments:
        argument.type = _FLOAT if argument.type in _OTHERS else argument.type
    bodies = (node for one in functions for node in one.node_def)
    build.floats_as((value for node in (*graph.node, *bodies) for value in node.attr.values()), tf.float32)
    return graph
