"""Variants of ops that make, cut, join and order arrays."""

import numpy as np

from op_census import values
from op_census.values import COUNTS, ordinary
from op_census.variants import Fed, add, i32, row_of, scalar

#: One dtype of each kind: floats, wide and narrow integers, bool, strings.
KINDS = ("float32", "int64", "uint8", "bool", "string")


def cube(dtype, *shape, **more):
    """A tensor of rank 3, ordinary, without rows, and of one."""
    shape = shape or (2, 3, 4)
    empty, one = (0,) + shape[1:], (1,) + shape[1:]
    kinds = {
        "ordinary": ordinary(dtype, *shape),
        "empty": ordinary(dtype, *empty),
        "one": ordinary(dtype, *one),
    }
    return Fed(**dict(kinds, **more))


def _shapes():
    for dtype in KINDS:
        for out in COUNTS:
            for op in ("Shape", "Size"):
                add(op, "%s,%s" % (dtype, out), {"input": cube(dtype)}, out_type=out)
        add("ShapeN", dtype, {"input": [cube(dtype), cube(dtype, 3, 1, 2)]})
        add("Rank", dtype, {"input": cube(dtype)})
        add("Reshape", "%s,flat" % dtype, {"tensor": cube(dtype), "shape": i32(-1)})
        add("Reshape", "%s,rows" % dtype, {"tensor": cube(dtype), "shape": i32(-1, 4)})
        add(
            "Reshape",
            "%s,fed shape" % dtype,
            {
                "tensor": Fed(ordinary=ordinary(dtype, 2, 6)),
                "shape": Fed(ordinary=i32(3, 4), odd=i32(4, -1), one=i32(1, 12)),
            },
        )
        add("ExpandDims", dtype, {"input": cube(dtype), "dim": scalar(-2)})
        add("Squeeze", "%s,dims" % dtype, {"input": Fed(ordinary=ordinary(dtype, 3, 1, 4))}, squeeze_dims=[1])
        add(
            "Squeeze",
            "%s,all" % dtype,
            {"input": Fed([None, 1, None], ordinary=ordinary(dtype, 3, 1, 4), one=ordinary(dtype, 1, 1, 4))},
        )
        add("BroadcastTo", dtype, {"input": row_of(dtype, 3, 1), "shape": i32(2, 3, 4)})
        add(
            "BroadcastTo",
            "%s,fed shape" % dtype,
            {"input": row_of(dtype, 3, 1), "shape": Fed(ordinary=i32(2, 3, 4), one=i32(1, 3, 1))},
        )
        add(
            "Fill",
            dtype,
            {"dims": Fed(ordinary=i32(2, 3), empty=i32(0, 3)), "value": Fed([], ordinary=ordinary(dtype))},
        )
        add(
            "Fill",
            "%s,fed rank" % dtype,
            {
                "dims": Fed([None], ordinary=i32(2, 3, 1), one=i32(1)),
                "value": scalar(ordinary(dtype).tolist(), object if dtype == "string" else dtype),
            },
        )
        add("Tile", dtype, {"input": cube(dtype), "multiples": i32(2, 1, 3)})
        add(
            "Tile",
            "%s,fed" % dtype,
            {
                "input": cube(dtype),
                "multiples": Fed(ordinary=i32(1, 2, 1), empty=i32(1, 0, 1), one=i32(1, 1, 1)),
            },
        )
        for op in ("Identity", "Snapshot", "StopGradient", "PreventGradient"):
            add(op, dtype, {"input": row_of(dtype, 3, 4)})
        add("IdentityN", dtype, {"input": [row_of(dtype, 3, 4), cube(dtype)]})
        add("PlaceholderWithDefault", dtype, {"input": row_of(dtype, 3, 4)}, shape=[None, 4])
        add("EnsureShape", dtype, {"input": row_of(dtype, 3, 4)}, shape=[None, 4])
    for dtype in COUNTS:
        pair = {"s0": Fed(ordinary=np.array([3, 1, 5], dtype)), "s1": Fed(ordinary=np.array([4, 1], dtype))}
        add("BroadcastArgs", dtype, pair)
        add("BroadcastGradientArgs", dtype, pair)
        order = Fed(ordinary=np.array([2, 0, 3, 1], dtype))
        add("InvertPermutation", dtype, {"x": order})
        for op in ("DataFormatDimMap", "DataFormatVecPermute"):
            add(op, dtype, {"x": order})
            add(op, "%s,back" % dtype, {"x": order}, src_format="NCHW", dst_format="NHWC")
        add(
            "UnravelIndex",
            dtype,
            {"indices": Fed(ordinary=np.array([22, 3, 5], dtype)), "dims": np.array([3, 4, 2], dtype)},
        )
        add(
            "Range",
            dtype,
            {
                key: Fed([], ordinary=scalar(a, dtype), odd=scalar(b, dtype), empty=scalar(c, dtype))
                for key, a, b, c in (("start", 1, 9, 3), ("limit", 8, -2, 3), ("delta", 2, -3, 1))
            },
        )
        add(
            "ConcatOffset",
            dtype,
            {"concat_dim": scalar(1), "shape": [Fed(ordinary=i32(2, 3)), Fed(ordinary=i32(2, 5))]},
        ) if dtype == "int32" else None
    for dtype in ("float32", "float64"):
        add(
            "Range",
            dtype,
            {
                key: Fed([], ordinary=scalar(a, dtype), odd=scalar(b, dtype), one=scalar(c, dtype))
                for key, a, b, c in (("start", 0, 7, 0), ("limit", 3, 0, 0.3), ("delta", 0.5, -0.7, 0.1))
            },
        )
        ends = {"start": Fed([], ordinary=scalar(-1, dtype)), "stop": Fed([], ordinary=scalar(2, dtype))}
        for count in (1, 2, 7):
            add("LinSpace", "%s,%d" % (dtype, count), dict(ends, num=scalar(count)))
        add("LinSpace", "%s,fed" % dtype, dict(ends, num=Fed([], ordinary=scalar(5), one=scalar(1))))


