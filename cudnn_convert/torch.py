"""The recurrences of a source as modules of PyTorch; needs the extra `torch`.

from cudnn_convert.torch import load_rnn
lstm = load_rnn("model.ckpt")
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import pipeline
from cudnn_convert.calls import library_call
from cudnn_convert.errors import MissingDependencyError, UsageError
from cudnn_convert.model import Array, Mode
from cudnn_convert.options import Options
from cudnn_convert.plan.from_weights import join_plans
from cudnn_convert.recurrences import graphless, named_weights

try:
    import torch
except ImportError as cause:
    advice = "install it: pip install 'cudnn-convert[torch]'"
    raise MissingDependencyError(
        f"cudnn_convert.torch: expected PyTorch, found that it is not installed; {advice}"
    ) from cause

__all__ = ["load_rnn"]

#: Parameters that are no flags of a conversion.
_OWN: Final = frozenset({"source", "name", "batch_first", "verify"})
_CLASSES: Final[Mapping[Mode, tuple[Any, dict[str, Any]]]] = {
    Mode.LSTM: (torch.nn.LSTM, {}),
    Mode.GRU: (torch.nn.GRU, {}),
    Mode.RNN_TANH: (torch.nn.RNN, {"nonlinearity": "tanh"}),
    Mode.RNN_RELU: (torch.nn.RNN, {"nonlinearity": "relu"}),
}


def load_rnn(
    source: str | PathLike[str],
    *,
    name: str | None = None,
    batch_first: bool | None = None,
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    limit: str | Sequence[str] = (),
    trust: bool = False,
    verify: bool = True,
) -> torch.nn.LSTM | torch.nn.GRU | torch.nn.RNN:
    """Load a recurrence of `source` as `nn.LSTM`, `nn.GRU` or `nn.RNN`.

    The module is on the CPU, in evaluation mode. `name` is one of those that `cudnn_convert.load` gives,
    needed where there are several. `batch_first` defaults to the source's layout; states are
    `[layers*directions, batch, width]` either way. Unless `verify` is False, the module is run on random
    inputs and compared with the float64 reference. Raises as `convert`, including VerificationError.
    """
    reading = {"format": "npz", **{flag: value for flag, value in locals().items() if flag not in _OWN}}
    with library_call():
        options = Options.of(reading)
        standalone = pipeline.alone(Path(source), options)
        single = _choose_recurrence(source, standalone.singles, name)
        module = _module(single, single.batch_major if batch_first is None else batch_first)
        if verify:
            plan = join_plans(standalone.model, [single], notes=(), flags=())
            pipeline.verify_plan(plan, lambda feeds: _run(module, single, feeds), options)
        return module


def _choose_recurrence(
    source: str | PathLike[str], singles: Sequence[graphless.Single], name: str | None
) -> graphless.Single:
    named = {single.name: single for single in singles}
    if name is None and len(named) == 1:
        return singles[0]
    if name not in named:
        actual = "none" if name is None else name
        raise UsageError(f"{source}: name: expected one of {', '.join(named)}, found {actual}")
    return named[name]


def _module(single: graphless.Single, batch_first: bool) -> Any:
    sizes, (kind, more) = single.recurrence.sizes, _CLASSES[single.recurrence.sizes.mode]
    more = more | ({"proj_size": sizes.projection} if sizes.projection else {})
    state = {
        name: torch.from_numpy(value.copy())
        for name, value in named_weights.to_state_dict(single.recurrence).items()
    }
    module = kind(
        sizes.input_size,
        sizes.units,
        sizes.layers,
        bidirectional=sizes.directions == 2,
        batch_first=batch_first,
        dtype=next(iter(state.values())).dtype,
        **more,
    )
    module.load_state_dict(state)
    return module.eval()


def _run(module: Any, single: graphless.Single, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the module's outputs by the keys of the recurrence's signature."""
    given = {key: torch.from_numpy(np.array(value)) for key, value in feeds.items()}
    x = given["inputs"].transpose(0, 1) if single.batch_major != module.batch_first else given["inputs"]
    states = tuple(given[f"initial_{key}"] for key in "hc" if f"initial_{key}" in given)
    if "sequence_lengths" in given:
        lengths = given["sequence_lengths"].long()
        steps = x.shape[1 if module.batch_first else 0]
        x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=False)
    with torch.no_grad():
        y, states = module(x, states if len(states) == 2 else states[0])
    if "sequence_lengths" in given:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, module.batch_first, total_length=steps)
    y = y.transpose(0, 1) if single.batch_major != module.batch_first else y
    values = (y, *states) if isinstance(states, tuple) else (y, states)
    return {key: value.numpy() for key, value in zip(single.outputs, values, strict=True)}
