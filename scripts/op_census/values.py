"""Ordinary and odd values of each dtype.

`ordinary` are few and small, `odd` are finite: signs, zeros, ties, extremes, integers that floats do not have.
`nonfinite` are NaN and infinities, `denormal` numbers that TensorFlow may take for 0. `empty` has an axis of size 0, `one` an axis of size 1.
"""

import zlib

import numpy as np

FLOATS = ("float32", "float64", "float16")
INTS = ("int8", "int32", "int64", "uint8")
COUNTS = ("int32", "int64")
NUMBERS = FLOATS + INTS
TYPES = NUMBERS + ("bool", "complex64")
WORDS = [
    b"",
    b"a",
    b"Hello World",
    b"  padded\t",
    "Gr\u00fc\u00dfe".encode(),
    "\u6c34 \U0001f600".encode(),
    b"12",
    b"-7.5",
]


def seeded(*parts):
    """Random numbers of a name."""
    return np.random.RandomState(zlib.crc32("/".join(map(str, parts)).encode()) & 0x7FFFFFFF)


def ordinary(dtype, *shape, low=-9, high=10, seed=0):
    """Random values of a shape; integers and their like from `low` to `high`, without it."""
    random = seeded(dtype, shape, seed)
    if dtype == "string":
        return np.array([WORDS[k] for k in random.randint(0, len(WORDS), shape).flat], object).reshape(shape)
    if dtype == "bool":
        return random.randint(0, 2, shape).astype(bool)
    if dtype.startswith("complex"):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    if dtype.startswith("float"):
        return random.standard_normal(shape).astype(dtype)
    return random.randint(max(low, 0) if dtype.startswith("uint") else low, high, shape).astype(dtype)


def odd(dtype):
    """Finite values that random inputs never draw, as a row."""
    if dtype == "string":
        return np.array(WORDS, object)
    if dtype == "bool":
        return np.array([True, False, True])
    if dtype.startswith("complex"):
        return np.array([0, -0.0, 1j, -1j, 2 + 3j, -2.5 - 0.5j, 1e10 + 1e-5j], dtype)
    if dtype.startswith("float"):
        ties = [-3.5, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, 7.0, -7.0, 1e-4, 255.5]
        large = {
            "float16": [2048.0, -65504.0],
            "float32": [2.0**24, -(2.0**24) + 1, 2.0**31, -1e10, 3e38],
            "float64": [2.0**24 + 1, 1 + 1e-12, 2.0**53, -1e10, 3e300],
        }[dtype]
        return np.array(ties + large, dtype)
    limits = np.iinfo(dtype)
    some = [0, 1, 2, 3, 7, 100, limits.max, limits.max - 1, limits.min]
    some += [-1, -2, -7, limits.min + 1] if limits.min else [200]
    some += [2**24, 2**24 + 1] if limits.max > 2**24 else []
    some += [2**31, 2**53 + 1, -(2**53) - 1] if limits.max > 2**31 else []
    return np.array(some, dtype)


def mild(dtype):
    """Odd values that sums and products of a few do not carry beyond the dtype."""
    values = odd(dtype)
    return values[np.abs(values.astype(np.float64)) < 1e4] if dtype.startswith("float") else values


def nonfinite(dtype):
    """NaN and infinities, beside others, as a row."""
    return np.array([np.nan, np.inf, -np.inf, 1.0, -2.0, 0.0, 0.5, -0.0], dtype)


def denormal(dtype):
    """Numbers below the smallest normal one, beside others, as a row."""
    tiny = {"float16": 6e-7, "float32": 1e-40, "float64": 1e-310}[dtype]
    return np.array([tiny, -tiny, 1.0, 0.0], dtype)


def filled(values, *shape):
    """An array of a shape, filled with a row of values again and again."""
    return np.resize(values, shape)
