"""What a conversion costs: whole processes of the command line, in turn with what they are measured by."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import children
import whole
from networks import LARGE, SMALL, TINY, Sized

#: How often each is measured: the large ones take a minute each.
_TIMES: Final = (11, 3)
_QUICK: Final = (2, 1)
#: Seconds before each process that reads and writes large files.
PAUSE: Final = 20.0
_COPY: Final = (
    "import shutil, sys; [shutil.copyfile(p, sys.argv[1] + str(k)) for k, p in enumerate(sys.argv[2:])]"
)
#: Files as large as the checkpoint's, of memory that is there already: no reading, nothing rearranged.
_SAVE: Final = """
import functools, os, sys
import tensorflow as tf
ones = functools.cache(lambda size: tf.ones([size // 4]))
for number, path in enumerate(sys.argv[2:]):
    prefix, tensors = f"{sys.argv[1]}{number}", [ones(os.path.getsize(path))]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["ones"], shape_and_slices=[""], tensors=tensors)
"""


@dataclass(frozen=True, slots=True)
class _Job:
    """A conversion, and the program of Python that it is measured by, which `beside` tells in words.

    `kind` is that of its checkpoint. `seconds_goal` bounds the ratio of the seconds, `bytes_goal` the memory,
    or `sizes_goal` by the checkpoint's size; 0 where no goal is. `once`: it takes minutes, and no warming.
    `writes`: the program is given where to write, and the checkpoint's files.
    """

    name: str
    kind: str
    flags: tuple[str, ...]
    beside: str
    program: str
    seconds_goal: float
    bytes_goal: float = 0.0
    sizes_goal: float = 0.0
    once: bool = False
    writes: bool = False


_ONNX: Final = ("--format", "onnx")
#: Copies in the time of a verified conversion: arithmetic on every weight against moving it.
_PROVEN: Final = 40.0
_SMALL_JOBS: Final = (
    _Job(
        "checkpoint without a graph to ONNX, verified",
        "weights",
        _ONNX,
        "importing numpy, onnx and onnxruntime",
        "import numpy, onnx, onnxruntime",
        2.0,
        bytes_goal=150e6,
    ),
    _Job(
        "checkpoint with a graph to a SavedModel, verified",
        "graph",
        (),
        "importing tensorflow",
        "import tensorflow",
        3.0,
    ),
)
_LARGE_JOBS: Final = (
    _Job(
        "checkpoint to ONNX, not verified",
        "weights",
        (*_ONNX, "--no-verify"),
        "copying its files",
        _COPY,
        1.6,
        sizes_goal=1.2,
        writes=True,
    ),
    _Job(
        "checkpoint to a SavedModel, not verified",
        "weights",
        ("--no-verify",),
        "copying its files",
        _COPY,
        2.0,
        sizes_goal=1.5,
        writes=True,
    ),
    # What of that is TensorFlow's own.
    _Job(
        "checkpoint to a SavedModel, not verified",
        "weights",
        ("--no-verify",),
        "importing TensorFlow and saving as many bytes with it",
        _SAVE,
        0.0,
        once=True,
        writes=True,
    ),
    # What docs/large-models.md promises of large weights that are proven.
    _Job(
        "checkpoint to ONNX, verified",
        "weights",
        _ONNX,
        "copying its files",
        _COPY,
        _PROVEN,
        sizes_goal=1.5,
        once=True,
        writes=True,
    ),
    _Job(
        "checkpoint to a SavedModel, verified",
        "weights",
        (),
        "copying its files",
        _COPY,
        _PROVEN,
        sizes_goal=1.5,
        once=True,
        writes=True,
    ),
)


def costs(*, scratch: Path | None, large: bool, quick: bool) -> Iterator[dict[str, Any]]:
    """Each cost as `results.json` keeps it; those of a large checkpoint with `large` alone."""
    few, fewer = _QUICK if quick else _TIMES
    with tempfile.TemporaryDirectory(prefix="bench.", dir=scratch) as folder:
        yield from _costs(Path(folder, "small"), _SMALL_JOBS, TINY if quick else SMALL, few, 0.0)
        if large:
            sized, pause = (TINY, 0.0) if quick else (LARGE, PAUSE)
            yield from _costs(Path(folder, "large"), _LARGE_JOBS, sized, fewer, pause)


def _costs(
    folder: Path, jobs: Sequence[_Job], sized: Sized, times: int, pause: float
) -> Iterator[dict[str, Any]]:
    _require(folder.parent, 4 * 4 * sized.layers * sized.units * (sized.inputs + sized.units) * 3)
    network = [sized.layers, sized.units, sized.inputs]
    made: dict[str, str] = {}
    for job in jobs:
        if job.kind not in made:
            made[job.kind] = children.measured(
                "networks", threads=1, folder=str(folder), kind=job.kind, sized=network
            )
        found = _cost(job, Path(made[job.kind]), folder, times, pause)
        print(f"{job.name}: {found['seconds']} s, {job.beside}: {found['beside_seconds']} s", flush=True)
        yield found


def _cost(job: _Job, prefix: Path, folder: Path, times: int, pause: float) -> dict[str, Any]:
    """Both processes in turn, mostly after one of each that warms the page cache and compiles its modules."""
    files = [str(path) for path in sorted(prefix.parent.glob(f"{prefix.name}.*"))]
    size = sum(Path(path).stat().st_size for path in files)
    out, copy, bytecode = folder / "out", folder / "copy", folder / "bytecode"
    convert = [sys.executable, "-m", "cudnn_convert", str(prefix), str(out), *job.flags, "--quiet"]
    written = [f"{copy}/", *files] if job.writes else []
    beside = [sys.executable, "-c", job.program, *written]
    kept = (copy, out.parent) if job.writes else (None, None)
    seconds, memory, other = [], [], []
    warming, times = (0, 1) if job.once else (1, times)
    for _ in range(warming + times):
        copy.mkdir()
        other.append(whole.cost(beside, bytecode=bytecode, kept=kept[0], pause=pause)[0])
        shutil.rmtree(copy)
        taken, used = whole.cost(convert, bytecode=bytecode, kept=kept[1], pause=pause)
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        seconds.append(taken)
        memory.append(used)
    return {
        "name": job.name,
        "beside": job.beside,
        "size": size,
        "seconds": seconds[warming:],
        "beside_seconds": other[warming:],
        "memory": memory[warming:],
        "seconds_goal": job.seconds_goal,
        "bytes_goal": job.bytes_goal or job.sizes_goal * size,
    }


def _require(folder: Path, needed: int) -> None:
    """The checkpoint, what is made of it and a copy of it are there at the same time."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"bench: {folder}: expected {needed / 1e9:.1f} GB free, found {free / 1e9:.1f}; "
            "name another folder with --scratch"
        )
