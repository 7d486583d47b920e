"""A source in the form of every reader: graph, values, signatures, layers, recurrences.

Arrays follow cuDNN's convention: weights are `[gates, units, inputs]` (a matrix multiplies a column vector),
biases are `[gates, units]`, gates are in the order of `Mode.gates`, and the two biases stay separate, since
the GRU's candidate needs them so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cudnn_convert.errors import InvalidModelError

Array = npt.NDArray[Any]
#: Gives the parts of one constant, contiguous, one after the other.
Parts = Callable[[], Iterator[Array]]
#: The directions of a layer, in order.
WAYS: Final = ("forward", "backward")
#: The signature that users of a SavedModel get who name none.
SERVING: Final = "serving_default"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return True if a dtype is a float type, including bfloat16.

    NumPy does not count bfloat16 as one.
    """
    return dtype.kind == "f" or dtype.name == "bfloat16"


class Gate(Enum):
    """A gate by the full name; `layouts` has the letters of sources."""

    INPUT = "input"
    FORGET = "forget"
    CELL = "cell"  # the LSTM's new memory, cuDNN's c'
    OUTPUT = "output"
    RESET = "reset"
    UPDATE = "update"  # keeps the old state where it is 1
    CANDIDATE = "candidate"  # the GRU's new state, cuDNN's h'
    HIDDEN = "hidden"  # the only "gate" of a plain RNN


class Mode(Enum):
    """The four recurrences of cuDNN, by the value of the attribute `rnn_mode`."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates by cuDNN's linear layer ids (cudnnGetRNNWeightParams, cuDNN 9)."""
        if self is Mode.LSTM:
            return (Gate.INPUT, Gate.FORGET, Gate.CELL, Gate.OUTPUT)
        if self is Mode.GRU:
            return (Gate.RESET, Gate.UPDATE, Gate.CANDIDATE)
        return (Gate.HIDDEN,)


@dataclass(frozen=True, slots=True)
class Cell:
    """The weights of a pseudo-layer: a single direction of a layer.

    kernel `[gates, units, inputs]`, recurrent_kernel `[gates, units, width]`, bias and recurrent_bias
    `[gates, units]`, all of one dtype. `width` is that of the hidden state: `units`, or in an LSTM with a
    projection `[width, units]` its rows. peepholes `[3, units]` are of an LSTM's input, forget and output
    gate: cuDNN has none, TensorFlow's BlockLSTM may. Raises InvalidModelError where shapes or dtypes do not
    fit.
    """

    mode: Mode
    kernel: Array
    recurrent_kernel: Array
    bias: Array
    recurrent_bias: Array
    projection: Array | None = None
    peepholes: Array | None = None

    def __post_init__(self) -> None:
        gates, width = len(self.mode.gates), self.recurrent_kernel.shape[-1]
        units = width if self.projection is None else self.projection.shape[-1]
        inputs = self.kernel.shape[-1]
        for name, shape in (
            ("kernel", (gates, units, inputs)),
            ("recurrent_kernel", (gates, units, width)),
            ("bias", (gates, units)),
            ("recurrent_bias", (gates, units)),
            ("projection", (width, units)),
            ("peepholes", (3, units)),
        ):
            part = getattr(self, name)
            if part is None:
                continue
            where, dtype = f"cell.{name}", self.kernel.dtype
            if part.shape != shape:
                raise InvalidModelError(where, expected=f"shape {shape}", found=f"{part.shape}")
            if part.dtype != dtype:
                raise InvalidModelError(where, expected=f"{dtype}", found=f"{part.dtype}")
        if self.projection is not None and self.mode is not Mode.LSTM:
            raise InvalidModelError(
                "cell.projection", expected="none outside of an LSTM", found=f"one in a {self.mode.value}"
            )

    def change_arrays(self, change: Callable[[Array], Array]) -> Cell:
        """Return the cell with `change` applied to each array."""
        parts: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        changed = {name: change(part) for name, part in parts.items() if isinstance(part, np.ndarray)}
        return replace(self, **(parts | changed))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers fixing the length of a parameter blob.

    With `skip_input` layer 0 adds its input, of `units` values, to every gate and has no kernel in the
    blob. `projection` is the width of an LSTM's projected hidden state, 0 where there is none.
    """

    mode: Mode
    layers: int
    directions: int
    units: int
    input_size: int
    skip_input: bool = False
    projection: int = 0

    @property
    def width(self) -> int:
        """The width of the hidden state of a single direction."""
        return self.projection or self.units

    def states(self, *, time_major: bool) -> tuple[list[int | None], list[int | None]]:
        """Return the shapes of the hidden state and of an LSTM's cell state, batch unknown."""
        depth = self.layers * self.directions
        hidden, cell = (
            [depth, None, width] if time_major else [None, depth, width] for width in (self.width, self.units)
        )
        return hidden, cell

    def inputs(self, layer: int) -> int:
        """Return the input width of `layer`: the model's, or of all directions below."""
        return self.input_size if layer == 0 else self.directions * self.width


