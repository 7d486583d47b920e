"""Makes a checked `Recurrence` of a cuDNN node or a block LSTM.

Sequence lengths that equal the number of steps in each row are dropped. Keras adds them where there is no
mask (keras v3.15.0 src/backend/tensorflow/rnn.py `_cudnn_lstm`).

For the inputs, outputs and weights of a BlockLSTM node see tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM,
BlockLSTMV2. A node that clips, whose weights are no constants, or whose inner values are read at every step
has no fused form in ONNX.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import CudnnConvertError, ReadError, RefusalError, UnsupportedModelError
from cudnn_convert.graph import constant_folding, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, PARAMS, AnyGraph, Index, split, tensor
from cudnn_convert.graph.node_defs import read_attribute
from cudnn_convert.model import USUAL, Array, Cell, Convention, Mode, Model, Recurrence, Sizes
from cudnn_convert.recurrences import parameter_source, weight_copies
from cudnn_convert.recurrences.weight_copies import Facts
from cudnn_convert.weights import layouts, parameter_blob

#: Ops that hand on a tensor of the same number of steps.
_SAME_STEPS: Final = ops.COPIES | {"Cast", "ReverseV2", "ReverseSequence"}


def lengths_are_trivial(index: Index, node: Any) -> bool:
    """Return True if the lengths of a CudnnRNNV3 are `Fill(..., Shape(input)[time])`."""
    inputs = index.data_inputs(node)
    filled = _node(index, inputs[LENGTHS])
    if filled.op != "Fill":
        return False
    steps = _node(index, index.data_inputs(filled)[1])
    if steps.op != "StridedSlice" or not steps.attr["shrink_axis_mask"].i:
        return False
    source, begin, *_ = index.data_inputs(steps)
    shape = _node(index, source)
    time = 0 if is_time_major(node) else 1
    if shape.op != "Shape" or constant_folding.fold_scalar(index, begin) != time:
        return False
    return _root(index, index.data_inputs(shape)[0]) == _root(index, inputs[INPUT])


def _node(index: Index, name: str) -> Any:
    """Return the node of a tensor, looking through Identity."""
    return index.maker(name, ["Identity"])


def _root(index: Index, name: str) -> str:
    """Return the tensor upstream of `name` with the same number of steps."""
    return index.origin(name, _SAME_STEPS)


def recurrences(
    model: Model, graph: Graph, *, copy: str = "auto", convention: Convention = USUAL
) -> tuple[Recurrence, ...]:
    """Decode every cuDNN node of `graph`; `copy` and `convention` as in `weight_copies.take`.

    Raises UnsupportedModelError with all reasons at once.
    """
    reasons: list[str] = []
    decoded: list[Recurrence] = []
    names: parameter_source.Names = {}
    nodes = parameter_source.recurrences(graph.index)
    if nodes:
        _ = graph.shapes  # refuses a graph that TensorFlow cannot import, once for all nodes
    for node in nodes:
        try:
            decoded.append(_recurrence(model, graph, node, names, copy=copy, convention=convention))
        except ReadError:  # a damaged file, whatever the node
            raise
        except RefusalError as error:
            reasons += error.reasons
        except CudnnConvertError as error:
            reasons.append(f"{node.name}: {error}")
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(decoded)


def _recurrence(
    model: Model, graph: Graph, node: Any, names: parameter_source.Names, *, copy: str, convention: Convention
) -> Recurrence:
    """Decode a cuDNN node.

    `names` has the names of computed parameters so far.
    """
    index, time_major = graph.index, is_time_major(node)
    origin = parameter_source.find_parameters(index, node)
    tensors = read_inputs(graph, node)
    facts = describe_node(node, tensors)
    if reasons := [f"{node.name}: {reason}" for reason in _options(facts)]:
        raise UnsupportedModelError(model.path, reasons)
    weights = _weights(model, index, facts, origin, copy=copy, convention=convention)
    misfits = _misfits(tensors, facts, weights.sizes, time_major=time_major)
    if reasons := [f"{node.name}: {reason}" for reason in misfits]:
        raise UnsupportedModelError(model.path, reasons)
    return Recurrence(
        node=node.name,
        op=node.op,
        sizes=weights.sizes,
        time_major=time_major,
        lengths=node.op == "CudnnRNNV3" and not lengths_are_trivial(index, node),
        dtype=facts.dtype,
        cells=weights.cells,
        evidence=weights.evidence,
        shared=parameter_source.parameter_name(names, origin, weights.evidence),
        passage=origin.passage,
        convention=convention,
        dropout=dropout(node),
    )


def _weights(
    model: Model,
    index: Index,
    facts: Facts,
    origin: parameter_source.ParameterRoot,
    *,
    copy: str,
    convention: Convention,
) -> weight_copies.DecodedWeights:
    """Return the weights from `origin`.

    Parameters that the graph computes exist in one copy.
    """
    if origin.computed:
        blob = parameter_source.value(model, index, origin)
        return weight_copies.of_blob(model, facts, origin.op, blob, convention=convention)

    def read() -> Array | None:
        if origin.op in model.variables:
            return model.variables[origin.op].read()
        node = index.nodes[origin.op]
        return np.asarray(tf.make_ndarray(node.attr["value"].tensor)) if node.op == "Const" else None

    return weight_copies.take(model, facts, origin.op, read, copy=copy, convention=convention)


def dropout(node: Any) -> float:
    """Return the dropout rate between layers, 0 outside training mode.

    Training mode is the op's default.
    """
    is_training = read_attribute(node, "is_training").b
    return float(read_attribute(node, "dropout").f) if is_training else 0.0


def _text(node: Any, name: str, default: str) -> str:
    """Return a string attribute, or the default, stripped by SavedModels."""
    return str(node.attr[name].s.decode()) if name in node.attr and node.attr[name].s else default


def is_time_major(node: Any) -> bool:
    """Return True if a cuDNN node's axes are `[time, batch, ...]`, the op's default."""
    return "time_major" not in node.attr or bool(node.attr["time_major"].b)


def read_inputs(graph: Graph, node: Any) -> list[tf.Tensor]:
    """Return the imported inputs of a node.

    A tensor of unknown rank gets the shape of the loop's first iteration.
    """
    tensors = list(graph.shapes.get_operation_by_name(node.name).inputs)
    if all(tensors[position].shape.rank is not None for position in (INPUT, INPUT_H, INPUT_C)):
        return tensors
    initial = graph.first_iteration.get_operation_by_name(node.name).inputs
    pairs = zip(tensors, initial, strict=True)
    return [tensor if tensor.shape.rank is not None else first for tensor, first in pairs]


def describe_node(node: Any, tensors: Any) -> Facts:
    """Return facts from a cuDNN node's attributes and the static shapes of input `tensors`."""
    # Defaults: tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc; which shape gives which number: tensorflow
    # v1.15.0 core/kernels/cudnn_rnn_ops.cc ExtractForwardInput.
    directions = 2 if _text(node, "direction", "unidirectional") == "bidirectional" else 1
    x, h, c = (_dimensions(tensors[k].shape) for k in (INPUT, INPUT_H, INPUT_C))
    depth = h[0 if is_time_major(node) else 1]
    projection = int(node.attr["num_proj"].i) if "num_proj" in node.attr else 0
    if projection and c[2] == projection:
        projection = 0  # cuDNN has no matrix for it: recorded in tests/data/cudnn/tensorflow.json
    return Facts(
        node=node.name,
        mode=Mode(_text(node, "rnn_mode", "lstm")),
        directions=directions,
        layers=None if depth is None else depth // directions,
        units=c[2] if projection else h[2],
        dtype=np.dtype(tf.as_dtype(node.attr["T"].type).as_numpy_dtype),
        input_size=x[2],
        input_mode=_text(node, "input_mode", "linear_input"),
        projection=projection,
    )