def _parts():
    for dtype in KINDS:
        x = cube(dtype)
        add("Slice", dtype, {"input": x, "begin": i32(0, 1, 1), "size": i32(-1, 2, -1)})
        add(
            "Slice",
            "%s,fed" % dtype,
            {
                "input": Fed(ordinary=ordinary(dtype, 2, 3, 4)),
                "begin": Fed(ordinary=i32(0, 1, 2), one=i32(1, 0, 3), empty=i32(0, 3, 0)),
                "size": Fed(ordinary=i32(2, 1, -1), one=i32(1, -1, 1), empty=i32(0, 0, 4)),
            },
        )
        for name, begin, end, strides, masks in SLICES:
            add(
                "StridedSlice",
                "%s,%s" % (dtype, name),
                {"input": x, "begin": i32(*begin), "end": i32(*end), "strides": i32(*strides)},
                **masks,
            )
        for op in ("Gather", "GatherV2"):
            axis = [] if op == "Gather" else [("axis", scalar(1))]
            add(
                op,
                dtype,
                [
                    ("params", x),
                    (
                        "indices",
                        Fed(ordinary=i32(1, 0) if op == "Gather" else i32(2, 0, 2), empty=i32(), one=i32(0)),
                    ),
                ]
                + axis,
            )
        add(
            "GatherV2",
            "%s,batch" % dtype,
            {
                "params": Fed(ordinary=ordinary(dtype, 2, 3, 4)),
                "indices": Fed(ordinary=np.array([[2, 0], [1, 1]], np.int64)),
                "axis": scalar(1),
            },
            batch_dims=1,
        )
        add(
            "GatherV2",
            "%s,last" % dtype,
            {"params": x, "indices": Fed(ordinary=np.array([[3, 0], [1, 1]], np.int64)), "axis": scalar(-1)},
        )
        add(
            "GatherNd",
            dtype,
            {
                "params": Fed(ordinary=ordinary(dtype, 2, 3, 4)),
                "indices": Fed(ordinary=i32(1, 2, 0, 1).reshape(2, 2), empty=i32().reshape(0, 2)),
            },
        )
        add("Split", dtype, {"split_dim": scalar(2), "value": x}, num_split=2)
        add("SplitV", dtype, {"value": x, "size_splits": i32(1, 3), "split_dim": scalar(2)}, num_split=2)
        add(
            "SplitV",
            "%s,rest" % dtype,
            {"value": x, "size_splits": i32(1, -1, 1), "split_dim": scalar(-1)},
            num_split=3,
        )
        add(
            "SplitV",
            "%s,fed" % dtype,
            {
                "value": x,
                "size_splits": Fed(ordinary=np.array([1, 2], np.int64), odd=np.array([3, 0], np.int64)),
                "split_dim": scalar(1),
            },
            num_split=2,
        )
        add("Unpack", dtype, {"value": Fed([None, 3, None], **x.arrays)}, num=3, axis=1)
        add(
            "DynamicPartition",
            dtype,
            {
                "data": Fed(ordinary=ordinary(dtype, 4, 3)),
                "partitions": Fed(ordinary=i32(1, 0, 2, 1), odd=i32(2, 2, 2, 2)),
            },
            num_partitions=3,
        )
        ids = [Fed(ordinary=i32(0, 2)), Fed(ordinary=i32(1, 2, 3), odd=i32(3, 0, 1))]
        rows = [Fed(ordinary=ordinary(dtype, 2, 3)), Fed(ordinary=ordinary(dtype, 3, 3, seed=1))]
        for op in ("DynamicStitch", "ParallelDynamicStitch"):
            add(op, "%s,overlapping" % dtype, {"indices": ids, "data": rows})


