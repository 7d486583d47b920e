"""Variants of ops of sparse and ragged tensors and sets."""

import numpy as np

from op_census.values import COUNTS, ordinary
from op_census.variants import Fed, add, i32, scalar

AT = np.array([[0, 1], [1, 0], [1, 3], [2, 2]])
OTHERS = np.array([[0, 0], [1, 0], [2, 2]])
SIZE = np.array([3, 4])
WIDE = ("float32", "float64", "int32", "int64")


def coo(prefix, dtype, at=AT, seed=0, names=("indices", "values", "shape")):
    """The three inputs of a sparse tensor."""
    parts = (Fed(ordinary=at), Fed(ordinary=ordinary(dtype, len(at), seed=seed)), SIZE)
    return {prefix + name: part for name, part in zip(names, parts)}


def _sparse():
    for dtype in WIDE:
        a, b = coo("a_", dtype), coo("b_", dtype, OTHERS, 1)
        add("SparseAdd", dtype, dict(dict(a, **b), thresh=scalar(0, dtype)))
        for op in ("SparseSparseMaximum", "SparseSparseMinimum"):
            add(op, dtype, dict(a, **b))
        add("SparseTensorDenseAdd", dtype, dict(a, b=Fed(ordinary=ordinary(dtype, 3, 4, seed=5))))
        for turned in (False, True):
            right = ordinary(dtype, 3, 2, seed=5) if turned else ordinary(dtype, 4, 2, seed=5)
            add(
                "SparseTensorDenseMatMul",
                "%s,adjoint=%s" % (dtype, turned),
                dict(a, b=Fed(ordinary=right)),
                adjoint_a=turned,
            )
        dense = Fed(ordinary=np.abs(ordinary(dtype, 3, 4, seed=4)) + np.array(1, dtype))
        for op in ("Add", "Mul", "Div"):
            add("SparseDenseCwise%s" % op, dtype, dict(coo("sp_", dtype), dense=dense))
        for op in ("Max", "Sum"):
            for keep in (False, True):
                for sparse in ("", "Sparse"):
                    add(
                        "SparseReduce%s%s" % (op, sparse),
                        "%s,kept=%s" % (dtype, keep),
                        dict(coo("input_", dtype), reduction_axes=i32(1)),
                        keep_dims=keep,
                    )
        two = (
            [Fed(ordinary=AT), Fed(ordinary=OTHERS)],
            [Fed(ordinary=ordinary(dtype, 4)), Fed(ordinary=ordinary(dtype, 3, seed=1))],
            [SIZE, SIZE],
        )
        add("SparseConcat", dtype, zip(("indices", "values", "shapes"), two), concat_dim=1)
        add("SparseSlice", dtype, dict(coo("", dtype), start=np.array([0, 1]), size=np.array([2, 2])))
        add("SparseSplit", dtype, dict({"split_dim": np.array(1)}, **coo("", dtype)), num_split=2)
        add("SparseReorder", dtype, coo("input_", dtype, AT[::-1]))
        add(
            "SparseFillEmptyRows",
            dtype,
            dict(
                coo("", dtype, AT[:3], names=("indices", "values", "dense_shape")),
                default_value=scalar(7, dtype),
            ),
        )
        if dtype == "float32":
            add(
                "SparseFillEmptyRows",
                "float32,values",
                dict(
                    coo("", dtype, AT[:3], names=("indices", "values", "dense_shape")),
                    default_value=scalar(7, dtype),
                ),
                outputs=2,
            )
        if dtype.startswith("float"):
            add("SparseSoftmax", dtype, coo("sp_", dtype))
        for kind in COUNTS:
            at = Fed(ordinary=AT.astype(kind))
            add(
                "SparseToDense",
                "%s,%s" % (dtype, kind),
                {
                    "sparse_indices": at,
                    "output_shape": SIZE.astype(kind),
                    "sparse_values": Fed(ordinary=ordinary(dtype, 4)),
                    "default_value": scalar(-1, dtype),
                },
            )
            add(
                "SparseToDense",
                "%s,%s,fed shape" % (dtype, kind),
                {
                    "sparse_indices": at,
                    "output_shape": Fed([2], ordinary=SIZE.astype(kind)),
                    "sparse_values": Fed(ordinary=ordinary(dtype, 4)),
                    "default_value": scalar(0, dtype),
                },
            )
    add(
        "SparseToDense",
        "string,int64",
        {
            "sparse_indices": Fed(ordinary=AT),
            "output_shape": SIZE,
            "sparse_values": Fed(ordinary=ordinary("string", 4)),
            "default_value": np.array(b"", object),
        },
    )
    add(
        "SparseReshape",
        "plain",
        {"input_indices": Fed(ordinary=AT), "input_shape": SIZE, "new_shape": np.array([2, -1])},
    )
    words = np.array([b"k", b"i", b"t", b"s"], object)
    for normalize in (False, True):
        hypothesis = zip(
            ("hypothesis_indices", "hypothesis_values", "hypothesis_shape"), (AT, Fed(ordinary=words), SIZE)
        )
        truth = zip(("truth_indices", "truth_values", "truth_shape"), (OTHERS, Fed(ordinary=words[1:]), SIZE))
        add("EditDistance", "normalize=%s" % normalize, [*hypothesis, *truth], normalize=normalize)


