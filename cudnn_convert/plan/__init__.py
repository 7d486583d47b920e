"""Plans a conversion: outputs, inputs, constants, the graph in between, and recurrences.

Nothing is guessed silently: `Plan.notes` says what was chosen, `Plan.flags` repeats the choice.

* source        : From a path to a model with a graph: reads, cuts at layers, traces, repairs.
* make          : Makes a plan from a model and options.
* alone         : Plans recurrences alone, of weights or of a graph.
* passes        : The passes of a graph during planning, in order.
* from_graph    : Plans a model with a graph: the subgraph between inputs and outputs.
* recurrences_only: Plans the recurrences of a graph alone.
* from_weights  : Plans weights lacking a graph: each recurrence becomes a signature.
* keras_recurrences: Plans recurrences alone as models of Keras.
* moving_averages: Replaces variables by moving averages, for `--weights ema`.
* applicable    : Options with meaning for some kinds of sources only, and the kinds for each.
* notes         : Tensor specs of flags, and notes to the user on the choices of a plan.
* requests      : Requested inputs, outputs and states: from flags, signatures or the graph.
* keys          : Renames input and output keys forbidden by a format.
* streaming     : Plans a model for running in chunks of steps, for `--states` and `--decode`.
* fixed_steps   : Opens the source's fixed number of steps in a plan.
* fix_sizes     : Fixes the sizes of a plan's inputs, for `--lowering fused`.
* beginnings    : Plans the beginning of a sequence: initial states, and tensors common to all steps.
* variable_states: Names the states in a model's variables, once turned into inputs and outputs.
* decoding      : Plans a search over a streamed model's steps, for `--decode`.
* scales        : Finds the scale of an output for tokens: probabilities, log probabilities or logits.
* network       : The network around a plan's recurrences: links between inputs, recurrences and outputs.
* axes          : Names of axes: the places of batch and time in inputs and outputs, by shape.
* statistics    : Decides the replacement of batch statistics in a graph cut for inference.
* knobs         : Finds the values set by a model's author for inference: flags, keep probabilities.
* choose_outputs: Chooses the outputs from the graph, if left open by user and signatures.
* candidates    : Orders the possible output tensors, the likeliest first.
* obstacles     : Collects the obstacles between a graph and a CPU, a target or a proof.

May import: text, errors, private, formats, context, model, values, options, weights, graph, graph.passes,
recurrences, keras, keras.config, read.
Entry: `source.read_source` gives a model, `make.make_plan` a `Plan` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cudnn_convert.graph.index import split
from cudnn_convert.model import Array, Model, Part, Recurrence, Signature, UserGraph
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.values import Axis, Decoder, EncodedTensor, StreamState, VariableState

if TYPE_CHECKING:
    from cudnn_convert.graph.passes.state_io import Carried


#: The signature that takes and gives states, where an artifact has another beside it.
STREAM: Final = "stream"
#: The signature that gives the states to begin with, and the one that gives what is the same at all steps.
BEGIN: Final = "begin"
ENCODE: Final = "encode"


@dataclass(frozen=True, slots=True)
class Streaming:
    """The way a model runs in chunks of steps: carried states, sliced inputs and outputs.

    `states` are the inputs that take what the chunk before gave. `inputs` and `outputs` map keys to the axis
    of their steps; an input without one is the same for each chunk, an output without one holds after its
    last step. `lengths` are the keys of inputs that hold the length of each row: a chunk from step `t` on
    with `n` steps takes `clip(length - t, 0, n)`. `rows` maps keys of inputs to the axis of their rows, if
    their number is open. `begins` are tensors of the source by key that only made states to begin with.
    `chunk` is the number of steps of every chunk, None where it is open.
    """

    states: tuple[StreamState, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    lengths: frozenset[str] = frozenset()
    rows: Mapping[str, int] = field(default_factory=dict)
    begins: Mapping[str, str] = field(default_factory=dict)
    begin: Part | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    encoded: tuple[EncodedTensor, ...] = ()
    encode: Part | None = None
    whole: Plan | None = None
    chunk: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of an artifact to run before the first step."""
        return tuple(part for part in (self.encode, self.begin) if part is not None)

    @property
    def begin_outputs(self) -> dict[str, str]:
        """The model's own outputs with initial states: key of the state -> key."""
        if self.begin is not None or not self.values:
            return {}
        return {state.key: split(state.begin)[0] for state in self.states}


@dataclass(frozen=True, slots=True)
class Plan:
    """A model cut down to the chosen signature.

    `source` names the signature's tensors as the file does, `signature` as `graph` does: they differ where a
    tensor in the middle of the graph became an input. `parts` divides `signature` where the artifact has
    several. `whole` and `graph` are each a `graph.Graph`: `whole`, which verification runs, is the cut graph
    before simplification, with state in its variables. `states` tells what became of the state.
    `initializers` are the ops of both graphs that fill tables.
    `streaming` tells how the model is run in chunks, None where its states are no inputs. `serving` is then
    the plan of the signatures without states that the artifact has too, if the format knows several.
    `variable_states` are those of plain layers in variables, where they became inputs and outputs.
    `decoder` is a search over the steps of a streamed model that the artifact has beside it. `axes` are those
    of inputs and outputs by key, where they are known. `alone`: of the source only its recurrences are there.
    `examples` are calls by key, in the source's types, that calibrate an artifact of 8 bits.
    `warnings` ask for something to be done, as where a part of the source is lost.
    """

    model: Model
    whole: Any
    graph: Any
    source: Signature
    signature: Signature
    parts: tuple[Part, ...]
    recurrences: tuple[Recurrence, ...]
    notes: tuple[str, ...]
    flags: tuple[str, ...]
    states: tuple[Carried, ...] = ()
    initializers: tuple[str, ...] = ()
    streaming: Streaming | None = None
    variable_states: tuple[VariableState, ...] = ()
    serving: Plan | None = None
    axes: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    decoder: Decoder | None = None
    alone: bool = False
    warnings: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Array], ...] = ()
    #: For a format of layers: `cpu_layers.Rewritten`, or `translate.Modern` of it for Keras 3.
    target_model: Any = None

    @property
    def stream(self) -> Streaming:
        """The way to run a streamed plan in chunks."""
        assert self.streaming is not None
        return self.streaming

    def find_user_graph(self, signature: Signature) -> UserGraph:
        """Return the source's graph with the outputs of a part, for advice on cuts."""
        own, names = self.signature.outputs, self.source.outputs
        by_tensor = {own[key]: name for key, name in names.items() if key in own}
        outputs = {key: by_tensor[name] for key, name in signature.outputs.items() if name in by_tensor}
        return UserGraph({node.name for node in self.whole.node}, outputs)

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """All parts of the artifact, including parts to run before the first step."""
        return (*self.parts, *(self.streaming.parts if self.streaming else ()))


@dataclass(frozen=True, slots=True)
class RecurrencesPlan(Plan):
    """A plan of recurrences alone, each with a signature.

    `singles` has one for each of `parts`. `whole` is None; `graph` is None, or has what the weights are
    computed from.
    """

    singles: tuple[Single, ...] = ()
