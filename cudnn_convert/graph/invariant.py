"""What a loop carries round without changing it enters the loop once, as TensorFlow 1 writes its loops.

A While of TensorFlow 2 takes everything that its body reads as a loop variable. Made of Switch and Merge
nodes, such a variable hides its shape, and that a recurrence's weights are the same in every step.
Source: tensorflow v2.21.0 core/common_runtime/lower_while_op.cc; core/ops/control_flow_ops.cc (Enter with
`is_constant` keeps the shape).
"""

from __future__ import annotations

from typing import Any

from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, reference, split, tensor, unique


def entered(graph: Any) -> Any:
    """`graph` with each unchanged loop variable as one constant Enter; its own may be left unread."""
    index = Index(graph)
    moved: dict[str, str] = {}
    constant = []
    for merge in graph.node:
        enter = _enter(index, merge)
        if enter is None:
            continue
        made = _constant(enter, unique(f"{enter.name}/constant", index.nodes))
        constant.append(made)
        moved[f"{merge.name}:0"] = made.name
        for switch in index.consumers(merge.name, 0):
            if switch.op == "Switch":
                moved[f"{switch.name}:1"] = made.name
                exits = [found for found in index.consumers(switch.name, 0) if found.op == "Exit"]
                moved |= {f"{found.name}:0": enter.input[0] for found in exits}
    result = build.with_nodes(graph, [*graph.node, *constant])
    for node in result.node:
        for place, name in enumerate(node.input):
            # The loop variable's own way round stays as it was, for others may wait for it.
            if not name.startswith("^") and node.op not in ("Merge", "Switch", "Exit", "NextIteration"):
                node.input[place] = reference(_behind(tensor(name), moved))
    return result


def _constant(enter: Any, name: str) -> Any:
    made = type(enter)()
    made.CopyFrom(enter)
    made.name = name
    made.attr["is_constant"].b = True
    return made


def _behind(name: str, moved: dict[str, str]) -> str:
    while name in moved:
        name = tensor(moved[name])
    return name


def _enter(index: Index, merge: Any) -> Any | None:
    """The Enter of a loop variable that the body hands on as it is, else None."""
    if merge.op != "Merge":
        return None
    makers = {index.nodes[split(name)[0]].op: name for name in index.data_inputs(merge)}
    if makers.keys() != {"Enter", "NextIteration"}:
        return None
    (back,) = index.data_inputs(index.nodes[split(makers["NextIteration"])[0]])
    while index.nodes[split(back)[0]].op == "Identity":
        back = index.data_inputs(index.nodes[split(back)[0]])[0]
    switch = index.nodes[split(back)[0]]
    is_round = switch.op == "Switch" and tensor(switch.input[0]) == f"{merge.name}:0"
    return index.nodes[split(makers["Enter"])[0]] if is_round else None
