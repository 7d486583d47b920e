"""Sources of TensorFlow: with a graph, or weights alone, which need no TensorFlow to be described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudnn_convert import planning
from cudnn_convert.graph.index import is_op_name
from cudnn_convert.inspection import alone as weights
from cudnn_convert.inspection import answer, ways
from cudnn_convert.inspection.value import Found, Inspection, Offered
from cudnn_convert.inspection.ways import Ways
from cudnn_convert.model import SERVING, Convention, Model, Signature
from cudnn_convert.options import Options
from cudnn_convert.read import keras_hdf5

if TYPE_CHECKING:
    from cudnn_convert.inspection.graphs import Graph

_WEIGHTS: Final = "weights of a Keras model, each recurrence on its own: the whole model needs --architecture"


def alone(source: Path, model: Model, options: Options, form: str | None) -> Inspection:
    """Weights without a graph: planned as for ONNX, which needs no TensorFlow, whatever the format is.

    Where no format was asked for, ONNX is also what names that no graph can hold become.
    """
    found = ways.found(model, replace(options, format="onnx"))
    plans = [plan for _, plan in found.plans]
    recurrences = tuple(
        weights.recurrences(model, plans, _convention(found, options), checked=_checked(found))
    )
    names = [name for plan in plans for one in plan.singles for name in (one.name, one.recurrence.shared)]
    if form is None and not all(is_op_name(name) for name in names if name):
        options = replace(options, format="onnx")
    told = answer.told(
        source,
        model,
        runs_on_cpu=False if recurrences else True if model.plain.whole else None,
        recurrences=recurrences,
        signatures=weights.signatures(plans[0]) if len(plans) == 1 and not found.reasons else (),
    )
    notes = [_WEIGHTS] if model.kind == keras_hdf5.KIND else []
    return answer.with_notes(answer.with_ways(told, source, found, options), notes)


def graph(source: Path, model: Model, options: Options) -> Inspection:
    """A checkpoint with its graph, a frozen graph, a SavedModel."""
    from cudnn_convert.inspection.graphs import Graph
    from cudnn_convert.inspection.hollow import hollow

    model = hollow(model)
    found = ways.found(model, options)
    whole = planning.with_graph(model, options)
    chosen = [plan.source for _, plan in found.plans]
    seen = Graph(whole, [name for one in chosen for of in (one.inputs, one.outputs) for name in of.values()])
    checked = {one.node for _, plan in found.plans for one in plan.recurrences} if _checked(found) else set()
    recurrences = tuple(
        seen.recurrences(_live(seen, whole, found, options), checked, _convention(found, options))
    )
    told = answer.told(
        source,
        model,
        runs_on_cpu=_runs_on_cpu(recurrences, found),
        recurrences=recurrences,
        signatures=_signatures(seen, model, found),
    )
    return answer.with_ways(told, source, found, options)


def portable(source: Path, model: Model, options: Options) -> Inspection:
    """A SavedModel of TensorFlow 2 whose cuDNN functions, where it has any, are dead."""
    from cudnn_convert.inspection.graphs import Graph

    seen = Graph(planning.with_graph(model, options))
    return answer.told(
        source,
        model,
        runs_on_cpu=True,
        recurrences=seen.recurrences({}, (), Convention()),
        signatures=[_offered(seen, key, one, taken=False) for key, one in model.signatures.items()],
        reasons=[answer.PORTABLE],
    )


def _convention(found: Ways, options: Options) -> Convention:
    """That of the only way, where a refusal's advice led to it."""
    taken = found.plans[0][0] if len(found.plans) == 1 else options
    return Convention(taken.gate_order, taken.forget_bias)


def _checked(found: Ways) -> bool:
    """Whether the plan compared the copies of all weights."""
    return len(found.plans) == 1 and found.plans[0][0].weights == "auto"


def _live(seen: Graph, whole: Model, found: Ways, options: Options) -> dict[str, bool]:
    """Whether a node is needed: by all plans or none, or where there is none, by the file's signatures."""
    if found.plans:
        needed = [{node.name for node in plan.graph.node} for _, plan in found.plans]
        counts = {node.name: sum(node.name in one for one in needed) for node in seen.nodes}
        return {name: bool(count) for name, count in counts.items() if count in (0, len(needed))}
    given = [name for one in whole.signatures.values() for name in one.outputs.values()]
    if options.outputs or not given:
        return {}
    reached = seen.reached(given)
    return {node.name: node.name in reached for node in seen.nodes}


def _runs_on_cpu(recurrences: Sequence[Found], found: Ways) -> bool | None:
    """A plan makes sure that everything else does."""
    needing = [one.live for one in recurrences if one.needs_gpu]
    if any(needing):
        return False
    return True if found.plans and None not in needing else None


def _signatures(seen: Graph, model: Model, found: Ways) -> Iterator[Offered]:
    """Those of the file, or what was chosen from its graph."""
    plans = [plan for _, plan in found.plans]
    taken = {part.name for part in plans[0].parts} if len(plans) == 1 else set()
    if len(plans) == 1 and not model.signatures:
        yield _offered(seen, "", plans[0].source, taken=True)
    for key, one in model.signatures.items():
        # An artifact with one signature calls it so, whichever of the source's it is.
        same = taken == {SERVING} and dict(plans[0].source.outputs) == dict(one.outputs)
        # Its inputs are those of the plan, which may begin behind a parser.
        offered = plans[0].source if same else one
        yield _offered(seen, key, offered, taken=same or (taken != {SERVING} and key in taken))


def _offered(seen: Graph, key: str, found: Signature, *, taken: bool) -> Offered:
    inputs, outputs = (
        {name: seen.end(tensor) for name, tensor in of.items()} for of in (found.inputs, found.outputs)
    )
    return Offered(key, taken, inputs, outputs)
