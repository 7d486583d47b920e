"""Finds the scores, transitions and lengths read by the likelihood of a linear-chain CRF.

Its forward algorithm adds a square matrix of transitions to the scores of the tags before, step by step:

    alphas = logsumexp(expand(alphas) + expand(transitions)) + scores[t]

A decoder in Python, such as `viterbi_decode`, takes them: neither alone says what the model gives.
Source: tensorflow v1.15.0 contrib/crf/python/ops/crf.py CrfForwardRnnCell, crf_log_likelihood, which gives
`maximum(lengths - 1, 0)` to `dynamic_rnn`; python/ops/rnn.py _rnn_step compares it with each step's number.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, split, walk

_FORMS: Final = ops.IDENTITIES | ops.PASSAGES | {"ReadVariableOp", "ExpandDims", "Reshape"}
_MOVED: Final = ops.IDENTITIES | ops.PASSAGES | {"Cast"}
_SHIFTS: Final = frozenset({"Maximum", "Sub"}) | ops.SUMS
_SUMMED: Final = _MOVED | {"Sum"}


def find_chains(
    graph: Graph, heads: Collection[str], find_tensor: Callable[[str], tf.Tensor]
) -> list[tuple[str, str]]:
    """Return pairs of scores, from `heads`, and the transitions `op:0` added to the scores.

    `heads` are tensors of one width each, `[..., tags]`; transitions are a variable `[tags, tags]`.
    `find_tensor` gives a tensor of the imported graph by name.
    """
    chains = []
    for name in (node.name for node in graph.node if node.op in ops.VARIABLES):
        tags = _count_tags(graph, name)
        if tags and _is_added(graph, name):
            behind = graph.index.descendants([name])
            for head in heads:
                if _width(find_tensor(head)) == tags and graph.index.descendants([split(head)[0]]) & behind:
                    chains.append((head, f"{name}:0"))
    return chains


def find_lengths(graph: Graph, transitions: str) -> list[str]:
    """Return the lengths `op:k`, `[batch]`, used to end the loops reading `transitions`.

    Not those that are fed, nor the sums of a mask that is: who runs the model knows them.
    """
    index, frames = graph.index, control_flow.frames(graph.index)
    behind = index.descendants([split(transitions)[0]])
    loops = {frames[name][-1] for name in behind if index.nodes[name].op in ops.ENTERS and frames.get(name)}
    ends = (
        index.data_inputs(node)[1]
        for node in graph.node
        if node.op == "GreaterEqual" and frames.get(node.name) and frames[node.name][-1] in loops
    )
    lengths = dict.fromkeys(_follow(index, end) for end in ends)
    return [
        name
        for name in lengths
        if graph.shapes.get_tensor_by_name(name).shape.rank == 1 and _is_counted(index, name)
    ]


def _follow(index: Index, name: str) -> str:
    """Follow a tensor back through moves and through arithmetic with a constant."""
    while True:
        name = index.origin(name, _MOVED)
        node = index.nodes[split(name)[0]]
        operands = index.data_inputs(node)
        variable = [operand for operand in operands if index.nodes[split(operand)[0]].op != "Const"]
        if node.op not in _SHIFTS or len(variable) != 1:
            return name
        name = variable[0]


def _is_counted(index: Index, name: str) -> bool:
    """Return True if lengths are counted from fed tensors by more than a sum."""
    return index.maker(name, _SUMMED).op not in ops.PLACEHOLDERS


def _count_tags(graph: Graph, variable: str) -> int | None:
    """Return the number of tags, the size of a square variable.

    Returns None for any other variable.
    """
    attributes = graph.index.nodes[variable].attr
    sizes = [int(axis.size) for axis in attributes["shape"].shape.dim] if "shape" in attributes else []
    return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] > 1 else None


def _is_added(graph: Graph, variable: str) -> bool:
    """Return True if a variable is added to values, and absent from matrix products."""
    index = graph.index

    def onward(op: str) -> Iterator[str]:
        return (reader.name for reader in index.consumers(op) if reader.op in _FORMS)

    forms = {*walk([variable], onward)}
    readers = {reader.op for form in forms for reader in index.consumers(form) if reader.name not in forms}
    return bool(readers & ops.SUMS) and not readers & {"MatMul", "BatchMatMul", "BatchMatMulV2"}


def _width(head: tf.Tensor) -> int | None:
    return head.shape[-1] if head.shape.rank and head.dtype.is_floating else None
