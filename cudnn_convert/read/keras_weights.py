"""The recurrences of a Keras weights file that has no layers' config: shapes tell, names name.

Source: as `keras_names`, whose rule of recognition holds here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cudnn_convert.model import CanonicalParameters, Model, Tensor
from cudnn_convert.read import keras_names, plain_layers
from cudnn_convert.read.keras_names import Layer

_NAMES: Final = ("kernel", "recurrent_kernel", "bias")
_WAY: Final = re.compile(r"(?:^|/)(forward|backward)(?=[_/])")

Listed = Sequence[tuple[str, Tensor]]


def model(path: Path, kind: str, lists: Mapping[str, Listed]) -> Model:
    """A model without a graph: a recurrence for each CuDNN layer, named after the layer that `lists` keys.

    Three weights in a row with the shapes of a CuDNN layer are one: a bias of 8 or 6 times the units has no
    other reading in Keras.
    """
    variables = {
        f"{layer}/{_bare(name)}": tensor for layer, listed in lists.items() for name, tensor in listed
    }
    canonical = tuple(_canonical(lists))
    return Model(path, kind, None, variables, canonical, plain=plain_layers.described(variables, canonical))


def _bare(name: str) -> str:
    return re.sub(r":\d+$", "", name)


def _canonical(lists: Mapping[str, Listed]) -> Iterator[CanonicalParameters]:
    for layer, listed in lists.items():
        found = list(triples(listed))
        if _is_pair([name for name, _ in found]):
            yield keras_names.parameters(f"{layer}/", [way for _, way in found])
        elif len(found) == 1:
            yield keras_names.parameters(f"{layer}/", [found[0][1]])
        else:
            for name, alone in found:
                yield keras_names.parameters(f"{layer}/{_bare(name).removesuffix('kernel')}", [alone])


def _is_pair(names: Sequence[str]) -> bool:
    ways = [_WAY.search(name) for name in names]
    return [way and way[1] for way in ways] == ["forward", "backward"]


def triples(listed: Listed) -> Iterator[tuple[str, Layer]]:
    """The CuDNN layers of a list of weights, each with the name of its kernel."""
    for three in zip(listed, listed[1:], listed[2:], strict=False):
        layer = keras_names.recognised(dict(zip(_NAMES, (tensor for _, tensor in three), strict=True)))
        if layer is not None:
            yield three[0][0], layer
