"""The judge: the source's own graph, run with each cuDNN node computed by `reference`.

It runs as the file has it, cut at the inputs but not simplified, so that what `graph.simplify` takes away is
judged too. What is not on the list of `graph.pure` is refused unless the user trusts the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from cudnn_convert.graph import build, pure, tables
from cudnn_convert.graph.index import CUDNN_OPS, INPUT, INPUT_C, INPUT_H, LENGTHS, Index, split
from cudnn_convert.graph.session import session
from cudnn_convert.graph.state import WRITES
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.verification import beams, block_guard
from cudnn_convert.verification.computed import Call, Computation, Draw, computation
from cudnn_convert.verification.memory import Memory
from cudnn_convert.verification.way import Source


@dataclass(frozen=True, slots=True)
class _Answered:
    """What a run gave by tensor, and what its recurrences saw and took."""

    values: Mapping[str, Array]
    sizes: Sequence[tuple[int, int]]
    calls: Sequence[Call]


@contextmanager
def opened(plan: Plan, *, dtype: Any = np.float64, trust: bool = False) -> Iterator[Source]:
    """The source of `plan`, its recurrences computed in `dtype`; tensors are named as in `plan.signature`.

    Raises UnsupportedModelError where running it would run more than arithmetic.
    """
    graph = build.placed(plan.whole)
    if not trust:
        refuse_effects(plan, graph, cure="vouch for the file with --trust, or convert with --no-verify")
    seen: list[tuple[int, int]] = []
    draw = Draw()
    functions = _insert_references(graph, plan.recurrences, dtype, seen, draw)
    functions += [*block_guard.insert(graph, seen), *beams.insert(graph)]
    # The recurrences' own parameters are read by nobody now, and need no value.
    needed = [split(name)[0] for name in [*plan.signature.outputs.values(), *plan.signature.inputs.values()]]
    needed += [write.op for found in plan.states for write in found.state.writes]
    needed += plan.initializers
    graph = build.kept(graph, Index(graph).ancestors(needed))
    model = plan.model
    with session(graph, model.variables, initializers=plan.initializers, assets=model.assets) as running:
        memory = Memory(running, plan)
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
            found = dict(zip(fetched, values, strict=True)) | memory.held()
            answers = [np.asarray(found[name]) for name in wanted]
            if key is not None:
                answered[key] = _Answered(dict(zip(wanted, answers, strict=True)), [*seen], [*draw.calls])
            return answers

        words = tables.words(running, plan.initializers)
        yield Source(run, seen, memory.restart, draw.choose, draw.disturb, draw.give, draw.calls, words)
    del functions  # TensorFlow's registry holds them weakly: they must outlive the session


def _content(value: Array) -> tuple[Any, ...]:
    """What tells an array from every other one."""
    content = tuple(value.ravel()) if value.dtype.kind == "O" else value.tobytes()
    return value.dtype.str, value.shape, content


def refuse_effects(plan: Plan, graph: Any, *, cure: str, doing: str = "verifying") -> None:
    """Raises UnsupportedModelError where running `graph` is more than arithmetic and cuDNN."""
    # A recurrence that goes on from where it was keeps to its own graph too.
    states = [write.op for held in plan.states for write in held.state.writes]
    ends = [*plan.signature.outputs.values(), *plan.signature.inputs.values()]
    # What fills a table reads constants or one file that the source itself brings (graph.tables), whose path
    # is fed where tables are filled, and nowhere else.
    fills = {*plan.initializers} - Index(graph).ancestors([*(split(name)[0] for name in ends), *states])

    def known(node: Any, function: str) -> bool:
        if function:
            return False
        return (node.name in states and node.op in WRITES) or (node.name in fills and node.op in tables.FILLS)

    pure.refuse(plan.model.path, graph, cure=cure, doing=doing, known=known)


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
            token = script_ops._py_funcs.insert(function)
            node.CopyFrom(
                build.node(node.name, "PyFunc", inputs + control, token=token, Tin=types, Tout=[kind] * 3)
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
