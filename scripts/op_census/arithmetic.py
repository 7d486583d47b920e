"""Variants of ops that compute element by element."""

import numpy as np

from op_census import values
from op_census.values import FLOATS, INTS, NUMBERS, TYPES
from op_census.variants import Fed, add, one_of, pair_of, row_of, scalar

SIGNED = ("int32", "int64")
UNARY = {
    "Abs": FLOATS + ("int8",) + SIGNED,
    "Neg": FLOATS + SIGNED + ("complex64",),
    "Sign": FLOATS + SIGNED + ("complex64",),
    "Square": FLOATS + SIGNED + ("complex64",),
    "Round": FLOATS + SIGNED,
    "Invert": INTS,
    "PopulationCount": INTS,
    "Relu": NUMBERS,
    "Relu6": NUMBERS,
    "OnesLike": TYPES,
    "ZerosLike": TYPES + ("string",),
    "Conj": ("complex64",),
    **dict.fromkeys(("Inv", "Reciprocal"), FLOATS + ("complex64",)),
    **dict.fromkeys("Exp Log Sin Cos Sqrt Rsqrt Tanh Sigmoid".split(), FLOATS + ("complex64",)),
    **dict.fromkeys("Sinh Cosh Tan Asin Acos Atan Asinh Acosh Atanh Expm1 Log1p".split(), FLOATS),
    **dict.fromkeys("Ceil Floor Rint IsFinite IsInf IsNan Erf Erfc Lgamma Digamma".split(), FLOATS),
    **dict.fromkeys("Elu Selu Softplus Softsign L2Loss BesselI0e BesselI1e".split(), FLOATS),
}
BINARY = {
    **dict.fromkeys(("Add", "AddV2"), FLOATS + SIGNED + ("uint8", "complex64")),
    "Sub": NUMBERS + ("complex64",),
    "Mul": NUMBERS + ("complex64",),
    **dict.fromkeys(("Maximum", "Minimum"), FLOATS + SIGNED),
    "SquaredDifference": FLOATS + SIGNED,
    **dict.fromkeys(("Less", "LessEqual", "Greater", "GreaterEqual"), NUMBERS),
    **dict.fromkeys(("Equal", "NotEqual"), TYPES + ("string",)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTS),
    **dict.fromkeys(("DivNoNan", "MulNoNan", "Xdivy", "Xlogy"), FLOATS),
    **dict.fromkeys(("LogicalAnd", "LogicalOr"), ("bool",)),
    **dict.fromkeys(("ReluGrad", "Relu6Grad"), FLOATS + SIGNED),
    "Atan2": FLOATS,
    "ApproximateEqual": ("float32", "int32"),
    "NextAfter": ("float32", "float64"),
}
#: The names of the two inputs, where they are not x and y.
NAMES = {
    "Atan2": ("y", "x"),
    "NextAfter": ("x1", "x2"),
    **{op: ("gradients", "features") for op in ("ReluGrad", "Relu6Grad")},
}
FEATURES = ("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu")


def _unary():
    for op, dtypes in UNARY.items():
        for dtype in dtypes:
            name = (
                "features" if op in FEATURES else "t" if op == "L2Loss" else "input" if op == "Conj" else "x"
            )
            add(op, dtype, {name: one_of(dtype)})
    add("LogicalNot", "bool", {"x": one_of("bool")})
    for dtype in FLOATS:
        for alpha in (0.0, 0.3, 1.5, -0.5):
            add("LeakyRelu", "%s,alpha=%s" % (dtype, alpha), {"features": one_of(dtype)}, alpha=alpha)
    for op in ("Real", "Imag", "Angle", "ComplexAbs"):
        add(op, "complex64", {"x" if op == "ComplexAbs" else "input": one_of("complex64")})
    add("Complex", "float32", zip(("real", "imag"), pair_of("float32")))


