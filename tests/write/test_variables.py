"""Variable bundles: what was written is read back, and a disk that refuses is the disk's fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from samples import ROOT

from cudnn_convert.model import InMemory
from cudnn_convert.write.variables import write_bundle


def test_a_bundle_holds_every_tensor(tmp_path: Path) -> None:
    arrays = {
        f"scope/{dtype}": np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
        for dtype in ("float16", "float32", "float64", "int64")
    } | {"scalar": np.float32(0.1), "none": np.zeros((0, 3), np.float32)}
    write_bundle(tmp_path / "variables", {key: InMemory(np.asarray(value)) for key, value in arrays.items()})
    reader = tf.train.load_checkpoint(str(tmp_path / "variables"))
    assert set(reader.get_variable_to_shape_map()) == set(arrays)
    for key, value in arrays.items():
        np.testing.assert_array_equal(reader.get_tensor(key), value, strict=True)


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such limit")
def test_a_disk_that_fills_up_is_an_os_error(tmp_path: Path) -> None:
    program = (
        "import resource, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from cudnn_convert.model import InMemory\n"
        "from cudnn_convert.write.variables import write_bundle\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: write_bundle(Path(sys.argv[1]), {'a': InMemory(np.ones(10_000, np.float32))})\n"
        "except OSError as error: print(error.strerror)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "variables"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "File too large\n", done.stderr
