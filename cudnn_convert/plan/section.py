"""The part of a model's graph between the inputs and the outputs of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudnn_convert import specs, states
from cudnn_convert.errors import UsageError
from cudnn_convert.graph import cut, examples, settle, simplify, updates
from cudnn_convert.graph.cut import Cut
from cudnn_convert.graph.examples import Feature
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.settle import Settled
from cudnn_convert.model import Model, Signature
from cudnn_convert.plan.request import Request
from cudnn_convert.specs import Spec


@dataclass(frozen=True, slots=True)
class Section:
    """`whole` is the cut graph, `settled.graph` what inference needs of it, with its state in its place.

    `source` has the signature by the file's tensor names, `signature` by those of the graphs, both with the
    next values of state that became outputs; `asked` is `source` without these. `streams` and `features` of
    tf.Examples were cut unasked.
    """

    whole: Any
    settled: Settled
    source: Signature
    signature: Signature
    asked: Signature
    streams: tuple[str, ...]
    features: tuple[Feature, ...]


def section(
    model: Model, index: Index, request: Request, *, keeps_variables: bool, keeps_examples: bool
) -> Section:
    """Cuts, simplifies, and settles the state. Raises UsageError, UnsupportedModelError."""
    names = request.names
    cuts = [Cut(spec.tensor, spec.shape) for spec in request.inputs if spec.tensor not in request.states]
    stop = [*(found.tensor for found in cuts), *request.constants]
    streams = [] if request.complete else cut.streams(index, names, stop=stop)
    cuts += [Cut(name) for name in streams]
    stop += streams
    parsed = [] if request.complete or keeps_examples else examples.features(index, names, stop=stop)
    cuts += [Cut(found.tensor) for found in parsed]
    whole, moved = cut.cut(model.graph, inputs=cuts, constants=request.constants, outputs=names)
    whole, kept = cut.with_values(whole, [moved.get(name, name) for name in names])
    whole, kept = updates.with_values(whole, kept)
    stateful = simplify.simplified(whole, kept)
    settled = settle.settled(
        model,
        stateful,
        kept,
        keep=keeps_variables,
        shapes={spec.tensor: spec.shape for spec in request.inputs if spec.tensor in request.states},
        asked={
            new: request.writes[old] for new, old in zip(kept, names, strict=True) if old in request.writes
        },
    )
    keys = specs.keyed(_inputs(model, settled, moved, request, parsed))
    ends = states.next_outputs(settled, stateful, keys, settled.outputs)
    source = Signature(keys, specs.keyed([*request.outputs, *(spec for spec, _ in ends)]))
    tensors = [*settled.outputs, *(name for _, name in ends)]
    union = Signature(
        {key: moved.get(name, name) for key, name in keys.items()},
        dict(zip(source.outputs, tensors, strict=True)),
    )
    asked = Signature(keys, dict(list(source.outputs.items())[: len(names)]))
    return Section(whole, settled, source, union, asked, tuple(streams), tuple(parsed))


def _inputs(
    model: Model, settled: Settled, moved: Mapping[str, str], request: Request, parsed: Sequence[Feature]
) -> list[Spec]:
    """The inputs of the cut graph in its order, each with the name that the source has for it.

    State that became an input need not be asked for.
    """
    graph, free = settled.graph, [found.state.tensor for found in settled.leaving]
    origin = {name: source for source, name in moved.items()}
    keys = {found.tensor: Spec(found.key, found.tensor) for found in parsed}
    keys |= {spec.tensor: spec for spec in request.inputs}
    # Without --inputs every stream was cut; with it, one may be left where inference goes.
    found, missing = [], cut.streams(Index(graph), [f"{node.name}:0" for node in graph.node], stop=())
    for node in graph.node:
        if node.op in cut.PLACEHOLDERS:
            name = origin.get(f"{node.name}:0", f"{node.name}:0")
            found.append(keys.get(name, Spec(None, name)))
            missing += [] if name in keys or name in free or not request.complete else [name]
    if missing:
        advice = "add them, or bind them with --set"
        raise UsageError(f"{model.path}: --inputs: the outputs also need {', '.join(missing)}; {advice}")
    unused = [spec.tensor for spec in request.inputs if spec not in found]
    if unused and request.complete:
        listed = ", ".join(unused)
        raise UsageError(f"{model.path}: --inputs: the outputs do not need {listed}; leave them out")
    order = {spec.tensor: place for place, spec in enumerate(request.inputs)}
    return sorted(found, key=lambda spec: order.get(spec.tensor, len(order)))
