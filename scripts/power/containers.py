"""Containers of a graph: one body becomes a frozen graph, a TensorFlow 1 or a TensorFlow 2 SavedModel.

A body takes a `Net`, draws its weights from it and hands it the outputs. In a frozen graph weights are
constants, in a SavedModel variables; a TensorFlow 1 graph has Switch and Merge, a TensorFlow 2 one functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from support.graphs import drawing

from cudnn_convert.model import Mode, Sizes
from cudnn_convert.weights import parameter_blob

v1 = tf.compat.v1
#: Width of the usual input `x [time, batch, WIDTH]`, and of each recurrence's direction.
WIDTH: Final = 4
UNITS: Final = 5


class Net:
    """One graph under construction: weights by name, recurrences, outputs."""

    def __init__(self, seed: int, make_weight: Callable[[str, np.ndarray], Any], inputs: Mapping[str, Any]):
        self._rng = np.random.default_rng(seed)
        self._make_weight, self._count = make_weight, 0
        self.inputs = inputs
        self.outputs: dict[str, Any] = {}

    def weight(self, *shape: int, low: float = -0.5, high: float = 0.5, name: str = "weight") -> Any:
        """Random distinct weights."""
        self._count += 1
        value = self._rng.uniform(low, high, shape).astype(np.float32)
        return self._make_weight(f"{name}_{self._count}", value)

    def dense(self, y: Any, width: int) -> Any:
        """A product with a kernel, and a bias, both new."""
        kernel, bias = self.weight(int(y.shape[-1]), width, name="kernel"), self.weight(width, name="bias")
        return tf.tensordot(y, kernel, 1) + bias

    def recurrence(
        self, x: Any, mode: Mode = Mode.GRU, *, directions: int = 1, h: Any = None, lengths: Any = None
    ) -> Any:
        """A cuDNN node's outputs `[time, batch, directions * UNITS]`."""
        self._count += 1
        sizes = Sizes(mode, 1, directions, UNITS, int(x.shape[-1]))
        blob = self._rng.uniform(-0.5, 0.5, parameter_blob.length(sizes)).astype(np.float32)
        zeros = tf.zeros([directions, tf.shape(x)[1], UNITS])
        call = tf.raw_ops.CudnnRNN if lengths is None else tf.raw_ops.CudnnRNNV3
        output = call(
            input=x,
            input_h=zeros if h is None else h,
            input_c=zeros if mode is Mode.LSTM else tf.constant(0.0),
            params=self._make_weight(f"rnn_{self._count}_blob", blob),
            rnn_mode=mode.value,
            direction="bidirectional" if directions == 2 else "unidirectional",
            is_training=False,
            name=f"rnn_{self._count}",
            **({} if lengths is None else {"sequence_lengths": lengths}),
        ).output
        return tf.ensure_shape(output, [None, None, directions * UNITS])


#: What a body makes of its net; the inputs it takes, by key.
Body = Callable[[Net], Mapping[str, Any]]
Specs = Mapping[str, tuple[Any, Sequence[int | None]]]


def write_frozen(body: Body, specs: Specs, folder: Path, *, seed: int) -> Path:
    """A GraphDef with its weights as constants."""
    with drawing() as graph:
        net = Net(seed, lambda name, value: tf.constant(value, name=name), _placeholders(specs))
        _name_outputs(body(net))
    path = folder / "source.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def write_saved_1(body: Body, specs: Specs, folder: Path, *, seed: int) -> Path:
    """A SavedModel as TensorFlow 1 writes it: reference variables, one signature."""
    path = folder / "source"
    pruned = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))  # cuDNN has no CPU kernel
    with drawing(), v1.Session(config=pruned) as session:

        def variable(name: str, value: np.ndarray) -> Any:
            return v1.Variable(value, name=name, use_resource=False)

        inputs = _placeholders(specs)
        outputs = _name_outputs(body(Net(seed, variable, inputs)))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(session, str(path), inputs, outputs, v1.tables_initializer())
    return path


def write_saved_2(bodies: Mapping[str, Body], specs: Specs, folder: Path, *, seed: int) -> Path:
    """A SavedModel of TensorFlow 2 with a signature for each body; they share no weights."""
    module = tf.Module()
    signatures = {}
    for number, (key, body) in enumerate(bodies.items()):
        held: dict[str, Any] = {}

        def variable(name: str, value: np.ndarray, held: dict[str, Any] = held) -> Any:
            if name not in held:
                with tf.init_scope():
                    held[name] = tf.Variable(value, name=name)
            return held[name].read_value()

        def call(body: Body = body, number: int = number, variable: Any = variable, **inputs: Any) -> Any:
            return {
                key: tf.identity(value) for key, value in body(Net(seed + number, variable, inputs)).items()
            }

        listed = {name: tf.TensorSpec(shape, dtype, name) for name, (dtype, shape) in specs.items()}
        signatures[key] = tf.function(call, autograph=False).get_concrete_function(**listed)
        setattr(module, f"held_{number}", held)
    path = folder / "source"
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def _placeholders(specs: Specs) -> dict[str, Any]:
    return {name: v1.placeholder(dtype, shape, name) for name, (dtype, shape) in specs.items()}


def _name_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tf.identity(value, name) for name, value in outputs.items()}
