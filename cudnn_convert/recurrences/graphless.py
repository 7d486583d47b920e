"""Recurrences of a graphless source, found by names, shapes and flags.

Canonical keys give the sizes of a recurrence. A parameter blob without such keys gives only its length; the
user's flags give the sizes. `Single` is a recurrence as a signature: inputs, outputs, states.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AGAIN, AmbiguousSourceError, Reason, Remedy, UnsupportedModelError
from cudnn_convert.graph.index import unique
from cudnn_convert.model import (
    CanonicalParameters,
    Mode,
    Model,
    PartialSizes,
    Recurrence,
    Signature,
    Sizes,
    Tensor,
    is_float,
)
from cudnn_convert.recurrences.weight_copies import BLOB, scopes
from cudnn_convert.text import list_some
from cudnn_convert.weights import parameter_blob, training_state

#: The largest size of an axis in TensorFlow and NumPy; a damaged index may claim any shape.
_MOST_VALUES: Final = 2**63 - 1
#: How many sizes an error lists.
_LISTED: Final = 12


def find_blob_recurrences(
    model: Model, description: PartialSizes, *, wanted: str | None = None
) -> tuple[Alone, ...]:
    """Find the named recurrences of a graphless model, all or the signature `wanted` alone.

    Raises UnsupportedModelError where there is none, or where a damaged file claims sizes that no file holds,
    AmbiguousSourceError where flags must decide.
    """
    alone = canonical(model, description, wanted=wanted)
    known, blobs = {recurrence.variable for recurrence in alone}, blob_keys(model)
    left = [key for key in blobs if key not in known]
    if not alone and not blobs:
        left = [_of_any_name(model, description, wanted)]
    everything = [*alone, *(_describe_blob(model, key, description) for key in left if _is(key, wanted))]
    recurrences = tuple(name_signatures(everything))
    counts = {recurrence.name: parameter_blob.length(recurrence.sizes) for recurrence in recurrences}
    if reasons := [
        Reason(f"{scope}: expected weights that a file can hold, found sizes for {count} values; {AGAIN}")
        for scope, count in counts.items()
        if count > _MOST_VALUES
    ]:
        raise UnsupportedModelError(model.path, reasons)
    return recurrences


def _is(key: str, wanted: str | None) -> bool:
    return wanted is None or name(key) == wanted


def _describe_blob(model: Model, key: str, described: PartialSizes) -> Alone:
    """Return the recurrence of a blob, with sizes from the flags, else from the file.

    A default name may give the mode. Raises AmbiguousSourceError where the flags are incomplete or
    do not fit its length.
    """
    tensor, note = model.variables[key], None
    described = described.fill(model.blobs.get(key, PartialSizes()))
    mode = mode_by_name(key)
    if described.mode is None and mode is not None:
        described = replace(described, mode=mode)
        note = f"{key}: {mode.value} by its name; --mode chooses"
    sizes = _fitting(tensor, described)
    if not _complete(described) or len(sizes) != 1:
        raise AmbiguousSourceError(model.path, [_combinations(key, tensor, sizes)])
    return Alone(key, sizes[0], tensor.dtype, note=note)


def _complete(description: PartialSizes) -> bool:
    return None not in (description.mode, description.layers, description.units, description.directions)


def _fitting(tensor: Tensor, description: PartialSizes) -> list[Sizes]:
    return parameter_blob.fitting(math.prod(tensor.shape), **asdict(description))


def _combinations(key: str, tensor: Tensor, fitting: Sequence[Sizes]) -> Reason:
    where = f"{key}: a blob of {math.prod(tensor.shape)} values without its graph"
    if not fitting:
        return Reason(f"{where}: expected sizes that fit its length, found none; check {FLAGS}")
    more = f" and {len(fitting) - _LISTED} more" if len(fitting) > _LISTED else ""
    return _list_sizes(f"{where}: name {FLAGS}; its length fits", fitting[:_LISTED], "; ", more)


def _of_any_name(model: Model, description: PartialSizes, wanted: str | None) -> str:
    """Return the key of the only 1-D tensor with a length fitting the flags.

    Raises UnsupportedModelError, AmbiguousSourceError.
    """
    vectors = {
        key: tensor
        for key, tensor in model.variables.items()
        # A slot or an average of another tensor has that one's name before its own.
        if len(tensor.shape) == 1
        and tensor.dtype.kind == "f"
        and key.rpartition("/")[0] not in model.variables
    }
    if not _complete(description):
        raise UnsupportedModelError(model.path, [_nothing(model, vectors)])
    fits = [key for key, tensor in vectors.items() if _fitting(tensor, description) and _is(key, wanted)]
    if not fits:
        reason = f"{FLAGS}: expected a 1-D tensor of a length that they allow, found none"
        raise UnsupportedModelError(model.path, [reason])
    if len(fits) > 1:
        listed = ", ".join(f"{name(key)} ({key})" for key in fits)
        reason = f"{FLAGS}: expected one tensor that fits, found {listed}; choose with --signature"
        raise AmbiguousSourceError(model.path, [reason])
    return fits[0]


def _nothing(model: Model, vectors: dict[str, Tensor]) -> Reason:
    expected = f"expected {model.graphless.expected}, found none of them"
    if model.plain.layers:
        expected += f": no cuDNN recurrence in it; this looks like {list_some(model.plain.layers, _LISTED)}"
    if model.plain.whole:
        return Reason(f"{expected}; such layers run on a CPU as they are, in the program that trained them")
    longest = sorted(vectors, key=lambda key: -vectors[key].shape[0])[:3]
    near = ", ".join(f"{key} [{vectors[key].shape[0]}]" for key in longest)
    cure = f"; for a blob of another name give {FLAGS}; the longest 1-D tensors are {near}" if near else ""
    doubtful = [parameters for parameters in model.canonical if parameters.may_be_dense]
    by_mode: dict[Mode, list[CanonicalParameters]] = {}
    for parameters in doubtful:
        by_mode.setdefault(parameters.modes[0], []).append(parameters)
    for mode, sets in by_mode.items():
        listed = list_some([parameters.scope.rstrip("/") for parameters in sets], _LISTED)
        cure += f"; {listed} may be {_DOUBTS[mode]}: say --mode {mode.value} --units N"
    remedies = dict.fromkeys((parameters.modes[0], parameters.units) for parameters in doubtful)
    return Reason(
        expected + cure, *(Remedy({"mode": mode.value, "units": count}) for mode, count in remedies)
    )


#: What weights may be that a dense layer has too, by the mode of the recurrence.
_DOUBTS: Final = {Mode.LSTM: "an LSTM or a dense layer", Mode.RNN_RELU: "a plain RNN or two dense layers"}


#: Ends each key of tf.train.Checkpoint (tensorflow v2.21.0 python/trackable/base.py).
_OF_OBJECT: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
#: Source: tensorflow v2.21.0 python/trackable/constants.py OPTIMIZER_SLOTS_NAME.
_OF_SLOT: Final = ".OPTIMIZER_SLOT/"
FLAGS: Final = "--mode, --layers, --units and --directions"
#: Default names have the mode: the scopes of contrib layers (tensorflow v1.15.0
#: contrib/cudnn_rnn/python/layers/cudnn_rnn.py), and the packed parameters of MXNet's FusedRNNCell
#: (mxnet 1.9.1 python/mxnet/rnn/rnn_cell.py, whose prefix is `<mode>_`).
_SCOPE: Final = re.compile(r"(?:.*/)?cudnn_(lstm|gru|rnn_tanh|rnn_relu)(?:_\d+)?")
_PACKED: Final = re.compile(r"(?:.*[/._])?(lstm|gru|rnn_tanh|rnn_relu)_parameters")


@dataclass(frozen=True, slots=True)
class Alone:
    """A single graphless recurrence.

    `variable` is the key of its blob, which need not exist if there are canonical keys. `dtype` is the type
    of the stored weights. `title` is the name of the recurrence in a file of decoded weights.
    """

    variable: str
    sizes: Sizes
    dtype: np.dtype[Any]
    name: str = ""
    batch_major: bool = False
    note: str | None = None
    title: str = ""


def canonical(model: Model, description: PartialSizes, *, wanted: str | None = None) -> tuple[Alone, ...]:
    """Return the recurrences with canonical keys, each with the key of the blob.

    All, or the signature `wanted` alone. Of several recurrences those that names leave open are described.
    Raises AmbiguousSourceError where flags must decide, UnsupportedModelError where they contradict the keys.
    """
    blobs = blob_by_scope(model)
    sets: dict[str, list[CanonicalParameters]] = {}
    for parameters in _sure(model, description):
        sets.setdefault(parameters.scope, []).append(parameters)
    keys = {scope: blobs.get(scope, f"{scope}{BLOB}") for scope in sets}
    chosen = [scope for scope in sets if wanted in (None, name(keys[scope]))] or [*sets]
    is_described = any(
        description.fits(sizes) for scope in chosen for each in sets[scope] for sizes in _readings(each)
    )
    recurrences = []
    for scope in chosen:
        readings = [sizes for each in sets[scope] for sizes in _readings(each)]
        own = description
        if is_described and not any(map(description.fits, readings)):  # the flags are another one's
            own = PartialSizes() if len(readings) == 1 else PartialSizes(description.mode)
        recurrences.append(_canonical(model, sets[scope], keys[scope], own))
    return tuple(alone for alone in recurrences if alone is not None)


def blob_by_scope(model: Model) -> dict[str, str]:
    """Return the key of the `opaque_kernel` of each canonical set, by scope.

    The key is in the scope of the set, or in a scope directly below.
    """
    known = {parameters.scope for parameters in model.canonical}
    blobs: dict[str, str] = {}
    for key in blob_keys(model):
        scope = next((scope for scope in scopes(key) if scope in known), None)
        if scope is not None:
            blobs.setdefault(scope, key)
    return blobs


def blob_keys(model: Model) -> list[str]:
    """Return the keys of all blobs: each `opaque_kernel`, and the blobs of `model.blobs`."""
    return [
        key
        for key, tensor in model.variables.items()
        if (scope_of_blob(key) is not None or key in model.blobs)
        and len(tensor.shape) == 1
        and is_float(tensor.dtype)
    ]


#: The dialects in which the scope of a recurrence has more tensors of it.
_WITH_MORE: Final = frozenset({"contrib", "keras", "regions"})


def list_other_tensors(model: Model, taken: Collection[str]) -> list[str]:
    """List the tensors beside recurrences and training state.

    Empty where names do not tell these apart. `taken` are the names of signatures that were made of blobs
    under any name; what may be dense counts where it became one. Optimizer slots, averages and scalars such
    as a step are no part of a model.
    """
    sets = [
        parameters
        for parameters in model.canonical
        if not parameters.may_be_dense or name(f"{parameters.scope}{BLOB}") in taken
    ]
    scopes_taken = {parameters.scope for parameters in sets if parameters.dialect in _WITH_MORE} | {
        *map(scope_of_blob, blob_keys(model))
    }
    if "" in scopes_taken:
        return []
    keys_taken = {key for parameters in sets for key in model.list_stored_keys(parameters)}
    return [
        key.removesuffix(_OF_OBJECT)
        for key, tensor in model.variables.items()
        if tensor.shape
        and key not in keys_taken
        and not any(key.startswith(scope) for scope in scopes_taken if scope)
        and key.rpartition("/")[0] not in model.variables
        and _OF_SLOT not in key
        and not training_state.is_of_optimizer(key)
        and name(key) not in taken
    ]


def scope_of_blob(key: str) -> str | None:
    """Return the part of a key before `opaque_kernel`, or None for another tensor.

    An object-based checkpoint names the layer's object there, and has a suffix behind it.
    """
    path, slash, last = key.removesuffix(_OF_OBJECT).rpartition("/")
    return f"{path}{slash}" if last == BLOB else None


def mode_by_name(name: str) -> Mode | None:
    """Return the mode in the default name of a layer's scope or blob, or None."""
    scope = scope_of_blob(name)
    match = _SCOPE.fullmatch((name if scope is None else scope).rstrip("/")) or _PACKED.fullmatch(name)
    return Mode(match[1]) if match else None


