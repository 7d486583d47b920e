"""What to convert: outputs, inputs, constants, the graph between them, its recurrences.

Nothing is guessed silently: `Plan.notes` says what was chosen, `Plan.flags` repeats the choice.

* source        : From a path to a model with a graph: reads, cuts at layers, traces, repairs.
* make          : Makes a plan from a model and options.
* alone         : Plans recurrences alone, of weights or of a graph.
* passes        : The passes that a graph takes while it is planned, in order.
* from_graph    : Plans a model that has a graph: the subgraph between its inputs and outputs.
* recurrences_only: Plans the recurrences of a graph alone.
* from_weights  : Plans weights without a graph: each recurrence becomes a signature.
* keras_recurrences: Plans recurrences alone as models of Keras.
* moving_averages: Replaces variables by their moving averages, for `--weights ema`.
* applicable    : Which kinds of sources each option means something for, where it does not for all.
* notes         : Tensor specs of flags, and notes to the user on the choices of a plan.
* requests      : Requested inputs, outputs and states: from flags, signatures or the graph.
* keys          : Renames the keys of inputs and outputs that a format cannot have.
* streaming     : Plans a model that goes on from chunk to chunk of its steps, for `--states` and `--decode`.
* fixed_steps   : Opens the number of steps of a plan whose source fixed it.
* beginnings    : Plans what a sequence begins with: initial states, and what is the same at all steps.
* variable_states: Names what a model holds in variables from call to call, once it goes in and comes out.
* decoding      : Plans a search over a streamed model's steps, for `--decode`.
* scales        : Tells by its ops whether an output has probabilities, their logarithms or logits for tokens.
* network       : The network around the recurrences of a plan: what leads to each, and to what.
* axes          : Names of axes: where the batch and time lie in inputs and outputs, as shapes tell.
* statistics    : Decides what stands for statistics of the batch in a graph that is cut for inference.
* knobs         : Finds the values that a model's author sets for inference: flags, keep probabilities.
* choose_outputs: Chooses the outputs where neither the user nor a signature names them.
* candidates    : Orders the tensors that may be outputs, the likeliest first.
* obstacles     : Collects what keeps a graph from a CPU, a target or a proof.

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
    """How a model is run in chunks of steps: what is carried from one to the next, and what is cut.

    `states` are the inputs that take what the chunk before gave. `inputs` and `outputs` map keys to the axis
    of their steps; an input without one is the same for each chunk, an output without one holds after its
    last step. `lengths` are the keys of inputs that hold the length of each row: a chunk from step `t` on
    with `n` steps takes `clip(length - t, 0, n)`. `rows` maps keys of inputs to the axis of their rows, if
    their number is open. `begins` are tensors of the source by key that only made states to begin with.
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

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of an artifact that run before the first step."""
        return tuple(part for part in (self.encode, self.begin) if part is not None)

    @property
    def begin_outputs(self) -> dict[str, str]:
        """The outputs of the model itself that have the states to begin with: key of the state -> key."""
        if self.begin is not None or not self.values:
            return {}
        return {state.key: split(state.begin)[0] for state in self.states}


@dataclass(frozen=True, slots=True)
class Plan:
    """A model cut down to its chosen signature.

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
    #: For a format of layers: `cpu_layers.Rewritten`, or `translate.Modern` of it for Keras 3.
    target_model: Any = None

    def find_user_graph(self, signature: Signature) -> UserGraph:
        """Return the source's graph with the outputs of a part, for advice on what to convert of it."""
        own, names = self.signature.outputs, self.source.outputs
        by_tensor = {own[key]: name for key, name in names.items() if key in own}
        outputs = {key: by_tensor[name] for key, name in signature.outputs.items() if name in by_tensor}
        return UserGraph({node.name for node in self.whole.node}, outputs)

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts of the artifact, with those that run before the first step."""
        return (*self.parts, *(self.streaming.parts if self.streaming else ()))


@dataclass(frozen=True, slots=True)
class RecurrencesPlan(Plan):
    """Recurrences without the graph around them: a signature for each.

    `singles` has one for each of `parts`. `whole` is None; `graph` is None, or has what the weights are
    computed from.
    """

    singles: tuple[Single, ...] = ()
