"""A TensorFlow graph as tensors: the maker of each, constants, and names of equal value.

A tensor's root is the tensor that has its value: ops that hand on a value are passed, and so are branches
that a constant decides, loop variables that do not change, and defaults of placeholders that are not fed.
The rules are stated here once more, apart from the passes that simplify graphs, which they judge.
Source: tensorflow v2.21.0 core/ops/control_flow_ops.cc, array_ops.cc, resource_variable_ops.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops
from cudnn_convert.graph.graph import Graph, import_checked
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, functions_in, library, split, tensor
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private

#: Hand on what they read first; CheckNumerics and EnsureShape only refuse values.
_COPIES: Final = ops.COPIES | frozenset(
    "RefIdentity PreventGradient CheckNumerics CheckNumericsV2 EnsureShape ReadVariableOp".split()
)
#: Attributes that say nothing of a value.
_ASIDE: Final = frozenset(
    "parallel_iterations use_locking validate_shape container shared_name use_node_name_sharing "
    "is_constant debug_name allowed_devices experimental_debug_info message element_shape "
    "output_shapes swap_memory grad_a grad_b".split()
)
#: Ops that are one, by what each is compared as.
_SAME: Final[Mapping[str, str]] = {
    "Add": "AddV2",
    "BatchMatMul": "BatchMatMulV2",
    "Variable": "VariableV2",
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    **{f"Ref{op}": op for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration", "Select")},
}
#: Ops that choose between values, or decide what is computed.
CHOICES: Final = frozenset(
    "Greater GreaterEqual Less LessEqual Equal NotEqual ApproximateEqual LogicalAnd LogicalOr LogicalNot "
    "All Any Select SelectV2 Where Switch RefSwitch Merge If StatelessIf Case StatelessCase LoopCond".split()
)
#: Ops that call functions, and their attributes with types of inputs and outputs.
_CALLS: Final = frozenset(
    "While StatelessWhile If StatelessIf Case StatelessCase PartitionedCall StatefulPartitionedCall".split()
)
_TYPES: Final = frozenset({"T", "Tin", "Tout"})
_GATHERS: Final = frozenset({"Gather", "ResourceGather"})
#: The attribute `i: 0`, serialized.
_ZERO: Final = tf.compat.v1.AttrValue(i=0).SerializeToString()

#: A node as it is compared: its op, its attributes, its inputs: tensors, or arrays that the op implies.
Form = tuple[str, Mapping[str, Any], list[str | Array]]


@dataclass
class TensorGraph:
    """A graph between inputs and outputs, to be compared with another.

    `fed` are the tensors that are inputs. `given` has by node the tensors that a recurrence reads, `x`, `h`,
    `c` and lengths: what stands in its place is not looked into. `variable` gives a variable's value by its
    node. `files` are tensors that hold the name of a table's file. `widths` are the sizes of the last axis of
    what recurrences give at each step, by node. `roots` are the roots that are known, all that were asked for
    among them.
    """

    graph: AnyGraph
    fed: Collection[str]
    given: Mapping[str, tuple[str, ...]]
    variable: Callable[[NodeDef], Array]
    files: Collection[str] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    _decided: dict[str, bool | None] = field(default_factory=dict)
    _live: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def index(self) -> Index:
        """The nodes by name."""
        return Index(self.graph)

    @cached_property
    def shapes(self) -> tf.Graph:
        """The graph in TensorFlow, for static shapes."""
        return import_checked(self.graph)

    @cached_property
    def certain(self) -> set[str]:
        """The nodes executed exactly once per call."""
        return control_flow.certain(self.index)

    def node(self, name: str) -> NodeDef:
        """Return the node behind a tensor. Raises KeyError."""
        return self.index.nodes[split(name)[0]]

    def is_end(self, name: str) -> bool:
        """Return True if a tensor is an input or an output of a recurrence."""
        return name in self.fed or split(name)[0] in self.given

    @cached_property
    def _written(self) -> set[str]:
        """The variables written by ops of the graph with values from outside a file."""
        writes = (node for node in self.graph.node if node.op in ops.WRITES)
        return {
            self.index.maker(node.input[0], _COPIES | ops.ENTERS).name
            for node in writes
            if self.index.maker(node.input[1], _COPIES | ops.ENTERS).op not in ops.RESTORES
        }

    @cached_property
    def _stored(self) -> dict[str, float]:
        """The values of scalar variables left unwritten by the graph, by op: flags of training."""
        stored = {}
        for node in self.graph.node:
            if node.op in ops.VARIABLES and tf.TensorShape(node.attr["shape"].shape).rank == 0:
                with suppress(LookupError):  # no file has its value
                    stored[node.name] = self.variable(node).item()
        return {name: value for name, value in stored.items() if name not in self._written}

    @cached_property
    def _with_defaults(self) -> Index:
        """The graph with a copy in the place of each default, to compute constants in."""
        nodes = []
        for node in self.graph.node:
            if node.op == "PlaceholderWithDefault" and f"{node.name}:0" not in self.fed:
                nodes.append(node_defs.identity(node.name, node.input[0], node.attr["dtype"].type))
            else:
                nodes.append(node)
        return Index(Graph(self.graph, nodes))

    def root(self, name: str) -> str:
        """Return the tensor behind all copies of a tensor.

        Raises KeyError for a name outside the graph.
        """
        path = []
        name = tensor(name)
        while name not in self.roots:
            path.append(name)
            onward = None if self.is_end(name) else self._onward(name)
            if onward is None or onward in path:  # a loop that only hands on
                self.roots[name] = name
                break
            name = onward
        root = self.roots[name]
        self.roots.update(dict.fromkeys(path, root))
        return root

    def _onward(self, name: str) -> str | None:
        """Return the tensor copied by the maker of the given tensor, if any."""
        op, k = split(name)
        node = self.index.nodes[op]
        read = self.index.data_inputs(node)
        onward: str | None = None
        if node.op in _COPIES or node.op == "PlaceholderWithDefault":
            onward = read[0]
        elif node.op == "IdentityN":
            onward = read[k]
        elif node.op in ops.ENTERS:
            onward = read[0] if node.attr["is_constant"].b or self._is_constant(read[0]) else None
        elif node.op in ops.SWITCHES:
            if self.decision(read[1]) is not None or self._is_constant(read[0]):
                onward = read[0]
            else:
                onward = self._invariant(self.node(read[0]))
        elif node.op in ops.MERGES and k == 0:
            live = self.live(node)
            onward = live[0] if len(live) == 1 else self._invariant(node)
        elif node.op in ops.EXITS and self.node(read[0]).op in ops.SWITCHES:
            onward = self._invariant(self.node(self.node(read[0]).input[0]))
        elif node.op == "Mul":
            onward = next((read[1 - k] for k in (0, 1) if self._is_open_mask(read[k])), None)
        return onward

    def _is_constant(self, name: str) -> bool:
        """Return True if a tensor is a constant or variable, behind copying ops."""
        maker = self.index.maker(name, _COPIES | ops.ENTERS)
        is_input = tensor(name) in self.fed or f"{maker.name}:0" in self.fed
        return not is_input and (maker.op == "Const" or maker.op in ops.VARIABLES)

    def _invariant(self, merge: NodeDef) -> str | None:
        """Return the initial value of a loop variable left unchanged by the loop body."""
        if merge.op not in ops.MERGES:
            return None
        read = self.index.data_inputs(merge)
        by_op = {self.index.nodes[split(name)[0]].op.removeprefix("Ref"): name for name in read}
        if by_op.keys() != {"Enter", "NextIteration"}:
            return None
        (back,) = self.index.data_inputs(self.node(by_op["NextIteration"]))
        switch = self.index.maker(back, _COPIES)
        if switch.op in ops.SWITCHES and tensor(switch.input[0]) == f"{merge.name}:0":
            return self.index.data_inputs(self.node(by_op["Enter"]))[0]
        return None

    def _is_open_mask(self, name: str) -> bool:
        """Return True if a tensor is the mask of a dropout with all values kept.

        `Floor(1 + uniform)` as TensorFlow wrote it to 1.12, `Cast(uniform >= 0)` since then
        (python/ops/nn_ops.py).
        """
        node = self.index.maker(name, _COPIES)
        node = self.index.maker(node.input[0], _COPIES) if node.op in ("Cast", "Floor") else node
        neutral = {"Add": 1.0, "AddV2": 1.0, "GreaterEqual": 0.0}.get(node.op)
        if neutral is None:
            return False
        sides = self.index.data_inputs(node)
        for drawn, fixed in ((sides[0], sides[1]), (sides[1], sides[0])):
            if self._is_uniform(drawn) and (node.op != "GreaterEqual" or drawn == sides[0]):
                return bool(self._fold(fixed) == neutral)
        return False

    def _is_uniform(self, name: str) -> bool:
        """Return True if a tensor is drawn from [0, 1), perhaps before a loop.

        The pattern is `RandomUniform * (1 - 0) + 0`.
        """
        node = self.index.maker(name, _COPIES | ops.PASSAGES)
        neutral = {"Add": 0.0, "AddV2": 0.0, "Mul": 1.0}.get(node.op)
        if neutral is None:
            return str(node.op) == "RandomUniform"
        left, right = self.index.data_inputs(node)
        return any(
            self._is_uniform(drawn) and self._fold(fixed) == neutral
            for drawn, fixed in ((left, right), (right, left))
        )

    def decision(self, predicate: str) -> bool | None:
        """Return the value of a predicate fixed by constants and stored flags, if known."""
        predicate = tensor(predicate)
        if predicate not in self._decided:
            self._decided[predicate] = None  # of a loop that asks for itself
            needed = self.index.ancestors([split(predicate)[0]], control=False)
            if not any(f"{name}:0" in self.fed or name in self.given for name in needed):
                value = self._fold(predicate)
                self._decided[predicate] = None if value is None else bool(value)
        return self._decided[predicate]

    def _fold(self, name: str) -> Any:
        """Return the value of a scalar fixed by constants, defaults and stored flags, if known."""
        return constant_folding.fold_scalar(self._with_defaults, name, self._stored)

    def live(self, merge: NodeDef) -> list[str]:
        """Return the inputs of a Merge outside dead branches."""
        if merge.name not in self._live:
            read = self.index.data_inputs(merge)
            self._live[merge.name] = [name for name in read if not self._is_dead(name, set())]
        return self._live[merge.name]

    def _is_dead(self, name: str, seen: set[str]) -> bool:
        """Return True if a tensor is behind the unused side of a Switch."""
        op, k = split(name)
        if name in seen or name in self.fed:
            return False
        seen.add(name)
        node = self.index.nodes[op]
        if node.op in ops.SWITCHES:
            decided = self.decision(node.input[1])
            if decided is not None and k >= 0 and k != int(decided):
                return True
            return self._is_dead(tensor(node.input[0]), seen)
        if node.op in ops.MERGES:
            return all(self._is_dead(source, seen) for source in self.index.data_inputs(node))
        if node.op in ops.NEXT_ITERATIONS:
            return False
        waits = [split(source) for source in node.input]
        return any(self._is_dead(f"{source}:{k}" if k >= 0 else f"{source}:0", seen) for source, k in waits)

    def constant(self, root: str) -> Array | None:
        """Return the value of a constant root, or the stored value of a variable root.

        Returns None for other roots.
        """
        node = self.node(root)
        if root in self.fed:
            return None
        if node.op == "Const":
            return np.asarray(tf.make_ndarray(node.attr["value"].tensor))
        return self.variable(node) if node.op in ops.VARIABLES else None

    def is_constant(self, root: str) -> bool:
        """Return True if a root is a constant or a variable."""
        return root not in self.fed and (self.node(root).op == "Const" or self.node(root).op in ops.VARIABLES)

    def form(self, node: NodeDef) -> Form:
        """Return a node in the form used for comparison."""
        inputs: list[str | Array] = [*self.index.data_inputs(node)]
        attributes = dict(self._attributes(node))
        op = _SAME.get(node.op, node.op)
        if node.op in _GATHERS:
            kinds = {
                "Tindices": attributes.get("Tindices"),
                "batch_dims": attributes.get("batch_dims", _ZERO),
            }
            params = attributes.get("Tparams", attributes.get("dtype"))
            return "GatherV2", {**kinds, "Tparams": params}, [*inputs, np.asarray(0, np.int32)]
        if op == "Merge" and len(self.live(node)) > 1:
            attributes["branches"] = tuple(tuple(sorted(each)) for each in self._deciding(node))
            inputs += self.list_predicates(node)
        if op in ("AddV2", "Sub"):
            return self._sum(node, op, attributes, inputs)
        attributes.pop("Taxis" if op == "GatherV2" else "", None)
        if op in ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"):
            attributes = {}
        return op, attributes, inputs

    def list_predicates(self, merge: NodeDef) -> list[str]:
        """Return the predicates for the choice between a Merge's inputs; empty for different nodes."""
        if merge.op not in ops.MERGES or len(self.live(merge)) < 2:
            return []
        return sorted({predicate for each in self._deciding(merge) for predicate, _ in each})

    def _deciding(self, merge: NodeDef) -> list[set[tuple[str, int]]]:
        """Return, per input of a branch's Merge, the predicates before the input, with sides.

        A constant or a weight that a branch gives reads no Switch, and waits for one.
        """
        return [self._find_predicates(split(name)) for name in self.index.data_inputs(merge)]

    def _find_predicates(self, start: tuple[str, int]) -> set[tuple[str, int]]:
        predicates, seen, todo = set[tuple[str, int]](), set[tuple[str, int]](), [start]
        while todo:
            op, k = todo.pop()
            if (op, k) in seen or f"{op}:0" in self.fed or op in self.given:
                continue
            seen.add((op, k))
            node = self.index.nodes[op]
            if node.op in ops.NEXT_ITERATIONS | {"LoopCond"}:
                continue
            if node.op in ops.SWITCHES and self.decision(node.input[1]) is None:
                if k >= 0 and self.node(node.input[1]).op != "LoopCond":
                    predicates.add((self.root(node.input[1]), k))
                continue
            todo += [split(name) for name in node.input]
        return predicates

    def _sum(self, node: NodeDef, op: str, attributes: Mapping[str, Any], inputs: list[Any]) -> Form:
        """Return a sum in the form used for comparison.

        The difference from a constant becomes the sum with the negated constant.
        """
        if tf.as_dtype(node.attr["T"].type).is_floating:
            left, right = map(self.root, inputs)
            if op == "Sub" and not self.is_constant(left) and (value := self._read_fixed(right)) is not None:
                return "AddV2", attributes, [inputs[0], np.asarray(-value)]
            if op == "AddV2" and self.is_constant(left) != self.is_constant(right):
                constant, rest = (left, inputs[1]) if self.is_constant(left) else (right, inputs[0])
                if (value := self._read_fixed(constant)) is not None:
                    return op, attributes, [rest, value]
        return op, attributes, inputs

    def _read_fixed(self, root: str) -> Array | None:
        """Return the value of a constant or an unwritten variable.

        Returns None for other roots.
        """
        is_fixed = self.is_constant(root) and split(root)[0] not in self._written
        return self.constant(root) if is_fixed else None

    @cached_property
    def _functions(self) -> dict[str, Any]:
        return library(self.graph)

    def list_inner(self, node: NodeDef, within: tuple[str, ...] = ()) -> list[NodeDef]:
        """Return the nodes of all functions called by a node."""
        names = [name for name in functions_in(node.attr.values()) if name in self._functions]
        return [
            inner
            for name in names
            if name not in within
            for each in self._functions[name].node_def
            for inner in (each, *self.list_inner(each, (*within, name)))
        ]

    def _attributes(self, node: NodeDef, within: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        """Yield the attributes of a node's computation in a comparable form.

        Defaults are included.
        """
        known = tf_private.find_op(node.op)
        defaults = [attr for attr in known.attr if attr.HasField("default_value")] if known else []
        values = {attr.name: attr.default_value for attr in defaults} | dict(node.attr)
        for key, value in sorted(values.items()):
            if key.startswith("_") or key in _ASIDE or (key == "shape" and node.op in ops.ALL_PLACEHOLDERS):
                continue
            if key in _TYPES and node.op in _CALLS:  # those of what it reads, which is compared
                continue
            called = [*functions_in([value])]
            if called:
                yield key, tuple(self._body(name, within) for name in called)
            else:
                yield key, value.SerializeToString(deterministic=True)

    def _body(self, name: str, within: tuple[str, ...]) -> Any:
        """Return a function's computation, node by node, independent of the function's name.

        What a variable holds may come in in its place, so that reads are passed as copies are.
        """
        if name not in self._functions or name in within:
            return name
        function = self._functions[name]
        copies = {node.name: node.input[0] for node in function.node_def if node.op in _COPIES}

        def pass_copies(read: str) -> str:
            while (op := read.partition(":")[0]) in copies:
                read = copies[op]
            return read

        nodes = tuple(
            (node.name, node.op, *map(pass_copies, node.input), *self._attributes(node, (*within, name)))
            for node in sorted(function.node_def, key=lambda node: str(node.name))
            if node.name not in copies
        )
        arguments = tuple(argument.name for argument in function.signature.input_arg)
        results = tuple((key, pass_copies(read)) for key, read in sorted(function.ret.items()))
        return arguments, nodes, results


def tell_apart(mine: Form, theirs: Form, name: str, but: Collection[str] = ()) -> str:
    """How two nodes differ, but for some attributes and what they read, or nothing."""
    if mine[0] != theirs[0]:
        return f"expected {mine[0]}, found {theirs[0]}"
    keys = (mine[1].keys() | theirs[1].keys()) - {*but}
    odd = sorted(key for key in keys if mine[1].get(key) != theirs[1].get(key))
    return f"expected the {', '.join(odd)} of {name}, found another" if odd else ""


def are_alike(left: Array, right: Array) -> bool:
    """Return True if two arrays are the same bit for bit."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "O":
        return bool(np.all(left == right))
    left_bits, right_bits = (
        np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in (left, right)
    )
    return bool(np.array_equal(left_bits, right_bits))
