"""Runs the source's graph as a judge, each cuDNN node computed by `reference`.

The graph runs as the file has it, cut at the inputs but not simplified, so that what `graph.passes.inference`
takes away is judged too. What is not on the list of `graph.safe_ops` is refused unless the user trusts the
source. Variables have the values that the source's own restore op would set: TensorFlow evaluates the names
and slices that the op is given, so a value that the reader took from a wrong key shows in the numbers.

Two ops of TensorFlow 1 need care. BlockLSTM ends the process where it is asked for more steps than its input
has, as feeds that are tried for unknown axes may do; a guard checks that before it (tensorflow v2.21.0
core/kernels/rnn/lstm_ops.cc BlockLSTMOp slices its input without a check). GatherTree is computed beam by
beam (tensorflow v1.15.0 contrib/seq2seq/kernels/beam_search_ops.cc, the CPU kernel).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import ReadError
from cudnn_convert.graph import constant_folding, node_defs, ops, recurrent_state, safe_ops, session
from cudnn_convert.graph.graph import Graph, extract_nodes, import_graph, open_session, prune, strip_devices
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, Index, split, tensor, unique
from cudnn_convert.graph.passes.tf1_ops import MARK
from cudnn_convert.model import Array, BlobEvidence, Checkpoint, InMemory, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.recurrences import resolve
from cudnn_convert.text import first_line
from cudnn_convert.values import EncodedTensor
from cudnn_convert.verification import channels_first, feeds, judges
from cudnn_convert.verification.judges import USUAL, Draw, Floats, RecurrenceCall, RunningSource, Sizes


@dataclass(frozen=True, slots=True)
class GraphJudge:
    """A judge of a source by running the source's graph."""

    plan: Plan

    def open(self, *, dtype: Any = np.float64, trust: bool = False) -> AbstractContextManager[RunningSource]:
        """Open the source.

        Raises UnsupportedModelError where running it would run more than arithmetic.
        """
        return open_source(self.plan, dtype=dtype, trust=trust)

    def make_feeds(
        self, source: RunningSource, *, seed: int, more: Sizes = (), usual: Sizes = (), floats: Floats = USUAL
    ) -> list[dict[str, Array]]:
        """Make feeds accepted by the source.

        Raises UnsupportedModelError where none are found.
        """
        return feeds.generate(self.plan, source, seed=seed, more=more, usual=usual, floats=floats)

    def fit(self, values: Mapping[str, Array], *, where: str) -> dict[str, Array]:
        """Convert arrays by key to a feed by tensor. Raises UsageError."""
        return feeds.fit(self.plan, values, where=where)

    def require_accepted(self, source: RunningSource, feed: Mapping[str, Array], *, where: str) -> None:
        """Raise UsageError where the source refuses a feed."""
        feeds.require_accepted(self.plan, source, feed, where=where)

    def dtypes(self) -> set[np.dtype[Any]]:
        """Return the types of block LSTMs."""
        return {np.dtype(kind.as_numpy_dtype) for kind in resolve.dtypes(self.plan.graph)}

    def scores(self) -> dict[str, tuple[str, int]]:
        """Return, for each ArgMax output, the tensor of the scores, and the axis."""
        index = Index(self.plan.whole)
        scores: dict[str, tuple[str, int]] = {}
        for key, name in self.plan.signature.outputs.items():
            if split(name)[0] not in index.nodes:
                continue  # what a state variable holds next
            node = index.maker(name, ["Identity", "Cast"])
            axis = constant_folding.fold_scalar(index, tensor(node.input[1])) if node.op == "ArgMax" else None
            if axis is not None:
                scores[key] = (tensor(node.input[0]), axis)
        return scores


@dataclass(frozen=True, slots=True)
class _JudgeRun:
    """The values of a run by tensor, and the sizes and calls of the recurrences."""

    values: Mapping[str, Array]
    sizes: Sequence[tuple[int, int]]
    calls: Sequence[RecurrenceCall]


