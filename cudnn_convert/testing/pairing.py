"""Which names of both sides mean the same: equal ones, those that are told, or the only ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cudnn_convert.errors import UsageError
from cudnn_convert.testing.sides import UNNAMED, Side
from cudnn_convert.verification import elsewhere


def inputs(side: Side, keys: Sequence[str], told: Mapping[str, str]) -> dict[str, str]:
    """Key of a feed -> the side's own input. `told`: own name by key, where they differ.

    Raises UsageError where a key finds no input, or an input no key.
    """
    names = {key: told.get(key, key) for key in keys}
    wanted = {name: name for name in names.values()}
    if len(wanted) < len(names):
        raise UsageError(f"{side.name}: inputs: expected a name for each, found {_listed(names.values())}")
    if side.inputs is None:
        return names
    there = side.inputs
    own = {name: found for found, name in elsewhere.keys(wanted, there).items() if name in wanted}
    if len(own) == len(names) == len(there):
        return {key: own[name] for key, name in names.items()}
    if len(names) == len(there) == 1 and not told:
        return dict(zip(names, there, strict=True))
    found = "an array without a name" if [*names.values()] == [UNNAMED] else _listed(names.values())
    raise UsageError(
        f"{side.name}: inputs: expected {_listed(there)}, found {found}; "
        "pair them with inputs={'of actual': 'of expected'}, and feed those of expected"
    )


def outputs(actual: Collection[str], expected: Collection[str], told: Mapping[str, str]) -> dict[str, str]:
    """The actual side's output -> the expected side's, of those that have a partner.

    `told` is the same for names that differ. Those left on one side alone are missing, or too many, which is
    for the comparison to say; where both sides have some, a UsageError refuses to guess.
    """
    if len(actual) == len(expected) == 1 and not told:
        return dict(zip(actual, expected, strict=True))
    once = len({*told.values()}) == len(told)
    strange = [
        f"{ours}: {theirs}"
        for ours, theirs in told.items()
        if not once or ours not in actual or theirs not in expected
    ]
    left = [name for name in actual if name not in told]
    wanted = {name: name for name in expected if name not in told.values()}
    found = {ours: theirs for ours, theirs in elsewhere.keys(wanted, left).items() if theirs in wanted}
    if strange or (len(found) < len(left) and len(found) < len(wanted)):
        cure = "pair them with outputs={'of actual': 'of expected'}"
        wrong = f", not {{{', '.join(strange)}}}" if strange else ""
        raise UsageError(f"outputs: expected {_listed(expected)}, found {_listed(actual)}; {cure}{wrong}")
    return {**told, **found}


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
