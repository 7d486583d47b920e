"""Keras models as their files would hold them, and what their graphs answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.graph.session import session
from cudnn_convert.model import SERVING, Architecture, Array, InMemory, Model


def model(build: Callable[[], Any], change: Callable[[dict[str, Any]], None] = lambda _: None) -> Model:
    """What a file of the model would hold, with weights of its own; `change` edits the config."""
    rng = np.random.default_rng(7)
    with tf.Graph().as_default():
        built = build()
        config = json.loads(built.to_json())
        weights = {
            layer.name: tuple(
                (weight.name, InMemory(rng.uniform(0.1, 0.9, weight.shape).astype(np.float32)))
                for weight in [*layer.trainable_weights, *layer.non_trainable_weights]
            )
            for layer in built.layers
            if layer.weights
        }
    change(config)
    return Model(Path("m.h5"), "Keras", None, {}, architecture=Architecture(config, weights))


def answers(found: Model, **feeds: Array) -> list[Array]:
    signature = found.signatures[SERVING]
    with session(found.graph, found.variables) as running:
        fed = {signature.inputs[key]: value for key, value in feeds.items()}
        return list(running.run([*signature.outputs.values()], fed))


def written_by(keras_version: str, source: Model) -> Model:
    assert source.architecture is not None
    return replace(source, architecture=replace(source.architecture, keras_version=keras_version))
