"""Control flow of TensorFlow 1 (`cond`, `while_loop`), and known function arguments.

A branch begins with Switch nodes and ends in a Merge. A loop is a frame: an Enter takes a tensor into it, an
Exit out of it; every other node is in the frame of its inputs. Loops have Switch and Merge nodes too: their
Switch reads a LoopCond, their Merge a NextIteration.
Source: tensorflow v2.21.0 core/graph/control_flow.cc BuildControlFlowInfo.

`holding` tells which arguments of functions hold a known tensor, such as the name of an asset, at every call:
from the graph, from another function, or by a loader. A call that does not pass one input per argument
counts as passing no known tensor.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

import tensorflow as tf

from cudnn_convert.errors import Remedy
from cudnn_convert.graph import constant_folding, node_defs, ops, safe_ops
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, functions_in, split, tensor, walk


def frames(index: Index) -> dict[str, tuple[str, ...]]:
    """Return the frame names of each op's outputs, outermost first.

    Ops outside all loops have none.
    """
    frames_by_name: dict[str, tuple[str, ...]] = {}
    todo: list[tuple[NodeDef, tuple[str, ...]]] = [(n, ()) for n in index.nodes.values() if not n.input]
    while todo:
        node, around = todo.pop()
        if node.name in frames_by_name:
            continue
        if node.op in ops.ENTERS:
            around = (*around, node.attr["frame_name"].s.decode())
        elif node.op in ops.EXITS:
            around = around[:-1]
        frames_by_name[node.name] = around
        todo += [(reader, around) for reader in index.readers(node.name)]
    return frames_by_name


def certain(index: Index) -> set[str]:
    """Return the ops run exactly once per call, outside all loops and branches.

    A Merge ends the branch of a Switch; an Exit ends the Switch of its loop.
    """
    depths: dict[str, int] = {}
    todo: list[tuple[NodeDef, int]] = [(node, 0) for node in index.nodes.values() if not node.input]
    while todo:
        node, depth = todo.pop()
        if node.op in ops.SWITCHES:
            depth += 1
        elif node.op in ops.MERGES | ops.EXITS:
            depth = max(0, depth - 1)
        if depths.get(node.name, -1) >= depth or (node.op in ops.MERGES and node.name in depths):
            continue
        depths[node.name] = depth
        todo += [(reader, depth) for reader in index.readers(node.name)]
    around = frames(index)
    return {name for name, depth in depths.items() if depth == 0 and not around.get(name)}


def enter(index: Index, name: str, source: str, frame: str, dtype: tf.DType) -> NodeDef:
    """Make an Enter to take the constant `source` into a frame of the graph."""
    like = next(
        node
        for node in index.nodes.values()
        if node.op in ops.ENTERS and node.attr["frame_name"].s.decode() == frame
    )
    parallel = int(node_defs.read_attribute(like, "parallel_iterations").i)
    loop = {"frame_name": frame, "is_constant": True, "parallel_iterations": parallel}
    return node_defs.node(name, "Enter", [source], T=dtype, **loop)


_LOOPS: Final = ops.NEXT_ITERATIONS | {"LoopCond"}


def inside(index: Index) -> set[str]:
    """Return the names of the nodes in loops, and between a branch's Switch and Merge."""
    in_loops = {name for name, around in frames(index).items() if around}
    starts = (node.name for node in index.nodes.values() if _is_cond(index, node, ops.SWITCHES))

    def behind(name: str) -> list[str]:
        return [node.name for node in index.consumers(name) if not _is_cond(index, node, ops.MERGES)]

    return in_loops.union(walk(starts, behind))


def below(index: Index, names: Collection[str], others: Collection[str]) -> set[str]:
    """Return `names` and the transitive data consumers dependent on `names`.

    A branch's Merge is left out while another of its inputs depends on `others` and is not reached.
    """
    behind = index.descendants(others)
    reached: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        node = index.nodes[name]
        values = {split(source)[0] for source in index.data_inputs(node)} & behind
        if name not in reached and not (_is_cond(index, node, ops.MERGES) and values - reached):
            reached.add(name)
            todo += [reader.name for reader in index.consumers(name)]
    return reached


