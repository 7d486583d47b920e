"""Where and with what something was measured."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

#: What /proc/cpuinfo calls the instructions that the speed of a product depends on, and everybody else.
_VECTORS: Final = MappingProxyType(
    {
        **{"avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "VNNI", "avx_vnni": "VNNI"},
        **{"amx_tile": "AMX", "asimd": "NEON", "sve": "SVE"},
    }
)
_PACKAGES: Final = (
    *("cudnn-convert", "tensorflow", "keras", "tf-keras", "tf2onnx", "onnx", "onnxruntime", "torch"),
    *("openvino", "numpy"),
)


def taken() -> dict[str, Any]:
    """The day, the processor, the memory and the versions, as a section of the results keeps them.

    A virtual machine may name no more of a processor than its maker: `vectors` are its instructions.
    """
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "cpu": _cpu(Path("/proc/cpuinfo")),
        "vectors": vectors(Path("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "versions": {"python": platform.python_version(), **_versions(_PACKAGES)},
    }


def _cpu(path: Path) -> str:
    return _told(path, "model name") or platform.machine()


def vectors(path: Path) -> list[str]:
    """The instructions for vectors and matrices that a processor has, of those that matter here."""
    flags = {*_told(path, "flags|Features").split()}
    return [*dict.fromkeys(name for flag, name in _VECTORS.items() if flag in flags)]


def _told(path: Path, keys: str) -> str:
    """What /proc/cpuinfo says of the first processor under one of the keys."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"^(?:{keys})\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