def _sets():
    for dtype in ("int32", "int64", "string"):
        first, second = ordinary(dtype, 2, 5), ordinary(dtype, 2, 4, seed=1)
        for operation in ("intersection", "a-b", "union"):
            add(
                "DenseToDenseSetOperation",
                "%s,%s" % (dtype, operation),
                {"set1": Fed(ordinary=first), "set2": Fed(ordinary=second)},
                set_operation=operation,
            )
            sets = {
                "set1_indices": Fed(ordinary=AT),
                "set1_values": Fed(ordinary=ordinary(dtype, 4)),
                "set1_shape": SIZE,
            }
            sets.update(
                {
                    "set2_indices": Fed(ordinary=OTHERS),
                    "set2_values": Fed(ordinary=ordinary(dtype, 3, seed=2)),
                    "set2_shape": SIZE,
                }
            )
            add("SparseToSparseSetOperation", "%s,%s" % (dtype, operation), sets, set_operation=operation)
            dense = {
                "set1": Fed(ordinary=ordinary(dtype, 3, 2)),
                "set2_indices": Fed(ordinary=OTHERS),
                "set2_values": Fed(ordinary=ordinary(dtype, 3, seed=2)),
                "set2_shape": SIZE,
            }
            add("DenseToSparseSetOperation", "%s,%s" % (dtype, operation), dense, set_operation=operation)
        add(
            "SetSize",
            dtype,
            {
                "set_indices": Fed(ordinary=AT),
                "set_values": Fed(ordinary=ordinary(dtype, 4)),
                "set_shape": SIZE,
            },
        )


def _ragged():
    splits = Fed(ordinary=np.array([0, 2, 2, 5]))
    for dtype in ("float32", "int32", "string"):
        flat = Fed(ordinary=ordinary(dtype, 5))
        add(
            "RaggedGather",
            dtype,
            {
                "params_nested_splits": [splits],
                "params_dense_values": flat,
                "indices": Fed(ordinary=i32(2, 0)),
            },
            OUTPUT_RAGGED_RANK=1,
        )
        add("RaggedTensorToSparse", dtype, {"rt_nested_splits": [splits], "rt_dense_values": flat})
        blank = np.array(b"", object) if dtype == "string" else scalar(0, dtype)
        add(
            "RaggedTensorToTensor",
            dtype,
            {
                "shape": np.array([-1, -1]),
                "values": flat,
                "default_value": blank,
                "row_partition_tensors": [splits],
            },
            row_partition_types=["ROW_SPLITS"],
        )
    for dtype in ("float32", "int32", "int64"):
        add(
            "RaggedRange",
            dtype,
            {
                "starts": Fed(ordinary=np.array([0, 5, 8], dtype)),
                "limits": Fed(ordinary=np.array([3, 5, 2], dtype)),
                "deltas": Fed(ordinary=np.array([1, 1, -2], dtype)),
            },
        )


_sparse()
_sets()
_ragged()
