"""Chooses the outputs from the graph, if left open by user and signatures.

Of replicas of tf.distribute the first counts. Of twins, recurrences with the same parameter variable, those
that training differentiates are dropped, then those in training mode. From the others the walk goes forward
to natural leaves: nodes outside branches that only summaries and metrics read. The leaves are the outputs if
they cover the whole model: every weight, every output of a recurrence and every prediction of a loss, and if
none may be a training metric. Otherwise the user is asked, with candidates. docs/choosing.md explains it in a
page.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tensorflow as tf

from cudnn_convert.errors import AmbiguousSourceError, Reason, Remedy, UnsupportedModelError
from cudnn_convert.graph import control_flow, crf, ops
from cudnn_convert.graph.graph import Graph, extract_nodes, unknown
from cudnn_convert.graph.index import OUTPUTS, Index, NodeDef, split
from cudnn_convert.graph.training import FedTensor, InferenceNodes
from cudnn_convert.plan import candidates
from cudnn_convert.recurrences import parameter_source


def _ask(reason: str, sets: Iterable[str], lead: str = "; choose with") -> Reason:
    """Return a reason with sets of outputs to choose from, the likeliest first."""
    remedies = [Remedy({"outputs": (outputs,)}) for outputs in [*dict.fromkeys(sets)][: candidates.MOST]]
    advice = f"{lead} {' | '.join(map(str, remedies))}" if remedies else "; name --outputs"
    return Reason(f"{reason}{advice}", *remedies)


_BACKWARD: Final = re.compile(r"CudnnRNNBackprop.*|BlockLSTMGrad(V2)?|LSTMBlockCellGrad")
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen output tensors `op:k`, in graph order.

    `left` are non-numeric leaves, with their type. `training` are twins in training mode that the outputs
    need if a branch is taken. `beside` are tensors that the author named and that only training reads.
    """

    outputs: list[str]
    left: dict[str, str]
    training: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def infer_outputs(path: Path, graph: Graph) -> Choice:
    """Choose the outputs of a graph. Raises AmbiguousSourceError, UnsupportedModelError."""
    index = graph.index
    nodes = parameter_source.recurrences(index) or parameter_source.cpu_recurrences(index)
    if not nodes:
        reason = "graph: expected a node CudnnRNN, BlockLSTM or LSTMBlockCell, found none"
        raise UnsupportedModelError(path, [_ask(reason, candidates.everywhere(graph, index))])
    wanted = _inference(index, nodes)
    others = [node.name for node in nodes if node not in wanted]
    dropped = control_flow.below(index, others, [node.name for node in wanted])
    walk = InferenceNodes(index, [node.name for node in wanted if node.name not in dropped], dropped)
    # The output of another package's op has a value only where that package is.
    elsewhere = control_flow.inside(index) | {node.name for node in unknown(graph)}
    leaves = [name for name in walk.reached if _is_leaf(walk, name) and name not in elsewhere]
    part = extract_nodes(graph, index.ancestors(leaves))
    kinds = candidates.describe_outputs(part, leaves)
    numbers = [name for name, kind in kinds.items() if kind == candidates.NUMBERS]
    sources = walk.sources({split(name)[0] for name in numbers})
    measures = {name for source in sources if source.is_label for name in source.below}
    outputs = [name for name in numbers if split(name)[0] not in measures]
    _refuse_draws(path, graph, walk, outputs, sources)
    if chains := _list_chains(graph, part, walk, outputs):
        _refuse_chains(path, graph, walk, outputs, chains)
    _refuse_part(path, graph, walk, outputs, sources)
    _refuse_equal_twins(path, index, wanted, outputs)
    left = {name: kind for name, kind in kinds.items() if kind in ("bool", "string")}
    needed = index.ancestors((split(name)[0] for name in outputs), control=False)
    beside = candidates.list_named(graph, walk, outputs, sources)
    return Choice(outputs, left, tuple(name for name in others if name in needed), tuple(beside))


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


def _is_leaf(walk: InferenceNodes, name: str) -> bool:
    # A loop variable without a reader after the loop is not meant as an output.
    return walk.is_unread(name) and walk.index.nodes[name].op != "Exit"