@dataclass(frozen=True, slots=True)
class PartialSizes:
    """The known sizes of a recurrence, by a file or by flags; None for others."""

    mode: Mode | None = None
    layers: int | None = None
    units: int | None = None
    directions: int | None = None

    def fits(self, sizes: Sizes) -> bool:
        """Return True if `sizes` agrees with all known values."""
        return all(value is None or getattr(sizes, name) == value for name, value in asdict(self).items())

    def fill(self, others: PartialSizes) -> PartialSizes:
        """Return these sizes, with `others` in the place of unknown ones."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(others, **known)


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of an artifact: key -> tensor name, in order."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @classmethod
    def of_names(cls, inputs: Iterable[str], outputs: Iterable[str]) -> Signature:
        """Return the signature with the artifact's own names as keys."""
        return cls({name: name for name in inputs}, {name: name for name in outputs})

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors, of inputs first."""
        return [*self.inputs.values(), *self.outputs.values()]


@dataclass(frozen=True, slots=True)
class UserGraph:
    """The user's graph: the names of ops, and the output tensors by key."""

    ops: Collection[str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A signature of an artifact; `prefix` precedes the keys in a union of several."""

    name: str
    signature: Signature
    prefix: str = ""


class Tensor(Protocol):
    """A named array, kept in a file until a call of `read`."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def read(self) -> Array:
        """Read the array. Raises ReadError on a wrong checksum."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """A tensor in memory."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self) -> Array:
        return self.array


#: The dialects of TensorFlow and Keras: a scope may have several, and their sources a `Convention`.
TENSORFLOW_DIALECTS: Final = frozenset({"contrib", "regions", "keras"})


@dataclass(frozen=True, slots=True)
class CanonicalParameters:
    """The per-gate tensors of a source beside, or instead of, a parameter blob.

    `scope` is their variable scope; the blob they belong to is a variable of that scope or of one directly
    inside it. `modes` has two members where names cannot tell tanh from relu. `decode` gives the cells
    `[layer][direction]` of the chosen mode, and raises ReadError where some are missing. `tensors` is for the
    independent reference: the tensors that are stored, by key without `scope`, in the names of `dialect` (a
    key of `reference.DIALECTS`). `projection` and `skip_input` are those of `Sizes`. `batch_major`: the layer
    that wrote them is batch-major. `may_be_half`: the writer saved half of bidirectional layers.
    `may_be_dense`: a dense layer has such keys and shapes too. `note` says what the names leave open. `title`
    is the name that a file of decoded weights gives to the recurrence.
    """

    scope: str
    modes: tuple[Mode, ...]
    layers: int
    directions: int
    units: int
    input_size: int
    decode: Callable[[Mode], Sequence[tuple[Cell, ...]]]
    tensors: Mapping[str, Tensor]
    dialect: str = "contrib"
    dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009 - a dtype is a constant
    projection: int = 0
    skip_input: bool = False
    batch_major: bool = False
    may_be_half: bool = False
    may_be_dense: bool = False
    note: str | None = None
    title: str = ""

    def sizes(self, mode: Mode) -> Sizes:
        """Return the sizes of the recurrence in one of `modes`."""
        widths = (self.units, self.input_size, self.skip_input, self.projection)
        return Sizes(mode, self.layers, self.directions, *widths)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A Keras model as described by the file, before building and running.

    `config`: `{"class_name": ..., "config": ...}` as stored, JSON values only, with the module of a mask's
    op, which HDF5 files of Keras 3 lack. `weights`: for each top-level layer with weights, `(weight name,
    tensor)` in the order of its `trainable_weights + non_trainable_weights`; the weights of a wrapper's layer
    or of a nested model are flattened into its list.
    `keras_version` and `backend` are the file's, "" where it has none. `training`: the config of optimizer,
    loss and metrics; `optimizer`: its state, `(weight name, tensor)`. `extras` are datasets of the file that
    no Keras loader reads, by path, and `attributes` such attributes of its root.
    `translated`: config or weights were brought to the form of today's Keras 2, which the file lacks.
    `weights_version`: the version of the Keras that wrote weights apart from their config.
    """

    config: Mapping[str, Any]
    weights: Mapping[str, tuple[tuple[str, Tensor], ...]]
    keras_version: str = ""
    backend: str = ""
    training: Mapping[str, Any] | None = None
    optimizer: tuple[tuple[str, Tensor], ...] = ()
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    translated: bool = False
    weights_version: str = ""

    @property
    def is_keras3(self) -> bool:
        """True if Keras 3 wrote the file."""
        return self.keras_version.partition(".")[0] == "3"


@dataclass(frozen=True, slots=True)
class Plain:
    """The CPU-ready layers in graphless weights, each as a phrase.

    `whole`: there are no other layers.
    """

    layers: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Graphless:
    """What a reader says of a source that is weights alone.

    `lack` says what is missing, `cure` how the user gives it, "" where nothing can; `expected` names what a
    recurrence may be found by. `needs_gpu`: such weights have run on a GPU alone.
    """

    lack: str = ""
    cure: str = ""
    expected: str = "a graph (.meta), canonical keys or a blob opaque_kernel"
    needs_gpu: bool = True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The origin of a model's values: the stored MetaGraph, and the restored prefix."""

    meta: Any
    prefix: Path


class KerasFile(Enum):
    """A kind of file written by Keras."""

    HDF5 = "Keras 1 or 2, layers or weights alone"
    ARCHIVE = "Keras 3, a whole model"


@dataclass(frozen=True, slots=True)
class LayerCall:
    """A call of a Keras layer in a traced graph: tensors by name, with masks.

    A mask is "" where a tensor has none. `shapes` are those of the inputs as far as they are known, None for
    one of unknown rank. `weights` are variables in the order of Keras. `differences` are the names of what
    the Keras of the file computes otherwise (keras/config/differences.py); `wrapper` has the classes of the
    layers around this one, from the outermost on, joined by /.
    """

    layer: str
    class_name: str
    config: Mapping[str, Any]
    weights: tuple[str, ...]
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]
    masks: tuple[str, ...]
    outputs: tuple[str, ...]
    output_masks: tuple[str, ...]
    differences: frozenset[str]
    wrapper: str


