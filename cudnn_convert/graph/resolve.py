"""From a cuDNN node to a `Recurrence`: its sizes, its weights, and where both came from, all checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert import opaque
from cudnn_convert.errors import CudnnConvertError, ReadError, RefusalError, UnsupportedModelError
from cudnn_convert.graph import build, trace, weights
from cudnn_convert.graph.index import INPUT, INPUT_H, PARAMS, Index
from cudnn_convert.model import Mode, Model, Recurrence, Sizes


def recurrences(model: Model, graph: Any, *, copy: str) -> tuple[Recurrence, ...]:
    """Every cuDNN node of `graph`, decoded; `copy` as in `weights.take`.

    Raises UnsupportedModelError with all reasons at once.
    """
    index = Index(graph)
    reasons: list[str] = []
    found: list[Recurrence] = []
    nodes = trace.recurrences(index)
    seen = build.imported(graph) if nodes else tf.Graph()
    for node in nodes:
        try:
            found.append(_recurrence(model, index, seen, node, copy=copy))
        except ReadError:  # a damaged file, whatever the node
            raise
        except RefusalError as error:
            reasons += error.reasons
        except CudnnConvertError as error:
            reasons.append(f"{node.name}: {error}")
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(found)


def _recurrence(model: Model, index: Index, seen: tf.Graph, node: Any, *, copy: str) -> Recurrence:
    origin = trace.parameters(index, node)
    time_major = "time_major" not in node.attr or bool(node.attr["time_major"].b)
    tensors = seen.get_operation_by_name(node.name).inputs
    facts = _facts(node, tensors[INPUT_H].shape, time_major=time_major)
    reasons = [f"{node.name}: {reason}" for reason in _options(node)]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    found = weights.take(model, index, facts, origin.op, copy=copy)
    reasons = [f"{node.name}: {reason}" for reason in _misfits(tensors, found.sizes, time_major=time_major)]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return Recurrence(
        node=node.name,
        op=node.op,
        sizes=found.sizes,
        time_major=time_major,
        lengths=node.op == "CudnnRNNV3",
        dtype=facts.dtype,
        cells=found.cells,
        evidence=found.evidence,
        shared=origin.op,
        passage=origin.passage,
        dropout=_dropout(node),
    )


def _dropout(node: Any) -> float:
    """The rate between layers; cuDNN applies it in training mode only, which is the op's default."""
    training = "is_training" not in node.attr or node.attr["is_training"].b
    return float(node.attr["dropout"].f) if training and "dropout" in node.attr else 0.0


def _text(node: Any, name: str, default: str) -> str:
    """A string attribute; SavedModels strip those that equal their default."""
    return str(node.attr[name].s.decode()) if name in node.attr and node.attr[name].s else default


def _facts(node: Any, state: tf.TensorShape, *, time_major: bool) -> weights.Facts:
    # Defaults: tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc.
    directions = 2 if _text(node, "direction", "unidirectional") == "bidirectional" else 1
    known = state.as_list() if state.rank == 3 else [None, None, None]
    depth = known[0 if time_major else 1]
    return weights.Facts(
        node=node.name,
        mode=Mode(_text(node, "rnn_mode", "lstm")),
        directions=directions,
        layers=None if depth is None else depth // directions,
        units=known[2],
        dtype=np.dtype(tf.as_dtype(node.attr["T"].type).as_numpy_dtype),
    )


def _options(node: Any) -> Iterator[str]:
    """What no form of the op that TensorFlow's own layers wrote asks for."""
    input_mode = _text(node, "input_mode", "linear_input")
    if input_mode != "linear_input":
        yield f"input_mode: expected linear_input, found {input_mode}, which is not supported"
    if "num_proj" in node.attr and node.attr["num_proj"].i:
        yield f"num_proj: expected 0, found {node.attr['num_proj'].i}; projections are not supported"


def _misfits(tensors: Any, sizes: Sizes, *, time_major: bool) -> Iterator[str]:
    """What the graph says of its shapes must fit the weights; the graph of another model does not."""
    depth = sizes.layers * sizes.directions
    state = [depth, None, sizes.units] if time_major else [None, depth, sizes.units]
    wanted = {INPUT: [None, None, sizes.input_size], INPUT_H: state, PARAMS: [opaque.length(sizes)]}
    for position, shape in wanted.items():
        found = tensors[position].shape
        if not found.is_compatible_with(shape):
            yield (
                f"{tensors[position].name}: expected shape {shape} by the weights, found {found}; "
                "are graph and weights of one model?"
            )
