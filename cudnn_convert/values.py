"""A plan's statements on an artifact: streams, searches, the network and axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cudnn_convert.model import Array, Part, Recurrence, Signature

#: An axis of an input or output: its name such as `batch` or `time`, its size, or None for one unknown.
Axis = str | int | None


@dataclass(frozen=True, slots=True)
class Link:
    """A way from an input or a recurrence to a recurrence or an output, over `ops` ops.

    `source` and `target` are `input KEY`, `output KEY`, or the node of a recurrence.
    """

    source: str
    target: str
    ops: int


@dataclass(frozen=True, slots=True)
class Network:
    """The surroundings of recurrences: links, kept ops, and left-out ops of the source."""

    links: tuple[Link, ...]
    kept: int
    left_out: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """A recurrence's state, as an input, and, after the last step, as an output.

    `node` is the cuDNN node, `kind` is `h` or `c`, `time_major` says whether the node's own states are
    `[layers*directions, batch, width]` or have the batch first. `key` and `next_key` are the signature's,
    `start` and `end` the tensors `op:k` of the graph: `[depth, batch, width]`. `begin` is the tensor with the
    state that the source begins with; empty where it begins with zeros without one.
    """

    node: str
    kind: str
    time_major: bool
    key: str
    next_key: str
    start: str
    end: str
    depth: int
    width: int
    begin: str = ""

    @classmethod
    def of(cls, recurrence: Recurrence, kind: str, *, time_major: bool, **names: str) -> StreamState:
        """Return the state `kind` of a recurrence, with depth and width, by the given names."""
        sizes = recurrence.sizes
        depth, width = sizes.layers * sizes.directions, sizes.units if kind == "c" else sizes.width
        return cls(recurrence.node, kind, time_major, depth=depth, width=width, **names)


@dataclass(frozen=True, slots=True)
class VariableState:
    """A state from a variable of the source, as an input and an output.

    The variable holds it from call to call. `variable` is its op. `kind` is `h` or `c` where the variable is
    that of a layer of Keras, else empty. `key` and `next_key` are the signature's. `value` is what a sequence
    begins with, of the variable's shape; `begin_key` is the output that has it, empty where it is zeros.
    """

    variable: str
    kind: str
    key: str
    next_key: str
    value: Array
    begin_key: str = ""


@dataclass(frozen=True, slots=True)
class EncodedTensor:
    """A tensor `op:k`, equal at all steps and turned into an input.

    What an encoder made is an example. `key` is the input's, `start` its tensor. `rows` is the axis of its
    rows, None where it has none.
    """

    key: str
    tensor: str
    start: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SearchRules:
    """The rules of a search over the steps of a model.

    `kind` is `greedy`, `beam` or `sample`; `steps` to `history` are arguments of `cudnn_convert.decode`.
    `scale` says whether the step's numbers for its `vocabulary` are `probabilities`, `log_probabilities` or
    `logits`. `masked` are tokens that are never chosen, in order.
    """

    kind: str
    steps: int
    width: int
    end: int | None
    pad: int
    length_penalty: float
    top_k: int | None
    temperature: float
    history: bool
    scale: str
    vocabulary: int
    masked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decoder(SearchRules):
    """A search over the steps of a model, beside the model in the artifact.

    Keys are those of the step's signature: `token` takes token ids, with its steps along axis `token_axis`;
    `logits` gives a number for each token of the vocabulary, `[batch, vocabulary]` once the axis of its
    steps `logits_axis` is gone; None: it has what holds after the last step. `lengths` are inputs that hold
    the length of each row; `beside` are all other inputs, with the axis of their rows, None where they have
    none. `signature` has the search's own keys, for tensors of the lowered graph.

    `before` are the parts that the search runs itself before the first step, `encode` and `begin`: they give
    some of `beside`, and the states. `values` are states to begin with that depend on no input. Without
    `begin` or `values` the states are inputs of the search. `is_scale_given`: the user says the scale.
    """

    token: str
    token_axis: int
    logits: str
    logits_axis: int | None
    lengths: tuple[str, ...]
    beside: Mapping[str, int | None]
    states: tuple[StreamState, ...]
    signature: Signature
    before: tuple[Part, ...] = ()
    is_scale_given: bool = False
    values: Mapping[str, Array] = field(default_factory=dict)

    #: The name of its part of an artifact.
    NAME: ClassVar[str] = "decode"
    #: The keys of what a call may give beside tokens and the model's own inputs: `noise [n, steps]` float32
    #: of samples, `pad_mask [n, vocabulary]` bool, `initial_scores [n, width]` float32.
    NOISE: ClassVar[str] = "noise"
    PAD_MASK: ClassVar[str] = "pad_mask"
    INITIAL_SCORES: ClassVar[str] = "initial_scores"
    #: What comes before the names of the step's constants, where a search has a file of its own.
    STEP: ClassVar[str] = "step/"

    @property
    def takes_states(self) -> bool:
        """True if the search takes initial states as inputs.

        Else it begins by itself.
        """
        return not ({state.key for state in self.states} & self.begun)

    @property
    def begun(self) -> frozenset[str]:
        """The step's inputs known to the search before the first step, by key."""
        return frozenset[str]().union(*(part.signature.outputs for part in self.before), self.values)

    @property
    def part(self) -> Part:
        """The search as a part of an artifact."""
        return Part(self.NAME, self.signature)