@dataclass(frozen=True, slots=True)
class Model:
    """A source after reading: the graph, the values, and the declared signatures.

    `graph` is a GraphDef, a `graph.Graph` once calls are inlined, or None where the source has weights
    alone; `variables` maps the op name of each variable to its value; `keys` has the keys of those that are
    restored from another.
    `together` says that all signatures belong into one artifact, not that one is to be chosen. `notes` are
    the choices that the reader made. `assets` maps the tensors that hold file names to the files;
    `initializers` are the ops that fill tables once variables are restored.
    `architecture`: what a Keras file says of its layers; such a model has no graph until it is traced.
    `saved`: the `SavedModel` proto of TensorFlow 2 whose functions and objects a SavedModel made of it keeps.
    `plain`: what weights without a graph hold beside cuDNN recurrences; `graphless`: words for such a source.
    `blobs`: the vectors that are parameter blobs whatever their names, with the sizes that the file states.
    `checkpoint`: what the values are restored from, where an op of the file's own does it.
    `kind` is for people; `keras` says which of Keras' own files it is, if one.
    `state_variables`: the ops of variables that hold the states of plain layers, as their layers say.
    `unverified`: what an artifact has of the source though `graph` does not: layers of a user's, functions.
    `calls`: the calls of Keras layers that `graph` was traced from.
    `suspects`: why layers may differ in a format of layers, a line for a failed proof each.
    """

    path: Path
    kind: str
    graph: Any
    variables: Mapping[str, Tensor]
    canonical: tuple[CanonicalParameters, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    together: bool = False
    notes: tuple[str, ...] = ()
    assets: Mapping[str, Path] = field(default_factory=dict)
    initializers: tuple[str, ...] = ()
    architecture: Architecture | None = None
    saved: Any = None
    plain: Plain = Plain()
    graphless: Graphless = Graphless()
    blobs: Mapping[str, PartialSizes] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    keras: KerasFile | None = None
    unverified: tuple[str, ...] = ()
    state_variables: tuple[str, ...] = ()
    calls: tuple[LayerCall, ...] = ()
    suspects: tuple[str, ...] = ()

    @property
    def has_layers(self) -> bool:
        """True for a Keras model, to be traced to a graph."""
        return self.architecture is not None

    @property
    def layers(self) -> Architecture:
        """The layers of a Keras model, the only source with layers."""
        assert self.architecture is not None
        return self.architecture

    @property
    def has_functions(self) -> bool:
        """True for a SavedModel of TensorFlow 2, with functions and objects."""
        return self.saved is not None

    def list_stored_keys(self, parameters: CanonicalParameters) -> list[str]:
        """Return the source's keys of a canonical set's tensors, in order."""
        keys = {id(tensor): key for key, tensor in self.variables.items()}
        return [keys[id(tensor)] for tensor in parameters.tensors.values() if id(tensor) in keys]

    @property
    def is_graphless(self) -> bool:
        """True if the source is weights alone, lacking graph and layers."""
        return self.graph is None and self.architecture is None


@dataclass(frozen=True, slots=True)
class Convention:
    """The differences of a source's weights from TensorFlow's convention.

    `gate_order`: `tf`, `lingvo` (of canonical LSTM kernels) or `miopen`; `forget_bias`: what is added to the
    forget gate's bias of canonical LSTM biases.
    """

    gate_order: str = "tf"
    forget_bias: float = 0.0


#: TensorFlow's own convention.
USUAL: Final = Convention()


@dataclass(frozen=True, slots=True)
class BlobEvidence:
    """The origin of a recurrence's weights: the 1-D parameter blob as stored."""

    blob: Array


@dataclass(frozen=True, slots=True)
class CanonicalEvidence:
    """The origin of a recurrence's weights: canonical tensors, by scope-free key."""

    tensors: Mapping[str, Array]
    dialect: str = "contrib"


#: The runtimes count along an axis in 32 bits.
_LARGEST_SIZE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A cuDNN node of a graph with decoded and checked weights.

    `passage` lists the control-flow nodes (Switch, Enter) that carry the parameters from the variable in the
    root frame to the node, outermost first. `shared` names the parameters' variable: two nodes with the same
    one share their weights. `dropout` is the rate that the node would apply between layers. Large `cells`,
    and the evidence, are read again on each access (`lazy.LazyLayers`).

    Raises InvalidModelError for sizes that no runtime has, and for weights that are no floats.
    """

    node: str
    op: str
    sizes: Sizes
    time_major: bool
    lengths: bool
    dtype: np.dtype[Any]
    cells: Sequence[tuple[Cell, ...]]
    evidence: BlobEvidence | CanonicalEvidence
    shared: str
    passage: tuple[str, ...] = ()
    dropout: float = 0.0
    convention: Convention = USUAL

    def __post_init__(self) -> None:
        where, numbers = "recurrence", (self.sizes.layers, self.sizes.units, self.sizes.input_size)
        if min(numbers) < 1 or max(numbers) > _LARGEST_SIZE:
            expected = f"layers, units and an input size from 1 to {_LARGEST_SIZE}"
            raise InvalidModelError(where, expected=expected, found=" and ".join(map(str, numbers)))
        if not is_float(self.dtype):
            raise InvalidModelError(where, expected="weights of a float type", found=f"{self.dtype}")