def _refuse_draws(
    path: Path, graph: Graph, walk: InferenceNodes, names: list[str], sources: list[FedTensor]
) -> None:
    """Refuse drawn leaves, such as an exploring action. Raises AmbiguousSourceError."""
    drawn = candidates.list_drawn(walk)
    if not (taken := [name for name in names if split(name)[0] in drawn]):
        return
    whole = [name for name in names if name not in taken]
    listed = candidates.order_candidates(graph, walk, whole, sources)
    for name in listed:
        left = _aside(walk, whole, sources)[0]
        if len(_aside(walk, [*whole, name], sources)[0]) < len(left):
            whole.append(name)
    actual = f"found {', '.join(taken[:_SHOWN])}, drawn anew in each"
    reason = f"outputs: expected the same numbers in every run, {actual}"
    raise AmbiguousSourceError(path, [_ask(reason, [*([",".join(whole)] if whole else []), *listed])])


def _refuse_chains(
    path: Path, graph: Graph, walk: InferenceNodes, names: list[str], chains: list[tuple[str, str]]
) -> None:
    """Refuse leaves lacking the tensors of a CRF's likelihood. Raises AmbiguousSourceError."""
    needed = walk.index.ancestors(split(name)[0] for name in names)
    if not all(split(head)[0] in needed and transitions in names for head, transitions in chains):
        lengths = (name for _, transitions in chains for name in crf.find_lengths(graph, transitions))
        read = [*dict.fromkeys([*(name for chain in chains for name in chain), *lengths])]
        others = _without_chains(walk, names, chains)
        if tags := _list_tags(graph, walk, chains):
            reason = f"outputs: only metrics read {', '.join(tags)}, which a CRF decodes"
            raise AmbiguousSourceError(path, [_ask(reason, [",".join([*tags, *others]), ",".join(read)])])
        reason = f"outputs: only the likelihood of a CRF reads {', '.join(read)}, which tags are decoded from"
        raise AmbiguousSourceError(path, [_ask(reason, [",".join(read), *others])])


def _refuse_part(
    path: Path, graph: Graph, walk: InferenceNodes, names: list[str], sources: list[FedTensor]
) -> None:
    """Refuse leaves with possibly too little or too much of the model. Raises AmbiguousSourceError."""

    def list_candidates() -> list[str]:
        return candidates.order_candidates(graph, walk, names, sources)

    if not names:
        reason = (
            "outputs: expected tensors of numbers at the end of the graph, found none behind a recurrence"
        )
        single = list_candidates()
        drawn = candidates.list_before_draws(graph, walk)
        sets = [",".join(drawn)] if drawn else _together(walk, single)
        raise AmbiguousSourceError(path, [_ask(reason, [*sets, *single])])
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


def _list_chains(
    graph: Graph, part: Graph, walk: InferenceNodes, names: Iterable[str]
) -> list[tuple[str, str]]:
    """Return the scores and transitions of CRFs behind the recurrences.

    CRFs that give tags of `names` are left out.
    """
    index = graph.index
    heavy = [name for name in walk.reached if walk.weights(index.nodes[name]) and name not in walk.starts]

    def find_tensor(name: str) -> tf.Tensor:
        try:
            return part.shapes.get_tensor_by_name(name)
        except KeyError:  # no leaf needs it
            return graph.shapes.get_tensor_by_name(name)

    chains = crf.find_chains(graph, {f"{_find_end(walk, name)}:0": None for name in heavy}, find_tensor)
    if not chains:  # shapes of a whole graph take their time
        return []
    tags = [name for name in names if find_tensor(name).dtype.is_integer]
    decoded = index.ancestors(split(name)[0] for name in tags)
    return [chain for chain in chains if not {split(name)[0] for name in chain} <= decoded]


def _list_tags(graph: Graph, walk: InferenceNodes, chains: list[tuple[str, str]]) -> list[str]:
    """Return the tags `[batch, time]` decoded from scores and transitions, and read by metrics."""
    read = {split(name)[0] for chain in chains for name in chain}
    inside = control_flow.inside(walk.index)
    listed = []
    for name in walk.reached:
        if name in inside or walk.readers(name) or not walk.index.is_read(name):
            continue
        first = graph.shapes.get_operation_by_name(name).outputs[:1]
        is_integer = bool(first) and first[0].dtype.is_integer and first[0].shape.rank == 2
        if is_integer and read <= walk.index.ancestors([name], control=False):
            listed.append(f"{name}:0")
    return listed


