"""TensorFlow's types of elements as NumPy's.

Source: tensorflow v2.21.0 core/framework/types.proto, python/framework/dtypes.py `_TF_TO_NP`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

FLOAT, DOUBLE, STRING, COMPLEX64, INT64, BOOL = 1, 2, 7, 8, 9, 10
COMPLEX128, HALF = 18, 19
#: int32, uint8, int16, int8, qint8, quint8, qint32, uint16
SMALL_INTEGERS: Final = frozenset({3, 4, 5, 6, 11, 12, 13, 17})
_QUANTIZED: Final = {11: ("qint8", "i1"), 12: ("quint8", "u1"), 13: ("qint32", "<i4")} | {
    15: ("qint16", "<i2"),
    16: ("quint16", "<u2"),
}
#: Of numbers alone: what a file stores byte for byte as NumPy does.
_NUMBERS: Final = MappingProxyType(
    {
        **{FLOAT: np.float32, DOUBLE: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8},
        **{COMPLEX64: np.complex64, INT64: np.int64, BOOL: np.bool_, 14: ml_dtypes.bfloat16},
        **{17: np.uint16, COMPLEX128: np.complex128, HALF: np.float16, 22: np.uint32, 23: np.uint64},
        **{24: ml_dtypes.float8_e5m2, 25: ml_dtypes.float8_e4m3fn, 26: ml_dtypes.float8_e4m3fnuz},
        **{27: ml_dtypes.float8_e4m3b11fnuz, 28: ml_dtypes.float8_e5m2fnuz},
        **{29: ml_dtypes.int4, 30: ml_dtypes.uint4, 31: ml_dtypes.int2, 32: ml_dtypes.uint2},
        33: ml_dtypes.float4_e2m1fn,
        **{number: [field] for number, field in _QUANTIZED.items()},
    }
)


def of(number: int) -> np.dtype[Any]:
    """The dtype of a type: `object` for strings, and for what has no numbers, which `numeric` refuses."""
    found: Any = _NUMBERS.get(number, np.object_)
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype


def numeric(number: int) -> np.dtype[Any]:
    """The dtype of numbers. Raises ValueError for resources, variants and types of a later TensorFlow."""
    if number not in _NUMBERS:
        raise ValueError(f"elements of type {number}, which are no numbers")
    return of(number)
