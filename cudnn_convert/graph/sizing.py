"""Whether a cuDNN node's input mode and the length of its parameters agree, and on which input size.

`auto_select` skips the input matrices of layer 0 where the input is as wide as the units (tensorflow v1.15.0
core/kernels/cudnn_rnn_ops.cc ToRNNInputMode); it was the default until TensorFlow 1.2. A blob with those
matrices and one without never have the same length.
"""

from __future__ import annotations

from dataclasses import replace

from cudnn_convert import opaque
from cudnn_convert.model import Sizes


def skips(input_mode: str, sizes: Sizes) -> bool:
    """Whether a node of this attribute `input_mode` runs without input matrices in layer 0."""
    if input_mode == "auto_select":
        return sizes.input_size == sizes.units
    return input_mode == "skip_input"


def solve(elements: int, sizes: Sizes, input_mode: str) -> Sizes | None:
    """The sizes that the node runs with, or None where `elements` are not what it then takes.

    `sizes.input_size` is 0 where the graph does not say it; `sizes.skip_input` is not looked at.
    """
    for skip in (False, True):
        inputs = opaque.solve_input_size(elements, replace(sizes, skip_input=skip))
        if inputs is not None and sizes.input_size in (0, inputs):
            found = replace(sizes, input_size=inputs, skip_input=skip)
            return found if skips(input_mode, found) == skip else None
    return None


def lengths(sizes: Sizes) -> str:
    """The lengths that blobs of `sizes` have, by whether layer 0 has input matrices."""
    without, one = (opaque.length(replace(sizes, input_size=size, skip_input=False)) for size in (0, 1))
    linear = f"{without} + {one - without} * input size"
    if sizes.input_size:
        linear = f"{opaque.length(replace(sizes, skip_input=False))}"
    return f"{linear} values for linear_input, {without} for skip_input"
