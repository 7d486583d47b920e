"""Examples with every kind of feature, as records, and what a call reads of them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import UsageError
from cudnn_convert.feeds.data import Data, DataCalls, read_calls
from support.record_files import example, record

ROWS = 11
RNG = np.random.default_rng(5)
#: Steps of each example, all of which a batch pads to its longest.
STEPS = np.array([3, 1, 5, 2, 4, 4, 1, 6, 2, 3, 5])
FRAMES = [RNG.normal(size=(steps, 3)).astype(np.float32) for steps in STEPS]
IDS = RNG.integers(-5, 90, (ROWS, 4))
BITS = RNG.integers(0, 2, (ROWS, 13)).astype(np.uint8)
IMAGES = RNG.integers(0, 256, (ROWS, 2, 3)).astype(np.uint8)
SOUNDS = [RNG.integers(-3000, 3000, (steps, 2)).astype(np.int16) for steps in STEPS]
WORDS = [[b"a" * (k + 1), b"\xffz\0"] for k in range(ROWS)]


def examples() -> list[bytes]:
    return [
        example(
            {
                "frames": FRAMES[k].ravel(),
                "ids": IDS[k],
                "bits": [np.packbits(BITS[k]).tobytes()],
                "image": [IMAGES[k].tobytes()],
                "sound": [SOUNDS[k].astype("<i2").tobytes()],
                "words": WORDS[k],
            }
        )
        for k in range(ROWS)
    ]


def written(folder: Path, content: Sequence[bytes] | None = None, name: str = "a.tfrecord") -> Path:
    path = folder / name
    whole = b"".join(map(record, examples() if content is None else content))
    path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    return path


def read(path: Path, *features: str, **more: Any) -> DataCalls:
    return read_calls(Data(path, features, **more))


def padded(values: Sequence[np.ndarray], pad: float = 0) -> np.ndarray:
    longest = max(len(value) for value in values)
    rows = [np.pad(value, [(0, longest - len(value)), (0, 0)], constant_values=pad) for value in values]
    return np.stack(rows)


def refused(path: Path, *features: str, **more: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, *features, **more)
    (line,) = str(caught.value).splitlines()
    return line.replace(f"{path.parent}/", "")
