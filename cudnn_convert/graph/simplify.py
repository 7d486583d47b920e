"""What inference does not need: defaults of placeholders, dead branches, dropout whose rate is 0.

Each pass takes a GraphDef and returns one; names that remain keep their meaning.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from cudnn_convert.graph import build, fold
from cudnn_convert.graph.index import Index, reference, split, tensor

RANDOM: Final = frozenset(
    "RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt RandomGamma RandomGammaGrad "
    "RandomPoisson RandomPoissonV2 Multinomial RandomShuffle ParameterizedTruncatedNormal "
    "StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2 "
    "StatelessTruncatedNormal StatelessMultinomial LogUniformCandidateSampler "
    "UniformCandidateSampler RandomCrop".split()
)


def simplified(graph: Any, outputs: Collection[str]) -> Any:
    """`graph` without what the values bound in it switch off, pruned to the tensors `outputs`."""
    for change in (_with_defaults, _without_dead_branches, _without_dropout):
        graph = change(graph)
        graph = build.kept(graph, Index(graph).ancestors(split(name)[0] for name in outputs))
    return graph


def _with_defaults(graph: Any) -> Any:
    """A PlaceholderWithDefault that nobody named as an input becomes its default."""
    return build.rewritten(
        graph,
        {
            node.name: build.identity(node.name, node.input[0], node.attr["dtype"].type)
            for node in graph.node
            if node.op == "PlaceholderWithDefault"
        },
    )


def _without_dead_branches(graph: Any) -> Any:
    """Switches on a constant become identities, the merges behind them too; the dead side goes."""
    index, changes, dead = Index(graph), {}, set()
    for node in graph.node:
        if node.op in ("Switch", "RefSwitch"):
            predicate = fold.scalar(index, tensor(node.input[1]))
            if predicate is not None:
                dead.add(f"{node.name}:{0 if predicate else 1}")
    if not dead:
        return graph
    _spread(index, dead)
    moved = {}
    for node in graph.node:
        inputs = index.data_inputs(node)
        live = [name for name in inputs if name not in dead]
        if node.op == "Merge" and len(live) == 1 < len(inputs):
            changes[node.name] = build.identity(node.name, reference(live[0]), node.attr["T"].type)
        elif node.op in ("Switch", "RefSwitch") and {f"{node.name}:0", f"{node.name}:1"} & dead:
            changes[node.name] = build.identity(node.name, node.input[0], node.attr["T"].type)
            if node.op == "RefSwitch":
                changes[node.name].op = "RefIdentity"  # an assignment behind it needs the reference
            moved[f"{node.name}:1"] = node.name  # an Identity has one output, whichever side lives
    # The predicate of an inner branch passes a Switch of the outer one, and is known only without it.
    return _without_dead_branches(_redirected(build.rewritten(graph, changes), moved))


def _spread(index: Index, dead: set[str]) -> None:
    """Adds to `dead` every output that can never be computed: a Merge lives while one input does.

    What waits for a dead op is dead too: a constant in a branch has nothing else that ties it to the branch.
    """
    todo = [split(name) for name in dead]
    while todo:
        op, k = todo.pop()
        for node in index.consumers(op, k):
            inputs = index.data_inputs(node)
            if node.op == "Merge" and any(name not in dead for name in inputs):
                continue
            outputs = [f"{node.name}:{j}" for j in range(_outputs(index, node))]
            if not dead.issuperset(outputs):
                todo += [*(split(name) for name in outputs), (node.name, -1)]
            dead.update(outputs)


def _outputs(index: Index, node: Any) -> int:
    used = [
        k for reader in index.consumers(node.name) for op, k in map(split, reader.input) if op == node.name
    ]
    return max(used, default=0) + 1


def _redirected(graph: Any, moved: dict[str, str]) -> Any:
    made = build.placed(graph)
    for node in made.node:
        for position, name in enumerate(node.input):
            if not name.startswith("^") and tensor(name) in moved:
                node.input[position] = moved[tensor(name)]
    return made


def _without_dropout(graph: Any) -> Any:
    """`x * mask` becomes `x` where the mask is known to be all ones whatever the random numbers are."""
    index, changes = Index(graph), {}
    for node in graph.node:
        if node.op == "Mul":
            for position in (0, 1):
                if always_one(index, tensor(node.input[position])):
                    changes[node.name] = build.identity(
                        node.name, node.input[1 - position], node.attr["T"].type
                    )
    return build.rewritten(graph, changes)


def always_one(index: Index, name: str) -> bool:
    """Whether a tensor is dropout's mask at rate 0.

    Floor(keep_prob + uniform) with keep_prob 1 (tensorflow v1.12.0 python/ops/nn_ops.py dropout), or
    Cast(uniform >= rate) with rate 0 (v1.15.0 dropout_v2); uniform lies in [0, 1).
    """
    found = mask(index, name)
    return found is not None and fold.scalar(index, found[0]) == found[1]


def mask(index: Index, name: str) -> tuple[str, int] | None:
    """`(rate tensor, its value without dropout)` where a tensor is dropout's mask, else None."""
    node = index.nodes[split(name)[0]]
    if node.op == "Cast":
        node = index.nodes[split(node.input[0])[0]]
    if node.op == "Floor":
        node, neutral = index.nodes[split(node.input[0])[0]], 1
        if node.op not in ("Add", "AddV2"):
            return None
    elif node.op == "GreaterEqual":
        neutral = 0
    else:
        return None
    sides = index.data_inputs(node)[:2]
    uniform = [is_uniform(index, side) for side in sides]
    if sum(uniform) != 1 or (neutral == 0 and not uniform[0]):
        return None
    return sides[uniform.index(False)], neutral


def is_uniform(index: Index, name: str) -> bool:
    """Whether a tensor is `random_uniform(...)` over [0, 1): `RandomUniform * (1 - 0) + 0`."""
    node = index.nodes[split(name)[0]]
    neutral = {"Add": 0, "AddV2": 0, "Mul": 1}.get(node.op)
    if neutral is None:
        return str(node.op) == "RandomUniform"
    one, other = index.data_inputs(node)
    return any(
        is_uniform(index, drawn) and fold.scalar(index, fixed) == neutral
        for drawn, fixed in ((one, other), (other, one))
    )
