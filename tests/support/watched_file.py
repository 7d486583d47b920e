"""A file that tells whether anybody opened it (Linux: inotify(7))."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

_IN_OPEN = 0x20


class Watched:
    """A file of two numbers, 2 and 3; `opened` tells whether anybody opened it, to read or to write."""

    def __init__(self, path: Path) -> None:
        if sys.platform != "linux":
            pytest.skip("nothing tells who opens a file here")
        path.write_bytes(np.array([2, 3], np.int32).tobytes())
        system = ctypes.CDLL(None, use_errno=True)
        self.path, self._descriptor = path, system.inotify_init1(os.O_NONBLOCK)
        if self._descriptor < 0:
            pytest.skip("this user has as many inotify instances as the system allows")
        assert system.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_OPEN) > 0
        self._opened = False

    @property
    def opened(self) -> bool:
        """Whether anybody did, up to now."""
        with suppress(BlockingIOError):  # nothing happened since
            self._opened = bool(os.read(self._descriptor, 4096)) or self._opened
        return self._opened

    def stop(self) -> None:
        os.close(self._descriptor)
