"""The same bytes in every run: no dates, no random numbers, no order that hangs on addresses."""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.python.saved_model import save

SHARED = re.compile(r'("shared_object_id": )(\d+)')


def fingerprint(saved_model: Path) -> None:
    """TensorFlow 2.20 draws `uuid` anew for each save; the hashes beside it stay as written."""
    path = saved_model / "fingerprint.pb"
    found = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    if "uuid" in found.DESCRIPTOR.fields_by_name:
        found.uuid = "0"
    path.write_bytes(found.SerializeToString(deterministic=True))


def savez(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, value in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, np.asanyarray(value), allow_pickle=False)
            target.writestr(member(name + ".npy"), stream.getvalue(), zipfile.ZIP_DEFLATED)


def archive(path: Path) -> None:
    """Rewrites a .keras file: its dates, and the addresses that config.json has for shared objects."""
    with zipfile.ZipFile(path) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    metadata = json.loads(members["metadata.json"]) | {"date_saved": "2026-01-01@00:00:00"}
    members["metadata.json"] = json.dumps(metadata).encode()
    members["config.json"] = SHARED.sub(counted(), members["config.json"].decode()).encode()
    with zipfile.ZipFile(path, "w") as target:
        for name, content in members.items():
            target.writestr(member(name), content)


def counted() -> Callable[[re.Match[str]], str]:
    """Replaces each number by that of its first appearance."""
    seen: dict[str, int] = {}
    return lambda found: found[1] + str(seen.setdefault(found[2], len(seen) + 1))


def member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


@contextlib.contextmanager
def variables_in_order() -> Iterator[None]:
    """Keras lists the variables that an export uses in the order of their addresses; here of their names."""

    def by_name(variable: Any) -> tuple[str, int]:
        """Two states of one layer have the same name; which was made first, TensorFlow's own number says."""
        return variable.name, int(variable._unique_id.rsplit("_", 1)[1])

    def ordered(trackable: Any, *arguments: Any, **options: Any) -> Any:
        if hasattr(trackable, "_all_variables"):
            trackable._all_variables = sorted(trackable._all_variables, key=by_name)
        return write(trackable, *arguments, **options)

    write = save.save_and_return_nodes
    with mock.patch.object(save, "save_and_return_nodes", ordered):
        yield
