"""Names of the weights that `--format npz` and `--format safetensors` write.

Keys are `<recurrence>/layer_<n>/<forward|backward>/<field>`, fields and shapes as in
`recurrences.named_weights.Weights`. The file's description, JSON under `RECORD`, says what names and shapes
leave open: tanh or relu, which axis comes first, whether the weights were bfloat16. Without it they are open.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import WAYS, CanonicalParameters, Cell, Mode, Sizes, Tensor
from cudnn_convert.read.dialects.shapes import MODES, check_type
from cudnn_convert.weights import lazy
from cudnn_convert.weights.lazy import LazyLayers
from cudnn_convert.weights.npz_archive import RECORD

_KEY: Final = re.compile(
    r"(?P<name>.+)/layer_(?P<layer>0|[1-9]\d{0,8})/(?P<direction>forward|backward)/"
    r"(?P<field>kernel|recurrent_kernel|bias|recurrent_bias|projection)",
    re.DOTALL,
)
_AXES: Final = {"kernel": 3, "recurrent_kernel": 3, "bias": 2, "recurrent_bias": 2, "projection": 2}
_ADVICE: Final = "write the file again, or take it as it was written"


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find the recurrences of a file of decoded weights, sorted by name. Raises ReadError."""
    sets: dict[str, dict[tuple[int, str], dict[str, Tensor]]] = defaultdict(lambda: defaultdict(dict))
    for key, tensor in tensors.items():
        if (match := _KEY.fullmatch(key)) and len(tensor.shape) == _AXES[match["field"]]:
            sets[match["name"]][int(match["layer"]), match["direction"]][match["field"]] = tensor
    described = _read_description(path, tensors) if sets else {}
    return tuple(
        _parameters(_Set(path, name, cells, described.get(name))) for name, cells in sorted(sets.items())
    )


def _read_description(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Mapping[str, Any]]:
    """Return the description of each recurrence by name; empty for a file without any."""
    stored = tensors.get(RECORD)
    if stored is None or stored.dtype != np.uint8 or len(stored.shape) != 1:
        return {}
    try:
        record = json.loads(stored.read().tobytes().decode())
        return {entry["name"]: entry for entry in record["weights"]}
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        expected = "the description that this tool writes"
        raise ReadError(path, RECORD, expected=expected, found="another text", advice=_ADVICE) from cause


@dataclass(frozen=True, slots=True)
class _Set:
    """The tensors of a recurrence by layer and direction, and its description."""

    path: Path
    name: str
    cells: Mapping[tuple[int, str], Mapping[str, Tensor]]
    described: Mapping[str, Any] | None

    def refuse(self, where: str, expected: str, actual: object) -> ReadError:
        named = f"{self.name}/{where}"
        return ReadError(self.path, named, expected=expected, found=f"{actual}", advice=_ADVICE)


def _parameters(own: _Set) -> CanonicalParameters:
    layers = 1 + max(layer for layer, _ in own.cells)
    directions = len({direction for _, direction in own.cells})
    keys = [
        (layer, direction) for layer in range(min(layers, len(own.cells))) for direction in WAYS[:directions]
    ]
    if missing := [key for key in keys if key not in own.cells]:
        raise own.refuse("layer_{}/{}".format(*missing[0]), "weights", "none")
    first = own.cells[keys[0]]
    if "bias" not in first or "recurrent_kernel" not in first:
        raise own.refuse("layer_0/forward", "recurrent_kernel and bias", ", ".join(first))
    (gates, units), width = first["bias"].shape, first["recurrent_kernel"].shape[2]
    skips = "kernel" not in first
    inputs = units if skips else first["kernel"].shape[2]
    if gates not in MODES or not (units and width and inputs):
        raise own.refuse("layer_0/forward/bias", "4, 3 or 1 gates", f"shape {first['bias'].shape}")
    projection = width if "projection" in first else 0
    sizes = Sizes(MODES[gates][0], layers, directions, units, inputs, skips, projection)
    stored = {
        f"layer_{layer}/{direction}/{field}": tensor
        for layer, direction in keys
        for field, tensor in _fields(own, layer, direction, sizes, width)
    }
    described, modes, dtype = own.described, MODES[gates], first["bias"].dtype
    if described is not None:
        _compare(own, described, sizes)
        modes = (Mode(described["mode"]),)
        dtype = np.dtype(ml_dtypes.bfloat16) if described.get("dtype") == "bfloat16" else dtype

    def decode(mode: Mode) -> LazyLayers:
        def layer(number: int) -> tuple[Cell, ...]:
            return tuple(
                _cell(own, stored, f"layer_{number}/{direction}/", replace(sizes, mode=mode), dtype)
                for direction in WAYS[:directions]
            )

        return LazyLayers(layers, layer)

    return CanonicalParameters(
        scope=f"{own.name}/",
        modes=modes,
        decode=decode,
        tensors=stored,
        dialect="named",
        dtype=dtype,
        batch_major=described is not None and described.get("layout") == "batch",
        title=own.name,
        layers=layers,
        directions=directions,
        units=units,
        input_size=inputs,
        skip_input=skips,
        projection=projection,
    )


