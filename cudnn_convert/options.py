"""The options of a conversion, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from cudnn_convert.context import OF_PROCESS, Limits, within
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS

#: The options that say how a source is read: a later verification needs them too.
READING: Final = (
    *("inputs", "outputs", "set", "signature", "tag", "weights", "forget_bias", "gate_order"),
    *("mode", "layers", "units", "directions", "layout", "states", "lengths"),
    "allow_plain",
)
#: What the user vouches for: read from the call each time, never from what an artifact says of itself.
VOUCHED: Final = ("architecture", "custom_objects", "limit", "trust")
WEIGHTS: Final = ("auto", "canonical", "raw", "ema")
LOWERINGS: Final = ("fast", "portable")
GATE_ORDERS: Final = ("tf", "lingvo", "miopen")
MODES: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")
LAYOUTS: Final = ("time", "batch")
WEIGHTS_DTYPES: Final = ("float32", "float16")
QUANTIZED: Final = ("int8",)
#: One item of these may come without its list: a string is no sequence of flags.
_REPEATED: Final = frozenset({"inputs", "outputs", "set", "rename", "custom_objects", "limit"})
_PATHS: Final = frozenset({"architecture", "data", "golden"})
CELLS: Final = ("compatible", "lstm_block", "basic_lstm")


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of a conversion, by their own names."""

    format: str = "savedmodel"
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    set: Sequence[str] = ()
    signature: str | None = None
    tag: str | None = None
    weights: str = "auto"
    forget_bias: float = 0.0
    gate_order: str = "tf"
    mode: str | None = None
    layers: int | None = None
    units: int | None = None
    directions: int | None = None
    layout: str | None = None
    states: bool = False
    lengths: bool = False
    architecture: Path | None = None
    custom_objects: Sequence[str] = ()
    allow_plain: bool = False
    force_convert: bool = False
    cell: str = "compatible"
    rename: Sequence[str] = ()
    slots: bool = False
    opset: int = 17
    weights_dtype: str = "float32"
    quantize: str | None = None
    max_error: float | None = None
    lowering: str = "fast"
    jit: bool = False
    data: Path | None = None
    golden: Path | None = None
    atol: float | None = None
    rtol: float | None = None
    seed: int | None = None
    verify: bool = True
    lineage: bool = False
    trust: bool = False
    force: bool = False
    limit: Sequence[str] = ()

    @property
    def brought(self) -> frozenset[str]:
        """The names of the classes that the user vouches for."""
        return frozenset(item.partition(":")[2] for item in self.custom_objects)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The keywords of a library call; None is what was not said."""
        said = {name: value for name, value in given.items() if value is not None}
        said |= {name: [said[name]] for name in _REPEATED & said.keys() if isinstance(said[name], str)}
        for item in said.get("limit", ()):
            if item.partition("=")[0] in OF_PROCESS:
                expected = "a limit of reading, for a call has no process of its own"
                raise UsageError(f"--limit: expected {expected}, found {item!r}")
        return cls(**said | {name: Path(said[name]) for name in _PATHS & said.keys()})

    def __post_init__(self) -> None:
        for flag, value, choices in (
            ("--format", self.format, tuple(FORMATS)),
            ("--weights", self.weights, WEIGHTS),
            ("--lowering", self.lowering, LOWERINGS),
            ("--gate-order", self.gate_order, GATE_ORDERS),
            ("--mode", self.mode, (None, *MODES)),
            ("--layout", self.layout, (None, *LAYOUTS)),
            ("--cell", self.cell, CELLS),
            ("--weights-dtype", self.weights_dtype, WEIGHTS_DTYPES),
            ("--quantize", self.quantize, (None, *QUANTIZED)),
        ):
            if value not in choices:
                listed = ", ".join(choice for choice in choices if choice)
                raise UsageError(f"{flag}: expected {listed}, found {value!r}")
        for flag, number, most in (
            ("--layers", self.layers, None),
            ("--units", self.units, None),
            ("--directions", self.directions, 2),
        ):
            if number is not None and not 1 <= number <= (most or number):
                expected = f"1 or {most}" if most else "at least 1"
                raise UsageError(f"{flag}: expected {expected}, found {number}")
        for item in self.custom_objects:
            module, colon, name = item.partition(":")
            if not (module and colon and name):
                raise UsageError(f"--custom-objects: expected MODULE:NAME, found {item!r}")
        if self.golden is not None and self.data is not None:
            raise UsageError(f"--golden: expected no --data, for it has its own feeds, found {self.data}")
        Limits.of(self.limit)
        if not math.isfinite(self.forget_bias):
            raise UsageError(f"--forget-bias: expected a number, found {self.forget_bias}")
        if self.max_error is not None and not 0 < self.max_error < math.inf:
            raise UsageError(f"--max-error: expected a number above 0, found {self.max_error}")
        if self.seed is not None and not is_seed(self.seed):
            raise UsageError(f"--seed: expected a whole number from 0 to 2^63 - 1, found {self.seed}")
        for flag, bound in (("--atol", self.atol), ("--rtol", self.rtol)):
            if bound is not None and not 0 <= bound < math.inf:
                raise UsageError(f"{flag}: expected a number of at least 0, found {bound}")


#: What an artifact's provenance may say of an option of `READING`: JSON of these types.
_KEPT: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("inputs", "outputs", "set"), (list,)),
    **dict.fromkeys(("signature", "tag", "mode", "layout"), (str, type(None))),
    **dict.fromkeys(("layers", "units", "directions"), (int, type(None))),
    **dict.fromkeys(("states", "lengths", "allow_plain"), (bool,)),
    **dict.fromkeys(("weights", "gate_order"), (str,)),
    "forget_bias": (float, int),
}


#: Of a whole number there, and of a seed.
_BITS: Final = 63


def is_seed(value: Any) -> bool:
    """Whether a value is a whole number that random inputs can be drawn with."""
    return type(value) is int and value >= 0 and value.bit_length() <= _BITS


def from_provenance(told: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """The options of `READING` among those that a provenance tells. Raises UsageError where one is not so."""
    for name in READING:
        value = told.get(name, ...)
        texts = value if isinstance(value, list) else ()
        is_huge = isinstance(value, int) and value.bit_length() > _BITS
        if not isinstance(value, _KEPT[name]) or is_huge or not all(isinstance(text, str) for text in texts):
            found = "none" if value is ... else repr(value)
            flag = name.replace("_", "-")
            raise UsageError(f"{where}: --{flag}: expected what this tool writes, found {found}")
    return {name: told[name] for name in READING}


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def with_limits(work: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """`work` under the limits of the Options among its arguments."""

    @wraps(work)
    def bounded(*given: _Given.args, **named: _Given.kwargs) -> _Found:
        (options,) = (found for found in given if isinstance(found, Options))
        with within(Limits.of(options.limit)):
            return work(*given, **named)

    return bounded
