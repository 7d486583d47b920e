"""The file that a recording is: what a source was fed, what it answered, and on which machine.

An `.npz` of plain arrays: `feed<k>/in/<key>` and `feed<k>/out/<key>` for the k-th call, in order in one
session, and `meta`, JSON in UTF-8 as an array of uint8. `scripts/record_tf1.py` and `verification/record.py`
write it, each with nothing of the other, for the one runs in TensorFlow 1 on Python 2.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import npz
from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.verification import arrays

FORMAT: Final = "cudnn_convert recording"
VERSION: Final = 1
FLAG: Final = "--golden"
_META: Final = "meta"
_SIDES: Final = ("inputs", "outputs")
#: What every recording says of itself, and what the report repeats of it.
_FACTS: Final = ("recorder", "source", "tensorflow", "python", "cuda", "cudnn", "devices", "tf32")


def _is_ends(told: Any) -> bool:
    """Whether this is what `described` gives."""
    ends = told.values() if isinstance(told, dict) else [None]
    names = [end.get(name) if isinstance(end, dict) else None for end in ends for name in ("tensor", "dtype")]
    return all(isinstance(name, str) for name in names)


def _are_devices(told: Any) -> bool:
    of = told if isinstance(told, list) else [None]
    names = [
        one.get(name) if isinstance(one, dict) else None for one in of for name in ("type", "description")
    ]
    return all(isinstance(name, str) for name in names)


#: What is read of `meta`, here and in reports, by whether it is of the form that is written.
_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_SIDES, _is_ends),
    "devices": _are_devices,
    "tf32": lambda told: isinstance(told, dict) and isinstance(told.get("on"), bool) and "reason" in told,
}


@dataclass(frozen=True, slots=True)
class Recording:
    """`inputs` and `outputs` map keys to tensors of the source; each of `feeds` and `answers` is by key."""

    path: Path
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    feeds: tuple[Mapping[str, Array], ...]
    answers: tuple[Mapping[str, Array], ...]
    facts: Mapping[str, Any]

    @property
    def is_tf32(self) -> bool:
        """Whether the device computed float32 with 10 bits of mantissa."""
        return bool(self.facts["tf32"]["on"])


def described(pairs: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """What `meta` says of inputs or outputs, from `(tensor, dtype)` by key."""
    return {key: {"tensor": name, "dtype": dtype} for key, (name, dtype) in pairs.items()}


def write(
    path: Path,
    meta: Mapping[str, Any],
    feeds: Sequence[Mapping[str, Array]],
    answers: Sequence[Mapping[str, Array]],
) -> None:
    """Writes a recording; `feeds` and `answers` are by key, one a call. Raises OSError."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **meta}, sort_keys=True)
    found = {_META: np.frombuffer(text.encode(), np.uint8)}
    for k, (feed, answer) in enumerate(zip(feeds, answers, strict=True)):
        found |= {f"feed{k}/in/{key}": value for key, value in feed.items()}
        found |= {f"feed{k}/out/{key}": value for key, value in answer.items()}
    with path.open("wb") as stream:  # a file that is open gets no ending of NumPy's own
        np.savez_compressed(stream, **found)  # type: ignore[arg-type]


def read(path: Path) -> Recording:
    """The recording in a file. Raises UsageError for anything else."""
    found = arrays.load(path, flag=FLAG)
    where = f"{FLAG} {path}"
    meta = _meta(found.pop(_META, None), where)
    feeds: list[dict[str, Array]] = []
    answers: list[dict[str, Array]] = []
    for k, call in enumerate(arrays.calls(found, where=where)):
        for side, into in (("in", feeds), ("out", answers)):
            told = meta[f"{side}puts"]
            values = {key[len(side) + 1 :]: v for key, v in call.items() if key.startswith(f"{side}/")}
            if set(values) != set(told):
                expected, seen = ", ".join(sorted(told)), ", ".join(sorted(values)) or "none"
                raise UsageError(f"{where}: feed{k}/{side}: expected {expected}, found {seen}")
            into.append({key: _typed(value, told[key]["dtype"]) for key, value in values.items()})
    inputs, outputs = ({key: told["tensor"] for key, told in meta[side].items()} for side in _SIDES)
    facts = {"file": path.name} | {name: meta[name] for name in _FACTS}
    return Recording(path, inputs, outputs, tuple(feeds), tuple(answers), facts)


def is_ours(path: Path) -> bool:
    """Whether a file says that it is a recording."""
    try:
        found = npz.load(path, only=_META)
        told = json.loads(found[_META].tobytes())
        return isinstance(told, dict) and told.get("format") == FORMAT
    except (OSError, ValueError, KeyError, RecursionError):
        return False


def _meta(stored: Array | None, where: str) -> dict[str, Any]:
    try:
        meta = json.loads((np.zeros(0, np.uint8) if stored is None else stored).tobytes())
        name, version = meta["format"], meta["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as cause:
        found = "no meta" if stored is None else "a meta of another kind"
        raise UsageError(f"{where}: expected a recording, found {found}; make one with record") from cause
    if (name, version) != (FORMAT, VERSION):
        cure = "record again, or take a newer cudnn-convert"
        raise UsageError(f"{where}: expected a {FORMAT} {VERSION}, found {name} {version}; {cure}")
    if missing := [key for key in (*_FACTS, *_SIDES) if key not in meta]:
        raise UsageError(f"{where}: meta: expected {', '.join(missing)}, found none; record again")
    if wrong := [name for name, is_so in _FORMS.items() if not is_so(meta[name])]:
        raise UsageError(f"{where}: meta: expected {wrong[0]} as record writes it, found another form")
    return dict(meta)


def _typed(value: Array, dtype: str) -> Array:
    """NumPy's files know no bfloat16: they keep its two bytes."""
    if value.dtype != np.dtype("V2") or dtype != "bfloat16":
        return value
    import ml_dtypes

    return value.view(ml_dtypes.bfloat16)
