"""Writes decoded weights as `.npz` or safetensors.

An array's key is `<recurrence name>/<key in named_weights.Weights>`. The metadata are JSON: the provenance,
and under `weights` the description of each recurrence. In an `.npz` they are an array of uint8, UTF-8, with
the key `cudnn_convert`; in safetensors the metadata of that key.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.recurrences.named_weights import Weights, decode
from cudnn_convert.weights.npz_archive import RECORD

_SYSTEM: Final = re.compile(r"\(os error (\d+)\)")


def prepare(plan: Plan, options: Options) -> Plan:
    """Return the plan: a file of weights has all weights."""
    return plan


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write the decoded weights of a plan's recurrences to the file `path`."""
    assert isinstance(plan, RecurrencesPlan)
    write(path, [decode(single) for single in plan.singles], provenance=provenance)
    return ()


def write(path: Path, weightses: Sequence[Weights], *, provenance: str) -> None:
    """Write `.npz` or safetensors, by the suffix of `path`, with deterministic bytes.

    Raises OSError.
    """
    record = json.loads(provenance) | {"weights": [weights.describe() for weights in weightses]}
    text = json.dumps(record, indent=1)
    arrays = {
        f"{weights.name}/{key}": value for weights in weightses for key, value in weights.weights.items()
    }
    if path.suffix.lower() == ".npz":
        with path.open("wb") as stream:  # np.savez appends .npz to a path, not to a stream
            np.savez(stream, **{RECORD: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
        return
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.touch()
    permissions = path.stat().st_mode  # by the user's umask; safetensors removes those of others
    contiguous = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
    try:
        save_file(contiguous, str(path), metadata={RECORD: text})
    except SafetensorError as cause:  # the system's error number is only in its text
        match = _SYSTEM.search(str(cause))
        if match is None:
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), str(path)) from cause
    path.chmod(permissions)