def _find_end(walk: InferenceNodes, name: str) -> str:
    """Return the last op of a layer begun by a product: bias or reshape."""
    index = walk.index
    readers = [reader for reader in index.consumers(name) if reader.name in walk.reached]
    while len(readers) == 1 and readers[0].op in ("BiasAdd", "Reshape", *ops.SUMS):
        name = readers[0].name
        readers = [reader for reader in index.consumers(name) if reader.name in walk.reached]
    return name


def _without_chains(walk: InferenceNodes, names: list[str], chains: list[tuple[str, str]]) -> list[str]:
    """Return the leaves off the paths of CRFs, as a single set.

    Last states of recurrences come last.
    """
    heads = [split(head)[0] for head, _ in chains]
    below = walk.index.descendants(heads)
    return [",".join(left)] if (left := [name for name in names if split(name)[0] not in below]) else []


def _together(walk: InferenceNodes, listed: list[str]) -> list[str]:
    """Return the predictions of losses, and choices from predictions, as a single set.

    Empty where there are not several.
    """
    names = [name for name in walk.predictions() if name in listed]
    behind = walk.index.descendants(split(name)[0] for name in names)
    chosen = [name for name in listed if walk.index.nodes[split(name)[0]].op in candidates.CHOOSING]
    names += [name for name in chosen if split(name)[0] in behind and name not in names]
    return [",".join(names)] if len(names) > 1 else []


def _heads(walk: InferenceNodes, names: list[str]) -> list[str]:
    """Return the tensors read by losses, else the first tensor."""
    return [name for name in names if name in walk.predictions()] or names[:1]


def _aside(walk: InferenceNodes, names: list[str], sources: list[FedTensor]) -> tuple[list[str], set[str]]:
    """Return the weights and outputs unneeded by the tensors `names`, and the unneeded nodes."""
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
        if split(origin)[0] not in needed
        and split(name)[0] not in closed
        and not _is_picked(walk, origin, needed, sources)
    ]
    return list(dict.fromkeys([*sorted(weights), *lost, *taken])), set(rest)


def _is_picked(walk: InferenceNodes, name: str, needed: Collection[str], sources: list[FedTensor]) -> bool:
    """Return True if a program's choice picks a tensor from needed tensors.

    The value of an action taken is an example.
    """
    own = split(name)[0]
    picks = any(own in source.below and split(source.name)[0] not in needed for source in sources)
    between = (walk.index.ancestors([own], control=False, stop=needed) & walk.reached.keys()) - {*needed}
    return picks and not any(walk.weights(walk.index.nodes[op]) for op in between)


def _recurrent(walk: InferenceNodes, closed: Collection[str]) -> list[str]:
    """Return the recurrences' outputs with readers in the walk."""
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


def _is_read(walk: InferenceNodes, name: str, needed: Collection[str]) -> bool:
    return any(reader.name in needed for reader in walk.index.consumers(*split(name)))


def _refuse_equal_twins(path: Path, index: Index, wanted: list[NodeDef], names_chosen: list[str]) -> None:
    """Refuse applications of a single layer with disjoint outputs: the user must choose.

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
            if _have_own_weights(index, groups):
                sets.insert(
                    0, ",".join(name for name in names_chosen if any(name in each for each in groups))
                )
            reason = f"{names} {len(groups)} recurrences that training tells nothing about"
            raise AmbiguousSourceError(path, [_ask(reason, sets, "; choose one of:")])


def _have_own_weights(index: Index, groups: list[set[str]]) -> bool:
    """Return True if each group of outputs needs variables unneeded by all remaining groups.

    The heads of several tasks do.
    """
    variables = {name for name, node in index.nodes.items() if node.op in ops.VARIABLES}
    needed = [variables & index.ancestors(split(leaf)[0] for leaf in group) for group in groups]
    others = (set[str]().union(*needed[:k], *needed[k + 1 :]) for k in range(len(needed)))
    return all(own - rest for own, rest in zip(needed, others, strict=True))
