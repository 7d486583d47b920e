"""Compares the nodes of two TensorFlow graphs, from the outputs backward.

Two tensors are the same if the same op, with the same attributes, makes them of inputs that are the same; or
if they are one input, one output of one recurrence, or constants of the same bits. A loop goes round once:
what is compared already is taken to be the same. No number is computed, so that no gate, branch or rare value
hides a node. Where two tensors are not the same, both are the ends of a region, which `regions` asks.

A source whose images are channels first is computed channels last: its tensors are compared in the order in
which their axes lie in the artifact, by the rules of `layouts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import NodeDef, split, tensor
from cudnn_convert.model import Array
from cudnn_convert.verification.ids import SHAPES
from cudnn_convert.verification.ops.graphs import TensorGraph, are_alike, tell_apart
from cudnn_convert.verification.ops.layouts import DifferentError, LayoutComparer
from cudnn_convert.verification.ops.moved_ops import Pair, list_moved


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A part of the source, and the difference of the artifact."""

    source: str
    what: str


@dataclass(slots=True)
class Alike:
    """The result of a comparison.

    `nodes` are the source's nodes that the artifact has, `constants` those whose values were compared,
    `pairs` the roots that are the same, and `mismatches` the pairs that are not.
    """

    nodes: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    mismatches: list[Mismatch] = field(default_factory=list)