def leaving(index: Index, name: str) -> tuple[str, bool] | None:
    """Find the only placeholder deciding a node's branch, and the value to skip the branch."""
    for taken, side in _decisions(index, name):
        needed = index.ancestors([split(taken)[0]])
        sources = [op for op in needed if index.nodes[op].op in ops.ALL_PLACEHOLDERS]
        if len(sources) == 1 and _is_number(index.nodes[sources[0]]):
            for setting in (False, True):
                if constant_folding.fold_scalar(index, taken, {sources[0]: setting}) == 1 - side:
                    return sources[0], setting
    return None


def bind(placeholder: str, setting: bool, *, lead: str = "") -> Remedy:
    """Make the remedy to bind a placeholder."""
    return Remedy({"set": (f"{placeholder}:0={'true' if setting else 'false'}",)}, lead)


def _decisions(index: Index, name: str) -> Iterator[tuple[str, int]]:
    """Yield `(predicate tensor, side)` for each branch around a node."""
    seen, todo = set[str](), [name]
    while todo:
        for source, k in map(split, index.nodes[todo.pop()].input):
            node = index.nodes[source]
            if k in (0, 1) and _is_cond(index, node, ops.SWITCHES):
                yield tensor(node.input[1]), k
            # Behind a Merge lie branches that the node is not in.
            if source not in seen and not _is_cond(index, node, ops.MERGES):
                seen.add(source)
                todo.append(source)


def _is_number(node: NodeDef) -> bool:
    dtype = tf.as_dtype(node.attr["dtype"].type)
    return bool(dtype.is_bool or dtype.is_integer or dtype.is_floating)


def _is_cond(index: Index, node: NodeDef, kind: Collection[str]) -> bool:
    """Return True if a node is of `kind`, outside the mechanism of loops."""
    read = (index.nodes.get(split(name)[0]) for name in node.input)
    return node.op in kind and not any(source is not None and source.op in _LOOPS for source in read)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function from outside of any graph.

    `captured`: for each of its last arguments, whether it holds a known tensor.
    """

    function: str
    captured: tuple[bool, ...] = ()


def holding(
    graph: AnyGraph, known: Callable[[NodeDef], Collection[str]], calls: Iterable[FunctionCall] = ()
) -> Mapping[str, frozenset[str]]:
    """Return, per library function, the arguments holding a known tensor at every call.

    `known` gives the tensors `op:k` that are known where a node of the graph itself runs.
    """
    taken = _arguments(graph)
    sure = {name: set(arguments) for name, arguments in taken.items()}

    def keep(name: str, given: tuple[bool, ...]) -> None:
        if name in sure:
            sure[name] &= set(compress(taken[name], given))

    def keep_called(node: NodeDef, given: tuple[bool, ...]) -> None:
        keep(node.op, given)
        for key, attribute in node.attr.items():
            is_call = node.op in ops.CALLS and key == "f" and attribute.HasField("func")
            for number, name in enumerate(functions_in([attribute])):
                keep(name, given if is_call and not number else ())

    for call in calls:
        first = len(taken.get(call.function, ())) - len(call.captured)
        keep(call.function, (False,) * first + call.captured if first >= 0 else ())
    for node in graph.node:
        inside = known(node)
        keep_called(node, tuple(tensor(name) in inside for name in _data(node)))
    changed = True
    while changed:  # what a function is given it may hand on
        before = sum(map(len, sure.values()))
        for function in graph.library.function:
            inside = sure[function.signature.name]
            for node in function.node_def:
                keep_called(node, tuple(name in inside for name in _data(node)))
        changed = sum(map(len, sure.values())) != before
    return {name: frozenset(arguments) for name, arguments in sure.items()}


def _arguments(graph: AnyGraph) -> dict[str, list[str]]:
    """List each function's arguments in order; an empty list where a call may differ.

    That is so if one argument takes several inputs, if two functions have one name, or if TensorFlow may call
    the function in another's place.
    """
    taken: dict[str, list[str]] = {}
    for function in graph.library.function:
        arguments, name = function.signature.input_arg, function.signature.name
        is_plain = not any(argument.number_attr or argument.type_list_attr for argument in arguments)
        is_plain = is_plain and name not in taken and safe_ops.TWINS not in function.attr
        taken[name] = [argument.name for argument in arguments] if is_plain else []
    return taken


def _data(node: NodeDef) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]
