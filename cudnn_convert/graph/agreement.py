"""Canonical keys and raw blob of one checkpoint must hold the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cudnn_convert import layers, layouts, matrices
from cudnn_convert.layers import Cells
from cudnn_convert.model import WAYS, Array, Convention

#: Two copies of one model written by one `save` differ by the rounding of one bias sum, no more.
_AGREE: Final = 1e-6


def difference(canonical: Cells, raw: Cells, convention: Convention) -> str | None:
    """Where the copies differ and what may be done, or None; biases are compared as far as summed."""
    found = next(_differences(_read(canonical, convention, canonical=True), _read(raw, convention)), None)
    if found is None:
        return None
    where, worst = found
    cure = "choose with --weights canonical or --weights raw"
    for other, flag in (
        (replace(convention, forget_bias=convention.forget_bias + 1), "--forget-bias 1"),
        (replace(convention, gate_order="lingvo"), "--gate-order lingvo"),
    ):
        if next(_differences(_read(canonical, other, canonical=True), _read(raw, other)), None) is None:
            cure = f"they agree with {flag}"
    return (
        f"{where}: expected canonical keys and raw blob to agree, found a difference of {worst:.3g}; {cure}"
    )


def _read(cells: Cells, convention: Convention, *, canonical: bool = False) -> Cells:
    return layers.changed(cells, partial(layouts.conventional, convention=convention, canonical=canonical))


def _differences(canonical: Cells, raw: Cells) -> Iterator[tuple[str, float]]:
    for layer, pairs in enumerate(zip(canonical, raw, strict=True)):
        for way, cell, other in zip(WAYS, *pairs, strict=False):
            for part, ours, theirs in (
                ("kernel", cell.kernel, other.kernel),
                ("recurrent_kernel", cell.recurrent_kernel, other.recurrent_kernel),
                ("bias", cell.bias + cell.recurrent_bias, other.bias + other.recurrent_bias),
            ):
                worst, most = _largest(ours, theirs)
                if not worst <= _AGREE * max(1.0, most):
                    yield f"layers[{layer}].{way}.{part}", worst


def _largest(ours: Array, theirs: Array) -> tuple[float, float]:
    """`(the largest difference, the largest of ours)`, gate by gate: both may lie in another order."""
    pairs = [(matrices.contiguous(one), other) for one, other in zip(ours, theirs, strict=True)]
    gaps = [np.max(np.abs(one - other), initial=0.0) for one, other in pairs]
    return float(np.max(gaps)), float(np.max([np.max(np.abs(one), initial=0.0) for one, _ in pairs]))
