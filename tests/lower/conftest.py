"""What the tests of both lowerings share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture
def v1_control_flow() -> Iterator[None]:
    """Graphs built meanwhile hold Switch, Merge and Enter, as TensorFlow 1 wrote them."""
    before = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    yield
    if before:
        tf.compat.v1.enable_control_flow_v2()
