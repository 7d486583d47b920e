"""Moving averages in the place of what they are averages of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Model

#: tensorflow v1.15.0 python/training/moving_averages.py ExponentialMovingAverage, its default name.
_AVERAGE: Final = "ExponentialMovingAverage"


def chosen(model: Model, weights: str) -> tuple[Model, str]:
    """The model with the values that `--weights` asks for, and which copy of each to take."""
    return (_averaged(model), "raw") if weights == "ema" else (model, weights)


def _averaged(model: Model) -> Model:
    """The model with each variable's moving average for its value. Canonical keys hold no averages.

    A saver of averages alone leaves the variables themselves out.
    """
    ending = f"/{_AVERAGE}"
    averages = {
        name.removesuffix(ending): found for name, found in model.variables.items() if name.endswith(ending)
    }
    if not averages:
        reason = f"--weights ema: expected keys ...{ending}, found none; take the weights without --weights"
        raise UnsupportedModelError(model.path, [reason])
    # They are asked for, whatever the graph's own saver restores.
    return replace(model, variables={**model.variables, **averages}, keys={}, checkpoint=None)


def left_out(model: Model, weights: str, taken: Iterable[str]) -> tuple[str, ...]:
    """That the file has moving averages of variables `taken` which are not what was taken for them."""
    known = {key for key in model.variables if key.endswith(f"/{_AVERAGE}")}
    # A saver may have mapped a variable to its average: then that is its value.
    own = [name for name in taken if name in model.variables and model.keys.get(name) not in known]
    count = sum(f"{name}/{_AVERAGE}" in known for name in own)
    if weights == "ema" or not count:
        return ()
    what = f"moving averages of {count} variable{'' if count == 1 else 's'}"
    return (f"{what} lie in the file and are not taken; --weights ema takes them",)