SLICES = (
    ("step", (0, 2, 0), (9, 0, 4), (1, -1, 2), {}),
    ("shrink", (0, -1, 1), (0, 0, 4), (1, 1, 1), {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}),
    ("new axis", (0, 0, 1), (0, 0, 3), (1, 1, 1), {"new_axis_mask": 2, "begin_mask": 1, "end_mask": 1}),
    ("ellipsis", (0, -2), (0, -1), (1, 1), {"ellipsis_mask": 1}),
    ("beyond", (-9, -9, 3), (9, 2, 99), (2, 1, 1), {}),
    ("backwards", (0, 0, 0), (0, 0, 0), (-1, -1, -2), {"begin_mask": 7, "end_mask": 7}),
    ("nothing", (0, 2, 0), (9, 1, 4), (1, 1, 1), {}),
)


def _joins():
    for dtype in KINDS:
        pair = [cube(dtype), cube(dtype)]
        add("ConcatV2", dtype, {"values": pair, "axis": scalar(-1)})
        add("Concat", dtype, {"concat_dim": scalar(0), "values": pair})
        add("Pack", dtype, {"values": pair}, axis=1)
        add(
            "Pack",
            "%s,scalars" % dtype,
            {"values": [Fed([], ordinary=ordinary(dtype, seed=k)) for k in range(3)]},
            axis=0,
        )
        for mode in ("Pad", "PadV2"):
            inputs = {"input": cube(dtype), "paddings": i32(0, 0, 1, 2, 0, 1).reshape(3, 2)}
            if mode == "PadV2":
                inputs["constant_values"] = np.array(b"x", object) if dtype == "string" else scalar(1, dtype)
            add(mode, dtype, inputs)
        add(
            "Pad",
            "%s,fed" % dtype,
            {"input": cube(dtype), "paddings": Fed(ordinary=i32(1, 0, 0, 2, 0, 0).reshape(3, 2))},
        )
        add(
            "OneHot",
            "%s" % dtype,
            {
                "indices": Fed(ordinary=i32(1, 0, 2), odd=i32(-1, 3, 7)),
                "depth": scalar(4),
                "on_value": _scalar(dtype, 1),
                "off_value": _scalar(dtype, 0),
            },
        )
        add(
            "OneHot",
            "%s,axis" % dtype,
            {
                "indices": Fed(ordinary=np.array([[1, 0, 2]]), odd=np.array([[-1, 3, 2**40]])),
                "depth": Fed([], ordinary=scalar(3), empty=scalar(0)),
                "on_value": _scalar(dtype, 1),
                "off_value": _scalar(dtype, 0),
            },
            axis=1,
        )
        for op in ("Select", "SelectV2"):
            add(
                op,
                dtype,
                {
                    "condition": Fed(ordinary=ordinary("bool", 3, 4)),
                    "t": row_of(dtype, 3, 4),
                    "e": Fed(ordinary=ordinary(dtype, 3, 4, seed=5)),
                },
            )
        add(
            "Select",
            "%s,rows" % dtype,
            {
                "condition": Fed(ordinary=ordinary("bool", 3)),
                "t": row_of(dtype, 3, 4),
                "e": Fed(ordinary=ordinary(dtype, 3, 4, seed=5)),
            },
        )
        add(
            "SelectV2",
            "%s,broadcast" % dtype,
            {
                "condition": Fed(ordinary=ordinary("bool", 3, 1)),
                "t": row_of(dtype, 1, 4),
                "e": Fed(ordinary=ordinary(dtype, 3, 4, seed=5)),
            },
        )
    for dtype in ("float32", "int32"):
        for mode in ("REFLECT", "SYMMETRIC"):
            add(
                "MirrorPad",
                "%s,%s" % (dtype, mode),
                {"input": cube(dtype), "paddings": i32(0, 0, 1, 2, 2, 1).reshape(3, 2)},
                mode=mode,
            )


