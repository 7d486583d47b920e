"""From a source to its inspection: read and planned as a conversion would, nothing of it run or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cudnn_convert import planning, targets
from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.inspection import answer, models, sources, versions
from cudnn_convert.inspection.value import Found, Inspection, Way
from cudnn_convert.options import Options, limited
from cudnn_convert.quiet import quiet


@quiet()
@limited
def inspected(source: Path, options: Options, *, form: str | None = None) -> Inspection:
    """The inspection of `source`, with the command for the format `form`, or for the one that fits it.

    `options` say how the source is read. Raises ReadError and AccessError where it cannot be, UsageError
    where the options do not fit it, AmbiguousSourceError where `source` is not one model.
    """
    options = replace(options, format=form or "savedmodel")
    targets.refuse(options)
    try:
        model = planning.opened(source, options, tag=options.tag)
    except AmbiguousSourceError as error:
        tags = versions.tags(source if source.is_dir() else source.parent)
        if options.tag is not None or not tags:
            raise
        return _by_tag(source, options, tags, error.reasons, form)
    targets.require(model, options)
    if model.architecture is not None:
        return models.inspected(source, model, options, form)
    if planning.is_portable(model, options) and not options.force_convert:
        return sources.portable(source, model, options)
    if model.graph is None:
        return sources.alone(source, model, options, form)
    found = sources.graph(source, model, options)
    others = [tags for tags in versions.tags(model.path) if options.tag is None and tags != "serve"]
    return answer.with_notes(found, [f"other graphs than that of serve: --tag {tags}" for tags in others])


def _by_tag(
    source: Path, options: Options, tags: Sequence[str], reasons: tuple[str, ...], form: str | None
) -> Inspection:
    """A SavedModel of several graphs, each of which is inspected; which is meant decides what is live."""
    each = {tag: inspected(source, replace(options, tag=tag), form=form) for tag in tags}
    found: list[Found] = []
    for one in each.values():
        known = [replace(recurrence, live=None) for recurrence in one.recurrences]
        found += [recurrence for recurrence in known if recurrence not in found]
    ways = [Way((f"--tag={tag}",), one.command) for tag, one in each.items() if one.command]
    return replace(
        next(iter(each.values())),
        runs_on_cpu=None,
        recurrences=tuple(found),
        signatures=(),
        command=None,
        candidates=tuple(ways),
        reasons=reasons,
        notes=(),
    )
