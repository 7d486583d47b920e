"""Chooses the outputs where neither the user nor a signature names them.

Of replicas of tf.distribute the first counts. Of twins, recurrences with the same parameter variable, those
that training differentiates are dropped, then those in training mode. From the others the walk goes forward
to natural leaves: nodes outside branches that only summaries and metrics read. The leaves are the outputs if
they cover the whole model: every weight, every output of a recurrence and every prediction of a loss, and if
none may be a training metric. Otherwise the user is asked. docs/choosing.md explains it in a page.

The user then gets candidates, the likeliest first: tensors with the name of an output (logits, probs,
predictions), or that leave a scope with such a name; then choosing ops (an argmax, a softmax, a decoder),
predictions that a loss reads, unread tensors, and the last layer with weights. Of two equal ones the later in
the graph comes first.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tensorflow as tf

from cudnn_convert.errors import AmbiguousSourceError, Reason, Remedy, UnsupportedModelError
from cudnn_convert.graph import control_flow, crf, node_defs, ops
from cudnn_convert.graph.index import OUTPUTS, AnyGraph, Index, NodeDef, split
from cudnn_convert.graph.training import Source, Walk, is_named
from cudnn_convert.recurrences import parameter_source

#: The kind of a tensor of numbers that is no scalar; others are called by their type.
NUMBERS: Final = "numbers"
_SCALAR: Final = "scalar"
_OTHERS: Final = ("bool", "string", "resource", "variant")
_MOST: Final = 8
_LAST: Final = 7
_CALLED: Final = re.compile(
    r"(.*_)?(logits?|prob(s|abilit(y|ies))?|predict(ions?|ed)?|preds?|scores?|softmax|sigmoid|outputs?|classes|"
    r"class_ids|ids|decoded|tags|values|estimates?|actions?|policy)(_\d+)?(_.*)?",
    re.IGNORECASE,
)
_CHOOSING: Final = frozenset(
    "ArgMax Softmax LogSoftmax TopKV2 CTCGreedyDecoder CTCBeamSearchDecoder Multinomial".split()
)
_REDUCTIONS: Final = frozenset("Sum Mean Prod Max Min All Any".split())
_ELEMENTWISE: Final = frozenset(
    "Identity Neg Sqrt Square Exp Log Cast Div RealDiv DivNoNan Mul Add AddV2 AddN Sub Maximum Minimum "
    "Select".split()
)


def _ask(reason: str, sets: Iterable[str], lead: str = "; choose with") -> Reason:
    """A reason to choose one of several sets of outputs, the likeliest first."""
    remedies = [Remedy({"outputs": (outputs,)}) for outputs in [*dict.fromkeys(sets)][:_MOST]]
    advice = f"{lead} {' | '.join(map(str, remedies))}" if remedies else "; name --outputs"
    return Reason(f"{reason}{advice}", *remedies)


def describe_candidates(graph: AnyGraph, index: Index, names: Collection[str]) -> dict[str, str]:
    """The kind of each output tensor of the ops `names`, in graph order."""
    seen = node_defs.import_checked(node_defs.extract_nodes(graph, index.ancestors(names)))
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
    """Whether a tensor of unknown rank is a scalar, computed from full reductions alone."""
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
    graph: AnyGraph, walk: Walk, leaves: Collection[str], sources: Collection[Source]
) -> list[str]:
    """The tensors of a walk that may be outputs, the likeliest first."""
    index = walk.index
    closed = {name for source in sources if source.is_label for name in source.below}
    closed |= index.descendants(node.name for node in node_defs.unknown(graph))
    reached = [name for name in walk.reached if name not in closed]
    open_ = [name for name in reached if index.nodes[name].op not in ops.PLACEHOLDERS]
    places = {name: position for position, name in enumerate(index.nodes)}
    ends = {split(leaf)[0] for leaf in leaves}
    ranks: dict[str, int] = {}
    for name, rank in _rank(walk, open_, ends):
        ranks[name] = min(rank, ranks.get(name, rank))
    inside = control_flow.inside(index)
    likely = [name for name in ranks if name not in inside]
    known: dict[str, list[str]] = {}
    for name, kind in describe_candidates(graph, index, likely).items():
        if kind == NUMBERS:
            known.setdefault(split(name)[0], []).append(name)
    # An output of a recurrence is a candidate only if it is a leaf, or if there are no other candidates.
    behind = [name for name in known if index.nodes[name].op not in ops.CUDNN or name in ends]
    order = sorted(behind or known, key=lambda name: (ranks[name], -places[name]))
    return [tensor for name in order for tensor in known[name]][:_MOST]


def everywhere(graph: AnyGraph, index: Index) -> list[str]:
    """Candidates in a graph without recurrences: what placeholders reach.

    All unread tensors together come first, then each candidate.
    """
    starts = [node.name for node in index.nodes.values() if node.op in ops.PLACEHOLDERS]
    walk = Walk(index, starts, ())
    reached = [name for name in walk.reached if name not in starts]
    ends = [name for name in reached if walk.is_unread(name)]
    listed = order_candidates(graph, walk, ends, ()) if ends else []
    unread = [name for name in listed if split(name)[0] in ends and index.nodes[split(name)[0]].op != "Exit"]
    return [",".join(unread), *listed] if unread else listed


def _rank(walk: Walk, names: list[str], leaves: Collection[str]) -> Iterable[tuple[str, int]]:
    index, known = walk.index, frozenset(names)
    predictions = {split(name)[0] for name in walk.predictions()}
    heavy = {name for name in names if walk.weights(index.nodes[name])}
    for name in names:
        readers = [reader.name for reader in index.consumers(name) if reader.name in known]
        *scopes, own = name.split("/")
        is_end = name in leaves or name in predictions or not readers
        if _CALLED.fullmatch(own) or _leaves_scope(name, scopes, readers):
            yield name, 0 if is_end else 1
        elif index.nodes[name].op in _CHOOSING:
            yield name, 2
        if name in predictions:
            yield name, 3
        if name in leaves:
            yield name, 4
        elif not readers and not walk.is_for_a_loss(name):
            yield name, 5
        if "/" not in name and is_named(index.nodes[name]):
            yield name, 6
        if name in heavy:
            is_last = heavy.isdisjoint(walk.below([(name, None)]))
            inside = "/".join([*scopes, ""])
            if is_last or not (inside and any(reader.startswith(inside) for reader in readers)):
                yield name, _LAST if is_last else _LAST + 1


def _leaves_scope(name: str, scopes: list[str], readers: list[str]) -> bool:
    """Whether a node's innermost scope named as an output contains none of its readers."""
    depths = [depth for depth, scope in enumerate(scopes, 1) if _CALLED.fullmatch(scope)]
    innermost = "/".join(scopes[: max(depths)]) + "/" if depths else ""
    return bool(innermost) and not any(reader.startswith(innermost) for reader in readers)