def _scalar(dtype, value):
    return np.array(b"on" if value else b"off", object) if dtype == "string" else scalar(value, dtype)


def _orders():
    for dtype in KINDS:
        x = cube(dtype)
        add("Transpose", dtype, {"x": x, "perm": i32(2, 0, 1)})
        add("Transpose", "%s,fed" % dtype, {"x": x, "perm": Fed([3], ordinary=i32(1, 2, 0))})
        add("ConjugateTranspose", dtype, {"x": x, "perm": i32(2, 0, 1)})
        add("ReverseV2", dtype, {"tensor": x, "axis": i32(0, -1)})
        add("Reverse", dtype, {"tensor": x, "dims": np.array([False, True, False])})
        add(
            "ReverseSequence",
            dtype,
            {
                "input": Fed(ordinary=ordinary(dtype, 3, 5, 2)),
                "seq_lengths": Fed(ordinary=np.array([5, 0, 3]), odd=np.array([1, 2, 4])),
            },
            seq_dim=1,
            batch_dim=0,
        )
        add(
            "ReverseSequence",
            "%s,time major" % dtype,
            {"input": Fed(ordinary=ordinary(dtype, 5, 3, 2)), "seq_lengths": Fed(ordinary=i32(5, 0, 3))},
            seq_dim=0,
            batch_dim=1,
        )
        add("Roll", dtype, {"input": x, "shift": i32(1, -2), "axis": i32(1, 2)})
        add(
            "Unique",
            dtype,
            {
                "x": Fed(
                    ordinary=values.filled(values.odd(dtype), 9),
                    odd=np.resize(values.odd(dtype)[::-1], 40),
                    empty=values.odd(dtype)[:0],
                )
            },
        )
        for op in ("UniqueWithCounts",):
            add(
                op,
                dtype,
                {
                    "x": Fed(
                        ordinary=values.filled(values.odd(dtype), 9),
                        odd=np.resize(values.odd(dtype)[::-1], 40),
                        empty=values.odd(dtype)[:0],
                    )
                },
            )
        for op in ("UniqueV2", "UniqueWithCountsV2"):
            add(
                op,
                dtype,
                {"x": Fed(ordinary=np.resize(ordinary(dtype, 2, 3), (5, 3))), "axis": np.array([0])},
            )
        add(
            "ListDiff",
            dtype,
            {
                "x": Fed(ordinary=values.filled(values.odd(dtype), 7)),
                "y": Fed(ordinary=values.odd(dtype)[1:3]),
            },
        )
        if dtype != "string":
            add("Where", dtype, {"input": row_of(dtype, 3, 4, empty=ordinary(dtype, 0, 4))})
    for dtype in ("float32", "float64", "int32", "bool"):
        add("Diag", dtype, {"diagonal": row_of(dtype, 4)}) if dtype not in ("bool",) else None
        add("DiagPart", dtype, {"input": row_of(dtype, 4, 4)}) if dtype not in ("bool",) else None
        for op in ("MatrixDiag",):
            add(op, dtype, {"diagonal": row_of(dtype, 2, 3)})
        for op in ("MatrixDiagPart",):
            add(op, dtype, {"input": row_of(dtype, 2, 3, 4)})
        for op in ("MatrixSetDiag",):
            add(
                op,
                dtype,
                {"input": row_of(dtype, 2, 3, 4), "diagonal": Fed(ordinary=ordinary(dtype, 2, 3, seed=3))},
            )
        add(
            "MatrixDiagV2",
            dtype,
            {
                "diagonal": row_of(dtype, 2, 3),
                "k": scalar(1),
                "num_rows": scalar(-1),
                "num_cols": scalar(-1),
                "padding_value": scalar(1, dtype),
            },
        )
        for k in (0, -1, (-1, 1)):
            add(
                "MatrixDiagPartV2",
                "%s,k=%s" % (dtype, k),
                {
                    "input": row_of(dtype, 2, 3, 4),
                    "k": np.array(k, np.int32),
                    "padding_value": scalar(0, dtype),
                },
            )
        add(
            "MatrixSetDiagV2",
            dtype,
            {
                "input": row_of(dtype, 2, 3, 4),
                "diagonal": Fed(ordinary=ordinary(dtype, 2, 3, seed=3)),
                "k": scalar(1),
            },
        )
        for op in ("MatrixBandPart",):
            for low, high in ((0, -1), (1, 0), (-1, 1)):
                add(
                    op,
                    "%s,%d,%d" % (dtype, low, high),
                    {
                        "input": row_of(dtype, 2, 3, 4),
                        "num_lower": np.array(low),
                        "num_upper": np.array(high),
                    },
                )
        indices = Fed(ordinary=i32(2, 0, 2).reshape(3, 1), odd=i32(1, 1, 1).reshape(3, 1))
        add("ScatterNd", dtype, {"indices": indices, "updates": row_of(dtype, 3, 2), "shape": i32(4, 2)})
        add(
            "ScatterNd",
            "%s,fed shape" % dtype,
            {
                "indices": indices,
                "updates": Fed(ordinary=ordinary(dtype, 3, 2)),
                "shape": Fed(ordinary=i32(5, 2), one=i32(3, 2)),
            },
        )
        if dtype != "bool":
            for op in (
                "TensorScatterAdd",
                "TensorScatterSub",
                "TensorScatterUpdate",
                "ScatterNdNonAliasingAdd",
            ):
                name = "input" if op.startswith("ScatterNd") else "tensor"
                add(
                    op,
                    dtype,
                    {
                        name: Fed(ordinary=ordinary(dtype, 4, 2)),
                        "indices": Fed(ordinary=i32(2, 0, 3).reshape(3, 1), odd=i32(1, 1, 1).reshape(3, 1)),
                        "updates": Fed(ordinary=ordinary(dtype, 3, 2, seed=2)),
                    },
                )
    for dtype in ("float32", "int32"):
        for op in ("InplaceUpdate",):
            add(
                op,
                dtype,
                {
                    "x": Fed(ordinary=ordinary(dtype, 4, 2)),
                    "i": Fed(ordinary=i32(2, 0)),
                    "v": Fed(ordinary=ordinary(dtype, 2, 2, seed=1)),
                },
            )
        add(
            "TensorStridedSliceUpdate",
            dtype,
            {
                "input": Fed(ordinary=ordinary(dtype, 4, 3)),
                "begin": i32(1, 0),
                "end": i32(3, 2),
                "strides": i32(1, 1),
                "value": Fed(ordinary=ordinary(dtype, 2, 2, seed=1)),
            },
        )
        add(
            "StridedSliceGrad",
            dtype,
            {
                "shape": i32(4, 3),
                "begin": i32(0, 0),
                "end": i32(4, 2),
                "strides": i32(2, 1),
                "dy": Fed(ordinary=ordinary(dtype, 2, 2)),
            },
        )
        add(
            "ParallelConcat",
            dtype,
            {"values": [Fed([1, 3], ordinary=ordinary(dtype, 1, 3, seed=k)) for k in range(2)]},
            shape=[2, 3],
        )


