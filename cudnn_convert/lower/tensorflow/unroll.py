"""Repeats a step several times in a graph: traced once, then copied as nodes.

Tracing an op in Python takes TensorFlow about a millisecond, importing a node some 30 microseconds, and an
iteration of a loop has up to 16 steps of a dozen ops each. Constants are shared by all copies. Run eagerly, a
step is called as it is.

    step:      sum = AddV2(row, h); new = Tanh(sum)
    two steps: 0/sum = AddV2(row_0, h), 0/new = Tanh(0/sum), 1/sum = AddV2(row_1, 0/new), 1/new = Tanh(1/sum)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph.index import NodeDef, reference, split, tensor
from cudnn_convert.graph.node_defs import copy_node

#: The hidden state `[batch, width]`, which is also a step's output, and for an LSTM the cell state.
State = tuple[Any, ...]
#: `(rows of each sum, old state) -> new state`.
Step = Callable[[Sequence[Any], State], State]
#: `(rows of each step, first state) -> the state after each step`.
Steps = Callable[[Iterable[Sequence[Any]], State], list[State]]
_SCOPE: Final = "steps"


def several(step: Step, rows: Sequence[Any], state: Sequence[Any]) -> Steps:
    """The function that repeats `step`; `rows` and `state` are the TensorSpecs of what it takes."""
    return in_python(step) if tf.executing_eagerly() else _Traced.of(step, rows, state)


def in_python(step: Step) -> Steps:
    """The function that calls `step` again and again."""

    def repeat(rows: Iterable[Sequence[Any]], state: State) -> list[State]:
        states = []
        for given in rows:
            state = step(given, state)
            states.append(state)
        return states

    return repeat


@dataclass(frozen=True, slots=True)
class _Traced:
    """A step as nodes.

    All copies share those named in `constants`. `inputs` are its placeholders: rows, state, then one for each
    of the tensors `outer`, which it reads from outside. `outputs` are tensors `op:k`.
    """

    nodes: tuple[NodeDef, ...]
    constants: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    outer: tuple[Any, ...]
    versions: Any

    @classmethod
    def of(cls, step: Step, rows: Sequence[Any], state: Sequence[Any]) -> _Traced:
        def flat(*given: Any) -> State:
            return step(given[: len(rows)], given[len(rows) :])

        concrete = tf.function(flat, autograph=False).get_concrete_function(*rows, *state)
        definition = concrete.graph.as_graph_def()
        inputs = tuple(split(item.name)[0] for item in concrete.inputs)
        # A function adds an Identity to each output.
        ends = {item.op.name for item in concrete.outputs}
        nodes = tuple(node for node in definition.node if node.name not in {*inputs, *ends})
        constants = frozenset(node.name for node in nodes if node.op == "Const")
        outputs = tuple(item.op.inputs[0].name for item in concrete.outputs)
        outer = tuple(concrete.captured_inputs)
        return cls(nodes, constants, inputs, outputs, outer, definition.versions)

    def __call__(self, rows: Iterable[Sequence[Any]], state: State) -> list[State]:
        graph = graph_pb2.GraphDef(versions=self.versions)
        given: dict[str, Any] = {}

        def give(kind: str, values: Iterable[Any]) -> list[str]:
            names = {f"{kind}_{k}": _within(value) for k, value in enumerate(values)}
            given.update(names)
            return [*names]

        outer, now = give("outer", self.outer), give("state", state)
        after = []
        for number, row in enumerate(rows):
            inputs = dict(zip(self.inputs, [*give(f"row_{number}", row), *now, *outer], strict=True))
            graph.node.extend(self._copy(inputs, number))
            now = [self._rename(name, inputs, number) for name in self.outputs]
            after.append(now)
        read = {name for node in graph.node for name in node.input}
        wanted = [tensor(name) for state_names in after for name in state_names if name not in given]
        taken = {tensor(name): value for name, value in given.items() if name in read}
        results = tf.import_graph_def(graph, taken, wanted, name=_SCOPE)
        values = given | dict(zip(map(reference, wanted), results, strict=True))
        return [tuple(values[name] for name in state_names) for state_names in after]

    def _copy(self, inputs: Mapping[str, str], number: int) -> Iterator[NodeDef]:
        for node in self.nodes:
            if number and node.name in self.constants:
                continue
            sources = [self._rename(source, inputs, number) for source in node.input]
            yield copy_node(node, name=self._rename(node.name, inputs, number), inputs=sources)

    def _rename(self, name: str, inputs: Mapping[str, str], number: int) -> str:
        """What a tensor or node of the step is called in a copy."""
        op, _ = split(name)
        if op in inputs:
            return inputs[op]
        return f"{0 if op in self.constants else number}/{reference(name)}"


def _within(value: Any) -> Any:
    """A tensor in the graph of the function that is traced; an import does not take it there."""
    return value if value.graph is tf.compat.v1.get_default_graph() else tf.identity(value)
