"""Names of Haiku's recurrent cores, `<module>/<parameter>`; matrices are `[in, out]`.

* `LSTM`: `<name>/linear` has `w [inputs+units, 4*units]` and `b [4*units]`. Its equations add 1 to f.
* `VanillaRNN`: `<name>/linear` has `w [inputs, units]` and `b`, `<name>/linear_1` has `w [units, units]` and,
  unless `double_bias=False`, `b`. It is relu.
* `GRU`: `<name>` has `w_i`, `w_h` and `b`. Its reset acts on the state before the product, which no mode of
  cuDNN does.

A name is `lstm` or `vanilla_rnn`, with `_1` and so on for further ones, or the user's. Under the user's the
keys and shapes may also be those of dense layers.
Sources: dm-haiku v0.0.17 haiku/_src/recurrent.py (classes of these names), haiku/_src/basic.py Linear.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, Cell, Mode, Tensor
from cudnn_convert.read.dialects import jax_trees
from cudnn_convert.read.dialects.shapes import MATRIX, WHOLE
from cudnn_convert.weights import layouts
from cudnn_convert.weights.lazy import LazyLayers

_KEY: Final = re.compile(r"(?P<path>.+?)[./](?P<field>linear(?:_1)?[./][wb]|w_i|w_h|b)")
_LSTM: Final = frozenset({"linear/w", "linear/b"})
_VANILLA: Final = frozenset({*_LSTM, "linear_1/w"})
_NAMES: Final = {
    Mode.LSTM: re.compile(r"(?:.*[./])?lstm(?:_\d+)?"),
    Mode.RNN_RELU: re.compile(r"(?:.*[./])?vanilla_rnn(?:_\d+)?"),
}
_CLASSES: Final = {Mode.LSTM: "hk.LSTM, which adds 1 to the forget gate", Mode.RNN_RELU: "hk.VanillaRNN"}
_OWN_CORE: Final = "if it is a core of your own with Haiku's equations, save its parameters by themselves"
_STACKED: Final = "hk.layer_stack stacks cores: save each under a path of its own"


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every core outside of an optimizer's state, sorted by path.

    Raises ReadError where no core is one of cuDNN's, and one is by its name.
    """
    sets: dict[str, dict[str, Tensor]] = defaultdict(dict)
    weights = jax_trees.list_weights(tensors)
    for key, tensor in weights.items():
        if match := _KEY.fullmatch(key):
            sets[match["path"]][match["field"].replace(".", "/")] = tensor
    foreign = jax_trees.list_foreign(weights, _KEY) if sets else {}
    cores: list[CanonicalParameters] = []
    refusals: list[ReadError] = []
    for scope, own in sorted(sets.items()):
        if re.split(r"[./]", scope)[-1].startswith("~"):
            continue  # a core makes its parameters when it is called: those of other methods have a ~
        core = _recognise(path, scope, own, foreign.get(scope))
        if isinstance(core, ReadError):
            refusals.append(core)
        else:
            cores += core
    if refusals and not cores:
        raise refusals[0]
    return tuple(cores)


def _recognise(
    path: Path, scope: str, own: Mapping[str, Tensor], other: str | None
) -> list[CanonicalParameters] | ReadError:
    """Return the possible cores of a module, or a refusal.

    `other` is a key below the module's path that is no parameter of a core.
    """
    shapes = {key: tensor.shape for key, tensor in own.items()}
    if _is_gru(shapes):
        expected = "a GRU whose reset acts after the product, as cuDNN's does"
        actual = "hk.GRU, whose reset acts before it"
        advice = "run it in Haiku, or train the model again with hk.LSTM"
        return ReadError(path, scope, expected=expected, found=actual, advice=advice)
    cores = []
    for mode, keys in ((Mode.LSTM, _LSTM), (Mode.RNN_RELU, _VANILLA)):
        is_sure = _NAMES[mode].fullmatch(scope) is not None
        if other is not None:
            if is_sure:
                expected = f"the parameters of {_CLASSES[mode].partition(',')[0]} alone"
                actual, advice = f"{other} beside them", _OWN_CORE
                return ReadError(path, scope, expected=expected, found=actual, advice=advice)
            continue
        sizes = _measure(mode, shapes) if own.keys() - {"linear_1/b"} == keys else None
        is_one_type = len({tensor.dtype for tensor in own.values()}) == 1
        if sizes is not None and is_one_type:
            cores.append(_parameters(scope, own, mode, *sizes, is_sure=is_sure))
        elif is_sure:
            expected = f"the parameters of {_CLASSES[mode].partition(',')[0]} in one type, w of two axes"
            actual = ", ".join(
                f"{key} {tensor.dtype}{[*tensor.shape]}" for key, tensor in sorted(own.items())
            )
            ranks = {len(tensor.shape) for key, tensor in own.items() if key.endswith("w")}
            advice = _STACKED if ranks == {MATRIX + 1} else WHOLE
            return ReadError(path, scope, expected=expected, found=actual, advice=advice)
    return cores


def _is_gru(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    if shapes.keys() != {"w_i", "w_h", "b"} or len(shapes["w_h"]) != MATRIX:
        return False
    units, wide = shapes["w_h"]
    return wide == 3 * units and shapes["w_i"][1:] == (wide,) and shapes["b"] == (wide,)


def _measure(mode: Mode, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int] | None:
    """Return the inputs and units of a core, or None for misfit shapes."""
    first = shapes["linear/w"]
    if len(first) != MATRIX or shapes["linear/b"] != first[1:]:
        return None
    if mode is Mode.LSTM:
        units, rest = divmod(first[1], len(mode.gates))
        inputs = first[0] - units
    else:
        (inputs, units), rest = first, 0
        if shapes["linear_1/w"] != (units, units) or shapes.get("linear_1/b", (units,)) != (units,):
            return None
    return (inputs, units) if inputs > 0 and units > 0 and not rest else None


def _parameters(
    scope: str, own: Mapping[str, Tensor], mode: Mode, inputs: int, units: int, *, is_sure: bool
) -> CanonicalParameters:
    def decode(_: Mode) -> LazyLayers:
        return LazyLayers(1, lambda _: (_cell(mode, own, units),))

    note = (
        f"{scope}: read as {_CLASSES[mode]}, forward in time; names do not say its direction, "
        "nor which cores feed it"
    )
    return CanonicalParameters(
        scope=f"{scope}/",
        modes=(mode,),
        layers=1,
        directions=1,
        units=units,
        input_size=inputs,
        decode=decode,
        tensors=own,
        dialect="haiku",
        dtype=own["linear/w"].dtype,
        may_be_dense=not is_sure,
        note=note,
    )


def _cell(mode: Mode, own: Mapping[str, Tensor], units: int) -> Cell:
    kernel, bias = own["linear/w"].read(), own["linear/b"].read()
    zeros = np.zeros_like(bias)
    if mode is Mode.LSTM:
        kernels = kernel[:-units], kernel[-units:]
        return layouts.unpack_columns(mode, layouts.HAIKU, kernels, (bias, zeros), forget_bias=1.0)
    recurrent_bias = own["linear_1/b"].read() if "linear_1/b" in own else zeros
    kernels = kernel, own["linear_1/w"].read()
    return layouts.unpack_columns(mode, layouts.HAIKU, kernels, (bias, recurrent_bias))
