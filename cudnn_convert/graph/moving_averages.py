"""Finds moving averages among variables, by the assignments of a graph.

An assignment of a moving average moves the variable towards a value, however it is written:

    v -= (v - mean) * 0.01;  v = v * 0.99 + mean * 0.01;  v += (mean - v) / n

An average that starts at 0 and is corrected for it is the variable with the corrected value. Source:
tensorflow v1.15.0 python/training/moving_averages.py assign_moving_average, _zero_debias.
"""

from typing import Final

import tensorflow as tf

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import Index, split, tensor, walk
from cudnn_convert.graph.recurrent_state import root

#: What hands on a value, perhaps in another shape or type.
_FORMS: Final = (
    ops.COPIES | ops.ENTERS | ops.EXITS | {"Squeeze", "Reshape", "ExpandDims", "Cast", "PreventGradient"}
)
_TERMS: Final = ops.SUMS | {"Sub", "AddN"}
_SCALES: Final = frozenset({"Mul", "RealDiv", "Div", "DivNoNan"})


def find_averages(index: Index) -> dict[str, list[str]]:
    """Map tensors `op:k` to the variables with the moving averages, by a graph's assignments."""
    averages: dict[str, list[str]] = {}
    corrected: dict[str, str] = {}
    for write in index.nodes.values():
        variable = root(index, write.name) if write.op in ops.WRITES else None
        if variable is None or not tf.as_dtype(index.nodes[variable].attr["dtype"].type).is_floating:
            continue
        update = _Update(index, variable, index.data_inputs(write)[1])
        for source in update.sources if update.is_scaled else ():
            if variable not in averages.setdefault(source, []):
                averages[source].append(variable)
        corrected |= dict.fromkeys(update.variables, variable)
    return {
        source: [*dict.fromkeys(corrected.get(variable, variable) for variable in variables)]
        for source, variables in averages.items()
    }


class _Update:
    """The change of a variable by the value of an assignment.

    `sources` are the tensors that an average is moved towards. `variables` are others that it is computed
    from, of which it may be the corrected value. `is_scaled`: something is scaled, as in averages.
    """

    def __init__(self, index: Index, variable: str, value: str) -> None:
        self._index, self._variable = index, variable
        self.is_scaled = False
        self._terms: list[str] = []
        is_moved = self._follow(value)
        ends = self._list_ends(self._terms if is_moved else [value])
        self.sources = [name for name in ends if is_moved and _variable_of(index, name) is None]
        others = (_variable_of(index, name) for name in ends)
        self.variables = [name for name in others if name not in (None, variable) and self.is_scaled]

    def _follow(self, name: str) -> bool:
        """Return True if a tensor depends on the variable; collect terms added on the way."""
        node = self._index.nodes[split(name)[0]]
        if _variable_of(self._index, name) == self._variable:
            return True
        if node.op in _TERMS | _SCALES | ops.MERGES:
            inputs = self._index.data_inputs(node)
            depending = [source for source in inputs if self._follow(source)]
            self.is_scaled |= bool(depending) and node.op in _SCALES
            if depending and node.op in _TERMS:
                self._terms += [source for source in inputs if source not in depending]
            return bool(depending)
        if node.op in _FORMS | ops.SWITCHES | {"Neg"}:
            return self._follow(tensor(node.input[0]))
        return False

    def _list_ends(self, terms: list[str]) -> list[str]:
        """List the origins of the terms, constants excluded.

        A term is another form of its origin, perhaps scaled.
        """

        def above(name: str) -> list[str]:
            node = self._index.nodes[split(name)[0]]
            if _variable_of(self._index, name) is not None:
                return []
            if node.op in _FORMS | ops.SWITCHES:
                return [tensor(node.input[0])]
            if node.op in _SCALES:
                self.is_scaled = True
                return self._index.data_inputs(node)
            return self._index.data_inputs(node) if node.op in ops.MERGES else []

        ends = (name for name in walk(terms, above) if not above(name))
        return [name for name in ends if self._index.nodes[split(name)[0]].op != "Const"]


def _variable_of(index: Index, name: str) -> str | None:
    """Return the variable read as the tensor `name`.

    Returns None for any other tensor.
    """
    node = index.maker(name, ops.IDENTITIES | ops.PASSAGES)
    op = split(node.input[0])[0] if node.op == "ReadVariableOp" else split(name)[0]
    return root(index, op)


def list_averages(index: Index) -> set[str]:
    """Return the variables moved, or added to, by an assignment."""
    averages = {variable for variables in find_averages(index).values() for variable in variables}
    added = ops.ADDITIONS | ops.SUBTRACTIONS
    writes = (root(index, node.name) for node in index.nodes.values() if node.op in added)
    return averages | {variable for variable in writes if variable is not None}


def find_update_ops(index: Index) -> set[str]:
    """Find the assignments of moving averages, and the ops serving only the assigned values."""
    averages = {variable for variables in find_averages(index).values() for variable in variables}
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
