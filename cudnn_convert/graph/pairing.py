"""Which canonical set belongs to which blob: by scope, else by being the only one that fits."""

from __future__ import annotations

from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.graph.facts import Facts
from cudnn_convert.model import CanonicalParameters, Mode, Model


def scopes(variable: str) -> tuple[str, str]:
    """Where the canonical keys of a variable may lie: its own scope, and the one around that."""
    own = variable.rpartition("/")[0]
    inner, outer = (f"{scope}/" if scope else "" for scope in (own, own.rpartition("/")[0]))
    return inner, outer


def by_scope(model: Model, variable: str, mode: Mode, directions: int) -> CanonicalParameters | None:
    """The set of the variable's own scope, else of the one around it, by the key that it is restored from."""
    key = model.keys.get(variable, variable)
    if key.rpartition("/")[2] != variable.rpartition("/")[2]:
        return None  # such as a moving average, which has no canonical keys
    for scope in scopes(key):
        for found in model.canonical:
            if found.scope == scope and _fits(found, mode, directions):
                return found
    return None


def by_sizes(model: Model, facts: Facts, *, has_blob: bool) -> CanonicalParameters | None:
    """The only set of the node's sizes: savers of TensorFlow before 1.4 take a scope of the user's choice.

    Raises AmbiguousSourceError where there are several; with `has_blob` the file has the weights once more.
    """
    sets = [
        found
        for found in model.canonical
        if not found.may_be_dense and _fits(found, facts.mode, facts.directions)
    ]
    known = [
        found for found in sets if facts.layers in (None, found.layers) and facts.units in (None, found.units)
    ]
    if len(known) > 1:
        scopes = ", ".join(found.scope.rstrip("/") or "the root scope" for found in known)
        reason = f"{facts.node}: expected one set of canonical keys of its sizes, found {scopes}"
        cure = "use the blob with --weights raw" if has_blob else "give a checkpoint that holds the blob"
        raise AmbiguousSourceError(model.path, [f"{reason}; {cure}"])
    return known[0] if known else None


def half(model: Model, facts: Facts) -> str:
    """What to say where only half of a bidirectional layer is there."""
    if facts.directions == 2 and any(found.may_be_half for found in model.canonical):
        return "; of a bidirectional layer TensorFlow before 1.4 saved half under its canonical keys"
    return ""


def _fits(found: CanonicalParameters, mode: Mode, directions: int) -> bool:
    return mode in found.modes and found.directions == directions