def name_signatures(alone: Sequence[Alone]) -> Iterator[Alone]:
    """Name the recurrences uniquely, as signatures."""
    taken: list[str] = []
    for recurrence in alone:
        taken.append(unique(name(recurrence.variable), taken))
        yield replace(recurrence, name=taken[-1])


def name(key: str) -> str:
    """Return the name of a signature: the scope of a blob, or another tensor's key."""
    scope = scope_of_blob(key)
    return re.sub(r"\W", "_", key if scope is None else scope.strip("/")) or "rnn"


def _list_sizes(lead: str, choices: Sequence[Sizes], between: str, end: str) -> Reason:
    """Return a reason listing sizes as flags."""
    remedies = [
        Remedy(
            {"mode": fit.mode.value, "layers": fit.layers, "units": fit.units, "directions": fit.directions}
        )
        for fit in choices
    ]
    pairs = zip(remedies, choices, strict=True)
    listed = between.join(f"{remedy} (input size {sizes.input_size})" for remedy, sizes in pairs)
    return Reason(f"{lead} {listed}{end}", *remedies)


def _sure(model: Model, description: PartialSizes) -> list[CanonicalParameters]:
    """Return the canonical sets certain to be recurrences, or described by the flags."""
    is_described = description.mode is not None and description.units is not None
    return [
        parameters
        for parameters in model.canonical
        if not parameters.may_be_dense
        or (is_described and any(description.fits(sizes) for sizes in _readings(parameters)))
    ]