def _compare(own: _Set, described: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise ReadError where the description and the arrays differ in sizes."""
    for key in ("layers", "directions", "units", "input_size", "projection", "skip_input"):
        if described.get(key) != getattr(sizes, key):
            raise own.refuse(key, f"{getattr(sizes, key)}, as the arrays have it", described.get(key))
    modes = [mode.value for mode in MODES[len(sizes.mode.gates)]]
    if described.get("mode") not in modes:
        raise own.refuse("mode", " or ".join(modes), described.get("mode"))
    gates = [gate.value for gate in sizes.mode.gates]
    dtype = next(iter(own.cells.values()))["bias"].dtype.name
    types = [dtype, "bfloat16"] if dtype == "float32" else [dtype]
    for key, allowed in (("gates", [gates]), ("layout", ["time", "batch"]), ("dtype", types)):
        if described.get(key) not in allowed:
            raise own.refuse(key, " or ".join(map(str, allowed)), described.get(key))


def _fields(own: _Set, layer: int, direction: str, sizes: Sizes, width: int) -> list[tuple[str, Tensor]]:
    """Return a cell's tensors by field. Raises ReadError for a missing or unfit tensor."""
    gates, units = len(sizes.mode.gates), sizes.units
    shapes: dict[str, tuple[int, ...]] = {
        "kernel": (gates, units, sizes.inputs(layer)),
        "recurrent_kernel": (gates, units, width),
        "bias": (gates, units),
        "recurrent_bias": (gates, units),
    }
    if sizes.projection or width != units:
        shapes["projection"] = (width, units)
    if sizes.skip_input and layer == 0:
        del shapes["kernel"]
    cell, dtype = own.cells[layer, direction], own.cells[0, WAYS[0]]["bias"].dtype
    for field in {**shapes, **cell}:
        where = f"layer_{layer}/{direction}/{field}"
        shape = cell[field].shape if field in cell else None
        if shape != shapes.get(field):
            expected = f"shape {shapes[field]}" if field in shapes else "no such array"
            raise own.refuse(where, expected, "none" if shape is None else f"shape {shape}")
        if refusal := check_type(own.path, f"{own.name}/{where}", cell[field], dtype):
            raise refusal
    return [(field, cell[field]) for field in shapes]


def _cell(own: _Set, stored: Mapping[str, Tensor], prefix: str, sizes: Sizes, dtype: np.dtype[Any]) -> Cell:
    tensors = {key.removeprefix(prefix): tensor for key, tensor in stored.items() if key.startswith(prefix)}
    parts = {**lazy.read(tensors)}
    for field, value in parts.items():
        # The file has float32 in the place of bfloat16, which NumPy lacks.
        if value.dtype != dtype and not np.array_equal(
            value.astype(dtype).astype(value.dtype), value, equal_nan=True
        ):
            raise own.refuse(prefix + field, f"values of {dtype}, as its description says", "others")
    if "kernel" not in parts:
        identity = np.eye(sizes.units, dtype=parts["bias"].dtype)
        parts["kernel"] = np.broadcast_to(identity, (len(sizes.mode.gates), sizes.units, sizes.units))
    return Cell(sizes.mode, **parts)
