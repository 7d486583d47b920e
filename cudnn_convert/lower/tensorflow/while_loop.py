"""Lowers a direction of a layer to a `while` loop, with several steps an iteration.

`cell_steps` has one step of each cell, and the part that is computed for all steps before the loop: the
input's product. Sequences are `[time, batch, columns]`; rows may have lengths, and `lengths=None` means full
rows.

To share TensorFlow's cost of an iteration among several steps, a first loop takes `together[0]` steps an
iteration, the next loops fewer, the last one step. They run op after op on one thread, without TensorFlow's
scheduler. A single step, as in streaming, needs no loop. A loop alone is plain, with one step an iteration,
as TensorFlow Lite's converter takes it.

Each tensor that a loop carries or reads costs three ops an iteration, so it carries no second counter.
Source: tensorflow v2.21.0 core/common_runtime/lower_while_op.cc (what is read goes round with what is
carried).

The steps of an iteration are traced once, then copied as nodes. Tracing an op in Python takes TensorFlow
about a millisecond, importing a node some 30 microseconds, and an iteration of a loop has up to 16 steps of a
dozen ops each. Constants are shared by all copies. Run eagerly, a step is called as it is.

    step:      sum = AddV2(row, h); new = Tanh(sum)
    two steps: 0/sum = AddV2(row_0, h), 0/new = Tanh(0/sum), 1/sum = AddV2(row_1, 0/new), 1/new = Tanh(1/sum)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import NodeDef, reference, split, tensor
from cudnn_convert.graph.node_defs import copy_node
from cudnn_convert.model import Array, Cell, Gate, Mode, Sizes
from cudnn_convert.private import tf_private
from cudnn_convert.weights import layouts

#: The hidden state `[batch, width]`, which is also a step's output, and for an LSTM the cell state.
State = tuple[Any, ...]
#: `(x, matrix) -> x @ matrix`.
Multiply = Callable[[Any, Any], Any]
#: `(rows of each sum, old state) -> new state`; with `multiply=` its products are computed by a `Multiply`.
Step = Callable[..., State]
#: `(rows of each step, first state) -> the state after each step`.
Steps = Callable[[Iterable[Sequence[Any]], State], list[State]]
_SCOPE: Final = "steps"


def unroll_traced(step: Step, rows: Sequence[Any], state: Sequence[Any]) -> Steps:
    """Return a function repeating `step`, with TensorSpecs `rows` and `state` for arguments."""
    return unroll_in_python(step) if tf.executing_eagerly() else _Traced.of(step, rows, state)


def unroll_in_python(step: Step) -> Steps:
    """Return a function calling `step` again and again."""

    def repeat(rows: Iterable[Sequence[Any]], state: State) -> list[State]:
        states = []
        for given in rows:
            state = step(given, state)
            states.append(state)
        return states

    return repeat


@dataclass(frozen=True, slots=True)
class _Traced:
    """A step as nodes.

    All copies share those named in `constants`. `inputs` are its placeholders: rows, state, then one for each
    of the tensors `outer`, which it reads from outside. `outputs` are tensors `op:k`.
    """

    nodes: tuple[NodeDef, ...]
    constants: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    outer: tuple[Any, ...]
    versions: Any

    @classmethod
    def of(cls, step: Step, rows: Sequence[Any], state: Sequence[Any]) -> _Traced:
        def flat(*given: Any) -> State:
            return step(given[: len(rows)], given[len(rows) :])

        concrete = tf.function(flat, autograph=False).get_concrete_function(*rows, *state)
        definition = concrete.graph.as_graph_def()
        inputs = tuple(split(item.name)[0] for item in concrete.inputs)
        # A function adds an Identity to each output.
        ends = {item.op.name for item in concrete.outputs}
        nodes = tuple(node for node in definition.node if node.name not in {*inputs, *ends})
        constants = frozenset(node.name for node in nodes if node.op == "Const")
        outputs = tuple(item.op.inputs[0].name for item in concrete.outputs)
        outer = tuple(concrete.captured_inputs)
        return cls(nodes, constants, inputs, outputs, outer, definition.versions)

    def __call__(self, rows: Iterable[Sequence[Any]], state: State) -> list[State]:
        graph = graph_pb2.GraphDef(versions=self.versions)
        given: dict[str, Any] = {}

        def give(kind: str, values: Iterable[Any]) -> list[str]:
            names = {f"{kind}_{k}": _within(value) for k, value in enumerate(values)}
            given.update(names)
            return [*names]

        outer, now = give("outer", self.outer), give("state", state)
        after = []
        for number, row in enumerate(rows):
            inputs = dict(zip(self.inputs, [*give(f"row_{number}", row), *now, *outer], strict=True))
            graph.node.extend(self._copy(inputs, number))
            now = [self._rename(name, inputs, number) for name in self.outputs]
            after.append(now)
        read = {name for node in graph.node for name in node.input}
        wanted = [tensor(name) for state_names in after for name in state_names if name not in given]
        taken = {tensor(name): value for name, value in given.items() if name in read}
        results = tf.import_graph_def(graph, taken, wanted, name=_SCOPE)
        values = given | dict(zip(map(reference, wanted), results, strict=True))
        return [tuple(values[name] for name in state_names) for state_names in after]

    def _copy(self, inputs: Mapping[str, str], number: int) -> Iterator[NodeDef]:
        for node in self.nodes:
            if number and node.name in self.constants:
                continue
            sources = [self._rename(source, inputs, number) for source in node.input]
            yield copy_node(node, name=self._rename(node.name, inputs, number), inputs=sources)

    def _rename(self, name: str, inputs: Mapping[str, str], number: int) -> str:
        """Return the name of a step's tensor or node in a copy."""
        op, _ = split(name)
        if op in inputs:
            return inputs[op]
        return f"{0 if op in self.constants else number}/{reference(name)}"


