"""Runs the source's own graph, each cuDNN node computed by `reference`.

BlockLSTM ends the process where it is asked for more steps than its input has: a guard asks before it.

The feeds that are tried for a model of unknown axes may ask so. Source: tensorflow v2.21.0
core/kernels/rnn/lstm_ops.cc BlockLSTMOp (slices its input without a check).

The beams of TensorFlow 1's GatherTree, computed beam by beam where the source's graph has the op.

Source: tensorflow v1.15.0 contrib/seq2seq/kernels/beam_search_ops.cc, the CPU kernel.

The judge: the source's own graph, run with each cuDNN node computed by `reference`.

It runs as the file has it, cut at the inputs but not simplified, so that what `graph.passes.inference`
takes away is
judged too. What is not on the list of `graph.safe_ops` is refused unless the user trusts the source.

The way of a source with a graph: TensorFlow runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import lookup_tables, node_defs, recurrent_state, safe_ops
from cudnn_convert.graph.index import (
    CUDNN_OPS,
    INPUT,
    INPUT_C,
    INPUT_H,
    LENGTHS,
    Index,
    split,
    tensor,
    unique,
)
from cudnn_convert.graph.passes.tf1_ops import MARK
from cudnn_convert.graph.session import session
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.recurrences import resolve
from cudnn_convert.verification import feeds, judges, state_variables
from cudnn_convert.verification.reference_op import Call, Computation, Draw, computation


def guard_block_lstm(graph: Any, seen: list[tuple[int, int]]) -> list[Any]:
    """Put a guard before each BlockLSTM of a GraphDef, in place; it adds the (time, batch) it saw to `seen`.

    Returns the functions, which the caller keeps.
    """

    def guard(steps: Array, x: Array) -> Array:
        if not 0 <= steps <= x.shape[0]:
            raise ValueError(f"BlockLSTM: expected at most {x.shape[0]} steps, found {steps}")
        seen.append((x.shape[0], x.shape[1]))
        return np.asarray(steps, np.int64)

    names = {node.name for node in graph.node}
    blocks = [node for node in graph.node if node.op in resolve.BLOCK_OPS]
    for node in blocks:
        name, inputs = unique(f"{node.name}/guard", names), [node.input[resolve.STEPS], node.input[resolve.X]]
        token, types = tf_private.register_function(guard), [tf.int64, tf.as_dtype(node.attr["T"].type)]
        graph.node.append(node_defs.node(name, "PyFunc", inputs, token=token, Tin=types, Tout=[tf.int64]))
        node.input[resolve.STEPS] = name
    return [guard] if blocks else []


def compute_beams(graph: Any) -> list[Any]:
    """Each node that stands for a GatherTree becomes a PyFunc; returns their functions, to be kept."""
    functions = []
    for node in graph.node:
        if MARK in node.attr:
            functions.append(beams)
            _, *inputs = node.input
            token = tf_private.register_function(beams)
            kinds = [tf.int32] * 4
            node.CopyFrom(node_defs.node(node.name, "PyFunc", inputs, token=token, Tin=kinds, Tout=kinds[:1]))
    return functions


def beams(ids: Array, parents: Array, lengths: Array, end: Array) -> Array:
    """The whole beams `[time, batch, beam]`."""
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


@dataclass(frozen=True, slots=True)
class _Answered:
    """What a run gave by tensor, and what its recurrences saw and took."""

    values: Mapping[str, Array]
    sizes: Sequence[tuple[int, int]]
    calls: Sequence[Call]


@contextmanager
def open_source(plan: Plan, *, dtype: Any = np.float64, trust: bool = False) -> Iterator[judges.Source]:
    """The source of `plan`, its recurrences computed in `dtype`; tensors are named as in `plan.signature`.

    Raises UnsupportedModelError where running it would run more than arithmetic.
    """
    graph = node_defs.strip_devices(plan.whole)
    if not trust:
        refuse_effects(plan, graph, cure="vouch for the file with --trust, or convert with --no-verify")
    seen: list[tuple[int, int]] = []
    draw = Draw()
    functions = _insert_references(graph, plan.recurrences, dtype, seen, draw)
    functions += [*guard_block_lstm(graph, seen), *compute_beams(graph)]
    # The recurrences' own parameters are read by nobody now, and need no value.
    needed = [split(name)[0] for name in [*plan.signature.outputs.values(), *plan.signature.inputs.values()]]
    needed += [write.op for state in plan.states for write in state.state.writes]
    needed += plan.initializers
    model, pruned = plan.model, node_defs.prune(node_defs.Graph(graph), needed)
    with session(pruned, model.variables, initializers=plan.initializers, assets=model.assets) as running:
        memory = state_variables.Memory(running, plan)
        # A feed that was tried when it was chosen is not run again for its answers.
        answered: dict[Any, _Answered] = {}

        def run(feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
            is_repeatable = draw.is_exact and not (plan.states or trust)
            key = tuple((name, *_content(value)) for name, value in feeds.items()) if is_repeatable else None
            earlier = answered.get(key)
            if earlier is not None and earlier.values.keys() >= {*wanted}:
                seen[:], draw.calls[:] = earlier.sizes, earlier.calls
                return [earlier.values[name] for name in wanted]
            seen.clear()
            draw.calls.clear()
            memory.set({name: value for name, value in feeds.items() if name in memory.starts})
            fed = {name: value for name, value in feeds.items() if name not in memory.starts}
            fetched = [name for name in wanted if name not in memory.ends]
            values, _ = running.run((fetched, memory.writes), fed)
            answers_by_name = dict(zip(fetched, values, strict=True)) | memory.read_held()
            answers = [np.asarray(answers_by_name[name]) for name in wanted]
            if key is not None:
                answered[key] = _Answered(dict(zip(wanted, answers, strict=True)), [*seen], [*draw.calls])
            return answers

        words = lookup_tables.words(running, plan.initializers)
        yield judges.Source(
            run, seen, memory.restart, draw.choose, draw.disturb, draw.give, draw.calls, words
        )
    del functions  # TensorFlow's registry holds them weakly: they must outlive the session


def _content(value: Array) -> tuple[Any, ...]:
    """What tells an array from every other one."""
    content = tuple(value.ravel()) if value.dtype.kind == "O" else value.tobytes()
    return value.dtype.str, value.shape, content


def refuse_effects(plan: Plan, graph: Any, *, cure: str, doing: str = "verifying") -> None:
    """Raises UnsupportedModelError where running `graph` is more than arithmetic and cuDNN."""
    # A recurrence that goes on from where it was keeps to its own graph too.
    states = [write.op for state in plan.states for write in state.state.writes]
    ends = [*plan.signature.outputs.values(), *plan.signature.inputs.values()]
    # What fills a table reads constants or one file that the source itself brings (graph.tables), whose path
    # is fed where tables are filled, and nowhere else.
    fills = {*plan.initializers} - Index(graph).ancestors([*(split(name)[0] for name in ends), *states])

    def is_known(node: Any, function: str) -> bool:
        if function:
            return False
        return (node.name in states and node.op in recurrent_state.WRITES) or (
            node.name in fills and node.op in lookup_tables.FILLS
        )

    safe_ops.refuse(plan.model.path, graph, cure=cure, doing=doing, known=is_known)


def _insert_references(
    graph: Any, recurrences: Sequence[Recurrence], dtype: Any, seen: list[tuple[int, int]], draw: Draw
) -> list[Any]:
    """Each cuDNN node becomes a PyFunc of its old name; returns the functions, which the caller keeps."""
    known = {recurrence.node: recurrence for recurrence in recurrences}
    functions = []
    for node in graph.node:
        if node.op in CUDNN_OPS:
            function = _function(known.get(node.name), dtype, seen, draw)
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


def _function(
    recurrence: Recurrence | None, dtype: Any, seen: list[tuple[int, int]], draw: Draw
) -> Computation:
    if recurrence is not None:
        return computation(recurrence, dtype, seen, draw)

    def dead(*_: Any) -> list[Array]:
        raise RuntimeError("a branch that was taken for dead is alive")

    return dead


def _scores(plan: Plan) -> dict[str, tuple[str, int]]:
    """For each output that is an ArgMax: the tensor of the scores that decide it, and their axis."""
    index = Index(plan.whole)
    scores: dict[str, tuple[str, int]] = {}
    for key, name in plan.signature.outputs.items():
        if split(name)[0] not in index.nodes:
            continue  # what a state variable holds next
        node = index.nodes[split(name)[0]]
        while node.op in ("Identity", "Cast"):
            node = index.nodes[split(node.input[0])[0]]
        if node.op == "ArgMax" and (axis := node_defs.fold_scalar(index, tensor(node.input[1]))) is not None:
            scores[key] = (tensor(node.input[0]), axis)
    return scores


def _dtypes(plan: Plan) -> set[np.dtype[Any]]:
    return {np.dtype(kind.as_numpy_dtype) for kind in resolve.dtypes(plan.graph)}


WAY: Final = judges.Way(open_source, feeds.generate, feeds.fitting, feeds.require_accepted, _dtypes, _scores)
