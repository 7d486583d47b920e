"""Orders the possible output tensors, the likeliest first.

First come tensors with the name of an output (logits, probs, predictions), or that leave a scope with such a
name; then choosing ops (an argmax, a softmax, a decoder), predictions that a loss reads, unread tensors, the
last layer with weights, arithmetic of losses, and what loops hold. Of two equal ones the later in the graph
comes first.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.graph import Graph, extract_nodes, unknown
from cudnn_convert.graph.index import OUTPUTS, AnyGraph, Index, split
from cudnn_convert.graph.training import FedTensor, InferenceNodes, is_named

#: The kind of a tensor of numbers that is no scalar; others are called by their type.
NUMBERS: Final = "numbers"
_SCALAR: Final = "scalar"
_OTHERS: Final = ("bool", "string", "resource", "variant")
MOST: Final = 8
_CALLED: Final = re.compile(
    r"(.*_)?(logits?|prob(s|abilit(y|ies))?|predict(ions?|ed)?|preds?|scores?|softmax|sigmoid|outputs?|classes|"
    r"class_ids|ids|decoded|tags|values|estimates?|actions?|policy)(_\d+)?(_.*)?",
    re.IGNORECASE,
)
CHOOSING: Final = frozenset(
    "ArgMax Softmax LogSoftmax TopKV2 CTCGreedyDecoder CTCBeamSearchDecoder Multinomial".split()
)
#: The last layer with weights, then those before it.
_LAST: Final = 7
#: Arithmetic of losses, then what loops hold.
_OF_A_LOSS: Final = 9
_OF_A_LOOP: Final = 10
_REDUCTIONS: Final = frozenset("Sum Mean Prod Max Min All Any".split())
_ELEMENTWISE: Final = frozenset(
    "Identity Neg Sqrt Square Exp Log Cast Div RealDiv DivNoNan Mul Add AddV2 AddN Sub Maximum Minimum "
    "Select".split()
)
#: What a loss computes of one tensor.
_ARITHMETIC: Final = _ELEMENTWISE - {"Identity", "Cast"} | {"Abs", "Log1p", "Pow", "SquaredDifference"}
#: What draws a choice, such as the action of a policy.
_DRAWING: Final = frozenset({"Multinomial", "StatelessMultinomial", "RandomUniformInt"})
_NORMAL: Final = frozenset({"RandomStandardNormal", "TruncatedNormal", "StatelessRandomNormal"})


def _list_numbers(graph: AnyGraph, index: Index, names: Collection[str]) -> list[str]:
    """Return the numeric output tensors of the ops `names`, in graph order."""
    kinds = describe_outputs(extract_nodes(graph, index.ancestors(names)), names) if names else {}
    return [name for name, kind in kinds.items() if kind == NUMBERS]


def describe_outputs(graph: Graph, names: Collection[str]) -> dict[str, str]:
    """Return the kind of each output tensor of `names`, for a graph needed whole."""
    seen = graph.shapes
    wanted, listed = frozenset(names), {}
    for node in graph.node:
        if node.name in wanted:
            count = OUTPUTS if node.op in ops.CUDNN else None
            for tensor in seen.get_operation_by_name(node.name).outputs[:count]:
                listed[tensor.name] = _kind(tensor)
    return listed


def _kind(tensor: tf.Tensor) -> str:
    name = tensor.dtype.base_dtype.name
    if tensor.shape.rank == 0 or _is_total(tensor):
        return _SCALAR
    return name if name in _OTHERS else NUMBERS


def _is_total(tensor: tf.Tensor) -> bool:
    """Return True if a tensor of unknown rank is a scalar, by full reductions alone."""
    todo, seen = [tensor], set()
    while todo:
        name = todo.pop()
        op = name.op
        if op.name in seen or name.shape.rank == 0:
            continue
        seen.add(op.name)
        if name.shape.rank is not None:
            return False
        if op.type in _REDUCTIONS and not op.get_attr("keep_dims"):
            axes = op.inputs[1].op
            # tensorflow v1.15.0 python/ops/math_ops.py `_ReductionDims`: range(0, rank(x)).
            if axes.type != "Range" or axes.inputs[1].op.type != "Rank":
                return False
        elif op.type in _ELEMENTWISE and op.inputs:
            todo += op.inputs
        else:
            return False
    return True


def order_candidates(
    graph: AnyGraph, walk: InferenceNodes, leaves: Collection[str], sources: Collection[FedTensor]
) -> list[str]:
    """Return the possible output tensors of a walk, the likeliest first."""
    index = walk.index
    closed = index.descendants(node.name for node in unknown(graph)) | {*_list_latents(walk)[1]}
    closed |= list_drawn(walk)
    reached = [name for name in _list_unlabelled(walk, sources) if name not in closed]
    open_ = [name for name in reached if index.nodes[name].op not in ops.PLACEHOLDERS]
    places = {name: position for position, name in enumerate(index.nodes)}
    ends = {split(leaf)[0] for leaf in leaves}
    ranks: dict[str, int] = {}
    for name, rank in _rank(walk, open_, ends):
        ranks[name] = min(rank, ranks.get(name, rank))
    inside = control_flow.inside(index)
    likely = [name for name in ranks if name not in inside]
    known: dict[str, list[str]] = {}
    for name in _list_numbers(graph, index, likely):
        known.setdefault(split(name)[0], []).append(name)
    # An output of a recurrence is a candidate only if it is a leaf, or if there are no other candidates.
    behind = [name for name in known if index.nodes[name].op not in ops.CUDNN or name in ends]
    order = sorted(behind or known, key=lambda name: (ranks[name], -places[name]))
    return [tensor for name in order for tensor in known[name]][:MOST]


def _list_unlabelled(walk: InferenceNodes, sources: Collection[FedTensor]) -> list[str]:
    """Return the nodes of a walk independent of labels."""
    labelled = {name for source in sources if source.is_label for name in source.below}
    return [name for name in walk.reached if name not in labelled]


def everywhere(graph: AnyGraph, index: Index) -> list[str]:
    """Return the candidates of a recurrence-free graph: tensors reached from placeholders.

    All unread tensors together come first, then each candidate.
    """
    starts = [node.name for node in index.nodes.values() if node.op in ops.PLACEHOLDERS]
    walk = InferenceNodes(index, starts, ())
    reached = [name for name in walk.reached if name not in starts]
    ends = [name for name in reached if walk.is_unread(name)]
    listed = order_candidates(graph, walk, ends, ()) if ends else []
    unread = [name for name in listed if split(name)[0] in ends and index.nodes[split(name)[0]].op != "Exit"]
    return [",".join(unread), *listed] if unread else listed


def _rank(walk: InferenceNodes, names: list[str], leaves: Collection[str]) -> Iterable[tuple[str, int]]:
    index, known = walk.index, frozenset(names)
    lossy = _list_lossy(walk, names)
    predictions = {split(name)[0] for name in walk.predictions()}
    heavy = {name for name in names if walk.weights(index.nodes[name])}
    for name in names:
        readers = [
            reader.name
            for reader in index.consumers(name)
            if reader.name in known and reader.name not in lossy
        ]
        *scopes, own = name.split("/")
        is_end = name in leaves or name in predictions or not readers
        if _CALLED.fullmatch(own) or _leaves_scope(name, scopes, readers):
            yield name, 0 if is_end else 1
        elif index.nodes[name].op in CHOOSING:
            yield name, 2
        if name in predictions:
            yield name, 3
        if index.nodes[name].op == "Exit":
            yield name, _OF_A_LOOP
        elif name in leaves:
            yield name, 4
        elif name in lossy:
            yield name, _OF_A_LOSS
        elif not readers and not walk.is_for_a_loss(name):
            yield name, 5
        if "/" not in name and is_named(index.nodes[name]):
            yield name, 6
        if name in heavy:
            is_last = heavy.isdisjoint(walk.below([(name, None)]))
            inside = "/".join([*scopes, ""])
            if is_last or not (inside and any(reader.startswith(inside) for reader in readers)):
                yield name, _LAST if is_last else _LAST + 1


def _list_lossy(walk: InferenceNodes, names: list[str]) -> set[str]:
    """Return first steps of unscoped losses: arithmetic of a single tensor, read by training alone."""
    index, known = walk.index, frozenset(names)
    readers: dict[str, set[str]] = {}
    for name in names:
        node = index.nodes[name]
        read = [reader.name for reader in index.consumers(name)]
        operands = [split(source)[0] for source in index.data_inputs(node)]
        is_of_one = sum(operand in known for operand in operands) == 1
        if node.op in _ARITHMETIC and read and is_of_one and not is_named(node):
            readers[name] = {reader for reader in read if reader in known}
    lossy: set[str] = set()
    while steps := {name for name, read in readers.items() if read <= lossy} - lossy:
        lossy |= steps
    return lossy


def list_named(
    graph: AnyGraph, walk: InferenceNodes, outputs: Collection[str], sources: Collection[FedTensor]
) -> list[str]:
    """Return tensors named by the author, read by training alone, and unneeded by outputs."""
    index = walk.index
    names = _list_unlabelled(walk, sources)
    needed = index.ancestors(split(name)[0] for name in outputs)
    own = {name for name in names if is_named(index.nodes[name]) and not walk.is_for_a_loss(name)}
    layers = {name for name in names if walk.weights(index.nodes[name])}
    onward = walk.above([*own, *layers, *needed]).intersection(names)
    inside = control_flow.inside(index)
    unread = [
        name
        for name in names
        if name in own - needed - inside
        and onward.isdisjoint(walk.readers(name))
        and not walk.is_unread(name)
    ]
    return _list_numbers(graph, index, unread)


def list_before_draws(graph: AnyGraph, walk: InferenceNodes) -> list[str]:
    """Return the mean and deviation tensors of a drawn latent vector.

    Empty where there is only one such tensor.
    """
    return _list_numbers(graph, walk.index, _list_latents(walk)[0])


def _list_latents(walk: InferenceNodes) -> tuple[list[str], Collection[str]]:
    """Return the nodes scaling and shifting a normal draw, and the nodes behind the draw."""
    index = walk.index
    drawn = walk.below((node.name, None) for node in index.nodes.values() if node.op in _NORMAL)
    layers = [name for name in drawn if walk.weights(index.nodes[name])]
    latent = walk.above(layers) & drawn.keys()
    names = [
        name
        for name in walk.reached
        if name not in drawn and any(reader.name in latent for reader in index.consumers(name))
    ]
    return (names, drawn) if len(names) > 1 else ([], ())


def list_drawn(walk: InferenceNodes) -> set[str]:
    """Return the draws of choices behind the recurrences, and the nodes behind the draws.

    A decoder that draws its steps in a loop does not count.
    """
    index, inside, drawn = walk.index, control_flow.inside(walk.index), set[str]()
    for node in index.nodes.values():
        if node.op in _DRAWING and node.name not in inside:
            below = {node.name, *walk.below([(node.name, None)])}
            drawn |= below if below.isdisjoint(walk.starts) else set()
    return drawn


def _leaves_scope(name: str, scopes: list[str], readers: list[str]) -> bool:
    """Return True if all readers lie outside a node's innermost scope named as an output."""
    depths = [depth for depth, scope in enumerate(scopes, 1) if _CALLED.fullmatch(scope)]
    innermost = "/".join(scopes[: max(depths)]) + "/" if depths else ""
    return bool(innermost) and not any(reader.startswith(innermost) for reader in readers)