def _readings(parameters: CanonicalParameters) -> list[Sizes]:
    return [parameters.sizes(mode) for mode in parameters.modes]


def _canonical(
    model: Model, sets: Sequence[CanonicalParameters], key: str, description: PartialSizes
) -> Alone | None:
    """Return the recurrence of a scope's sets, or None for half of a bidirectional recurrence.

    Raises UnsupportedModelError, AmbiguousSourceError.
    """
    scope = sets[0].scope
    readings = [(parameters, sizes) for parameters in sets for sizes in _readings(parameters)]
    fitting = [pair for pair in readings if description.fits(pair[1])]
    where = scope.rstrip("/") or "the root scope"
    if not fitting:
        if description.directions == 2 and all(parameters.may_be_half for parameters in sets):
            return None
        lead = f"{where}: expected the sizes that the flags say, found"
        reason = _list_sizes(lead, [sizes for _, sizes in readings], " or ", "; give these flags")
        raise UnsupportedModelError(model.path, [reason])
    mode, note = mode_by_name(scope), None
    if len(fitting) > 1 and mode is not None:
        fitting = [pair for pair in fitting if pair[1].mode is mode] or fitting
        note = f"{where}: {mode.value} by its name; --mode chooses"
    if len(fitting) > 1:
        lead, choices = f"{where}: keys and shapes fit", [sizes for _, sizes in fitting]
        raise AmbiguousSourceError(model.path, [_list_sizes(lead, choices, " or ", "; choose with --mode")])
    ((parameters, sizes),) = fitting
    if parameters.may_be_half and description.directions is None:
        raise AmbiguousSourceError(model.path, [_ask_directions(where, model, description)])
    return Alone(
        key,
        sizes,
        parameters.dtype,
        batch_major=parameters.batch_major,
        note=note or parameters.note,
        title=parameters.title,
    )


