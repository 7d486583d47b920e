"""Replaces variables by moving averages, for `--weights ema`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Model

#: tensorflow v1.15.0 python/training/moving_averages.py ExponentialMovingAverage, its default name.
_AVERAGE: Final = "ExponentialMovingAverage"


def use_moving_averages(model: Model, weights: str) -> tuple[Model, str]:
    """Return the model with the values requested by `--weights`, and the copy to take."""
    return (_use_averages(model), "raw") if weights == "ema" else (model, weights)


def _use_averages(model: Model) -> Model:
    """Return the model with each variable replaced by the moving average.

    Canonical keys have no averages. A saver of averages alone stores no other values. Raises
    UnsupportedModelError where there are no averages.
    """
    ending = f"/{_AVERAGE}"
    values = model.variables
    averages = {key.removesuffix(ending): values[key] for key in values if key.endswith(ending)}
    if not averages:
        reason = f"--weights ema: expected keys ...{ending}, found none; take the weights without --weights"
        raise UnsupportedModelError(model.path, [reason])
    # The user asked for averages, so the graph's saver does not decide.
    return replace(model, variables={**values, **averages}, keys={}, checkpoint=None)


def describe_unused_averages(model: Model, weights: str, taken: Iterable[str]) -> tuple[str, ...]:
    """Return a note if the file has unused moving averages of `taken` variables."""
    known = {key for key in model.variables if key.endswith(f"/{_AVERAGE}")}
    # A saver may restore a variable from its average: then the average is used already.
    own = [name for name in taken if name in model.variables and model.keys.get(name) not in known]
    count = sum(f"{name}/{_AVERAGE}" in known for name in own)
    if weights == "ema" or not count:
        return ()
    what = f"moving averages of {count} variable{'' if count == 1 else 's'}"
    return (f"{what} lie in the file and are not taken; --weights ema takes them",)
