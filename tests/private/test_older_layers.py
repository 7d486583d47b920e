"""What layers of tf_keras compute as older ones, within a context only."""

from __future__ import annotations

import tf_keras

from cudnn_convert.keras.config import differences
from cudnn_convert.private import older_layers


def test_layers_of_tf_keras_compute_as_older_ones_within_a_context() -> None:
    from tf_keras.src import backend

    rows = {difference.name for difference in differences.DIFFERENCES}
    owners = [backend, tf_keras.layers.Softmax, tf_keras.layers.ReLU, tf_keras.layers.Conv2DTranspose]
    kept = [dict(vars(owner)) for owner in owners]
    with older_layers.compute_as(rows):
        assert all(vars(owner) != before for owner, before in zip(owners, kept, strict=True))
    assert [dict(vars(owner)) for owner in owners] == kept