def _within(value: Any) -> Any:
    """Return a tensor in the graph of the traced function.

    An import does not take it there.
    """
    return value if value.graph is tf.compat.v1.get_default_graph() else tf.identity(value)


def backwards(x: Any, lengths: Any) -> Any:
    """Reverse time inside each row's valid part."""
    return tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, 0, 1)


def alive(x: Any, lengths: Any) -> Any:
    """Return the `[time, batch, 1]` mask of steps within each row's length."""
    return tf.transpose(tf.sequence_mask(lengths, tf.shape(x)[0]))[:, :, None]


def at_end(first: Any, steps: Any, lengths: Any) -> Any:
    """Return each row's final state: `first` for length 0, else the last valid step."""
    if lengths is None:
        return tf.concat([first[None], steps[-1:]], 0)[-1]
    rows = tf.range(tf.shape(first)[0])
    return tf.gather_nd(tf.concat([first[None], steps], 0), tf.stack([lengths, rows], 1))


def times(x: Any, matrix: Any, bias: Any = None) -> Any:
    """Compute `x [time, batch, inputs] @ matrix [inputs, outputs] + bias [outputs]`, multiplying once."""
    time, batch = tf.shape(x)[0], tf.shape(x)[1]
    rows = tf.reshape(x, tf.stack([time * batch, matrix.shape[0]]))
    return tf.reshape(affine(rows, matrix, bias), tf.stack([time, batch, matrix.shape[1]]))


def affine(x: Any, matrix: Any, bias: Any = None, multiply: Multiply = operator.matmul) -> Any:
    """Compute `x [rows, inputs] @ matrix [inputs, outputs] + bias [outputs]`.

    TensorFlow fuses a product and a BiasAdd on a CPU, but not a product and another sum. A fused product of
    one row stays on its thread; a large one that is not wakes a second thread, which may take longer than a
    call.
    Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc, its patterns; the rest is measured.
    """
    product = multiply(x, matrix)
    return product if bias is None else tf.nn.bias_add(product, bias)


#: The most multiplications of a product of one row that MatMul leaves on one thread, if it fuses no bias.
_UNSHARED: Final = 128 * 128
#: The type of SparseMatMul's kernel for dense matrices.
_SPARSE_MATMUL_TYPE: Final = tf.float32


