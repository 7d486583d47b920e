"""What a proof by random inputs must know of a plan's inputs, and the flags that say it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import build, cut, tables
from cudnn_convert.graph.index import INPUT, split
from cudnn_convert.plan import Plan

#: In the order in which ranks are tried: sequences of vectors, of ids, a row each, pictures, films.
_RANKS: Final = (3, 2, 1, 4, 5)

Shape = tuple[int | None, ...]


def undrawable(plan: Plan) -> list[str]:
    """A reason for each input of which no random values can be drawn, with the flags that help."""
    if plan.graph is None:
        return []
    asked = {split(name)[0] for name in plan.signature.inputs.values()}
    if all(_is_plain(node) for node in plan.graph.node if node.name in asked):
        return []
    return [*_undrawable(plan, build.imported(plan.graph))]


def _is_plain(node: Any) -> bool:
    """Whether a placeholder says itself that it takes an array of numbers: TensorFlow need not be asked."""
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    return shape is not None and bool(shape.dim) and node.attr["dtype"].type != tf.string.as_datatype_enum


def _undrawable(plan: Plan, seen: tf.Graph) -> Iterator[str]:
    origin = dict(zip(plan.signature.inputs.values(), plan.source.inputs.values(), strict=True))
    tensors = {name: seen.get_tensor_by_name(name) for name in origin}
    unknown = [name for name, found in tensors.items() if found.shape.rank is None]
    shapes = {name: shape for name in unknown if (shape := _likely(plan, name)) is not None}
    for name, found in tensors.items():
        if name in unknown:
            cure = f"refine it: --inputs {_inputs(plan, shapes)}" if name in shapes else "cut behind it"
            yield f"{origin[name]}: expected a known rank, found none; {cure}"
        elif found.dtype == tf.string and not _has_words(plan):
            yield f"{origin[name]}: expected numbers, found strings; give --data"
        elif found.dtype.is_integer and found.shape.rank == 0:
            expected = "expected to know what this integer means, found no hint"
            yield f"{origin[name]}: {expected}; give --data, or bind it with --set {origin[name]}=VALUE"


def _has_words(plan: Plan) -> bool:
    """Whether a table of the model has strings for keys, of which inputs can be drawn."""
    return bool(plan.initializers) and any(
        node.op in tables.TABLES and node.attr["key_dtype"].type == tf.string.as_datatype_enum
        for node in plan.graph.node
    )


def _inputs(plan: Plan, shapes: Mapping[str, Shape]) -> str:
    """All inputs as `--inputs` takes them, for it names all or none; the shapes are by the plan's tensors."""
    pairs = zip(plan.source.inputs.items(), plan.signature.inputs.values(), strict=True)
    return shlex.quote(
        ",".join(f"{key}={tensor}{_bracketed(shapes.get(name))}" for (key, tensor), name in pairs)
    )


def _bracketed(shape: Shape | None) -> str:
    return "" if shape is None else cut.written(shape)


def _likely(plan: Plan, name: str) -> Shape | None:
    """The shape of the lowest demand that the graph takes, with the width that a recurrence asks for."""
    for rank in _RANKS:
        shape: Shape = (None,) * rank
        widths = _widths(plan, name, shape)
        if widths is None:
            continue
        for one in plan.recurrences:
            if widths[one.node] not in (None, one.sizes.input_size):
                break
            for axis in reversed(range(rank)):
                wide = tuple(one.sizes.input_size if k == axis else None for k in range(rank))
                more = _widths(plan, name, wide)
                if widths[one.node] is None and more is not None and more[one.node] is not None:
                    return wide
        else:
            return shape
    return None


def _widths(plan: Plan, name: str, shape: Shape) -> dict[str, int | None] | None:
    """The width of each recurrence's input where a placeholder has a shape, None where it cannot have it."""
    (op, _), graph = name.rsplit(":", 1), plan.graph
    nodes = {node.name: node for node in graph.node}
    dtype = tf.as_dtype(nodes[op].attr["dtype"].type)
    made = build.rewritten(graph, {op: build.placeholder(op, dtype, tf.TensorShape(shape))})
    try:
        seen: Any = build.sound(made)
    except InvalidModelError:
        return None
    found = {one.node: seen.get_operation_by_name(one.node).inputs[INPUT].shape for one in plan.recurrences}
    return {node: known[-1] if known.rank else None for node, known in found.items()}
