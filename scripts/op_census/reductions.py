"""Variants of reductions, searches, sorting and segments."""

import numpy as np

from op_census import values
from op_census.values import COUNTS, FLOATS, ordinary
from op_census.variants import Fed, add, i32, row_of, scalar

AXES = (
    ("last", i32(-1), False),
    ("two,kept", i32(0, 2), True),
    ("all", i32(0, 1, 2), False),
    ("none", i32(), False),
    ("steps", scalar(1), False),
)
WIDE = ("float32", "float64", "int32", "int64")


def blocks(dtype, is_mild):
    """A tensor of rank 3, with odd values, without steps, and with one step."""
    row = values.mild(dtype) if is_mild else values.odd(dtype)
    kinds = {
        "ordinary": ordinary(dtype, 2, 3, 4),
        "odd": values.filled(row, 2, 3, 5),
        "empty": ordinary(dtype, 2, 0, 4),
        "one": ordinary(dtype, 2, 1, 3),
    }
    if dtype in FLOATS:
        kinds["nonfinite"] = values.filled(values.nonfinite(dtype)[[5, 0, 6, 1, 7, 2, 3]], 2, 3, 4)
    return Fed(**kinds)


def _reductions():
    dtypes = WIDE + ("float16", "int8", "uint8")
    for op in ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"):
        for dtype in dtypes if op != "EuclideanNorm" else FLOATS:
            for name, axis, keep in AXES:
                if dtype in WIDE or name in ("last", "steps"):
                    inputs = {"input": blocks(dtype, op not in ("Max", "Min")), "reduction_indices": axis}
                    add(op, "%s,%s" % (dtype, name), inputs, keep_dims=keep)
        add(
            op,
            "float32,fed axis",
            {"input": blocks("float32", True), "reduction_indices": Fed([1], ordinary=i32(1), one=i32(-1))},
        )
        add(
            op,
            "float32,fed axes",
            {"input": blocks("float32", True), "reduction_indices": Fed([None], ordinary=i32(1, 0))},
            keep_dims=True,
        )
    for op in ("All", "Any"):
        for name, axis, keep in AXES:
            add(
                op,
                "bool,%s" % name,
                {
                    "input": Fed(
                        ordinary=ordinary("bool", 2, 3, 4),
                        odd=np.ones((2, 3, 4), bool),
                        empty=np.ones((2, 0, 4), bool),
                        one=np.zeros((2, 1, 4), bool),
                    ),
                    "reduction_indices": axis,
                },
                keep_dims=keep,
            )
    for op in ("ArgMax", "ArgMin"):
        for dtype in WIDE + ("float16", "int8", "uint8"):
            x = row_of(dtype, 3, 4, one=ordinary(dtype, 3, 1))
            x.arrays["odd"] = np.stack(
                [values.odd(dtype), np.repeat(values.odd(dtype)[:1], len(values.odd(dtype)))]
            )
            for axis in (0, -1):
                add(
                    op,
                    "%s,axis=%d" % (dtype, axis),
                    {"input": x, "dimension": scalar(axis)},
                    output_type="int32" if axis else "int64",
                )
    for op in ("Cumsum", "Cumprod"):
        for dtype in WIDE + ("uint8",):
            for name, exclusive, reverse in (
                ("plain", False, False),
                ("exclusive", True, False),
                ("reverse", False, True),
                ("both", True, True),
            ):
                if dtype in ("float32", "int32") or name == "plain":
                    add(
                        op,
                        "%s,%s" % (dtype, name),
                        {"x": blocks(dtype, True), "axis": scalar(1)},
                        exclusive=exclusive,
                        reverse=reverse,
                    )
            add(op, "%s,last" % dtype, {"x": blocks(dtype, True), "axis": scalar(-1)})
    for dtype in FLOATS[:2]:
        for exclusive in (False, True):
            add(
                "CumulativeLogsumexp",
                "%s,%s" % (dtype, "exclusive" if exclusive else "plain"),
                {"x": blocks(dtype, True), "axis": scalar(1)},
                exclusive=exclusive,
            )


