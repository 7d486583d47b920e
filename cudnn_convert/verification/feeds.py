"""Inputs to compare on: random, seeded, and such that the model accepts them.

At least two pairs of (time, batch), all different. Whether an unknown dimension is time or batch is found by
trying: the assignment counts where the recurrences then see the batch size that was meant, or, where that
is fixed, the number of steps.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification.source import Source

SIZES: Final = ((17, 3), (9, 2))
_CARRIERS: Final = frozenset(
    "Identity Cast Reshape ExpandDims Squeeze Transpose Switch Enter Merge NextIteration StridedSlice "
    "Maximum Minimum".split()
)
_GATHERS: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})
_TRIES: Final = 64
#: What NumPy raises for a file that is no archive of arrays, or a damaged one, or one with pickles in it.
_DAMAGED: Final = (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


def generated(plan: Plan, source: Source, *, seed: int) -> list[dict[str, Array]]:
    """One feed, by tensor of `plan.signature`, for each of `SIZES`.

    Raises UnsupportedModelError where no assignment of the unknown dimensions runs.
    """
    seen, index = build.imported(plan.graph), Index(plan.graph)
    names = list(plan.signature.inputs.values())
    tensors = {name: seen.get_tensor_by_name(name) for name in names}
    _refuse_unknown(plan, tensors)
    ranges = {name: _rows(index, seen, name) for name in names}
    right_steps: list[dict[str, Array]] | None = None
    accepted: list[dict[str, Array]] | None = None
    failure = "no unknown dimension could be told"
    for roles in _assignments(tensors):
        rng = np.random.default_rng(seed)
        feeds = [
            {name: _value(rng, tensors[name], roles[name], ranges[name], sizes) for name in names}
            for sizes in SIZES
        ]
        try:
            seen_sizes = [_sizes(plan, source, feed) for feed in feeds]
        except (tf.errors.OpError, ValueError) as error:
            failure = str(error).splitlines()[0]
            continue
        pairs = list(zip(seen_sizes, SIZES, strict=True))
        if all({batch for _, batch in found} <= {size[1]} for found, size in pairs):
            return feeds
        if all({time for time, _ in found} <= {size[0]} for found, size in pairs):
            right_steps = right_steps or feeds
        accepted = accepted or feeds
    if accepted is not None:
        return right_steps or accepted
    raise UnsupportedModelError(
        plan.model.path,
        [f"inputs: expected random inputs that the model accepts, found none ({failure}); give --data"],
    )


def given(plan: Plan, source: Source, path: Path) -> list[dict[str, Array]]:
    """The one feed in an `.npz` whose keys are the signature's. Raises UsageError."""
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {key: data[key] for key in data.files}
    except _DAMAGED as cause:
        raise UsageError(f"--data {path}: expected an .npz of plain arrays, found none") from cause
    if set(arrays) != set(plan.signature.inputs):
        expected, found = sorted(plan.signature.inputs), sorted(arrays)
        raise UsageError(f"--data {path}: expected the keys {expected}, found {found}")
    seen, reasons, feed = build.imported(plan.graph), [], {}
    for key, name in plan.signature.inputs.items():
        wanted, found = seen.get_tensor_by_name(name), arrays[key]
        dtype = wanted.dtype
        is_cut_off = found.dtype.kind in "fc" and (dtype.is_integer or dtype.is_bool)
        if is_cut_off or not wanted.shape.is_compatible_with(found.shape):
            what = f"{found.dtype}{list(found.shape)}"
            reasons.append(f"--data {path}: {key}: expected {dtype.name}{wanted.shape}, found {what}")
        else:
            feed[name] = found.astype(dtype.as_numpy_dtype)
    if reasons:
        raise UsageError("\n".join(reasons))
    try:
        _sizes(plan, source, feed)
    except tf.errors.OpError as cause:
        failure = cause.message.splitlines()[0]
        raise UsageError(
            f"--data {path}: expected inputs that the model accepts; it says: {failure}"
        ) from cause
    return [feed]


