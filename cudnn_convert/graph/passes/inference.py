"""Simplifies a graph for inference: dropout, dead branches, reserve space, loop invariants.

Each pass takes a graph and returns one, the same where nothing changes; names keep their meaning.

`simplify_for_inference`: removes placeholders with a default, branches never taken, and dropout at rate 0.

    before:  s = Switch(x, false); m = Merge(f(s:0), g(s:1)); d = Mul(m, Floor(1 + RandomUniform))
    after:   s = Identity(x); m = Identity(f(s)); d = Identity(m)

`bind_stored_flags`: takes flags and rates that are variables at their values in the file.

    before:  is_train = VariableV2; pred = Identity(is_train); s = Switch(x, pred)
    after:   pred = Const(false); s = Switch(x, pred)

`drop_reserve_space`: removes what a cuDNN node keeps for its gradient, which inference does not need.
Source: tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc (reserve_space of type T, host_reserved of int8).

    before:  stack = StackPush(CudnnRNN:3)
    after:   CudnnRNN/reserved_3 = Const([], ^CudnnRNN); stack = StackPush(CudnnRNN/reserved_3)

`hoist_loop_invariants`: reads a loop variable that does not change from one constant Enter, as TensorFlow 1
writes its loops. A While of TensorFlow 2 makes all that its body reads loop variables. As Switch and Merge
nodes, such a variable hides its shape, and that a recurrence's weights are the same in every step.
Source: tensorflow v2.21.0 core/common_runtime/lower_while_op.cc; core/ops/control_flow_ops.cc (Enter with
`is_constant` keeps the shape).

    before:  e = Enter(w); m = Merge(e, next); s = Switch(m, cond); f(s:1); next = NextIteration(s:1)
    after:   the same, but f(e/constant), and e/constant = Enter(w, is_constant=True)

`separate_sums`: keeps TensorFlow from fusing `rsqrt(mean + constant)` and the ops around it on CPUs. It does
so where the other parts are constants or the input has a known rank, and the fused op's epsilon is always
0.001. Subtracting the negated constant gives the same bits, and is not fused.
Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc FindMklLayerNorm, AddMklLayerNorm.

    before:  sum = AddV2(Mean, epsilon); Rsqrt(sum)
    after:   sum = Sub(Mean, epsilon/negated); Rsqrt(sum)

`copy_strides_into_loops`: gives a StridedSlice in a loop strides that are a constant. TensorFlow knows no
rank of a slice whose strides come through an Enter, as in vectorized_map and TimeDistributed of Keras 3.
Source: tensorflow v2.21.0 core/ops/array_ops.cc StridedSlice.

    before:  strides = Enter(Const); y = StridedSlice(x, begin, end, strides)
    after:   y/strides = Const(^strides); y = StridedSlice(x, begin, end, y/strides)

`fold_quantized_weights`: replaces weights in 8 bits, as TensorFlow 1's `quantize_weights` stored them, by the
floats that they stand for. Recurrences are read from variables and constants alone, and ONNX has no such op.
Source: tensorflow v1.15.0 tools/graph_transforms/quantize_weights.cc.

    before:  w = Dequantize(Const, min, max); y = MatMul(x, w)
    after:   w = Const; y = MatMul(x, w)

`drop_waits`: removes the control inputs of nodes that have data inputs, in a graph without side effects.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import constant_folding, node_defs, ops
from cudnn_convert.graph.graph import Graph, extract_nodes, import_checked, open_session, prune, replace_nodes
from cudnn_convert.graph.index import OUTPUTS, Index, NodeDef, reference, split, tensor, unique
from cudnn_convert.graph.node_defs import copy_node, redirect
from cudnn_convert.graph.passes.run import Keep, Pass, run_passes
from cudnn_convert.text import first_line


def simplify_for_inference(graph: Graph, outputs: Keep) -> Graph:
    """Remove defaults, dead branches and dropout at rate 0; prune to the tensors `outputs`."""
    return run_passes(graph, SIMPLIFYING, outputs)


def _replace_defaults(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each remaining PlaceholderWithDefault by the default."""
    changes = {
        node.name: node_defs.identity(node.name, node.input[0], node.attr["dtype"].type)
        for node in graph.node
        if node.op == "PlaceholderWithDefault"
    }
    return replace_nodes(graph, changes)