class Comparer:
    """A comparer of tensors of a source and an artifact, and of all inputs behind."""

    def __init__(self, source: TensorGraph, artifact: TensorGraph) -> None:
        self.source, self.artifact = source, artifact
        self.alike = Alike()
        self._layouts = LayoutComparer(source, artifact) if list_moved(source) else None
        self._todo: list[Pair] = []
        self._seen: set[Pair] = set()
        self._entered: set[str] = set()

    def compare(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Compare pairs of tensors and the inputs behind, as far as both are alike."""
        self._todo += [(*pair, ()) for pair in pairs]
        while self._todo:
            of_source, of_artifact, order = self._todo.pop()
            try:
                pair = self.source.root(of_source), self.artifact.root(of_artifact), order
                if self._layouts:
                    pair = self._layouts.strip(pair, self._pass)
            except KeyError as missing:
                self.alike.mismatches.append(Mismatch(of_source, f"the artifact has no {missing.args[0]}"))
                continue
            if pair in self._seen:
                continue
            self._seen.add(pair)
            if not pair[2]:
                self.alike.pairs.add(pair[:2])
            if what := self._compare_layouts(pair):
                self.alike.mismatches.append(Mismatch(pair[0], what))

    def _pass(self, root: str) -> None:
        """Count a transposition of the source, and the constant of the transposition."""
        node = self.source.node(root)
        self.alike.nodes.add(node.name)
        self.alike.constants.add(split(self.source.index.data_inputs(node)[1])[0])

    def _compare_layouts(self, pair: Pair) -> str:
        """Describe the difference of two roots with possibly reordered axes, or return ""."""
        try:
            pairs = self._layouts.match(pair) if self._layouts else None
        except DifferentError as difference:
            return str(difference)
        except KeyError as missing:
            return f"the artifact has no {missing.args[0]}"
        if pairs is None:
            return self._difference(*pair[:2])
        self._todo += pairs
        name = split(pair[0])[0]
        (self.alike.constants if self.source.is_constant(pair[0]) else self.alike.nodes).add(name)
        return ""

    def _difference(self, source: str, artifact: str) -> str:
        """Describe the difference of two roots, or return "".

        What they are made of is compared later.
        """
        if self.source.is_end(source) or self.artifact.is_end(artifact):
            if source != artifact:
                return f"expected {source}, found {artifact}"
            return self._enter(split(source)[0])
        if self.source.is_constant(source) or self.artifact.is_constant(artifact):
            return self._constant(source, artifact)
        (op, k), (other, number) = split(source), split(artifact)
        mine = self.source.form(self.source.index.nodes[op])
        theirs = self.artifact.form(self.artifact.index.nodes[other])
        what = tell_apart(mine, theirs, op) if k == number else f"expected {source}, found {artifact}"
        if len(mine[2]) != len(theirs[2]):
            what = what or f"expected {len(mine[2])} inputs of {op}, found {len(theirs[2])}"
        if mine[0] in ops.TABLES and op != other:
            what = what or f"expected the table {op}, found {other}"
        pairs = [] if what else [*zip(mine[2], theirs[2], strict=True)]
        for expected, actual in pairs:
            if isinstance(expected, str) and isinstance(actual, str):
                if mine[0] in SHAPES and self._are_sizes(expected, actual):
                    continue
                self._todo.append((expected, actual, ()))
                continue
            wanted, given = self._value(self.source, expected), self._value(self.artifact, actual)
            if not are_alike(wanted, given):
                return f"a constant that it reads: {describe_constants(wanted, given)}"
            self.alike.constants.add(op)
        self.alike.nodes.update([] if what else [op])
        return what

    def _are_sizes(self, source: str, artifact: str) -> bool:
        """Return True if zeros stand for a recurrence's output, with equal length and width.

        The zeros are as long as the recurrence's input and as wide as its outputs. Where sizes alone are
        read, the recurrence need not run for them.
        """
        node, output = split(self.source.root(source))
        fill = self.artifact.node(root := self.artifact.root(artifact))
        if node not in self.source.given or output != 0 or self.artifact.is_end(root) or fill.op != "Fill":
            return False
        sizes = self._find_maker(fill.input[0])
        if sizes.op != "ConcatV2" or len(sizes.input) != len(("leading", "width", "axis")):
            return False
        leading = self._find_maker(sizes.input[0])
        shape = self._find_maker(leading.input[0]) if leading.op == "StridedSlice" else leading
        if shape.op != "Shape" or [*self._numbers(leading.input[1:])] != [[0], [2], [1]]:
            return False
        if [*self._numbers(sizes.input[1:])] != [[self.source.widths.get(node)], 0]:
            return False
        self._todo.append((tensor(self.source.given[node][0]), tensor(shape.input[0]), ()))
        return True

    def _find_maker(self, name: str) -> NodeDef:
        """Return the artifact's node behind a tensor."""
        return self.artifact.node(self.artifact.root(name))

    def _numbers(self, names: Iterable[str]) -> Iterator[object]:
        """Yield the artifact's constants as Python values; None for a variable tensor."""
        for name in names:
            root = self.artifact.root(name)
            value = self.artifact.constant(root) if self.artifact.is_constant(root) else None
            yield None if value is None else value.tolist()

    @staticmethod
    def _value(graph: TensorGraph, given: str | Array) -> Array:
        """Return the value of a constant input; an empty array for a different input."""
        value = given if isinstance(given, np.ndarray) else graph.constant(graph.root(given))
        return np.zeros(0, bool) if value is None else value

    def _constant(self, source: str, artifact: str) -> str:
        expected, actual = self.source.constant(source), self.artifact.constant(artifact)
        if expected is None or actual is None:
            both = (self.source.node(source).op, self.artifact.node(artifact).op)
            return f"expected {both[0]}, found {both[1]}"
        self.alike.constants.add(split(source)[0])
        if source in self.source.files and artifact in self.artifact.files:
            return ""  # the name of a table's file, which lies elsewhere
        return "" if are_alike(expected, actual) else describe_constants(expected, actual)

    def _enter(self, node: str) -> str:
        """Compare the inputs of a recurrence; return a difference in number, or ""."""
        if node in self._entered or node not in self.source.given:
            return ""
        self._entered.add(node)
        own, other = self.source.given[node], self.artifact.given.get(node, ())
        if len(own) != len(other):
            return f"expected a recurrence of {len(own)} inputs, found {len(other)}"
        pairs = zip(map(tensor, own), map(tensor, other), strict=True)
        self._todo += [(*pair, ()) for pair in pairs]
        return ""


def describe_constants(expected: Array, actual: Array) -> str:
    """Describe the difference of two constants, by the first different value."""
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return f"expected {expected.dtype}{[*expected.shape]}, found {actual.dtype}{[*actual.shape]}"
    wrong = np.asarray(expected != actual) & ~(_are_nan(expected) & _are_nan(actual))
    if not np.any(wrong):
        return "expected a constant of other bits"
    index = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong)), expected.shape))
    return f"at {[*index]} expected {expected[index]}, found {actual[index]}"


def _are_nan(value: Array) -> Array:
    return np.isnan(value) if value.dtype.kind in "fc" else np.zeros(value.shape, bool)
