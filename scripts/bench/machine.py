"""Where and with what something was measured."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = (
    *("cudnn-convert", "tensorflow", "keras", "tf-keras", "tf2onnx", "onnx", "onnxruntime", "torch"),
    *("openvino", "numpy"),
)


def taken() -> dict[str, Any]:
    """The day, the processor, the memory and the versions, as a section of the results keeps them."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "cpu": _cpu(Path("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "versions": {"python": platform.python_version(), **_versions(_PACKAGES)},
    }


def _cpu(path: Path) -> str:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1] if named else platform.machine()


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
