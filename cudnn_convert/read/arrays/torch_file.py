"""Reads the state dict of a PyTorch file, written by PyTorch 1.6 or later.

TorchScript, whole pickled modules and the format before 1.6 are refused, each with how to save it anew.

A state dict may be an entry of a checkpoint. The mapping whose own tensors hold recurrences is taken, and the
keys of its tensors stay as they are: those of the entries around it are in no name. What an optimizer keeps
has the shapes of weights, and often their names, so it is not looked at.

Sources: pytorch v2.8.0 torch/serialization.py `_save`, `_legacy_save` (MAGIC_NUMBER),
torch/csrc/jit/serialization/export_module.cpp `ScriptModuleSerializer::serialize` (constants.pkl, code/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import AGAIN, AmbiguousSourceError, ReadError
from cudnn_convert.model import Model, Tensor
from cudnn_convert.read import dialects
from cudnn_convert.read.arrays import containers, torch_pickle
from cudnn_convert.read.arrays.containers import ArrayFiles
from cudnn_convert.read.arrays.torch_archive import PICKLE, TYPES, Archive, list_roots
from cudnn_convert.read.arrays.torch_pickle import Claim, Entries, Opaque, PickleError, Unreadable
from cudnn_convert.read.dialects import torch
from cudnn_convert.text import list_some

KIND: Final = "PyTorch file"
TAGS: Final = False
_ZIP: Final = b"PK\x03\x04"
#: The first pickle of the format before 1.6 in protocol 2: the number 0x1950A86A20F9469CFC6C.
_LEGACY: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_EXPECTED: Final = "a state dict, tensors by name"
_SAVE: Final = "save its weights alone: torch.save(model.state_dict(), 'weights.pt')"
#: Begins the keys under which checkpoints keep what an optimizer knows.
_OPTIMIZER: Final = "optim"
#: How many names a message lists, and letters of one.
_LISTED: Final = 5
_LETTERS: Final = 60
#: Mappings with tensors that are looked at, and how deep they may lie.
_MOST: Final = 1000
_DEEPEST: Final = 8

#: The keys that lead to a mapping in the file.
_Keys = tuple[str, ...]


def recognise(path: Path) -> ArrayFiles | None:
    """Return the file at `path` if written by `torch.save` or TorchScript."""
    head = containers.read_head(path, len(_LEGACY))
    is_archive = head.startswith(_ZIP) and bool(list_roots(path))
    return ArrayFiles(path, (path,)) if head == _LEGACY or is_archive else None


def read(source: ArrayFiles) -> Model:
    """Read the state dict; values stay in the file. Raises ReadError, AmbiguousSourceError, OSError."""
    path = source.path
    containers.require_whole(source)
    if containers.read_head(path, len(_LEGACY)) == _LEGACY:
        advice = "load it, and save its state dict with torch.save of PyTorch 1.6 or later"
        expected, actual = "a file of PyTorch 1.6 or later", "its format before 1.6"
        raise ReadError(path, "file", expected=expected, found=actual, advice=advice)
    archive = Archive(path)
    if any(name == "constants.pkl" or name.startswith("code/") for name in archive.names):
        advice = (
            f"save its weights: torch.save(torch.jit.load({str(path)!r}, 'cpu').state_dict(), 'weights.pt')"
        )
        raise ReadError(path, "file", expected=_EXPECTED, found="a program of TorchScript", advice=advice)
    try:
        value, is_foreign = torch_pickle.load(archive.read_pickle())
    except PickleError as cause:
        expected, actual = "a pickle as torch.save writes it", str(cause)
        raise ReadError(path, PICKLE, expected=expected, found=actual, advice=AGAIN) from cause
    if not isinstance(value, dict):
        raise ReadError(path, "file", expected=_EXPECTED, found=_describe(value), advice=_SAVE)
    keys, entries = _choose(archive, value, is_foreign=is_foreign)
    notes = [f"weights: those of the state dict {_index(keys)} in the file"] if keys else []
    if skipped := _list_unreadable(entries):
        key, what = skipped[0]
        more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        notes.append(f"{_shorten(key)}: {what}, which is left out{more}")
    return containers.make_model(path, KIND, _tensors(archive, entries), notes=tuple(notes))


def _choose(archive: Archive, value: Entries, *, is_foreign: bool) -> tuple[_Keys, Entries]:
    """Return the only mapping with recurrences, with its keys.

    Without any it is the whole, or the only mapping with tensors. Raises ReadError where there is no tensor,
    AmbiguousSourceError where several have recurrences.
    """
    path = archive.path
    mappings = ((keys, entries) for keys, entries in _walk(value) if _has_tensors(entries))
    states = dict(islice(mappings, _MOST + 1))
    if len(states) > _MOST:
        expected = f"at most {_MOST} mappings with tensors"
        raise ReadError(path, "file", expected=expected, found="more", advice=_SAVE)
    holding = {keys: entries for keys, entries in states.items() if _holds_recurrence(archive, entries)}
    if len(holding) > 1:
        raise AmbiguousSourceError(path, [_ask(path, list(holding), is_foreign=is_foreign)])
    for some in (holding, {keys: entries for keys, entries in states.items() if not keys}, states):
        if len(some) == 1:
            return next(iter(some.items()))
    actual = "several without a recurrence: " + _join(list(states)) if states else _describe(value)
    raise ReadError(path, "file", expected=_EXPECTED, found=actual, advice=_SAVE)


def _walk(value: Entries) -> Iterator[tuple[_Keys, Entries]]:
    """Yield each mapping of the file once, from the outside to the inside.

    With it come the keys that lead to it. A mapping may contain itself. What an optimizer keeps is left out.
    """
    start: _Keys = ()
    seen, waiting = {id(value)}, deque([(start, value)])
    while waiting:
        keys, entries = waiting.popleft()
        yield keys, entries
        for key, inner in entries.items() if len(keys) < _DEEPEST else ():
            if isinstance(inner, dict) and id(inner) not in seen and not key.startswith(_OPTIMIZER):
                seen.add(id(inner))
                waiting.append(((*keys, key), inner))


def _has_tensors(entries: Entries) -> bool:
    return any(isinstance(value, Claim | Unreadable) for value in entries.values())


def _holds_recurrence(archive: Archive, entries: Entries) -> bool:
    """Return True if the tensors of a mapping hold a recurrence.

    Raises ReadError for half of one.
    """
    sets = dialects.find(archive.path, _tensors(archive, entries))
    return any(not parameters.may_be_dense for parameters in sets)


def _tensors(archive: Archive, entries: Entries) -> dict[str, Tensor]:
    """Return the tensors of a mapping.

    Raises ReadError for a weight of a recurrence that is unreadable.
    """
    for key, what in _list_unreadable(entries):
        if torch.is_weight(key):
            advice = "save it as a dense tensor of floats"
            raise ReadError(archive.path, key, expected="a tensor of numbers", found=what, advice=advice)
    claims = {key: value for key, value in entries.items() if isinstance(value, Claim)}
    return {key: archive.view(key, claim) for key, claim in claims.items() if claim.dtype in TYPES}


def _list_unreadable(entries: Entries) -> list[tuple[str, str]]:
    """List the unreadable tensors by key, each with a description."""
    unreadable = ((key, value.what) for key, value in entries.items() if isinstance(value, Unreadable))
    claims = ((key, value.dtype) for key, value in entries.items() if isinstance(value, Claim))
    return [*unreadable, *((key, f"a tensor of {dtype}") for key, dtype in claims if dtype not in TYPES)]


def _describe(value: Any) -> str:
    """Describe a value in the place of a state dict."""
    if isinstance(value, Claim | Unreadable):
        return "a tensor without a name"
    if isinstance(value, Opaque):
        return f"an object of {value.name}, which is not built"
    if not isinstance(value, dict):
        return f"a value of type {type(value).__name__}"
    objects = ((key, inner.name) for key, inner in value.items() if isinstance(inner, Opaque))
    first = next((f": {key} is an object of {name}" for key, name in objects if "." in name), "")
    return f"a mapping without tensors{first}"


def _ask(path: Path, choices: list[_Keys], *, is_foreign: bool) -> str:
    """Return a reason with the code for saving one of several state dicts."""
    load = f"torch.load({str(path)!r}, 'cpu'{', weights_only=False' if is_foreign else ''})"
    wanted = f"torch.save({load}{_index(choices[-1])}, 'weights.pt')"
    expected = "weights: expected one state dict with recurrences"
    return f"{expected}, found {_join(choices)}; save the one that you want, such as {wanted}"


def _join(choices: list[_Keys]) -> str:
    return list_some([_index(keys) or "the whole" for keys in choices], _LISTED)


def _index(keys: _Keys) -> str:
    """Return the keys as Python's subscripts."""
    return "".join(f"[{_shorten(key)!r}]" for key in keys)


def _shorten(key: str) -> str:
    return key if len(key) <= _LETTERS else f"{key[:_LETTERS]}..."
