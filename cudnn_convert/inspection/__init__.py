"""Describes a source, and the command for a conversion, by reading alone.

Sources are read, planned and refused by the functions of a conversion, so both give the same answers. An
`Inspection` is the same for the library and for `--json`.

* alternatives     : Plans the commands for converting a source, as a conversion does.
* inspect          : Inspects a source by reading and planning alone.
* graph_recurrences: Recurrences of a source with a graph: live, dead, and in uncalled functions.
* gpu_only         : Lists the ops of a graph, beside recurrences, missing on some CPUs.
* weights_only     : Describes recurrences of graphless weights, and the tensors of the weights.
* keras_model      : Describes a Keras model and the recurrent layers, from config and shapes of weights.

May import: errors, formats, context, model, options, weights, graph, graph.passes, recurrences, keras,
keras.config, read, read.dialects, read.tensorbundle, plan, targets, storage.staging.
Entry: `inspect.inspect_source`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """A tensor of the file with weights of a recurrence, under the stored name."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedRecurrence:
    """A recurrence of the source.

    A number is None where the file does not give it. `axes` are those of its input, in order. `live`: whether
    the converted signature needs it, None where that depends on a choice. `raw` is the one-dimensional
    parameter blob, `canonical` the tensors of its matrices and biases; `copies` says which exist and whether
    they agree. `settings` are those of a Keras layer. `streams`: whether it can go on from its last step,
    None where that depends on a choice.
    """

    name: str
    op: str
    function: str | None = None
    needs_gpu: bool
    live: bool | None = None
    mode: str | None
    layers: int | None = None
    directions: int | None = None
    units: int | None = None
    input_size: int | None = None
    projection: int = 0
    dtype: str
    axes: tuple[str, ...]
    lengths: bool = False
    dropout: float = 0.0
    raw: tuple[WeightTensor, ...] = ()
    canonical: tuple[WeightTensor, ...] = ()
    copies: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)
    streams: bool | None = None


@dataclass(frozen=True, slots=True)
class End:
    """An input or an output under the source's name; dtype and shape may be unknown."""

    tensor: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Offered:
    """A signature by key.

    The key is "" where it was chosen from the graph. `taken`: the command converts it.
    """

    key: str
    taken: bool
    inputs: Mapping[str, End]
    outputs: Mapping[str, End]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A command among several for converting the source, with the choosing flags."""

    flags: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The description of a source, made by reading alone.

    `command` converts it, as a list of shell words. It is None where the source is portable already, where
    one of `candidates` must be chosen, or where conversion is impossible; `reasons` say which, as a
    conversion's refusal does. `runs_on_cpu` is None where that depends on a choice. `stream_command` converts
    it with states as inputs and outputs, None where it cannot be run in chunks; `stream_reasons` say why.
    `decode_command` also searches over its next tokens, None where it is not seen to be a language model.
    `gpu_ops` are the ops, or layers, because of which not every CPU runs it.
    """

    source: str
    kind: str
    versions: Mapping[str, str]
    runs_on_cpu: bool | None
    recurrences: tuple[InspectedRecurrence, ...]
    signatures: tuple[Offered, ...]
    command: tuple[str, ...] | None
    candidates: tuple[Alternative, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    stream_command: tuple[str, ...] | None = None
    stream_reasons: tuple[str, ...] = ()
    decode_command: tuple[str, ...] | None = None
    gpu_ops: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the JSON object of `inspect --json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)
