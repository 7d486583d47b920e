"""The network around a plan's recurrences: links between inputs, recurrences and outputs."""

from collections.abc import Collection, Iterable, Mapping

from cudnn_convert.graph.index import LENGTHS, PARAMS, Index, split, walk
from cudnn_convert.model import Part
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.values import Link, Network


def draw_network(plan: Plan) -> Network | None:
    """Return the links between inputs, recurrences and outputs.

    None where no graph has the recurrences.
    """
    if isinstance(plan, RecurrencesPlan):
        links = [
            link
            for part, recurrence in zip(plan.parts, plan.recurrences, strict=True)
            for link in _link_single(part, recurrence.node)
        ]
        return Network(tuple(links), 0, 0)
    nodes = sorted({recurrence.node for recurrence in plan.recurrences})
    if not nodes or not plan.graph.index.nodes.keys() >= {*nodes}:
        return None
    index = plan.graph.index
    starts = {split(name)[0]: f"input {key}" for key, name in plan.signature.inputs.items()}
    starts |= {node: node for node in nodes}
    links = []
    for node in nodes:
        reads = index.data_inputs(index.nodes[node])
        tensors = [*reads[:PARAMS], *reads[LENGTHS:]]
        links += _lead(index, tensors, node, starts)
    for key, name in plan.signature.outputs.items():
        links += _lead(index, [name], f"output {key}", starts)
    source = plan.model.graph
    left_out = 0 if source is None else max(0, len(source.node) - len(plan.graph.node))
    return Network(tuple(links), len(plan.graph.node), left_out)


def _link_single(part: Part, node: str) -> Iterable[Link]:
    yield from (Link(f"input {part.prefix}{key}", node, 0) for key in part.signature.inputs)
    yield from (Link(node, f"output {part.prefix}{key}", 0) for key in part.signature.outputs)


def _lead(index: Index, tensors: Iterable[str], target: str, starts: Mapping[str, str]) -> list[Link]:
    """Return the links ending at `target`, with the ops on the way.

    A link begins where `tensors` come from.
    """
    seen = index.ancestors((split(name)[0] for name in tensors), control=False, stop=starts)
    between = seen - starts.keys()
    return [
        Link(name, target, len(_on_the_way(index, between, start)))
        for start, name in starts.items()
        if start in seen
    ]


def _on_the_way(index: Index, between: Collection[str], start: str) -> set[str]:
    """Return the ops of `between` reached from a start."""

    def below(name: str) -> list[str]:
        return [reader.name for reader in index.consumers(name) if reader.name in between]

    return {*walk([start], below)} - {start}
