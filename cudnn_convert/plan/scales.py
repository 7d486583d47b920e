"""Finds the scale of an output for tokens: probabilities, log probabilities or logits.

Names decide nothing. `find_scale` looks at the ops alone and says nothing where they leave it open;
`verification/scales.py` looks at the numbers.
"""

from collections.abc import Mapping
from typing import Any, Final

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import Index

PROBABILITIES: Final = "probabilities"
LOG_PROBABILITIES: Final = "log_probabilities"
LOGITS: Final = "logits"
SCALES: Final = (PROBABILITIES, LOG_PROBABILITIES, LOGITS)
#: What carries numbers of tokens to an output.
CARRIERS: Final = ops.COPIES | frozenset(
    "IdentityN Cast Reshape Transpose Squeeze ExpandDims EnsureShape".split()
)
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D")
#: The scale of what an op gives, whatever it takes.
_OWN: Final[Mapping[str, str]] = {
    "Softmax": PROBABILITIES,
    "LogSoftmax": LOG_PROBABILITIES,
    **dict.fromkeys(_PRODUCTS, LOGITS),
}
_MIXTURES: Final = ops.SUMS | frozenset("BiasAdd BiasAddV1 Sub Mul RealDiv Div".split())
#: Keep numbers within bounds.
_BOUNDS: Final = frozenset("ClipByValue Minimum Maximum".split())
_PASSING: Final = _MIXTURES | _BOUNDS | {"Log"}
#: How many sums and products of an output are looked through.
_DEPTH: Final = 8


def find_scale(index: Index, name: str, depth: int = _DEPTH) -> str | None:
    """Return the scale of a tensor `op:k`, from `SCALES`, as told by the ops.

    The ops are those that make the tensor. None where they do not tell.
    """
    node = index.maker(name, CARRIERS)
    own = _OWN.get(node.op, PROBABILITIES if _is_softmax(index, node) else None)
    if own is not None or not depth or node.op not in _PASSING:
        return own
    parts = {find_scale(index, part, depth - 1) for part in index.data_inputs(node)}
    known = parts - {None}
    scale = known.pop() if len(known) == 1 else None
    if node.op == "Log":
        return LOG_PROBABILITIES if scale == PROBABILITIES else None
    # Probabilities and a number that is none: against the logarithm of zero.
    is_kept = node.op in _BOUNDS or (node.op in ops.SUMS and scale == PROBABILITIES and None in parts)
    return scale if is_kept or scale == LOGITS else None


def _is_softmax(index: Index, node: Any) -> bool:
    """Return True if a node divides exponentials by a sum, as Keras' three-axis softmax."""
    if node.op not in ("RealDiv", "Div"):
        return False
    above, below = (index.maker(name, CARRIERS) for name in index.data_inputs(node))
    return above.op == "Exp" and below.op == "Sum" and index.maker(below.input[0], CARRIERS) is above
