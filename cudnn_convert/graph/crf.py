"""Finds the scores and transitions that the likelihood of a linear-chain CRF reads.

Its forward algorithm adds a square matrix of transitions to the scores of the tags before, step by step:

    alphas = logsumexp(expand(alphas) + expand(transitions)) + scores[t]

A decoder in Python, such as `viterbi_decode`, takes both: neither alone says what the model gives.
Source: tensorflow v1.15.0 contrib/crf/python/ops/crf.py CrfForwardRnnCell, crf_log_likelihood.
"""

from collections.abc import Collection, Iterator
from typing import Final

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import split, walk
from cudnn_convert.graph.node_defs import Graph

_FORMS: Final = ops.IDENTITIES | ops.PASSAGES | {"ReadVariableOp", "ExpandDims", "Reshape"}


def find_chains(graph: Graph, heads: Collection[str]) -> list[tuple[str, str]]:
    """Pairs of scores, one of the tensors `heads`, and the transitions `op:0` that are added to them.

    `heads` are tensors of one width each, `[..., tags]`; transitions are a variable `[tags, tags]`.
    """
    chains = []
    for node in graph.node:
        if (
            node.op in ops.VARIABLES
            and (tags := _count_tags(graph, node.name))
            and _is_added(graph, node.name)
        ):
            behind = graph.index.descendants([node.name])
            for head in heads:
                if _width(graph, head) == tags and graph.index.descendants([split(head)[0]]) & behind:
                    chains.append((head, f"{node.name}:0"))
    return chains


def _count_tags(graph: Graph, variable: str) -> int | None:
    """The size of a square variable of floats, else None."""
    shape = (
        graph.index.nodes[variable].attr["shape"].shape
        if "shape" in graph.index.nodes[variable].attr
        else None
    )
    sizes = [int(axis.size) for axis in shape.dim] if shape is not None else []
    return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] > 1 else None


def _is_added(graph: Graph, variable: str) -> bool:
    """Whether a variable is added to the values of a step, and multiplies nothing."""
    index = graph.index

    def onward(op: str) -> Iterator[str]:
        return (reader.name for reader in index.consumers(op) if reader.op in _FORMS)

    forms = {*walk([variable], onward)}
    readers = {reader.op for form in forms for reader in index.consumers(form) if reader.name not in forms}
    return bool(readers & ops.SUMS) and not readers & {"MatMul", "BatchMatMul", "BatchMatMulV2"}


def _width(graph: Graph, name: str) -> int | None:
    head = graph.shapes.get_tensor_by_name(name)
    return head.shape[-1] if head.shape.rank and head.dtype.is_floating else None
