"""The package itself does not load the decoders, and with them TensorFlow."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_no_tensorflow() -> None:
    code = (
        "import sys, cudnn_convert; sys.exit(bool({'tensorflow', 'cudnn_convert.decode'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
