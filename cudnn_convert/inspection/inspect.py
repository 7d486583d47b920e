"""Inspects a source by reading and planning alone.

Nothing is run or written. Weights without a graph are described without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudnn_convert.context import silence
from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.graph.index import is_op_name, split
from cudnn_convert.inspection import (
    Alternative,
    InspectedRecurrence,
    Inspection,
    Offered,
    alternatives,
    keras_model,
    weights_only,
)
from cudnn_convert.inspection.alternatives import Alternatives
from cudnn_convert.model import SERVING, Convention, KerasFile, Model, Signature
from cudnn_convert.options import Options, with_limits
from cudnn_convert.plan import RecurrencesPlan, from_weights
from cudnn_convert.plan.source import ensure_graph, is_portable, read_source
from cudnn_convert.storage import staging
from cudnn_convert.targets import flags

if TYPE_CHECKING:
    from cudnn_convert.inspection.graph_recurrences import InspectedGraph

_WEIGHTS: Final = "weights of a Keras model, each recurrence on its own: the whole model needs --architecture"


def alone(source: Path, model: Model, options: Options, form: str | None) -> Inspection:
    """Inspect graphless weights, planned as for ONNX.

    ONNX needs no TensorFlow. Without a requested format, the command converts to ONNX where a name is no
    valid op name.
    """
    tried = alternatives.plan_alternatives(model, replace(options, format="onnx"))
    plans = [plan for _, plan in tried.plans if isinstance(plan, RecurrencesPlan)]
    convention, checked = _convention(tried, options), _has_compared(tried)
    described = weights_only.recurrences(model, plans, convention, checked=checked)
    recurrences = tuple(replace(each, needs_gpu=model.graphless.needs_gpu) for each in described)
    singles = [single for plan in plans for single in plan.singles]
    names = [name for single in singles for name in (single.name, single.recurrence.shared)]
    if form is None and not all(is_op_name(name) for name in names if name):
        options = replace(options, format="onnx")
    inspection = alternatives.build_inspection(
        source,
        model,
        runs_on_cpu=_run_weights_on_cpu(model, recurrences),
        recurrences=recurrences,
        signatures=weights_only.signatures(plans[0]) if len(plans) == 1 and not tried.reasons else (),
        gpu_ops=_cudnn_ops(recurrences),
    )
    lost = dict.fromkeys(text for plan in plans for text in plan.warnings)
    lost = lost or dict.fromkeys(() if plans else from_weights.warn_of_lost_graph(model))
    notes = [*lost, *([_WEIGHTS] if model.keras is KerasFile.HDF5 else [])]
    inspection = alternatives.with_alternatives(inspection, source, tried, options)
    return alternatives.with_notes(alternatives.with_streams_of_weights(inspection, source, options), notes)


def _run_weights_on_cpu(model: Model, recurrences: Sequence[InspectedRecurrence]) -> bool | None:
    """Return True if graphless weights are of layers for a CPU, None where that is unknown."""
    if recurrences:
        return False if model.graphless.needs_gpu else None
    return True if model.plain.whole else None


def graph(source: Path, model: Model, options: Options) -> Inspection:
    """Inspect a checkpoint with a graph, a frozen graph, or a SavedModel."""
    from cudnn_convert.inspection import gpu_only
    from cudnn_convert.inspection.graph_recurrences import InspectedGraph, hollow

    model = hollow(model)
    tried = alternatives.plan_alternatives(model, options)
    whole = ensure_graph(model, options)
    plans = [plan for _, plan in tried.plans]
    seen = InspectedGraph(whole, [name for plan in plans for name in plan.source.tensors])
    live = _live(seen, whole, tried, options)
    nodes = {recurrence.node for plan in plans for recurrence in plan.recurrences}
    checked = nodes if _has_compared(tried) else set()
    recurrences = tuple(seen.recurrences(live, checked, _convention(tried, options)))
    others = tuple(sorted({line for plan in plans for line in gpu_only.list_ops(plan.whole)}))
    inspection = alternatives.build_inspection(
        source,
        model,
        runs_on_cpu=_runs_on_cpu(recurrences, tried, others),
        recurrences=recurrences,
        signatures=_signatures(seen, model, tried),
        gpu_ops=(*_cudnn_ops(recurrences), *others),
    )
    inspection = alternatives.with_alternatives(inspection, source, tried, options)
    return alternatives.with_streams(inspection, source, model, tried, options)


def portable(source: Path, model: Model, options: Options) -> Inspection:
    """Inspect a portable TensorFlow 2 SavedModel.

    It has no live cuDNN functions.
    """
    from cudnn_convert.inspection.graph_recurrences import InspectedGraph

    seen = InspectedGraph(ensure_graph(model, options))
    return alternatives.build_inspection(
        source,
        model,
        runs_on_cpu=True,
        recurrences=seen.recurrences({}, (), Convention()),
        signatures=[_offer(seen, key, signature, taken=False) for key, signature in model.signatures.items()],
        reasons=[alternatives.PORTABLE],
    )


def _convention(tried: Alternatives, options: Options) -> Convention:
    """Return the convention of the only alternative, else of the options.

    The only alternative is that to which a refusal's advice led.
    """
    taken = tried.plans[0][0] if len(tried.plans) == 1 else options
    return Convention(taken.gate_order, taken.forget_bias)


def _has_compared(tried: Alternatives) -> bool:
    """Return True if a single plan compared the copies of all weights."""
    return len(tried.plans) == 1 and tried.plans[0][0].weights == "auto"


def _live(seen: InspectedGraph, whole: Model, tried: Alternatives, options: Options) -> dict[str, bool]:
    """Return True by node for needed nodes, False for dead nodes.

    A node counts where all plans agree. Without a plan the file's signatures decide.
    """
    if tried.plans:
        needed = [{node.name for node in plan.graph.node} for _, plan in tried.plans]
        counts = {node.name: sum(node.name in names for names in needed) for node in seen.nodes}
        return {name: bool(count) for name, count in counts.items() if count in (0, len(needed))}
    outputs = [name for signature in whole.signatures.values() for name in signature.outputs.values()]
    if options.outputs or not outputs:
        return {}
    reached = seen.index.ancestors(split(name)[0] for name in outputs)
    return {node.name: node.name in reached for node in seen.nodes}


def _cudnn_ops(recurrences: Sequence[InspectedRecurrence]) -> list[str]:
    """Return the kinds of recurrences in need of a GPU.

    Recurrences without a graph have names instead.
    """
    needing = (each for each in recurrences if each.needs_gpu and each.live is not False)
    return [*dict.fromkeys(each.op or each.name or "the recurrence" for each in needing)]


def _runs_on_cpu(
    recurrences: Sequence[InspectedRecurrence], tried: Alternatives, others: Sequence[str]
) -> bool | None:
    """Return True if the source runs on a CPU, or None if unknown.

    `others` are ops that do not, beside recurrences. A plan has checked all further ops.
    """
    needing = [recurrence.live for recurrence in recurrences if recurrence.needs_gpu]
    if any(needing) or others:
        return False
    return True if tried.plans and None not in needing else None


def _signatures(seen: InspectedGraph, model: Model, tried: Alternatives) -> Iterator[Offered]:
    """Yield the signatures of the file, else a signature chosen from the graph."""
    plans = [plan for _, plan in tried.plans]
    taken = {part.name for part in plans[0].parts} if len(plans) == 1 else set()
    if len(plans) == 1 and not model.signatures:
        yield _offer(seen, "", plans[0].source, taken=True)
    for key, signature in model.signatures.items():
        # An artifact with one signature uses this name for any of the source's.
        same = taken == {SERVING} and dict(plans[0].source.outputs) == dict(signature.outputs)
        # Its inputs are those of the plan, which may begin behind a parser.
        offered = plans[0].source if same else signature
        yield _offer(seen, key, offered, taken=same or (taken != {SERVING} and key in taken))


def _offer(seen: InspectedGraph, key: str, signature: Signature, *, taken: bool) -> Offered:
    inputs, outputs = (
        {name: seen.end(tensor) for name, tensor in of.items()}
        for of in (signature.inputs, signature.outputs)
    )
    return Offered(key, taken, inputs, outputs)


@staging.with_copies
@silence(on_cpu=False)  # nothing runs: some sources need no TensorFlow
@with_limits
def inspect_source(source: Path, options: Options, *, form: str | None = None) -> Inspection:
    """Inspect `source`, with the command for the format `form`.

    The default is the fitting format. `options` say how the source is read. Raises ReadError and AccessError
    where it cannot be, UsageError where the options do not fit it, AmbiguousSourceError where `source` is not
    one model.
    """
    options = replace(options, format=form or "savedmodel")
    flags.check_options(options)
    try:
        model = read_source(source, options, tag=options.tag)
    except AmbiguousSourceError as error:
        tags = alternatives.tags(source if source.is_dir() else source.parent)
        if options.tag is not None or not tags:
            raise
        return _by_tag(source, options, tags, error.reasons, form)
    options = flags.settle_layers(model, options)
    if model.has_layers:
        return keras_model.inspect_keras(source, model, options, form)
    if is_portable(model, options) and not options.force_convert:
        return portable(source, model, options)
    if model.is_graphless:
        return alone(source, model, options, form)
    others = alternatives.other_tags(model.path) if options.tag is None else []
    notes = [f"other graphs than {which}: --tag {other}" for which, other in others]
    return alternatives.with_notes(graph(source, model, options), notes)


def _by_tag(
    source: Path, options: Options, tags: Sequence[str], reasons: tuple[str, ...], form: str | None
) -> Inspection:
    """Inspect each graph of a SavedModel.

    Whether recurrences are live stays open.
    """
    each = {tag: inspect_source(source, replace(options, tag=tag), form=form) for tag in tags}
    recurrences: list[InspectedRecurrence] = []
    for inspection in each.values():
        known = [replace(recurrence, live=None) for recurrence in inspection.recurrences]
        recurrences += [recurrence for recurrence in known if recurrence not in recurrences]
    commands = {tag: inspection.command for tag, inspection in each.items()}
    listed = [Alternative((f"--tag={tag}",), command) for tag, command in commands.items() if command]
    return replace(
        next(iter(each.values())),
        runs_on_cpu=None,
        recurrences=tuple(recurrences),
        signatures=(),
        command=None,
        candidates=tuple(listed),
        reasons=reasons,
        notes=(),
    )
