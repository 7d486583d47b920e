"""From what a refusal advises to the options that follow it.

A refusal says what to do in the words of the command line: `turn it off with --set rate:0=0`, `choose with
--weights canonical or --weights raw`. Here that is taken at its word; whether it helps, planning says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from cudnn_convert.model import Mode, Model
from cudnn_convert.options import READING, Options

#: What is said of canonical keys of TensorFlow before 1.4, whose other half is in the blob.
_HALF: Final = "half of a bidirectional layer"
#: Between the ways of a refusal that has several.
_BETWEEN: Final = re.compile(r";| \| | or |, else |: ")
_FLAG: Final = re.compile(r"--([a-z][a-z-]*)(?:[ =]([^\s;|()]+))?")
#: A word that stands for a value that only the user knows.
_STANDS_IN: Final = re.compile(r"[A-Z]+|--.*")
_REPEATED: Final = frozenset({"inputs", "outputs", "set"})
_NUMBERS: Final = frozenset({"layers", "units", "directions"})

Change = Mapping[str, Any]


def followed(reasons: Sequence[str], model: Model, options: Options) -> list[Options]:
    """The options that the reasons of a refusal lead to: one set where each reason leaves one way, else one
    for each way of the first reason that leaves several. None that contradict what was said already.
    """
    ways = [found for reason in reasons if (found := _ways(reason, model, options))]
    sure: dict[str, Any] = {}
    for (change,) in (found for found in ways if len(found) == 1):
        sure = _merged(sure, change)
    several: Sequence[Change] = next((found for found in ways if len(found) > 1), [{}])
    made = (_applied(options, _merged(sure, change)) for change in several)
    return [found for found in made if found != options]


def _ways(reason: str, model: Model, options: Options) -> list[Change]:
    """The ways that one reason names, each a change of options."""
    if "--units N" in reason and options.units is None:
        units = dict.fromkeys(one.units for one in model.canonical if one.may_be_dense)
        return [{"mode": Mode.LSTM.value, "units": count} for count in units]
    if _HALF in reason and options.directions is None and options.mode is None:
        # Half of the pseudo-layers are there, and so all layers: their blob may have any name.
        halves = ((mode, one) for one in model.canonical if one.may_be_half for mode in one.modes)
        whole = [{"mode": mode.value, "layers": one.layers, "units": one.units} for mode, one in halves]
        return [{"directions": 1}, *({**said, "directions": 2} for said in whole)]
    found: list[Change] = []
    for part in _BETWEEN.split(reason):
        change = dict(_named(part))
        if change and change not in found and all(_is_open(options, *said) for said in change.items()):
            found.append(change)
    if not found and "--signature" in reason and options.signature is None:
        return [{"signature": key} for key in model.signatures]
    return found


def _named(part: str) -> Iterator[tuple[str, Any]]:
    for flag, text in _FLAG.findall(part):
        name, value = flag.replace("-", "_"), text.rstrip(",")
        if name not in READING or not value or _STANDS_IN.fullmatch(value.rpartition("=")[2]):
            continue
        if name in _REPEATED:
            yield name, (value,)
        elif name in _NUMBERS:
            if value.isdigit():
                yield name, int(value)
        else:
            yield name, float(value) if name == "forget_bias" else value


def _is_open(options: Options, name: str, value: Any) -> bool:
    """Whether nothing else was said; constants add up."""
    usual = next(field.default for field in fields(Options) if field.name == name)
    given = getattr(options, name)
    # The command line gives an empty list where a flag is not there.
    return name == "set" or (tuple(given) if name in _REPEATED else given) in (usual, value)


def _merged(change: Change, more: Change) -> dict[str, Any]:
    """Both changes; a repeated flag has the items of both."""
    made = {**change, **more}
    for name in _REPEATED & change.keys() & more.keys():
        made[name] = tuple(dict.fromkeys((*change[name], *more[name])))
    return made


def _applied(options: Options, change: Change) -> Options:
    given = {"set": tuple(options.set)} if "set" in change else {}
    return replace(options, **_merged(given, change))
