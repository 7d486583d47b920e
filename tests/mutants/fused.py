"""As `steps`, of the fused nodes of ONNX: what goes into one, what comes out, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from cudnn_convert.lower.onnx import fused_nodes

#: `(ops, floats, lengths) -> results` of a stack of layers: x, h and c, and the names of y, h and c.
Stack = Callable[[Any, Sequence[str], Sequence[str]], list[str]]


def _nothing_in(place: int, stack: Stack) -> Stack:
    def changed(made: Any, floats: Sequence[str], lengths: Sequence[str]) -> list[str]:
        given = [*floats]
        given[place] = made("Sub", [floats[place], floats[place]])
        return stack(made, given, lengths)

    return changed


def without_h(stack: Stack) -> Stack:
    """The initial hidden state is zero."""
    return _nothing_in(1, stack)


def without_c(stack: Stack) -> Stack:
    """The initial cell state is zero."""
    return _nothing_in(2, stack)


def without_lengths(stack: Stack) -> Stack:
    """Every row is as long as the input."""
    return lambda made, floats, lengths: stack(made, floats, [])


def state_of_last_step(stack: Stack) -> Stack:
    """The final states of a row are those behind its padding."""
    return lambda made, floats, lengths: [stack(made, floats, lengths)[0], *stack(made, floats, [])[1:]]


def _is_padding(made: Any, y: str) -> str:
    """Whether an output is zero, as those behind a row's end are."""
    return str(made("Equal", [y, made.constant(0, np.float32)]))


def padding_not_zeroed(stack: Stack) -> Stack:
    """The states are right, and the outputs go on behind a row's end."""

    def changed(made: Any, floats: Sequence[str], lengths: Sequence[str]) -> list[str]:
        y, *states = stack(made, floats, lengths)
        return [made("Where", [_is_padding(made, y), stack(made, floats, [])[0], y]), *states]

    return changed


def whole_row_reversed(stack: Stack) -> Stack:
    """The last layer goes backward from the end of the input, and is right in all but that."""

    def changed(made: Any, floats: Sequence[str], lengths: Sequence[str]) -> list[str]:
        y, *states = stack(made, floats, lengths)
        whole = made("Where", [_is_padding(made, y), y, stack(made, floats, [])[0]])
        width = made.graph.get_shape(states[0])[-1]
        return [
            made("Concat", [made.part(y, 0, width, 2), made.part(whole, width, 2 * width, 2)], axis=2),
            *states,
        ]

    return changed


CHANGES: dict[str, Callable[[Stack], Stack]] = {
    change.__name__: change
    for change in (
        *(without_h, without_c, without_lengths, whole_row_reversed),
        *(state_of_last_step, padding_not_zeroed),
    )
}


def computes(monkeypatch: pytest.MonkeyPatch, change: Callable[[Stack], Stack]) -> None:
    """From now on cuDNN nodes become what `change` makes of a stack of fused nodes."""
    right = fused_nodes.stack

    def changed(
        made: Any, found: Any, x: str, states: Sequence[str], lengths: str = "", **owner: int
    ) -> list[str]:
        def stack(made: Any, floats: Sequence[str], lengths: Sequence[str]) -> list[str]:
            return right(made, found, floats[0], floats[1:], "".join(lengths), **owner)

        return change(stack)(made, [x, *states], [lengths] if lengths else [])

    monkeypatch.setattr(fused_nodes, "stack", changed)


def resets_before_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """`linear_before_reset` is forgotten."""
    right = fused_nodes._attributes

    def changed(found: Any) -> dict[str, Any]:
        return {name: value for name, value in right(found).items() if name != "linear_before_reset"}

    monkeypatch.setattr(fused_nodes, "_attributes", changed)