def bind_stored_flags(graph: Graph, stored: Mapping[str, float]) -> tuple[Graph, list[str]]:
    """Bind predicates and dropout rates computed from variables to the file's values.

    `stored` has the values of scalar variables by op. Returns the graph and the variables that count.
    """
    index, changes = graph.index, {}
    decided = [tensor(node.input[1]) for node in graph.node if node.op in ops.SWITCHES]
    masks = (mask(index, f"{node.name}:0") for node in graph.node if node.op in MASKS)
    used: dict[str, None] = {}
    for name in dict.fromkeys([*decided, *(mask_[0] for mask_ in masks if mask_)]):
        origin = index.origin(name, ops.PASSAGES)
        needed = index.ancestors([split(origin)[0]], control=False, stop=stored) & stored.keys()
        value = constant_folding.fold_constant(index, origin, stored) if needed else None
        op = split(origin)[0]
        if value is not None and op not in stored and origin.endswith(":0"):
            changes[op] = node_defs.constant(op, value)
            used |= dict.fromkeys(sorted(needed))
    return replace_nodes(graph, changes), [*used]


def drop_dead_branches(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Switch on a constant, and the Merge, by identities; drop dead sides."""
    index, changes = graph.index, {}
    predicates = {node.name: tensor(node.input[1]) for node in graph.node if node.op in ops.SWITCHES}
    known = {name: constant_folding.fold_scalar(index, name) for name in sorted({*predicates.values()})}
    decided = {switch: known[name] for switch, name in predicates.items() if known[name] is not None}
    dead = {f"{switch}:{0 if value else 1}" for switch, value in decided.items()}
    if not dead:
        return graph
    _spread(index, dead)
    moved = {}
    for node in graph.node:
        inputs = index.data_inputs(node)
        live = [name for name in inputs if name not in dead]
        if node.op == "Merge" and len(live) == 1 < len(inputs):
            changes[node.name] = node_defs.identity(node.name, reference(live[0]), node.attr["T"].type)
        elif node.op in ops.SWITCHES and {f"{node.name}:0", f"{node.name}:1"} & dead:
            changes[node.name] = node_defs.identity(node.name, node.input[0], node.attr["T"].type)
            if node.op == "RefSwitch":
                changes[node.name].op = "RefIdentity"  # an assignment behind it needs the reference
            moved[f"{node.name}:1"] = node.name  # an Identity has one output, whichever side lives
    # The predicate of an inner branch passes a Switch of the outer one, and is known only without it.
    nodes = (redirect(node, moved) for node in replace_nodes(graph, changes).node)
    return drop_dead_branches(Graph(graph, nodes))


def _spread(index: Index, dead: set[str]) -> None:
    """Add to `dead` all outputs impossible to compute.

    A Merge is dead only if all its inputs are, or all that enter its loop: the next iteration needs one
    before. An op that waits for a dead op is dead too: a control edge alone ties a constant to its branch.
    """
    todo = [split(name) for name in dead]
    while todo:
        op, k = todo.pop()
        for node in index.consumers(op, k):
            if node.op == "Merge" and any(name not in dead for name in _list_begins(index, node)):
                continue
            outputs = [f"{node.name}:{j}" for j in {0, *index.outputs_read(node.name)}]
            if not dead.issuperset(outputs):
                todo += [*(split(name) for name in outputs), (node.name, -1)]
            dead.update(outputs)


def _list_begins(index: Index, merge: NodeDef) -> list[str]:
    """List the inputs of a Merge, except from a loop's next iteration."""
    inputs = index.data_inputs(merge)
    return [name for name in inputs if index.nodes[split(name)[0]].op not in ops.NEXT_ITERATIONS]


def _drop_dropout(graph: Graph, _: Keep = ()) -> Graph:
    """Replace `x * mask` by `x` where the mask is dropout's at rate 0."""
    index, changes = graph.index, {}
    for node in graph.node:
        for position in (0, 1) if node.op == "Mul" else ():
            if always_one(index, tensor(node.input[position])):
                other = node.input[1 - position]
                changes[node.name] = node_defs.identity(node.name, other, node.attr["T"].type)
    return replace_nodes(graph, changes)


#: A default may decide a branch, and a branch may hold dropout: each sees what the pass before it left.
SIMPLIFYING: Final[tuple[Pass, ...]] = (
    _replace_defaults,
    prune,
    drop_dead_branches,
    prune,
    _drop_dropout,
    prune,
)


#: The op that makes a mask of random numbers; the Cast behind it would name the same mask again.
MASKS: Final = frozenset({"Floor", "GreaterEqual"})


def always_one(index: Index, name: str) -> bool:
    """Return True if a tensor is dropout's mask at rate 0.

    Floor(keep_prob + uniform) with keep_prob 1 (tensorflow v1.12.0 python/ops/nn_ops.py dropout), or
    Cast(uniform >= rate) with rate 0 (v1.15.0 dropout_v2); uniform lies in [0, 1).
    """
    mask_ = mask(index, name)
    return mask_ is not None and constant_folding.fold_scalar(index, mask_[0]) == mask_[1]


def mask(index: Index, name: str) -> tuple[str, int] | None:
    """Return the rate tensor of a dropout mask, and the rate's neutral value.

    That is the value without dropout. Returns None where a tensor is no such mask.
    """
    node = index.nodes[split(name)[0]]
    if node.op == "Cast":
        node = index.nodes[split(node.input[0])[0]]
    if node.op == "Floor":
        node, neutral = index.nodes[split(node.input[0])[0]], 1
        if node.op not in ops.SUMS:
            return None
    elif node.op == "GreaterEqual":
        neutral = 0
    else:
        return None
    sides = index.data_inputs(node)[:2]
    uniform = [is_uniform(index, side) for side in sides]
    if sum(uniform) != 1 or (neutral == 0 and not uniform[0]):
        return None
    return sides[uniform.index(False)], neutral


def is_uniform(index: Index, name: str) -> bool:
    """Return True if a tensor is `random_uniform(...)` over [0, 1).

    Its form is `RandomUniform * (1 - 0) + 0`. Variational dropout draws it before the loop that takes it
    (tensorflow v1.15.0 python/ops/rnn_cell_impl.py DropoutWrapper, `variational_recurrent`).
    """
    node = index.maker(name, ops.PASSAGES | ops.IDENTITIES)
    neutral = {"Add": 0, "AddV2": 0, "Mul": 1}.get(node.op)
    if neutral is None:
        return str(node.op) == "RandomUniform"
    first, other = index.data_inputs(node)
    return any(
        is_uniform(index, drawn) and constant_folding.fold_scalar(index, fixed) == neutral
        for drawn, fixed in ((first, other), (other, first))
    )


_HOST: Final = 4


def drop_reserve_space(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Replace reserve space unused by the tensors `outputs` with empty constants.

    A loop that was made for gradients too collects it beside its results.
    """
    index, ends = graph.index, {split(name)[0] for name in outputs}
    moved: dict[str, str] = {}
    empty = []
    for node in graph.node:
        for k in (OUTPUTS, _HOST) if node.op in ops.CUDNN else ():
            readers = [reader.name for reader in index.consumers(node.name, k)]
            if readers and not index.descendants(readers) & ends:
                dtype = np.int8 if k == _HOST else tf.as_dtype(node.attr["T"].type).as_numpy_dtype
                name = moved[f"{node.name}:{k}"] = unique(f"{node.name}/reserved_{k}", index.nodes)
                # The edge puts it into the node's frame.
                empty.append(node_defs.constant(name, np.zeros(0, dtype), control=[f"^{node.name}"]))
    return Graph(graph, [*(redirect(node, moved) for node in graph.node), *empty]) if moved else graph


_ROUND: Final = frozenset({"Merge", "Switch", "Exit", "NextIteration"})


def hoist_loop_invariants(graph: Graph, _: Keep = ()) -> Graph:
    """Read each unchanged loop variable from a constant Enter; the variable's own nodes stay."""
    index = graph.index
    moved: dict[str, str] = {}
    constant = []
    for merge in graph.node:
        enter = _enter(index, merge)
        if enter is None:
            continue
        lifted = copy_node(enter, name=unique(f"{enter.name}/constant", index.nodes))
        lifted.attr["is_constant"].b = True
        constant.append(lifted)
        moved[f"{merge.name}:0"] = lifted.name
        for switch in index.consumers(merge.name, 0):
            if switch.op == "Switch":
                moved[f"{switch.name}:1"] = lifted.name
                exits = [reader for reader in index.consumers(switch.name, 0) if reader.op == "Exit"]
                moved |= {f"{reader.name}:0": enter.input[0] for reader in exits}
    if not moved:
        return graph
    behind = {tensor(name): "" for node in graph.node for name in node.input if not name.startswith("^")}
    behind = {name: reference(_behind(name, moved)) for name in behind}
    # The loop variable's own nodes stay unchanged: other nodes may wait for them.
    nodes = [node if node.op in _ROUND else redirect(node, behind) for node in graph.node]
    return Graph(graph, [*nodes, *constant])


def _behind(name: str, moved: dict[str, str]) -> str:
    while name in moved:
        name = tensor(moved[name])
    return name


def _enter(index: Index, merge: NodeDef) -> NodeDef | None:
    """Return the Enter of a loop variable returned unchanged by the body.

    Returns None for any other Merge.
    """
    if merge.op != "Merge":
        return None
    makers = {index.nodes[split(name)[0]].op: name for name in index.data_inputs(merge)}
    if makers.keys() != {"Enter", "NextIteration"}:
        return None
    (back,) = index.data_inputs(index.nodes[split(makers["NextIteration"])[0]])
    switch = index.maker(back, ["Identity"])
    is_round = switch.op == "Switch" and tensor(switch.input[0]) == f"{merge.name}:0"
    return index.nodes[split(makers["Enter"])[0]] if is_round else None


_LEADS: Final = frozenset({"Identity", "Enter"})


def separate_sums(graph: Graph, _: Keep = ()) -> Graph:
    """Write each `mean + constant` read by an Rsqrt as `mean - (-constant)`."""
    index = graph.index
    changes: dict[str, NodeDef] = {}
    added: dict[str, NodeDef] = {}
    for node in graph.node:
        if node.op in ops.SUMS and any(reader.op == "Rsqrt" for reader in index.consumers(node.name)):
            sides = index.data_inputs(node)
            constants = [k for k, side in enumerate(sides) if _constant(index, side) is not None]
            if len(constants) == 1 and index.maker(sides[1 - constants[0]], _LEADS).op == "Mean":
                (k,) = constants
                less = _negate_constant(index, split(sides[k])[0], added)
                control = [name for name in node.input if name.startswith("^")]
                kind = tf.as_dtype(node.attr["T"].type)
                changes[node.name] = node_defs.node(
                    node.name, "Sub", [reference(sides[1 - k]), less, *control], T=kind
                )
    return replace_nodes(graph, changes, added.values())


def _constant(index: Index, tensor: str) -> NodeDef | None:
    """Return the constant behind a tensor, skipping Identity and Enter."""
    node = index.maker(tensor, _LEADS)
    return node if node.op == "Const" else None


def _negate_constant(index: Index, name: str, added: dict[str, NodeDef]) -> str:
    """Copy a constant and the carrying ops, negated; return the copy's name."""
    negated = unique(f"{name}/negated", index.nodes)
    if negated not in added:
        original = index.nodes[name]
        copy = copy_node(original, name=negated)
        if original.op == "Const":
            value = tf.make_ndarray(original.attr["value"].tensor)
            copy.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-value, shape=value.shape))
        else:
            copy.input[0] = _negate_constant(index, split(original.input[0])[0], added)
        added[negated] = copy
    return negated