def _ask_directions(where: str, model: Model, description: PartialSizes) -> Reason:
    """Return a reason asking if the keys are half of a bidirectional layer.

    If they are, its blob is to be converted.
    """
    single, both = Remedy({"directions": 1}), Remedy({"directions": 2})
    begin = f"{where}: TensorFlow before 1.4 saved half of a bidirectional layer under these keys"
    reason = f"{begin}; say {single} if it had one, else convert its blob with {both}"
    if description.mode is not None:
        return Reason(reason, single, both)
    # Half of the pseudo-layers are there, and so all layers: their blob may have any name.
    whole = [
        Remedy({"mode": mode.value, "layers": half.layers, "units": half.units, "directions": 2})
        for half in model.canonical
        if half.may_be_half
        for mode in half.modes
    ]
    return Reason(reason, single, *whole)


#: A type and widths, the open ones by name: `time`, `batch`.
Spec = tuple[np.dtype[Any], tuple[int | str, ...]]


@dataclass(frozen=True, slots=True)
class SignatureOptions:
    """The requested form of the signatures.

    `layout` is `time`, `batch`, or None for the layer's own. `states` adds the inputs `initial_h` (and
    `initial_c`), `[layers*directions, batch, units]`; `lengths` adds `sequence_lengths`, int32 `[batch]`.
    """

    layout: str | None = None
    states: bool = False
    lengths: bool = False

    def batch_major(self, recurrence: Alone) -> bool:
        """Return True if `inputs` and `outputs` are `[batch, time, ...]`."""
        return recurrence.batch_major if self.layout is None else self.layout == "batch"

    def notes(self, recurrence: Alone) -> Iterator[str]:
        """Yield notes on the choices made for a recurrence where a flag is absent."""
        if recurrence.note:
            yield recurrence.note
        if self.layout is None:
            major = "batch" if recurrence.batch_major else "time"
            yield f"{recurrence.name}: inputs and outputs are {major}-major; --layout chooses"