def _binary():
    for op, dtypes in BINARY.items():
        for dtype in dtypes:
            add(op, dtype, zip(NAMES.get(op, ("x", "y")), pair_of(dtype)))
    whole = {dtype: values.odd(dtype)[values.odd(dtype) > 0] for dtype in INTS}
    for op in ("Div", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Mod", "RealDiv"):
        for dtype in FLOATS + (SIGNED if "Mod" in op else INTS):
            if (
                op == "RealDiv"
                and dtype in INTS
                or op.startswith("Truncate")
                and op[8:] == "Div"
                and dtype in FLOATS
            ):
                continue
            second = (
                np.concatenate([whole[dtype], -whole[dtype][1:4]]) if dtype in SIGNED else whole.get(dtype)
            )
            add(op, dtype, zip("xy", pair_of(dtype, second, "positive")))
    for dtype in FLOATS:
        add("Pow", dtype, zip("xy", pair_of(dtype, np.array([0, 1, 2, 3, -1, 0.5, -2, 1.5], dtype))))
    for dtype in SIGNED:
        add("Pow", dtype, zip("xy", pair_of(dtype, np.array([0, 1, 2, 3, 5], dtype), "positive")))
    for op in ("LeftShift", "RightShift"):
        for dtype in INTS:
            add(op, dtype, zip("xy", pair_of(dtype, np.array([0, 1, 3, 7], dtype), "positive")))
    for dtype in FLOATS:
        for op in ("TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "InvGrad", "ReciprocalGrad"):
            add(op, dtype, zip(("y", "dy"), (row_of(dtype, 3, 4), row_of(dtype, 3, 4))))
        for op in ("SoftplusGrad", "SoftsignGrad"):
            add(op, dtype, {"gradients": row_of(dtype, 3, 4), "features": row_of(dtype, 3, 4)})
        for op in ("EluGrad", "SeluGrad"):
            add(op, dtype, {"gradients": row_of(dtype, 3, 4), "outputs": row_of(dtype, 3, 4)})
        add(
            "LeakyReluGrad",
            dtype,
            {"gradients": row_of(dtype, 3, 4), "features": row_of(dtype, 3, 4)},
            alpha=0.3,
        )
        add(
            "ClipByValue",
            dtype,
            {"t": one_of(dtype), "clip_value_min": scalar(-1.5, dtype), "clip_value_max": scalar(2, dtype)},
        )
        bounds = {"clip_value_min": scalar(2, dtype), "clip_value_max": scalar(-1, dtype)}
        add("ClipByValue", "%s,crossed" % dtype, dict({"t": one_of(dtype)}, **bounds))
        add("Cross", dtype, {"a": row_of(dtype, 4, 3), "b": row_of(dtype, 4, 3)})
        bounds = [-2.5, 0.0, 1.0, 2.0**24]
        if dtype != "float16":
            add("Bucketize", dtype, {"input": one_of(dtype)}, boundaries=bounds)
    for dtype in SIGNED:
        add(
            "ClipByValue",
            dtype,
            {
                "t": one_of(dtype),
                "clip_value_min": scalar(-5, dtype),
                "clip_value_max": scalar(2**24 + 1, dtype),
            },
        )
        add("Bucketize", dtype, {"input": one_of(dtype)}, boundaries=[-5.0, 2.0, 16777217.0])
        add("Cross", dtype, {"a": row_of(dtype, 4, 3), "b": row_of(dtype, 4, 3)})


def _several():
    for dtype in ("float32", "float64"):
        ranks = Fed(ordinary=np.array([[1, 2, 3], [0.5, 1.5, 4]], dtype))
        at = Fed(ordinary=np.array([[0.5, 2, 7], [1.25, 3, 0.25]], dtype))
        share = Fed(ordinary=np.array([[0.5, 0.0, 1.0], [0.25, 0.125, 0.75]], dtype))
        for op in ("Igamma", "Igammac", "IgammaGradA", "Polygamma"):
            first = Fed(ordinary=np.array([[1, 2, 3], [0, 1, 4]], dtype)) if op == "Polygamma" else ranks
            add(op, dtype, {"a": first, "x": at})
        add("Betainc", dtype, {"a": ranks, "b": at, "x": share})
        add("Zeta", dtype, {"x": Fed(ordinary=np.array([[1.5, 2, 3], [4, 5, 1.25]], dtype)), "q": at})
    for dtype in FLOATS + SIGNED + ("uint8",):
        for count in (1, 2, 3):
            each = [row_of(dtype, 3, 4) for _ in range(count)]
            add("AddN", "%s,%d" % (dtype, count), {"inputs": each})
            if count > 1:
                add(
                    "AccumulateNV2",
                    "%s,%d" % (dtype, count),
                    {
                        "inputs": [
                            Fed([3, 4], ordinary=values.ordinary(dtype, 3, 4, seed=k)) for k in range(count)
                        ]
                    },
                    shape=[3, 4],
                )


def _casts():
    kinds = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool")
    for source in kinds:
        for target in kinds:
            if source != target:
                given = one_of(source)
                given.arrays.pop("nonfinite", None)
                given.arrays.pop("denormal", None)
                if source in FLOATS and target in INTS:  # beyond the range is not defined
                    limits = np.iinfo(target)
                    row = values.odd(source).astype(np.float64)
                    inside = (row > limits.min) & (row < limits.max)
                    given.arrays["odd"] = values.odd(source)[inside][None]
                    given.arrays["ordinary"] = np.abs(given.arrays["ordinary"])
                add("Cast", "%s to %s" % (source, target), {"x": given}, DstT=target)
    for source in ("float64", "float32"):
        add(
            "Cast",
            "%s to %s,truncated" % (source, "float16"),
            {"x": one_of(source)},
            DstT="float16",
            Truncate=True,
        )
    for source, target in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("float64", "int64"),
        ("int32", "uint8"),
        ("int16", "uint16"),
        ("float32", "uint8"),
    ):
        add("Bitcast", "%s to %s" % (source, target), {"input": one_of(source)}, type=target)


_unary()
_binary()
_several()
_casts()
