"""Finds the tensors shared by an artifact and a source, by names and by values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cudnn_convert.graph.index import split
from cudnn_convert.model import Array
from cudnn_convert.report.values import OpDifference
from cudnn_convert.verification.ops import differences, values
from cudnn_convert.verification.ops.models import TensorFile
from cudnn_convert.verification.ops.source import FedSource


@dataclass(slots=True)
class Shared:
    """Tensors of the artifact named as in the source: equal roots and differences by name.

    `shapes` are those of all on the first run.
    """

    equal: dict[str, str]
    others: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def share_names(
    source: FedSource,
    model: TensorFile,
    keys: Mapping[str, str],
    runs: Sequence[Mapping[str, Array]],
    recorded: Sequence[Mapping[str, Array]],
) -> Shared:
    """Compare the values of same-named tensors, and return equal and different names.

    What recurrences give is fed on the artifact's side, so that they amplify no rounding. Of several of the
    source that are equal on all runs, as a Relu and what it reads may be, it is the last that is computed: a
    fused op has the names of all, and the value of the last.
    """
    feeds = [{key: feed[tensor] for tensor, key in keys.items() if tensor in feed} for feed in runs]
    namesakes = _find_namesakes(source, model, recorded[0])
    namesakes |= _find_recurrent(source, model, feeds, recorded, {*namesakes})
    given = {name: roots[0] for name, roots in namesakes.items() if split(roots[0])[0] in source.graph.given}
    if not namesakes:
        return Shared({})
    shared = _compare_names(source, model, namesakes, feeds, recorded, given=given)
    if (
        shared.others
        and model.names_are_kept
        and (more := _find_moved(source, namesakes, shared, recorded[0]))
    ):
        shared = _compare_names(source, model, namesakes, feeds, recorded, given=given | more)
    return shared


def _find_moved(
    source: FedSource, namesakes: Mapping[str, Sequence[str]], shared: Shared, known: Mapping[str, Array]
) -> dict[str, str]:
    """Map tensors of different value to the source's tensors moved from a recurrence.

    Such a tensor has what a recurrence gives, but for places. Both directions of a layer, one beside the
    other, are such a tensor. A recurrence may amplify rounding.
    """
    moved = {
        name: [
            root
            for root in namesakes[name]
            if known[root].shape == shared.shapes[name] and source.moves_recurrence(root)
        ]
        for name in shared.others
    }
    return {name: roots[0] for name, roots in moved.items() if roots}


def _compare_names(
    source: FedSource,
    model: TensorFile,
    namesakes: Mapping[str, Sequence[str]],
    feeds: Sequence[Mapping[str, Array]],
    recorded: Sequence[Mapping[str, Array]],
    *,
    given: Mapping[str, str],
) -> Shared:
    """Return the names of equal values on all runs, and of different values.

    Names that are `given` need an equal shape.
    """
    left = {name: [given[name]] if name in given else [*roots] for name, roots in namesakes.items()}
    others, shapes, names = dict[str, str](), dict[str, tuple[int, ...]](), [*left]
    runner = model.open(names, {name: recorded[0][root] for name, root in given.items()})
    for feed, known in zip(feeds, recorded, strict=True):
        answers = runner.run(names, feed, {name: known[root] for name, root in given.items()})
        for name, value in zip(names, answers, strict=True):
            shapes.setdefault(name, value.shape)
            roots = [
                root
                for root in left[name]
                if (name in given and value.shape == known[root].shape)
                or differences.are_close(value, known[root])
            ]
            if not roots:
                others[name] = differences.find_difference(value, known[left[name][0]], []) or "another type"
            left[name] = roots or left[name]
    equal = {
        name: max(roots, key=lambda root: source.order.get(split(root)[0], 0))
        for name, roots in left.items()
        if name not in others
    }
    return Shared(equal, others, shapes)


def _find_namesakes(source: FedSource, model: TensorFile, known: Mapping[str, Array]) -> dict[str, list[str]]:
    """Map each tensor of the artifact to the feedable source tensors of possibly equal value."""
    nodes, namesakes = source.graph.index.nodes, dict[str, list[str]]()
    for name in model.tensors:
        there = [other for other in model.list_namesakes(name) if split(other)[0] in nodes]
        roots = dict.fromkeys(source.graph.root(other) for other in there)
        if kept := [root for root in roots if root in known]:
            namesakes[name] = kept
    return namesakes


def _find_recurrent(
    source: FedSource,
    model: TensorFile,
    feeds: Sequence[Mapping[str, Array]],
    recorded: Sequence[Mapping[str, Array]],
    taken: Collection[str],
) -> dict[str, list[str]]:
    """Find tensors with the values of recurrence outputs absent by name."""
    roots = [root for root in recorded[0] if split(root)[0] in source.graph.given]
    named = {root for name in taken for root in model.list_namesakes(name)}
    roots = [root for root in roots if root not in named]
    nodes = {f"{split(root)[0]}/" for root in roots}
    names = [
        name
        for name in model.tensors
        if name not in taken and any(name.startswith(node) or f";{node}" in name for node in nodes)
    ]
    if not roots or not names:
        return {}
    runner = model.open(names, {})
    namesakes = {name: [*roots] for name in names}
    with suppress(RuntimeError):
        for feed, known in zip(feeds, recorded, strict=True):
            for name, value in zip(names, runner.run(names, feed, {}), strict=True):
                close = [root for root in namesakes[name] if differences.are_close(value, known[root])]
                namesakes[name] = close
        return {name: roots for name, roots in namesakes.items() if roots}
    return {}


def find_other_value(source: FedSource, shared: Shared, cuts: Mapping[str, str]) -> OpDifference | None:
    """Return the first shared tensor in `cuts` with a changed value in the file.

    The tensor was the source's when the file was written, and is no more. `cuts` are those that the file
    says.
    """
    gone = {
        name: root
        for name, root in cuts.items()
        if shared.equal.get(name) != root and split(root)[0] in source.order
    }
    if not gone:
        return None
    first = min(gone, key=lambda name: (source.order[split(gone[name])[0]], name))
    root = gone[first]
    op = str(source.graph.index.nodes[split(root)[0]].op)
    return OpDifference(root, (op,), shared.others.get(first, "not in the file"), values.RUN)