def _dimensions(shape: tf.TensorShape) -> list[int | None]:
    """Return the three sizes of an input or a state; all None for another rank."""
    return list(shape.as_list()) if shape.rank == 3 else [None, None, None]


def _options(facts: Facts) -> Iterator[str]:
    """Yield a reason for each node option unsupported by cuDNN."""
    if facts.projection and facts.mode is not Mode.LSTM:
        actual = f"{facts.projection} in a {facts.mode.value}; choose --outputs without it"
        yield f"num_proj: expected 0, for only an LSTM has a projection, found {actual}"
    elif facts.projection > (facts.units or facts.projection):
        actual = f"{facts.projection}; choose --outputs without it"
        yield f"num_proj: expected at most the {facts.units} units, found {actual}"


def _misfits(tensors: Any, facts: Facts, sizes: Sizes, *, time_major: bool) -> Iterator[str]:
    """Yield contradictions between the graph's static shapes and the sizes of the weights."""
    hidden, cell = sizes.states(time_major=time_major)
    wanted = {INPUT: [None, None, sizes.input_size], INPUT_H: hidden, PARAMS: [parameter_blob.length(sizes)]}
    wanted |= {INPUT_C: cell} if sizes.mode is Mode.LSTM else {}
    if weight_copies.skips(facts.input_mode, sizes) != sizes.skip_input:
        message = f"{facts.input_mode} with an input of {sizes.input_size} for {sizes.units} units"
        expected = "expected a mode that fits the input matrices of the weights"
        yield f"input_mode: {expected}, found {message}; are graph and weights of one model?"
    for position, shape in wanted.items():
        static = tensors[position].shape
        if not static.is_compatible_with(shape):
            yield (
                f"{tensors[position].name}: expected shape {shape} by the weights, found {static}; "
                "are graph and weights of one model?"
            )


STEPS, X, C_FIRST, H_FIRST, KERNEL, WCI, WCF, WCO, BIAS = range(9)
#: Outputs: input gate, cell state, forget gate, output gate, new memory, tanh of cell state, hidden state.
CELL_STATES, HIDDEN_STATES, OUTPUTS = 1, 6, 7
_CARRIERS: Final = ops.COPIES | {"Enter"}