def _multiply_unshared(h: Any, matrix: Any) -> Any:
    """Compute `h [rows, units] @ matrix [units, columns]`, a single row on a single thread.

    MatMul shares a single row's product among threads if it is large and no bias is fused, as in the loops of
    `tf.saved_model.load`, and wakes a second thread at each step: u1 of `scripts/bench` took 3 times as long
    for a GRU with two threads. SparseMatMul, whose matrices are dense by default, does not.
    Source: tensorflow v2.21.0 core/kernels/matmul_op_impl.h LaunchBatchMatMul, kMaxCostOuterParallelism;
    sparse_matmul_op.cc Compute, which leaves dense matrices to Eigen.
    """
    units, columns = matrix.shape
    if units * columns <= _UNSHARED or matrix.dtype != _SPARSE_MATMUL_TYPE:
        return h @ matrix
    return tf.raw_ops.SparseMatMul(a=h, b=matrix)


def _place_bias(bias: Any, *, plain: bool) -> tuple[Any, Any]:
    """Return the bias of the input's product and of the state's product.

    One of them is `bias`, the other is None. Added to the input's, for all steps at once, it is cheaper. A
    plain loop adds it to the state's, which TensorFlow then fuses with it, and so do types whose products
    would be shared (`_multiply_unshared`).
    """
    return (None, bias) if plain or bias.dtype != _SPARSE_MATMUL_TYPE else (bias, None)


_ACTIVATIONS: Final[dict[Mode, Callable[[Any], Any]]] = {Mode.RNN_TANH: tf.tanh, Mode.RNN_RELU: tf.nn.relu}
#: A GRU's kernel, recurrent kernel, bias and recurrent bias, each with the columns of all gates.
_WHOLE: Final = 4

#: The input's part of each sum, `[time, batch, columns]`, and the step that takes one row of each.
CellSteps = tuple[Sequence[Any], Step]


def weights(cell: Cell) -> dict[str, Array]:
    """Return the arrays for `cell_steps` by name, in order.

    A GRU's candidate has separate matrices: slicing the columns of a product would copy them.
    """
    kernel, recurrent = layouts.columns(cell, layouts.LOOP)
    if cell.mode is not Mode.GRU:
        projected = zip(["projection"], layouts.projection_columns(cell), strict=False)
        bias = layouts.sum_biases(cell, layouts.LOOP)
        return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias, **dict(projected)}
    bias, recurrent_bias = layouts.biases(cell, layouts.LOOP)
    count = 2 * recurrent.shape[1] // 3
    gates, candidate = slice(count), slice(count, None)
    return {
        "gates_kernel": kernel[:, gates],
        "gates_recurrent_kernel": recurrent[:, gates],
        "gates_bias": bias[gates] + recurrent_bias[gates],
        "candidate_kernel": kernel[:, candidate],
        "candidate_recurrent_kernel": recurrent[:, candidate],
        "candidate_bias": bias[candidate],
        "candidate_recurrent_bias": recurrent_bias[candidate],
    }