@contextmanager
def open_source(
    plan: Plan, *, dtype: Any = np.float64, trust: bool = False, rewrite: bool = False
) -> Iterator[RunningSource]:
    """Open the source of `plan`, with recurrences computed in `dtype`.

    Tensors are named as in `plan.signature`. With `rewrite` TensorFlow's optimizer rewrites what is around
    them, as it does in an artifact. Raises UnsupportedModelError where running it would run more than
    arithmetic.
    """
    seen: list[tuple[int, int]] = []
    draw = Draw()
    graph, functions = build_graph(plan, dtype, seen, draw, trust=trust)
    # The recurrences' own parameters are read by nobody now, and need no value.
    needed = [split(name)[0] for name in plan.signature.tensors]
    needed += [write.op for state in plan.states for write in state.state.writes]
    needed += plan.initializers
    model, pruned = plan.model, prune(Graph(graph), needed)
    with session.session(
        pruned, model.variables, initializers=plan.initializers, assets=model.assets, rewrite=rewrite
    ) as running:
        memory = Memory(running, plan)
        # A feed that was tried when it was chosen is not run again for its answers.
        answered: dict[Any, _JudgeRun] = {}

        def run(feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
            is_repeatable = draw.is_exact and not (plan.states or trust)
            key = tuple((name, *_content(value)) for name, value in feeds.items()) if is_repeatable else None
            earlier = answered.get(key)
            if earlier is not None and earlier.values.keys() >= {*wanted}:
                seen[:], draw.calls[:] = earlier.sizes, earlier.calls
                return [earlier.values[name] for name in wanted]
            seen.clear()
            draw.calls.clear()
            memory.begin()
            memory.set({name: value for name, value in feeds.items() if name in memory.starts})
            fed = {name: value for name, value in feeds.items() if name not in memory.starts}
            fetched = [name for name in wanted if name not in memory.ends]
            values, _ = running.run((fetched, memory.writes), fed)
            answers_by_name = dict(zip(fetched, values, strict=True)) | memory.read_held()
            answers = [np.asarray(answers_by_name[name]) for name in wanted]
            if key is not None:
                answered[key] = _JudgeRun(dict(zip(wanted, answers, strict=True)), [*seen], [*draw.calls])
            return answers

        words = session.words(running, plan.initializers)
        yield RunningSource(run, seen, memory.restart, draw, words)
    del functions  # TensorFlow's registry holds them weakly: they must outlive the session


def build_graph(
    plan: Plan, dtype: Any, seen: list[tuple[int, int]], draw: Draw, *, trust: bool
) -> tuple[Any, list[Any]]:
    """Build the source's graph, with recurrences computed in `dtype`.

    Returns the graph with the functions that the caller keeps. Raises UnsupportedModelError where running it
    would run more than arithmetic.
    """
    graph = strip_devices(plan.whole)
    take_states(graph, plan)
    left = {node.name for node in graph.node if node.op in ops.PYTHON}
    left -= {node.name for node in plan.graph.node}
    functions = _bar_calls(graph, left)
    if not trust:
        cure = "vouch for the file with --trust, or convert with --no-verify"
        refuse_effects(plan, graph, cure=cure, barred=left)
    functions += channels_first.run_on_any_cpu(graph)
    functions += _insert_references(graph, plan.recurrences, dtype, seen, draw)
    functions += guard_block_lstm(graph, seen)
    compute_beams(graph)
    return graph, functions


def _bar_calls(graph: Any, left: Collection[str]) -> list[Any]:
    """Replace each Python call of `left` by a failing function, in place.

    The calls are what the artifact leaves out, as on a side that is never taken: reaching one ends the run.
    Returns the functions, which the caller keeps.
    """

    def fail(*_: Any) -> None:
        raise ValueError("expected a call of Python that nothing reaches, found that it is reached")

    token = tf_private.register_function(fail) if left else ""
    for node in graph.node:
        if node.name in left:
            kinds = {key: [*map(tf.as_dtype, node.attr[key].list.type)] for key in ("Tin", "Tout")}
            node.CopyFrom(node_defs.node(node.name, "PyFunc", node.input, token=token, **kinds))
    return [fail] if left else []


def _content(value: Array) -> tuple[Any, ...]:
    """Return a key unique to an array's content."""
    content = tuple(value.ravel()) if value.dtype.kind == "O" else value.tobytes()
    return value.dtype.str, value.shape, content


def refuse_effects(
    plan: Plan, graph: Any, *, cure: str, doing: str = "verifying", barred: Collection[str] = ()
) -> None:
    """Raise UnsupportedModelError where `graph` is more than arithmetic, cuDNN and calls `barred`.

    Variables may be written that hold recurrent state, or that no output reads: the seeds of Keras 3's layers
    with dropout count calls at inference too.
    """
    # A recurrence that goes on from where it was keeps to its own graph too.
    writes = {write.op for state in plan.states for write in state.state.writes}
    writes |= _unread_writes(plan, graph)
    # What fills a table reads constants or one file that the source itself brings (graph.tables), whose path
    # is fed where tables are filled, and nowhere else.
    fills = {*plan.initializers} - Index(graph).ancestors(
        [*(split(name)[0] for name in plan.signature.tensors), *writes]
    )

    def is_known(node: Any, function: str) -> bool:
        if function:
            return False
        is_state = node.name in writes and node.op in ops.WRITES
        return is_state or node.name in barred or (node.name in fills and node.op in ops.FILLS)

    safe_ops.refuse(plan.model.path, graph, cure=cure, doing=doing, known=is_known)


def _unread_writes(plan: Plan, graph: Any) -> set[str]:
    """Return the ops with writes to the graph's variables unread by any output."""
    if not any(node.op in ops.WRITES for node in graph.node):
        return set()
    outputs = [*plan.signature.outputs.values()]
    needed = prune(Graph(graph), outputs)
    assigned = recurrent_state.find_assigned_variables(needed, outputs)
    return {write.op for state in assigned if not state.read for write in state.writes}


def _insert_references(
    graph: Any, recurrences: Sequence[Recurrence], dtype: Any, seen: list[tuple[int, int]], draw: Draw
) -> list[Any]:
    """Turn each cuDNN node into a PyFunc; return the functions, kept by the caller."""
    known = {recurrence.node: recurrence for recurrence in recurrences}
    functions = []
    for node in graph.node:
        if node.op in ops.CUDNN:
            recurrence = known.get(node.name)
            function = judges.computation(recurrence, dtype, seen, draw) if recurrence else _reach_dead
            functions.append(function)
            kind = tf.as_dtype(node.attr["T"].type)
            positions = [INPUT, INPUT_H, INPUT_C] + ([LENGTHS] if node.op == "CudnnRNNV3" else [])
            control = [name for name in node.input if name.startswith("^")]
            inputs = [node.input[position] for position in positions]
            types = [kind] * 3 + [tf.int32] * (len(positions) - 3)
            token = tf_private.register_function(function)
            node.CopyFrom(
                node_defs.node(node.name, "PyFunc", inputs + control, token=token, Tin=types, Tout=[kind] * 3)
            )
    return functions


def take_states(graph: Any, plan: Plan) -> None:
    """Give cuDNN nodes placeholders as initial states and named outputs as final states, in place.

    The states are named as in the plan, `[layers*directions, batch, width]` each, and so is what they begin
    with in the source. States that are placeholders of the source stay so. What is the same at all steps is
    taken from placeholders too.
    """
    if plan.streaming is None:
        return
    _take_encoded(graph, plan.streaming.encoded)
    keep_begins(graph, plan)
    nodes = {node.name: node for node in graph.node}
    for state in plan.streaming.states:
        start, end = (split(name)[0] for name in (state.start, state.end))
        if start in nodes:
            continue
        node = nodes[state.node]
        dtype = tf.as_dtype(node.attr["T"].type)
        position, output = (INPUT_C, 2) if state.kind == "c" else (INPUT_H, 1)
        shape = tf.TensorShape([state.depth, None, state.width])
        graph.node.append(node_defs.placeholder(start, dtype, shape))
        given = f"{node.name}:{output}"
        if state.time_major:
            node.input[position] = start
            graph.node.append(node_defs.identity(end, given, dtype.as_datatype_enum))
            continue
        order = node_defs.constant(unique(f"{start}/order", nodes), _SWAPPED)
        turned = unique(f"{start}/turned", nodes)
        for name, source in ((turned, start), (end, given)):
            graph.node.append(
                node_defs.node(name, "Transpose", [source, order.name], T=dtype, Tperm=tf.int32)
            )
        graph.node.append(order)
        node.input[position] = turned


_SWAPPED: Final = np.array([1, 0, 2], np.int32)


def keep_begins(graph: Any, plan: Plan) -> None:
    """Copy the initial states of a streamed plan's recurrences to the plan's names, in place.

    `[layers*directions, batch, width]` each. What assigns to a variable waits for the copy of its value.
    """
    assert plan.streaming is not None
    index = Index(graph)
    writes = {write.op for state in plan.states for write in state.state.writes}
    for state in plan.streaming.states:
        begin = split(state.begin)[0]
        if not begin or begin in index.nodes:
            continue
        node = index.nodes[state.node]
        dtype = tf.as_dtype(node.attr["T"].type)
        source = node.input[INPUT_C if state.kind == "c" else INPUT_H]
        copy = begin if state.time_major else f"{begin}/copy"
        graph.node.append(node_defs.node(copy, "Snapshot", [source], T=dtype))
        if not state.time_major:
            order = node_defs.constant(f"{begin}/order", _SWAPPED)
            swap = node_defs.node(begin, "Transpose", [copy, order.name], T=dtype, Tperm=tf.int32)
            graph.node.extend([order, swap])
        for op in writes - index.ancestors([split(source)[0]]):
            if op in index.nodes:
                index.nodes[op].input.append(f"^{copy}")


def _take_encoded(graph: Any, encoded: Sequence[EncodedTensor]) -> None:
    """Replace tensors equal at all steps by placeholders, in place."""
    if not encoded:
        return
    seen = import_graph(graph)
    starts = {each.tensor: split(each.start)[0] for each in encoded}
    for node in graph.node:
        for position, name in enumerate(node.input):
            if not name.startswith("^") and tensor(name) in starts:
                node.input[position] = starts[tensor(name)]
    for name, start in starts.items():
        value = seen.get_tensor_by_name(name)
        graph.node.append(node_defs.placeholder(start, value.dtype.base_dtype, value.shape))


def _reach_dead(*_: Any) -> list[Array]:
    raise RuntimeError("a branch that was taken for dead is alive")


def guard_block_lstm(graph: Any, seen: list[tuple[int, int]]) -> list[Any]:
    """Put a guard before each BlockLSTM; the guard adds the (time, batch) to `seen`.

    Returns the functions, which the caller keeps.
    """

    def guard(steps: Array, x: Array) -> Array:
        if not 0 <= steps <= x.shape[0]:
            raise ValueError(f"BlockLSTM: expected at most {x.shape[0]} steps, found {steps}")
        seen.append((x.shape[0], x.shape[1]))
        return np.asarray(steps, np.int64)

    names = {node.name for node in graph.node}
    blocks = [node for node in graph.node if node.op in ops.BLOCK_LSTMS]
    for node in blocks:
        name, inputs = unique(f"{node.name}/guard", names), [node.input[resolve.STEPS], node.input[resolve.X]]
        token, types = tf_private.register_function(guard), [tf.int64, tf.as_dtype(node.attr["T"].type)]
        graph.node.append(node_defs.node(name, "PyFunc", inputs, token=token, Tin=types, Tout=[tf.int64]))
        node.input[resolve.STEPS] = name
    return [guard] if blocks else []


def compute_beams(graph: Any) -> None:
    """Turn each GatherTree into a PyFunc, in place."""
    for node in graph.node:
        if MARK in node.attr:
            _, *inputs = node.input
            token = tf_private.register_function(beams)
            kinds = [tf.int32] * 4
            node.CopyFrom(node_defs.node(node.name, "PyFunc", inputs, token=token, Tin=kinds, Tout=kinds[:1]))


def beams(ids: Array, parents: Array, lengths: Array, end: Array) -> Array:
    """Return the whole beams `[time, batch, beam]`."""
    outputs = ids * 0 + end
    for row, length in enumerate(lengths):
        for beam in range(ids.shape[2]):
            at = beam
            for t in range(min(int(length), len(ids)) - 1, -1, -1):
                outputs[t, row, beam], at = ids[t, row, at], parents[t, row, at]
            ends = (outputs[:, row, beam] == end).nonzero()[0]
            if len(ends):
                outputs[ends[0] :, row, beam] = end
    return outputs


_FORMS: Final = frozenset({"Identity", "Reshape"})
_RESTORE: Final = "RestoreV2"


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry read by a restore op for a variable."""

    key: str
    slices: str


def with_restored_values(plan: Plan) -> Plan:
    """Return the plan with values of the source's restore op, for the judge alone."""
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
    """Recompute a recurrence from the restored entry of the parameters, if the key differs."""
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
    """Return True if the reader took the same entry."""
    taken = (getattr(tensor, "key", None), getattr(tensor, "slices", None))
    return taken == (entry.key, entry.slices)


def _read(prefix: Path, entry: _Entry) -> Array:
    try:
        dtype = tf.train.load_checkpoint(str(prefix)).get_variable_to_dtype_map()[entry.key]
        with tf.Graph().as_default() as graph, open_session(graph) as running:
            (value,) = tf.raw_ops.RestoreV2(
                prefix=str(prefix), tensor_names=[entry.key], shape_and_slices=[entry.slices], dtypes=[dtype]
            )
            return np.asarray(running.run(value))
    except (tf.errors.OpError, KeyError, ValueError) as cause:
        expected = "an entry that TensorFlow restores"
        raise ReadError(prefix, f"tensor {entry.key}", expected=expected, found=first_line(cause)) from cause


def _entries(checkpoint: Checkpoint) -> Iterator[tuple[str, _Entry]]:
    """Yield each stored variable, with the entry restored by the MetaGraph's saver."""
    meta = checkpoint.meta
    index = Index(meta.graph_def)
    saver = meta.saver_def.restore_op_name.removesuffix(":0")
    if saver not in index.nodes:
        return
    # The op that restores everything waits for each assignment.
    waited_for = map(index.nodes.__getitem__, sorted(index.ancestors([saver])))
    assigns = [node for node in waited_for if node.op in ops.OVERWRITES]
    sources = [
        (index.nodes[split(node.input[0])[0]], *split(index.origin(node.input[1], _FORMS)))
        for node in assigns
    ]
    words = _words(meta.graph_def, index, {op for _, op, _ in sources if index.nodes[op].op == _RESTORE})
    for variable, op, number in sources:
        if variable.op in ops.VARIABLES and number < len(words.get(op, ())):
            yield session.checkpoint_key(variable), words[op][number]


def list_restored_keys(checkpoint: Checkpoint) -> dict[str, str]:
    """Map each variable's key to the key read by a MetaGraph's restore op.

    Raises LookupError where it reads a part of a stored tensor.
    """
    keys = {}
    for name, entry in _entries(checkpoint):
        if entry.slices:
            raise LookupError(f"variable {name} is restored from a part of {entry.key}")
        keys[name] = entry.key
    return keys


def _words(graph: Any, index: Index, restores: set[str]) -> dict[str, list[_Entry]]:
    """Evaluate the names and slices of restore ops, where only arithmetic is needed."""
    wanted = {name: [split(given)[0] for given in index.nodes[name].input[1:3]] for name in sorted(restores)}
    needed = extract_nodes(graph, index.ancestors(op for ops in wanted.values() for op in ops))
    if not wanted or any(safe_ops.others(needed)):
        return {}
    with tf.Graph().as_default() as scratch, open_session(scratch) as running:
        tf.import_graph_def(strip_devices(needed), name="")
        given = {name: index.data_inputs(index.nodes[name])[1:3] for name in wanted}
        values = running.run(given)
    return {
        name: [_Entry(key.decode(), part.decode()) for key, part in zip(*pair, strict=True)]
        for name, pair in values.items()
    }


class Memory:
    """The assigned variables of a running session.

    `starts` and `ends` map tensor names to variables, for states that become inputs and outputs. `writes` are
    the assignments of those, which each run must make even where no output depends on them.
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
        self._forgotten = {state.state.variable for state in plan.states if state.forgotten}
        self._scalars = {state.state.variable for state in leaving if state.from_scalar}

    def begin(self) -> None:
        """Restore the file's values in variables forgotten by a call."""
        if self._forgotten:
            self._assign({variable: self._stored[variable] for variable in self._forgotten})

    def set(self, values: Mapping[str, Array]) -> None:
        """Assign values to the variables behind the tensors `starts`.

        A variable that begins as a scalar gets that for a tensor of nothing else: so it is in the source.
        """
        given = {self.starts[name]: value for name, value in values.items()}
        begun = {name for name in self._scalars & given.keys() if np.all(given[name] == self._stored[name])}
        self._assign(given | {name: self._stored[name] for name in begun})

    def read_held(self) -> dict[str | None, Array]:
        """Read the current values of the variables, by the tensors `ends`."""
        values: dict[str | None, Array] = self._running.run(
            {name: self._slots[variable][2] for name, variable in self.ends.items()}
        )
        return values

    def restart(self) -> None:
        """Restore the file's values in all variables."""
        self._assign(self._stored)

    def _assign(self, values: Mapping[str, Array]) -> None:
        slots = {variable: self._slots[variable] for variable in values}
        fed = {slots[variable][0]: value for variable, value in values.items()}
        self._running.run([assign for _, assign, _ in slots.values()], fed)


def _slot(graph: tf.Graph, variable: str) -> tuple[Any, Any, Any]:
    """Return a placeholder, the op for assigning the placeholder to a variable, and the value."""
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
