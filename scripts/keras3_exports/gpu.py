"""Answers Keras's question "is there a GPU?" while it traces. Nothing of cuDNN runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock


@contextlib.contextmanager
def pretended() -> Iterator[None]:
    """Inside, Keras 3 chooses cuDNN ops wherever it would on a machine with a GPU.

    Keras 3.3 to 3.15 ask in one place, `keras/src/backend/tensorflow/rnn.py: _is_gpu_available`.
    """
    import keras

    del keras  # imported for the module below; `import ... rnn` would find the function of that name
    module = sys.modules["keras.src.backend.tensorflow.rnn"]
    with mock.patch.object(module, "_is_gpu_available", lambda: True):
        yield
