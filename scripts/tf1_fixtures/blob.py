"""One recurrent layer's random weights, as cuDNN packs them and as TensorFlow's CPU cells name them.

A pseudo-layer is one direction of one layer. cuDNN's blob: the matrices of every pseudo-layer (layer-major,
forward before backward), first its input matrices W, then its recurrent matrices R, a [units, width] block
for each gate; after all matrices the biases, bW then bR of each pseudo-layer. LSTM gates: i, f, c, o; GRU
gates: r, u and the candidate h. CPU cells keep [width, units] kernels, LSTM in the order i, c, f, o, and one
bias, bW + bR, except in the GRU candidate, whose bR sits inside the reset product.
"""
from collections import namedtuple

import numpy as np

GATES = {"lstm": "ifco", "gru": "ruh", "rnn_tanh": "h", "rnn_relu": "h"}
CELLS = {
    "lstm": "cudnn_compatible_lstm_cell",
    "gru": "cudnn_compatible_gru_cell",
    "rnn_tanh": "basic_rnn_cell",
    "rnn_relu": "basic_rnn_cell",
}

Recurrence = namedtuple("Recurrence", "mode layers directions units input_size dtype")
PseudoLayer = namedtuple("PseudoLayer", "W R bW bR")  # each: gate letter -> array


def pseudo_layers(rng, recurrence):
    """Distinct random weights; relu's are smaller because nothing else bounds its state."""
    r = recurrence
    recurrent_scale = 0.3 if r.mode == "rnn_relu" else 0.5

    def uniform(scale, *shape):
        return {gate: rng.uniform(-scale, scale, shape).astype(r.dtype) for gate in GATES[r.mode]}

    made = []
    for layer in range(r.layers):
        width = r.input_size if layer == 0 else r.directions * r.units
        for _ in range(r.directions):
            made.append(
                PseudoLayer(
                    W=uniform(0.5, r.units, width),
                    R=uniform(recurrent_scale, r.units, r.units),
                    bW=uniform(0.5, r.units),
                    bR=uniform(0.5, r.units),
                )
            )
    return made


def opaque(mode, pseudo):
    """The 1-D blob: all matrices, then all biases."""
    matrices = [group[gate].ravel() for p in pseudo for group in (p.W, p.R) for gate in GATES[mode]]
    biases = [group[gate] for p in pseudo for group in (p.bW, p.bR) for gate in GATES[mode]]
    return np.concatenate(matrices + biases)


def canonical(recurrence, pseudo):
    """Key below the layer's scope -> tensor, as tf.contrib.cudnn_rnn's saveables write them."""
    tensors = {}
    for index, p in enumerate(pseudo):
        layer, direction = divmod(index, recurrence.directions)
        if recurrence.directions == 1:
            cell = "rnn/multi_rnn_cell/cell_%d" % layer
        else:
            cell = "stack_bidirectional_rnn/cell_%d/bidirectional_rnn/%s" % (layer, ("fw", "bw")[direction])
        for suffix, tensor in cell_tensors(recurrence.mode, p).items():
            tensors["%s/%s/%s" % (cell, CELLS[recurrence.mode], suffix)] = tensor
    return tensors


def cell_tensors(mode, p):
    def kernel(gates):
        return np.concatenate([np.concatenate([p.W[g], p.R[g]], axis=1).T for g in gates], axis=1)

    def bias(gates):
        return np.concatenate([p.bW[g] + p.bR[g] for g in gates])

    if mode == "gru":
        return {
            "gates/kernel": kernel("ru"),
            "gates/bias": bias("ru"),
            "candidate/input_projection/kernel": p.W["h"].T,
            "candidate/input_projection/bias": p.bW["h"],
            "candidate/hidden_projection/kernel": p.R["h"].T,
            "candidate/hidden_projection/bias": p.bR["h"],
        }
    gates = "icfo" if mode == "lstm" else "h"
    return {"kernel": kernel(gates), "bias": bias(gates)}
