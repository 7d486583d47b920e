"""Tells whether an artifact's tensor is a source's tensor with reordered axes.

An artifact computes channels last what its source computes channels first. `order` lists the axes of the
source's tensor as they lie in the artifact's; an empty one says that they lie alike. Each rule states what an
op reads if what it gives has its axes in an order. The rules are those of TensorFlow's ops, written apart
from the pass that moves layouts, which they judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.index import NodeDef, split, tensor
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private
from cudnn_convert.verification.channels_first import DILATED, FORMATS, HALF, IMAGE, ROWS, is_only_single
from cudnn_convert.verification.ops.graphs import Form, TensorGraph, are_alike, tell_apart
from cudnn_convert.verification.ops.moved_ops import (
    BATCHED,
    DEPTHWISE,
    LISTS,
    POINTWISE,
    REDUCTIONS,
    ROWED,
    Order,
    Pair,
    is_rare,
    read_format,
    read_list,
    simplify,
)
from cudnn_convert.verification.ops.ranks import find_rank

_SINGLE: Final = tf.float32.as_datatype_enum


class DifferentError(Exception):
    """Two nodes differ; the message says how."""


class LayoutComparer:
    """A comparer of a source's nodes with an artifact's nodes in a different layout."""

    def __init__(self, source: TensorGraph, artifact: TensorGraph) -> None:
        self._source, self._artifact = source, artifact

    def strip(self, pair: Pair, passed: Callable[[str], None]) -> Pair:
        """Return the tensors behind transpositions of known order.

        `passed` takes the source's nodes of those transpositions.
        """
        source, artifact, order = pair
        while (perm := self._perm(self._source, source)) is not None:
            passed(source)
            order = simplify([perm[axis] for axis in order or range(len(perm))])
            source = self._first(self._source, source)
        while (perm := self._perm(self._artifact, artifact)) is not None:
            order = simplify([(order or range(len(perm)))[axis] for axis in np.argsort(perm)])
            artifact = self._first(self._artifact, artifact)
        return source, artifact, order

    def _perm(self, graph: TensorGraph, root: str) -> list[int] | None:
        if graph.is_end(root) or graph.node(root).op != "Transpose":
            return None
        value = self._value(graph, graph.node(root), 1)
        return None if value is None else [int(axis) % len(value) for axis in value]

    @staticmethod
    def _first(graph: TensorGraph, root: str) -> str:
        return graph.root(graph.index.data_inputs(graph.node(root))[0])

    def match(self, pair: Pair) -> list[Pair] | None:
        """Return the input pairs of two matching nodes, unless the plain comparison applies.

        Returns None then. Raises DifferentError.
        """
        source, artifact, order = pair
        (op, k), (other, number) = split(source), split(artifact)
        is_end = self._source.is_end(source) or self._artifact.is_end(artifact)
        if is_end or self._source.is_constant(source) or self._artifact.is_constant(artifact):
            return self._constant(source, artifact, order) if order else None
        mine, theirs = self._source.index.nodes[op], self._artifact.index.nodes[other]
        if is_only_single(mine) and theirs.op == "Cast":
            return self._single(mine, theirs, order)
        first, last = read_format(mine), read_format(theirs)
        if k == number and (is_rare(mine) or (first in FORMATS and last in (FORMATS[first], ""))):
            return self._image(mine, theirs, order, k)
        if mine.op == "Shape" and theirs.op == "GatherV2":
            return self._shape(mine, theirs)
        is_dropping = mine.op in REDUCTIONS | {"Squeeze"} and mine.op == theirs.op
        if order and not is_dropping and k != number:
            raise DifferentError(f"expected {source}, found {artifact}")
        rule = self._compare_reductions if is_dropping else self._compare_moved
        return rule(mine, theirs, order) if order or is_dropping else None

    def _single(self, mine: NodeDef, cast: NodeDef, order: Order) -> list[Pair]:
        """Return the inputs of a half node computed in float32 by the artifact.

        The artifact's casts are passed.
        """
        kinds = cast.attr["SrcT"].type, cast.attr["DstT"].type
        inner = self._artifact.node(self._artifact.root(self._artifact.index.data_inputs(cast)[0]))
        if kinds not in ((_SINGLE, HALF), (_SINGLE, _SINGLE)) or inner.op != mine.op:
            raise DifferentError(f"expected {mine.op} in float32, found {inner.op}")
        halved = node_defs.copy_node(inner)
        for key, value in mine.attr.items():
            if value.type == HALF and halved.attr[key].type == _SINGLE:
                halved.attr[key].type = HALF
        if read_format(mine) in FORMATS:
            pairs = self._image(mine, halved, order, 0)
        else:
            self._same_op(mine, halved, set())
            pairs = [(*pair, order) for pair in self._inputs(mine, halved)]
        halves = (mine.attr[each.type_attr].type == HALF for each in tf_private.find_op(mine.op).input_arg)
        return [self._behind_cast(pair, is_half) for is_half, pair in zip(halves, pairs, strict=True)]

    def _behind_cast(self, pair: Pair, is_half: bool) -> Pair:
        """Replace the artifact's tensor of a pair by the tensor before the cast to float32."""
        if not is_half:
            return pair
        node = self._artifact.node(self._artifact.root(pair[1]))
        if node.op != "Cast" or node.attr["SrcT"].type != HALF or node.attr["DstT"].type != _SINGLE:
            raise DifferentError(f"expected {pair[0]} in float32, found {node.op}")
        return pair[0], self._artifact.index.data_inputs(node)[0], pair[2]

    def _constant(self, source: str, artifact: str, order: Order) -> list[Pair]:
        mine, theirs = self._source.constant(source), self._artifact.constant(artifact)
        if mine is None or theirs is None or mine.ndim != len(order):
            raise DifferentError(f"expected {source}, found the axes of {artifact} in order {[*order]}")
        if not are_alike(np.ascontiguousarray(mine.transpose(order)), theirs):
            raise DifferentError(f"expected the values of {source} in order {[*order]}, found others")
        return []

    def _image(self, mine: NodeDef, theirs: NodeDef, order: Order, k: int) -> list[Pair]:
        first = read_format(mine)
        rank = len(first) or (5 if mine.op.startswith("Conv3D") else 4)
        if mine.op == "BiasAdd":
            rank = len(order) or self._rank(f"{mine.name}:0")
        last = (0, *range(2, rank), 1)[:rank] if first in FORMATS else (*range(rank),)
        if (mine.op, theirs.op) != (DEPTHWISE, "Conv2D"):
            self._same_op(mine, theirs, {"data_format", *LISTS})
        elif mine.attr["T"] != theirs.attr["T"] or mine.attr["padding"] != theirs.attr["padding"]:
            raise DifferentError(f"expected the padding of {mine.name}, found another")
        if simplify(last) != (order if k == 0 else simplify(last)) or (k and order):
            raise DifferentError(f"expected {mine.name} with its axes in order {[*last]}, found {[*order]}")
        dilated = self._lists(mine, theirs, last)
        pairs, image = list[Pair](), IMAGE.get(mine.op, 0)
        for position, (wanted_input, given_input) in enumerate(self._inputs(mine, theirs)):
            if position == 1 and (dilated or mine.op != theirs.op):
                pairs.append((wanted_input, self._filter(wanted_input, given_input, dilated), ()))
            elif position in ROWS.get(mine.op, ()):
                pairs += self._rows(mine, theirs, position, last)
            else:
                pairs.append((wanted_input, given_input, simplify(last) if position == image else ()))
        return pairs

    @staticmethod
    def _lists(mine: NodeDef, theirs: NodeDef, order: Sequence[int]) -> list[int]:
        """Compare the numbers for each axis; return the dilations required in the artifact's filter."""
        dilated: list[int] = []
        for key in LISTS:
            wanted, given = read_list(mine, key), read_list(theirs, key)
            if len(wanted) == len(order):
                wanted = [wanted[axis] for axis in order]
            elif wanted:
                wanted = [wanted[2 * axis + side] for axis in order for side in (0, 1)]
            if key == "dilations" and mine.op in DILATED and is_rare(mine) and {*given} == {1}:
                dilated = wanted[1:-1]
            elif wanted != given:
                raise DifferentError(f"expected the {key} of {mine.name} to be {wanted}, found {given}")
        return dilated

    def _filter(self, source: str, artifact: str, dilated: Sequence[int]) -> str:
        """Return the tensor behind a filter of one-channel groups, or of places between zeros."""
        shape = self._source.shapes.get_tensor_by_name(tensor(source)).shape
        window, read = [*shape[:-2]], list[Any]()
        ops = ("Slice", "Reshape", "Pad", "Reshape") if dilated else ("Reshape",)
        for op in ops:
            node = self._artifact.node(self._artifact.root(artifact))
            if node.op != op:
                raise DifferentError(f"expected {op} on the way to the filter {source}, found {node.op}")
            read += [self._value(self._artifact, node, k) for k in range(1, len(node.input))]
            artifact = self._artifact.index.data_inputs(node)[0]
        ends = [-1 if size is None else size for size in shape[-2:]]
        if not dilated:
            wanted: list[Any] = [[*window, 1, -1]]
        else:
            pairs = [*zip(window, dilated, strict=True)]
            zeros = [row for each in dilated for row in ((0, 0), (0, each - 1))]
            wanted = [
                [0] * (len(window) + 2),
                [*((size - 1) * each + 1 for size, each in pairs), -1, -1],
                [*(size * each for size, each in pairs), *ends],
                [*zeros, (0, 0), (0, 0)],
                [*(part for size in window for part in (size, 1)), *ends],
            ]
        if not all(np.array_equal(expected, actual) for expected, actual in zip(wanted, read, strict=True)):
            raise DifferentError(f"expected the filter {source} with its places apart, found another")
        return artifact

    def _compare_moved(self, mine: NodeDef, theirs: NodeDef, order: Order) -> list[Pair]:
        """Return the inputs of two nodes of equal output with reordered axes."""
        inputs = self._inputs(mine, theirs)
        op = self._source.form(mine)[0]
        if op in POINTWISE:
            return self._pointwise(mine, theirs, order)
        self._same_op(mine, theirs, set())
        if op in ROWED:
            rows = self._rows(mine, theirs, 1, order)
            return [(*inputs[0], order), *rows, *((*pair, ()) for pair in inputs[2:])]
        if op == "ConcatV2":
            self._axis(mine, theirs, len(inputs) - 1, order)
            return [(*pair, order) for pair in inputs[:-1]]
        if op in ("Split", "SplitV"):
            axis, image = (0, 1) if op == "Split" else (2, 0)
            self._axis(mine, theirs, axis, order)
            others = ((*pair, ()) for k, pair in enumerate(inputs) if k not in (axis, image))
            return [(*inputs[image], order), *others]
        if op in BATCHED:
            self._blocks(mine, theirs, order)
            return [(*inputs[0], order)]
        raise DifferentError(f"expected {mine.name} ({mine.op}), found its axes in order {[*order]}")

    def _pointwise(self, mine: NodeDef, theirs: NodeDef, order: Order) -> list[Pair]:
        forms: list[Form] = [self._source.form(mine), self._artifact.form(theirs)]
        kinds = [[isinstance(each, str) for each in form[2]] for form in forms]
        if kinds[0] != kinds[1]:  # one of them reads a constant through a reshape
            forms = [
                (form[0], form[1], [*graph.index.data_inputs(node)])
                for form, graph, node in zip(
                    forms, (self._source, self._artifact), (mine, theirs), strict=True
                )
            ]
        (op, attributes, wanted), (other, others, given) = forms
        if op != other or attributes != others or len(wanted) != len(given):
            raise DifferentError(f"expected {op} as {mine.name}, found {other}")
        pairs = list[Pair]()
        for expected, actual in zip(wanted, given, strict=True):
            if isinstance(expected, str) and isinstance(actual, str):
                pairs.append(self._operand(expected, actual, order))
            elif np.size(expected) != 1 or not are_alike(np.asarray(expected), np.asarray(actual)):
                raise DifferentError(f"expected a constant that {mine.name} reads, found another")
        return pairs

    def _operand(self, source: str, artifact: str, order: Order) -> Pair:
        """Return an operand pair, where a tensor of fewer axes belongs to the last axes."""
        shape = self._shape_of(source)
        if shape is None or len(shape) > len(order):
            return source, artifact, order
        sizes = [1] * (len(order) - len(shape)) + shape
        if all(size == 1 for size in sizes):
            return source, artifact, ()
        root, given_order = self._artifact.root(artifact), order
        if (perm := self._perm(self._artifact, root)) is not None:
            if tuple(perm) != order:
                raise DifferentError(f"expected the axes of {source} in order {[*order]}, found {perm}")
            root, given_order = self._first(self._artifact, root), (*range(len(order)),)
        node = None if self._artifact.is_end(root) else self._artifact.node(root)
        given = self._value(self._artifact, node, 1) if node is not None and node.op == "Reshape" else None
        wide = [axis for axis in order if sizes[axis] != 1]
        if node is None or given is None or [*given] != [sizes[axis] for axis in given_order]:
            return source, artifact, order
        if given_order == order and wide != sorted(wide):
            raise DifferentError(f"expected the axes of {source} in order {[*order]}, found a reshape")
        return source, self._artifact.index.data_inputs(node)[0], ()

    def _shape(self, mine: NodeDef, theirs: NodeDef) -> list[Pair]:
        """Match sizes picked from the shape of a tensor with reordered axes."""
        inputs = self._artifact.index.data_inputs(theirs)
        sizes = self._artifact.node(self._artifact.root(inputs[0]))
        at, axis = (self._value(self._artifact, theirs, k) for k in (1, 2))
        if sizes.op != "Shape" or at is None or axis is None or axis != 0 or sorted(at) != [*range(len(at))]:
            raise DifferentError(f"expected the sizes of {mine.name}, found others")
        self._same_op(mine, sizes, set())
        pair = self._source.index.data_inputs(mine)[0], self._artifact.index.data_inputs(sizes)[0]
        return [(*pair, simplify([*map(int, np.argsort(at))]))]

    def _compare_reductions(self, mine: NodeDef, theirs: NodeDef, order: Order) -> list[Pair] | None:
        """Return the inputs of nodes with removed axes, compared by the axis numbers of both."""
        if mine.op == "Squeeze":
            gone, places = ([*node.attr["squeeze_dims"].list.i] for node in (mine, theirs))
            keeps = False
        else:
            wanted, given = self._values(mine, theirs, 1)
            if wanted is None or given is None:
                return None
            gone, places = ([int(axis) for axis in np.ravel(value)] for value in (wanted, given))
            keeps = mine.attr["keep_dims"].b if "keep_dims" in mine.attr else False
        if not order and gone == places:
            return None
        pair = self._inputs(mine, theirs)[0]
        rank = self._rank(self._source.root(pair[0]))
        gone, places = [axis % rank for axis in gone], [axis % rank for axis in places]
        if len(gone) != len(places):
            raise DifferentError(f"expected {len(gone)} axes of {mine.name}, found {len(places)}")
        self._same_op(mine, theirs, {"squeeze_dims"})
        axes = order if keeps else _insert(gone, places, order, rank, is_sorted=mine.op == "Squeeze")
        if [axes[position] for position in places] != gone and sorted(
            axes[position] for position in places
        ) != sorted(gone):
            raise DifferentError(f"expected the axes {gone} of {mine.name}, found {places}")
        return [(*pair, simplify(axes))]

    def _rows(self, mine: NodeDef, theirs: NodeDef, position: int, order: Sequence[int]) -> list[Pair]:
        """Compare inputs with a row for each axis: constants, or rows picked in the order.

        Returns the pair behind rows that are no constants.
        """
        wanted, given = self._values(mine, theirs, position)
        if wanted is not None and given is not None:
            expected = wanted[[*order]] if len(wanted) == len(order) else wanted
            if not np.array_equal(expected, given):
                raise DifferentError(
                    f"expected {expected.tolist()} as {mine.name} reads, found {given.tolist()}"
                )
            return []
        source, artifact = self._inputs(mine, theirs)[position]
        node = self._artifact.node(self._artifact.root(artifact))
        at, axis = (self._value(self._artifact, node, k) if node.op == "GatherV2" else None for k in (1, 2))
        if at is None or axis is None:
            sizes = self._source.shapes.get_tensor_by_name(tensor(source)).shape
            if sizes.rank != 1 or sizes[0] is None or sizes[0] == len(order):
                raise DifferentError(f"expected the rows of {source} in order {[*order]}, found no order")
            return [(source, artifact, ())]  # of rows and columns alone
        if [*at] != [*order] or axis != 0:
            raise DifferentError(f"expected the rows of {source} in order {[*order]}, found {[*at]}")
        return [(source, self._artifact.index.data_inputs(node)[0], ())]

    def _axis(self, mine: NodeDef, theirs: NodeDef, position: int, order: Order) -> None:
        wanted, given = self._values(mine, theirs, position)
        rank = len(order)
        if wanted is None or given is None or order[int(given) % rank] != int(wanted) % rank:
            raise DifferentError(f"expected axis {wanted} of {mine.name}, found {given}")

    def _blocks(self, mine: NodeDef, theirs: NodeDef, order: Order) -> None:
        """Compare blocks and edges of all axes except the batch.

        For axes that are not listed they are 1 and 0.
        """
        for position, missing in ((1, 1), (2, 0)):
            wanted, given = self._values(mine, theirs, position)
            if wanted is None or given is None:
                raise DifferentError(f"expected constants that {mine.name} reads, found none")
            rows = [
                np.concatenate([each, np.full((len(order) - 1 - len(each), *each.shape[1:]), missing)])
                for each in (wanted, given)
            ]
            if order[0] != 0 or not np.array_equal(rows[0][[axis - 1 for axis in order[1:]]], rows[1]):
                raise DifferentError(f"expected the blocks of {mine.name} in order {[*order]}, found others")

    def _same_op(self, mine: NodeDef, theirs: NodeDef, but: set[str]) -> None:
        """Raise DifferentError where two nodes differ in more than inputs and given attributes."""
        aside = but | {"Tpaddings", "Tidx", "Tdim", "Tmultiples"}
        if what := tell_apart(self._source.form(mine), self._artifact.form(theirs), mine.name, aside):
            raise DifferentError(what)

    def _inputs(self, mine: NodeDef, theirs: NodeDef) -> list[tuple[str, str]]:
        wanted, given = self._source.index.data_inputs(mine), self._artifact.index.data_inputs(theirs)
        if len(wanted) != len(given):
            raise DifferentError(f"expected {len(wanted)} inputs of {mine.name}, found {len(given)}")
        return [*zip(wanted, given, strict=True)]

    def _values(self, mine: NodeDef, theirs: NodeDef, position: int) -> tuple[Array | None, Array | None]:
        return self._value(self._source, mine, position), self._value(self._artifact, theirs, position)

    def _value(self, graph: TensorGraph, node: NodeDef, position: int) -> Array | None:
        """Return the value of a small constant input."""
        name = tensor(graph.index.data_inputs(node)[position])
        root = graph.root(name)
        if not graph.is_end(root) and graph.node(root).op == "Const":
            return graph.constant(root)
        return None if name in graph.fed else constant_folding.fold_constant(graph.index, name)

    def _shape_of(self, name: str) -> list[int] | None:
        """Return the sizes of a source's tensor, if all are known."""
        shape = self._source.shapes.get_tensor_by_name(tensor(name)).shape
        return [*map(int, shape.as_list())] if shape.is_fully_defined() else None

    def _rank(self, name: str) -> int:
        rank = find_rank(self._source, name)
        if rank is None:
            raise DifferentError(f"expected a known rank of {name}, found none")
        return rank


def _insert(gone: Sequence[int], places: Sequence[int], order: Order, rank: int, *, is_sorted: bool) -> Order:
    """Return the order of all axes, with some axes fixed at given places.

    The other axes have an order of their own.
    """
    if is_sorted:  # the places say nothing of which axis lies where
        last = (0, *range(2, rank), 1)
        gone = sorted(gone, key=last.index)
        places = sorted(places)
    left = [axis for axis in range(rank) if axis not in gone]
    rest = iter([left[axis] for axis in order or range(len(left))])
    at = dict(zip(places, gone, strict=True))
    return tuple(at[position] if position in at else next(rest) for position in range(rank))
