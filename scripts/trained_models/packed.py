"""The cells that were trained, as the one 1-D variable that a Cudnn layer has instead."""

import numpy as np
from tf1_fixtures import blob


def scope(recurrence):
    """Where a Cudnn layer keeps its variable, and an article's CPU network its cells."""
    return f"cudnn_{recurrence.mode}"


def packed(recurrence, trained, slot=""):
    """The 1-D variable; with slot="/Adam" what the optimizer keeps for it. `trained` has all by name.

    cuDNN has two biases where a cell has their sum. Both begin with zeros and have one gradient, so that each
    is half of the sum; and what an optimizer keeps, made of gradients, is the same for both.
    """
    pseudo = []
    for layer in range(recurrence.layers):
        for path in cell_paths(recurrence, layer):
            prefix = f"{scope(recurrence)}/{path}/{blob.CELLS[recurrence.mode]}/"
            cell = {
                key[len(prefix) : len(key) - len(slot)]: value
                for key, value in trained.items()
                if key.startswith(prefix) and key.endswith(slot)
            }
            pseudo.append(pseudo_layer(recurrence.mode, recurrence.units, cell, 1.0 if slot else 0.5))
    if not slot:  # the way back, by other code, must give what came
        for suffix, value in blob.canonical(recurrence, pseudo).items():
            np.testing.assert_array_equal(trained[f"{scope(recurrence)}/{suffix}"], value)
    return blob.opaque(recurrence.mode, pseudo)


def cell_paths(recurrence, layer):
    """Of a layer's cells, forward before backward."""
    if recurrence.directions == 1:
        return [f"rnn/multi_rnn_cell/cell_{layer}"]
    return [f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}" for way in ("fw", "bw")]


def pseudo_layer(mode, units, cell, share):
    """One direction of one layer in cuDNN's parts; each bias is `share` of the cell's."""
    gates, scope_of_gates = ("ru", "gates/") if mode == "gru" else ("icfo", "")
    kernels = np.split(cell[f"{scope_of_gates}kernel"], len(gates), axis=1)
    biases = np.split(cell[f"{scope_of_gates}bias"] * np.float32(share), len(gates))
    W = {gate: kernels[place][:-units].T for place, gate in enumerate(gates)}
    R = {gate: kernels[place][-units:].T for place, gate in enumerate(gates)}
    bW = {gate: biases[place] for place, gate in enumerate(gates)}
    bR = dict(bW)
    if mode == "gru":  # the candidate keeps its two biases apart
        for part, matrices, vectors in (("input", W, bW), ("hidden", R, bR)):
            matrices["h"] = cell[f"candidate/{part}_projection/kernel"].T
            vectors["h"] = cell[f"candidate/{part}_projection/bias"]
    return blob.PseudoLayer(W, R, bW, bR)