_BACKWARD: Final = re.compile(r"CudnnRNNBackprop.*|BlockLSTMGrad(V2)?|LSTMBlockCellGrad")
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen output tensors `op:k`, in graph order.

    `left` are non-numeric leaves, with their type. `training` are twins in training mode that the outputs
    need if a branch is taken.
    """

    outputs: list[str]
    left: dict[str, str]
    training: tuple[str, ...] = ()


def infer_outputs(path: Path, graph: node_defs.Graph) -> Choice:
    """Choose the outputs of a graph. Raises AmbiguousSourceError, UnsupportedModelError."""
    index = graph.index
    nodes = parameter_source.recurrences(index) or parameter_source.cpu_recurrences(index)
    if not nodes:
        reason = "graph: expected a node CudnnRNN, BlockLSTM or LSTMBlockCell, found none"
        raise UnsupportedModelError(path, [_ask(reason, everywhere(graph, index))])
    wanted = _inference(index, nodes)
    others = [node.name for node in nodes if node not in wanted]
    dropped = control_flow.below(index, others, [node.name for node in wanted])
    walk = Walk(index, [node.name for node in wanted if node.name not in dropped], dropped)
    # The output of another package's op has a value only where that package is.
    elsewhere = control_flow.inside(index) | {node.name for node in node_defs.unknown(graph)}
    leaves = [name for name in walk.reached if _is_leaf(walk, name) and name not in elsewhere]
    kinds = describe_candidates(graph, index, leaves)
    candidates = [name for name, kind in kinds.items() if kind == NUMBERS]
    sources = walk.sources({split(name)[0] for name in candidates})
    measures = {name for source in sources if source.is_label for name in source.below}
    candidates = [name for name in candidates if split(name)[0] not in measures]
    _refuse_part(path, graph, walk, candidates, sources)
    _refuse_equal_twins(path, index, wanted, candidates)
    left = {name: kind for name, kind in kinds.items() if kind in ("bool", "string")}
    needed = index.ancestors((split(name)[0] for name in candidates), control=False)
    return Choice(candidates, left, tuple(name for name in others if name in needed))


def _inference(index: Index, nodes: list[NodeDef]) -> list[NodeDef]:
    twins: dict[tuple[str, ...], list[NodeDef]] = defaultdict(list)
    for node in nodes:
        leaves = parameter_source.find_parameters(index, node).leaves
        if not any(parameter_source.is_copy(index, name) for name in leaves):
            twins[leaves].append(node)
    wanted = []
    for group in twins.values():
        kept = [node for node in group if not _is_differentiated(index, node)] or group
        wanted += [node for node in kept if not _is_training(node)] or kept
    return wanted


def _is_differentiated(index: Index, node: NodeDef) -> bool:
    return any(_BACKWARD.fullmatch(reader.op) for reader in index.consumers(node.name))


def _is_training(node: NodeDef) -> bool:
    # tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc: is_training defaults to true.
    return "is_training" not in node.attr or bool(node.attr["is_training"].b)


def _is_leaf(walk: Walk, name: str) -> bool:
    # A loop variable without a reader after the loop is not meant as an output.
    return walk.is_unread(name) and walk.index.nodes[name].op != "Exit"


def _refuse_part(
    path: Path, graph: node_defs.Graph, walk: Walk, names: list[str], sources: list[Source]
) -> None:
    """Refuse leaves that may be less or more than the model. Raises AmbiguousSourceError."""

    def list_candidates() -> list[str]:
        return order_candidates(graph, walk, names, sources)

    if chains := _list_chains(graph, walk, names):
        needed = walk.index.ancestors(split(name)[0] for name in names)
        if not all(split(head)[0] in needed and transitions in names for head, transitions in chains):
            read = [*dict.fromkeys(name for chain in chains for name in chain)]
            reason = (
                f"outputs: only the likelihood of a CRF reads {', '.join(read)}, which tags are decoded from"
            )
            others = _without_chains(walk, names, chains)
            raise AmbiguousSourceError(path, [_ask(reason, [",".join(read), *others])])
    if not names:
        reason = "outputs: expected tensors of numbers that nothing reads, found none behind a recurrence"
        single = list_candidates()
        raise AmbiguousSourceError(path, [_ask(reason, [*_together(walk, single), *single])])
    doubts = {
        name: source.name
        for name in names
        for source in sources
        if source.may_be and split(name)[0] in source.below
    }
    if doubts:
        rest = [name for name in names if name not in doubts]
        needs = ", ".join(f"{name} needs {source}" for name, source in doubts.items())
        is_whole = bool(rest) and not _aside(walk, rest, sources)[0]
        ways = [",".join(rest), ",".join(names)] if is_whole else [",".join(names)]
        raise AmbiguousSourceError(
            path, [_ask(f"outputs: {needs}, which may hold labels", [*ways, *list_candidates()])]
        )
    aside, nodes = _aside(walk, names, sources)
    if aside:
        reason = f"outputs: {', '.join(names[:_SHOWN])} leave out {', '.join(aside[:_SHOWN])}"
        single = list_candidates()
        whole = [name for name in single if split(name)[0] in nodes]
        more = [",".join([*_heads(walk, whole), *names])] if whole else []
        raise AmbiguousSourceError(path, [_ask(reason, [*more, ",".join(names), *single])])


def _list_chains(graph: node_defs.Graph, walk: Walk, names: Iterable[str]) -> list[tuple[str, str]]:
    """The scores and transitions of CRFs behind the recurrences, but for those that give tags of `names`."""
    index = graph.index
    heavy = [name for name in walk.reached if walk.weights(index.nodes[name]) and name not in walk.starts]
    chains = crf.find_chains(graph, {f"{_find_end(walk, name)}:0": None for name in heavy})
    if not chains:  # shapes of a whole graph take their time
        return []
    tags = [name for name in names if graph.shapes.get_tensor_by_name(name).dtype.is_integer]
    decoded = index.ancestors(split(name)[0] for name in tags)
    return [chain for chain in chains if not {split(name)[0] for name in chain} <= decoded]


def _find_end(walk: Walk, name: str) -> str:
    """The op in which a layer ends that begins with a product: its bias or the form of its input."""
    index = walk.index
    readers = [reader for reader in index.consumers(name) if reader.name in walk.reached]
    while len(readers) == 1 and readers[0].op in ("BiasAdd", "Reshape", *ops.SUMS):
        name = readers[0].name
        readers = [reader for reader in index.consumers(name) if reader.name in walk.reached]
    return name


def _without_chains(walk: Walk, names: list[str], chains: list[tuple[str, str]]) -> list[str]:
    """The leaves that no CRF reads on: last states of recurrences come last."""
    heads = [split(head)[0] for head, _ in chains]
    below = walk.index.descendants(heads)
    return [",".join(left)] if (left := [name for name in names if split(name)[0] not in below]) else []


def _together(walk: Walk, listed: list[str]) -> list[str]:
    """The predictions of losses and what is chosen by them, as one set where there are several."""
    names = [name for name in walk.predictions() if name in listed]
    behind = walk.index.descendants(split(name)[0] for name in names)
    chosen = [name for name in listed if walk.index.nodes[split(name)[0]].op in _CHOOSING]
    names += [name for name in chosen if split(name)[0] in behind and name not in names]
    return [",".join(names)] if len(names) > 1 else []


def _heads(walk: Walk, names: list[str]) -> list[str]:
    """Return the tensors that losses read, or without any the first tensor."""
    return [name for name in names if name in walk.predictions()] or names[:1]


def _aside(walk: Walk, names: list[str], sources: list[Source]) -> tuple[list[str], set[str]]:
    """The weights and outputs that the tensors `names` do not need, and the unneeded nodes."""
    index = walk.index
    needed = index.ancestors(split(name)[0] for name in names)
    closed: set[str] = set()
    for source in sources:
        if source.is_label or (source.may_be and needed.isdisjoint([split(source.name)[0]])):
            closed.update(source.below)
    rest = [name for name in walk.reached if name not in needed and name not in closed]
    weights = {name for op in rest for name in walk.weights(index.nodes[op])} - needed
    lost = [name for name in _recurrent(walk, closed) if not _is_read(walk, name, needed)]
    taken = [
        name
        for name, origin in walk.predictions().items()
        if split(origin)[0] not in needed and split(name)[0] not in closed
    ]
    return list(dict.fromkeys([*sorted(weights), *lost, *taken])), set(rest)


def _recurrent(walk: Walk, closed: Collection[str]) -> list[str]:
    """The outputs of recurrences that have readers in the walk."""
    index = walk.index
    return [
        f"{start}:{k}"
        for start in walk.starts
        if index.nodes[start].op in ops.CUDNN
        for k in range(OUTPUTS)
        if any(
            reader.name in walk.reached and reader.name not in closed for reader in index.consumers(start, k)
        )
    ]


def _is_read(walk: Walk, name: str, needed: Collection[str]) -> bool:
    return any(reader.name in needed for reader in walk.index.consumers(*split(name)))


def _refuse_equal_twins(path: Path, index: Index, wanted: list[NodeDef], names_chosen: list[str]) -> None:
    """Refuse applications of one layer that lead to disjoint outputs: the user must choose.

    Raises AmbiguousSourceError.
    """
    twins: dict[tuple[str, ...], list[set[str]]] = defaultdict(list)
    for node in wanted:
        below = index.descendants([node.name])
        leaves = {name for name in names_chosen if split(name)[0] in below}
        twins[parameter_source.find_parameters(index, node).leaves].append(leaves)
    for variables, groups in twins.items():
        if len(groups) > 1 and not set.intersection(*groups):
            names = f"{', '.join(variables)} {'feeds' if len(variables) == 1 else 'feed'}"
            sets = [",".join(sorted(leaves)) for leaves in groups if leaves]
            reason = f"{names} {len(groups)} recurrences that training tells nothing about"
            raise AmbiguousSourceError(path, [_ask(reason, sets, "; choose one of:")])
