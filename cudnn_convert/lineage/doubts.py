"""What makes the place of one weight unlike those of the others: a recurrence is written in one way."""

from __future__ import annotations

from typing import Final

from cudnn_convert.lineage.places import Key, Places
from cudnn_convert.model import Gate, Recurrence

#: Whose order of gates stands for the whole recurrence: the field that every cell has in every source.
FIRST: Final = (0, 0, "recurrent_kernel")


def gate_order(recurrence: Recurrence, found: Places, group: tuple[int, int, str]) -> tuple[Gate, ...]:
    """The gates of one field of one pseudo-layer as the tensors hold them; none where one is not found."""
    layer, way, field = group
    gates = recurrence.sizes.mode.gates
    told = {gate: place for gate in gates if (place := found.get((layer, way, gate.value, field)))}
    if len(told) < len(gates):
        return ()
    tensors = [place.place.tensor for place in told.values()]
    return tuple(sorted(told, key=lambda gate: (-tensors.count(told[gate].place.tensor), told[gate].first)))


def doubt(recurrence: Recurrence, found: Places, key: Key) -> str:
    """What is odd about the place of a weight; nothing where it is like the others or has none."""
    layer, way, gate, field = key
    if field == "projection":
        return ""
    usual, order = (gate_order(recurrence, found, group) for group in (FIRST, (layer, way, field)))
    if usual and order and usual != order:
        return f"gates in the order {', '.join(one.value for one in order)}"
    kernel, own = (found.get((layer, way, gate, one)) for one in ("kernel", field))
    axes = [one.place.axes for one in (kernel, own) if one is not None]
    if field == "recurrent_kernel" and sorted(axes) == ["as it is", "transposed"]:
        return f"{axes[1]}, where the kernel lies {axes[0]}"
    return ""