def _searches():
    for dtype in WIDE + ("float16", "int8", "uint8"):
        row = values.odd(dtype)
        x = Fed(ordinary=ordinary(dtype, 3, 5), odd=np.stack([row, row[::-1]]), one=ordinary(dtype, 1, 3))
        if dtype in FLOATS:
            x.arrays["nonfinite"] = np.stack(
                [values.nonfinite(dtype)[1:7], values.nonfinite(dtype)[1:7][::-1]]
            )
        for k in (1, 3):
            add("TopKV2", "%s,k=%d" % (dtype, k), {"input": x, "k": scalar(k)})
        add(
            "TopKV2",
            "%s,fed" % dtype,
            {"input": x, "k": Fed([], ordinary=scalar(2), one=scalar(3), empty=scalar(0))},
        )
        for reverse in (False, True):
            add(
                "NthElement",
                "%s,%s" % (dtype, "largest" if reverse else "smallest"),
                {"input": x, "n": Fed([], ordinary=scalar(1))},
                reverse=reverse,
            )
    for dtype in WIDE:
        ends = {
            "sorted_inputs": Fed(ordinary=np.sort(ordinary(dtype, 2, 6))),
            "values": Fed(ordinary=ordinary(dtype, 2, 4, seed=1)),
        }
        for op in ("LowerBound", "UpperBound"):
            add(op, dtype, ends)
        weights = Fed(ordinary=ordinary(dtype, 6))
        add(
            "Bincount",
            dtype,
            {"arr": Fed(ordinary=i32(0, 2, 2, 5, 1, 9)), "size": scalar(6), "weights": weights},
        )
        add(
            "Bincount",
            "%s,counts" % dtype,
            {
                "arr": Fed(ordinary=i32(0, 2, 2, 5, 1, 9)),
                "size": Fed([], ordinary=scalar(6)),
                "weights": np.zeros(0, dtype),
            },
        )
        add(
            "HistogramFixedWidth",
            dtype,
            {
                "values": Fed(ordinary=ordinary(dtype, 9), odd=values.mild(dtype)[:9]),
                "value_range": np.array([-3, 3], dtype),
                "nbins": scalar(4),
            },
        )
    for dtype in COUNTS:
        guess = Fed(ordinary=ordinary("float32", 3, 5), odd=np.ones((3, 5), np.float32))
        add(
            "InTopKV2",
            dtype,
            {
                "predictions": guess,
                "targets": Fed(ordinary=np.array([1, 0, 4], dtype), odd=np.array([4, 2, 0], dtype)),
                "k": scalar(2, dtype),
            },
        )
        add("InTopK", dtype, {"predictions": guess, "targets": Fed(ordinary=np.array([1, 0, 4], dtype))}, k=2)


def _segments():
    for dtype in WIDE:
        data = row_of(dtype, 5, 2)
        data.arrays["odd"] = values.filled(values.mild(dtype), 5, 2)
        for op in ("Sum", "Mean", "Max", "Min", "Prod"):
            for kind in COUNTS:
                ids = Fed(
                    ordinary=np.array([0, 0, 1, 3, 3], kind),
                    odd=np.array([1, 1, 1, 4, 4], kind),
                    one=np.array([0, 0, 0, 0, 0], kind),
                )
                add("Segment%s" % op, "%s,%s" % (dtype, kind), {"data": data, "segment_ids": ids})
                if op != "Mean":
                    ids = Fed(ordinary=np.array([3, 0, 1, 3, 0], kind), odd=np.array([-1, 1, 1, 4, -1], kind))
                    add(
                        "UnsortedSegment%s" % op,
                        "%s,%s" % (dtype, kind),
                        {"data": data, "segment_ids": ids, "num_segments": scalar(5)},
                    )
            if op != "Mean":
                ids = Fed(ordinary=np.array([3, 0, 1, 3, 0]))
                add(
                    "UnsortedSegment%s" % op,
                    "%s,fed" % dtype,
                    {
                        "data": Fed(ordinary=ordinary(dtype, 5, 2)),
                        "segment_ids": ids,
                        "num_segments": Fed([], ordinary=scalar(4), one=scalar(7)),
                    },
                )
    for dtype in ("float32", "float64"):
        for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
            inputs = {
                "data": row_of(dtype, 5, 2),
                "indices": Fed(ordinary=i32(4, 0, 0, 2)),
                "segment_ids": Fed(ordinary=i32(0, 0, 2, 2), one=i32(0, 1, 2, 3)),
            }
            add(op, dtype, inputs)
            add("%sWithNumSegments" % op, dtype, dict(inputs, num_segments=scalar(4)))


_reductions()
_searches()
_segments()
