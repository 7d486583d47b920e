"""Checkpoints of recurrent layers whose shapes and counts are small, zero, negative or huge."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from support import checkpoints  # the makers of entries that the tests of the readers use

#: Sizes of layers, mostly such that all shapes are sound together.
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8)
_ODD = (0, 0, 1, -1, 2, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
#: Numbers of layers in keys.
_LAYERS = ("0", "1", "2", "7", "00", "999999999", "4294967296")
#: Tensors of more values are claimed, and have no bytes.
_MOST = 20_000
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_FLOAT, _HALF, _DOUBLE, _INT = 1, 19, 2, 3

Shapes = dict[str, list[int]]


def files(rng: random.Random) -> dict[str, bytes]:
    """The files of a checkpoint `model.ckpt` of one to three layers, at some places of another shape."""
    shapes: Shapes = {}
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        scope = rng.choice(("", "cudnn_lstm/", "cudnn_gru/", "net/cudnn_rnn_tanh/", f"layer_{number}/"))
        shapes |= {f"{scope}{key}": shape for key, shape in rng.choice(_KINDS)(rng).items()}
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _change(rng, shapes)
    kind = rng.choice((_FLOAT,) * 9 + (_HALF, _DOUBLE, _INT))
    return _written(rng, shapes, kind)


def _change(rng: random.Random, shapes: Shapes) -> None:
    """Another size somewhere, one dimension more or less, or a tensor less."""
    key = rng.choice(sorted(shapes))
    shape, way = shapes[key], rng.randrange(10)
    if way <= 6 and shape:
        near = shape[place := rng.randrange(len(shape))]
        shape[place] = rng.choice((*_ODD, near - 1, near + 1, near // 2, near * 2, near // 4))
    elif way == 7:
        shape.insert(rng.randint(0, len(shape)), rng.choice((0, 1, 2)))
    elif way == 8 and shape:
        shape.pop()
    elif len(shapes) > 1:
        del shapes[key]


def _size(rng: random.Random) -> int:
    return rng.choice(_SIZES) if rng.random() < 0.9 else rng.choice(_ODD)


def _lstm_cell(units: int, inputs: int) -> Shapes:
    return {"kernel": [inputs + units, 4 * units], "bias": [4 * units]}


def _gru_cell(units: int, inputs: int) -> Shapes:
    return {
        "gates/kernel": [inputs + units, 2 * units],
        "gates/bias": [2 * units],
        "candidate/input_projection/kernel": [inputs, units],
        "candidate/input_projection/bias": [units],
        "candidate/hidden_projection/kernel": [units, units],
        "candidate/hidden_projection/bias": [units],
    }


def _rnn_cell(units: int, inputs: int) -> Shapes:
    return {"kernel": [inputs + units, units], "bias": [units]}


_CELLS = {
    "cudnn_compatible_lstm_cell": _lstm_cell,
    "cudnn_compatible_gru_cell": _gru_cell,
    "basic_rnn_cell": _rnn_cell,
}


def _contrib(rng: random.Random) -> Shapes:
    """The canonical keys of a layer of tf.contrib.cudnn_rnn, of one direction or two."""
    units, inputs, cell = _size(rng), _size(rng), rng.choice(sorted(_CELLS))
    stems = ["rnn/multi_rnn_cell/cell_{}/"]
    if rng.random() < 0.4:
        stems = [f"stack_bidirectional_rnn/cell_{{}}/bidirectional_rnn/{way}/" for way in ("fw", "bw")]
    layers = list(map(str, range(rng.randint(1, 3))))
    if rng.random() < 0.1:
        layers[rng.randrange(len(layers))] = rng.choice(_LAYERS)
    found: Shapes = {}
    for place, layer in enumerate(layers):
        shapes = _CELLS[cell](units, len(stems) * units if place else inputs)
        found |= {
            f"{stem.format(layer)}{cell}/{k}": [*shape] for stem in stems for k, shape in shapes.items()
        }
    if rng.random() < 0.4:
        found["opaque_kernel"] = [_blob(units, inputs, len(stems), len(layers))]
    return found


def _blob(units: int, inputs: int, directions: int, layers: int) -> int:
    """The length of an LSTM's blob."""
    widths = [inputs] + [directions * units] * (layers - 1)
    return sum(directions * 4 * units * (width + units + 2) for width in widths)


