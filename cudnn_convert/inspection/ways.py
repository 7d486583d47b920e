"""The ways to convert a model: planned as a conversion plans it, and where that refuses, as it advises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cudnn_convert import planning
from cudnn_convert.errors import InvalidModelError, ReadError, RefusalError, UsageError
from cudnn_convert.inspection import advice
from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan

#: How often advice is followed, and how many ways are tried: a plan of a large graph takes seconds.
_DEPTH: Final = 4
_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class Ways:
    """The plans that are possible, each with its options; the reasons where the given options refuse."""

    plans: tuple[tuple[Options, Plan], ...]
    reasons: tuple[str, ...] = ()


def found(model: Model, options: Options) -> Ways:
    """Every way to plan a model's conversion by `options`, or by what a refusal of them advises.

    Raises what planning raises but for refusals: UsageError for `options`, ReadError for the file.
    """
    return _tried(model, options, _DEPTH)


def _tried(model: Model, options: Options, depth: int) -> Ways:
    try:
        return Ways(((options, planning.planned(model, options)),))
    except RefusalError as error:
        reasons = error.reasons
    except InvalidModelError as error:
        reasons = (f"{model.path}: {error}",)
    plans: list[tuple[Options, Plan]] = []
    for advised in advice.followed(reasons, model, options)[:_WIDTH] if depth else ():
        try:
            plans += _tried(model, advised, depth - 1).plans
        except (UsageError, ReadError):
            continue  # what one reason advises may not go with another's, or with half of the keys
    kept = {repr(one): (one, plan) for one, plan in plans}
    return Ways(tuple(kept.values())[:_WIDTH], reasons)