def _sizes(plan: Plan, source: Source, feed: Mapping[str, Array]) -> list[tuple[int, int]]:
    source.run(feed, list(plan.signature.outputs.values()))
    return list(source.sizes)


def _refuse_unknown(plan: Plan, tensors: Mapping[str, Any]) -> None:
    reasons = []
    for name, found in tensors.items():
        if found.shape.rank is None:
            reasons.append(f"{name}: expected a known rank, found none; refine it: --inputs '{name}[?,?]'")
        elif found.dtype == tf.string:
            reasons.append(f"{name}: expected numbers, found strings; give --data")
        elif found.dtype.is_integer and found.shape.rank == 0:
            reasons.append(
                f"{name}: expected to know what this integer means, found no hint; give --data or --set"
            )
    if reasons:
        raise UnsupportedModelError(plan.model.path, reasons)


def _assignments(tensors: Mapping[str, Any]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Ways to call unknown dimensions time and batch: all inputs alike first, then mixed."""
    choices = {}
    for name, found in tensors.items():
        unknown = sum(width is None for width in found.shape.as_list())
        batch_first = ("batch", *("time",) * (unknown - 1))
        time_first = ("time", "batch", *("time",) * (unknown - 2))
        choices[name] = [(), ()] if not unknown else [batch_first, time_first if unknown > 1 else ("time",)]
    alike = [dict(zip(choices, column, strict=True)) for column in zip(*choices.values(), strict=True)]
    # One-dimensional inputs are nearly always one per row, whichever way round the others are.
    per_row = {name: options[0] for name, options in choices.items() if len(options[0]) == 1}
    yield from ({**roles, **per_row} for roles in alike or [{}])
    mixed = product(*choices.values())
    yield from (
        dict(zip(choices, column, strict=True)) for column, _ in zip(mixed, range(_TRIES), strict=False)
    )


def _rows(index: Index, seen: tf.Graph, name: str) -> int | None:
    """How many rows the table has that a tensor's values pick from, or None where they pick from none."""
    todo, done = [name], set()
    while todo:
        current = todo.pop()
        if current in done:
            continue
        done.add(current)
        op, k = split(current)
        for reader in index.consumers(op, k):
            position = [tensor(found) for found in reader.input].index(current)
            if reader.op in _GATHERS and position == 1:
                return _table_rows(index, seen, reader)
            if reader.op == "OneHot" and position == 0:
                depth = tf.get_static_value(seen.get_operation_by_name(reader.name).inputs[1])
                return None if depth is None else int(depth)
            if reader.op in _CARRIERS and position == 0:
                todo += [f"{reader.name}:{j}" for j in range(2)]
    return None


def _table_rows(index: Index, seen: tf.Graph, gather: Any) -> int | None:
    if gather.op == "ResourceGather":
        handle = index.nodes[split(gather.input[0])[0]]
        dims = handle.attr["shape"].shape.dim
        return int(dims[0].size) if dims else None
    shape = seen.get_operation_by_name(gather.name).inputs[0].shape
    return shape[0] if shape.rank else None


def _value(
    rng: np.random.Generator, found: Any, roles: tuple[str, ...], rows: int | None, sizes: tuple[int, int]
) -> Array:
    by_role = dict(zip(("time", "batch"), sizes, strict=True))
    left = iter(roles)
    shape = [by_role[next(left)] if width is None else width for width in found.shape.as_list()]
    dtype = found.dtype.as_numpy_dtype
    if found.dtype.is_bool:
        lengths = rng.integers(1, shape[-1] + 1, [*shape[:-1], 1]) if shape else 1
        return np.asarray(np.arange(shape[-1]) < lengths if shape else rng.integers(2) == 1)
    if found.dtype.is_integer:
        # Integers that pick from no table are lengths: at least one step, at most all.
        low, high = (0, rows) if rows else (1, by_role["time"] + 1)
        return rng.integers(low, high, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