@dataclass(frozen=True, slots=True)
class Single:
    """A recurrence as a graphless signature.

    `recurrence` is time-major; `batch_major` is the layout of the signature.
    """

    name: str
    recurrence: Recurrence
    batch_major: bool
    states: bool

    @property
    def inputs(self) -> Mapping[str, Spec]:
        """The dtype and shape of each input, in order."""
        dtype, sizes = self.recurrence.dtype, self.recurrence.sizes
        inputs: dict[str, Spec] = {"inputs": (dtype, (*self._axes, sizes.input_size))}
        if self.states:
            inputs |= {f"initial_{key}": spec for key, spec in self._states.items()}
        if self.recurrence.lengths:
            inputs["sequence_lengths"] = (np.dtype(np.int32), ("batch",))
        return inputs

    @property
    def outputs(self) -> Mapping[str, Spec]:
        """The dtype and shape of each output, in order."""
        dtype, sizes = self.recurrence.dtype, self.recurrence.sizes
        outputs: dict[str, Spec] = {"outputs": (dtype, (*self._axes, sizes.directions * sizes.width))}
        return outputs | {f"state_{key}": spec for key, spec in self._states.items()}

    @property
    def signature(self) -> Signature:
        """The signature, with tensor names as in a graph."""
        named = ({key: f"{self.name}/{key}:0" for key in ends} for ends in (self.inputs, self.outputs))
        return Signature(*named)

    @property
    def _axes(self) -> tuple[str, str]:
        return ("batch", "time") if self.batch_major else ("time", "batch")

    @property
    def _states(self) -> dict[str, Spec]:
        sizes = self.recurrence.sizes
        keys = ("h", "c") if sizes.mode is Mode.LSTM else ("h",)
        depth = sizes.layers * sizes.directions
        shapes = ((depth, "batch", width) for width in (sizes.width, sizes.units))
        return {key: (self.recurrence.dtype, shape) for key, shape in zip(keys, shapes, strict=False)}