@dataclass(frozen=True, slots=True)
class Block:
    """A BlockLSTM node with the weights and the used outputs.

    `clip` is 0 where it is off; `read` are the outputs with readers. `cell` is None where the weights are no
    constants. `last_only`: only the last step of the cell states is read. `full`: the node is known to
    compute all steps of its input.
    """

    node: Any
    inputs: tuple[str, ...]
    layout: layouts.Layout
    dtype: tf.DType
    forget_bias: float
    clip: float
    use_peephole: bool
    read: frozenset[int]
    cell: Cell | None
    last_only: bool
    full: bool


def blocks(graph: Graph, outputs: Iterable[str]) -> list[Block]:
    """Return the BlockLSTM nodes of a graph with the given `outputs`, in graph order."""
    ends = [split(name) for name in outputs]
    return [_block(graph.index, node, ends) for node in graph.node if node.op in ops.BLOCK_LSTMS]


def dtypes(graph: AnyGraph) -> set[tf.DType]:
    """Return the dtypes of the graph's block LSTMs and block cells."""
    fused = ops.BLOCK_LSTMS | ops.BLOCK_CELLS
    return {tf.as_dtype(node.attr["T"].type) for node in graph.node if node.op in fused}


def _block(index: Index, node: Any, ends: list[tuple[str, int]]) -> Block:
    inputs = tuple(index.data_inputs(node))
    first, peephole = node.op == "BlockLSTM", bool(read_attribute(node, "use_peephole").b)
    layout = layouts.BLOCK_LSTM_V1 if first else layouts.BLOCK_LSTM
    forget_bias = read_attribute(node, "forget_bias").f if first else 0.0
    readers = [(reader, k) for reader in index.consumers(node.name) for k in _outputs(reader, node.name)]
    wanted = {k for op, k in ends if op == node.name}
    cell_readers = [reader for reader, k in readers if k == CELL_STATES]
    return Block(
        node=node,
        inputs=inputs,
        layout=layout,
        dtype=tf.as_dtype(node.attr["T"].type),
        forget_bias=forget_bias,
        clip=max(0.0, read_attribute(node, "cell_clip").f),
        use_peephole=peephole,
        read=frozenset(wanted | {k for _, k in readers}),
        cell=_cell(index, inputs, layout, forget_bias=forget_bias, peephole=peephole),
        last_only=CELL_STATES not in wanted and all(_takes_last(index, reader) for reader in cell_readers),
        full=_is_full(index, inputs[STEPS], inputs[X]),
    )


def _outputs(reader: Any, op: str) -> set[int]:
    return {k for source, k in map(split, reader.input) if source == op and k >= 0}


def _cell(
    index: Index, inputs: tuple[str, ...], layout: layouts.Layout, *, forget_bias: float, peephole: bool
) -> Cell | None:
    positions = (KERNEL, BIAS, *((WCI, WCF, WCO) if peephole else ()))
    values = [
        constant_folding.fold_constant(index, _origin(index, inputs[position])) for position in positions
    ]
    known = [value.astype(np.float32) for value in values if value is not None]
    if len(known) < len(values):
        return None
    kernel, bias, *peepholes = known
    stacked = np.stack(peepholes) if peepholes else None
    return layouts.unpack_block(kernel, bias, layout, forget_bias=forget_bias, peepholes=stacked)


def _origin(index: Index, name: str) -> str:
    """Return the tensor before the Enter nodes leading into loops."""
    return index.origin(name, _CARRIERS)


def _takes_last(index: Index, reader: Any) -> bool:
    """Return True if a node is `states[-1]` or `states[-1:]` on the first axis."""
    if reader.op != "StridedSlice":
        return False
    begin, _, stride = (
        constant_folding.fold_constant(index, name) for name in index.data_inputs(reader)[1:4]
    )
    masks = {name: reader.attr[f"{name}_mask"].i & 1 for name in ("begin", "ellipsis", "new_axis")}
    if begin is None or stride is None or any(masks.values()) or begin[0] != -1 or stride[0] != 1:
        return False
    return bool(reader.attr["shrink_axis_mask"].i & 1 or reader.attr["end_mask"].i & 1)


def _is_full(index: Index, steps: str, x: str) -> bool:
    """Return True if `steps` is `cast(shape(x)[0])`.

    TensorFlow 1's fused cell writes it so without lengths.
    """
    node = index.maker(_origin(index, steps), ["Cast"])
    if node.op != "StridedSlice" or not node.attr["shrink_axis_mask"].i & 1:
        return False
    begin = constant_folding.fold_constant(index, tensor(node.input[1]))
    shape = index.nodes[split(node.input[0])[0]]
    same = shape.op == "Shape" and _origin(index, tensor(shape.input[0])) == _origin(index, x)
    return bool(same and begin is not None and begin.tolist() == [0] and not node.attr["begin_mask"].i)