def _blocks():
    for dtype in ("float32", "int32"):
        image = Fed([None, None, None, 4], ordinary=ordinary(dtype, 2, 4, 6, 4))
        for op in ("SpaceToDepth", "DepthToSpace"):
            add(op, dtype, {"input": image}, block_size=2)
        add("SpaceToBatch", dtype, {"input": image, "paddings": i32(0, 0, 1, 1).reshape(2, 2)}, block_size=2)
        add(
            "BatchToSpace",
            dtype,
            {"input": Fed(ordinary=ordinary(dtype, 4, 2, 3, 2)), "crops": i32(0, 1, 1, 0).reshape(2, 2)},
            block_size=2,
        )
        add(
            "SpaceToBatchND",
            dtype,
            {"input": image, "block_shape": i32(2, 3), "paddings": i32(0, 0, 0, 0).reshape(2, 2)},
        )
        add(
            "SpaceToBatchND",
            "%s,steps" % dtype,
            {
                "input": Fed(ordinary=ordinary(dtype, 2, 5, 3)),
                "block_shape": i32(2),
                "paddings": i32(1, 0).reshape(1, 2),
            },
        )
        add(
            "BatchToSpaceND",
            dtype,
            {
                "input": Fed(ordinary=ordinary(dtype, 6, 2, 3, 2)),
                "block_shape": i32(2, 3),
                "crops": i32(0, 1, 2, 0).reshape(2, 2),
            },
        )
        for padding in ("SAME", "VALID"):
            for rate in (1, 2):
                add(
                    "ExtractImagePatches",
                    "%s,%s,rate=%d" % (dtype, padding, rate),
                    {"images": image},
                    ksizes=[1, 2, 3, 1],
                    strides=[1, 2, 1, 1],
                    rates=[1, rate, rate, 1],
                    padding=padding,
                )
            add(
                "ExtractVolumePatches",
                "%s,%s" % (dtype, padding),
                {"input": Fed(ordinary=ordinary(dtype, 2, 3, 4, 5, 2))},
                ksizes=[1, 2, 2, 2, 1],
                strides=[1, 1, 2, 1, 1],
                padding=padding,
            )


def _in_types_of_their_own():
    """What is wrong in ONNX in these types alone."""
    for op in ("Unique", "UniqueWithCounts"):
        close = np.array([1 + 1e-12, 1.0, 3e300, 1 + 1e-12, -1.0])
        add(op, "float64", {"x": Fed(ordinary=values.ordinary("float64", 9), odd=close)})
    rows = {"params": Fed(ordinary=ordinary("string", 3, 4)), "indices": Fed(ordinary=i32(2, 0), empty=i32())}
    add("GatherV2", "string,rows", dict(rows, axis=scalar(0)))


_shapes()
_parts()
_joins()
_orders()
_blocks()
_in_types_of_their_own()