def shapes(sizes: Sizes, layer: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's `weights`.

    No array is made.
    """
    inputs, units, width = sizes.inputs(layer), sizes.units, sizes.width
    if sizes.mode is not Mode.GRU:
        columns = len(sizes.mode.gates) * units
        projected = {"projection": (units, width)} if sizes.projection else {}
        return {
            "kernel": (inputs, columns),
            "recurrent_kernel": (width, columns),
            "bias": (columns,),
            **projected,
        }
    return {
        "gates_kernel": (inputs, 2 * units),
        "gates_recurrent_kernel": (units, 2 * units),
        "gates_bias": (2 * units,),
        "candidate_kernel": (inputs, units),
        "candidate_recurrent_kernel": (units, units),
        "candidate_bias": (units,),
        "candidate_recurrent_bias": (units,),
    }


def cell_steps(
    mode: Mode,
    x: Any,
    arrays: Sequence[Any],
    layout: layouts.Layout,
    *,
    plain: bool = True,
    times: Callable[..., Any] = times,
) -> CellSteps:
    """Return the steps of a pseudo-layer, gates in `layout` order, a GRU's candidate last.

    `plain`: for a plain loop, which differs in where biases are added (`_place_bias`). `times` computes the
    product of all inputs at once, with the arguments of the function of that name.
    """
    order = layout.gates[mode]
    if mode is Mode.GRU:
        make = _whole_gru if len(arrays) == _WHOLE else partial(_gru, plain=plain)
        return make(x, order, *arrays, times=times)
    kernel, recurrent, bias, *projection = arrays
    step = partial(_lstm, order) if mode is Mode.LSTM else partial(_rnn, _ACTIVATIONS[mode])
    bias, state_bias = _place_bias(bias, plain=plain)
    return [times(x, kernel, bias)], partial(step, recurrent, state_bias, *projection)


def _rnn(
    activation: Callable[[Any], Any],
    recurrent: Any,
    bias: Any,
    *rest: Any,
    multiply: Multiply = operator.matmul,
) -> State:
    """Compute a step of a plain RNN; `rest` is the rows, the state."""
    (part,), (h,) = rest
    return (activation(part + affine(h, recurrent, bias, multiply)),)


def _lstm(
    order: Sequence[Gate], recurrent: Any, bias: Any, *rest: Any, multiply: Multiply = operator.matmul
) -> State:
    """Compute an LSTM step; `rest` is an optional projection, the rows, the state."""
    *projection, (sums,), (h, c) = rest
    gates = _activate(sums + affine(h, recurrent, bias, multiply), order)
    c = gates[Gate.FORGET] * c + gates[Gate.INPUT] * gates[Gate.CELL]
    h = gates[Gate.OUTPUT] * tf.tanh(c)
    return multiply(h, projection[0]) if projection else h, c


def _gru(x: Any, order: Sequence[Gate], *arrays: Any, plain: bool, times: Callable[..., Any]) -> CellSteps:
    kernel, recurrent, bias, *candidate = arrays
    candidate_kernel, candidate_recurrent, candidate_bias, candidate_recurrent_bias = candidate
    bias, state_bias = _place_bias(bias, plain=plain)

    def step(rows: Sequence[Any], state: State, multiply: Multiply = operator.matmul) -> State:
        h = state[0]
        gates = rows[0] + affine(h, recurrent, state_bias, multiply)
        candidate_h = affine(h, candidate_recurrent, candidate_recurrent_bias, multiply)
        return _apply_gates(order, gates, rows[1], candidate_h, h)

    return [times(x, kernel, bias), times(x, candidate_kernel, candidate_bias)], step


def _whole_gru(x: Any, order: Sequence[Gate], *arrays: Any, times: Callable[..., Any]) -> CellSteps:
    kernel, recurrent, bias, recurrent_bias = arrays
    sizes = [2 * recurrent.shape[0], recurrent.shape[0]]

    def step(rows: Sequence[Any], state: State, multiply: Multiply = operator.matmul) -> State:
        h = state[0]
        gates, candidate_h = tf.split(affine(h, recurrent, recurrent_bias, multiply), sizes, 1)
        return _apply_gates(order, rows[0] + gates, rows[1], candidate_h, h)

    return tf.split(times(x, kernel, bias), sizes, 2), step


def _apply_gates(order: Sequence[Gate], gates: Any, candidate: Any, candidate_h: Any, h: Any) -> State:
    gate = dict(zip(order, tf.split(tf.sigmoid(gates), 2, 1), strict=False))
    n = tf.tanh(candidate + gate[Gate.RESET] * candidate_h)
    return (n + gate[Gate.UPDATE] * (h - n),)


def _activate(sums: Any, order: Sequence[Gate]) -> dict[Gate, Any]:
    """Apply an LSTM's activations; adjacent sigmoid gates share a single op."""
    units = sums.shape[1] // len(order)
    runs = [list(run) for _, run in groupby(order, key=partial(operator.is_, Gate.CELL))]
    results: dict[Gate, Any] = {}
    for run, part in zip(runs, tf.split(sums, [len(run) * units for run in runs], 1), strict=True):
        active = tf.tanh(part) if run == [Gate.CELL] else tf.sigmoid(part)
        results |= zip(run, tf.split(active, len(run), 1) if len(run) > 1 else [active], strict=True)
    return results


#: `together` of a plain loop.
PLAIN: Final = (1,)


def layer(
    mode: Mode,
    x: Any,
    state: State,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    layout: layouts.Layout = layouts.LOOP,
    together: Sequence[int] = PLAIN,
    many: int | None = None,
    single: bool = True,
) -> tuple[Any, Any, Any]:
    """Compute a pseudo-layer: `y [time, batch, width]` and the final states.

    `together`: the steps an iteration of successive loops, ending in 1. `many`: the batch from which a plain
    loop is run in their place. `single`: whether there may then be one step, which is taken without a loop.
    """
    sums, step = cell_steps(mode, x, arrays, layout, plain=tuple(together) == PLAIN)
    walk = partial(_walk, x, backward=backward, together=together, many=many, single=single)
    if lengths is None:
        return walk(sums, step, state)
    now = alive(x, lengths)
    y, h, c = walk([*sums, now], _mask_rows(step), state)
    return tf.where(now, y, tf.zeros_like(y)), h, c


def _mask_rows(step: Step) -> Step:
    """Return a step with the mask as last row: rows outside keep the state."""

    def step_rows(rows: Sequence[Any], old: State, **named: Any) -> State:
        *rows, now = rows
        new = step(rows, old, **named)
        return tuple(tf.where(now, value, other) for value, other in zip(new, old, strict=True))

    return step_rows


def _walk(
    x: Any,
    sums: Sequence[Any],
    step: Step,
    state: State,
    *,
    backward: bool,
    together: Sequence[int],
    many: int | None,
    single: bool,
) -> tuple[Any, Any, Any]:
    """Run the steps.

    Branches ask for the shape of the input `x`: its products need not be ready, so those of a single step run
    beside each other. With the plain loop, TensorFlow makes Switch nodes of all branches but the one that
    runs on one thread, which therefore does not have the single step in it.
    """
    if tuple(together) == PLAIN:
        plain = unroll_in_python(step)
        return _loop(sums, plain, state, backward=backward, together=together)
    shape = tf.shape(x)
    rows = [tf.TensorSpec([None, part.shape[2]], part.dtype) for part in sums]
    specs = [tf.TensorSpec([None, part.shape[1]], part.dtype) for part in state]
    steps = unroll_traced(_on_cpu(partial(step, multiply=_multiply_unshared)), rows, specs)

    def loops() -> tuple[Any, Any, Any]:
        return _loop(sums, steps, state, backward=backward, together=together)

    def loops_if(taken: Any, other: Callable[[], Any]) -> Any:
        y, h, c = tf.cond(taken, loops, other)
        if not tf.executing_eagerly():
            tf_private.run_on_one_thread(y.op)
        return y, h, c

    def take_one() -> tuple[Any, Any, Any]:
        (new,) = steps([[rows[0] for rows in sums]], state)
        return new[0][None], new[0], new[-1]

    def take_none() -> tuple[Any, Any, Any]:
        none = tf.zeros(tf.stack([0, shape[1], state[0].shape[1]]), state[0].dtype)
        return none, tf.identity(state[0]), tf.identity(state[-1])

    def few_rows() -> Any:
        loops_or_none = partial(loops_if, shape[0] > 0, take_none)
        return tf.cond(tf.equal(shape[0], 1), take_one, loops_or_none) if single else loops_or_none()

    def plain_loop() -> tuple[Any, Any, Any]:
        return _loop(sums, unroll_in_python(step), state, backward=backward, together=PLAIN)

    if many is None:
        y, h, c = loops_if(tf.not_equal(shape[0], 1), take_one)
    else:
        y, h, c = tf.cond(shape[1] < many, few_rows, plain_loop)
    return tf.ensure_shape(y, [None, None, state[0].shape[1]]), h, c


def _on_cpu(step: Step) -> Step:
    """Bind a step's nodes to the CPU, to let TensorFlow fuse products and biases.

    In the function of a branch only the nodes state their device. XLA, whose loop is plain, has no such op.
    Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc NodeIsOnCpu.
    """

    def step_on_cpu(rows: Sequence[Any], state: State) -> State:
        with tf.device(node_defs.ON_CPU):
            return step(rows, state)

    return step_on_cpu


def _loop(
    sums: Sequence[Any], steps: Steps, state: State, *, backward: bool, together: Sequence[int]
) -> tuple[Any, Any, Any]:
    """Run successive loops, with the steps an iteration given by `together`."""
    time, batch, width = tf.shape(sums[0])[0], tf.shape(sums[0])[1], state[0].shape[1]
    known = [tf.TensorShape([])] * 2 + [tf.TensorShape([None, part.shape[1]]) for part in state]

    def body(items: _List, done: Any, item: Any, handle: Any, *state: Any) -> tuple[Any, ...]:
        count = items.count
        since = item if count == 1 else item * count
        since = since if done is None else since + done
        first = time - count - since if backward else since
        rows = _order(zip(*(_rows(part, first, count) for part in sums), strict=True), backward)
        states = steps(rows, state)
        at = items.items - 1 - item if backward else item
        given = _order((new[0] for new in states), backward)
        return item + 1, items.put(handle, at, given), *states[-1]

    parts, items, done = [], None, None  # `done`: the steps before a loop; None is 0
    for count in together:
        if items is not None:
            done = items.steps if done is None else done + items.steps
        rest = time if done is None else time - done
        items = _List.reserve(sums[0].dtype, rest if count == 1 else rest // count, count, [batch, width])
        carried = [tf.constant(0), items.handle, *state]
        ends = tf.while_loop(items.has, partial(body, items, done), carried, shape_invariants=[*known])
        if len(together) > 1 and not tf.executing_eagerly():
            tf_private.run_on_one_thread(ends[0].op)
        _, handle, *state = ends
        parts.append(items.join(handle))
    y = parts[0] if len(parts) == 1 else tf.concat(_order(parts, backward), 0)
    return _keep_width(y, width), state[0], state[-1]


def _keep_width(y: Any, width: int) -> Any:
    """Return `y [time, batch, width]` with a known static width.

    A plain loop needs no op for that. TensorFlow.js cannot run EnsureShape: it takes the shape from a second
    input, which the op does not have.
    Source: @tensorflow/tfjs-converter 4.22.0 dist/operations/op_list/transformation.js EnsureShape.
    """
    is_known = y.shape.rank is not None and y.shape[-1] == width
    return y if is_known else tf.ensure_shape(y, [None, None, width])


def _rows(sums: Any, first: Any, count: int) -> list[Any]:
    return [sums[first]] if count == 1 else tf.unstack(sums[first : first + count], count)


def _order(values: Iterable[Any], backward: bool) -> list[Any]:
    return [*values][:: -1 if backward else 1]


@dataclass(frozen=True, slots=True)
class _List:
    """A TensorList of `items`, each `[count, batch, width]`, or `[batch, width]` for a single step.

    `steps`: how many all items have.

    Each loop has a list, so that its items have one size. The op that joins items of several sizes keeps a
    shape between calls in TensorFlow 1.15, where concurrent calls ended in errors or crashed the process.
    Source: tensorflow v1.15.0 core/kernels/list_kernels.h TensorListConcat, element_shape_except_first_dim_.
    """

    handle: Any
    items: Any
    steps: Any
    count: int
    shape: Any
    dtype: Any

    @classmethod
    def reserve(cls, dtype: Any, items: Any, count: int, step: Sequence[Any]) -> _List:
        # The shape is passed at run time: without a step no item would give it for an empty result.
        shape = tf.stack(step if count == 1 else [count, *step])
        steps = items if count == 1 else items * count
        handle = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=items, element_dtype=dtype)
        return cls(handle, items, steps, count, shape, dtype)

    def has(self, item: Any, *_: Any) -> Any:
        return item < self.items

    def put(self, handle: Any, at: Any, steps: Sequence[Any]) -> Any:
        item = steps[0] if self.count == 1 else tf.stack(steps)
        return tf.raw_ops.TensorListSetItem(input_handle=handle, index=at, item=item)

    def join(self, handle: Any) -> Any:
        """Return the list's steps as `[time, batch, width]`."""
        items = tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=self.shape, element_dtype=self.dtype
        )
        if self.count == 1:
            return items
        return tf.reshape(items, tf.stack([self.steps, self.shape[1], self.shape[2]]))
