"""Asks whether every op around the recurrences of an artifact is the source's.

Graphs of TensorFlow have the source's nodes, which are compared as they are written. Other formats are asked
with values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import FORMATS
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import split
from cudnn_convert.model import Array, Part
from cudnn_convert.report.values import OpDifference, OpsReport
from cudnn_convert.text import first_line
from cudnn_convert.verification import effort
from cudnn_convert.verification.ops import values
from cudnn_convert.verification.ops.differences import Slack
from cudnn_convert.verification.ops.graphs import CHOICES
from cudnn_convert.verification.ops.models import StoredCuts, TensorFile
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import Settings

if TYPE_CHECKING:
    from cudnn_convert.verification.ops.graphs import TensorGraph
    from cudnn_convert.verification.ops.regions import Asking, Findings, Parts
    from cudnn_convert.verification.ops.source import FedSource
    from cudnn_convert.verification.ops.structure import Alike

#: Ops of a graph that has recurrences and nothing around them.
_PLAIN: Final = ops.COPIES | ops.ALL_PLACEHOLDERS | ops.VARIABLES | ops.CUDNN | {"Const", "NoOp"}


def report(
    artifact: Artifact,
    settings: Settings,
    feeds: Sequence[Mapping[str, Array]],
    *,
    is_copy: bool,
    is_fresh: bool,
) -> OpsReport | None:
    """Compare all ops around the recurrences.

    Returns None where a source has only recurrences. `feeds` are those of a trial. `is_copy`: this tool wrote
    the artifact, and what differs is wrong. `is_fresh`: it wrote it just now. Then the file is told which of
    its tensors are the source's.
    """
    is_copy = is_copy and not settings.has_bound  # a bound of the user's says that numbers may differ
    try:
        module = FORMATS[artifact.form].runtime
        if module == "tensorflow":
            return _compare_structure(artifact, is_copy=is_copy)
        if module and settings.options.quantize is None:
            return _ask_regions(artifact, settings, feeds, is_fresh=is_fresh)
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


#: What a recurrence gives: `y`, `h` and `c`.
_ANSWERS: Final = 3


#: A feed, and the values that the source's tensors have on it.
_Run = tuple[Mapping[str, Array], Mapping[str, Array]]


def _ask_regions(
    artifact: Artifact, settings: Settings, feeds: Sequence[Mapping[str, Array]], *, is_fresh: bool
) -> OpsReport:
    """Ask an artifact region by region, each file by itself."""
    from cudnn_convert.verification.ops import source

    plan = settings.plan
    if settings.is_large:  # the model would be in memory several times
        return OpsReport(asked=False, message="its recurrences have more than 256 MiB of weights")
    models = [(part, _open_model(artifact, part, feeds[0])) for part in plan.parts]
    cuts = [None if is_fresh else model.read_cuts() for _, model in models]
    namesakes = {
        other for _, model in models for name in model.tensors for other in model.list_namesakes(name)
    }
    known = {node.name for node in plan.whole.node}
    named = {name for name in namesakes if name.partition(":")[0] in known}
    has_ops = not _PLAIN.issuperset(node.op for node in plan.whole.node)
    if not is_fresh and not named and has_ops and not any(cuts):
        return OpsReport(asked=False, message="the file has no names of the source's tensors")
    given = {f"{own.node}:{k}" for own in plan.recurrences for k in range(_ANSWERS)}
    with source.open_source(plan, named | given, trust=settings.trust) as running:
        # Calls of a recording begin at the stored values of the variables that are read as states.
        starts = {
            state.start: plan.model.variables[state.state.key].read()
            for state in plan.states
            if state.start is not None
        }
        runs = _choose_feeds(running, settings, [{**starts, **feed} for feed in feeds])
        recorded_runs: list[_Run] = [(feed, running.record(feed)) for feed in runs]
        if FORMATS[artifact.form].has_layers:
            recorded_runs += _record_padded(running, runs[0])
        reports: list[OpsReport] = []
        for (part, model), kept in zip(models, cuts, strict=True):
            reports.append(
                _ask_part(running, settings, part, model, runs=recorded_runs, cuts=kept, is_fresh=is_fresh)
            )
            if reports[-1].difference is not None:
                break
    return _join(reports)


def _ask_part(
    running: FedSource,
    settings: Settings,
    part: Part,
    model: TensorFile,
    *,
    runs: Sequence[_Run],
    cuts: StoredCuts | None,
    is_fresh: bool,
) -> OpsReport:
    """Ask a file on the values of `runs`, then on varied values.

    `cuts` are the tensors recorded in the file.
    """
    from cudnn_convert.verification.ops import regions, shared_tensors

    feeds, recorded = [feed for feed, _ in runs], [values for _, values in runs]
    keys = {tensor: key for key, tensor in part.signature.inputs.items()}
    shared = shared_tensors.share_names(running, model, keys, feeds, recorded)
    if cuts and (difference := shared_tensors.find_other_value(running, shared, cuts.names)):
        return OpsReport(asked=True, regions=len(shared.equal), difference=difference)
    ends = {
        model.outputs[key]: running.root(name)
        for key, name in part.signature.outputs.items()
        if model.outputs.get(key) in model.tensors
    }
    options = settings.options
    share = 0.0 if options.weights_dtype == "float32" else effort.HALF_WEIGHTS_SHARE
    slack = Slack(share, options.atol or 0.0, options.rtol or 0.0)

    def ask(names: Mapping[str, str]) -> tuple[Parts, Asking]:
        parts = regions.cut(running, model, names, ends)
        asking = regions.Asking(
            running,
            model,
            parts,
            keys,
            seed=settings.seed,
            slack=slack,
            left=cuts.left if cuts else {},
            is_fresh=is_fresh,
        )
        asking.ask(feeds, recorded)
        return parts, asking

    names: Mapping[str, str] = shared.equal
    if cuts:  # without those that were given up when the file was written
        names = {name: root for name, root in names.items() if name in cuts.names}
    parts, asking = ask(names)
    kept = {*ends, *(name for name, root in names.items() if split(root)[0] in running.graph.given)}
    for with_leaves in (False, True):
        if is_fresh and asking.asked.difference:
            names, parts, asking = _give_up_names(ask, names, kept, (parts, asking), with_leaves=with_leaves)
    if is_fresh and asking.asked.difference is None:
        model.write_cuts(StoredCuts(names, asking.left))
    unknown = [f"{name}: {what}" for name, what in shared.others.items() if model.names_are_kept]
    return _of_regions(running, parts, asking.asked, [*asking.list_run_alone(), *unknown])


def _give_up_names(
    ask: Callable[[Mapping[str, str]], tuple[Parts, Asking]],
    names: Mapping[str, str],
    kept: Collection[str],
    first: tuple[Parts, Asking],
    *,
    with_leaves: bool,
) -> tuple[Mapping[str, str], Parts, Asking]:
    """Ask again after removing shared names with a difference, in case of wrong names.

    tf2onnx moves a Transpose behind an activation, and the activation's value gets the Transpose's name. On a
    run whose values the activation leaves alone, both are equal. The difference stays where the parts that
    read such a name differ too, or are left out. Names in `kept` are never given up. `with_leaves`: what such
    a part reads may be what is misnamed.
    """
    left, (parts, asking), given_up = dict(names), first, set[str]()
    for _ in range(effort.MOST_GIVEN_UP):
        difference = asking.asked.difference
        if difference is None:
            nodes = {split(root)[0] for root in given_up}
            if any(nodes & {*parts.regions[root].nodes} for root in asking.left):
                break
            return left, parts, asking
        at = {difference.tensor, *(parts.regions[difference.tensor].leaves if with_leaves else ())}
        dropped = {name for name, root in left.items() if root in at and name not in kept}
        if difference.values == values.RUN or not dropped:
            break
        given_up |= {left[name] for name in dropped}
        left = {name: root for name, root in left.items() if name not in dropped}
        parts, asking = ask(left)
    return names, *first


def _choose_feeds(
    running: FedSource, settings: Settings, feeds: Sequence[Mapping[str, Array]]
) -> list[Mapping[str, Array]]:
    """Return the smallest feeds, feeds with new gate results, and feeds of compared sizes.

    A size that is compared is tried exactly, and one beside it.
    """
    gates, chosen = running.list_gates(), list[Mapping[str, Array]]()
    seen: dict[str, set[bool]] = {gate: set() for gate in gates}

    def find_new(feed: Mapping[str, Array]) -> bool:
        answers = running.run(gates, feed, {})
        results = {gate: {*np.unique(value).tolist()} for gate, value in zip(gates, answers, strict=True)}
        is_new = any(results[gate] - seen[gate] for gate in gates)
        for gate in gates:
            seen[gate] |= results[gate]
        return is_new

    for feed in sorted(feeds, key=lambda feed: sum(value.size for value in feed.values())):
        if find_new(feed) or len(chosen) < effort.REGION_FEEDS:
            chosen.append(feed)
    chosen = chosen[: effort.MOST_REGION_FEEDS]
    sizes = {
        gate: [size for size in running.list_sizes(gate) if size <= effort.LARGEST_SIZE] for gate in gates
    }
    tried = [*dict.fromkeys(size for gate in gates for size in sizes[gate])][: effort.MOST_SIZES]
    if tried and settings.calls is None and settings.golden is None:
        for of_rows in (False, True):
            for feed in _draw_sizes(settings, tried, of_rows=of_rows):
                find_new(feed)
                chosen.append(feed)
            if all(len(seen[gate]) == 2 for gate in gates if sizes[gate]):
                break
    return chosen


def _record_padded(running: FedSource, feed: Mapping[str, Array]) -> list[_Run]:
    """Run the source on ids padded with zeros.

    Returns an empty list where the source refuses the padded ids. A layer of Keras makes a mask of these
    zeros. The mask has no tensor: it goes beside the values to the next layers. The zeros stand at the end,
    the only place that the lengths of cuDNN can express.
    """
    import tensorflow as tf  # the source has loaded it

    ids = [name for name, value in feed.items() if _are_ids(value)]
    if not ids:
        return []
    padded = dict(feed) | {name: feed[name].copy() for name in ids}
    for name in ids:
        padded[name][:, (feed[name].shape[1] + 1) // 2 :] = 0
    try:
        return [(padded, running.record(padded))]
    except (tf.errors.OpError, ValueError):
        return []


def _are_ids(value: Array) -> bool:
    """Return True if an input may be sequences of ids.

    An Embedding also takes whole numbers stored as floats.
    """
    return value.ndim > 1 and value.dtype.kind in "iuf" and bool(np.all(value == np.round(value)))


def _draw_sizes(settings: Settings, sizes: Sequence[int], *, of_rows: bool) -> Iterator[Mapping[str, Array]]:
    """Yield feeds with the given number of steps, a step more and a step less.

    Feeds that the source refuses are left out. Each has one row, so that steps times rows are as many too.
    `of_rows`: as many rows, of two steps.
    """
    with settings.judge.open(trust=settings.trust) as source:
        for many in (size + beside for size in sizes for beside in effort.BESIDE_SIZES if size + beside > 0):
            usual = (2, many) if of_rows else (many, 1)
            with suppress(UnsupportedModelError):
                yield from settings.judge.make_feeds(source, seed=settings.seed, usual=(usual,))


def _open_model(artifact: Artifact, part: Part, feed: Mapping[str, Array]) -> TensorFile:
    """Return the file of a part as tensors; `feed` is any by tensor."""
    module = import_module(f"cudnn_convert.verification.ops.{FORMATS[artifact.form].runtime}")
    return cast("TensorFile", module.open_model(artifact, part, feed))


def _of_regions(running: FedSource, parts: Parts, asked: Findings, left: Sequence[str]) -> OpsReport:
    """Return the report of compared regions."""
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
    """Join the reports of several files."""
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
    """Return the report of a comparison of nodes."""
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
