"""What a user of TensorFlow 1 has without us: the network built again with cells, run in a Session.

`tf.contrib` is gone, so that its two compatible cells stand here: an LSTM's is one op, a GRU's its equations.
Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py CudnnCompatibleLSTMCell,
CudnnCompatibleGRUCell; contrib/rnn/python/ops/lstm_ops.py LSTMBlockCell.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from contender import Built
from ours import config, in_session, restore
from problem import INPUT, OUTPUT, Problem, tensorflow_1

from cudnn_convert.model import Mode
from cudnn_convert.weights import layouts

v1 = tf.compat.v1


class LSTMCell:
    """`LSTMBlockCell` without forget bias, clipping or peepholes; the state is `(c, h)`."""

    def __init__(self, weights: dict[str, Any], units: int) -> None:
        self.kernel, self.bias = weights["kernel"], weights["bias"]
        self.output_size, self.state_size = units, (units, units)

    def zero_state(self, batch: Any, dtype: Any) -> tuple[Any, Any]:
        return tf.zeros([batch, self.output_size], dtype), tf.zeros([batch, self.output_size], dtype)

    def __call__(self, x: Any, state: tuple[Any, Any], scope: Any = None) -> tuple[Any, tuple[Any, Any]]:
        none = tf.zeros([self.output_size])
        found = tf.raw_ops.LSTMBlockCell(
            x=x,
            cs_prev=state[0],
            h_prev=state[1],
            w=self.kernel,
            wci=none,
            wcf=none,
            wco=none,
            b=self.bias,
            forget_bias=0.0,
            cell_clip=-1.0,
        )
        return found.h, (found.cs, found.h)


class GRUCell:
    """The cell whose reset gate comes after the product, as cuDNN has it; gates r, u."""

    def __init__(self, weights: dict[str, Any], units: int) -> None:
        self.weights, self.output_size, self.state_size = weights, units, units

    def zero_state(self, batch: Any, dtype: Any) -> Any:
        return tf.zeros([batch, self.output_size], dtype)

    def __call__(self, x: Any, h: Any, scope: Any = None) -> tuple[Any, Any]:
        gates = tf.sigmoid(self._affine(tf.concat([x, h], 1), "gates"))
        r, u = tf.split(gates, 2, 1)
        projected = self._affine(x, "candidate/input_projection")
        candidate = tf.tanh(projected + r * self._affine(h, "candidate/hidden_projection"))
        new = (1 - u) * candidate + u * h
        return new, new

    def _affine(self, x: Any, name: str) -> Any:
        return tf.nn.bias_add(x @ self.weights[f"{name}/kernel"], self.weights[f"{name}/bias"])


def network(problem: Problem, *, unrolled: bool = False, **loop: Any) -> dict[Any, Any]:
    """Adds it to the current graph, from `x:0` to `y:0`; gives its variables with their values.

    `unrolled`: nodes for each of the problem's steps, in one direction. `loop`: arguments of `dynamic_rnn`.
    """
    values: dict[Any, Any] = {}
    steps = problem.shape.steps if unrolled else None
    y = v1.placeholder(tf.float32, [steps, None, problem.shape.inputs], INPUT)
    kind = LSTMCell if problem.mode is Mode.LSTM else GRUCell
    for number, layer in enumerate(problem.recurrence.cells):
        cells = []
        for way, cell in enumerate(layer):
            packed = layouts.pack_cell(cell, layouts.CONTRIB)
            made = {
                key: _variable(f"cell_{number}_{way}/{key}", value.shape) for key, value in packed.items()
            }
            values |= {made[key]: value for key, value in packed.items()}
            cells.append(kind({key: one.value() for key, one in made.items()}, problem.shape.units))
        told = {"dtype": tf.float32, "time_major": True, "scope": f"layer_{number}", **loop}
        if unrolled:
            outputs, _ = v1.nn.static_rnn(cells[0], tf.unstack(y), dtype=tf.float32, scope=f"layer_{number}")
            y = tf.stack(outputs)
        elif len(cells) == 1:
            y, _ = v1.nn.dynamic_rnn(cells[0], y, **told)
        else:
            y = tf.concat(v1.nn.bidirectional_dynamic_rnn(*cells, y, **told)[0], 2)
    tf.identity(y, OUTPUT)
    return values


def session(problem: Problem, threads: int, **form: Any) -> Any:
    """A Session of the network with its weights; `form` as in `network`."""
    with tensorflow_1() as graph:
        values = network(problem, **form)
        made = v1.Session(graph=graph, config=config(threads))
        restore(made, [*values.items()], problem.folder)
    return made


def build(problem: Problem, threads: int, **form: Any) -> Built:
    return in_session(problem, session(problem, threads, **form), f"{INPUT}:0", f"{OUTPUT}:0")


def _variable(name: str, shape: Any) -> Any:
    return v1.get_variable(name, shape, use_resource=False)
