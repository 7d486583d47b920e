"""Values of the judge's variables: restored ones, and state between calls.

The values of the judge's variables: those that the source's own restore op would set, by its own words.

The reader of the conversion follows constants; here TensorFlow evaluates the names and slices that each
restore op is given, and where that is another entry than the reader took, TensorFlow reads it. So a value of
a wrong key shows as numbers that differ.

The state of the source while it is judged: its own variables, set before a run and looked at after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import ReadError, first_line
from cudnn_convert.graph import node_defs, ops, safe_ops, session
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, split
from cudnn_convert.model import Array, BlobEvidence, Checkpoint, InMemory, Recurrence
from cudnn_convert.plan import Plan

_FORMS: Final = frozenset({"Identity", "Reshape"})
_RESTORE: Final = "RestoreV2"


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a restore op reads for a variable."""

    key: str
    slices: str


def with_restored_values(plan: Plan) -> Plan:
    """The plan with the values that the source's restore op names, for the judge alone."""
    checkpoint, taken = plan.model.checkpoint, plan.model.variables
    if checkpoint is None:
        return plan
    entries = {name: entry for name, entry in _entries(checkpoint) if entry.key in taken}
    values = {
        name: InMemory(_read(checkpoint.prefix, entry))
        for name, entry in entries.items()
        if not _is_taken(taken.get(name), entry)
    }
    keys = {name: entry.key for name, entry in entries.items()}
    variables = {**taken, **values}
    recurrences = tuple(_recurrence(recurrence, keys, variables) for recurrence in plan.recurrences)
    return replace(plan, model=replace(plan.model, variables=variables), recurrences=recurrences)


def _recurrence(recurrence: Recurrence, keys: Mapping[str, str], values: Mapping[str, Any]) -> Recurrence:
    """A recurrence whose parameters have another key than their own is computed from that entry."""
    key = keys.get(recurrence.shared)
    if key is None or recurrence.shared not in values:
        return recurrence
    if key == recurrence.shared and not isinstance(values[recurrence.shared], InMemory):
        return recurrence
    return replace(
        recurrence,
        evidence=BlobEvidence(values[recurrence.shared].read().astype(recurrence.dtype, copy=False)),
    )


def _is_taken(tensor: Any, entry: _Entry) -> bool:
    """Whether the reader took the same entry."""
    return tensor is not None and (getattr(tensor, "key", None), getattr(tensor, "slices", None)) == (
        entry.key,
        entry.slices,
    )


def _read(prefix: Path, entry: _Entry) -> Array:
    try:
        dtype = tf.train.load_checkpoint(str(prefix)).get_variable_to_dtype_map()[entry.key]
        with tf.Graph().as_default(), tf.compat.v1.Session() as running:
            (value,) = tf.raw_ops.RestoreV2(
                prefix=str(prefix),
                tensor_names=[entry.key],
                shape_and_slices=[entry.slices],
                dtypes=[dtype],
            )
            return np.asarray(running.run(value))
    except (tf.errors.OpError, KeyError, ValueError) as cause:
        expected = "an entry that TensorFlow restores"
        raise ReadError(prefix, f"tensor {entry.key}", expected=expected, found=first_line(cause)) from cause


def _entries(checkpoint: Checkpoint) -> Iterator[tuple[str, _Entry]]:
    """What the saver that wrote the MetaGraph restores into each variable as it is stored."""
    meta = checkpoint.meta
    index = Index(meta.graph_def)
    saver = meta.saver_def.restore_op_name.removesuffix(":0")
    if saver not in index.nodes:
        return
    # The op that restores everything waits for each assignment.
    waited_for = map(index.nodes.__getitem__, sorted(index.ancestors([saver])))
    assigns = [node for node in waited_for if node.op in ops.OVERWRITES]
    sources = [(index.nodes[split(node.input[0])[0]], *_source(index, node)) for node in assigns]
    words = _words(meta.graph_def, index, {op for _, op, _ in sources if index.nodes[op].op == _RESTORE})
    for variable, op, number in sources:
        if variable.op in ops.VARIABLES and number < len(words.get(op, ())):
            yield session.checkpoint_key(variable), words[op][number]


def _source(index: Index, node: NodeDef) -> tuple[str, int]:
    """The op, and the number of its output, whose value an assignment takes."""
    return split(index.origin(node.input[1], _FORMS))


def _words(graph: AnyGraph, index: Index, restores: set[str]) -> dict[str, list[_Entry]]:
    """The names and slices that restore ops are given, evaluated; none where that is not arithmetic alone."""
    wanted = {name: [split(given)[0] for given in index.nodes[name].input[1:3]] for name in sorted(restores)}
    needed = node_defs.extract_nodes(graph, index.ancestors(op for ops in wanted.values() for op in ops))
    if not wanted or any(safe_ops.others(needed)):
        return {}
    with tf.Graph().as_default() as scratch, tf.compat.v1.Session(graph=scratch) as running:
        tf.import_graph_def(node_defs.strip_devices(needed), name="")
        given = {name: index.data_inputs(index.nodes[name])[1:3] for name in wanted}
        values = running.run(given)
    return {
        name: [_Entry(key.decode(), part.decode()) for key, part in zip(*pair, strict=True)]
        for name, pair in values.items()
    }


class Memory:
    """The assigned variables of a running session; `starts` and `ends` are the tensors for those that left.

    `writes` are the assignments of those, which a run makes even where no output waits for them.
    """

    def __init__(self, running: Any, plan: Plan) -> None:
        self._running = running
        leaving = [state for state in plan.states if state.start is not None]
        self.starts = {state.start: state.state.variable for state in leaving}
        self.ends = {state.end: state.state.variable for state in leaving}
        writes = [write.op for state in leaving for write in state.state.writes]
        self.writes = [running.graph.get_operation_by_name(op) for op in writes]
        stored = {state.state.variable: plan.model.variables[state.state.key] for state in plan.states}
        self._stored = {variable: value.read() for variable, value in stored.items()}
        self._slots = {variable: _slot(running.graph, variable) for variable in stored}
        self._scalars = {state.state.variable for state in leaving if state.from_scalar}

    def set(self, values: Mapping[str, Array]) -> None:
        """Gives the variables behind the tensors `starts` their values.

        One that begins as a scalar gets that for a tensor of nothing else: so it is in the source.
        """
        given = {self.starts[name]: value for name, value in values.items()}
        begun = {name for name in self._scalars & given.keys() if np.all(given[name] == self._stored[name])}
        self._assign(given | {name: self._stored[name] for name in begun})

    def read_held(self) -> dict[str | None, Array]:
        """What the variables hold now, by the tensors `ends`."""
        values: dict[str | None, Array] = self._running.run(
            {name: self._slots[variable][2] for name, variable in self.ends.items()}
        )
        return values

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
