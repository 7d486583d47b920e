"""The state of the source while it is judged: its own variables, set before a run and looked at after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.model import Array
from cudnn_convert.plan import Plan


class Memory:
    """The assigned variables of a running session; `starts` and `ends` are the tensors for those that left.

    `writes` are the assignments of those, which a run makes even where no output waits for them.
    """

    def __init__(self, running: Any, plan: Plan) -> None:
        self._running = running
        leaving = [found for found in plan.states if found.start is not None]
        self.starts = {found.start: found.state.variable for found in leaving}
        self.ends = {found.end: found.state.variable for found in leaving}
        writes = [write.op for found in leaving for write in found.state.writes]
        self.writes = [running.graph.get_operation_by_name(op) for op in writes]
        stored = {found.state.variable: plan.model.variables[found.state.key] for found in plan.states}
        self._stored = {variable: value.read() for variable, value in stored.items()}
        self._slots = {variable: _slot(running.graph, variable) for variable in stored}
        self._scalars = {found.state.variable for found in leaving if found.from_scalar}

    def set(self, values: Mapping[str, Array]) -> None:
        """Gives the variables behind the tensors `starts` their values.

        One that begins as a scalar gets that for a tensor of nothing else: so it is in the source.
        """
        given = {self.starts[name]: value for name, value in values.items()}
        begun = {name for name in self._scalars & given.keys() if np.all(given[name] == self._stored[name])}
        self._assign(given | {name: self._stored[name] for name in begun})

    def held(self) -> dict[str | None, Array]:
        """What the variables hold now, by the tensors `ends`."""
        found: dict[str | None, Array] = self._running.run(
            {name: self._slots[variable][2] for name, variable in self.ends.items()}
        )
        return found

    def restart(self) -> None:
        """Puts back what the file holds."""
        self._assign(self._stored)

    def _assign(self, values: Mapping[str, Array]) -> None:
        slots = {variable: self._slots[variable] for variable in values}
        fed = {slots[variable][0]: value for variable, value in values.items()}
        self._running.run([assign for _, assign, _ in slots.values()], fed)


def _slot(graph: tf.Graph, variable: str) -> tuple[Any, Any, Any]:
    """A placeholder, the op that assigns it to the variable, and the tensor that reads the variable."""
    target = graph.get_tensor_by_name(f"{variable}:0")
    with graph.as_default():
        if target.dtype == tf.resource:
            dtype = target.op.get_attr("dtype")
            fed = tf.compat.v1.placeholder(dtype)
            assign = tf.raw_ops.AssignVariableOp(resource=target, value=fed)
            return fed, assign, tf.raw_ops.ReadVariableOp(resource=target, dtype=dtype)
        fed = tf.compat.v1.placeholder(target.dtype.base_dtype)
        assign = tf.raw_ops.Assign(ref=target, value=fed, validate_shape=False)
        return fed, assign, tf.raw_ops.Snapshot(input=target)
