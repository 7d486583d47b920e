"""Checkpoints to convert, of any size: stacked LSTMs with or without the graph that they stood in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: The keys that TensorFlow 1's layers give their weights for CPU cells.
_KEY: Final = "cudnn_lstm/rnn/multi_rnn_cell/cell_{layer}/cudnn_compatible_lstm_cell/{part}"


@dataclass(frozen=True, slots=True)
class Sized:
    """The sizes of a network of LSTM layers."""

    layers: int
    units: int
    inputs: int


#: About 10 MB.
SMALL: Final = Sized(1, 512, 768)
#: About 4.3 GB, 537 MB a layer: too much for any proto.
LARGE: Final = Sized(8, 4096, 4096)
TINY: Final = Sized(2, 4, 5)


def measured(*, threads: int, folder: str, kind: str, sized: Sequence[int]) -> str:
    """Makes one below `folder` and gives its prefix; a process of its own, for its memory is large."""
    return str({"weights": _weights, "graph": _graph}[kind](Path(folder, kind), Sized(*sized)))


def _weights(folder: Path, sized: Sized) -> Path:
    """Canonical keys without a graph, a shard for each layer, so that one layer is in memory at a time."""
    import numpy as np
    import tensorflow as tf

    folder.mkdir(parents=True)
    prefix, chance, shards = folder / "model.ckpt", np.random.default_rng(1), []
    for layer in range(sized.layers):
        inputs = sized.inputs if layer == 0 else sized.units
        wide = 4 * sized.units
        shapes: dict[str, Any] = {"kernel": (inputs + sized.units, wide), "bias": wide}
        arrays = {key: chance.random(shape, np.float32) for key, shape in shapes.items()}
        for key in arrays:
            arrays[key] -= np.float32(0.5)
            arrays[key] *= np.float32(2 / sized.units**0.5)
        shards.append(f"{prefix}_temp/part-{layer}")
        names = [_KEY.format(layer=layer, part=part) for part in arrays]
        tf.raw_ops.SaveV2(
            prefix=shards[-1], tensor_names=names, shape_and_slices=[""] * 2, tensors=[*arrays.values()]
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=shards, destination_prefix=str(prefix))
    return prefix


def _graph(folder: Path, sized: Sized) -> Path:
    """A checkpoint with its MetaGraph."""
    from problem import posed
    from shapes import Shape

    folder.mkdir(parents=True)
    shape = Shape("sized", 1, 1, sized.inputs, sized.units, layers=sized.layers)
    return posed("lstm", shape, folder, seed=1).checkpoint
