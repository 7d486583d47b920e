"""What is asked of a model: by the flags, by the signatures of its file, or by its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cudnn_convert import specs, states
from cudnn_convert.errors import AmbiguousSourceError, UsageError
from cudnn_convert.graph import build, choose, cut, updates
from cudnn_convert.graph.choose import Choice
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.model import SERVING, Array, Model, Part
from cudnn_convert.specs import Spec


@dataclass(frozen=True, slots=True)
class Request:
    """`given` are the file's signatures that were taken; `complete`: the user named all inputs.

    `left` are outputs that were left out, with their type; `training` are recurrences for training that only
    branches keep away from outputs chosen from the graph. `constants` are the values of `--set` by tensor.
    `writes` are the outputs that are assignments, with their ops; `states` the inputs that are variables.
    """

    given: tuple[Part, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    left: Mapping[str, str]
    training: tuple[str, ...]
    complete: bool
    constants: Mapping[str, Array]
    writes: Mapping[str, str]
    states: frozenset[str]

    @property
    def names(self) -> list[str]:
        """The tensors of the outputs, as the source names them."""
        return [spec.tensor for spec in self.outputs]


def request(
    model: Model,
    index: Index,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    constants: Sequence[str],
    signature: str | None,
) -> Request:
    """The request of the flags. Raises UsageError, AmbiguousSourceError, UnsupportedModelError."""
    given, wanted, ends, choice = _wanted(model, inputs, outputs, signature)
    ends = states.with_updates(index, ends)
    names = [spec.tensor for spec in ends]
    writes = {name: split(name)[0] for name in names if updates.updates(index, split(name)[0])}
    read = [name for name in names if name not in writes]
    cut.require(model.path, index, [*read, *(spec.tensor for spec in wanted)])
    bound = _constants(model, index, constants, names)
    _refuse_bound(wanted, bound)
    states.refuse_bound(model.graph, names, bound)
    asked = frozenset(states.asked(index, model.graph, names, wanted))
    return Request(
        given, tuple(wanted), tuple(ends), choice.left, choice.training, bool(inputs), bound, writes, asked
    )


def _wanted(
    model: Model, inputs: Sequence[str], outputs: Sequence[str], signature: str | None
) -> tuple[tuple[Part, ...], list[Spec], list[Spec], Choice]:
    """The signatures taken from the file; inputs and outputs by the flags, by these or by the graph; what was
    chosen from the graph.
    """
    wanted_inputs = specs.parse(inputs, flag="--inputs")
    wanted_outputs = specs.parse(outputs, flag="--outputs")
    _refuse_repeated(wanted_inputs)
    given = () if wanted_outputs else _given(model, signature)
    if not wanted_outputs:
        wanted_outputs = [spec for part in given for spec in _specs(part, part.signature.outputs)]
        wanted_inputs = wanted_inputs or [
            spec for part in given for spec in _specs(part, part.signature.inputs)
        ]
    if wanted_outputs:
        return given, wanted_inputs, wanted_outputs, Choice([], {})
    choice = choose.outputs(model.path, model.graph)
    return given, wanted_inputs, [Spec(None, name) for name in choice.outputs], choice


def _refuse_repeated(inputs: list[Spec]) -> None:
    names = [spec.tensor for spec in inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--inputs: expected each tensor once, found {name} twice; leave one out")


def _refuse_bound(inputs: list[Spec], bound: dict[str, Array]) -> None:
    for spec in inputs:
        if spec.tensor in bound:
            found = f"{spec.tensor} in --inputs; leave it out of one"
            raise UsageError(f"--set: expected a tensor that is no input, found {found}")


def require(model: Model, signature: str | None) -> None:
    """Raises UsageError where a signature is asked for that the file does not have."""
    if signature is not None and signature not in model.signatures:
        listed = ", ".join(sorted(model.signatures)) or "none"
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {signature}")


def _given(model: Model, wanted: str | None) -> tuple[Part, ...]:
    """The signatures of the file itself: the wanted one, all that belong together, or the usual one."""
    found = model.signatures
    require(model, wanted)
    if model.together and wanted is None:
        several = len(found) > 1
        return tuple(Part(key, value, f"{key}/" if several else "") for key, value in found.items())
    if wanted is None and SERVING not in found and len(found) > 1:
        reason = f"signatures: expected {SERVING} or one, found {', '.join(sorted(found))}"
        raise AmbiguousSourceError(model.path, [f"{reason}; choose with --signature"])
    key = wanted or (SERVING if SERVING in found else next(iter(found), None))
    return (Part(key, found[key]),) if key is not None else ()


def _specs(part: Part, tensors: Mapping[str, str]) -> list[Spec]:
    return [Spec(part.prefix + key, name) for key, name in tensors.items()]


def _constants(model: Model, index: Index, settings: Sequence[str], outputs: list[str]) -> dict[str, Array]:
    """The values that `--set` binds, by tensor. Globs match the tensors that the outputs need."""
    if not settings:
        return {}
    needed = index.ancestors(split(name)[0] for name in outputs)
    seen = build.sound(build.kept(model.graph, needed))
    bound: dict[str, Array] = {}
    for setting in settings:
        pattern, equals, text = setting.rpartition("=")
        if not equals or not pattern:
            raise UsageError(f"--set: expected TENSOR=VALUE, found {setting!r}")
        ops = [op for op in index.nodes if op in needed and fnmatchcase(op, pattern.removesuffix(":0"))]
        names = [f"{op}:0" for op in ops] or [tensor(pattern)]
        cut.require(model.path, index, names)
        for name in names:
            if split(name)[0] in needed:
                bound[name] = cut.parse_value(seen, name, text)
    return bound
