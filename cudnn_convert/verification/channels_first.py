"""Runs a source's convolutions, pools and normalisations with missing CPU kernels.

TensorFlow has no kernel for them on every CPU. Those of channels first get the judge's own transpositions
around TensorFlow's kernels for `NHWC`. Convolutions that no kernel for `NHWC` computes either without oneDNN
are computed in float64, by `reference.convolutions`. All is written apart from the passes that lower such
ops, and shares nothing with them: each op stands alone here, and no layout goes on. Source: tensorflow
v2.21.0 core/util/tensor_format.h (GetTensorDimIndex), core/ops/nn_ops.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import control_flow, function_graphs, node_defs
from cudnn_convert.graph.graph import Graph, copy_graph
from cudnn_convert.graph.index import Index, library
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private
from cudnn_convert.reference import convolutions

#: The input that is an image, by op; of all others it is the first.
IMAGE: Final = {"Conv2DBackpropInput": 2, "Conv3DBackpropInputV2": 2}
#: Inputs with a size for each axis.
ROWS: Final = {"Conv2DBackpropInput": (0,), "Conv3DBackpropInputV2": (0,), "MaxPoolV2": (1, 2)}
_PER_AXIS: Final = ("ksize", "strides", "dilations")
FORMATS: Final = {"NCHW": "NHWC", "NCDHW": "NDHWC"}
#: The name of what the judge adds to a node.
MARK: Final = "/judged"
DILATED: Final = frozenset({"Conv3D", "Conv2DBackpropInput", "Conv3DBackpropInputV2"})


def run_on_any_cpu(graph: Any) -> list[Any]:
    """Let each node of a GraphDef compute as any CPU can, in place.

    Returns the functions that it calls, which the caller keeps.
    """
    functions = [_compute(node) for nodes in _bodies(graph) for node in nodes if _needs_reference(node)]
    _run_channels_last(graph)
    for node in [*filter(is_only_single, graph.node)]:
        _run_in_single(graph, node)
    return functions


#: Ops that no CPU computes in half.
_ONLY_SINGLE: Final = frozenset(
    "AdjustContrastv2 AdjustHue AdjustSaturation AvgPool3D MaxPool3D Rint BatchMatMulV3".split()
)
HALF: Final = tf.float16.as_datatype_enum


def is_only_single(node: Any) -> bool:
    """Whether a node of half has no kernel on a CPU."""
    return node.op in _ONLY_SINGLE and any(value.type == HALF for value in node.attr.values())


def _run_in_single(graph: Any, node: Any) -> None:
    """Compute a node of half in float32, in place.

    The name of the node becomes the name of the rounded value.
    """
    wide = node_defs.copy_node(node, name=f"{node.name}{MARK}/single")
    halves = {key for key, value in node.attr.items() if value.type == HALF}
    for key in halves:
        wide.attr[key].type = tf.float32.as_datatype_enum
    known = tf_private.find_op(node.op)
    for position, argument in enumerate(known.input_arg):
        if argument.type_attr in halves:
            cast = f"{wide.name}/input_{position}"
            kinds = {"SrcT": tf.float16, "DstT": tf.float32}
            graph.node.append(node_defs.node(cast, "Cast", [node.input[position]], **kinds))
            wide.input[position] = cast
    end = tf.float16 if known.output_arg[0].type_attr in halves else tf.float32
    node.CopyFrom(node_defs.node(node.name, "Cast", [wide.name], SrcT=tf.float32, DstT=end))
    graph.node.append(wide)


def _bodies(graph: Any) -> Iterator[Any]:
    yield graph.node
    yield from (function.node_def for function in graph.library.function)


def _needs_reference(node: Any) -> bool:
    """Return True if oneDNN alone has a kernel for a convolution, in any layout."""
    if node.op not in DILATED | {"DepthwiseConv2dNative"}:
        return False
    rows = [k for k, axis in enumerate(_read_layout(node)) if axis not in "NC"]
    dilations = node.attr["dilations"].list.i if "dilations" in node.attr else []
    strides = [node.attr["strides"].list.i[k] for k in rows]
    is_unequal = node.op == "DepthwiseConv2dNative" and len({*strides}) > 1
    return is_unequal or any(dilation != 1 for dilation in dilations)


def _read_layout(node: Any) -> str:
    """Return the axes of a convolution's images."""
    default = "NDHWC" if node.op.startswith("Conv3D") else "NHWC"
    return (node.attr["data_format"].s.decode() if "data_format" in node.attr else "") or default


def _read_type(node: Any) -> tf.DType:
    """Return the type of a node's image.

    Files leave out float where it is the default, as of pools.
    """
    return tf.as_dtype(node.attr["T"].type) if "T" in node.attr else tf.float32


