"""Finds moving averages among variables, by the assignments of a graph.

An assignment of a moving average moves the variable towards a value, however it is written:

    v -= (v - mean) * 0.01;  v = v * 0.99 + mean * 0.01;  v += (mean - v) / n

An average that starts at 0 and is corrected for it is the variable with the corrected value. Source:
tensorflow v1.15.0 python/training/moving_averages.py assign_moving_average, _zero_debias.

The value may be scaled on its way: by the update, or because it is a sum, of which a mean is made. What is
scaled has the average if inference needs it:

    mean = sum / n; v -= (v - mean) * 0.01; y = x - mean
"""

from collections.abc import Collection, Iterator
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import Index, NodeDef, split, tensor, walk, walk_behind
from cudnn_convert.graph.recurrent_state import root

#: What hands on a value, perhaps in another shape or type.
_FORMS: Final = (
    ops.COPIES | ops.ENTERS | ops.EXITS | {"Squeeze", "Reshape", "ExpandDims", "Cast", "PreventGradient"}
)
_TERMS: Final = ops.SUMS | {"Sub", "AddN"}
_SCALES: Final = frozenset({"Mul", "RealDiv", "Div", "DivNoNan"})


def find_averages(index: Index, needed: Collection[str] = ()) -> dict[str, list[str]]:
    """Map tensors `op:k` to the variables with the moving averages, by a graph's assignments.

    `needed` are the ops with values for inference. If one of them joins a variable and what the variable is
    moved towards, the variable is state.
    """
    averages: dict[str, list[str]] = {}
    corrected: dict[str, str] = {}
    for update in _list_updates(index, needed):
        for source in update.sources:
            if update.variable not in averages.setdefault(source, []):
                averages[source].append(update.variable)
        corrected |= dict.fromkeys(update.corrects, update.variable)
    return {
        source: [*dict.fromkeys(corrected.get(variable, variable) for variable in variables)]
        for source, variables in averages.items()
    }


def _list_updates(index: Index, needed: Collection[str] = ()) -> Iterator["_Update"]:
    """Yield the changes of float variables by assignments."""
    for write in index.nodes.values():
        variable = root(index, write.name) if write.op in ops.WRITES else None
        if variable is not None and tf.as_dtype(index.nodes[variable].attr["dtype"].type).is_floating:
            yield _Update(index, variable, index.data_inputs(write)[1], needed)


class _Update:
    """The change of a variable by the value of an assignment.

    `is_average`: the variable is moved towards something, and inference does not need the result. `sources`
    are the tensors that it is moved towards, as far as they are no sums that are scaled. `corrects` are the
    variables that it may be the corrected value of.
    """

    def __init__(self, index: Index, variable: str, value: str, needed: Collection[str]) -> None:
        self.variable = variable
        self._index, self._needed = index, needed
        self._is_scaled = False
        is_moved, terms = self._follow(value)
        ends = self._list_ends([term for added in terms.values() for term in added] if is_moved else [value])
        others = [_variable_of(index, name) for name, _ in ends]
        sources = [end for end, other in zip(ends, others, strict=True) if other is None]
        is_state = not terms.keys().isdisjoint(needed)
        self.is_average = is_moved and self._is_scaled and bool(sources) and not is_state
        self.sources = [name for name, is_sum in sources if self.is_average and not is_sum]
        self.corrects = [name for name in others if name not in (None, variable) and self._is_scaled]

    def _node(self, name: str) -> NodeDef:
        return self._index.nodes[split(name)[0]]

    def _follow(self, value: str) -> tuple[bool, dict[str, list[str]]]:
        """Return whether a tensor depends on the variable, and the terms by op."""

        def above(name: str) -> list[str]:
            node = self._node(name)
            if _variable_of(self._index, name) == self.variable:
                return []
            if node.op in _TERMS | _SCALES | ops.MERGES:
                return self._index.data_inputs(node)
            return [tensor(node.input[0])] if node.op in _FORMS | ops.SWITCHES | {"Neg"} else []

        depending: set[str] = set()
        terms: dict[str, list[str]] = {}
        for name in walk_behind([value], above):
            node, inputs = self._node(name), above(name)
            others = [source for source in inputs if source not in depending]
            if len(others) < len(inputs) or _variable_of(self._index, name) == self.variable:
                depending.add(name)
                self._is_scaled |= node.op in _SCALES
                if node.op in _TERMS and others:
                    terms[node.name] = others
        return value in depending, terms

    def _list_ends(self, terms: list[str]) -> list[tuple[str, bool]]:
        """List the origins of the terms, and whether each is a scaled sum.

        Constants are left out. A term is another form of its origin, perhaps scaled. What is scaled for
        inference is an origin.
        """

        def above(item: tuple[str, bool]) -> list[tuple[str, bool]]:
            name, is_scaled = item
            node = self._node(name)
            if _variable_of(self._index, name) is not None:
                return []
            if node.op in _FORMS | ops.SWITCHES:
                return [(tensor(node.input[0]), is_scaled)]
            if node.op in ops.MERGES or (node.op in _SCALES and node.name not in self._needed):
                is_scale = node.op in _SCALES
                self._is_scaled |= is_scale
                return [(source, is_scaled or is_scale) for source in self._index.data_inputs(node)]
            return []

        ends = [item for item in walk([(name, False) for name in terms], above) if not above(item)]
        kinds = {name: self._node(name).op for name, _ in ends}
        return [(name, scaled and kinds[name] == "Sum") for name, scaled in ends if kinds[name] != "Const"]


def _variable_of(index: Index, name: str) -> str | None:
    """Return the variable read as the tensor `name`.

    Returns None for any other tensor.
    """
    node = index.maker(name, ops.IDENTITIES | ops.PASSAGES)
    op = split(node.input[0])[0] if node.op == "ReadVariableOp" else split(name)[0]
    return root(index, op)


def list_averages(index: Index, needed: Collection[str] = ()) -> set[str]:
    """Return the variables moved, or added to, by an assignment.

    `needed` is as for `find_averages`.
    """
    added = ops.ADDITIONS | ops.SUBTRACTIONS
    writes = (root(index, node.name) for node in index.nodes.values() if node.op in added)
    return _find_moved(index, needed) | {variable for variable in writes if variable is not None}


def find_update_ops(index: Index) -> set[str]:
    """Find the assignments of moving averages, and the ops serving only the assigned values."""
    averages = _find_moved(index)
    writes = (node.name for node in index.nodes.values() if node.op in ops.WRITES)
    updates = {name for name in writes if root(index, name) in averages}
    todo = [*updates]
    while todo:
        for name, k in map(split, index.nodes[todo.pop()].input):
            is_new = k >= 0 and name in index.nodes and name not in updates
            is_new = is_new and index.nodes[name].op not in ops.VARIABLES
            if is_new and all(reader.name in updates for reader in index.consumers(name)):
                updates.add(name)
                todo.append(name)
    return updates


def _find_moved(index: Index, needed: Collection[str] = ()) -> set[str]:
    """Find the variables with moving averages, and the variables corrected for a start at 0."""
    updates = [*_list_updates(index, needed)]
    moved = {update.variable for update in updates if update.is_average}
    return moved | {update.variable for update in updates if not moved.isdisjoint(update.corrects)}
