"""Variable bundles: what was written is read back, and a disk that refuses is the disk's fault."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.samples import ROOT

from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory
from cudnn_convert.targets import bundle
from cudnn_convert.targets.bundle import write_bundle


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


class Counted:
    """A tensor that is made when it is read; `alive` are the arrays that somebody still has."""

    def __init__(self, value: float, read: list[float], alive: weakref.WeakSet, most: list[int]) -> None:
        self.shape, self.dtype = (1000, 7), np.dtype(np.float32)
        self.value, self.seen, self.alive, self.most = value, read, alive, most

    def read(self) -> np.ndarray:
        self.seen.append(self.value)
        held = np.full(self.shape, self.value, self.dtype).view(Held)
        self.alive.add(held)
        self.most.append(len(self.alive))
        return held


class Held(np.ndarray):
    """An array that a set can hold weakly."""

    __hash__ = object.__hash__


def test_a_large_bundle_is_several_files_of_which_two_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_SHARD", 2 * 28_000)
    seen, most = [], []
    alive = weakref.WeakSet()
    tensors = {f"scope/layer_{k:02d}": Counted(k + 0.25, seen, alive, most) for k in reversed(range(12))}
    bundle.write_bundle(tmp_path / "variables", tensors)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"variables.data-{k:05d}-of-00006" for k in range(6)),
        "variables.index",
    ]
    assert seen == [k + 0.25 for k in range(12)]  # once, in the order of their keys
    assert max(most) <= 2 * 2 + 1
    reader = tf.train.load_checkpoint(str(tmp_path / "variables"))
    for k in range(12):
        expected = np.full((1000, 7), k + 0.25, np.float32)
        np.testing.assert_array_equal(reader.get_tensor(f"scope/layer_{k:02d}"), expected)


def test_what_cannot_be_read_ends_a_large_bundle_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_SHARD", 1)

    class Damaged(Counted):
        def read(self) -> np.ndarray:
            raise ReadError("model.ckpt", "tensor b", expected="bytes", found="others", advice="copy it")

    good, damaged = (kind(1.0, [], weakref.WeakSet(), []) for kind in (Counted, Damaged))
    with pytest.raises(ReadError, match="tensor b"):
        bundle.write_bundle(tmp_path / "variables", {"a": good, "b": damaged, "c": good})
    assert not (tmp_path / "variables.index").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such limit")
@pytest.mark.slow("cudnn_convert/targets/bundle.py")
def test_a_disk_that_fills_up_is_an_os_error(tmp_path: Path) -> None:
    program = (
        "import resource, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from cudnn_convert.model import InMemory\n"
        "from cudnn_convert.targets.checkpoint import write_bundle\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: write_bundle(Path(sys.argv[1]), {'a': InMemory(np.ones(10_000, np.float32))})\n"
        "except OSError as error: print(error.strerror)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "variables"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "File too large\n", done.stderr