def _compute(node: Any) -> Any:
    """Make a PyFunc of a convolution, in place."""
    layout, kind = _read_layout(node), _read_type(node)
    rows, channel = [k for k, axis in enumerate(layout) if axis not in "NC"], layout.index("C")
    lists = {key: [*node.attr[key].list.i] if key in node.attr else [] for key in _PER_AXIS}
    pairs = [*node.attr["explicit_paddings"].list.i] if "explicit_paddings" in node.attr else []
    none = tuple((pairs[2 * k], pairs[2 * k + 1]) if pairs else (0, 0) for k in rows)
    window = convolutions.Window(
        tuple(lists["strides"][k] for k in rows),
        tuple(lists["dilations"][k] if lists["dilations"] else 1 for k in rows),
        None if node.attr["padding"].s == b"SAME" else none,
    )
    op = node.op

    def compute(*given: Array) -> Array:
        image = np.moveaxis(given[IMAGE.get(op, 0)], channel, -1)
        if op in IMAGE:
            sizes = given[0] if len(given[0]) == len(rows) else given[0][rows]
            result = convolutions.spread([*map(int, sizes)], given[1], image, window)
        elif op == "DepthwiseConv2dNative":
            result = convolutions.convolve_depthwise(image, given[1], window)
        else:
            result = convolutions.convolve(image, given[1], window)
        return np.ascontiguousarray(np.moveaxis(result, -1, channel), kind.as_numpy_dtype)

    token = tf_private.register_function(compute)
    types = [tf.int32, kind, kind] if op in IMAGE else [kind] * 2
    node.CopyFrom(node_defs.node(node.name, "PyFunc", node.input, token=token, Tin=types, Tout=[kind]))
    return compute


def _run_channels_last(graph: Any) -> None:
    """Let each node with channels-first images compute channels last, in place.

    The node keeps its name, which becomes that of the image transposed back.
    """
    functions = library(graph)
    for function in graph.library.function:
        if any(map(_read_format, function.node_def)):
            body = copy_graph(function_graphs.make_graph(function, functions))
            body.ClearField("library")
            _run_channels_last(body)
            function.CopyFrom(function_graphs.with_body(function, Graph(body), functions))
    nodes = [node for node in graph.node if _read_format(node)]
    if not nodes:
        return
    frames = control_flow.frames(Index(graph))
    shapes = Graph.of(graph).first_iteration  # behind a loop others are not known
    for node in nodes:
        rank = shapes.get_tensor_by_name(f"{node.name}:0").shape.rank if node.op == "BiasAdd" else None
        others = [f"{node.name}:{k}" for k in range(1, 6)]
        renamed = _turn(graph.node, node, rank, in_loop=bool(frames.get(node.name)))
        for reader in graph.node:
            for position, name in enumerate(reader.input):
                if name in others:
                    reader.input[position] = f"{renamed}:{name.rpartition(':')[2]}"


def _read_format(node: Any) -> str:
    """Return a node's image format if channels first, else ""."""
    text = node.attr["data_format"].s.decode() if "data_format" in node.attr else ""
    return text if text in FORMATS else ""


def _turn(nodes: Any, node: Any, rank: int | None, *, in_loop: bool) -> str:
    """Add a channels-last node, and rename the image transposed back to the old name."""
    first = _read_format(node)
    if node.op == "BiasAdd" and rank is not None:
        first = "NC" + "DHWXYZ"[: rank - 2]
    last = first[0] + first[2:] + "C"
    ahead, back = [first.index(axis) for axis in last], [last.index(axis) for axis in first]
    wait = [f"^{node.input[0].partition(':')[0]}"] if in_loop else []
    turned = node_defs.copy_node(node, name=f"{node.name}{MARK}")
    turned.attr["data_format"].s = FORMATS[_read_format(node)].encode()
    kind, added = _read_type(node), []

    def move(name: str, source: str, order: Sequence[int]) -> Any:
        perm = node_defs.constant(f"{name}/perm", np.array(order, np.int32), control=wait)
        added.append(perm)
        return node_defs.node(name, "Transpose", [source, perm.name], T=kind, Tperm=tf.int32)

    image = IMAGE.get(node.op, 0)
    added.append(move(f"{turned.name}/image", node.input[image], ahead))
    turned.input[image] = f"{turned.name}/image"
    for position in ROWS.get(node.op, ()):
        name = f"{turned.name}/sizes_{position}"
        added += _pick(name, node.input[position], ahead, wait)
        turned.input[position] = name
    _move_attributes(turned, ahead)
    end = move(node.name, turned.name, back)
    node.CopyFrom(end)
    nodes.extend([*added, turned])
    return str(turned.name)


def _pick(name: str, source: str, order: Sequence[int], wait: Sequence[str]) -> Iterator[Any]:
    at = node_defs.constant(f"{name}/order", np.array(order, np.int32), control=wait)
    axis = node_defs.constant(f"{name}/axis", np.array(0, np.int32), control=wait)
    kinds = {"Tparams": tf.int32, "Tindices": tf.int32, "Taxis": tf.int32}
    yield from (at, axis, node_defs.node(name, "GatherV2", [source, at.name, axis.name], **kinds))


def _move_attributes(node: Any, order: Sequence[int]) -> None:
    for key in _PER_AXIS:
        values = list(node.attr[key].list.i) if key in node.attr else []
        for position, axis in enumerate(order if values else ()):
            node.attr[key].list.i[position] = values[axis]
    pairs = list(node.attr["explicit_paddings"].list.i) if "explicit_paddings" in node.attr else []
    for position, axis in enumerate(order if pairs else ()):
        node.attr["explicit_paddings"].list.i[2 * position] = pairs[2 * axis]
        node.attr["explicit_paddings"].list.i[2 * position + 1] = pairs[2 * axis + 1]
