"""The first tier on other kernels of NumPy and TensorFlow, as other processors would run it.

    python scripts/try_kernels.py [--only NAME ...] [PYTEST_WORDS ...]

The processor decides in which order floats are added up. Each of SETTINGS has the libraries take kernels of
another kind of processor. A comparison with recorded numbers that needs more than half of its bound on one of
them is named, and the command ends with 1: on some processor it would fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
#: Environment variables by a setting's name. NumPy 2.4 calls AVX2 and FMA3 together X86_V3.
SETTINGS = {
    "default": ONE_THREAD,
    "sse": {
        **ONE_THREAD,
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 AVX2 FMA3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    },
    "onednn": {**ONE_THREAD, "OPENBLAS_CORETYPE": "Sandybridge", "TF_ENABLE_ONEDNN_OPTS": "1"},
    "onednn-sse": {**ONE_THREAD, "TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "two-threads": {"OPENBLAS_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "2", "TF_ENABLE_ONEDNN_OPTS": "0"},
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    chosen, pytest_words = parser.parse_known_args(words)
    failed = [name for name in chosen.only if not is_green(name, pytest_words)]
    print("green on all" if not failed else f"not green: {', '.join(failed)}")
    return bool(failed)


def is_green(name: str, words: list[str]) -> bool:
    """Runs the first tier on the kernels of a setting."""
    print(f"kernels: {name}", flush=True)
    command = ["-m", "pytest", "-n", "2", "--dist", "loadfile", "--fast", "--within-half", *words]
    environment = {**os.environ, **SETTINGS[name], "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
