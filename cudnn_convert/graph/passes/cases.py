"""Replaces Switch and Merge nodes of several branches by chains of two-branch nodes.

TensorFlow lowers a Case of N branches to a `_SwitchN` for each input and a Merge of N for each output:

    before:  s = _SwitchN(x, index); y = Merge(f(s), g(s:1), h(s:2))
    after:   s = Switch(x, index == 0); t = Switch(s, index == 1); y = Merge(f(s:1), Merge(g(t:1), h(t)))

An index out of range takes the last branch.
Source: tensorflow v2.21.0 core/common_runtime/lower_case_op.cc; core/kernels/control_flow_ops.cc (SwitchNOp).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import NodeDef, claim, split

_SWITCH: Final = "_SwitchN"
#: The op, and what is left of it in a graph that TensorFlow lowered.
OPS: Final = frozenset({"Case", "StatelessCase", _SWITCH})


def split_cases(graph: Graph) -> Graph:
    """Replace each `_SwitchN`, and each Merge unless of two inputs, by two-branch nodes."""
    if not any(node.op == _SWITCH for node in graph.node):
        return graph
    chains = _Chains({node.name for node in graph.node})
    nodes: list[NodeDef] = []
    for node in graph.node:
        if node.op == _SWITCH:
            nodes += chains.split_switch(node)
        elif node.op == "Merge" and node.attr["N"].i != 2:
            nodes += chains.split_merge(node)
        else:
            nodes.append(node)
    return Graph(graph, (node_defs.redirect(node, chains.moved) for node in nodes))


class _Chains:
    """A maker of chains of two-branch nodes.

    `moved` maps each output of a `_SwitchN` to its new name, as inputs are written.
    """

    def __init__(self, taken: set[str]) -> None:
        self.moved: dict[str, str] = {}
        self._taken = taken
        #: By index tensor and number of comparisons: is it 0; if not, is it 1; and so on.
        self._conditions: dict[tuple[str, int], list[str]] = {}

    def _name(self, wanted: str) -> str:
        return claim(wanted, self._taken)

    def split_switch(self, switch: NodeDef) -> Iterator[NodeDef]:
        """Yield an Identity, then a Switch for each branch except the last."""
        source, index, *controls = switch.input
        dtype, last = switch.attr["T"].type, switch.attr["num_outs"].i - 1
        name = self._name(f"{switch.name}/input")
        yield node_defs.identity(name, source, dtype, control=controls)
        self.moved[f"{switch.name}:-1"] = f"^{name}"
        if (index, last) not in self._conditions:
            yield from self._compare(index, last)
        for branch, condition in enumerate(self._conditions[index, last]):
            source, name = name, self._name(f"{switch.name}/{branch}")
            yield node_defs.node(name, "Switch", [source, condition], T=tf.as_dtype(dtype))
            self.moved[f"{switch.name}:{branch}"] = f"{name}:1"
        self.moved[f"{switch.name}:{last}"] = name

    def _compare(self, index: str, count: int) -> Iterator[NodeDef]:
        """Yield the comparisons of an index with 0 to `count - 1`, in turn.

        Each is in the branch where the former were not equal.
        """
        op, k = split(index)
        conditions = self._conditions.setdefault((index, count), [])
        source = index
        for branch in range(count):
            words = ("index", "number", "is_equal", "else")
            copied, number, condition, switch = (self._name(f"{op}/{word}_{k}_{branch}") for word in words)
            yield node_defs.node(copied, "Identity", [source], T=tf.int32)
            yield node_defs.constant(number, np.array(branch, np.int32), control=[f"^{copied}"])
            yield node_defs.node(condition, "Equal", [copied, number], T=tf.int32)
            yield node_defs.node(switch, "Switch", [copied, condition], T=tf.int32)
            conditions.append(condition)
            source = switch

    def split_merge(self, merge: NodeDef) -> Iterator[NodeDef]:
        """Yield a chain of two-input Merge nodes, or an Identity of the only input.

        The last keeps the name.
        """
        sources = [name for name in merge.input if not name.startswith("^")]
        controls = [name for name in merge.input if name.startswith("^")]
        dtype, merged = tf.as_dtype(merge.attr["T"].type), sources.pop()
        if not sources:
            yield node_defs.identity(merge.name, merged, merge.attr["T"].type, control=controls)
            return
        while len(sources) > 1:
            name = self._name(f"{merge.name}/{len(sources) - 1}")
            yield node_defs.node(name, "Merge", [sources.pop(), merged], T=dtype, N=2)
            merged = name
        yield node_defs.node(merge.name, "Merge", [*sources, merged, *controls], T=dtype, N=2)
