"""Asks whether every op around the recurrences of an artifact is the source's.

Graphs of TensorFlow have the source's nodes, which are compared as they are written. Other formats are asked
with values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from cudnn_convert.errors import UnsupportedModelError, first_line
from cudnn_convert.formats import part_file
from cudnn_convert.graph import ops
from cudnn_convert.model import Array, Part
from cudnn_convert.report import OpDifference, OpsReport
from cudnn_convert.verification.end_to_end import Judging
from cudnn_convert.verification.ops.differences import Slack
from cudnn_convert.verification.ops.graphs import CHOICES
from cudnn_convert.verification.pieces.piece_inputs import Artifact

if TYPE_CHECKING:
    from cudnn_convert.verification.ops.graphs import TensorGraph
    from cudnn_convert.verification.ops.models import Model
    from cudnn_convert.verification.ops.regions import Asked, Parts
    from cudnn_convert.verification.ops.source import Source
    from cudnn_convert.verification.ops.structure import Alike

#: The formats whose artifact is a graph of TensorFlow.
_GRAPHS: Final = frozenset({"savedmodel", "frozen", "checkpoint"})
#: The module for each of those whose files are asked with values.
_MODELS: Final = {"onnx": "onnx", "tflite": "tflite", "keras": "keras", "h5": "keras"}
#: Ops of a graph that has recurrences and nothing around them.
_PLAIN: Final = ops.COPIES | ops.ALL_PLACEHOLDERS | ops.VARIABLES | ops.CUDNN | {"Const", "NoOp"}


def report(
    artifact: Artifact,
    judging: Judging,
    feeds: Sequence[Mapping[str, Array]],
    *,
    is_copy: bool,
    is_fresh: bool,
) -> OpsReport | None:
    """Compare all ops around the recurrences; None where a source has nothing but recurrences.

    `feeds` are those of a trial. `is_copy`: this tool wrote the artifact, and what differs is wrong.
    `is_fresh`: it wrote it just now. Then the file is told which of its tensors are the source's.
    """
    plan = judging.plan
    if plan.singles or plan.whole is None:
        return None
    is_copy = is_copy and not judging.has_bound  # a bound of the user's says that numbers may differ
    try:
        if artifact.form in _GRAPHS:
            return _compare_structure(artifact, is_copy=is_copy)
        if artifact.form in _MODELS and judging.options.max_error is None:
            return _ask_regions(artifact, judging, feeds, is_fresh=is_fresh)
    except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
        reason = first_line(cause)
        # A file of ours could be asked when it was written.
        is_odd = is_copy and not is_fresh
        odd = OpDifference("the artifact", (), f"it cannot be compared: {reason}")
        return OpsReport(asked=False, message=reason, difference=odd if is_odd else None)
    return None


def _compare_structure(artifact: Artifact, *, is_copy: bool) -> OpsReport:
    """Compare a graph of TensorFlow node by node."""
    from cudnn_convert.verification.ops import tensorflow

    source, other = tensorflow.of_source(artifact.plan), tensorflow.of_artifact(artifact)
    alike = tensorflow.compare_structure(source, other, artifact.plan)
    if artifact.is_repaired and is_copy:
        alike.mismatches += tensorflow.compare_objects(artifact)
    return _of_structure(source, alike, is_copy=is_copy)


#: The feeds whose values are recorded, smallest first; more where they show more.
_FEEDS: Final = 2
_MOST_FEEDS: Final = 5
#: The sizes that are tried around one which the source compares, the largest of those, and how many.
_BESIDE: Final = (1, 0, -1)
_LONGEST: Final = 2000
_MOST_SIZES: Final = 3
#: What a recurrence gives: `y`, `h` and `c`.
_ANSWERS: Final = 3
#: What half allows, as a share of a tensor's spread.
_COARSE: Final = 1e-2


def _ask_regions(
    artifact: Artifact, judging: Judging, feeds: Sequence[Mapping[str, Array]], *, is_fresh: bool
) -> OpsReport:
    """Ask a model of ONNX or TensorFlow Lite region by region, each file by itself."""
    from cudnn_convert.verification.ops import regions, shared_tensors, source
    from cudnn_convert.verification.ops.models import Cuts

    plan = judging.plan
    if judging.is_large:  # the model would be in memory several times
        return OpsReport(asked=False, message="its recurrences have more than 256 MiB of weights")
    models = [(part, _open_model(artifact, part, feeds[0])) for part in plan.parts]
    wanted = {other for _, model in models for name in model.tensors for other in model.list_namesakes(name)}
    known = {node.name for node in plan.whole.node}
    named = {name for name in wanted if name.partition(":")[0] in known}
    says = any(model.read_cuts() is not None for _, model in models)
    if not named and not is_fresh and not says and not _PLAIN.issuperset(node.op for node in plan.whole.node):
        return OpsReport(asked=False, message="the file has no names of the source's tensors")
    begun = {
        state.start: plan.model.variables[state.state.key].read()
        for state in plan.states
        if state.start is not None
    }
    feeds = [{**begun, **feed} for feed in feeds]  # a recording's calls go on from the source's own states
    options = judging.options
    share = 0.0 if options.weights_dtype == "float32" else _COARSE
    slack = Slack(share, options.atol or 0.0, options.rtol or 0.0)
    reports = []
    given = {f"{own.node}:{k}" for own in plan.recurrences for k in range(_ANSWERS)}
    with source.open_source(plan, named | given, trust=judging.trust) as running:
        few = _choose_feeds(running, judging, feeds)
        recorded = [running.record(feed) for feed in few]
        for part, model in models:
            keys = {tensor: key for key, tensor in part.signature.inputs.items()}
            shared = shared_tensors.share_names(running, model, keys, few, recorded)
            recorded_cuts = (None if is_fresh else model.read_cuts()) or Cuts({}, {})
            if difference := shared_tensors.find_other_value(running, shared, recorded_cuts.names):
                return OpsReport(asked=True, regions=len(shared.equal), difference=difference)
            equal = shared.equal
            ends = {
                model.outputs[key]: running.root(name)
                for key, name in part.signature.outputs.items()
                if model.outputs.get(key) in model.tensors
            }
            parts = regions.cut(running, model, equal, ends)
            asking = regions.Asking(
                running,
                model,
                parts,
                keys,
                seed=judging.seed,
                slack=slack,
                left=recorded_cuts.left,
                is_fresh=is_fresh,
            )
            asked = asking.ask(few, recorded)
            reports.append(_of_regions(running, parts, asked, asking.list_run_alone()))
            if is_fresh and asked.difference is None:
                model.write_cuts(Cuts(equal, asking.left))
    return _join(reports)


def _choose_feeds(
    running: Source, judging: Judging, feeds: Sequence[Mapping[str, Array]]
) -> list[Mapping[str, Array]]:
    """The smallest feeds, and those of others in which a comparison has another result."""
    gates, chosen = running.list_gates(), list[Mapping[str, Array]]()
    seen: dict[str, set[bool]] = {gate: set() for gate in gates}

    def take(more: Sequence[Mapping[str, Array]]) -> None:
        for feed in more:
            answers = running.run(gates, feed, {})
            pairs = zip(gates, answers, strict=True)
            results = {gate: {bool(each) for each in np.unique(value)} for gate, value in pairs}
            is_new = any(values - seen[gate] for gate, values in results.items())
            if len(chosen) < _FEEDS or (is_new and len(chosen) < _MOST_FEEDS):
                chosen.append(feed)
                for gate, values in results.items():
                    seen[gate] |= values

    take(sorted(feeds, key=lambda feed: sum(value.size for value in feed.values())))
    open_gates = [gate for gate in gates if len(seen[gate]) < 2]
    sizes = {gate: [size for size in running.list_sizes(gate) if size <= _LONGEST] for gate in open_gates}
    tried = [*dict.fromkeys(size for gate in open_gates for size in sizes[gate])][:_MOST_SIZES]
    if tried and judging.calls is None and judging.golden is None:
        for feed in _draw_sizes(judging, tried):
            take([feed])
            if all(len(seen[gate]) == 2 for gate in open_gates if sizes[gate]):
                break
    return chosen


def _draw_sizes(judging: Judging, sizes: Sequence[int]) -> Iterator[Mapping[str, Array]]:
    """Yield feeds of about these numbers of steps, as far as the source takes them."""
    with judging.judge.open(trust=judging.trust) as source:
        for size in sizes:
            for many in (size + beside for beside in _BESIDE if size + beside > 0):
                with suppress(UnsupportedModelError):
                    yield from judging.judge.make_feeds(source, seed=judging.seed, usual=((many, 2),))


def _open_model(artifact: Artifact, part: Part, feed: Mapping[str, Array]) -> Model:
    """The file of a part as tensors; `feed` is any."""
    if _MODELS[artifact.form] == "keras":
        from cudnn_convert.verification.ops import keras

        nodes = [str(node.name) for node in artifact.plan.whole.node]
        return keras.Model(artifact, nodes, {key: feed[name] for key, name in part.signature.inputs.items()})
    if _MODELS[artifact.form] == "onnx":
        from cudnn_convert.verification.ops import onnx

        return onnx.Model(part_file(artifact.path, part.name))
    from cudnn_convert.verification.ops import tflite

    return tflite.Model(part_file(artifact.path, part.name, ".tflite"), part)


def _of_regions(running: Source, parts: Parts, asked: Asked, left: Sequence[str]) -> OpsReport:
    """The report of regions that were asked."""
    nodes = {name for region in parts.regions.values() for name in region.nodes}
    kinds = {name: running.graph.index.nodes[name].op for name in nodes}
    return OpsReport(
        asked=True,
        ops=sum(op != "Const" for op in kinds.values()),
        constants=sum(op == "Const" for op in kinds.values()),
        gates=sum(op in CHOICES for op in kinds.values()),
        regions=len(parts.regions),
        not_reached=tuple(asked.not_reached),
        not_looked_at=tuple(left),
        odd=tuple(f"{tensor}: {what}" for tensor, what in asked.odd.items()),
        difference=asked.difference,
    )


def _join(reports: Sequence[OpsReport]) -> OpsReport:
    """The reports of several files as one."""
    if len(reports) == 1:
        return reports[0]
    return OpsReport(
        asked=True,
        ops=sum(each.ops for each in reports),
        constants=sum(each.constants for each in reports),
        gates=sum(each.gates for each in reports),
        regions=sum(each.regions for each in reports),
        not_reached=tuple(line for each in reports for line in each.not_reached),
        not_looked_at=tuple(line for each in reports for line in each.not_looked_at),
        odd=tuple(line for each in reports for line in each.odd),
        difference=next((each.difference for each in reports if each.difference), None),
    )


def _of_structure(source: TensorGraph, alike: Alike, *, is_copy: bool) -> OpsReport:
    """The report of a comparison of nodes."""
    kinds = {name: source.index.nodes[name].op for name in alike.nodes}
    difference, odd = None, [f"{each.source}: {each.what}" for each in alike.mismatches]
    if odd and is_copy:
        first = alike.mismatches[0]
        op = source.index.nodes.get(first.source.partition(":")[0])
        difference = OpDifference(first.source, () if op is None else (str(op.op),), first.what)
    return OpsReport(
        asked=True,
        ops=len(kinds),
        constants=len(alike.constants),
        gates=sum(op in CHOICES for op in kinds.values()),
        not_looked_at=() if is_copy else tuple(odd),
        difference=difference,
    )
