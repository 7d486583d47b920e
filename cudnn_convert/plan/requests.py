"""Requested inputs, outputs and states: from flags, signatures or the graph.

A `Request` is what is asked of a model by the flags, by the signatures of its file, or by its graph. State is
asked for in the same words: this module has the inputs and outputs that name it, their keys, and the notes on
it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import AmbiguousSourceError, Reason, Remedy, UsageError
from cudnn_convert.graph import ops, recurrent_state
from cudnn_convert.graph.graph import Graph, extract_nodes, import_checked, prune
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.graph.passes import state_io, subgraphs
from cudnn_convert.model import SERVING, Array, Model, Part, Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import choose_outputs, notes
from cudnn_convert.plan.notes import Spec

#: What the key of a state's input gets for the output that holds its next value, and for what a sequence
#: begins with.
NEXT: Final = "_next"
BEGUN: Final = "_begin"


def claim_key(key: str, endings: Sequence[str], keys: set[str], ops_taken: set[str]) -> str:
    """Return `key`, numbered if already taken alone or with an ending.

    The names are added to both sets; `ops_taken` are in lower case.
    """
    number, free = 0, key
    while (names := {free, *(free + ending for ending in endings)}) & keys or {
        name.lower() for name in names
    } & ops_taken:
        number += 1
        free = f"{key}_{number}"
    keys |= names
    ops_taken |= {name.lower() for name in names}
    return free


def with_updates(index: Index, wanted: Iterable[Spec]) -> list[Spec]:
    """Replace an output grouping assignments by the assignments, named after the variables."""
    specs = []
    for spec in wanted:
        writes = recurrent_state.assignments(index, split(spec.tensor)[0])
        key = spec.key if len(writes) == 1 else None
        named = [Spec(key or _key(variable) + NEXT, f"{op}:0") for op, variable in writes.items()]
        specs += named or [spec]
    return specs


def _key(variable: str) -> str:
    return variable.replace("/", "_")


def find_requested_states(graph: Graph, outputs: Sequence[str], inputs: Iterable[Spec]) -> set[str]:
    """Return the requested inputs of state, taken out of variables in every format."""
    index, tensors = graph.index, [spec.tensor for spec in inputs]
    named = {name for name in tensors if index.nodes[split(name)[0]].op in ops.VARIABLES}
    if not named:
        return set()
    ends = {split(name)[0] for name in tensors if name not in named}
    needed = extract_nodes(graph, index.ancestors((split(name)[0] for name in outputs), stop=ends))
    return named & {state.tensor for state in recurrent_state.find(needed, outputs)}


def refuse_bound(graph: Graph, outputs: Sequence[str], bound: Collection[str]) -> None:
    """Refuse `--set` of a state. Raises UsageError."""
    if any(graph.index.nodes[split(name)[0]].op in ops.VARIABLES for name in bound):
        for state in recurrent_state.find(prune(graph, outputs), outputs):
            if state.tensor in bound:
                what = f"found {state.tensor}, which {state.writes[-1].op} writes"
                cure = "leave it out, or name it with --inputs in the place of --set"
                raise UsageError(f"--set: expected a tensor that is no state, {what}; {cure}")


def next_outputs(
    settled: state_io.Settled, graph: Graph, inputs: Mapping[str, str], outputs: Iterable[str]
) -> list[tuple[Spec, str]]:
    """Return the next values of leaving states, as outputs to add, with tensors.

    States whose next value is an output already are left out. The specs use the source's names. `graph` still
    has the assignments; `inputs` maps the keys of the inputs to the source's tensors.
    """
    index, keys, present = graph.index, {name: key for key, name in inputs.items()}, set(outputs)
    return [
        (
            Spec(keys[state.state.tensor] + NEXT, f"{recurrent_state.last_writes(index, state.state)[-1]}:0"),
            str(state.end),
        )
        for state in settled.leaving
        if state.end not in present
    ]


def without_promoted(source: Signature, settled: state_io.Settled) -> Signature:
    """Return the signature `source` minus the state requested by `--states` alone."""
    promoted = [state.state for state in settled.carried if state.promoted]
    starts = {state.tensor for state in promoted}
    ends = {f"{write.op}:0" for state in promoted for write in state.writes}
    return Signature(
        {key: name for key, name in source.inputs.items() if name not in starts},
        {key: name for key, name in source.outputs.items() if name not in ends},
    )


def state_notes(
    settled: state_io.Settled, left_out: Sequence[tuple[str, str]], outputs: Iterable[str]
) -> Iterator[str]:
    """Yield notes on the handling of state, and on left-out updates."""
    leaving = [state.state for state in settled.leaving if not state.promoted]
    staying = [state.state for state in settled.carried if state.stays]
    dropped = [state.state for state in settled.carried if state.dropped]
    if leaving:
        zeros = all(not np.any(settled.model.variables[state.key].read()) for state in leaving)
        begin = "zeros" if zeros else "the values that the source holds"
        if not zeros and any(state.from_scalar for state in settled.leaving):
            begin += ", a scalar filling the whole shape"
        yield f"{_variables(leaving)} became inputs and outputs; a sequence begins with {begin}"
    if staying:
        yield f"{_variables(staying)} kept as variables: a call changes what the next one gives"
    for state in dropped:
        ops = ", ".join(write.op for write in state.writes)
        yield f"{ops}: no output reads {state.variable}, which it changes; left out"
    if left_out:
        writes, variables = (", ".join(dict.fromkeys(names)) for names in zip(*left_out, strict=True))
        flag = f"--outputs {','.join([*outputs, *(f'{op}:0' for op, _ in left_out)])}"
        yield f"{writes}: no output needs what updates {variables}, left out; add with {flag}"


def _variables(states: Sequence[recurrent_state.State]) -> str:
    return f"state variable{'s' if len(states) > 1 else ''} {', '.join(state.variable for state in states)}"


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a conversion: signatures, inputs, outputs, constants, states.

    `given` are the signatures taken from the file; `choice` is what the graph tells where nobody names
    outputs; `complete`: the user named all inputs. `constants` are the values of `--set` by tensor, `bound`
    the inputs of the file's signatures with such a value. `writes` are the outputs that are assignments, with
    their ops; `states` the inputs that are variables.
    """

    given: tuple[Part, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    choice: choose_outputs.Choice
    complete: bool
    constants: Mapping[str, Array]
    bound: tuple[Spec, ...]
    writes: Mapping[str, str]
    states: frozenset[str]

    @property
    def names(self) -> list[str]:
        """The output tensors, by names of the source."""
        return [spec.tensor for spec in self.outputs]


def request(model: Model, graph: Graph, options: Options) -> Request:
    """Resolve the flags. Raises UsageError, AmbiguousSourceError, UnsupportedModelError."""
    index = graph.index
    given, wanted, ends, choice = _choose_parts(model, graph, options)
    ends = with_updates(index, ends)
    names = [spec.tensor for spec in ends]
    writes = {name: split(name)[0] for name in names if recurrent_state.assignments(index, split(name)[0])}
    read = [name for name in names if name not in writes]
    subgraphs.check_tensors_exist(model.path, index, [*read, *(spec.tensor for spec in wanted)])
    constants = _constants(model.path, graph, options.set, names)
    if options.inputs:
        _refuse_bound(wanted, constants)
    refuse_bound(graph, names, constants)
    free = tuple(spec for spec in wanted if spec.tensor not in constants)
    bound = tuple(spec for spec in wanted if spec.tensor in constants)
    asked = frozenset(find_requested_states(graph, names, free))
    complete = bool(options.inputs)
    return Request(given, free, tuple(ends), choice, complete, constants, bound, writes, asked)


def find_unread(index: Index, request: Request) -> tuple[Spec, ...]:
    """Return placeholder inputs of the file's signatures, unneeded by any output."""
    if request.complete:
        return ()
    needed = index.ancestors(split(name)[0] for name in request.names)
    ends = [(spec, split(spec.tensor)[0]) for spec in request.inputs]
    return tuple(spec for spec, op in ends if op not in needed and index.nodes[op].op in ops.PLACEHOLDERS)


def _choose_parts(
    model: Model, graph: Graph, options: Options
) -> tuple[tuple[Part, ...], list[Spec], list[Spec], choose_outputs.Choice]:
    """Return the taken signatures of the file, the inputs, the outputs, and the graph's choice.

    Inputs and outputs come from the flags, else from signatures, else from the graph.
    """
    wanted_inputs = notes.parse(options.inputs, flag="--inputs")
    wanted_outputs = notes.parse(options.outputs, flag="--outputs")
    _refuse_repeated(wanted_inputs)
    given = () if wanted_outputs else _choose_signatures(model, options.signature)
    if not wanted_outputs:
        wanted_outputs = [spec for part in given for spec in _specs(part, part.signature.outputs)]
        wanted_inputs = wanted_inputs or [
            spec for part in given for spec in _specs(part, part.signature.inputs)
        ]
    if wanted_outputs:
        return given, wanted_inputs, wanted_outputs, choose_outputs.Choice([], {})
    choice = choose_outputs.infer_outputs(model.path, graph)
    return given, wanted_inputs, [Spec(None, name) for name in choice.outputs], choice


def _refuse_repeated(inputs: list[Spec]) -> None:
    names = [spec.tensor for spec in inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--inputs: expected each tensor once, found {name} twice; leave one out")


def _refuse_bound(inputs: Iterable[Spec], bound: dict[str, Array]) -> None:
    for spec in inputs:
        if spec.tensor in bound:
            actual = f"{spec.tensor} in --inputs; leave it out of one"
            raise UsageError(f"--set: expected a tensor that is no input, found {actual}")


def require(model: Model, signature: str | None) -> None:
    """Raise UsageError if the requested signature is missing."""
    if signature is not None and signature not in model.signatures:
        listed = ", ".join(sorted(model.signatures)) or "none"
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {signature}")


def _choose_signatures(model: Model, wanted: str | None) -> tuple[Part, ...]:
    """Choose the file's signatures: the requested signature, all, or the serving default.

    All where they belong together. Raises UsageError, AmbiguousSourceError.
    """
    signatures = model.signatures
    require(model, wanted)
    if model.together and wanted is None:
        several = len(signatures) > 1
        return tuple(Part(key, value, f"{key}/" if several else "") for key, value in signatures.items())
    if wanted is None and SERVING not in signatures and len(signatures) > 1:
        reason = f"signatures: expected {SERVING} or only one, found {', '.join(sorted(signatures))}"
        remedies = [Remedy({"signature": key}) for key in signatures]
        raise AmbiguousSourceError(model.path, [Reason(f"{reason}; choose with --signature", *remedies)])
    key = wanted or (SERVING if SERVING in signatures else next(iter(signatures), None))
    return (Part(key, signatures[key]),) if key is not None else ()


def _specs(part: Part, tensors: Mapping[str, str]) -> list[Spec]:
    return [Spec(part.prefix + key, name) for key, name in tensors.items()]


def _constants(path: Path, graph: Graph, settings: Sequence[str], outputs: list[str]) -> dict[str, Array]:
    """Return the values bound by `--set`, by tensor; globs match tensors needed by outputs."""
    if not settings:
        return {}
    index = graph.index
    needed = index.ancestors(split(name)[0] for name in outputs)
    seen = import_checked(extract_nodes(graph, needed))
    bound: dict[str, Array] = {}
    for setting in settings:
        pattern, equals, text = setting.rpartition("=")
        if not equals or not pattern:
            raise UsageError(f"--set: expected TENSOR=VALUE, found {setting!r}")
        ops = [op for op in index.nodes if op in needed and fnmatchcase(op, pattern.removesuffix(":0"))]
        names = [f"{op}:0" for op in ops] or [tensor(pattern)]
        subgraphs.check_tensors_exist(path, index, names)
        for name in names:
            if split(name)[0] in needed:
                bound[name] = subgraphs.parse_value(seen, name, text)
    return bound
