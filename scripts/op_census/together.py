"""Variants of several ops, as programs write them."""

import numpy as np

from op_census import values
from op_census.values import NUMBERS, ordinary
from op_census.variants import Fed, i32, one_of, row_of, together


def _sorting():
    for dtype in ("float32", "float64", "int32", "int64"):
        x = Fed(
            [None, None],
            ordinary=ordinary(dtype, 3, 5),
            odd=values.odd(dtype)[None],
            one=ordinary(dtype, 2, 1),
        )
        for direction in ("ASCENDING", "DESCENDING"):
            together(
                "TopKV2",
                "sort,%s,%s" % (dtype, direction),
                [x],
                lambda tf, x, d=direction: tf.sort(x, direction=d),
            )
            together(
                "TopKV2",
                "argsort,%s,%s" % (dtype, direction),
                [x],
                lambda tf, x, d=direction: tf.argsort(x, direction=d, stable=True),
            )


def _rewrites():
    x = one_of("float32")
    for name, build in (
        ("add and subtract", lambda tf, x: (x + 1e10) - 1e10),
        ("subtract and add", lambda tf, x: (x - 3e7) + 3e7),
        ("multiply and divide", lambda tf, x: (x * 1e30) / 1e30),
        ("twice halved", lambda tf, x: x * 2.0 * 0.5),
        ("double negation", lambda tf, x: -(-x)),
        ("sums of equal", lambda tf, x: x + x + x),
        ("square of root", lambda tf, x: tf.sqrt(tf.square(x))),
        ("factors of a sum", lambda tf, x: x * 1e-20 + x * 3e20),
        ("divided by itself", lambda tf, x: x / x),
        ("times zero", lambda tf, x: x * 0.0),
        ("of reciprocal", lambda tf, x: 1.0 / (1.0 / x)),
        ("log of softmax", lambda tf, x: tf.log(tf.nn.softmax(x))),
        ("log of 1 + x", lambda tf, x: tf.log(1.0 + x)),
        ("exp of x less 1", lambda tf, x: tf.exp(x) - 1.0),
        ("power of 2", lambda tf, x: tf.pow(x, 2.0)),
        ("power of 3", lambda tf, x: tf.pow(x, 3.0)),
        ("power of a half", lambda tf, x: tf.pow(tf.abs(x), 0.5)),
    ):
        together("Mul" if "time" in name or "ti" in name else "AddV2", "rewrite,%s" % name, [x], build)
    for through in ("float32", "float16", "int8"):
        y = one_of("int32")
        if through == "int8":
            together(
                "Cast", "int32 to int8 and back", [y], lambda tf, y: tf.cast(tf.cast(y, tf.int8), tf.int32)
            )
        else:
            small = Fed(
                ordinary=ordinary("int32", 3, 4),
                odd=i32(2049, 16777217, -33333, 2147483520)[None]
                if through == "float32"
                else i32(2049, 4097, -3333)[None],
            )
            together(
                "Cast",
                "int32 to %s and back" % through,
                [small],
                lambda tf, y, t=through: tf.cast(tf.cast(y, t), tf.int32),
            )
    together(
        "Cast",
        "float32 to float16 and back",
        [one_of("float32")],
        lambda tf, x: tf.cast(tf.cast(x, tf.float16), tf.float32),
    )
    together(
        "Cast",
        "float64 to float32 and back",
        [one_of("float64")],
        lambda tf, x: tf.cast(tf.cast(x, tf.float32), tf.float64),
    )