def _objects(rng: random.Random) -> Shapes:
    """The keys of an object-based checkpoint of a CudnnLSTM."""
    units, inputs = _size(rng), _size(rng)
    stems = rng.choice(([""], ["cell-0/"], ["cell-0/", "cell-1/"], [f"cell-{rng.choice(_LAYERS)}/"]))
    found: Shapes = {}
    for place, stem in enumerate(stems):
        shapes = _lstm_cell(units, units if place else inputs)
        found |= {f"{stem}{key}{_VALUE}": shape for key, shape in shapes.items()}
    return found


def _keras(rng: random.Random) -> Shapes:
    """The keys of a Keras layer, by variables or by objects, in one direction or two."""
    units, inputs, gates = _size(rng), _size(rng), rng.choice((3, 4))
    biases = rng.choice((2 * gates, gates))
    shapes = {"kernel": [inputs, gates * units], "recurrent_kernel": [units, gates * units]}
    shapes["bias"] = [biases * units] if rng.random() < 0.8 else [2, gates * units]
    stems = rng.choice(([""], ["forward_layer/", "backward_layer/"], ["forward_lstm/", "backward_lstm/"]))
    end = rng.choice(("", _VALUE))
    return {f"{stem}{key}{end}": [*shape] for stem in stems for key, shape in shapes.items()}


def _regions(rng: random.Random) -> Shapes:
    """The regions of a blob that TensorFlow 1.0 to 1.3 saved: weights, then biases."""
    units, inputs = _size(rng), _size(rng)
    gates, layers = rng.choice((1, 3, 4)), rng.randint(1, 2)
    found: list[list[int]] = []
    for layer in range(layers):
        width = units if layer else inputs
        found += [[width, units]] * gates + [[units, units]] * gates
    sizes = [*found, *([[units]] * len(found))]
    return {f"CudnnRNNParamsToCanonical:{k}": [*shape] for k, shape in enumerate(sizes)}


def _blob_alone(rng: random.Random) -> Shapes:
    units, inputs = _size(rng), _size(rng)
    length = _blob(units, inputs, rng.choice((1, 2)), rng.randint(1, 3))
    return {"opaque_kernel": [length if rng.random() < 0.8 else rng.choice(_ODD)]}


def _plain(rng: random.Random) -> Shapes:
    """Cells that run on a CPU, and layers around recurrences."""
    units, inputs = _size(rng), _size(rng)
    scope = rng.choice(("rnn/basic_lstm_cell", "lstm_fused_cell", "rnn/gru_cell/gates", "dense", "lstm_cell"))
    cell = rng.choice((_lstm_cell, _gru_cell, _rnn_cell))(units, inputs)
    return {f"{scope}/{key}": shape for key, shape in cell.items()} | {"embedding": [_size(rng), inputs]}


_KINDS = (_contrib, _contrib, _contrib, _keras, _keras, _objects, _regions, _blob_alone, _plain)


def _written(rng: random.Random, shapes: Mapping[str, Sequence[int]], kind: int) -> dict[str, bytes]:
    """The index and the data of these tensors; those that are too large, or of no size, are claimed alone."""
    entries, data = {b"": checkpoints.header()}, b""
    for key, sizes in sorted(shapes.items()):
        shape = [max(-(2**63), min(size, 2**63 - 1)) for size in sizes]  # as the message has them
        held = b"".join(_values(rng, shape, kind))
        entries[key.encode()] = checkpoints.claimed(
            *shape, dtype=kind, offset=len(data), size=len(held), crc32c=checkpoints.masked(held)
        )
        data += held
    table = checkpoints.table([(max(entries), checkpoints.block(dict(sorted(entries.items()))))])
    return {"model.ckpt.index": table, "model.ckpt.data-00000-of-00001": data}


def _values(rng: random.Random, shape: Sequence[int], kind: int) -> Iterator[bytes]:
    """The bytes of a tensor of weights, none where it is too large or has a negative size."""
    if min(shape, default=0) < 0:
        return
    count = 1
    for size in shape:
        count *= size
    if count <= _MOST:
        values = np.random.default_rng(rng.randrange(2**32)).normal(0, 0.5, count)
        types = {_FLOAT: np.float32, _HALF: np.float16, _DOUBLE: np.float64, _INT: np.int32}
        yield values.astype(types[kind]).tobytes()
