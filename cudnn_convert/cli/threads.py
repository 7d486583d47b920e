"""Sets the number of threads of NumPy's products before NumPy is imported.

It shares out every product of more than 2^18 multiplications, and its threads spin while they wait for each
other: one step of a small recurrence then takes several times as long wherever anything else runs.
Source: OpenBLAS v0.3.31 interface/gemm.c (SMP_THRESHOLD_MIN), driver/others/blas_server.c (THREAD_TIMEOUT),
driver/others/openblas_env.c.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"
#: What OpenBLAS looks at in this order; one that is set is what the user wants.
_SAID: Final = (_THREADS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
#: The weights of an LSTM of 2048 units: from there on threads gain more than they lose.
_SMALL: Final = 64 << 20


def limit_threads(source: Path) -> None:
    """One thread for the products of this process where the files of `source` are small."""
    if not any(name in os.environ for name in _SAID) and _size(source) < _SMALL:
        os.environ[_THREADS] = "1"


def _size(source: Path) -> int:
    """Bytes of the files in a folder, or of those whose names begin as a file's or a prefix' does."""
    folders = [source, source / "variables"] if source.is_dir() else [source.parent]
    start = "" if source.is_dir() else source.with_suffix("").name
    found = 0
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            found += sum(entry.stat().st_size for entry in entries if entry.name.startswith(start))
    return found
