"""Variants of products, decompositions and spectra."""

import numpy as np

from op_census.values import ordinary
from op_census.variants import Fed, add, i32, row_of, scalar


def square(dtype, *batch):
    """Matrices of rank 3 that are well conditioned, symmetric and positive."""
    given = ordinary(dtype if dtype != "float16" else "float32", *(batch + (3, 3)))
    return (given @ np.swapaxes(given, -1, -2).conj() + 2 * np.eye(3)).astype(dtype)


def _products():
    for dtype in ("float32", "float64", "int32", "int64"):
        for a in (False, True):
            for b in (False, True):
                x, y = ordinary(dtype, 3, 4), ordinary(dtype, 4, 5)
                add(
                    "MatMul",
                    "%s,%d%d" % (dtype, a, b),
                    {
                        "a": Fed(
                            ordinary=x.T if a else x, empty=(x.T if a else x)[:0] if not a else x.T[:, :0]
                        ),
                        "b": y.T if b else y,
                    },
                    transpose_a=a,
                    transpose_b=b,
                )
                x, y = ordinary(dtype, 2, 3, 4), ordinary(dtype, 2, 4, 5)
                x, y = (np.swapaxes(each, 1, 2) if turned else each for each, turned in ((x, a), (y, b)))
                for op in ("BatchMatMul", "BatchMatMulV2"):
                    add(
                        op,
                        "%s,%d%d" % (dtype, a, b),
                        {"x": Fed(ordinary=x), "y": Fed(ordinary=y)},
                        adj_x=a,
                        adj_y=b,
                    )
        add(
            "BatchMatMulV2",
            "%s,broadcast" % dtype,
            {"x": Fed(ordinary=ordinary(dtype, 2, 1, 3, 4)), "y": Fed(ordinary=ordinary(dtype, 3, 4, 5))},
        )
    for dtype in ("int32", "int64"):
        add(
            "MatMul",
            "%s,large" % dtype,
            {"a": row_of(dtype, 3, 4), "b": np.array([[1, 0], [0, 1], [1, 1], [0, 3]], dtype)},
        )
    for equation in ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij,ij->", "bti,ij->btj", "b...i,ij->b...j"):
        sides = equation.split("->")[0].split(",")
        sizes = dict(zip("bijkt", (2, 3, 4, 5, 2)))
        each = [
            Fed(ordinary=ordinary("float32", *[sizes[axis] for axis in side.replace("...", "t")], seed=k))
            for k, side in enumerate(sides)
        ]
        add("Einsum", equation, {"inputs": each}, equation=equation)
    for sparse in (False, True):
        add(
            "SparseMatMul",
            "sparse=%s" % sparse,
            {"a": Fed(ordinary=ordinary("float32", 3, 4)), "b": ordinary("float32", 4, 5)},
            a_is_sparse=sparse,
        )


def _decompositions():
    for dtype in ("float32", "float64"):
        given = Fed(ordinary=square(dtype, 2))
        rhs = Fed(ordinary=ordinary(dtype, 2, 3, 2))
        for op in ("Cholesky", "MatrixDeterminant", "LogMatrixDeterminant", "MatrixSquareRoot", "Lu", "Qr"):
            add(op, dtype, {"input": given})
        for adjoint in (False, True):
            add("MatrixInverse", "%s,%d" % (dtype, adjoint), {"input": given}, adjoint=adjoint)
            add("MatrixSolve", "%s,%d" % (dtype, adjoint), {"matrix": given, "rhs": rhs}, adjoint=adjoint)
            for lower in (False, True):
                add(
                    "MatrixTriangularSolve",
                    "%s,%d%d" % (dtype, adjoint, lower),
                    {"matrix": given, "rhs": rhs},
                    adjoint=adjoint,
                    lower=lower,
                )
            add(
                "SelfAdjointEigV2", "%s,%d" % (dtype, adjoint), {"input": given}, 1, compute_v=False
            ) if not adjoint else None
        add("MatrixSolveLs", dtype, {"matrix": given, "rhs": rhs, "l2_regularizer": scalar(0.1, "float64")})
        add("Svd", dtype, {"input": given}, 1, compute_uv=False)
        add(
            "CholeskyGrad",
            dtype,
            {"l": Fed(ordinary=np.linalg.cholesky(square(dtype, 2))), "grad": Fed(ordinary=square(dtype, 2))},
        )
        add(
            "TridiagonalSolve",
            dtype,
            {
                "diagonals": Fed(ordinary=ordinary(dtype, 3, 5) + np.array([[0], [4], [0]], dtype)),
                "rhs": Fed(ordinary=ordinary(dtype, 5, 2)),
            },
        )
        diagonals = [Fed(ordinary=ordinary(dtype, 1, 5, seed=k)) for k in range(3)]
        add(
            "TridiagonalMatMul",
            dtype,
            dict(
                zip(("superdiag", "maindiag", "subdiag"), diagonals), rhs=Fed(ordinary=ordinary(dtype, 5, 2))
            ),
        )


def _spectra():
    signal = Fed([None, 8], ordinary=ordinary("float32", 3, 8))
    for length in (8, 6, 5):
        add("RFFT", "%d" % length, {"input": signal, "fft_length": i32(length)})
        add(
            "IRFFT",
            "%d" % length,
            {"input": Fed([None, 5], ordinary=ordinary("complex64", 3, 5)), "fft_length": i32(length)},
        )
    for op in ("FFT", "IFFT"):
        for rank in (1, 2, 3):
            add(
                op + ("" if rank == 1 else "%dD" % rank),
                "complex64",
                {"input": Fed(ordinary=ordinary("complex64", 2, 4, 3, 5))},
            )
    for rank in (2, 3):
        for op, dtype, width in (("RFFT", "float32", 8), ("IRFFT", "complex64", 5)):
            add(
                "%s%dD" % (op, rank),
                dtype,
                {"input": Fed(ordinary=ordinary(dtype, 2, 4, 6, width)), "fft_length": i32(*(4, 6, 8)[-rank:])},
            )
    add(
        "AudioSpectrogram",
        "plain",
        {"input": Fed(ordinary=ordinary("float32", 40, 2))},
        window_size=16,
        stride=8,
    )
    add(
        "AudioSpectrogram",
        "squared",
        {"input": Fed(ordinary=ordinary("float32", 40, 2))},
        window_size=16,
        stride=8,
        magnitude_squared=True,
    )
    add(
        "Mfcc",
        "plain",
        {"spectrogram": Fed(ordinary=np.abs(ordinary("float32", 1, 3, 129))), "sample_rate": scalar(8000)},
    )


_products()
_decompositions()
_spectra()