def copy_strides_into_loops(graph: Graph) -> Graph:
    """Copy the constant strides of each StridedSlice in a loop into the loop."""
    index, changes, added = graph.index, {}, []
    for node in graph.node:
        if node.op != "StridedSlice":
            continue
        *others, strides = index.data_inputs(node)
        source = _constant(index, strides)
        if source is None or index.maker(strides, ["Identity"]).op != "Enter":
            continue
        # In the loop because it waits for what is there.
        copied = copy_node(
            source, name=unique(f"{node.name}/strides", index.nodes), inputs=[f"^{split(strides)[0]}"]
        )
        added.append(copied)
        changes[node.name] = copy_node(node, inputs=[*map(reference, others), copied.name])
    return replace_nodes(graph, changes, added)


def drop_waits(graph: Graph, _: Keep = ()) -> Graph:
    """Remove the control inputs of nodes with data inputs, in a side-effect-free graph.

    A node without data inputs keeps them: they put it into its branch or loop. Converters of other runtimes
    assign a node that waits for two branches to both, and keep loop variables that only a wait needs.
    """

    changes = {}
    for node in graph.node:
        data = [name for name in node.input if not name.startswith("^")]
        if 0 < len(data) < len(node.input):
            changes[node.name] = copy_node(node, inputs=data)
    return replace_nodes(graph, changes)


def fold_quantized_weights(graph: Graph) -> Graph:
    """Replace each Dequantize of constants by a constant.

    Raises InvalidModelError where it has no value.
    """
    index = graph.index
    folded = [
        node.name
        for node in graph.node
        if node.op == "Dequantize"
        and all(index.maker(name, ops.IDENTITIES).op == "Const" for name in index.data_inputs(node))
    ]
    if not folded:
        return graph
    needed = index.ancestors(folded, control=False)
    small = import_checked(extract_nodes(graph, needed))
    with open_session(small) as session:
        try:
            values = [np.asarray(value) for value in session.run([f"{name}:0" for name in folded])]
        except tf.errors.OpError as cause:
            expected = "quantized weights that TensorFlow can read"
            raise InvalidModelError("graph", expected=expected, found=first_line(cause)) from cause
    return replace_nodes(graph, dict(zip(folded, map(node_defs.constant, folded, values), strict=True)))
