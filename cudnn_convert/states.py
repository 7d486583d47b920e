"""State in the user's words: the inputs and outputs that name it, their keys, and the notes on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.graph import build, state, updates
from cudnn_convert.graph.index import Index, split
from cudnn_convert.graph.settle import Settled
from cudnn_convert.graph.state import State
from cudnn_convert.graph.trace import VARIABLES
from cudnn_convert.specs import Spec

#: What the key of a state's input gets for the output that holds its next value.
NEXT: Final = "_next"


def with_updates(index: Index, wanted: Iterable[Spec]) -> list[Spec]:
    """The outputs with each group of assignments as its members, called after the variables they write."""
    found = []
    for spec in wanted:
        writes = updates.updates(index, split(spec.tensor)[0])
        key = spec.key if len(writes) == 1 else None
        named = [Spec(key or _key(variable) + NEXT, f"{op}:0") for op, variable in writes.items()]
        found += named or [spec]
    return found


def _key(variable: str) -> str:
    return variable.replace("/", "_")


def asked(index: Index, graph: Any, outputs: Sequence[str], inputs: Iterable[Spec]) -> set[str]:
    """Which of the inputs asked for are state: those leave their variables whatever the format."""
    tensors = [spec.tensor for spec in inputs]
    named = {name for name in tensors if index.nodes[split(name)[0]].op in VARIABLES}
    if not named:
        return set()
    ends = {split(name)[0] for name in tensors if name not in named}
    needed = build.kept(graph, index.ancestors((split(name)[0] for name in outputs), stop=ends))
    return named & {found.tensor for found in state.find(needed, outputs)}


def refuse_bound(graph: Any, outputs: Sequence[str], bound: Collection[str]) -> None:
    """Raises UsageError where `--set` binds state."""
    if any(Index(graph).nodes[split(name)[0]].op in VARIABLES for name in bound):
        needed = build.kept(graph, Index(graph).ancestors(split(name)[0] for name in outputs))
        for found in state.find(needed, outputs):
            if found.tensor in bound:
                what = f"found {found.tensor}, which {found.writes[-1].op} writes"
                cure = "leave it out, or name it with --inputs in the place of --set"
                raise UsageError(f"--set: expected a tensor that is no state, {what}; {cure}")


def next_outputs(
    found: Settled, graph: Any, inputs: Mapping[str, str], outputs: Iterable[str]
) -> list[tuple[Spec, str]]:
    """The next values that are no output yet: the specs by the source's names, and the tensors.

    `graph` still has the assignments; `inputs` maps the keys of the inputs to the source's tensors.
    """
    index, keys, present = Index(graph), {name: key for key, name in inputs.items()}, set(outputs)
    return [
        (Spec(keys[one.state.tensor] + NEXT, f"{updates.last_writes(index, one.state)[-1]}:0"), str(one.end))
        for one in found.leaving
        if one.end not in present
    ]


def notes(found: Settled, left_out: Sequence[tuple[str, str]], outputs: Iterable[str]) -> Iterator[str]:
    """What became of the state, and the updates that were left out."""
    leaving = [one.state for one in found.leaving]
    staying = [one.state for one in found.carried if one.stays]
    dropped = [one.state for one in found.carried if one.dropped]
    if leaving:
        zeros = all(not np.any(found.model.variables[one.key].read()) for one in leaving)
        begin = "zeros" if zeros else "the values that the source holds"
        if not zeros and any(one.from_scalar for one in found.leaving):
            begin += ", a scalar filling the whole shape"
        yield f"{_variables(leaving)} became inputs and outputs; a sequence begins with {begin}"
    if staying:
        yield f"{_variables(staying)} kept as variables: a call changes what the next one gives"
    for one in dropped:
        ops = ", ".join(write.op for write in one.writes)
        yield f"{ops}: no output reads {one.variable}, which it changes; left out"
    if left_out:
        writes, variables = (", ".join(dict.fromkeys(names)) for names in zip(*left_out, strict=True))
        flag = f"--outputs {','.join([*outputs, *(f'{op}:0' for op, _ in left_out)])}"
        yield f"{writes}: no output needs what updates {variables}, left out; add with {flag}"


def _variables(found: Sequence[State]) -> str:
    return f"state variable{'s' if len(found) > 1 else ''} {', '.join(one.variable for one in found)}"
