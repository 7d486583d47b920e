"""The tables indexed by an input's integers, as limits for random integers.

Ids go to the gather as they are, moved, with others among them, or after arithmetic. Where they keep their
values the gather's table says which ids there are. Otherwise it only says how large they should at most be.

A table may be partitioned. TensorFlow divides ids among the parts, by remainder or by range, and gathers from
each part what is its own: arithmetic on the ids, a DynamicPartition, a gather for each part (tensorflow
v1.15.0 python/ops/embedding_ops.py `_embedding_lookup_and_transform`).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import Index, NodeDef, split, walk

#: What hands on values, and at which of its inputs they are. Others may be added: padding, a first word.
#: Source: tensorflow v2.21.0 core/ops (`*_ops.cc`).
_VALUES: Final = {
    **dict.fromkeys(
        "Identity StopGradient PreventGradient Snapshot Cast Print CheckNumerics EnsureShape Reshape "
        "PlaceholderWithDefault ExpandDims Squeeze Transpose StridedSlice Slice Tile BroadcastTo Pad PadV2 "
        "MirrorPad Reverse ReverseV2 ReverseSequence SplitV Unpack Gather GatherV2 GatherNd Unique UniqueV2 "
        "Switch Enter Exit NextIteration".split(),
        slice(1),
    ),
    **dict.fromkeys(("Merge", "Pack", "Maximum", "Minimum"), slice(None)),
    **dict.fromkeys(("Concat", "Split", *ops.SELECTS), slice(1, None)),
    "ConcatV2": slice(-1),
    "SparseToDense": slice(2, None),
}
#: Those all of whose outputs are such values; of the others the first is.
_SEVERAL: Final = frozenset({"Split", "SplitV", "Unpack", "Switch"})
#: What reads only the shape of a tensor.
SHAPES: Final = frozenset("Shape ShapeN Size Rank ZerosLike OnesLike".split())


def walk_carriers(index: Index, name: str, carriers: Collection[str]) -> Iterator[str]:
    """Yield a tensor, and all tensors made from the tensor by `carriers`."""

    def onward(current: str) -> Iterator[str]:
        return (f"{reader.name}:0" for reader in index.consumers(*split(current)) if reader.op in carriers)

    return walk([name], onward)


def count_rows(index: Index, seen: tf.Graph, name: str) -> int | None:
    """Count the rows of the smallest table indexed by a tensor's values.

    None if they index no table, or one of unknown size.
    """

    def onward(current: str) -> Iterator[str]:
        for reader in index.consumers(*split(current)):
            if current in index.data_inputs(reader)[_VALUES.get(reader.op, slice(0))]:
                outputs = seen.get_operation_by_name(reader.name).outputs
                yield from (output.name for output in outputs[: None if reader.op in _SEVERAL else 1])

    rows = _count_fewest(index, seen, walk([name], onward))
    if rows is not None:
        return rows
    return _count_partition_rows(index, seen, name)


def count_fewest_rows(index: Index, seen: tf.Graph, name: str) -> int | None:
    """Count the rows of the smallest table indexed by any descendant of a tensor.

    Comparisons are not followed: what they make is a mask. None as in `count_rows`.
    """

    def onward(current: str) -> Iterator[str]:
        for reader in index.consumers(*split(current)):
            is_index = reader.op in ops.GATHERS and index.data_inputs(reader)[0] != current
            if not is_index and reader.op not in SHAPES:
                outputs = seen.get_operation_by_name(reader.name).outputs
                yield from (output.name for output in outputs if not output.dtype.is_bool)

    return _count_fewest(index, seen, walk([name], onward))


def _count_fewest(index: Index, seen: tf.Graph, names: Iterable[str]) -> int | None:
    """Return the number of rows of the smallest table indexed by the tensors."""
    counts = [
        _count_indexed(index, seen, reader, name)
        for name in names
        for reader in index.consumers(*split(name))
    ]
    return min((rows for rows in counts if rows is not None), default=None)


def _count_indexed(index: Index, seen: tf.Graph, reader: NodeDef, name: str) -> int | None:
    """Return the number of rows of the table indexed in `reader` by the tensor `name`."""
    inputs = index.data_inputs(reader)
    if reader.op in ops.GATHERS and inputs[1] == name:
        return _count_table_rows(index, seen, reader)
    if reader.op == "OneHot" and inputs[0] == name:
        depth = tf.get_static_value(seen.get_operation_by_name(reader.name).inputs[1])
        return None if depth is None else int(depth)
    return None


def _count_table_rows(index: Index, seen: tf.Graph, gather: Any) -> int | None:
    if gather.op == "ResourceGather":
        handle = index.nodes[split(gather.input[0])[0]]
        dims = handle.attr["shape"].shape.dim
        return int(dims[0].size) if dims else None
    table, _, *axes = seen.get_operation_by_name(gather.name).inputs
    axis = tf.get_static_value(axes[0]) if axes else 0
    return table.shape[int(axis)] if table.shape.rank and axis is not None else None


_MOVES_VALUES: Final = frozenset({"Identity", "Cast"})
_ARITHMETIC: Final = (_VALUES.keys() | set("FloorMod FloorDiv Sub Add AddV2 Mul".split())) - ops.GATHERS


def _count_partition_rows(index: Index, seen: tf.Graph, ids: str) -> int | None:
    """Return the number of rows of the partitioned table indexed by `ids`, if any."""
    tables: dict[str, NodeDef] = {}
    for partition in _list_readers(index, ids, _ARITHMETIC, {"DynamicPartition"}):
        for k in range(partition.attr["num_partitions"].i):
            for gather in _list_readers(index, f"{partition.name}:{k}", _MOVES_VALUES, ops.GATHERS):
                table = index.maker(gather.input[0], ["Identity", "ReadVariableOp"])
                tables[table.name] = gather
    counts = [_count_table_rows(index, seen, gather) for gather in tables.values()]
    known = [rows for rows in counts if rows is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _list_readers(
    index: Index, name: str, carriers: Collection[str], kinds: Collection[str]
) -> list[NodeDef]:
    """Return the readers of a tensor of some ops, directly or through `carriers`."""
    carried = walk_carriers(index, name, carriers)
    readers = (reader for current in carried for reader in index.consumers(*split(current)))
    return [*{reader.name: reader for reader in readers if reader.op in kinds}.values()]