def _masks():
    for low in (-np.inf, -1e9, np.float32(-3.4028235e38)):
        mask = Fed(ordinary=ordinary("bool", 3, 4), one=np.zeros((1, 4), bool))
        x = Fed(ordinary=ordinary("float32", 3, 4), one=ordinary("float32", 1, 4))
        together(
            "Select",
            "masked with %s" % low,
            [mask, x],
            lambda tf, m, x, low=low: tf.where(m, x, tf.fill(tf.shape(x), np.float32(low))),
        )
        together(
            "Softmax",
            "masked with %s" % low,
            [mask, x],
            lambda tf, m, x, low=low: tf.nn.softmax(tf.where(m, x, tf.ones_like(x) * np.float32(low))),
        )
    together(
        "IsNan",
        "zero for NaN",
        [one_of("float32")],
        lambda tf, x: tf.where(tf.is_nan(x), tf.zeros_like(x), x),
    )
    together(
        "IsFinite",
        "finite sums",
        [one_of("float32")],
        lambda tf, x: tf.reduce_sum(tf.where(tf.is_finite(x), x, tf.zeros_like(x)), 1),
    )
    lengths = Fed(ordinary=i32(2, 0, 5), odd=i32(7, 1, -1))
    together("Range", "sequence mask", [lengths], lambda tf, n: tf.sequence_mask(n, 5, tf.float32))
    together("Range", "sequence mask, open", [Fed(ordinary=i32(2, 0, 5))], lambda tf, n: tf.sequence_mask(n))
    together(
        "Where",
        "boolean mask",
        [
            Fed(ordinary=ordinary("float32", 3, 4)),
            Fed([None], ordinary=np.array([True, False, True]), empty=np.zeros(3, bool)),
        ],
        lambda tf, x, m: tf.boolean_mask(x, m),
    )


def _statistics():
    steps = Fed(
        ordinary=ordinary("float32", 2, 3, 4),
        one=ordinary("float32", 2, 1, 4),
        empty=ordinary("float32", 2, 0, 4),
    )
    together("Mean", "moments", [steps], lambda tf, x: tf.nn.moments(x, [1]))
    together("Mean", "deviation", [steps], lambda tf, x: tf.math.reduce_std(x, 1))
    together("Mean", "variance", [steps], lambda tf, x: tf.math.reduce_variance(x, 1))
    together("Max", "log of sums of exponents", [steps], lambda tf, x: tf.reduce_logsumexp(x, 1))
    together("Sum", "l2 normalized", [row_of("float32", 3, 4)], lambda tf, x: tf.nn.l2_normalize(x, 1))
    together("Sum", "norm", [row_of("float32", 3, 4)], lambda tf, x: tf.norm(x, axis=1))
    together("Sum", "counted", [row_of("int32", 3, 4)], lambda tf, x: tf.count_nonzero(x, 1))
    for dtype in NUMBERS:
        together(
            "Sum",
            "of equal to 7,%s" % dtype,
            [one_of(dtype)],
            lambda tf, x: tf.reduce_sum(tf.cast(tf.equal(x, tf.cast(7, x.dtype)), tf.int32)),
        )


def _loops():
    rows = Fed(
        [None, 3],
        ordinary=ordinary("float32", 4, 3),
        empty=ordinary("float32", 0, 3),
        one=ordinary("float32", 1, 3),
    )
    together("While", "map", [rows], lambda tf, x: tf.map_fn(lambda row: row * 2.0 + 1.0, x))
    together(
        "While",
        "scan",
        [rows],
        lambda tf, x: tf.scan(lambda a, row: a * 0.5 + row, x, initializer=tf.zeros([3])),
    )
    together(
        "While",
        "fold",
        [rows],
        lambda tf, x: tf.foldl(lambda a, row: a * 0.5 + row, x, initializer=tf.zeros([3])),
    )
    count = Fed([], ordinary=np.array(5, np.int32), one=np.array(1, np.int32), empty=np.array(0, np.int32))
    together(
        "While",
        "counted",
        [count],
        lambda tf, n: tf.while_loop(
            lambda k, a: k < n, lambda k, a: (k + 1, a * 3 + k), [tf.constant(0), tf.constant(1)]
        )[1],
    )
    together(
        "Switch",
        "cond",
        [rows, Fed([], ordinary=np.array(True), odd=np.array(False))],
        lambda tf, x, p: tf.cond(p, lambda: x * 2.0, lambda: x - 1.0),
    )


def _replaced():
    """Ops that have another form together than alone."""
    signal = Fed([None, 8], ordinary=ordinary("float32", 3, 8))
    together("RFFT", "sizes", [signal], lambda tf, x: tf.abs(tf.spectral.rfft(x, [6])))
    together("RFFT", "parts", [signal], lambda tf, x: [part(tf.spectral.rfft(x, [6])) for part in (tf.real, tf.imag)])
    together(
        "Bitcast",
        "signs of float32",
        [one_of("float32")],
        lambda tf, x: tf.less(tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), np.int32(-(2**31))), 0),
    )


_sorting()
_rewrites()
_masks()
_statistics()
_loops()
_replaced()
